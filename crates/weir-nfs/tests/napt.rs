//! Napt: what becomes of packets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;
#[macro_use]
#[path = "common/nat.rs"]
mod nat;

use common::v6;
use nat::*;
use serde_json::json;
use std::collections::HashMap;
use weir_nf::checksum::{L4Checksum, verify_l4};
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nf::{Depth, DropReason};
use weir_nfs::napt::Napt;
use weir_packet::parse;

with_1_2_and_3_instances! {
    fn a_connection_goes_out_by_an_outer_end_and_its_answers_come_back() {
        for vlan in [false, true] {
            let tag = |f: Frame<'static>| if vlan { f.tag(0x88a8, 5).vlan(7) } else { f };
            let mut bench = bench(config());
            let out = tag(Frame::ipv4(HOST, SERVER).options(&[1; 8]).tcp(5000, 80, SYN));
            let seen = from(&mut bench, INSIDE, &out);
            assert_eq!(ends(&seen, "outside"), ((OUTER, 5000), (SERVER, 80)));
            let back = tag(Frame::ipv4(SERVER, OUTER).tcp(80, 5000, SYN_ACK).payload(b"odd"));
            let seen = from(&mut bench, OUTSIDE, &back);
            assert_eq!(ends(&seen, "inside"), ((SERVER, 80), (HOST, 5000)));
            // All but addresses, ports and checksums is as it was.
            let expected = tag(Frame::ipv4(SERVER, HOST).tcp(80, 5000, SYN_ACK).payload(b"odd"));
            assert_eq!(seen.bytes, expected.build());
            let report = bench.report();
            assert_eq!(
                (&report["out"], &report["back"], &report["mappings"]),
                (&json!(1), &json!(1), &json!(1))
            );
        }
    }
}

with_1_2_and_3_instances! {
    fn an_inner_endpoint_has_one_outer_end_and_another_inner_one_another_of_the_same_parity() {
        let mut bench = bench(config());
        let udp = |host, port, to| Frame::ipv4(host, to).udp(port, 53);
        let outer = |bench: &mut Nat, host, port, to| {
            ends(&from(bench, INSIDE, &udp(host, port, to)), "outside").0
        };
        assert_eq!(outer(&mut bench, HOST, 5001, SERVER), (OUTER, 5001));
        assert_eq!(outer(&mut bench, HOST, 5001, [192, 0, 2, 1]), (OUTER, 5001));
        let other = outer(&mut bench, OTHER_HOST, 5001, SERVER);
        assert!(other.1 != 5001 && other.1 % 2 == 1 && other.1 >= 1024, "{other:?}");
        assert_eq!(outer(&mut bench, OTHER_HOST, 5001, [192, 0, 2, 1]), other);
        // Other protocols have ports of their own.
        let tcp = Frame::ipv4(OTHER_HOST, SERVER).tcp(5001, 80, SYN);
        assert_eq!(ends(&from(&mut bench, INSIDE, &tcp), "outside").0, (OUTER, 5001));
        // A well-known port is not in the block.
        let low = outer(&mut bench, HOST, 500, SERVER);
        assert!(low.1 >= 1024 && low.1 % 2 == 0, "{low:?}");
    }
}

with_1_2_and_3_instances! {
    fn filtering_says_who_may_answer() {
        let stranger = [192, 0, 2, 77];
        for (filtering, may) in [
            ("endpoint", [true, true, true]),
            ("address", [true, true, false]),
            ("port", [true, false, false]),
        ] {
            let mut config = config();
            config["filtering"] = json!(filtering);
            let mut bench = bench(config);
            from(&mut bench, INSIDE, &Frame::ipv4(HOST, SERVER).udp(5000, 53));
            for ((who, port), may) in [(SERVER, 53), (SERVER, 54), (stranger, 53)].into_iter().zip(may)
            {
                let seen = from(&mut bench, OUTSIDE, &Frame::ipv4(who, OUTER).udp(port, 5000));
                match may {
                    true => assert_eq!(ends(&seen, "inside"), ((who, port), (HOST, 5000))),
                    false => assert_eq!(dropped(&seen), DropReason::NoMapping, "{filtering}"),
                }
            }
            let unasked = Frame::ipv4(SERVER, OUTER).udp(53, 5002);
            assert_eq!(dropped(&from(&mut bench, OUTSIDE, &unasked)), DropReason::NoMapping);
            let not_ours = Frame::ipv4(SERVER, HOST).udp(53, 5000);
            assert_eq!(dropped(&from(&mut bench, OUTSIDE, &not_ours)), DropReason::NoMapping);
        }
    }
}

