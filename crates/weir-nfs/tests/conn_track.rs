//! ConnTrack.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, HOP_BY_HOP_AND_DEST_OPTS, ethernet, root, v4, v6};
use serde_json::{Value, json};
use std::net::Ipv6Addr;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{DropReason, Env, Piece, TagPlace, TagSpec};
use weir_nfs::conn_track::ConnTrack;

const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const ACK: u8 = 16;
const RST: u8 = 4;
const PASS: Result<&str, DropReason> = Ok("pass");
const BAD: Result<&str, DropReason> = Err(DropReason::BadState);
const DENIED: Result<&str, DropReason> = Err(DropReason::Filtered);

fn bench(config: Value) -> Bench {
    Bench::new::<ConnTrack>(config).unwrap()
}

fn verdicts(bench: &mut Bench, frames: &[Vec<u8>]) -> Vec<Result<&'static str, DropReason>> {
    bench.run(frames).iter().map(|seen| seen.verdict).collect()
}

/// What answers [`v4`].
fn back4() -> Frame<'static> {
    Frame::ipv4([192, 0, 2, 2], [192, 0, 2, 10])
}

/// What answers [`v6`].
fn back6() -> Frame<'static> {
    let end = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    Frame::ipv6(end(2), end(0x10))
}

/// There and back, in every wrapping.
fn ways() -> Vec<[Frame<'static>; 2]> {
    let six = [v6(), back6()].map(|f| f.extensions(HOP_BY_HOP_AND_DEST_OPTS));
    let pairs = [[v4(), back4()], [v6(), back6()], six];
    pairs.into_iter().flat_map(|pair| [pair, pair.map(|f| f.vlan(7))]).collect()
}

#[test]
fn answers_pass_where_only_one_side_may_open() {
    for [there, back] in ways() {
        let config = json!({"default": "drop", "rules": [
            {"action": "pass", "src": "192.0.2.10"}, {"action": "pass", "src": "fd00::10"},
        ]});
        let frames = [
            back.tcp(80, 5000, SYN).build(),
            there.tcp(5000, 80, SYN).seq(100, 0).build(),
            back.tcp(80, 5000, SYN_ACK).seq(700, 101).build(),
            there.tcp(5000, 80, ACK).seq(101, 701).build(),
            back.tcp(80, 5000, DATA).seq(701, 101).payload(b"hello").build(),
            back.udp(53, 6000).build(),
            there.udp(6000, 53).build(),
            back.udp(53, 6000).build(),
            back.tcp(81, 5000, DATA).seq(1, 1).build(),
        ];
        let seen = verdicts(&mut bench(config), &frames);
        let expected = [DENIED, PASS, PASS, PASS, PASS, DENIED, PASS, PASS, BAD];
        assert_eq!(seen, expected);
    }
}

#[test]
fn icmp_queries_open_and_replies_do_not() {
    for ([there, back], request, reply) in [([v4(), back4()], 8, 0), ([v6(), back6()], 128, 129)] {
        let echo = |f: Frame<'static>, kind, id| f.icmp(kind, 0, [0, id, 0, 1]).build();
        let frames = [
            echo(back, reply, 1),
            echo(there, request, 1),
            echo(back, reply, 1),
            echo(back, reply, 2),
        ];
        assert_eq!(verdicts(&mut bench(json!({})), &frames), [BAD, PASS, PASS, BAD]);
    }
}

