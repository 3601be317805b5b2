//! Later fragments meet the rest of their flow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_packet::flow::LIFETIME_NS;
use weir_packet::headers::proto;
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowHasher, FragmentTable, parse};

const A4: [u8; 4] = [10, 0, 0, 1];
const B4: [u8; 4] = [10, 0, 0, 2];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];

fn table(capacity: usize) -> FragmentTable {
    FragmentTable::new(capacity, FlowHasher::new(9))
}

fn hash(table: &mut FragmentTable, frame: &[u8], now: u64) -> u64 {
    table.hash(frame, &parse(frame, Depth::L3), now).expect("an IP packet")
}

fn pieces(id: u32) -> Vec<Vec<u8>> {
    Frame::ipv4(A4, B4).id(id).udp(1000 + id as u16, 80).payload(&[0; 80]).fragments(32)
}

#[test]
fn all_fragments_hash_like_their_whole_flow() {
    for frame in [Frame::ipv4(A4, B4), Frame::ipv6(A6, B6), Frame::ipv4(A4, B4).vlan(6)] {
        let frame = frame.id(5).udp(7, 8).payload(&[0; 80]);
        let mut table = table(64);
        let whole = hash(&mut table, &frame.build(), 0);
        for (at, piece) in frame.fragments(32).iter().enumerate() {
            assert_eq!(hash(&mut table, piece, at as u64), whole);
        }
    }
}

#[test]
fn a_later_fragment_that_comes_first_gets_the_hash_of_its_addresses() {
    let mut table = table(64);
    let (one, two) = (pieces(1), pieces(2));
    let early = hash(&mut table, &one[1], 0);
    assert_eq!(early, hash(&mut table, &two[1], 0));
    let first = hash(&mut table, &one[0], 0);
    assert_ne!(early, first);
    assert_eq!(hash(&mut table, &one[1], 0), first);
    assert_eq!(hash(&mut table, &two[1], 0), early);
}

#[test]
fn datagrams_are_told_apart_by_id_protocol_address_and_zone() {
    let mut table = table(64);
    let first = hash(&mut table, &pieces(1)[0], 0);
    let others = [
        Frame::ipv4(A4, B4).id(2).proto(proto::UDP),
        Frame::ipv4(A4, B4).id(1).proto(proto::TCP),
        Frame::ipv4(B4, A4).id(1).proto(proto::UDP),
        Frame::ipv4(A4, B4).id(1).proto(proto::UDP).vlan(1),
    ];
    for other in others {
        assert_ne!(hash(&mut table, &other.payload(&[0; 80]).fragments(32)[1], 0), first);
    }
    let same = Frame::ipv4(A4, B4).id(1).proto(proto::UDP).payload(&[0; 80]);
    assert_eq!(hash(&mut table, &same.fragments(32)[1], 0), first);
}

#[test]
fn in_ipv6_the_protocol_of_a_later_fragment_does_not_count() {
    let mut table = table(64);
    let frame = Frame::ipv6(A6, B6).id(5).udp(7, 8).payload(&[0; 80]);
    let first = hash(&mut table, &frame.fragments(32)[0], 0);
    let odd = Frame::ipv6(A6, B6).id(5).proto(200).payload(&[0; 80]).fragments(32);
    assert_eq!(hash(&mut table, &odd[1], 0), first);
}

#[test]
fn a_first_fragment_is_forgotten_after_thirty_seconds_of_packet_time() {
    let mut table = table(64);
    let start = 1_000_000 * LIFETIME_NS;
    let first = hash(&mut table, &pieces(1)[0], start);
    assert_eq!(hash(&mut table, &pieces(1)[1], start + LIFETIME_NS), first);
    assert_ne!(hash(&mut table, &pieces(1)[1], start + LIFETIME_NS + 1), first);
    assert_eq!(hash(&mut table, &pieces(1)[1], start - LIFETIME_NS), first);
    assert_ne!(hash(&mut table, &pieces(1)[1], start - LIFETIME_NS - 1), first);
}