with_1_2_and_3_instances! {
    fn inner_hosts_reach_each_other_by_outer_ends() {
        let mut bench = bench(config());
        from(&mut bench, INSIDE, &Frame::ipv4(OTHER_HOST, SERVER).udp(7000, 53));
        let seen = from(&mut bench, INSIDE, &Frame::ipv4(HOST, OUTER).udp(5000, 7000));
        assert_eq!(ends(&seen, "inside"), ((OUTER, 5000), (OTHER_HOST, 7000)));
        let seen = from(&mut bench, INSIDE, &Frame::ipv4(OTHER_HOST, OUTER).udp(7000, 5000));
        assert_eq!(ends(&seen, "inside"), ((OUTER, 7000), (HOST, 5000)));
        let report = bench.report();
        let sum = |a: &str| report[a].as_u64().unwrap();
        assert_eq!((sum("hairpinned") + sum("back"), sum("mappings")), (2, 2));
    }
}

with_1_2_and_3_instances! {
    fn icmp_errors_between_inner_hosts_are_translated_with_what_they_quote() {
        for tcp in [false, true] {
            let mut bench = bench(config());
            let frame = |from, to, ports: (u16, u16)| match tcp {
                true => Frame::ipv4(from, to).tcp(ports.0, ports.1, SYN),
                false => Frame::ipv4(from, to).udp(ports.0, ports.1),
            };
            from(&mut bench, INSIDE, &frame(OTHER_HOST, SERVER, (7000, 80)));
            let came = from(&mut bench, INSIDE, &frame(HOST, OUTER, (5000, 7000)));
            assert_eq!(ends(&came, "inside"), ((OUTER, 5000), (OTHER_HOST, 7000)));
            // The other host refuses, or a router of its own does.
            for who in [OTHER_HOST, [10, 9, 9, 9]] {
                let error = Frame::ipv4(who, OUTER).icmp(3, 3, [0; 4]).payload(&came.bytes[14..]);
                let seen = from(&mut bench, INSIDE, &error);
                let layers = parse(&seen.bytes[..], Depth::L4);
                assert_eq!(verify_l4(&seen.bytes[..], &layers), L4Checksum::Good);
                assert_eq!(seen.verdict, Ok("inside"));
                assert_eq!(layers.ipv4(&seen.bytes[..]).unwrap(), (OUTER.into(), HOST.into()));
                assert_eq!(quote(&seen), ((HOST, 5000), (OUTER, 7000)));
            }
            // To somebody else than who sent it.
            let error = Frame::ipv4(OTHER_HOST, [198, 51, 100, 2]).icmp(3, 3, [0; 4]);
            let seen = from(&mut bench, INSIDE, &error.payload(&came.bytes[14..]));
            assert_eq!(dropped(&seen), DropReason::NoMapping);
            // Of what nobody sent.
            let unsent = Frame::ipv4(OUTER, OTHER_HOST).udp(5001, 7000).build();
            let error = Frame::ipv4(OTHER_HOST, OUTER).icmp(3, 3, [0; 4]).payload(&unsent[14..]);
            assert_eq!(dropped(&from(&mut bench, INSIDE, &error)), DropReason::NoMapping);
        }
    }
}

with_1_2_and_3_instances! {
    fn pings_are_told_apart_by_their_identifier() {
        let mut bench = bench(config());
        let echo = |from: [u8; 4], to: [u8; 4], kind, id: u16| {
            let [a, b] = id.to_be_bytes();
            Frame::ipv4(from, to).icmp(kind, 0, [a, b, 0, 1]).payload(b"ping")
        };
        let seen = from(&mut bench, INSIDE, &echo(HOST, SERVER, 8, 3000));
        assert_eq!(ends(&seen, "outside").0, (OUTER, 3000));
        let seen = from(&mut bench, INSIDE, &echo(OTHER_HOST, SERVER, 8, 3000));
        let other = ends(&seen, "outside").0.1;
        assert_ne!(other, 3000);
        let seen = from(&mut bench, OUTSIDE, &echo(SERVER, OUTER, 0, other));
        assert_eq!(ends(&seen, "inside").1, (OTHER_HOST, 3000));
    }
}

