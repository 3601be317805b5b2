//! A parallel stage: who gives, two branches, who has the sync port. Every packet goes on once, in order, with what
//! the branches said of it, and not before both have said so and looked at it for the last time; a drop is done once and
//! counted once, whoever dies at whatever step; packets with which a branch died are `lost`, no others are.
//!
//! Everything is the ports' own code but the order in which a worker and the agent call it (`weir-runtime`'s
//! `Job::branch_step` and `Station::commit`; `weir-control`'s `recover`).
//!
//! Red under `WEIR_BROKEN=sync` (the sync port waits for the first branch only), `WEIR_BROKEN=answer` (a branch's successor
//! does not own up to what was never answered), `WEIR_BROKEN=stale` (the sync port's successor takes the first answers that it
//! finds) and `WEIR_BROKEN=sleep` (it looks for the last time before it says that it sleeps).

mod rig;
mod workers;

use self::rig::{BRANCH, BRANCH_LOST, GIVER, LOST, PACKETS, Rig, SYNC};
use crate::sync::no_answer;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_mem::Entry;
use weir_mem::fault::Step;
use weir_mem::model::{dies_at, explore};
use weir_packet::{DropReason, Verdict};

/// Both branches drop packet 0, and the second sends packet 1 another way than the first.
fn says(branch: usize, packet: u32) -> Verdict {
    match packet {
        0 => Verdict::drop([DropReason::Filtered, DropReason::BadHeader][branch]),
        _ => Verdict::output(branch as u8),
    }
}

/// What the stage must say: the first drop, else what the last branch says.
fn of_the_stage() -> Vec<(u32, Verdict, usize)> {
    vec![(0, says(0, 0), 0), (1, says(1, 1), 1)]
}

#[test]
fn no_packet_goes_on_before_each_branch_has_looked_and_answered() {
    explore(2, || {
        let rig = Rig::new();
        rig.giver().give();
        let branches = [0, 1].map(|b| {
            let mut branch = rig.branch(b);
            thread::spawn(move || branch.work())
        });
        let mut sync = rig.sync(LOST, PACKETS);
        sync.work();
        sync.work();
        branches.into_iter().for_each(|branch| assert_eq!(branch.join().unwrap(), PACKETS));
        sync.work();
        assert_eq!(sync.judged, of_the_stage(), "answered otherwise");
        rig.assert_each_in_one_place(&[], 1);
    });
}

/// Steps of a branch, with what its death there costs: `true` between its claim and its commit, where its packets are
/// lost.
const OF_A_BRANCH: [(Step, bool); 12] = [
    (Step::Peeked, false),
    (Step::HalfOwned, false),
    (Step::Owned, false),
    (Step::Claimed, true),
    (Step::Processed, true),
    (Step::HalfStaged, true),
    (Step::Staged, true),
    (Step::Banked, true),
    (Step::Committed, false),
    (Step::HalfPublished, false),
    (Step::Published, false),
    (Step::Done, false),
];

/// The second branch dies; of what it loses `lost` becomes.
fn a_branch_is_killed_at(step: Step, loses: bool, lost: Verdict) {
    explore(2, move || {
        let rig = Rig::new();
        rig.giver().give();
        rig.branch(0).work();
        let mut branch = rig.branch(1);
        let branch = thread::spawn(move || {
            dies_at(step, || {
                branch.work();
            })
        });
        let mut sync = rig.sync(lost, PACKETS);
        let sync = thread::spawn(move || {
            sync.work();
            sync.work();
            sync
        });
        assert!(branch.join().unwrap());
        rig.roll_forward(BRANCH + 1);
        assert_eq!(rig.sweep(BRANCH + 1), [], "what was lent was swept");
        let mut successor = rig.branch(1);
        successor.own_up();
        successor.work();
        let mut sync = sync.join().unwrap();
        sync.work();
        let second = if loses { lost } else { says(1, 1) };
        let right = [(0, says(0, 0), 0), (1, second, 1)];
        assert_eq!(sync.judged, right, "answered otherwise");
        assert_eq!(sync.nonsense(), 0);
        let dropped = 1 + usize::from(second.as_output().is_none());
        rig.assert_each_in_one_place(&[], dropped);
    });
}

#[test]
fn a_branch_killed_at_any_step_loses_what_it_had_claimed_and_not_answered_and_holds_up_nothing() {
    for (step, loses) in OF_A_BRANCH {
        a_branch_is_killed_at(step, loses, BRANCH_LOST);
    }
}

#[test]
fn what_a_branch_that_never_drops_has_lost_passes_it() {
    for (step, loses) in [(Step::Claimed, true), (Step::Banked, true), (Step::Committed, false)] {
        a_branch_is_killed_at(step, loses, LOST);
    }
}

