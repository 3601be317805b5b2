//! A hostile peer writes what it likes into the memory that it may write: the other end neither
//! panics nor believes more than its own eyes.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests, some of them in helpers

mod random;

use proptest::prelude::*;
use random::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use weir_mem::{Consumer, Entry, Producer, Region, RingInspector, RingShape};

/// The peer's hands: writes at an offset of its memory. The same pages as its mapping.
fn writer(region: &Region) -> File {
    File::from(region.fd().try_clone_to_owned().unwrap())
}

/// Where a header's words are: index, (padding,) watermark or sleep flag.
const WORDS: [u64; 3] = [0, 64, 72];

/// Values near what is true, near the ends, and any.
fn hostile_value(capacity: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4 * capacity,
        any::<u64>(),
        (0..4 * capacity).prop_map(|n| u64::MAX - n),
        (0..4 * capacity).prop_map(|n| (1 << 63) + n),
    ]
}

#[derive(Clone, Debug)]
enum Move {
    /// The peer writes `value` at a word of its header.
    Lie(usize, u64),
    /// The honest side works with up to `n` entries.
    Work(usize),
    /// The honest side is restarted.
    Restart,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => (0..WORDS.len(), hostile_value(8)).prop_map(|(at, value)| Move::Lie(at, value)),
        3 => (0usize..20).prop_map(Move::Work),
        1 => Just(Move::Restart),
    ];
    prop::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_consumer_survives_a_producer_that_writes_any_index(moves in moves()) {
        let shape = RingShape::<Entry>::at_least(8);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let peer = writer(&pr);
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        for m in moves {
            match m {
                Move::Lie(at, value) => {
                    peer.write_all_at(&value.to_ne_bytes(), WORDS[at]).unwrap();
                }
                Move::Work(n) => {
                    let before = c.claimed();
                    let mut out = [Entry::marker(weir_mem::Marker::EndOfStream, c.watermark()); 20];
                    let available = c.available(n);
                    prop_assert!(available <= 8);
                    prop_assert!(c.refresh() <= 8);
                    let (got, _) = peek_packets(&mut c, &mut out[..n]);
                    prop_assert!(got <= 8);
                    prop_assert!(c.peek(8).is_none());
                    c.sleep();
                    c.wake();
                    c.claim(n);
                    prop_assert!(c.claimed() - before <= 8);
                    c.producer_waits();
                }
                Move::Restart => {
                    let claimed = c.claimed();
                    c = Consumer::attach(shape, &pr, &cr).unwrap();
                    prop_assert_eq!(c.claimed(), claimed);
                }
            }
        }
    }

    #[test]
    fn a_producer_survives_a_consumer_that_writes_any_index(moves in moves()) {
        let shape = RingShape::<Entry>::at_least(8);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let peer = writer(&cr);
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        for m in moves {
            match m {
                Move::Lie(at, value) => {
                    peer.write_all_at(&value.to_ne_bytes(), WORDS[at].min(8)).unwrap();
                }
                Move::Work(n) => {
                    let room = p.room(n);
                    prop_assert!(room <= 8);
                    let before = p.staged();
                    for i in 0..n {
                        let seq = weir_mem::Seq::new(i as u64);
                        p.stage(Entry::packet(i as u32, 0, 64, seq, 0));
                    }
                    prop_assert!(p.staged() - before <= n.min(8) as u64);
                    prop_assert!(p.staged() - p.published() <= 8);
                    p.publish();
                    p.wait(n);
                    p.wake();
                }
                Move::Restart => {
                    let published = p.published();
                    p = Producer::attach(shape, &pr, &cr).unwrap();
                    prop_assert_eq!((p.staged(), p.published()), (published, published));
                }
            }
        }
    }

    #[test]
    fn the_agent_survives_two_hostile_ends(
        head in hostile_value(8), tail in hostile_value(8), target in hostile_value(8),
    ) {
        let shape = RingShape::<u32>::at_least(8);
        let (pr, cr) = shape.create("weir-test").unwrap();
        writer(&pr).write_all_at(&head.to_ne_bytes(), 0).unwrap();
        writer(&cr).write_all_at(&tail.to_ne_bytes(), 0).unwrap();
        let agent = RingInspector::attach(shape, &pr, &cr).unwrap();
        prop_assert!(agent.len() <= 8);
        prop_assert!(agent.unclaimed().len() <= 8);
        agent.roll_forward(target);
        prop_assert!(agent.head().wrapping_sub(head) <= 8);
        let mut in_rings = weir_mem::sweep::InRings::new(4);
        in_rings.look_at(&agent);
    }
}

