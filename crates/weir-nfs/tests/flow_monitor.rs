//! FlowMonitor.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, ethernet, root, v4, v6};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{
    Depth, Env, FlowHasher, FlowKey, Merge, Registration, TagPlace, TagSpec, Touch, find,
};
use weir_nfs::flow_monitor::{FlowMonitor, Traffic};
use weir_packet::{FragmentTable, parse};

const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const FIN_ACK: u8 = 17;

fn bench(config: Value) -> Bench {
    Bench::new::<FlowMonitor>(config).unwrap()
}

/// A reply to what [`v4`] is from.
fn back() -> Frame<'static> {
    Frame::ipv4([192, 0, 2, 2], [192, 0, 2, 10])
}

#[test]
fn packets_bytes_and_flags_are_told_by_flow_and_direction() {
    let mut bench = bench(json!({}));
    let frames = [
        v4().tcp(5000, 80, SYN).build(),
        back().tcp(80, 5000, SYN_ACK).build(),
        v4().tcp(5000, 80, DATA).payload(&[7; 100]).build(),
        v4().tcp(5000, 80, FIN_ACK).build(),
    ];
    let bytes = [frames[0].len() + frames[2].len() + frames[3].len(), frames[1].len()];
    let seen = bench.run(&frames);
    assert!(seen.iter().zip(&frames).all(|(s, f)| s.verdict == Ok("out") && s.bytes == *f));
    let report = bench.report();
    assert_eq!((&report["flows"], &report["packets"]), (&json!(1), &json!(4)));
    let first = &report["top"]["talkers"][0];
    assert_eq!(first["ends"], json!(["192.0.2.10:5000", "192.0.2.2:80"]));
    assert_eq!(first["account"]["packets"], json!([3, 1]));
    assert_eq!(first["account"]["bytes"], json!(bytes));
    assert_eq!(first["account"]["flags"], json!(["FSPA", "SA"]));
}

#[test]
fn a_flow_with_the_same_account_as_a_listed_one_does_not_take_its_place() {
    let mut bench = bench(json!({"top": 1}));
    let (listed, other) = (v4().udp(1, 53).build(), v4().udp(2, 53).build());
    bench.run(&[listed, other.clone(), other]);
    let first = &bench.report()["top"]["talkers"][0];
    assert_eq!(first["ends"][0], "192.0.2.10:2");
    assert_eq!(first["account"]["packets"], json!([2, 0]));
}

/// Flows that came at once with the same bytes have the same account.
#[test]
fn a_flow_whose_place_another_with_the_same_account_has_taken_does_not_count_for_that() {
    let mut bench = bench(json!({"top": 1}));
    let (first, better) = (v4().udp(2, 53).build(), v4().udp(1, 53).build());
    let at = |frame: &Vec<u8>| (frame.clone(), 1_000);
    let frames = [at(&first), at(&better), at(&first)];
    bench.run_cut(&frames.each_ref().map(|(frame, ns)| (&frame[..], frame.len(), *ns)));
    let listed = &bench.report()["top"]["talkers"][0];
    assert_eq!(listed["ends"][0], "192.0.2.10:2");
    assert_eq!(listed["account"]["packets"], json!([2, 0]));
}

#[test]
fn what_icmp_errors_quote_is_declared_to_be_read() {
    for name in ["FlowMonitor", "Policer", "ConnTrack"] {
        let Ok(Registration { descriptor, .. }) = find(name) else { panic!("no {name}") };
        assert_eq!(descriptor.layers.payload, Touch::Read, "{name}");
    }
}

#[test]
fn vlans_tell_flows_apart_and_fragments_and_icmp_errors_belong_to_theirs() {
    let mut frames = v6().udp(9, 53).payload(&[1; 100]).fragments(48);
    let whole = v4().udp(9, 53).build();
    frames.extend([whole.clone(), v4().udp(9, 53).vlan(7).build()]);
    // Port unreachable, from the server.
    frames.push(back().icmp(3, 3, [0; 4]).payload(&whole[14..]).build());
    let mut bench = bench(json!({}));
    bench.run(&frames);
    let report = bench.report();
    assert_eq!(report["flows"], 3);
    let talkers = report["top"]["talkers"].as_array().unwrap();
    let packets: Vec<_> = talkers.iter().map(|t| &t["account"]["packets"]).collect();
    assert_eq!(packets, [&json!([3, 0]), &json!([1, 1]), &json!([1, 0])]);
    assert_eq!((&talkers[1]["vlans"], &talkers[2]["vlans"]), (&json!(0), &json!(7)));
}

