//! Where the parser finds headers, case by case.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use weir_packet::headers::{flags, proto, tcp};
use weir_packet::wire::Frame;
use weir_packet::{Depth, Fragment, HeaderFault, L3, Layers, parse};

const A4: [u8; 4] = [10, 0, 0, 1];
const B4: [u8; 4] = [10, 0, 0, 2];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

fn full(frame: &[u8]) -> Layers {
    let layers = parse(frame, Depth::L4);
    assert!(layers.l3 <= layers.l4 && layers.l4 <= layers.payload && layers.payload <= layers.end);
    layers
}

fn offsets(layers: &Layers) -> (u16, u16, u16, u16) {
    (layers.l3, layers.l4, layers.payload, layers.end)
}

#[test]
fn layers_fit_into_24_bytes() {
    assert!(size_of::<Layers>() <= 24);
}

#[test]
fn a_plain_udp_packet_has_all_headers_where_they_are() {
    let frame = Frame::ipv4(A4, B4).udp(1000, 53).payload(b"hello").build();
    let layers = full(&frame);
    assert_eq!(offsets(&layers), (14, 34, 42, 47));
    assert_eq!((layers.kind, layers.ether_type, layers.proto), (L3::Ipv4, 0x0800, proto::UDP));
    assert_eq!((layers.flags, layers.fault, layers.depth), (flags::L4, None, Depth::L4));
    assert_eq!(layers.ips(&frame[..]), Some(([10, 0, 0, 1].into(), [10, 0, 0, 2].into())));
    assert_eq!(layers.ports(&frame[..]), Some((1000, 53)));
    assert_eq!(layers.tcp_flags(&frame[..]), None);
    assert_eq!(layers.icmp_type_code(&frame[..]), None);
    assert_eq!(layers.ttl(&frame[..]), Some(64));
    assert_eq!(layers.macs(&frame[..]), Some(([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])));
    assert_eq!(layers.payload_len(), 5);
}

#[test]
fn a_tcp_header_with_options_ends_where_its_data_offset_says() {
    let mut frame =
        Frame::ipv4(A4, B4).tcp(80, 4000, tcp::SYN | tcp::ACK).payload(&[1; 20]).build();
    frame[46] = 0x80; // 8 words
    let layers = full(&frame);
    assert_eq!(offsets(&layers), (14, 34, 66, 74));
    assert_eq!(layers.tcp_flags(&frame[..]), Some(0x12));
}

#[test]
fn ethernet_padding_is_not_payload() {
    let frame = Frame::ipv4(A4, B4).udp(1, 2).payload(b"x").pad_to(60).build();
    assert_eq!(frame.len(), 60);
    assert_eq!(offsets(&full(&frame)), (14, 34, 42, 43));
}

#[test]
fn a_shallow_parse_stops_where_it_was_told() {
    let frame = Frame::ipv4(A4, B4).tcp(1, 2, 0).build();
    assert_eq!(parse(&frame[..], Depth::None), Layers::default());
    let link = parse(&frame[..], Depth::L2);
    assert_eq!((link.depth, link.kind, link.l3, link.proto), (Depth::L2, L3::Ipv4, 14, 0));
    let network = parse(&frame[..], Depth::L3);
    assert_eq!((network.depth, network.proto, network.has_l4()), (Depth::L3, proto::TCP, false));
    assert_eq!(network.payload, network.l4);
}

#[test]
fn every_tag_type_is_walked_up_to_eight_tags() {
    for count in 0..=8u16 {
        let types = [0x88a8, 0x8100, 0x9100];
        let frame = (0..count).fold(Frame::ipv4(A4, B4).udp(1, 2), |frame, index| {
            frame.tag(types[usize::from(index) % 3], 0xe000 | (100 + index))
        });
        let frame = frame.build();
        let layers = full(&frame);
        assert_eq!(u16::from(layers.vlan_count), count);
        assert_eq!(layers.l3, 14 + 4 * count);
        assert_eq!((layers.kind, layers.ether_type, layers.has_l4()), (L3::Ipv4, 0x0800, true));
        if count > 0 {
            assert_eq!((layers.vlan_outer, layers.vlan_inner), (100, 99 + count));
            assert_eq!(layers.vlan_tci(&frame[..], 0), Some(0xe000 | 100));
        }
        assert_eq!(layers.vlan_tci(&frame[..], count as u8), None);
    }
}

