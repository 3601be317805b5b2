//! Any bytes in the memory that a hostile peer may write, at any time: what is taken lies within the
//! arena, nothing takes for ever, and whose fault it is comes out right.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // tests

use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use weir_mem::{Arena, ArenaShape, Consumer, Entry, Indices, Judgement, Owner, Producer};
use weir_mem::{Region, RingInspector, RingShape, packet};

const CAPACITY: u32 = 8;
const BUFFERS: u32 = 16;

fn writer(region: &Region) -> File {
    File::from(region.fd().try_clone_to_owned().unwrap())
}

/// Bytes at a place of the peer's memory: the header's words more often than others.
fn lies() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let at = prop_oneof![Just(0u64), Just(64), Just(72), 0..4096u64];
    let small = (0..64u64).prop_map(|n| n.to_ne_bytes().to_vec());
    let bytes = prop_oneof![small, prop::collection::vec(any::<u8>(), 1..64)];
    prop::collection::vec((at, bytes), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_that_a_producer_writes_gives_a_packet_outside_of_the_arena(
        lies in lies(),
        ahead in prop_oneof![Just(u32::MAX), 0..8u32],
    ) {
        let shape = RingShape::<Entry>::at_least(CAPACITY);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let peer = writer(&pr);
        let len = shape.producer_len() as u64;
        let mut arena = Arena::private(ArenaShape::new(BUFFERS, 256)).unwrap();
        arena.set_ahead(ahead);
        let mut ring = Consumer::attach(shape, &pr, &cr).unwrap();
        for (at, bytes) in lies {
            let at = at % len;
            let bytes = &bytes[..bytes.len().min((len - at) as usize)];
            peer.write_all_at(bytes, at).unwrap();
            let mut out = Vec::new();
            let n = packet::take::<true>(&mut ring, &arena, Owner(3), None, 64, &mut out);
            prop_assert!(n == out.len() && n <= CAPACITY as usize);
            for p in &out {
                let e = p.entry();
                prop_assert!(e.index() < BUFFERS);
                prop_assert!(u32::from(e.offset()) + u32::from(e.len()) <= arena.shape().stride());
                prop_assert_eq!(arena.bytes(e).len(), usize::from(e.len()));
                prop_assert_eq!(arena.owners().get(e.index()), Some(Owner(3)));
            }
            // As a worker does: what is no packet is passed over one by one.
            ring.claim(n.max(1));
            out.into_iter().for_each(|p| {
                let _ = p.into_entry();
            });
        }
        let agent = RingInspector::attach(shape, &pr, &cr).unwrap();
        agent.rewrite(|e| e);
        agent.repair_head(0);
        agent.clear();
        ring.resync();
        prop_assert_eq!(ring.refresh(), 0);
    }

    #[test]
    fn only_numbers_of_the_pool_come_back_and_none_twice(
        numbers in prop::collection::vec(prop_oneof![0..40u32, any::<u32>()], 1..64),
    ) {
        let shape = RingShape::<u32>::at_least(64);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        let memory = Region::create("weir-test", weir_mem::Owners::len_for(40)).unwrap();
        let owners = weir_mem::Owners::attach(&memory, 40).unwrap();
        let mut free = Vec::with_capacity(16);
        let mut strange = 0;
        for part in numbers.chunks(5) {
            part.iter().for_each(|n| assert!(p.stage(*n)));
            p.publish();
            let s = packet::collect(&mut c, &owners, Owner(7), (8, 16), false, &mut free);
            strange += s.foreign + s.doubled;
        }
        prop_assert!(free.iter().all(|n| (8..24).contains(n)) && free.len() <= 16);
        let mut once = free.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), free.len());
        prop_assert_eq!(free.len() as u64 + strange, numbers.len() as u64);
    }

    #[test]
    fn the_agent_names_who_wrote_an_index_that_cannot_be(
        work in prop::collection::vec((0..12usize, 0..12usize), 1..40),
        lie in any::<u64>(),
        producer_lies: bool,
    ) {
        let shape = RingShape::<u64>::at_least(CAPACITY);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        let agent = RingInspector::attach(shape, &pr, &cr).unwrap();
        let mut last = Indices::default();
        for (give, take) in work {
            (0..give).for_each(|n| { p.stage(n as u64); });
            p.publish();
            c.refresh();
            c.claim(take);
            prop_assert_eq!(agent.judge(&mut last), Judgement::Sound);
        }
        let (head, tail) = (p.published(), c.claimed());
        let (file, might_be, who) = if producer_lies {
            let might_be = lie.wrapping_sub(head) <= u64::from(CAPACITY) - (head - tail);
            (writer(&pr), might_be, Judgement::Producer)
        } else {
            (writer(&cr), lie.wrapping_sub(tail) <= head - tail, Judgement::Consumer)
        };
        file.write_all_at(&lie.to_ne_bytes(), 0).unwrap();
        let found = agent.judge(&mut last);
        // Never the honest one; either, where an honest one might have believed the lie.
        let fits = if might_be { &[Judgement::Sound][..] } else { &[who, Judgement::Either] };
        prop_assert!(fits.contains(&found), "{:?}", found);
    }
}

#[test]
fn what_is_put_back_is_the_next_to_be_taken() {
    let shape = RingShape::<u64>::at_least(CAPACITY);
    let (pr, cr) = shape.create("weir-test").unwrap();
    let mut p = Producer::attach(shape, &pr, &cr).unwrap();
    let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
    let agent = RingInspector::attach(shape, &pr, &cr).unwrap();
    assert!(!agent.put_back(9), "nothing was taken yet");
    (1..4).for_each(|n| assert!(p.stage(n)));
    p.publish();
    c.refresh();
    c.claim(2);
    assert_eq!(agent.last_claimed(), Some(2));
    assert!(agent.put_back(9));
    let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
    assert_eq!((c.refresh(), c.peek(0), c.peek(1)), (2, Some(9), Some(3)));
}