/// The quoted packet, made whole: its checksums must be right, and what it says.
fn quote(seen: &Seen) -> (End, End) {
    let layers = parse(&seen.bytes[..], Depth::L4);
    let mut frame = seen.bytes[..14].to_vec();
    frame.extend(&seen.bytes[usize::from(layers.l4) + 8..usize::from(layers.end)]);
    ends(&Seen { verdict: Ok("outside"), bytes: frame, tags: seen.tags }, "outside")
}

with_1_2_and_3_instances! {
    fn icmp_errors_are_translated_with_what_they_quote_both_ways() {
        for (out, back) in [
            (
                Frame::ipv4(HOST, SERVER).tcp(5000, 80, SYN),
                Frame::ipv4(SERVER, OUTER).tcp(80, 5000, ACK),
            ),
            (Frame::ipv4(HOST, SERVER).udp(5000, 80), Frame::ipv4(SERVER, OUTER).udp(80, 5000)),
        ] {
            let mut bench = bench(config());
            let sent = from(&mut bench, INSIDE, &out.payload(b"12345678"));
            let router = [192, 0, 2, 254];
            let error =
                Frame::ipv4(router, OUTER).icmp(11, 0, [0; 4]).payload(&sent.bytes[14..]).pad_to(200);
            let seen = from(&mut bench, OUTSIDE, &error);
            let layers = parse(&seen.bytes[..], Depth::L4);
            assert_eq!(verify_l4(&seen.bytes[..], &layers), L4Checksum::Good);
            assert_eq!(layers.ipv4(&seen.bytes[..]).unwrap(), (router.into(), HOST.into()));
            assert_eq!(seen.verdict, Ok("inside"));
            assert_eq!(quote(&seen), ((HOST, 5000), (SERVER, 80)));
            // The other way: the inner host refuses, or a router of its own does.
            for who in [HOST, [10, 9, 9, 9]] {
                let came = from(&mut bench, OUTSIDE, &back.payload(b"12345678"));
                let error = Frame::ipv4(who, SERVER).icmp(3, 3, [0; 4]).payload(&came.bytes[14..]);
                let seen = from(&mut bench, INSIDE, &error);
                let layers = parse(&seen.bytes[..], Depth::L4);
                assert_eq!(verify_l4(&seen.bytes[..], &layers), L4Checksum::Good);
                assert_eq!(layers.ipv4(&seen.bytes[..]).unwrap(), (OUTER.into(), SERVER.into()));
                assert_eq!(quote(&seen), ((SERVER, 80), (OUTER, 5000)));
            }
            // Only as much quoted as must be, with padding behind it.
            let short =
                Frame::ipv4(router, OUTER).icmp(11, 0, [0; 4]).payload(&sent.bytes[14..42]).pad_to(80);
            let seen = from(&mut bench, OUTSIDE, &short);
            let layers = parse(&seen.bytes[..], Depth::L4);
            assert_eq!(
                (seen.verdict, verify_l4(&seen.bytes[..], &layers)),
                (Ok("inside"), L4Checksum::Good)
            );
            assert!(seen.bytes[usize::from(layers.end)..].iter().all(|byte| *byte == 0));
            let unknown =
                Frame::ipv4(SERVER, OUTER).icmp(3, 3, [0; 4]).payload(&back.build()[14..]).build();
            assert_eq!(dropped(&at(&mut bench, OUTSIDE, 1, &unknown)), DropReason::NoMapping);
        }
    }
}

