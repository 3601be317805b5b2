//! A firewall on the inner side of a translator, in pairs that packets divide over as they do in a graph: each flow is where its lease is,
//! whoever began it, and goes with it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod common;

use common::{ethernet, root, shared_captures};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_nf::flow::Side;
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nf::{Depth, Env, Take, Walk, find};
use weir_nfs::conn_track::ConnTrack;
use weir_nfs::napt::Napt;
use weir_packet::parse;
use weir_port::balance::{Balance, Buckets, FlowDirector, Rule};

const SEED: u64 = 7;
const SECOND: u64 = 1_000_000_000;
type End = ([u8; 4], u16);

/// The pairs, and who divides.
struct Gateway {
    pairs: Vec<[Bench; 2]>,
    balance: Balance,
    director: FlowDirector,
}

impl Gateway {
    fn new(count: usize, rules: Value, translated: Value) -> Self {
        // One that is alone takes any port where two hosts want the same: that would be another run.
        let env = Env::new(&[], SEED).unwrap().of_several(3);
        let pair = |_| {
            let fw = Bench::with_env::<ConnTrack>(rules.clone(), &env).unwrap();
            [fw, Bench::with_env::<Napt>(translated.clone(), &env).unwrap()]
        };
        let weights = vec![1; count];
        Gateway {
            pairs: (0..count).map(pair).collect(),
            balance: Balance::new(Rule::Ends, &weights, SEED.into()).unwrap(),
            director: FlowDirector::new(&weights, SEED.into(), 0).unwrap(),
        }
    }

    /// What becomes of a packet that comes from a side: out by the firewall and the translator, in by the translator and the firewall.
    fn run(&mut self, side: Side, frame: &[u8], now_ns: u64) -> Seen {
        let hash = self.balance.end_hash(frame, &parse(frame, Depth::L4), now_ns, side);
        let [fw, nat] = &mut self.pairs[usize::from(self.director.at(hash))];
        let by = |bench: &mut Bench, input: u8, frame: &[u8]| {
            bench.run_by(input, &[(frame, frame.len(), now_ns)]).remove(0)
        };
        fw.instance().comes_from(side == Side::Outside);
        let (first, second) = match side {
            Side::Inside => (by(fw, 0, frame), 0),
            Side::Outside => (by(nat, 1, frame), 1),
        };
        match (first.verdict, second) {
            (Err(_), _) => first,
            (Ok(_), 0) => by(nat, 0, &first.bytes),
            (Ok(_), _) => by(fw, 0, &first.bytes),
        }
    }

    /// The bucket that a packet is of.
    fn bucket_of(&mut self, side: Side, frame: &[u8], now_ns: u64) -> u16 {
        let layers = parse(frame, Depth::L4);
        Buckets::bucket(self.balance.end_hash(frame, &layers, now_ns, side))
    }

    /// A bucket goes to a pair, with all flows of both NFs that are of it; how many of each.
    fn move_bucket(&mut self, bucket: u16, to: usize) -> [usize; 2] {
        let from = usize::from(self.director.of_bucket(bucket));
        let placer = self.balance.placer();
        let move_of = |nf: usize| {
            let mut records = Vec::new();
            let take = Take {
                look: usize::MAX,
                take: usize::MAX,
                chosen: &mut |key, start| Buckets::bucket(placer.hash(key, start)) == bucket,
                to: &mut |_, record| records.push(record.to_vec()),
            };
            self.pairs[from][nf].instance().take_flows(&mut Walk::default(), take).unwrap();
            for record in &records {
                self.pairs[to][nf].instance().put_flow(record).unwrap();
            }
            records.len()
        };
        let moved = if from == to { [0, 0] } else { [0, 1].map(move_of) };
        self.director.set_bucket(bucket, to as u8).unwrap();
        moved
    }

