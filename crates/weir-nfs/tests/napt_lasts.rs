//! How long Napt remembers what, and whom it gives which outer end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;
#[macro_use]
#[path = "common/nat.rs"]
mod nat;

use common::DATA;
use nat::*;
use serde_json::json;
use std::collections::HashSet;
use weir_nf::wire::Frame;
use weir_nf::{Depth, DropReason};
use weir_packet::parse;

#[test]
fn when_all_ports_are_taken_it_is_counted_and_a_port_comes_back_when_its_mapping_is_idle() {
    let mut bench = bench(json!({"addresses": ["198.51.100.1"], "ports": "3000-3003"}));
    let udp = |port| Frame::ipv4(HOST, SERVER).udp(port, 53).build();
    let mut outer: Vec<_> = [10, 11, 12, 13]
        .iter()
        .map(|p| ends(&at(&mut bench, INSIDE, 1, &udp(*p)), "outside").0.1)
        .collect();
    outer.sort();
    assert_eq!(outer, [3000, 3001, 3002, 3003]);
    assert_eq!(dropped(&at(&mut bench, INSIDE, 300, &udp(14))), DropReason::NoPort);
    assert_eq!(bench.report()["no_port"], 1);
    assert_eq!(at(&mut bench, INSIDE, 301, &udp(14)).verdict, Ok("outside"));
    let gre = Frame::ipv4(HOST, SERVER).proto(47);
    assert_eq!(dropped(&from(&mut bench, INSIDE, &gre)), DropReason::NoPort);
}

#[test]
fn a_host_has_its_quota_of_mappings_and_others_theirs() {
    let mut bench =
        bench(json!({"addresses": ["198.51.100.1"], "ports": "3000-3009", "per_host": 3}));
    let udp = |host, port| Frame::ipv4(host, SERVER).udp(port, 53).build();
    let passes = |bench: &mut Nat, second, host| {
        let send = |port| at(bench, INSIDE, second, &udp(host, port)).verdict;
        (1..=5).map(send).filter(Result::is_ok).count()
    };
    assert_eq!(passes(&mut bench, 1, HOST), 3);
    assert_eq!(passes(&mut bench, 1, OTHER_HOST), 3);
    let report = bench.report();
    assert_eq!((&report["no_port"], &report["over_quota"]), (&json!(4), &json!(4)));
    // Those that have ended do not count; what was written down does.
    assert_eq!(passes(&mut bench, 301, HOST), 3);
    let mut new = self::bench(json!({"addresses": ["198.51.100.1"], "per_host": 3}));
    new.restore(&bench.save());
    let seen = at(&mut new, INSIDE, 302, &udp(HOST, 9));
    assert_eq!(dropped(&seen), DropReason::NoPort);
}

