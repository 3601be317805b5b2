//! The flow table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::Ipv6Addr;
use weir_nf::wire::Frame;
use weir_nf::{FlowState, FlowTable};
use weir_packet::{Depth, Direction, FlowKey, parse};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Count(u32);
impl FlowState for Count {}

const SECOND: u64 = 1_000_000_000;
const IDLE: u64 = 120 * SECOND;

fn key(frame: &[u8]) -> (FlowKey, Direction) {
    FlowKey::from_packet(frame, &parse(frame, Depth::L4)).unwrap()
}

fn udp(flow: u32) -> (FlowKey, Direction) {
    let [_, a, b, c] = flow.to_be_bytes();
    key(&Frame::ipv4([10, a, b, c], [192, 0, 2, 1]).udp(7, 53).build())
}

/// Counts a packet of a frame; what the flow has counted, whether its starter sent it, whether it
/// is the first.
fn count(table: &mut FlowTable<Count>, frame: &[u8], now: u64) -> (u32, bool, bool) {
    let (key, direction) = table.key(frame, &parse(frame, Depth::L4), now).unwrap();
    let flow = table.find(key, direction, now).unwrap();
    flow.state.0 += 1;
    (flow.state.0, flow.from_starter, flow.is_new)
}

#[test]
fn both_directions_are_one_flow_and_who_began_it_is_known() {
    let (a, b) = ([192, 0, 2, 200], [192, 0, 2, 1]);
    // Whichever end has the lower address.
    for (client, server) in [(a, b), (b, a)] {
        let mut table = FlowTable::new(10, IDLE);
        let request = Frame::ipv4(client, server).tcp(40_000, 80, 2).build();
        let answer = Frame::ipv4(server, client).tcp(80, 40_000, 0x12).build();
        assert_eq!(count(&mut table, &request, 1), (1, true, true));
        assert_eq!(count(&mut table, &answer, 2), (2, false, false));
        assert_eq!(count(&mut table, &request, 3), (3, true, false));
        assert_eq!(table.len(), 1);
    }
}

#[test]
fn flows_of_different_vlans_versions_protocols_and_ports_are_different() {
    let mut table = FlowTable::new(100, IDLE);
    let v4 = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let v6 = Frame::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let frames = [v4.udp(1, 2), v4.tcp(1, 2, 2), v4.udp(1, 3), v4.udp(1, 2).vlan(7), v6.udp(1, 2)];
    for frame in &frames {
        assert_eq!(count(&mut table, &frame.build(), 0), (1, true, true));
    }
    assert_eq!(table.len(), frames.len());
}

#[test]
fn later_fragments_belong_to_the_flow_of_their_first_and_errors_to_what_they_quote() {
    let (client, server) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST);
    let payload = [0; 300];
    let v4 = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, 53).id(77).payload(&payload);
    let v6 = Frame::ipv6(client, server).udp(9, 53).id(77).payload(&payload);
    for frame in [v4, v6] {
        let mut table = FlowTable::new(10, IDLE);
        for (i, piece) in frame.fragments(80).iter().enumerate() {
            assert_eq!(count(&mut table, piece, 5), (i as u32 + 1, true, i == 0));
        }
        assert_eq!(table.len(), 1);
    }
    let mut table = FlowTable::new(10, IDLE);
    let request = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, 53).build();
    count(&mut table, &request, 1);
    // Port unreachable, from the server, and time exceeded, from a router between.
    for (from, kind) in [([10, 0, 0, 2], 3), ([172, 16, 0, 1], 11)] {
        let error = Frame::ipv4(from, [10, 0, 0, 1]).icmp(kind, 3, [0; 4]).payload(&request[14..]);
        let (_, from_starter, is_new) = count(&mut table, &error.build(), 2);
        assert_eq!((from_starter, is_new), (false, false));
    }
    assert_eq!(table.len(), 1);
}

#[test]
fn a_full_table_keeps_its_busy_flows_and_refuses_new_ones() {
    let mut table = FlowTable::<Count>::new(3, IDLE);
    for flow in 0..3 {
        let (key, direction) = udp(flow);
        table.find(key, direction, 1).unwrap().state.0 = flow + 10;
    }
    for flow in 3..1000 {
        let (key, direction) = udp(flow);
        assert!(table.find(key, direction, 2).is_none());
    }
    assert_eq!((table.len(), table.refused()), (3, 997));
    let (key, direction) = udp(1);
    assert_eq!(table.find(key, direction, 3).unwrap().state.0, 11);
}

