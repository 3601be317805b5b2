//! A worker is killed at any step of the protocol: every buffer ends in exactly one place.
//!
//! Upstream P → ring → worker W → ring → downstream D. W dies; the agent rolls its output forward
//! by the ledger, looks at both rings and sweeps, while P goes on producing and D claiming.
//!
//! Then W is started again on the same rings: nothing is sent twice, nothing changes places.
//!
//! Red under `WEIR_BROKEN=sweep` (buffers in W's output ring are freed as well: doubled) and
//! `WEIR_BROKEN=claim` (the agent sees D's claim without D's owner words: doubled).

use super::{dies_at, explore};
use crate::entry::{Entry, Seq};
use crate::fault::{self, Step};
use crate::ledger::{LedgerWriter, heap_ledger};
use crate::owner::{Owner, Owners};
use crate::ring::{Consumer, Producer, heap_ring, heap_ring_inspected, heap_successors};
use crate::sweep::InRings;
use loom::thread;

const P: Owner = Owner(1);
const W: Owner = Owner(2);
const D: Owner = Owner(3);

fn packet(buffer: u32) -> Entry {
    Entry::packet(buffer, 0, 64, Seq::new(0), 0)
}

/// Writes the owner words, then claims: the consumer's half of the protocol.
fn claim(from: &mut Consumer<Entry>, want: usize, owners: &Owners, me: Owner) -> Vec<u32> {
    let n = from.available(want).min(want);
    let buffers: Vec<u32> = (0..n).filter_map(|i| from.peek(i)).map(|e| e.index()).collect();
    for &buffer in &buffers {
        owners.set(buffer, me);
    }
    from.claim(n);
    buffers
}

/// The worker: batches of up to two, with every step named. `polls` bounds the exploration.
struct Worker {
    from: Consumer<Entry>,
    to: Producer<Entry>,
    ledger: LedgerWriter,
    owners: &'static Owners,
    polls: usize,
}

impl Worker {
    fn run(mut self) {
        for _ in 0..self.polls {
            let n = self.from.available(2).min(self.to.room(2));
            self.batch(n);
        }
    }

    fn batch(&mut self, n: usize) {
        let batch: Vec<Entry> = (0..n).filter_map(|i| self.from.peek(i)).collect();
        if batch.is_empty() {
            return;
        }
        fault::step(Step::Peeked);
        for (i, entry) in batch.iter().enumerate() {
            self.owners.set(entry.index(), W);
            if i == 0 {
                fault::step(Step::HalfOwned);
            }
        }
        fault::step(Step::Owned);
        self.from.claim(batch.len());
        fault::step(Step::Claimed);
        // Nothing shared is written between these two.
        fault::step(Step::Processed);
        for (i, entry) in batch.iter().enumerate() {
            assert!(self.to.stage(*entry));
            if i == 0 {
                fault::step(Step::HalfStaged);
            }
        }
        fault::step(Step::Staged);
        self.ledger.commit(&[self.to.staged()]);
        fault::step(Step::Committed);
        self.to.publish();
        fault::step(Step::Published);
        fault::step(Step::Done);
    }
}

/// What the agent does about a dead worker, in the order that matters.
fn roll_forward_and_sweep(
    ledger: &crate::Ledger,
    input: &crate::RingInspector<Entry>,
    output: &crate::RingInspector<Entry>,
    owners: &Owners,
) -> Vec<u32> {
    let committed = ledger.read().expect("a dead worker's ledger can be read");
    output.roll_forward(committed[0]);
    let mut in_rings = InRings::new(owners.len());
    in_rings.look_at(input);
    in_rings.look_at(output);
    in_rings.sweep(owners, W)
}

fn indices(entries: &[Entry]) -> Vec<u32> {
    entries.iter().map(Entry::index).collect()
}

/// Each of `buffers` is in exactly one of `places`.
fn assert_each_in_one_place(buffers: u32, places: &[&[u32]]) {
    let mut all = places.concat();
    all.sort_unstable();
    let expected: Vec<u32> = (0..buffers).collect();
    assert_eq!(all, expected, "leaked or doubled: {places:?}");
}