#[test]
fn a_ninth_tag_is_a_fault_and_not_ip() {
    let mut frame = vec![0; 12];
    for _ in 0..9 {
        frame.extend([0x81, 0, 0, 5]);
    }
    frame.extend([0x08, 0, 0x45]);
    let layers = full(&frame);
    assert_eq!((layers.kind, layers.fault), (L3::Other, Some(HeaderFault::TooManyTags)));
}

#[test]
fn frames_that_are_not_ip_are_no_error() {
    for (ether_type, kind) in
        [(0x0806, L3::Arp), (0x88cc, L3::Other), (0x8847, L3::Other), (0x8864, L3::Other)]
    {
        let frame = Frame::other(ether_type).payload(&[0x45; 46]).build();
        let layers = full(&frame);
        assert_eq!((layers.kind, layers.ether_type, layers.fault), (kind, ether_type, None));
        assert_eq!(offsets(&layers), (14, 14, 14, 60));
        assert_eq!((layers.ips(&frame[..]), layers.ports(&frame[..])), (None, None));
        assert_eq!(layers.ttl(&frame[..]), None);
    }
}

#[test]
fn a_length_frame_has_no_ether_type_and_its_length_bounds_it() {
    let frame = Frame::other(3).payload(&[0x42, 0x42, 0x03]).pad_to(60).build();
    let layers = full(&frame);
    assert_eq!((layers.kind, layers.ether_type), (L3::Other, 0));
    assert_eq!(offsets(&layers), (14, 14, 14, 17));
}

#[test]
fn ipv4_options_move_the_transport_header() {
    let frame = Frame::ipv4(A4, B4).options(&[7, 7, 4, 1, 2, 3, 4]).udp(5, 6).build();
    let layers = full(&frame);
    assert_eq!(offsets(&layers), (14, 42, 50, 50));
    assert!(layers.has(flags::OPTIONS));
    assert_eq!(layers.ports(&frame[..]), Some((5, 6)));
}