#[test]
fn errors_pass_that_quote_what_was_sent() {
    let cases = [([v4(), back4()], (3, 1), 14), ([v6(), back6()], (1, 4), 14)];
    for ([there, back], (kind, code), l3) in cases {
        let error = |quoted: &[u8]| back.icmp(kind, code, [0; 4]).payload(&quoted[l3..]).build();
        let (udp, unknown) = (there.udp(6000, 53).build(), there.udp(6001, 53).build());
        let syn = there.tcp(5000, 80, SYN).seq(100, 0).build();
        let forged = there.tcp(5000, 80, ACK).seq(100_000, 0).build();
        let frames = [
            error(&udp),
            udp.clone(),
            error(&udp),
            error(&unknown),
            syn.clone(),
            error(&syn),
            error(&forged),
            // As much as must be quoted: eight bytes behind the IP header.
            error(&syn[..syn.len() - 12]),
        ];
        let mut bench = bench(json!({}));
        let expected = [BAD, PASS, PASS, BAD, PASS, PASS, BAD, PASS];
        assert_eq!(verdicts(&mut bench, &frames), expected);
        let report = bench.report();
        assert_eq!((&report["related"], &report["invalid"]), (&json!(3), &json!({"error": 3})));
        // From a router on the way.
        let router = match kind {
            3 => Frame::ipv4([198, 51, 100, 1], [192, 0, 2, 10]),
            _ => Frame::ipv6([0xfc; 16], Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10)),
        };
        let from_router = router.icmp(kind, code, [0; 4]).payload(&udp[l3..]).build();
        assert_eq!(verdicts(&mut bench, &[from_router]), [PASS]);
    }
}

#[test]
fn what_a_link_needs_passes_whatever_the_rules() {
    let mut bench = bench(json!({"default": "drop"}));
    let frames = [
        Frame::other(0x0806).payload(&[0; 28]).build(),
        v6().ttl(255).icmp(135, 0, [0; 4]).payload(&[0; 16]).build(),
        v6().ttl(1).icmp(143, 0, [0; 4]).build(),
        v6().ttl(64).icmp(135, 0, [0; 4]).payload(&[0; 16]).build(),
        v4().udp(1, 2).build(),
    ];
    assert_eq!(verdicts(&mut bench, &frames), [PASS, PASS, PASS, DENIED, DENIED]);
}

#[test]
fn fragments_follow_their_first_and_none_may_overwrite_tcps_header() {
    for frame in [v4().id(9), v6().id(9)] {
        let udp = frame.udp(1, 2).payload(&[7; 100]).fragments(48);
        assert_eq!(verdicts(&mut bench(json!({})), &udp), [PASS; 3]);
        let late = [udp[1].clone(), udp[0].clone(), udp[2].clone()];
        assert_eq!(verdicts(&mut bench(json!({})), &late), [BAD, PASS, PASS]);
        // 24 bytes of TCP header and data, then one that says it begins at byte 8.
        let tcp = frame.tcp(1, 2, SYN).payload(&[7; 60]).fragments(24);
        let tiny = frame.tcp(1, 2, SYN).payload(&[7; 60]).fragments(8);
        let frames = [tcp[0].clone(), tiny[1].clone(), tcp[1].clone()];
        assert_eq!(verdicts(&mut bench(json!({})), &frames), [PASS, BAD, PASS]);
        assert_eq!(verdicts(&mut bench(json!({})), &tiny[..1]), [BAD], "no flags");
    }
}

#[test]
fn a_stranger_neither_closes_a_connection_nor_joins_it() {
    let mut bench = bench(json!({}));
    let frames = [
        v4().tcp(5000, 80, SYN).seq(100, 0).build(),
        back4().tcp(80, 5000, SYN_ACK).seq(700, 101).build(),
        v4().tcp(5000, 80, ACK).seq(101, 701).build(),
        back4().tcp(80, 5000, RST).seq(900_000, 0).build(),
        back4().tcp(80, 5000, DATA).seq(900_000, 101).payload(b"x").build(),
        v4().tcp(5000, 80, DATA).seq(101, 701).payload(b"still here").build(),
        v4().tcp(5000, 80, SYN | 1).seq(101, 701).build(),
    ];
    assert_eq!(verdicts(&mut bench, &frames), [PASS, PASS, PASS, BAD, BAD, PASS, BAD]);
    assert_eq!(bench.report()["invalid"], json!({"reset": 1, "window": 1, "flags": 1}));
}

