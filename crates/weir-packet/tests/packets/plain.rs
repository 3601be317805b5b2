//! The short ways for plain packets say what the general way says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use proptest::prelude::*;
use weir_packet::headers::{flags, is_plainly_sound, plain_v4};
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowKey, L3, Layers, check_ip, parse};

/// Plain frames and what is nearly one: some bytes of the headers changed, the end cut or padded.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    let changes = prop::collection::vec((12usize..60, any::<u8>()), 0..3);
    (0usize..6, payload, changes, 30usize..140).prop_map(|(shape, payload, changes, size)| {
        let four = Frame::ipv4([1, 2, 3, 4], [5, 6, 7, 8]).payload(&payload);
        let six = Frame::ipv6([1; 16], [2; 16]).payload(&payload);
        let mut frame = match shape {
            0 => four.udp(1000, 53).pad_to(60).build(),
            1 => four.tcp(1000, 80, 0x12).pad_to(60).build(),
            2 => six.udp(1000, 53).build(),
            3 => six.tcp(1000, 80, 0x12).build(),
            4 => six.icmp(128, 0, [0; 4]).build(),
            _ => four.icmp(8, 0, [0; 4]).pad_to(60).build(),
        };
        for (at, byte) in changes {
            if let Some(old) = frame.get_mut(at) {
                *old = byte;
            }
        }
        frame.truncate(size);
        frame
    })
}

/// The layers by the general way, which is taken when the link layer was parsed before.
fn general(bytes: &[u8]) -> Layers {
    let mut layers = parse(bytes, Depth::L2);
    layers.extend(bytes, Depth::L3);
    layers.extend(bytes, Depth::L4);
    layers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn the_short_parse_equals_the_general_one(frame in frames()) {
        prop_assert_eq!(parse(&frame[..], Depth::L4), general(&frame));
        let mut shallow = parse(&frame[..], Depth::L3);
        shallow.extend(&frame[..], Depth::L4);
        prop_assert_eq!(shallow, general(&frame));
    }

    #[test]
    fn plain_fields_are_those_of_the_layers(frame in frames()) {
        if let Some(plain) = plain_v4(&frame[..]) {
            let layers = general(&frame);
            prop_assert_eq!((layers.kind, layers.flags, layers.fault), (L3::Ipv4, flags::L4, None));
            let (source, destination) = layers.ipv4(&frame[..]).unwrap();
            prop_assert_eq!((plain.source, plain.destination), (source.to_bits(), destination.to_bits()));
            prop_assert_eq!(Some(plain.ports), layers.ports(&frame[..]));
            prop_assert_eq!(plain.tcp_flags, layers.tcp_flags(&frame[..]));
            prop_assert_eq!((plain.payload, plain.end), (layers.payload.into(), layers.end.into()));
            let key = FlowKey::from_packet(&frame[..], &layers);
            prop_assert_eq!(Some(FlowKey::of_plain(&plain)), key);
        }
    }

    #[test]
    fn what_is_plainly_sound_is_accepted_by_the_whole_check(frame in frames()) {
        if is_plainly_sound(&frame[..]) {
            prop_assert_eq!(check_ip(&frame[..], &general(&frame), frame.len()), Ok(()));
        }
    }
}

#[test]
fn ordinary_packets_are_plain() {
    let four = Frame::ipv4([1, 2, 3, 4], [5, 6, 7, 8]).pad_to(64);
    let (tcp, udp) = (four.tcp(1, 2, 0x12).build(), four.udp(1, 2).payload(b"x").build());
    let six = Frame::ipv6([1; 16], [2; 16]).tcp(1, 2, 0x12).build();
    assert_eq!(plain_v4(&tcp[..]).unwrap().tcp_flags, Some(0x12));
    assert_eq!(plain_v4(&udp[..]).unwrap().tcp_flags, None);
    assert!([&tcp, &udp, &six].into_iter().all(|frame| is_plainly_sound(&frame[..])));
}
