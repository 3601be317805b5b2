//! Every entry arrives once and in order, across wrap-around and a full ring.
//!
//! Red under `WEIR_BROKEN=publish` (a slot is read before it was written) and `WEIR_BROKEN=claim` (a slot is
//! written again before it was read): loom sees both as a data race on the slot.

use super::explore;
use crate::entry::{Entry, Seq};
use crate::ring::{Indices, Judgement, Producer, heap_ring, heap_ring_inspected};
use loom::thread;

/// Twice round the ring.
const ENTRIES: u64 = 4;

fn produce(mut p: Producer<u64>, batch: usize) {
    let mut next = 0;
    while next < ENTRIES {
        let mut staged = 0;
        while staged < batch && next < ENTRIES && p.stage(100 + next) {
            staged += 1;
            next += 1;
        }
        if staged == 0 {
            thread::yield_now();
        }
        p.publish();
    }
    assert_eq!(p.published(), ENTRIES);
}

fn entries_arrive_once_and_in_order(preemptions: usize, produced: usize, claimed: usize) {
    explore(preemptions, move || {
        let (p, mut c) = heap_ring::<u64>(2);
        let producer = thread::spawn(move || produce(p, produced));
        let mut got = 0;
        while got < ENTRIES {
            let n = c.available(claimed).min(claimed);
            assert!(n <= 2);
            for i in 0..n {
                assert_eq!(c.peek(i), Some(100 + got + i as u64));
            }
            c.claim(n);
            got += n as u64;
            if n == 0 {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
        assert_eq!(c.refresh(), 0);
        assert_eq!(c.peek(0), None);
    });
}

#[test]
fn entries_one_by_one_arrive_once_and_in_order() {
    entries_arrive_once_and_in_order(2, 1, 1);
}

#[test]
fn entries_in_bulk_arrive_once_and_in_order() {
    entries_arrive_once_and_in_order(3, 2, 2);
}

#[test]
fn entries_staged_in_bulk_and_claimed_one_by_one_arrive_once_and_in_order() {
    entries_arrive_once_and_in_order(2, 2, 1);
}

#[test]
fn a_claim_gives_the_packets_before_the_next_marker() {
    explore(3, || {
        let (mut p, mut c) = heap_ring::<Entry>(4);
        let producer = thread::spawn(move || {
            for i in 0..2 {
                assert!(p.stage(Entry::packet(i, 0, 64, Seq::new(i.into()), 0)));
                p.publish();
            }
            let end = Entry::marker(crate::Marker::EndOfStream, Seq::new(2));
            assert!(p.stage(end));
            p.publish();
        });
        let mut seen = 0;
        let mut out = [Entry::packet(9, 0, 0, Seq::new(9), 0); 4];
        loop {
            let (n, marker) = peek_packets(&mut c, &mut out);
            for packet in &out[..n] {
                assert_eq!((packet.index(), packet.len()), (seen, 64));
                seen += 1;
            }
            c.claim(n);
            if let Some(marker) = marker {
                assert_eq!(marker.as_marker(), Some(crate::Marker::EndOfStream));
                break;
            }
            if n == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(seen, 2);
        producer.join().unwrap();
    });
}

/// The agent looks into a ring whose producer is dead while its consumer goes on: it may see an
/// entry that has just been claimed, never miss one that has not.
#[test]
fn what_the_agent_sees_unclaimed_is_a_superset_of_what_is_left() {
    explore(3, || {
        let (mut p, mut c, agent) = heap_ring_inspected::<u32>(2);
        assert!(p.stage(7) && p.stage(8));
        p.publish();
        let consumer = thread::spawn(move || {
            for expected in [7, 8] {
                assert!(c.available(1) >= 1);
                assert_eq!(c.peek(0), Some(expected));
                c.claim(1);
            }
        });
        let first = agent.unclaimed();
        let second = agent.unclaimed();
        assert!([7, 8].ends_with(&first) && first.ends_with(&second));
        consumer.join().unwrap();
        assert!(agent.is_empty());
    });
}

/// Copies packets' entries from the head on, stopping before a marker.
fn peek_packets(ring: &mut crate::Consumer<Entry>, out: &mut [Entry]) -> (usize, Option<Entry>) {
    let n = ring.available(out.len()).min(out.len());
    for (i, slot) in out.iter_mut().enumerate().take(n) {
        match ring.peek(i) {
            Some(entry) if entry.is_packet() => *slot = entry,
            other => return (i, other),
        }
    }
    (n, None)
}

/// Who judges looks at the indices one after the other, while both ends go on.
#[test]
fn the_agent_never_finds_fault_with_two_ends_that_are_sound() {
    explore(2, || {
        let (mut p, mut c, agent) = heap_ring_inspected::<u64>(2);
        let producer = thread::spawn(move || {
            for i in 0..2 {
                p.stage(i);
                p.publish();
            }
        });
        let consumer = thread::spawn(move || {
            for _ in 0..2 {
                let n = c.refresh();
                c.claim(n);
            }
        });
        let mut last = Indices::default();
        for _ in 0..2 {
            assert_eq!(agent.judge(&mut last), Judgement::Sound, "judged unsound");
        }
        producer.join().unwrap();
        consumer.join().unwrap();
    });
}