#[test]
fn connections_end_when_they_are_idle_for_too_long() {
    let run = |second: u64, frames: [Vec<u8>; 2]| {
        let times = [1, 1 + second].map(|s| s * 1_000_000_000);
        let packets: Vec<_> =
            frames.iter().zip(times).map(|(f, at)| (&f[..], f.len(), at)).collect();
        bench(json!({"rules": [{"action": "pass", "src": "192.0.2.10"}], "default": "drop"}))
            .run_cut(&packets)[1]
            .verdict
    };
    let udp = || [v4().udp(1, 2).build(), back4().udp(2, 1).build()];
    assert_eq!((run(299, udp()), run(300, udp())), (PASS, DENIED));
    let echo = || [v4().icmp(8, 0, [0; 4]).build(), back4().icmp(0, 0, [0; 4]).build()];
    assert_eq!((run(59, echo()), run(60, echo())), (PASS, BAD));
    let syn = || {
        let answer = back4().tcp(2, 1, SYN_ACK).seq(9, 1);
        [v4().tcp(1, 2, SYN).build(), answer.build()]
    };
    assert_eq!((run(239, syn()), run(240, syn())), (PASS, BAD));
}

#[test]
fn only_what_opens_a_connection_takes_a_place_and_it_is_given_back_after_its_idle_time() {
    let second = 1_000_000_000;
    let config = json!({"rules": [{"action": "pass", "src": "192.0.2.10"}], "default": "drop"});
    let mut bench = bench(config);
    // Denied, and fitting nothing.
    let strangers = (1..200u16).flat_map(|port| {
        let syn = back4().tcp(port, 80, SYN).build();
        let answer = v4().tcp(port, 80, SYN_ACK).build();
        [syn, answer, back4().udp(port, 53).build()]
    });
    verdicts(&mut bench, &strangers.collect::<Vec<_>>());
    assert_eq!(bench.flows(), (0, 0));
    // A flood of half-open connections from who may: gone when a quarter of a minute is over after 4 min.
    let flood: Vec<_> = (1..=200).map(|port| v4().tcp(port, 80, SYN).build()).collect();
    verdicts(&mut bench, &flood);
    assert_eq!(bench.flows().0, 200);
    let arp = Frame::other(0x0806).payload(&[0; 28]).build();
    for late in 0..10 {
        bench.run_cut(&[(&arp, arp.len(), (256 + late) * second)]);
    }
    assert_eq!(bench.flows().0, 0);
}

#[test]
fn the_tag_says_what_each_packet_is_and_invalid_ones_may_pass() {
    let patterns = ["new", "established", "related", "closing", "untracked", "invalid"];
    let patterns: Vec<_> = patterns.iter().map(|p| format!("^{p}$")).collect();
    let place = TagPlace::Text { slot: 0, bit: 0, patterns };
    let env = Env::new(&[TagSpec { name: "state".to_owned(), place }], 1).unwrap();
    let mut bench = Bench::with_env::<ConnTrack>(json!({"invalid": "pass"}), &env).unwrap();
    let udp = v4().udp(1, 2).build();
    let frames = [
        udp.clone(),
        back4().udp(2, 1).build(),
        back4().icmp(3, 3, [0; 4]).payload(&udp[14..]).build(),
        v4().tcp(1, 2, SYN).seq(5, 0).build(),
        back4().tcp(2, 1, RST | ACK).seq(0, 6).build(),
        Frame::other(0x0806).build(),
        v4().tcp(3, 4, ACK).build(),
    ];
    let seen = bench.run(&frames);
    assert!(seen.iter().all(|s| s.verdict == PASS));
    let bits: Vec<_> = seen.iter().map(|s| s.tags[0].trailing_zeros()).collect();
    assert_eq!(bits, [0, 1, 2, 0, 3, 4, 5]);
}

#[test]
fn a_wrong_rule_is_refused_by_its_place() {
    let config = json!({"rules": [{"action": "pass"}, {"action": "pass", "src": "300.0.0.0"}]});
    let error = Bench::new::<ConnTrack>(config).err().unwrap().to_string();
    assert!(error.starts_with("/rules/1: src: '300.0.0.0'"), "{error}");
}

