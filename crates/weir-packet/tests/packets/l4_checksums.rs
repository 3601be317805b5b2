//! Transport checksums are judged, updated, and right in built frames.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use proptest::prelude::*;
use weir_packet::checksum::{L4Checksum, Sum, checksum, update_u16, update_u32, verify_l4};
use weir_packet::headers::proto;
use weir_packet::wire::Frame;
use weir_packet::{Depth, parse};

const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

fn verdict(frame: &[u8]) -> L4Checksum {
    verify_l4(frame, &parse(frame, Depth::L4))
}

/// Frames of every protocol with an Internet checksum, over both IP versions.
fn frames(payload: &[u8]) -> Vec<Vec<u8>> {
    let bases = [Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]), Frame::ipv6(A6, B6).vlan(9)];
    let with = |base: Frame| {
        [base.udp(1, 2), base.tcp(3, 4, 2).seq(5, 6), base.icmp(8, 0, [1, 2, 3, 4])]
            .map(|frame| frame.payload(payload).pad_to(80).build())
    };
    bases.into_iter().flat_map(with).collect()
}

/// The checksum by the book: add 16-bit words one after the other and fold.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn a_changed_payload_byte_is_noticed_in_every_protocol() {
    for mut frame in frames(b"seven b") {
        assert_eq!(verdict(&frame), L4Checksum::Good);
        let layers = parse(&frame[..], Depth::L4);
        frame[usize::from(layers.end) - 1] ^= 1;
        assert_eq!(verdict(&frame), L4Checksum::Bad);
    }
}

#[test]
fn padding_after_the_ip_packet_is_not_summed() {
    for mut frame in frames(b"x") {
        let last = frame.len() - 1;
        frame[last] ^= 0xff;
        assert_eq!(verdict(&frame), L4Checksum::Good);
    }
}

#[test]
fn udp_without_checksum_is_absent_in_ipv4_and_bad_in_ipv6() {
    let mut frame = Frame::ipv4([1; 4], [2; 4]).udp(1, 2).build();
    frame[40..42].fill(0);
    assert_eq!(verdict(&frame), L4Checksum::Absent);
    let mut frame = Frame::ipv6(A6, B6).udp(1, 2).build();
    frame[60..62].fill(0);
    assert_eq!(verdict(&frame), L4Checksum::Bad);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    // The last word is chosen so that the sum comes out as all ones.
    let with =
        |word: u16| Frame::ipv4([1; 4], [2; 4]).udp(1, 2).payload(&word.to_be_bytes()).build();
    let frame = with(0);
    let check = u16::from_be_bytes([frame[40], frame[41]]);
    let frame = with(check);
    assert_eq!(frame[40..42], [0xff, 0xff]);
    assert_eq!(verdict(&frame), L4Checksum::Good);
}

#[test]
fn what_cannot_be_judged_is_unknown() {
    let frame = Frame::ipv4([1; 4], [2; 4]).udp(1, 2).payload(&[3; 80]);
    for piece in frame.fragments(40) {
        assert_eq!(verdict(&piece), L4Checksum::Unknown);
    }
    assert_eq!(verdict(&frame.build()[..60]), L4Checksum::Unknown);
    let sctp = Frame::ipv4([1; 4], [2; 4]).proto(proto::SCTP).payload(&[0; 20]).build();
    assert_eq!(verdict(&sctp), L4Checksum::Unknown);
    assert_eq!(verdict(&Frame::other(0x0806).payload(&[0; 46]).build()), L4Checksum::Unknown);
}

#[test]
fn a_source_route_that_is_not_at_its_end_hides_the_real_destination() {
    let frame = |left: u8| {
        let body = [0, left, 0, 0, 0, 0];
        Frame::ipv6(A6, B6)
            .extensions(&[(proto::DEST_OPTS, &[0; 6]), (proto::ROUTING, &body)])
            .udp(1, 2)
            .build()
    };
    assert_eq!(verdict(&frame(0)), L4Checksum::Good);
    assert_eq!(verdict(&frame(1)), L4Checksum::Unknown);
}

proptest! {
    #[test]
    fn the_fast_sum_equals_the_one_by_the_book(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert_eq!(checksum(&bytes), reference(&bytes));
        let mut sum = Sum::default();
        prop_assert_eq!(sum.add_range(&bytes[..], 0, bytes.len()), bytes.len());
        prop_assert_eq!(sum.finish(), reference(&bytes));
    }

    #[test]
    fn an_incremental_update_equals_the_sum_of_the_changed_data(
        mut bytes in prop::collection::vec(any::<u8>(), 40..80),
        at in 0usize..9,
        new: u32,
        wide: bool,
    ) {
        // Data of zeros only has two sums in one's complement; no packet with a header is that.
        bytes[39] |= 1;
        let before = checksum(&bytes);
        let old = u32::from_be_bytes(*bytes[4 * at..].first_chunk().unwrap());
        let updated = if wide {
            bytes[4 * at..4 * at + 4].copy_from_slice(&new.to_be_bytes());
            update_u32(before, old, new)
        } else {
            let new = new as u16;
            bytes[4 * at..4 * at + 2].copy_from_slice(&new.to_be_bytes());
            update_u16(before, (old >> 16) as u16, new)
        };
        prop_assert_eq!(updated, checksum(&bytes));
    }

    #[test]
    fn built_frames_carry_right_checksums(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        for frame in frames(&payload) {
            prop_assert_eq!(verdict(&frame), L4Checksum::Good);
        }
    }
}