#[test]
fn entries_that_name_no_buffer_do_not_disturb_the_sweep() {
    let shape = RingShape::<u32>::at_least(4);
    let (pr, cr) = shape.create("weir-test").unwrap();
    let mut p = Producer::attach(shape, &pr, &cr).unwrap();
    assert!(p.stage(u32::MAX) && p.stage(64) && p.stage(1));
    p.publish();
    let memory = Region::create("weir-test", weir_mem::Owners::len_for(3)).unwrap();
    let owners = weir_mem::Owners::attach(&memory, 3).unwrap();
    let dead = weir_mem::Owner(5);
    (0..3).for_each(|buffer| owners.set(buffer, dead));
    let mut in_rings = weir_mem::sweep::InRings::new(owners.len());
    in_rings.look_at(&RingInspector::attach(shape, &pr, &cr).unwrap());
    assert_eq!(in_rings.sweep(&owners, dead), [0, 2]);
}

/// The same while the peer writes in another thread all the time.
#[test]
fn an_end_survives_a_peer_that_writes_all_the_time() {
    let shape = RingShape::<u64>::at_least(16);
    let (pr, cr) = shape.create("weir-test").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let peers: Vec<_> = [writer(&pr), writer(&cr)]
        .into_iter()
        .zip(5..)
        .map(|(file, seed)| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut random = Random(seed);
                // Relaxed: a plain stop flag.
                while !stop.load(Ordering::Relaxed) {
                    let any = random.next();
                    // Half of them plausible.
                    let value = if any & 1 == 0 { any } else { random.below(64) };
                    file.write_all_at(&value.to_ne_bytes(), 0).unwrap();
                }
            })
        })
        .collect();
    // A consumer of the one hostile producer, a producer for the other hostile consumer: they do
    // not work together, and each has to keep its own place.
    let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
    for _ in 0..100_000 {
        let before = c.claimed();
        let n = c.refresh();
        assert!(n <= 16 && c.peek(16).is_none());
        c.claim(usize::MAX);
        assert_eq!(c.claimed() - before, n as u64);
    }
    let mut p = Producer::attach(shape, &pr, &cr).unwrap();
    for i in 0..100_000 {
        assert!(p.room(16) <= 16);
        p.stage(i);
        assert!(p.staged().wrapping_sub(p.published()) <= 16);
        p.publish();
    }
    stop.store(true, Ordering::Relaxed);
    for peer in peers {
        peer.join().unwrap();
    }
}

/// Copies packets' entries from the head on, stopping before a marker.
fn peek_packets(ring: &mut Consumer<Entry>, out: &mut [Entry]) -> (usize, Option<Entry>) {
    let n = ring.available(out.len()).min(out.len());
    for (i, slot) in out.iter_mut().enumerate().take(n) {
        match ring.peek(i) {
            Some(entry) if entry.is_packet() => *slot = entry,
            other => return (i, other),
        }
    }
    (n, None)
}

/// What a dead hostile worker left in its index does not outlive it: its successor and the other
/// end go on.
#[test]
fn an_index_that_a_dead_worker_wrote_over_is_put_right() {
    for lie in [u64::MAX, 1 << 40, 0] {
        let shape = RingShape::<u64>::at_least(8);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let agent = RingInspector::attach(shape, &pr, &cr).unwrap();
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        (0..20).for_each(|i| {
            assert!(p.stage(i));
            p.publish();
            c.refresh();
            c.claim(1);
        });
        writer(&pr).write_all_at(&lie.to_ne_bytes(), 0).unwrap();
        assert!(agent.repair_head(20));
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        assert!(p.stage(20));
        p.publish();
        assert_eq!((c.refresh(), c.peek(0)), (1, Some(20)));

        writer(&cr).write_all_at(&lie.to_ne_bytes(), 0).unwrap();
        assert!(agent.repair_tail(20));
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        assert_eq!((c.refresh(), c.peek(0)), (1, Some(20)));
        assert!(!agent.repair_head(21) && !agent.repair_tail(20));
    }
}
