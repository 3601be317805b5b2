//! Which packets belong to one flow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use weir_packet::flow::{Direction, PortKind};
use weir_packet::headers::proto;
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowHasher, FlowKey, parse};

const A4: [u8; 4] = [10, 0, 0, 1];
const B4: [u8; 4] = [10, 0, 0, 2];
const ROUTER4: [u8; 4] = [10, 9, 9, 9];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];
const ROUTER6: [u16; 8] = [0x2001, 0xdb8, 9, 0, 0, 0, 0, 9];

fn flow(frame: &[u8]) -> (FlowKey, Direction) {
    FlowKey::from_packet(frame, &parse(frame, Depth::L3)).expect("an IP packet")
}

fn key(frame: Frame) -> FlowKey {
    flow(&frame.build()).0
}

#[test]
fn both_directions_share_a_key_and_differ_in_direction() {
    for (there, back) in
        [(Frame::ipv4(A4, B4), Frame::ipv4(B4, A4)), (Frame::ipv6(A6, B6), Frame::ipv6(B6, A6))]
    {
        let (there, up) = flow(&there.tcp(4000, 80, 0).build());
        let (back, down) = flow(&back.tcp(80, 4000, 0).build());
        assert_eq!((there, up, down), (back, Direction::Up, Direction::Down));
        assert_eq!(up.reverse(), down);
        assert_eq!((there.lower().1, there.upper().1), (4000, 80));
        assert_eq!(there.ends(Direction::Down), [there.upper(), there.lower()]);
    }
}

#[test]
fn a_key_tells_its_parts() {
    let key = key(Frame::ipv4(B4, A4).vlan(7).udp(53, 4000));
    assert_eq!(key.lower(), ([10, 0, 0, 1].into(), 4000));
    assert_eq!(key.upper(), ([10, 0, 0, 2].into(), 53));
    assert_eq!(
        (key.proto(), key.version(), key.zone(), key.port_kind()),
        (proto::UDP, 4, 7, PortKind::Ports)
    );
}

#[test]
fn ends_with_the_same_address_are_ordered_by_port() {
    let there = flow(&Frame::ipv4(A4, A4).udp(5, 9).build());
    let back = flow(&Frame::ipv4(A4, A4).udp(9, 5).build());
    assert_eq!((there.0, there.1), (back.0, back.1.reverse()));
    assert_eq!(flow(&Frame::ipv4(A4, A4).udp(5, 5).build()).1, Direction::Up);
}

#[test]
fn crossed_ports_are_another_flow() {
    assert_ne!(key(Frame::ipv4(A4, B4).udp(5, 9)), key(Frame::ipv4(A4, B4).udp(9, 5)));
}

#[test]
fn address_port_protocol_version_and_zone_each_tell_flows_apart() {
    let base = Frame::ipv4(A4, B4);
    let keys = [
        key(base.udp(1, 2)),
        key(base.udp(1, 3)),
        key(base.tcp(1, 2, 0)),
        key(Frame::ipv4(A4, ROUTER4).udp(1, 2)),
        key(Frame::ipv6(A6, B6).udp(1, 2)),
        key(Frame::ipv6([0, 0, 0, 0, 0, 0, 0x0a00, 1], [0, 0, 0, 0, 0, 0, 0x0a00, 2]).udp(1, 2)),
        key(base.vlan(1).udp(1, 2)),
        key(base.vlan(1).vlan(1).udp(1, 2)),
        key(base.vlan(1).vlan(2).udp(1, 2)),
        key(base.vlan(2).vlan(1).udp(1, 2)),
        key(base.proto(200)),
    ];
    let hasher = FlowHasher::new(1);
    for (index, a) in keys.iter().enumerate() {
        for b in &keys[index + 1..] {
            assert_ne!(a, b);
            assert_ne!(hasher.hash(a), hasher.hash(b));
        }
    }
}

#[test]
fn a_priority_tag_is_no_zone_of_its_own() {
    let plain = key(Frame::ipv4(A4, B4).udp(1, 2));
    assert_eq!(key(Frame::ipv4(A4, B4).tag(0x8100, 0xe000).udp(1, 2)), plain);
}

#[test]
fn a_ping_and_its_answer_are_one_flow_per_identifier() {
    let id = |id: u8| [0, id, 0, 1];
    let request = key(Frame::ipv4(A4, B4).icmp(8, 0, id(5)));
    assert_eq!(request, key(Frame::ipv4(B4, A4).icmp(0, 0, [0, 5, 0, 9])));
    assert_ne!(request, key(Frame::ipv4(A4, B4).icmp(8, 0, id(6))));
    assert_eq!(request.port_kind(), PortKind::QueryId);
    let request = key(Frame::ipv6(A6, B6).icmp(128, 0, id(5)));
    assert_eq!(request, key(Frame::ipv6(B6, A6).icmp(129, 0, id(5))));
    assert_eq!(key(Frame::ipv6(A6, B6).icmp(135, 0, id(5))).port_kind(), PortKind::None);
}