with_1_2_and_3_instances! {
    fn fragments_follow_their_first_and_the_whole_has_a_right_checksum() {
        let mut bench = bench(config());
        let pieces = Frame::ipv4(HOST, SERVER).id(77).udp(5000, 53).payload(&[7; 100]).fragments(48);
        let seen: Vec<_> = pieces.iter().map(|p| at(&mut bench, INSIDE, 1, p)).collect();
        let whole = Frame::ipv4(OUTER, SERVER).id(77).udp(5000, 53).payload(&[7; 100]).fragments(48);
        assert_eq!(seen.iter().map(|s| s.bytes.clone()).collect::<Vec<_>>(), whole);
        assert!(seen.iter().all(|s| s.verdict == Ok("outside")));
        let late = Frame::ipv4(HOST, SERVER).id(78).udp(5000, 53).payload(&[7; 100]).fragments(48);
        assert_eq!(dropped(&at(&mut bench, INSIDE, 1, &late[1])), DropReason::Fragment);
        let tiny = Frame::ipv4(HOST, SERVER).id(79).tcp(5000, 80, SYN).payload(&[7; 40]).fragments(8);
        assert_eq!(dropped(&at(&mut bench, INSIDE, 1, &tiny[0])), DropReason::Truncated);
        at(&mut bench, INSIDE, 1, &late[0]);
        assert_eq!(at(&mut bench, INSIDE, 30, &late[1]).verdict, Ok("outside"));
        assert_eq!(dropped(&at(&mut bench, INSIDE, 32, &late[2])), DropReason::Fragment);
    }
}

#[test]
fn when_a_first_fragment_is_dropped_later_ones_take_no_older_way() {
    let mut bench = bench(json!({"addresses": ["198.51.100.1"], "ports": "3000-3001"}));
    let pieces =
        |port| Frame::ipv4(HOST, SERVER).id(77).udp(port, 53).payload(&[7; 100]).fragments(48);
    for piece in &pieces(10)[..2] {
        assert_eq!(at(&mut bench, INSIDE, 1, piece).verdict, Ok("outside"));
    }
    at(&mut bench, INSIDE, 1, &Frame::ipv4(HOST, SERVER).udp(12, 53).build());
    // The identification is used again, and no port is left (of its parity).
    let again = pieces(14);
    assert_eq!(dropped(&at(&mut bench, INSIDE, 2, &again[0])), DropReason::NoPort);
    assert_eq!(dropped(&at(&mut bench, INSIDE, 2, &again[1])), DropReason::Fragment);
}

#[test]
fn a_packet_to_an_outer_end_that_nobody_has_takes_no_port() {
    let mut bench = bench(config());
    let seen = from(&mut bench, INSIDE, &Frame::ipv4(HOST, OUTER).udp(5000, 7000));
    assert_eq!(dropped(&seen), DropReason::NoMapping);
    assert_eq!(bench.report()["mappings"], 0);
}

with_1_2_and_3_instances! {
    fn ipv6_is_passed_or_refused_and_what_is_not_ip_passes() {
        let arp = Frame::other(0x0806).payload(&[0; 28]);
        for (ipv6, passes) in [("pass", true), ("drop", false)] {
            let mut config = config();
            config["ipv6"] = json!(ipv6);
            let mut bench = bench(config);
            for (input, output) in [(INSIDE, "outside"), (OUTSIDE, "inside")] {
                let seen = from(&mut bench, input, &v6().udp(1, 2));
                assert_eq!(seen.verdict.ok(), passes.then_some(output));
                assert_eq!(seen.bytes, v6().udp(1, 2).build());
                assert_eq!(from(&mut bench, input, &arp).verdict, Ok(output));
            }
        }
    }
}

#[test]
fn configurations_that_cannot_be_are_refused_by_place() {
    for (config, place) in [
        (json!({"addresses": ["224.0.0.1"]}), "/addresses/0"),
        (json!({"addresses": ["192.0.2.1", "192.0.2.1"]}), "/addresses/1"),
        (json!({"ports": "5-4"}), "/ports"),
        (json!({"ports": "0-4"}), "/ports"),
        (json!({"ports": "1024"}), "/ports"),
        (json!({"per_host": 0}), "/per_host"),
    ] {
        let error = Bench::new::<Napt>(config).err().unwrap().to_string();
        assert!(error.starts_with(place), "{error}");
    }
}