#[test]
fn what_is_not_ip_counts_in_all_only() {
    let mut bench = bench(json!({}));
    bench.run(&[Frame::other(0x0806).payload(&[0; 28]).build(), vec![1; 5]]);
    let report = bench.report();
    let counts = ["packets", "bytes", "untold", "flows"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [2, 47, 2, 0]);
}

#[test]
fn a_flow_that_comes_again_after_two_minutes_is_a_new_one() {
    let frame = v4().udp(1, 2).build();
    let mut bench = bench(json!({}));
    let at = |seconds: u64| (&frame[..], frame.len(), seconds * 1_000_000_000);
    bench.run_cut(&[at(1), at(100), at(219), at(400)]);
    let report = bench.report();
    assert_eq!((&report["flows"], &report["ended"]), (&json!(2), &json!(1)));
    let began: Vec<_> = (0..2)
        .map(|i| report["top"]["talkers"][i]["account"]["began_ns"].as_u64().unwrap())
        .collect();
    assert_eq!(began, [1_000_000_000, 400_000_000_000]);
}

/// The list against a plain count of everything.
#[test]
fn the_list_has_exactly_the_flows_with_the_most_bytes() {
    let mut bench = bench(json!({"top": 7}));
    let mut all = vec![0_usize; 200];
    let mut random = 1_u32;
    let mut frames = Vec::new();
    for _ in 0..4000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (port, len) = ((random >> 16) as u16 % 200, (random >> 8) as usize % 500);
        let frame = v4().udp(1000 + port, 53).payload(&vec![0; len]).build();
        all[usize::from(port)] += frame.len();
        frames.push(frame);
    }
    bench.run(&frames);
    let mut expected: Vec<_> = all.iter().zip(1000..).map(|(b, p)| (*b as u64, p)).collect();
    expected.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let report = bench.report();
    let listed: Vec<(u64, u16)> = report["top"]["talkers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let from = t["ends"][0].as_str().unwrap();
            let bytes = t["account"]["bytes"][0].as_u64().unwrap();
            (bytes, from.rsplit(':').next().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(listed, expected[..7]);
}

proptest! {
    /// Flows that grow alike, as many do, against a sorted list of all of them, after each packet: of equal bytes the older is
    /// the larger, of equal age the lower port.
    #[test]
    fn of_equal_flows_the_older_are_listed(
        most in 1_usize..5,
        packets in prop::collection::vec((0_u16..12, 0_usize..2, 0_u64..2), 1..120),
    ) {
        let mut bench = bench(json!({"top": most}));
        let mut all = BTreeMap::<u16, (u64, u64)>::new();
        let mut now = 1_000_000_000;
        for (port, len, passed) in packets {
            let frame = v4().udp(1000 + port, 53).payload(&vec![0; len]).build();
            now += passed;
            bench.run_cut(&[(&frame, frame.len(), now)]);
            all.entry(1000 + port).or_insert((0, now)).0 += frame.len() as u64;
            let mut expected: Vec<_> = all.iter().map(|(p, (bytes, began))| (Reverse(*bytes), *began, *p)).collect();
            expected.sort_unstable();
            expected.truncate(most);
            let report = bench.report();
            let listed = report["top"]["talkers"].as_array().unwrap().iter().map(|talker| {
                let from: SocketAddr = talker["ends"][0].as_str().unwrap().parse().unwrap();
                let number = |value: &Value| value.as_u64().unwrap();
                let account = &talker["account"];
                (Reverse(number(&account["bytes"][0])), number(&account["began_ns"]), from.port())
            });
            prop_assert_eq!(listed.collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn tags_say_what_the_flow_has_had_so_far() {
    let place =
        |name: &str, slot| TagSpec { name: name.to_owned(), place: TagPlace::Number { slot } };
    let env = Env::new(&[place("packets", 0), place("bytes", 1)], 1).unwrap();
    let mut bench = Bench::with_env::<FlowMonitor>(json!({}), &env).unwrap();
    let frames = [v4().udp(1, 2).build(), back().udp(2, 1).payload(&[0; 10]).build()];
    let seen = bench.run(&frames);
    // A number tag holds its number plus one.
    assert_eq!(seen[0].tags[..2], [2, 43]);
    assert_eq!(seen[1].tags[..2], [3, 43 + 52]);
}

#[test]
fn merging_adds_and_takes_a_flow_that_moved_once() {
    let report = |frames: &[Vec<u8>]| {
        let mut bench = bench(json!({"top": 2}));
        bench.run(frames);
        bench.report()
    };
    let (small, large) = (v4().udp(1, 2).build(), v4().udp(3, 4).payload(&[0; 99]).build());
    let one = report(&[small.clone(), large.clone()]);
    let two = report(&[small.clone(), small.clone(), v4().udp(5, 6).build()]);
    let monitor: &Registration = find("FlowMonitor").unwrap();
    let both = monitor.together(&[one.clone(), two]).unwrap();
    assert_eq!((&both["packets"], &both["flows"]), (&json!(5), &json!(4)));
    let ends: Vec<_> = (0..3).map(|i| &both["top"]["talkers"][i]["ends"][0]).collect();
    assert_eq!(ends, [&json!("192.0.2.10:3"), &json!("192.0.2.10:1"), &Value::Null]);
    let mut alone = Traffic::default();
    alone.merge(serde_json::from_value(one.clone()).unwrap());
    assert_eq!(serde_json::to_value(alone).unwrap()["top"]["talkers"], one["top"]["talkers"]);
}

#[test]
fn more_than_a_hundred_cannot_be_listed() {
    let error = Bench::new::<FlowMonitor>(json!({"top": 101})).err().unwrap().to_string();
    assert!(error.starts_with("/top: 101 flows; at most 100"), "{error}");
}

/// The demo's capture against a plain table of all flows.
#[test]
fn a_captures_largest_flows_are_listed_with_all_that_they_had() {
    let packets = ethernet(&root().join("demo/http.pcap"));
    let mut bench = bench(json!({"top": 100}));
    let cut: Vec<_> = packets.iter().map(|(bytes, wire)| (&bytes[..], *wire, 7)).collect();
    bench.run_cut(&cut);
    let mut all: HashMap<FlowKey, (u64, u64)> = HashMap::new();
    let mut fragments = FragmentTable::new(1024, FlowHasher::new(1));
    let (mut wire_bytes, mut untold) = (0, 0);
    for (bytes, wire) in &packets {
        wire_bytes += *wire as u64;
        match fragments.key(&bytes[..], &parse(&bytes[..], Depth::L4), 7) {
            None => untold += 1,
            Some((key, _)) => {
                let flow = all.entry(key).or_default();
                *flow = (flow.0 + *wire as u64, flow.1 + 1);
            }
        }
    }
    let report = bench.report();
    let counts = ["packets", "bytes", "untold", "flows"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [packets.len() as u64, wire_bytes, untold, all.len() as u64]);
    let sum = |talker: &Value, key: &str| -> u64 {
        talker["account"][key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
    };
    let listed = report["top"]["talkers"].as_array().unwrap().iter();
    let mut listed: Vec<_> = listed.map(|t| (sum(t, "bytes"), sum(t, "packets"))).collect();
    let mut expected: Vec<_> = all.into_values().collect();
    for list in [&mut listed, &mut expected] {
        list.sort_by(|a, b| b.cmp(a));
    }
    expected.truncate(100);
    // Of flows of equal bytes at the end of the list the oldest are there.
    let last = expected.iter().map(|(bytes, _)| *bytes).min().unwrap();
    for list in [&mut listed, &mut expected] {
        assert_eq!(list.len(), 100);
        list.retain(|(bytes, _)| *bytes > last);
    }
    assert_eq!(listed, expected);
}

#[test]
fn a_flood_of_flows_pushes_out_its_own_and_busy_ones_are_counted_on() {
    let mut bench = Bench::new::<FlowMonitor>(json!({"top": 1})).unwrap();
    let packet = |n: u32, to: u16| {
        let [_, a, b, c] = n.to_be_bytes();
        Frame::ipv4([10, a, b, c], [192, 0, 2, 2]).udp(7, to).build()
    };
    bench.run(&[packet(0, 80), packet(0, 80)]);
    for n in 0..70_000 {
        bench.run(&[packet(n, 53)]);
    }
    bench.run(&[packet(0, 80)]);
    let report = bench.report();
    let gave_way = 70_001 - 65_536;
    let counts = ["flows", "ended", "gave_way", "untold"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [70_001, gave_way, gave_way, 0]);
    assert_eq!(report["top"]["talkers"][0]["account"]["packets"], json!([3, 0]));
}