#[test]
fn an_icmp_error_belongs_to_the_flow_it_quotes_in_the_opposite_direction() {
    let four = Frame::ipv4(A4, B4).vlan(3);
    let six = Frame::ipv6(A6, B6).vlan(3);
    for (quoted, error, kinds) in [
        (four, Frame::ipv4(ROUTER4, A4).vlan(3), &[3, 4, 5, 11, 12][..]),
        (six, Frame::ipv6(ROUTER6, A6).vlan(3), &[1, 2, 3, 4][..]),
    ] {
        for quoted in [
            quoted.udp(7, 8).payload(&[1; 90]),
            quoted.tcp(7, 8, 0),
            quoted.icmp(8, 0, [0, 4, 0, 0]),
        ] {
            let packet = quoted.build();
            let (key, direction) = flow(&packet);
            let header = if error.len() < 50 { 20 } else { 40 };
            for &kind in kinds {
                let message =
                    error.icmp(kind, 0, [0; 4]).payload(&packet[18..18 + header + 8]).build();
                assert_eq!(flow(&message), (key, direction.reverse()), "type {kind}");
            }
        }
    }
}

#[test]
fn an_icmp_error_whose_quote_cannot_be_read_has_the_key_of_its_own_addresses() {
    for quote in [&[][..], &[0x45; 19], &[0x60; 40]] {
        let key = key(Frame::ipv4(ROUTER4, A4).icmp(3, 1, [0; 4]).payload(quote));
        assert_eq!((key.proto(), key.port_kind()), (proto::ICMP, PortKind::None));
        assert_eq!(key.upper().0, std::net::IpAddr::from(ROUTER4));
    }
}

#[test]
fn an_icmp_error_that_quotes_an_icmp_error_ends_there() {
    let inner = Frame::ipv4(A4, B4).icmp(3, 1, [0; 4]).payload(&[0x45; 28]).build();
    let key = key(Frame::ipv4(ROUTER4, A4).icmp(3, 1, [0; 4]).payload(&inner[14..]));
    assert_eq!((key.proto(), key.port_kind()), (proto::ICMP, PortKind::None));
    assert_eq!(key.upper().0, std::net::IpAddr::from(B4));
}

#[test]
fn later_fragments_have_a_key_without_ports_that_is_no_other_flows() {
    let frame = Frame::ipv4(A4, B4).udp(0, 0).payload(&[0; 64]);
    let pieces = frame.fragments(32);
    let first = flow(&pieces[0]).0;
    let later = flow(&pieces[1]).0;
    assert_eq!((first.port_kind(), later.port_kind()), (PortKind::Ports, PortKind::LaterFragment));
    assert_eq!(later, flow(&pieces[2]).0);
    assert_ne!(first, later);
}

#[test]
fn packets_that_are_not_ip_have_no_flow() {
    for frame in [Frame::other(0x0806).payload(&[0; 46]).build(), vec![], vec![0; 13]] {
        let layers = parse(&frame[..], Depth::L3);
        assert_eq!(FlowKey::from_packet(&frame[..], &layers), None);
        assert_eq!(FlowHasher::new(0).hash_packet(&frame[..], &layers), None);
    }
}

#[test]
fn the_seed_decides_the_hash() {
    let key = key(Frame::ipv4(A4, B4).udp(1, 2));
    let hash = |seed| FlowHasher::new(seed).hash(&key);
    assert_eq!(hash(5), hash(5));
    assert_ne!(hash(5), hash(6));
    assert_ne!(hash(5), hash(5 | 1 << 100));
    assert_eq!(FlowHasher::new(5).hash32(&key), (hash(5) >> 32) as u32);
}

#[test]
fn neighbouring_flows_spread_evenly_over_buckets() {
    let hasher = FlowHasher::new(42);
    let mut counts = [0u32; 64];
    for port in 0..6400 {
        let hash = hasher.hash(&key(Frame::ipv4(A4, B4).udp(port, 80)));
        counts[(hash % 64) as usize] += 1;
    }
    // 100 expected in each; the standard deviation is 10.
    assert!(counts.iter().all(|n| (40..=160).contains(n)), "{counts:?}");
}