    fn reports(&self) -> [Value; 2] {
        ["ConnTrack", "Napt"].map(|kind| {
            let of = |pair: &[Bench; 2]| pair[usize::from(kind == "Napt")].report();
            let reports: Vec<Value> = self.pairs.iter().map(of).collect();
            find(kind).unwrap().together(&reports).unwrap()
        })
    }

    fn flows(&self) -> [usize; 2] {
        [0, 1].map(|nf| self.pairs.iter().map(|pair| pair[nf].flows().0).sum())
    }
}

/// The bucket of all ports of a lease.
fn bucket(port: u16) -> u16 {
    weir_nf::flow::lease(port) * 2048
}

const OUTER: [u8; 4] = [198, 51, 100, 1];

/// One that lets inner hosts open connections, and outer ones some.
fn pair_of(count: usize) -> Gateway {
    let rules = json!({
        "rules": [
            // To the others inner hosts only answer: by what is remembered of a flow that began outside.
            { "action": "pass", "src": "10.0.0.0/8", "dst": "192.0.2.8/32" },
            { "action": "pass", "src": "192.0.2.7/32", "proto": "udp" },
            { "action": "pass", "src": "fd00::1/128" },
            { "action": "pass", "src": "fd00::102/128" },
        ],
        "default": "drop",
    });
    Gateway::new(count, rules, json!({ "addresses": ["198.51.100.1"] }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several pairs do to each packet what one does, whoever began its flow, whatever moves meanwhile of what it is of.
    #[test]
    fn several_pairs_do_as_one_does(
        count in 2_usize..4,
        steps in prop::collection::vec((0_u8..4, 0_u16..3, 0_u8..13, any::<bool>(), 0_u64..400, 0_usize..6), 1..200),
    ) {
        let (mut one, mut several) = (pair_of(1), pair_of(count));
        let mut now = SECOND;
        for (host, n, what, tagged, wait, to) in steps {
            now += if wait > 380 { wait * SECOND } else { 0 };
            // Ports that no two hosts use: so each keeps its own outside.
            let inner: End = ([10, 0, 0, host], 1024 + u16::from(host) * 4000 + 64 * n);
            // One that may begin, and one that may only answer; their ports are of other leases than the inner ones.
            let (may, other) = ([192, 0, 2, 7], [192, 0, 2, 8]);
            let tag = |frame: Frame<'static>| if tagged { frame.vlan(7) } else { frame };
            let v4 = |from: End, to: End| tag(Frame::ipv4(from.0, to.0));
            let tcp = |from: End, to: End, flags| v4(from, to).tcp(from.1, to.1, flags).build();
            let udp = |from: End, to: End| v4(from, to).udp(from.1, to.1).build();
            let [high, low] = inner.1.to_be_bytes();
            let echo = |from: End, to: End, kind| v4(from, to).icmp(kind, 0, [high, low, 0, 1]).build();
            let v6 = |n: u16| [0xfd00, 0, 0, 0, 0, 0, 0, n];
            let (near, far) = (v6(1 + u16::from(host)), v6(0x100 + n));
            let outer = (OUTER, inner.1);
            let (side, frame) = match what {
                0 => (Side::Inside, tcp(inner, (other, 8080), 0x02)),
                1 => (Side::Outside, tcp((other, 8080), outer, 0x12)),
                2 => (Side::Inside, tcp(inner, (other, 8080), 0x10)),
                3 => (Side::Inside, udp(inner, (other, 5353))),
                4 => (Side::Outside, udp((other, 5353), outer)),
                // To a mapping that is there, from somebody that it was not made for.
                5 => (Side::Outside, udp((may, 7000 + n), outer)),
                6 => (Side::Inside, udp(inner, (may, 7000 + n))),
                7 => (Side::Outside, udp((other, 7000 + n), outer)),
                8 => (Side::Inside, echo(inner, (other, 0), 8)),
                9 => (Side::Outside, echo((other, 0), outer, 0)),
                // Followed, and not translated.
                10 => (Side::Inside, tag(Frame::ipv6(near, far)).udp(inner.1, 53).build()),
                11 => (Side::Outside, tag(Frame::ipv6(far, near)).udp(53, inner.1).build()),
                // Neither.
                _ => (Side::Inside, tag(Frame::other(0x88b5)).payload(b"other").build()),
            };
            let (seen, expected) = (several.run(side, &frame, now), one.run(side, &frame, now));
            prop_assert_eq!((seen.verdict, seen.bytes), (expected.verdict, expected.bytes));
            if to < count {
                let bucket = several.bucket_of(side, &frame, now);
                several.move_bucket(bucket, to);
            }
        }
        prop_assert_eq!(several.reports(), one.reports());
    }
}

/// Each flow's ends as they stand in the packet.
fn ends(frame: &[u8]) -> Option<(u8, End, End)> {
    let layers = parse(frame, Depth::L4);
    let ((from, to), ports) = (layers.ipv4(frame)?, layers.ports(frame)?);
    Some((layers.proto, (from.octets(), ports.0), (to.octets(), ports.1)))
}

/// Recorded connections, both ways: who begins one is inside, and what it is answered comes from outside to what it was translated to, as real
/// servers would send it. All buckets move all the time.
#[test]
fn recorded_connections_go_both_ways_as_if_nothing_moved() {
    let mut captures = vec![root().join("demo/http.pcap")];
    let chosen = ["http-615", "http-pipelined", "dns-219", "sip-udp", "ftp-control", "mptcp"];
    let is_chosen = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        chosen.iter().any(|start| name.starts_with(start))
    };
    captures.extend(shared_captures().into_iter().filter(is_chosen));
    for capture in captures {
        let all = |count| {
            let rules = json!({ "rules": [{ "action": "pass", "src": "0.0.0.0/0" }] });
            Gateway::new(count, rules, json!({ "addresses": ["100.64.0.1", "100.64.0.2"] }))
        };
        let (mut one, mut several) = (all(1), all(3));
        // By inner end and protocol: what it was translated to.
        let mut outer: BTreeMap<(u8, End), End> = BTreeMap::new();
        let (mut answers, mut moved) = (0, [0, 0]);
        for (at, (frame, _)) in ethernet(&capture).into_iter().enumerate() {
            let now = SECOND + at as u64 * 1000;
            let Some((proto, from, to)) = ends(&frame) else { continue };
            let mut frame = frame;
            let side = match outer.get(&(proto, to)) {
                None => Side::Inside,
                // A port that is answered at, of the same host that began.
                Some(translated) => {
                    let layers = parse(&frame[..], Depth::L4);
                    let (ip, l4) = (usize::from(layers.l3), usize::from(layers.l4));
                    frame[ip + 16..ip + 20].copy_from_slice(&translated.0);
                    frame[l4 + 2..l4 + 4].copy_from_slice(&translated.1.to_be_bytes());
                    answers += 1;
                    Side::Outside
                }
            };
            let (seen, expected) = (several.run(side, &frame, now), one.run(side, &frame, now));
            let what = format!("packet {at} of {}", capture.display());
            assert_eq!(seen.verdict, expected.verdict, "{what}");
            assert_eq!(seen.bytes, expected.bytes, "{what}");
            if let (Side::Inside, Ok(_), Some((_, new, _))) =
                (side, seen.verdict, ends(&seen.bytes))
            {
                outer.insert((proto, from), new);
            }
            // Those of this packet's connection above all.
            let port = if side == Side::Inside { from.1 } else { to.1 };
            for port in [port, (at as u16).wrapping_mul(64)] {
                let went = several.move_bucket(bucket(port), at % 3);
                (0..2).for_each(|nf| moved[nf] += went[nf]);
            }
        }
        assert_eq!(several.reports(), one.reports(), "{}", capture.display());
        assert_eq!(several.flows(), one.flows(), "{}", capture.display());
        println!("{}: {answers} answers; {moved:?} flows and mappings moved", capture.display());
        assert!(answers > 0 && moved.iter().all(|n| *n > 0), "{answers} {moved:?}");
    }
}