with_1_2_and_3_instances! {
    fn mappings_end_as_the_rfcs_say() {
        let lasts = |frames: &[(u8, Frame<'_>)], seconds: u64| {
            let mut bench = bench(config());
            frames.iter().for_each(|(input, frame)| drop(from(&mut bench, *input, frame)));
            let last = frames[0].1.build();
            let udp = parse(&last[..], Depth::L4).proto == 17;
            let back = Frame::ipv4(SERVER, OUTER);
            let back = if udp { back.udp(80, 5000) } else { back.tcp(80, 5000, ACK) };
            at(&mut bench, OUTSIDE, 1 + seconds, &back.build()).verdict.is_ok()
        };
        let udp = [(INSIDE, Frame::ipv4(HOST, SERVER).udp(5000, 80))];
        assert!(lasts(&udp, 299) && !lasts(&udp, 300));
        let tcp = |f: Frame<'static>| f;
        let syn = (INSIDE, tcp(Frame::ipv4(HOST, SERVER).tcp(5000, 80, SYN)));
        let open = [
            syn,
            (OUTSIDE, Frame::ipv4(SERVER, OUTER).tcp(80, 5000, SYN_ACK)),
            (INSIDE, Frame::ipv4(HOST, SERVER).tcp(5000, 80, DATA)),
        ];
        assert!(lasts(&open[..1], 239) && !lasts(&open[..1], 240));
        assert!(lasts(&open, 7439) && !lasts(&open, 7440));
        let closed = [
            &open[..],
            &[
                (INSIDE, Frame::ipv4(HOST, SERVER).tcp(5000, 80, 17)),
                (OUTSIDE, Frame::ipv4(SERVER, OUTER).tcp(80, 5000, 17)),
            ],
        ]
        .concat();
        assert!(lasts(&closed, 239) && !lasts(&closed, 240));
        // What comes from outside keeps no UDP mapping alive.
        let mut bench = bench(config());
        from(&mut bench, INSIDE, &udp[0].1);
        let back = Frame::ipv4(SERVER, OUTER).udp(80, 5000).build();
        assert!(at(&mut bench, OUTSIDE, 200, &back).verdict.is_ok());
        assert!(at(&mut bench, OUTSIDE, 301, &back).verdict.is_err());
    }
}

/// A connection that both sides have opened.
fn opened() -> Nat {
    let mut bench = bench(config());
    from(&mut bench, INSIDE, &Frame::ipv4(HOST, SERVER).tcp(5000, 80, SYN));
    from(&mut bench, OUTSIDE, &Frame::ipv4(SERVER, OUTER).tcp(80, 5000, SYN_ACK));
    from(&mut bench, INSIDE, &Frame::ipv4(HOST, SERVER).tcp(5000, 80, ACK));
    bench
}

with_1_2_and_3_instances! {
    fn a_reset_connection_ends_after_four_minutes_unless_data_goes_on() {
        let reset = Frame::ipv4(SERVER, OUTER).tcp(80, 5000, RST).build();
        let data = Frame::ipv4(HOST, SERVER).tcp(5000, 80, DATA).payload(b"x").build();
        let back = Frame::ipv4(SERVER, OUTER).tcp(80, 5000, ACK).build();
        for (more, lasts) in [(None, false), (Some(&data), true), (Some(&back), false)] {
            let mut bench = opened();
            at(&mut bench, OUTSIDE, 2, &reset);
            more.map(|more| at(&mut bench, INSIDE + u8::from(more == &back), 2, more));
            assert!(at(&mut bench, OUTSIDE, 241, &back).verdict.is_ok());
            let mut bench = opened();
            at(&mut bench, OUTSIDE, 2, &reset);
            more.map(|more| at(&mut bench, INSIDE + u8::from(more == &back), 2, more));
            assert_eq!(at(&mut bench, OUTSIDE, 242, &back).verdict.is_ok(), lasts);
        }
    }
}

with_1_2_and_3_instances! {
    fn strangers_neither_keep_a_mapping_nor_end_or_crowd_out_its_connections() {
        let stranger = |n: u16, flags| {
            let [a, b] = n.to_be_bytes();
            Frame::ipv4([192, 0, a, b], OUTER).tcp(1, 5000, flags).build()
        };
        let back = Frame::ipv4(SERVER, OUTER).tcp(80, 5000, ACK).build();
        // More of them than peers are told apart.
        let mut bench = opened();
        for n in 0..200 {
            at(&mut bench, OUTSIDE, 2, &stranger(n, [SYN, RST][usize::from(n % 2)]));
        }
        assert!(at(&mut bench, OUTSIDE, 7440, &back).verdict.is_ok());
        let mut bench = self::bench(config());
        from(&mut bench, INSIDE, &Frame::ipv4(HOST, SERVER).tcp(5000, 80, SYN));
        at(&mut bench, OUTSIDE, 200, &stranger(1, SYN));
        assert!(at(&mut bench, OUTSIDE, 241, &back).verdict.is_err());
    }
}

with_1_2_and_3_instances! {
    fn mappings_end_when_a_new_configuration_does_not_have_their_outer_ends() {
        for new in [
            json!({"addresses": ["198.51.100.9"]}),
            json!({"addresses": ["198.51.100.1"], "ports": "6000-24999"}),
        ] {
            let mut bench = bench(config());
            let udp = Frame::ipv4(HOST, SERVER).udp(5000, 53);
            from(&mut bench, INSIDE, &udp);
            bench.reconfigure(&new);
            let back = Frame::ipv4(SERVER, OUTER).udp(53, 5000);
            assert_eq!(dropped(&from(&mut bench, OUTSIDE, &back)), DropReason::NoMapping);
            let (address, port) = ends(&from(&mut bench, INSIDE, &udp), "outside").0;
            assert!(address == [198, 51, 100, 9] || (6000..=24_999).contains(&port));
            // This one, and the one that has ended.
            assert_eq!((bench.report()["mappings"].as_u64(), bench.mappings()), (Some(2), 1));
        }
    }
}

with_1_2_and_3_instances! {
    fn mappings_survive_a_restart() {
        let mut old = bench(config());
        let udp = |host| Frame::ipv4(host, SERVER).udp(5000, 53);
        from(&mut old, INSIDE, &udp(HOST));
        let other = ends(&from(&mut old, INSIDE, &udp(OTHER_HOST)), "outside").0;
        let mut new = bench(config());
        new.restore(&old.save());
        assert_eq!(new.report(), old.report());
        assert_eq!(ends(&from(&mut new, INSIDE, &udp(OTHER_HOST)), "outside").0, other);
        let back = Frame::ipv4(SERVER, OUTER).udp(53, 5000);
        assert_eq!(ends(&from(&mut new, OUTSIDE, &back), "inside").1, (HOST, 5000));
    }
}

with_1_2_and_3_instances! {
    fn both_ends_may_open_a_connection_at_once() {
        // RFC 5382 REQ-2: both SYNs cross, and both are answered.
        let mut bench = bench(config());
        let (out, back) = (Frame::ipv4(HOST, SERVER), Frame::ipv4(SERVER, OUTER));
        for (input, frame) in [
            (INSIDE, out.tcp(5000, 80, SYN)),
            (OUTSIDE, back.tcp(80, 5000, SYN)),
            (INSIDE, out.tcp(5000, 80, SYN_ACK)),
            (OUTSIDE, back.tcp(80, 5000, SYN_ACK)),
            (INSIDE, out.tcp(5000, 80, ACK)),
        ] {
            let expected = match input {
                INSIDE => ((OUTER, 5000), (SERVER, 80)),
                _ => ((SERVER, 80), (HOST, 5000)),
            };
            let output = if input == INSIDE { "outside" } else { "inside" };
            assert_eq!(ends(&from(&mut bench, input, &frame), output), expected);
        }
        // It is one that is open, and not one that only begins.
        let late = back.tcp(80, 5000, ACK).build();
        assert!(at(&mut bench, OUTSIDE, 7440, &late).verdict.is_ok());
    }
}

with_1_2_and_3_instances! {
    fn a_syn_that_nobody_asked_for_is_dropped_in_silence_and_passes_once_the_inner_host_has_sent_one() {
        // RFC 5382 REQ-4: a SYN that nobody asked for is not answered; the connection may be one that both open.
        let mut bench = bench(json!({"addresses": ["198.51.100.1"], "filtering": "port"}));
        let early = Frame::ipv4(SERVER, OUTER).tcp(80, 5000, SYN);
        assert_eq!(dropped(&from(&mut bench, OUTSIDE, &early)), DropReason::NoMapping);
        from(&mut bench, INSIDE, &Frame::ipv4(HOST, SERVER).tcp(5000, 80, SYN));
        let seen = from(&mut bench, OUTSIDE, &early);
        assert_eq!(ends(&seen, "inside"), ((SERVER, 80), (HOST, 5000)));
    }
}

with_1_2_and_3_instances! {
    fn a_query_may_be_answered_for_a_minute_after_the_last() {
        // RFC 5508 REQ-1.
        let echo = |from, to, kind| Frame::ipv4(from, to).icmp(kind, 0, [0x0b, 0xb8, 0, 1]).build();
        let (query, answer) = (echo(HOST, SERVER, 8), echo(SERVER, OUTER, 0));
        for (queries, answered, is_late) in
            [(&[1][..], 60, false), (&[1], 61, true), (&[1, 50], 109, false), (&[1, 50], 110, true)]
        {
            let mut bench = bench(config());
            for second in queries {
                at(&mut bench, INSIDE, *second, &query);
            }
            // Answers keep no mapping.
            at(&mut bench, OUTSIDE, 59, &answer);
            let seen = at(&mut bench, OUTSIDE, answered, &answer);
            assert_eq!(seen.verdict.is_err(), is_late, "{queries:?}, {answered}");
        }
    }
}

with_1_2_and_3_instances! {
    fn all_of_an_inner_host_has_one_outer_address_also_when_its_ports_are_taken() {
        // RFC 4787 REQ-2.
        let four: Vec<String> = (1..=4).map(|n| format!("198.51.100.{n}")).collect();
        let mut bench = bench(json!({ "addresses": four }));
        let mut used = HashSet::new();
        for host in 0..16 {
            let mut own = HashSet::new();
            for port in [5000, 5001, 500, 40_000] {
                let (from, to) = ([10, 0, 0, host], [203, 0, 113, host ^ 5]);
                for frame in [Frame::ipv4(from, to).udp(port, 53), Frame::ipv4(from, to).tcp(port, 80, SYN)] {
                    own.insert(ends(&self::from(&mut bench, INSIDE, &frame), "outside").0.0);
                }
            }
            assert_eq!(own.len(), 1, "host {host}: {own:?}");
            used.extend(own);
        }
        // Others have others.
        assert!(used.len() > 2, "{used:?}");
    }
}
