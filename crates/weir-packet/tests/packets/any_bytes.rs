//! What holds for every input, however hostile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use proptest::prelude::*;
use weir_packet::checksum::verify_l4;
use weir_packet::headers::{Layers, proto};
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowHasher, FlowKey, FragmentTable, HeaderFault, L3, check_ip, parse};

/// Reads everything there is to read.
fn read_all(bytes: &[u8], layers: &Layers) {
    let _ = (layers.macs(bytes), layers.ips(bytes), layers.ports(bytes), layers.tcp_flags(bytes));
    let _ = (layers.icmp_type_code(bytes), layers.ttl(bytes), layers.traffic_class(bytes));
    let _ = (layers.fragment_id(bytes), layers.payload_len(), verify_l4(bytes, layers));
    for index in 0..=layers.vlan_count {
        let _ = layers.vlan_tci(bytes, index);
    }
    let _ = (
        check_ip(bytes, layers, bytes.len()),
        check_ip(bytes, layers, 0),
        check_ip(bytes, layers, usize::MAX),
    );
    let mut table = FragmentTable::new(8, FlowHasher::new(3));
    let _ = (table.hash(bytes, layers, 0), table.hash(bytes, layers, u64::MAX));
}

/// Frames whose beginning makes the parser go deep, with anything behind it and anything changed.
fn near_frames() -> impl Strategy<Value = Vec<u8>> {
    let base = (0usize..8, any::<[u8; 6]>(), prop::collection::vec(any::<u8>(), 0..90)).prop_map(
        |(shape, body, payload)| {
            let four = Frame::ipv4([1, 2, 3, 4], [5, 6, 7, 8]).payload(&payload);
            let six = Frame::ipv6([1; 8], [2; 8]).payload(&payload);
            let chain: &[(u8, &[u8])] = &[
                (proto::HOP_BY_HOP, &body),
                (proto::ROUTING, &body),
                (proto::FRAGMENT, &body),
                (proto::AH, &body),
            ];
            match shape {
                0 => four.udp(1, 2).build(),
                1 => four.vlan(1).tcp(1, 2, 3).build(),
                2 => four.icmp(body[0], 0, [0; 4]).build(),
                3 => four.options(&body).proto(body[1]).build(),
                4 => six.tcp(1, 2, 3).build(),
                5 => six.extensions(chain).udp(1, 2).build(),
                6 => six.extensions(&chain[..2]).icmp(body[0], 0, [0; 4]).build(),
                _ => Frame::other(u16::from_be_bytes([body[0], body[1]])).payload(&payload).build(),
            }
        },
    );
    (base, prop::collection::vec((0usize..70, any::<u8>()), 0..4), 0usize..200).prop_map(
        |(mut frame, changes, cut)| {
            for (at, byte) in changes {
                if let Some(old) = frame.get_mut(at) {
                    *old = byte;
                }
            }
            frame.truncate(cut.max(12));
            frame
        },
    )
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => near_frames(), 1 => prop::collection::vec(any::<u8>(), 0..130)]
}

fn any_layers() -> impl Strategy<Value = Layers> {
    (any::<[u64; 2]>(), any::<[u8; 2]>(), 0u8..5, 0u8..4, any::<u8>(), 0u8..16).prop_map(
        |([a, b], [tags, proto], kind, depth, flags, fault)| {
            let small = u64::from_be_bytes([0, 0, tags, proto, kind, depth, flags, fault]);
            Layers::from_words([a, b, small]).expect("numbers that exist")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn parsing_and_reading_never_panics_and_offsets_are_in_order(frame in any_frame()) {
        for want in [Depth::None, Depth::L2, Depth::L3, Depth::L4] {
            let layers = parse(&frame[..], want);
            prop_assert_eq!(layers.depth, want);
            prop_assert!(layers.l3 <= layers.l4 && layers.l4 <= layers.payload);
            prop_assert!(layers.payload <= layers.end && usize::from(layers.end) <= frame.len());
            read_all(&frame, &layers);
        }
    }

    #[test]
    fn parsing_step_by_step_equals_parsing_at_once(frame in any_frame()) {
        let at_once = parse(&frame[..], Depth::L4);
        for steps in [&[Depth::L2][..], &[Depth::L3], &[Depth::L2, Depth::L3], &[Depth::L4, Depth::L2]] {
            let mut layers = Layers::default();
            for &step in steps {
                layers.extend(&frame[..], step);
            }
            layers.extend(&frame[..], Depth::L4);
            prop_assert_eq!(layers, at_once);
        }
    }

    #[test]
    fn layers_from_elsewhere_never_panic_over_any_bytes(frame in any_frame(), layers in any_layers()) {
        read_all(&frame, &layers);
        let mut further = layers;
        further.extend(&frame[..], Depth::L4);
        read_all(&frame, &further);
    }

    #[test]
    fn words_give_the_layers_back(layers in any_layers(), frame in any_frame()) {
        prop_assert_eq!(Layers::from_words(layers.to_words()), Some(layers));
        let parsed = parse(&frame[..], Depth::L4);
        prop_assert_eq!(Layers::from_words(parsed.to_words()), Some(parsed));
    }

    #[test]
    fn any_words_are_read_or_refused(words: [u64; 3]) {
        if let Some(layers) = Layers::from_words(words) {
            prop_assert_eq!(layers.to_words(), words);
        }
    }

    #[test]
    fn a_packet_without_options_or_faults_that_is_acceptable_has_a_flow(frame in any_frame()) {
        let layers = parse(&frame[..], Depth::L3);
        if check_ip(&frame[..], &layers, frame.len()).is_ok() {
            prop_assert!(FlowKey::from_packet(&frame[..], &layers).is_some());
        }
    }

    #[test]
    fn the_parser_and_the_check_see_the_same_structural_faults(frame in any_frame()) {
        let layers = parse(&frame[..], Depth::L3);
        let structural = [
            HeaderFault::Version, HeaderFault::HeaderLength, HeaderFault::TotalLengthShort,
            HeaderFault::TooManyExtensions, HeaderFault::HopByHopMisplaced, HeaderFault::ExtensionCut,
        ];
        let checked = check_ip(&frame[..], &layers, frame.len());
        if let Some(fault) = layers.fault.filter(|_| matches!(layers.kind, L3::Ipv4 | L3::Ipv6)) {
            prop_assert!(structural.contains(&fault));
            prop_assert!(checked.is_err());
        }
    }

    #[test]
    fn both_directions_have_one_key_and_one_hash(
        addresses: [[u8; 16]; 2], ports: (u16, u16), seed: u128, v6: bool, tcp: bool, tag in 0u16..4096,
    ) {
        let build = |[a, b]: [[u8; 16]; 2], (p, q): (u16, u16)| {
            let four = |x: [u8; 16]| [x[0], x[1], x[2], x[3]];
            let frame = if v6 { Frame::ipv6(a, b) } else { Frame::ipv4(four(a), four(b)) };
            let frame = frame.vlan(tag);
            if tcp { frame.tcp(p, q, 0).build() } else { frame.udp(p, q).build() }
        };
        let there = build(addresses, ports);
        let back = build([addresses[1], addresses[0]], (ports.1, ports.0));
        let flow = |frame: &[u8]| FlowKey::from_packet(frame, &parse(frame, Depth::L3)).unwrap();
        let ((one, up), (other, down)) = (flow(&there), flow(&back));
        prop_assert_eq!(one, other);
        prop_assert!(up != down || one.lower() == one.upper());
        let hasher = FlowHasher::new(seed);
        prop_assert_eq!(hasher.hash(&one), hasher.hash(&other));
    }
}
