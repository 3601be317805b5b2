//! Flows and fragments in recorded captures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use std::collections::{HashMap, HashSet};
use weir_packet::flow::PortKind;
use weir_packet::headers::proto;
use weir_packet::{Depth, FlowHasher, FlowKey, Fragment, FragmentTable, check_ip, parse};

fn capture(name: &str) -> Option<Vec<crate::common::Record>> {
    let path = crate::common::captures()
        .into_iter()
        .find(|path| path.file_stem().is_some_and(|stem| stem == name))?;
    Some(crate::common::ethernet_frames(&path))
}

#[test]
fn icmp_errors_have_the_key_of_a_flow_that_was_seen() {
    let Some(frames) = capture("quic-version-negotiation-icmp-errors") else {
        return;
    };
    let mut flows = HashSet::new();
    let mut errors = [0, 0];
    for record in &frames {
        let bytes = &record.bytes[..];
        let layers = parse(bytes, Depth::L4);
        let Some((key, direction)) = FlowKey::from_packet(bytes, &layers) else {
            continue;
        };
        match layers.proto {
            proto::UDP => {
                flows.insert((key, direction));
            }
            proto::ICMP | proto::ICMPV6 if key.port_kind() == PortKind::Ports => {
                assert!(flows.contains(&(key, direction.reverse())), "{key:?}");
                errors[usize::from(layers.proto == proto::ICMPV6)] += 1;
            }
            _ => {}
        }
    }
    assert_eq!(errors, [21, 10]);
}

#[test]
fn later_fragments_of_nfs_datagrams_hash_like_their_first() {
    let Some(frames) = capture("ipv4-fragments-8k-udp-sctp") else {
        return;
    };
    let hasher = FlowHasher::new(11);
    let mut table = FragmentTable::new(1024, hasher);
    let mut firsts = HashMap::new();
    let (mut like_first, mut orphans) = (0, 0);
    for (now, record) in frames.iter().enumerate() {
        let bytes = &record.bytes[..];
        let layers = parse(bytes, Depth::L3);
        let Some(hash) = table.hash(bytes, &layers, now as u64) else {
            continue;
        };
        let datagram = (layers.ips(bytes), layers.fragment_id(bytes), layers.proto);
        match layers.fragment() {
            Fragment::First => {
                firsts.insert(datagram, hash);
            }
            Fragment::Later if firsts.get(&datagram) == Some(&hash) => like_first += 1,
            Fragment::Later => orphans += 1,
            Fragment::Whole => {}
        }
    }
    println!("{like_first} later fragments like their first, {orphans} without a first");
    assert_eq!((like_first, orphans), (1549, 1));
}

#[test]
fn headers_of_recorded_traffic_are_acceptable_except_where_they_are_known_to_be_broken() {
    for path in crate::common::captures() {
        let name = path.file_stem().unwrap().display().to_string();
        let frames = crate::common::ethernet_frames(&path);
        let faults = frames.iter().filter(|record| {
            let layers = parse(&record.bytes[..], Depth::L2);
            layers.is_ip() && check_ip(&record.bytes[..], &layers, record.wire_len).is_err()
        });
        // Left to the network card by the recording machine, or broken on purpose.
        let known = match name.as_str() {
            "fuzzed-mixed-big-endian" => 224,
            "http-chunked-responses" => 116,
            "mpls-vlan-mixed" => 22,
            "tcp-gaps-overlaps" => 5,
            "tls-sites-v4-v6" => 12,
            _ => 0,
        };
        assert_eq!(faults.count(), known, "{name}");
    }
}
