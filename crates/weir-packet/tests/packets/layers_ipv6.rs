//! How IPv6 extension headers are walked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use weir_packet::headers::{flags, proto, tcp};
use weir_packet::wire::Frame;
use weir_packet::{Depth, Fragment, HeaderFault, Layers, parse};

const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

fn full(frame: &[u8]) -> Layers {
    parse(frame, Depth::L4)
}

#[test]
fn an_ipv6_atomic_fragment_is_a_whole_datagram() {
    let frame =
        Frame::ipv6(A6, B6).extensions(&[(proto::FRAGMENT, &[0, 0, 0, 0, 0, 9])]).udp(5, 6).build();
    let layers = full(&frame);
    assert_eq!((layers.fragment(), layers.ports(&frame[..])), (Fragment::Whole, Some((5, 6))));
}

#[test]
fn ipv6_extension_headers_are_walked_to_the_transport_header() {
    let chain: &[(u8, &[u8])] = &[
        (proto::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]),
        (proto::DEST_OPTS, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (proto::ROUTING, &[0, 0, 0, 0, 0, 0]),
        (proto::AH, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4]),
    ];
    let frame = Frame::ipv6(A6, B6).extensions(chain).tcp(7, 8, tcp::SYN).build();
    let layers = full(&frame);
    assert_eq!(layers.l4, 14 + 40 + 8 + 16 + 8 + 16);
    assert_eq!((layers.proto, layers.fault), (proto::TCP, None));
    assert!(layers.has(flags::OPTIONS) && layers.has_l4());
    assert_eq!(layers.ports(&frame[..]), Some((7, 8)));
}

#[test]
fn esp_no_next_header_and_unknown_protocols_end_the_walk() {
    for kind in [proto::ESP, proto::NO_NEXT, 200] {
        let frame = Frame::ipv6(A6, B6)
            .extensions(&[(proto::DEST_OPTS, &[0; 6])])
            .proto(kind)
            .payload(&[1; 9])
            .build();
        let layers = full(&frame);
        assert_eq!((layers.proto, layers.l4, layers.fault), (kind, 62, None));
        assert!(!layers.has_l4());
    }
}

#[test]
fn sixteen_extension_headers_are_walked_and_seventeen_are_a_fault() {
    let many: Vec<(u8, &[u8])> = vec![(proto::DEST_OPTS, &[0; 6]); 17];
    let frame = Frame::ipv6(A6, B6).extensions(&many[..16]).udp(1, 2).build();
    assert_eq!((full(&frame).proto, full(&frame).fault), (proto::UDP, None));
    let frame = Frame::ipv6(A6, B6).extensions(&many).udp(1, 2).build();
    assert_eq!(full(&frame).fault, Some(HeaderFault::TooManyExtensions));
    assert_eq!(full(&frame).ports(&frame[..]), None);
}

#[test]
fn a_hop_by_hop_header_out_of_place_is_noted_and_the_ports_still_found() {
    let chain: &[(u8, &[u8])] = &[(proto::DEST_OPTS, &[0; 6]), (proto::HOP_BY_HOP, &[0; 6])];
    let frame = Frame::ipv6(A6, B6).extensions(chain).udp(1, 2).build();
    let layers = full(&frame);
    assert_eq!(layers.fault, Some(HeaderFault::HopByHopMisplaced));
    assert_eq!(layers.ports(&frame[..]), Some((1, 2)));
}
