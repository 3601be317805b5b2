//! What a packet is known by when it comes again, beside others that write to it meanwhile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use weir_mem::{Arena, ArenaShape, Entry, Seq};
use weir_packet::wire::Frame;
use weir_runtime::{field, fingerprint};

/// Of these bytes, in a buffer.
fn of(bytes: &[u8], but: u32) -> u64 {
    let arena = Arena::private(ArenaShape::new(4, 2048)).unwrap();
    let mut entry = Entry::packet(0, 0, bytes.len() as u16, Seq::new(0), 0);
    arena.bytes_mut(&mut entry).unwrap().write(0, bytes);
    fingerprint(&arena.bytes(&entry), but)
}

fn frame() -> Frame<'static> {
    Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2, 2).payload(b"payload")
}

/// Each with all bytes of a field changed, by field; of TCP over IPv4 without tags.
const FIELDS: [(u32, std::ops::Range<usize>); 14] = [
    (field::ETH_DST, 0..6),
    (field::ETH_SRC, 6..12),
    (field::IP_TOS, 15..16),
    (field::IP_TTL, 22..23),
    (field::IP_CHECKSUM, 24..26),
    (field::IP_SRC, 26..30),
    (field::IP_DST, 30..34),
    (field::L4_SRC, 34..36),
    (field::L4_DST, 36..38),
    (field::L4_FLAGS, 47..48),
    (field::L4_CHECKSUM, 50..52),
    (field::PAYLOAD, 54..61),
    (field::IP_LENGTH, 16..18),
    (field::IP_PROTO, 23..24),
];

#[test]
fn a_packet_is_known_again_whatever_stands_in_the_fields_that_others_write() {
    let plain = frame().build();
    for (one, range) in FIELDS {
        for (other, place) in FIELDS {
            let mut changed = plain.clone();
            changed[place].iter_mut().for_each(|byte| *byte ^= 0x55);
            let is_known = of(&changed, one) == of(&plain, one);
            if one == other {
                assert!(is_known, "{range:?}");
            } else if !matches!(one, field::IP_LENGTH | field::IP_PROTO)
                && !matches!(other, field::IP_LENGTH | field::IP_PROTO)
            {
                assert!(!is_known, "{range:?} hides {other:b} too");
            }
        }
    }
    assert_ne!(of(&plain, 0), of(&frame().ttl(9).build(), 0));
}

#[test]
fn of_what_is_no_ip_and_what_is_cut_short_nothing_is_hidden_that_is_not_there() {
    let all = [frame().build(), Frame::other(0x0806).payload(&[7; 28]).build(), vec![1, 2, 3]];
    for bytes in &all {
        for len in 1..=bytes.len() {
            for but in (0..18).map(|bit| 1 << bit) {
                let cut = of(&bytes[..len], but);
                assert!(cut != 0 && cut == of(&bytes[..len], but));
            }
        }
    }
}