/// Real connections are not cut: what is refused is of connections whose start was not captured.
#[test]
fn connections_of_captures_pass_whole() {
    for name in [
        "http-615-connections.pcap",
        "http-browsing-337req.pcap",
        "ftp-control-and-data.pcap",
        "smtp-mail.pcap",
        "dns-219-flows.pcap",
        "http-pipelined-retransmissions.pcap",
        "tcp-gaps-overlaps.pcap",
        "jumbo-mtu9001-tls-ipv6.pcap",
        "tls-sites-v4-v6.pcapng",
        "mptcp-v0.pcap",
        "truncated-snaplen96-tcp.pcap",
    ] {
        let path = root().join("../shared/traces").join(name);
        if !path.exists() {
            println!("skipped: no {}", path.display());
            continue;
        }
        let packets = ethernet(&path);
        let cut: Vec<_> = packets.iter().map(|(bytes, wire)| (&bytes[..], *wire, 7)).collect();
        let mut bench = bench(json!({}));
        let refused = bench.run_cut(&cut).iter().filter(|s| s.verdict.is_err()).count();
        let report = bench.report();
        println!("{name}: {} packets, {refused} refused: {report}", packets.len());
        let unknown = report["invalid"]["no_connection"].as_u64().unwrap_or(0);
        // Gaps in captures, and resets that came when their place was acknowledged already.
        let others = refused as u64 - unknown;
        assert!(others <= 3 && refused * 10 <= packets.len(), "{name}");
    }
}

/// The µNF's replica, as of the last batch.
type Replica = std::collections::BTreeMap<u32, Vec<u8>>;

fn replicate(bench: &mut Bench, replica: &mut Replica) {
    bench.instance().take_changes(&mut |piece| match piece {
        Piece::Flow(flow, record, _) => drop(replica.insert(flow, record.to_vec())),
        Piece::Ended(flow) => drop(replica.remove(&flow)),
        _ => {}
    });
}

fn recovered(every: u16, replica: &Replica) -> Bench {
    let mut bench = bench(json!({}));
    bench.instance().follow(every, every > 1);
    for (flow, record) in replica {
        bench.instance().recover(Piece::Flow(*flow, record, 0)).unwrap();
    }
    bench
}

#[test]
fn a_connection_goes_on_from_a_replica_that_lacks_its_last_packets() {
    let [there, back] = [v4(), back4()];
    for every in [1, 10] {
        let (mut bench, mut replica) = (recovered(every, &Replica::new()), Replica::new());
        let mut frames = vec![
            there.tcp(5000, 80, SYN).seq(100, 0).build(),
            back.tcp(80, 5000, SYN_ACK).seq(700, 101).build(),
            there.tcp(5000, 80, ACK).seq(101, 701).build(),
        ];
        for n in 0..8 {
            frames.push(back.tcp(80, 5000, DATA).seq(701 + 5 * n, 101).payload(b"hello").build());
        }
        for frame in frames {
            assert_eq!(verdicts(&mut bench, &[frame]), [PASS]);
            replicate(&mut bench, &mut replica);
        }
        let mut bench = recovered(every, &replica);
        let all = there.tcp(5000, 80, ACK).seq(101, 701 + 5 * 8).build();
        assert_eq!(verdicts(&mut bench, &[all]), [PASS], "every {every}");
        // With what is exact it goes on as exactly.
        let never_sent = there.tcp(5000, 80, ACK).seq(101, 800_000).build();
        assert_eq!(verdicts(&mut bench, &[never_sent]), [if every == 1 { BAD } else { PASS }]);
    }
}

#[test]
fn whatever_brings_a_connection_further_is_in_the_replica_at_once() {
    let [there, back] = [v4(), back4()];
    let opens = [
        there.tcp(5000, 80, SYN).seq(100, 0).build(),
        back.tcp(80, 5000, SYN_ACK).seq(700, 101).build(),
        there.tcp(5000, 80, ACK).seq(101, 701).build(),
    ];
    let reset = there.tcp(5000, 80, RST).seq(101, 0).build();
    let anew = there.tcp(5000, 80, SYN).seq(9_000_000, 0).build();
    let datagrams = [there.udp(6000, 53).build(), back.udp(53, 6000).build()];
    let (mut bench, mut replica) = (recovered(10, &Replica::new()), Replica::new());
    for frame in opens.into_iter().chain([reset, anew]).chain(datagrams) {
        let before = replica.clone();
        assert_eq!(verdicts(&mut bench, &[frame]), [PASS]);
        replicate(&mut bench, &mut replica);
        assert_ne!(replica, before);
    }
}