/// `published`: how many buffers are in W's input ring from the start; P publishes the others of
/// `BUFFERS` while everything runs.
fn killed_at(step: Step, preemptions: usize, published: u32) {
    const BUFFERS: u32 = 2;
    explore(preemptions, move || {
        let owners = Owners::heap(BUFFERS);
        let (mut to_w, from_p, input) = heap_ring_inspected(2);
        let (to_d, mut from_w, output) = heap_ring_inspected(2);
        let (writer, ledger) = heap_ledger(1);
        for buffer in 0..BUFFERS {
            owners.set(buffer, P);
        }
        for buffer in 0..published {
            assert!(to_w.stage(packet(buffer)));
        }
        to_w.publish();

        let upstream = (published < BUFFERS).then(|| {
            thread::spawn(move || {
                for buffer in published..BUFFERS {
                    assert!(to_w.stage(packet(buffer)));
                    to_w.publish();
                }
            })
        });
        let worker = Worker { from: from_p, to: to_d, ledger: writer, owners, polls: 2 };
        let worker = thread::spawn(move || dies_at(step, || worker.run()));
        let downstream = thread::spawn(move || {
            let mut held = claim(&mut from_w, 1, owners, D);
            held.extend(claim(&mut from_w, 2, owners, D));
            held
        });

        // The agent notices the death, or the end of the exploration's bound, which is one too.
        let died = worker.join().unwrap();
        let swept = roll_forward_and_sweep(&ledger, &input, &output, owners);
        let committed = ledger.read().unwrap()[0];
        assert_eq!(output.head(), committed);

        let (successor, _) = heap_ledger(1);
        Worker {
            from: heap_successors(&input).1,
            to: heap_successors(&output).0,
            ledger: successor,
            owners,
            polls: 1,
        }
        .run();
        let held = downstream.join().unwrap();
        if let Some(upstream) = upstream {
            upstream.join().unwrap();
        }

        let (not_claimed, passed_on) = (input.unclaimed(), output.unclaimed());
        assert_each_in_one_place(
            BUFFERS,
            &[&swept, &held, &indices(&not_claimed), &indices(&passed_on)],
        );
        for &buffer in &swept {
            assert_eq!(owners.get(buffer), Some(Owner::AGENT));
        }
        for &buffer in &held {
            assert_eq!(owners.get(buffer), Some(D));
        }
        // What went downstream before and after the death is in order.
        let sent = [held, indices(&passed_on)].concat();
        assert!(sent.is_sorted(), "out of order: {sent:?}");
        // With a full batch at hand, W certainly came to its death.
        assert!(died || published < BUFFERS || !ALWAYS_PASSED.contains(&step));
    });
}

/// Steps that [`Worker`] passes in a batch of two. (With one output, none is half published.)
const ALWAYS_PASSED: [Step; 11] = [
    Step::Peeked,
    Step::HalfOwned,
    Step::Owned,
    Step::Claimed,
    Step::Processed,
    Step::HalfStaged,
    Step::Staged,
    Step::Banked,
    Step::Committed,
    Step::Published,
    Step::Done,
];

#[test]
fn a_worker_killed_at_any_step_of_a_full_batch_leaks_and_doubles_nothing() {
    for step in ALWAYS_PASSED {
        killed_at(step, 3, 2);
    }
}

#[test]
fn a_worker_killed_at_any_step_while_its_upstream_goes_on_leaks_and_doubles_nothing() {
    for step in ALWAYS_PASSED {
        killed_at(step, 2, 1);
    }
}

/// Two outputs, and death after the first is published: the ledger carries the second.
#[test]
fn a_worker_killed_between_two_publications_has_both_rolled_forward() {
    explore(3, || {
        let owners = Owners::heap(2);
        let (mut to_one, mut from_one, one) = heap_ring_inspected(2);
        let (mut to_two, mut from_two, two) = heap_ring_inspected(2);
        let (mut writer, ledger) = heap_ledger(2);
        owners.set(0, W);
        owners.set(1, W);
        let worker = thread::spawn(move || {
            dies_at(Step::HalfPublished, || {
                assert!(to_one.stage(packet(0)) && to_two.stage(packet(1)));
                writer.commit(&[to_one.staged(), to_two.staged()]);
                to_one.publish();
                fault::step(Step::HalfPublished);
                to_two.publish();
            })
        });
        let downstream = thread::spawn(move || {
            let mut held = claim(&mut from_two, 1, owners, D);
            held.extend(claim(&mut from_one, 1, owners, D));
            held
        });
        assert!(worker.join().unwrap());
        let committed = ledger.read().unwrap();
        one.roll_forward(committed[0]);
        two.roll_forward(committed[1]);
        let mut in_rings = InRings::new(2);
        in_rings.look_at(&one);
        in_rings.look_at(&two);
        assert_eq!(in_rings.sweep(owners, W), []);
        let held = downstream.join().unwrap();
        let left = [one.unclaimed(), two.unclaimed()].concat();
        assert_each_in_one_place(2, &[&held, &indices(&left)]);
    });
}

/// The buffer comes back to W's input while the agent still looks: D returns what it claims to P,
/// which claims it and publishes it again.
#[test]
fn a_buffer_that_comes_round_again_during_the_sweep_is_not_freed() {
    for step in [Step::Claimed, Step::Committed, Step::Published, Step::Done] {
        explore(3, move || {
            let owners = Owners::heap(1);
            let (mut to_w, from_p, input) = heap_ring_inspected(2);
            let (to_d, mut from_w, output) = heap_ring_inspected(2);
            let (mut give_back, mut returned) = heap_ring::<Entry>(2);
            let (writer, ledger) = heap_ledger(1);
            owners.set(0, P);
            assert!(to_w.stage(packet(0)));
            to_w.publish();
            let worker = Worker { from: from_p, to: to_d, ledger: writer, owners, polls: 1 };
            let worker = thread::spawn(move || dies_at(step, || worker.run()));
            // D and P in one thread: with a thread each, the circle closes only after more
            // preemptions than can be explored.
            let others = thread::spawn(move || {
                for buffer in claim(&mut from_w, 1, owners, D) {
                    assert!(give_back.stage(packet(buffer)));
                }
                give_back.publish();
                for buffer in claim(&mut returned, 1, owners, P) {
                    assert!(to_w.stage(packet(buffer)));
                }
                to_w.publish();
            });
            assert!(worker.join().unwrap());
            let swept = roll_forward_and_sweep(&ledger, &input, &output, owners);
            others.join().unwrap();
            assert_each_in_one_place(
                1,
                &[&swept, &indices(&input.unclaimed()), &indices(&output.unclaimed())],
            );
        });
    }
}