#[test]
fn a_full_table_forgets_what_was_used_longest_ago() {
    let mut table = table(8);
    assert_eq!(table.capacity(), 8);
    let firsts: Vec<_> = (0..8).map(|id| hash(&mut table, &pieces(id)[0], 0)).collect();
    // Datagram 0 is used again, so number 1 is now the oldest and makes room.
    assert_eq!(hash(&mut table, &pieces(0)[1], 0), firsts[0]);
    hash(&mut table, &pieces(8)[0], 0);
    assert_ne!(hash(&mut table, &pieces(1)[1], 0), firsts[1]);
    for id in [0, 2, 3, 4, 5, 6, 7] {
        assert_eq!(hash(&mut table, &pieces(id)[1], 0), firsts[id as usize], "datagram {id}");
    }
}

#[test]
fn an_expired_entry_makes_room_before_a_living_one() {
    let mut table = table(8);
    let late = LIFETIME_NS + 1;
    hash(&mut table, &pieces(0)[0], 0);
    let living: Vec<_> = (1..8).map(|id| hash(&mut table, &pieces(id)[0], late)).collect();
    // Used last, but born too long ago by the time of the next packet.
    hash(&mut table, &pieces(0)[1], 0);
    hash(&mut table, &pieces(8)[0], late);
    for id in 1..8 {
        assert_eq!(hash(&mut table, &pieces(id)[1], late), living[id as usize - 1]);
    }
}

#[test]
fn a_reused_id_means_the_newer_datagram() {
    let mut table = table(8);
    hash(&mut table, &pieces(1)[0], 0);
    let frame = Frame::ipv4(A4, B4).id(1).udp(7, 8).payload(&[0; 80]).fragments(32);
    let newer = hash(&mut table, &frame[0], 1);
    assert_eq!(hash(&mut table, &frame[1], 2), newer);
}

#[test]
fn the_capacity_is_never_exceeded_and_never_less_than_asked() {
    assert_eq!(table(0).capacity(), 8);
    assert_eq!(table(9).capacity(), 16);
    let mut table = table(100);
    for id in 0..5000 {
        hash(&mut table, &pieces(id)[0], 0);
    }
    assert_eq!(table.capacity(), 128);
    assert!(
        (4000..5000)
            .filter(|&id| {
                let pieces = pieces(id);
                hash(&mut table, &pieces[1], 0)
                    == FlowHasher::new(9)
                        .hash_packet(&pieces[0][..], &parse(&pieces[0][..], Depth::L3))
                        .unwrap()
            })
            .count()
            <= 128
    );
}

#[test]
fn what_was_read_back_is_written_down_again_as_it_was() {
    let start = 1_000_000 * LIFETIME_NS;
    let mut first = table(64);
    hash(&mut first, &pieces(1)[0], start);
    let save = |table: &FragmentTable| {
        let mut all = Vec::new();
        table.save(&mut all);
        all
    };
    let records = save(&first);
    assert_eq!(records.len(), FragmentTable::RECORD);
    let mut second = table(64);
    assert!(second.restore(records.first_chunk().unwrap()));
    // It has seen no packet yet.
    assert_eq!(save(&second), records);
    let mut third = table(64);
    assert!(third.restore(save(&second).first_chunk().unwrap()));
    assert_eq!(
        hash(&mut third, &pieces(1)[1], start + 1),
        hash(&mut first, &pieces(1)[1], start + 1)
    );
}

#[test]
fn a_datagram_that_has_come_whole_gives_room_also_where_it_is_read_back() {
    for frame in [Frame::ipv4(A4, B4), Frame::ipv6(A6, B6), Frame::ipv4(A4, B4).vlan(6)] {
        let pieces =
            |id: u32| frame.id(id).udp(1000 + id as u16, 80).payload(&[0; 80]).fragments(32);
        let mut first = table(8);
        first.follow();
        let open = hash(&mut first, &pieces(0)[0], 0);
        let changes = |table: &mut FragmentTable| {
            let mut all = 0;
            table.take_changes(|_, _| all += 1);
            all
        };
        assert_eq!(changes(&mut first), 1);
        // The last one comes before the one in the middle.
        for at in [0, 2] {
            hash(&mut first, &pieces(1)[at], 1);
        }
        assert_eq!(changes(&mut first), 1);
        let whole = hash(&mut first, &pieces(1)[1], 1);
        assert_eq!(changes(&mut first), 1, "it is whole");
        assert_eq!(hash(&mut first, &pieces(1)[1], 1), whole, "what comes twice is known yet");
        assert_eq!(changes(&mut first), 0);
        // There, too, where it is read; more than there is room for, which come whole one after the other, leave the open one.
        let mut saved = Vec::new();
        first.save(&mut saved);
        let mut second = table(8);
        let (records, _) = saved.as_chunks();
        assert_eq!(records.len(), 2);
        assert!(records.iter().all(|record| second.restore(record)));
        assert_eq!(hash(&mut second, &pieces(1)[1], 1), whole);
        for table in [&mut first, &mut second] {
            for id in 2..50 {
                for piece in pieces(id) {
                    hash(table, &piece, 1);
                }
            }
            assert_eq!(hash(table, &pieces(0)[1], 2), open);
        }
    }
}