/// The worker of the sync port dies, while the branches answer. It takes one packet at a time, so that answers
/// are left behind when it dies between its claim of a packet and that of the answers on it.
fn the_sync_port_is_killed_at(step: Step) {
    // It may find nothing to take, and not come there; sometimes it does.
    let deaths = Arc::new(AtomicUsize::new(0));
    let counted = deaths.clone();
    explore(2, move || {
        let rig = Rig::new();
        rig.giver().give();
        rig.branch(0).work();
        let mut sync = rig.sync(LOST, 1);
        let mut branch = rig.branch(1);
        let branch = thread::spawn(move || branch.work());
        let worker = thread::spawn(move || {
            dies_at(step, || {
                sync.work();
                sync.work();
            })
        });
        counted.fetch_add(usize::from(worker.join().unwrap()), Ordering::Relaxed);
        rig.roll_forward(SYNC);
        let swept = rig.sweep(SYNC);
        let mut successor = rig.sync(LOST, 1);
        successor.work();
        assert_eq!(branch.join().unwrap(), PACKETS);
        successor.work();
        successor.work();
        let right = of_the_stage();
        let after = right.len() - successor.judged.len();
        assert_eq!(successor.judged, right[after..], "answered otherwise");
        assert_eq!(successor.nonsense(), 0);
        // A drop with which the worker died was not counted, and its buffer is the agent's.
        rig.assert_each_in_one_place(&swept, usize::from(!swept.contains(&0)));
    });
    assert!(deaths.load(Ordering::Relaxed) > 0, "{step:?} is never passed");
}

#[test]
fn the_sync_port_killed_at_any_step_drops_and_counts_and_passes_on_nothing_twice() {
    for step in Step::ALL {
        the_sync_port_is_killed_at(step);
    }
}

/// Who gives dies, while the others go on.
fn who_gives_is_killed_at(step: Step) {
    explore(2, move || {
        let rig = Rig::new();
        let mut giver = rig.giver();
        let giver = thread::spawn(move || dies_at(step, || giver.give()));
        let mut branches = [rig.branch(0), rig.branch(1)];
        let branches = thread::spawn(move || {
            for branch in &mut branches {
                branch.work();
            }
            branches
        });
        let mut sync = rig.sync(LOST, PACKETS);
        assert!(giver.join().unwrap());
        rig.roll_forward(GIVER);
        let swept = rig.sweep(GIVER);
        sync.work();
        let mut branches = branches.join().unwrap();
        for branch in &mut branches {
            branch.work();
        }
        sync.work();
        // All or nothing was given.
        let right = if swept.is_empty() { of_the_stage() } else { Vec::new() };
        assert_eq!(sync.judged, right, "answered otherwise");
        assert_eq!(sync.nonsense(), 0);
        rig.assert_each_in_one_place(&swept, right.len().min(1));
    });
}

#[test]
fn who_gives_killed_at_any_step_has_given_all_lanes_alike_or_nothing() {
    let published = [Step::Committed, Step::HalfPublished, Step::Published];
    for step in [Step::HalfStaged, Step::Staged, Step::Banked].into_iter().chain(published) {
        who_gives_is_killed_at(step);
    }
}

#[test]
fn the_last_answer_is_seen_or_rings_the_bell() {
    explore(2, || {
        let rig = Rig::new();
        rig.giver().give();
        let branches = [0, 1].map(|b| {
            let mut branch = rig.branch(b);
            thread::spawn(move || branch.work())
        });
        let mut sync = rig.sync(LOST, PACKETS);
        let saw = sync.sleep();
        branches.into_iter().for_each(|branch| assert_eq!(branch.join().unwrap(), PACKETS));
        assert!(saw || rig.has_rung(), "lost wake-up");
    });
}

/// A hostile branch: what it says is on another packet than it was asked about.
#[test]
fn an_answer_on_another_packet_is_none_whenever_it_comes() {
    explore(2, || {
        let rig = Rig::new();
        rig.giver().give();
        rig.branch(0).work();
        let mut branch = rig.branch(1);
        let branch = thread::spawn(move || {
            let other = Entry::packet(0, 0, 64, weir_mem::Seq::new(7), 0);
            branch.says_all(&[other, no_answer()]);
        });
        let mut sync = rig.sync(BRANCH_LOST, PACKETS);
        sync.work();
        branch.join().unwrap();
        sync.work();
        let right = [(0, says(0, 0), 0), (1, BRANCH_LOST, 1)];
        assert_eq!(sync.judged, right, "answered otherwise");
        assert_eq!(sync.nonsense(), 1);
    });
}