#[test]
fn of_fragments_only_the_first_has_ports_and_all_have_the_id() {
    for frame in [Frame::ipv4(A4, B4), Frame::ipv6(A6, B6)] {
        let pieces = frame.id(77).udp(5, 6).payload(&[9; 100]).fragments(48);
        let seen: Vec<_> = pieces
            .iter()
            .map(|piece| {
                let layers = full(piece);
                assert_eq!((layers.proto, layers.fault), (proto::UDP, None));
                (
                    layers.fragment(),
                    layers.ports(&piece[..]),
                    layers.fragment_id(&piece[..]),
                    layers.payload_len(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (Fragment::First, Some((5, 6)), Some(77), 40),
                (Fragment::Later, None, Some(77), 48),
                (Fragment::Later, None, Some(77), 12),
            ]
        );
    }
}

#[test]
fn sctp_and_icmp_headers_are_known() {
    let frame = Frame::ipv4(A4, B4)
        .proto(proto::SCTP)
        .payload(&[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3])
        .build();
    assert_eq!(offsets(&full(&frame)), (14, 34, 46, 47));
    assert_eq!(full(&frame).ports(&frame[..]), Some((1, 2)));
    for frame in [Frame::ipv4(A4, B4), Frame::ipv6(A6, B6)] {
        let frame = frame.icmp(3, 1, [0; 4]).payload(&[1; 9]).build();
        let layers = full(&frame);
        assert_eq!(layers.payload, layers.l4 + 8);
        assert_eq!(layers.icmp_type_code(&frame[..]), Some((3, 1)));
    }
}

#[test]
fn icmp_of_the_other_ip_version_is_no_icmp() {
    let frame = Frame::ipv4(A4, B4).proto(proto::ICMPV6).payload(&[0; 20]).build();
    assert_eq!((full(&frame).has_l4(), full(&frame).icmp_type_code(&frame[..])), (false, None));
}

#[test]
fn a_cut_capture_is_truncated_and_never_called_faulty() {
    let chain: &[(u8, &[u8])] = &[(proto::DEST_OPTS, &[0; 6])];
    let frames = [
        Frame::ipv4(A4, B4).vlan(5).options(&[7; 8]).tcp(1, 2, 0).payload(&[0; 9]).build(),
        Frame::ipv6(A6, B6).vlan(5).extensions(chain).udp(1, 2).payload(&[0; 9]).build(),
    ];
    for whole in frames {
        for len in 0..whole.len() {
            let layers = full(&whole[..len]);
            assert!(layers.is_truncated(), "{len} of {} bytes", whole.len());
            assert_eq!((layers.fault, usize::from(layers.end)), (None, len));
        }
        assert!(!full(&whole).is_truncated());
    }
}

fn faulty(change: impl Fn(&mut Vec<u8>), frame: Frame) -> Option<HeaderFault> {
    let mut frame = frame.build();
    change(&mut frame);
    full(&frame).fault
}

#[test]
fn every_fault_of_a_header_has_its_own_reason() {
    let v4 = Frame::ipv4(A4, B4).udp(1, 2).payload(&[0; 40]);
    let v6 = Frame::ipv6(A6, B6).udp(1, 2).payload(&[0; 40]);
    let tcp4 = Frame::ipv4(A4, B4).tcp(1, 2, 0).payload(&[0; 40]);
    assert_eq!(faulty(|_| {}, v4), None);
    assert_eq!(faulty(|f| f[14] = 0x65, v4), Some(HeaderFault::Version));
    assert_eq!(faulty(|f| f[14] = 0x40, v6), Some(HeaderFault::Version));
    assert_eq!(faulty(|f| f[14] = 0x44, v4), Some(HeaderFault::HeaderLength));
    assert_eq!(faulty(|f| f[17] = 19, v4), Some(HeaderFault::TotalLengthShort));
    assert_eq!(faulty(|f| f[17] = 27, v4), Some(HeaderFault::TransportCut));
    assert_eq!(faulty(|f| f[39] = 7, v4), Some(HeaderFault::UdpLength));
    assert_eq!(faulty(|f| f[39] = 200, v4), Some(HeaderFault::UdpLength));
    assert_eq!(faulty(|f| f[46] = 0x40, tcp4), Some(HeaderFault::TcpDataOffset));
    assert_eq!(faulty(|f| f[46] = 0xf0, tcp4), None);
    assert_eq!(faulty(|f| f[46] = 0xf0, tcp4.payload(&[0; 39])), Some(HeaderFault::TransportCut));
    let extended = v6.extensions(&[(proto::DEST_OPTS, &[0; 6])]);
    assert_eq!(faulty(|f| f[55] = 99, extended), Some(HeaderFault::ExtensionCut));
}

#[test]
fn a_first_fragment_may_end_inside_its_transport_header() {
    let pieces = Frame::ipv4(A4, B4).tcp(1, 2, 0).fragments(8);
    let layers = full(&pieces[0]);
    assert_eq!((layers.fault, layers.has_l4()), (None, false));
    assert_eq!(layers.ports(&pieces[0][..]), Some((1, 2)));
    assert_eq!(layers.tcp_flags(&pieces[0][..]), None);
}

#[test]
fn bytes_beyond_65535_are_not_seen() {
    let mut frame = Frame::other(0x88cc).build();
    frame.resize(70_000, 0);
    assert_eq!(offsets(&full(&frame)), (14, 14, 14, 65_535));
}

#[test]
fn the_traffic_class_is_read_in_both_versions() {
    let mut frame = Frame::ipv4(A4, B4).build();
    frame[15] = 0xb8;
    assert_eq!(full(&frame).traffic_class(&frame[..]), Some(0xb8));
    let mut frame = Frame::ipv6(A6, B6).build();
    (frame[14], frame[15]) = (0x6b, 0x80);
    assert_eq!(full(&frame).traffic_class(&frame[..]), Some(0xb8));
}