#[test]
fn what_could_not_have_stood_in_a_place_is_refused_there() {
    let mut first = table(64);
    first.follow();
    hash(&mut first, &pieces(1)[0], 0);
    let mut kept = Vec::new();
    first.take_changes(|place, record| kept.push((place, *record)));
    let [(place, record)] = kept[..] else { panic!("{} changes", kept.len()) };
    let mut second = table(64);
    assert!(!second.restore_at(place ^ 8, &record), "another bucket");
    assert!(!second.restore_at(64 + place, &record), "beyond the table");
    assert!(!second.restore_at(u32::MAX, &record));
    assert!(!second.restore_at(place, &[0xff; FragmentTable::RECORD]), "no record");
    assert_ne!(hash(&mut second, &pieces(1)[1], 1), hash(&mut first, &pieces(1)[1], 1));
    assert!(second.restore_at(place, &record));
    assert_eq!(hash(&mut second, &pieces(1)[1], 1), hash(&mut first, &pieces(1)[1], 1));
}

#[test]
fn of_what_is_read_back_those_stay_that_began_last_in_whatever_order_they_come() {
    let mut first = table(8);
    for id in 0..8 {
        hash(&mut first, &pieces(id)[0], 100 + u64::from(id));
    }
    let mut second = table(8);
    for id in 8..16 {
        hash(&mut second, &pieces(id)[0], 10 + u64::from(id));
    }
    let records = |table: &FragmentTable| {
        let mut all = Vec::new();
        table.save(&mut all);
        all
    };
    let (later, earlier) = (records(&first), records(&second));
    for order in [[&later, &earlier], [&earlier, &later]] {
        let mut both = table(8);
        for records in order {
            let (records, _) = records.as_chunks();
            assert!(records.iter().all(|record| both.restore(record)));
        }
        for id in 0..8 {
            assert_eq!(hash(&mut both, &pieces(id)[1], 110), hash(&mut first, &pieces(id)[1], 110));
        }
    }
    // One's own come before others', whenever those began.
    let mut own = table(8);
    let (records, _) = later.as_chunks();
    assert!(records.iter().all(|record| own.restore(record)));
    let (records, _) = earlier.as_chunks();
    assert!(records.iter().all(|record| own.restore_own(record)));
    for id in 8..16 {
        assert_eq!(hash(&mut own, &pieces(id)[1], 110), hash(&mut second, &pieces(id)[1], 110));
    }
}

proptest! {
    /// Who is told of each change, place by place, knows what the table knows: of whatever comes, also beyond its room.
    #[test]
    fn a_table_is_as_it_was_when_it_is_put_together_again_from_its_changes(
        batches in vec(vec((0_u32..40, 0_usize..3, 0_u64..3), 0..20), 0..20),
    ) {
        let mut kept: BTreeMap<u32, [u8; FragmentTable::RECORD]> = BTreeMap::new();
        let mut first = table(16);
        first.follow();
        let mut now = 1_000_000 * LIFETIME_NS;
        for batch in batches {
            for (id, piece, later) in batch {
                now += later * (LIFETIME_NS / 4);
                hash(&mut first, &pieces(id)[piece], now);
            }
            first.take_changes(|place, record| {
                kept.insert(place, *record);
            });
            first.take_changes(|_, _| panic!("it was taken"));
            let mut second = table(16);
            second.follow();
            for (place, record) in &kept {
                prop_assert!(second.restore_at(*place, record));
            }
            second.end_restore();
            second.take_changes(|_, _| panic!("it was there"));
            let records = |table: &FragmentTable| {
                let mut all = Vec::new();
                table.save(&mut all);
                let mut all: Vec<_> = all.as_chunks::<{ FragmentTable::RECORD }>().0.to_vec();
                all.sort_unstable();
                all
            };
            prop_assert_eq!(records(&second), records(&first));
        }
    }
}