#[test]
fn inner_hosts_of_different_instances_reach_each_other_by_an_edge_back() {
    for count in [2, 3] {
        let mut bench = Nat::new(count, config());
        let (one, other) = ((HOST, 5000), (OTHER_HOST, 6000));
        let udp = |from: End, to: End| Frame::ipv4(from.0, to.0).udp(from.1, to.1);
        assert_ne!(bench.instance_of(INSIDE, &udp(one, (SERVER, 53)).build()), {
            bench.instance_of(INSIDE, &udp(other, (SERVER, 53)).build())
        });
        from(&mut bench, INSIDE, &udp(other, (SERVER, 53)));
        let seen = from(&mut bench, INSIDE, &udp(one, (OUTER, 6000)));
        assert_eq!(ends(&seen, "inside"), ((OUTER, 5000), other));
        let seen = from(&mut bench, INSIDE, &udp(other, (OUTER, 5000)));
        assert_eq!(ends(&seen, "inside"), ((OUTER, 6000), one));
        let whole = udp(one, (OUTER, 6000)).id(9).payload(&[7; 100]).fragments(48);
        for piece in &whole {
            assert_eq!(at(&mut bench, INSIDE, 1, piece).verdict, Ok("inside"));
        }
        // Without the edge it would be outside, as of another site.
        bench.has_edge_back = false;
        let seen = from(&mut bench, INSIDE, &udp(one, (OUTER, 6000)));
        assert_eq!(ends(&seen, "outside"), ((OUTER, 5000), (OUTER, 6000)));
    }
}

#[test]
fn when_the_ports_of_a_lease_are_taken_others_still_have_some() {
    let mut bench = Nat::new(2, json!({"addresses": ["198.51.100.1"], "ports": "16384-32767"}));
    let udp = |host: u16, port| {
        let [a, b] = host.to_be_bytes();
        Frame::ipv4([10, 0, a, b], SERVER).udp(port, 53).build()
    };
    // 512 ports, half of them of the parity.
    let mut outer = HashMap::new();
    for host in 0..300 {
        let seen = at(&mut bench, INSIDE, 1, &udp(host, 20_000));
        if seen.verdict.is_ok() {
            outer.insert(ends(&seen, "outside").0, host);
        }
    }
    assert!((200..=256).contains(&outer.len()), "{}", outer.len());
    assert_eq!(bench.report()["no_port"], 300 - outer.len());
    assert!(at(&mut bench, INSIDE, 1, &udp(1, 20_064)).verdict.is_ok());
    // They come back when their mappings are idle.
    assert!(at(&mut bench, INSIDE, 301, &udp(299, 20_000)).verdict.is_ok());
}

#[test]
fn too_few_ports_for_several_instances_are_refused() {
    let env = weir_nf::Env::default().of_several(2);
    let few = json!({"addresses": ["198.51.100.1"], "ports": "3000-9999"});
    let error = Bench::with_env::<Napt>(few, &env).err().unwrap().to_string();
    assert!(error.starts_with("/ports: 7000 ports are too few"), "{error}");
}

#[test]
fn mappings_move_with_their_lease_and_its_free_ports() {
    let mut bench = Nat::new(2, json!({"addresses": ["198.51.100.1"], "per_host": 4}));
    let udp = |host, port| Frame::ipv4(host, SERVER).udp(port, 53);
    let (mine, taken) = (udp(HOST, 5000), udp(OTHER_HOST, 5000));
    from(&mut bench, INSIDE, &mine);
    let outer = ends(&from(&mut bench, INSIDE, &taken), "outside").0;
    let pieces = taken.id(5).payload(&[7; 100]).fragments(48);
    at(&mut bench, INSIDE, 1, &pieces[0]);
    let before = bench.instance_of(INSIDE, &mine.build());
    assert_eq!(bench.move_lease(weir_nf::flow::lease(5000), 1 - before), 2);
    assert_eq!(bench.instance_of(INSIDE, &mine.build()), 1 - before);
    // What was under way goes on, also the rest of a datagram.
    assert_eq!(at(&mut bench, INSIDE, 1, &pieces[1]).verdict, Ok("outside"));
    assert_eq!(ends(&from(&mut bench, INSIDE, &taken), "outside").0, outer);
    let back = Frame::ipv4(SERVER, OUTER).udp(53, outer.1);
    assert_eq!(ends(&from(&mut bench, OUTSIDE, &back), "inside").1, (OTHER_HOST, 5000));
    // Nobody else gets a port that is taken.
    let third = ends(&from(&mut bench, INSIDE, &udp([10, 0, 0, 7], 5000)), "outside").0;
    assert!(third != outer && third.1 != 5000);
    // The host's mappings are counted where they are now.
    let more = |bench: &mut Nat, port| from(bench, INSIDE, &udp(HOST, port)).verdict;
    assert!((5001..=5003).all(|port| more(&mut bench, port).is_ok()));
    assert_eq!(more(&mut bench, 5004), Err(DropReason::NoPort));
}
