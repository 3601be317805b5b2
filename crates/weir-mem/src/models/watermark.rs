//! Two rings merged by sequence: whatever the timing, nothing is emitted out of sequence.
//!
//! Red under `WEIR_BROKEN=watermark`: the consumer sees a watermark without the entries before it.

use super::explore;
use crate::entry::{Entry, Seq};
use crate::ring::{Consumer, Producer, heap_ring};
use loom::thread;

/// Handles sequence numbers in order: forwards those that `keeps`, drops the others, and moves the
/// watermark after each.
fn produce(mut p: Producer<Entry>, handled: &[(u64, bool)]) {
    for &(seq, keeps) in handled {
        if keeps {
            assert!(p.stage(Entry::packet(seq as u32, 0, 64, Seq::new(seq), 0)));
            p.publish();
        }
        p.set_watermark(Seq::new(seq + 1));
    }
}

/// One step of the merge rule. Emits at most one entry.
fn merge_one(rings: &mut [Consumer<Entry>; 2]) -> Option<u64> {
    // For each ring: first its watermark, then its entries.
    let [a, b] = rings.each_mut().map(|ring| {
        let watermark = ring.watermark();
        ring.refresh();
        (ring.peek(0).map(|e| e.seq()), watermark)
    });
    let may_go = |x: Seq, (head, watermark): (Option<Seq>, Seq)| match head {
        Some(other) => !other.before(x),
        None => !watermark.before(x),
    };
    let (from, seq) = match (a.0, b.0) {
        (Some(x), _) if may_go(x, b) => (0, x),
        (_, Some(x)) if may_go(x, a) => (1, x),
        _ => return None,
    };
    rings[from].claim(1);
    Some(seq.get())
}

fn merged_in_sequence(first: &'static [(u64, bool)], second: &'static [(u64, bool)]) {
    explore(3, move || {
        let (pa, ca) = heap_ring(2);
        let (pb, cb) = heap_ring(2);
        let a = thread::spawn(move || produce(pa, first));
        let b = thread::spawn(move || produce(pb, second));
        let mut rings = [ca, cb];
        let mut emitted = Vec::new();
        // While both are at work ...
        for _ in 0..2 {
            emitted.extend(merge_one(&mut rings));
        }
        a.join().unwrap();
        b.join().unwrap();
        // ... and what is left when they are done.
        while let Some(seq) = merge_one(&mut rings) {
            emitted.push(seq);
        }
        let mut all: Vec<u64> = [first, second]
            .concat()
            .iter()
            .filter(|(_, keeps)| *keeps)
            .map(|(seq, _)| *seq)
            .collect();
        all.sort_unstable();
        // The last watermark lets everything go: none is held back, none is out of sequence.
        assert_eq!(emitted, all, "emitted out of sequence or held back");
    });
}

#[test]
fn alternating_packets_are_merged_in_sequence() {
    merged_in_sequence(&[(0, true), (2, true)], &[(1, true), (3, false)]);
}

#[test]
fn a_drop_moves_the_watermark_and_lets_the_other_ring_go_on() {
    merged_in_sequence(&[(0, false), (2, true)], &[(1, true), (3, false)]);
}

#[test]
fn a_ring_that_only_drops_holds_nothing_back() {
    merged_in_sequence(&[(0, true), (2, true)], &[(1, false), (3, false)]);
}