#[test]
fn idle_flows_end_though_the_table_is_not_full_and_busy_ones_stay() {
    let mut table = FlowTable::<Count>::new(1 << 16, IDLE);
    for flow in 0..1000 {
        let (key, direction) = udp(flow);
        table.find(key, direction, u64::from(flow)).unwrap().state.0 = flow;
    }
    // Every tenth has a packet each minute; a batch a second goes by.
    let mut ended = Vec::new();
    for second in 1..=240 {
        if second % 60 == 0 {
            for flow in (0..1000).step_by(10) {
                let (key, direction) = udp(flow);
                assert!(!table.find(key, direction, second * SECOND).unwrap().is_new);
            }
        }
        table.expire(second * SECOND);
        let now: Vec<u32> = table.take_ended().map(|(_, state)| state.0).collect();
        assert!(now.is_empty() || second >= 120, "ended after {second} s");
        // No full scans: a few at a time.
        assert!(now.len() <= 32, "{} at once", now.len());
        ended.extend(now);
    }
    ended.sort_unstable();
    let idle: Vec<u32> = (0..1000).filter(|flow| flow % 10 != 0).collect();
    assert_eq!(ended, idle);
    assert_eq!(table.len(), 100);
}

#[test]
fn a_packet_after_the_idle_time_begins_a_new_flow_whoever_cleaned_up() {
    let mut table = FlowTable::<Count>::new(10, IDLE);
    let frame = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let back = Frame::ipv4([10, 0, 0, 2], [10, 0, 0, 1]).udp(2, 1).build();
    count(&mut table, &frame, 0);
    assert_eq!(count(&mut table, &frame, IDLE - 1), (2, true, false));
    // The other side begins this time.
    assert_eq!(count(&mut table, &back, 2 * IDLE), (1, true, true));
    assert_eq!(table.take_ended().map(|(_, c)| c.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn ended_flows_make_room_in_a_full_table() {
    let mut table = FlowTable::<Count>::new(100, IDLE);
    for flow in 0..100 {
        let (key, direction) = udp(flow);
        table.find(key, direction, 0).unwrap();
    }
    let (key, direction) = udp(500);
    assert!(table.find(key, direction, IDLE + IDLE / 8).is_some());
    assert_eq!(table.refused(), 0);
}

/// Addresses and ports that a plain hash (xor, or sum, of the fields) throws together.
#[test]
fn keys_chosen_to_collide_cost_no_more_than_others() {
    let probe = |flows: &[(FlowKey, Direction)]| {
        let mut table = FlowTable::<Count>::new(1 << 17, IDLE);
        let start = std::time::Instant::now();
        for _ in 0..3 {
            for (key, direction) in flows {
                table.find(*key, *direction, 0).unwrap().state.0 += 1;
            }
        }
        assert_eq!(table.len(), flows.len());
        start.elapsed()
    };
    let colliding: Vec<_> = (0..20_000u32)
        .map(|n| {
            let [_, a, b, c] = n.to_be_bytes();
            // Both addresses and both ports change by the same bits: they cancel out.
            let port = n as u16;
            key(&Frame::ipv4([10, a, b, c], [11, a, b, c]).udp(port, port ^ 1).build())
        })
        .collect();
    let plain: Vec<_> = (0..20_000).map(udp).collect();
    // The best of several, as others use the machine; one long chain would be a thousand times slower.
    let best = |flows: &[_]| (0..5).map(|_| probe(flows)).min().unwrap();
    let (bad, good) = (best(&colliding), best(&plain));
    assert!(bad < 10 * good, "{bad:?} instead of {good:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Against a map that looks at everything each time.
    #[test]
    fn states_are_those_of_a_plain_map(
        steps in prop::collection::vec((0u32..12, 0u64..90, any::<bool>()), 1..300)
    ) {
        let mut table = FlowTable::<Count>::new(8, IDLE);
        let mut plain: HashMap<u32, (u64, u32)> = HashMap::new();
        let (mut now, mut made, mut ended, mut refused) = (0, 0u64, 0u64, 0);
        for (flow, seconds, expire) in steps {
            now += seconds * SECOND;
            if expire {
                table.expire(now);
            }
            let (key, direction) = udp(flow);
            let before = plain.get(&flow).filter(|(last, _)| now - last < IDLE).map(|f| f.1);
            match table.find(key, direction, now) {
                Some(found) => {
                    prop_assert_eq!(found.is_new, before.is_none());
                    found.state.0 += 1;
                    prop_assert_eq!(found.state.0, before.unwrap_or(0) + 1);
                    made += u64::from(found.is_new);
                    plain.insert(flow, (now, found.state.0));
                }
                None => {
                    prop_assert_eq!(before, None);
                    refused += 1;
                }
            }
            ended += table.take_ended().count() as u64;
            prop_assert!(table.len() <= 8);
            prop_assert_eq!(table.len() as u64, made - ended);
        }
        prop_assert_eq!(table.refused(), refused);
    }
}
