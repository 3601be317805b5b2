//! Flow keys as bytes, and keys made from ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use proptest::prelude::*;
use std::net::IpAddr;
use weir_packet::flow::{Direction, PortKind};
use weir_packet::headers::proto;
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowHasher, FlowKey, FragmentTable, parse};

fn flow(frame: &[u8]) -> (FlowKey, Direction) {
    FlowKey::from_packet(frame, &parse(frame, Depth::L4)).unwrap()
}

fn frames() -> Vec<Frame<'static>> {
    let (a, b) = ([10, 0, 0, 9], [192, 0, 2, 1]);
    let v4 = || Frame::ipv4(a, b);
    let v6 = || Frame::ipv6([0x20; 16], [0xfe; 16]);
    vec![
        v4().udp(5, 9),
        v4().tcp(9, 5, 2).vlan(7).vlan(9),
        v4().icmp(8, 0, [0, 77, 0, 1]),
        v6().udp(5, 9),
        v6().tcp(4000, 80, 2),
        Frame::ipv6([0xfe; 16], [0x20; 16]).udp(5, 9),
        Frame::ipv4(b, a).udp(5, 9),
    ]
}

#[test]
fn a_key_between_two_ends_is_that_of_a_packet_between_them() {
    for frame in frames() {
        let (key, direction) = flow(&frame.build());
        let [from, to] = key.ends(direction);
        let made = FlowKey::between(from, to, key.proto(), key.port_kind(), key.zone());
        assert_eq!(made, Some((key, direction)));
    }
}

#[test]
fn ends_that_no_packet_has_make_no_key() {
    let (v4, v6): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [1; 16].into());
    let between = |a, b, kind| FlowKey::between(a, b, proto::UDP, kind, 0);
    assert_eq!(between((v4, 1), (v6, 1), PortKind::Ports), None);
    assert_eq!(between((v4, 1), (v4, 1), PortKind::None), None);
    assert_eq!(between((v4, 1), (v4, 2), PortKind::QueryId), None);
}

#[test]
fn keys_are_read_back_from_their_bytes() {
    for frame in frames() {
        let (key, _) = flow(&frame.build());
        assert_eq!(FlowKey::from_bytes(&key.to_bytes()), Some(key));
    }
}

#[test]
fn a_key_is_shown_with_what_it_has() {
    let shown: Vec<_> = frames().iter().map(|f| flow(&f.build()).0.to_string()).collect();
    assert_eq!(shown[0], "proto 17 10.0.0.9:5-192.0.2.1:9");
    assert!(shown[1].ends_with(" vlan 28681"), "{}", shown[1]);
    assert!(shown[3].starts_with("proto 17 [2020:"), "{}", shown[3]);
}

#[test]
fn fragments_that_are_read_back_find_their_flow() {
    let hasher = FlowHasher::new(7);
    let (mut old, mut new) =
        (FragmentTable::new(64, hasher), FragmentTable::new(64, FlowHasher::new(8)));
    let datagrams: Vec<_> = (0..20)
        .map(|id| {
            Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, id).id(id.into()).payload(&[0; 300])
        })
        .map(|frame| frame.fragments(80))
        .collect();
    let key = |table: &mut FragmentTable, piece: &[u8], now| {
        table.key(piece, &parse(piece, Depth::L4), now).unwrap()
    };
    let firsts: Vec<_> = datagrams.iter().map(|d| key(&mut old, &d[0], 5)).collect();
    let mut saved = Vec::new();
    old.save(&mut saved);
    let (records, rest) = saved.as_chunks::<{ FragmentTable::RECORD }>();
    assert_eq!((records.len(), rest), (20, &[][..]));
    assert!(records.iter().all(|record| new.restore(record)));
    for (datagram, first) in datagrams.iter().zip(firsts) {
        assert_eq!(key(&mut new, &datagram[1], 6), first);
        // What has run out is believed no more, by whoever's clock.
        assert_ne!(key(&mut new, &datagram[1], 6 + weir_packet::flow::LIFETIME_NS), first);
    }
    assert!(!new.restore(&[0xff; FragmentTable::RECORD]));
}

proptest! {
    /// Bytes that are read as a key are its only form, and a packet can have it.
    #[test]
    fn any_bytes_are_a_key_in_its_only_form_or_none(
        mut bytes in prop::array::uniform::<_, 48>(any::<u8>()), v6 in 0u8..3, kind in 0u8..5
    ) {
        (bytes[45], bytes[46], bytes[47]) = (v6, kind, 0);
        if let Some(key) = FlowKey::from_bytes(&bytes) {
            prop_assert_eq!(key.to_bytes(), bytes);
            let [from, to] = key.ends(Direction::Up);
            let made = FlowKey::between(from, to, key.proto(), key.port_kind(), key.zone());
            prop_assert_eq!(made, Some((key, Direction::Up)));
        }
    }
}
