//! The rings of a stage, and the agent.

use super::workers::{Branch, Giver, SyncPort};
use crate::doorbell::Doorbell;
use crate::egress::{Egress, LaneOut, Return};
use crate::ingress::{Ingress, LaneIn};
use crate::models::any_bell;
use crate::sync::Carries;
use loom::cell::UnsafeCell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::rc::Rc;
use std::sync::Arc;
use weir_mem::ledger::heap_ledger;
use weir_mem::model::heap_successors;
use weir_mem::ring::heap_ring_inspected;
use weir_mem::sweep::InRings;
use weir_mem::{Arena, ArenaShape, Entry, Ledger, Owner, RingInspector};
use weir_packet::{DropReason, Verdict};

pub(super) const PACKETS: usize = 2;

/// Workers, by number: their owner words are one more.
pub(super) const GIVER: usize = 0;
pub(super) const SYNC: usize = 1;
/// The first branch; the second follows.
pub(super) const BRANCH: usize = 2;

/// What becomes of packets that a branch lost: dropped, or passed.
pub(super) const BRANCH_LOST: Verdict = Verdict::drop(DropReason::BranchLost);
pub(super) const LOST: Verdict = Verdict::FIRST;

/// Bytes of the packets. loom sees who reads and writes them when.
pub(super) type Bytes = Arc<[UnsafeCell<u32>; PACKETS]>;

/// A lane, as the agent sees it: both ends can be attached anew.
type Lane = RingInspector<Entry>;

pub(super) struct Rig {
    pub(super) arena: Arc<Arena>,
    pub(super) bytes: Bytes,
    reference: Lane,
    loans: [Lane; 2],
    answers: [Lane; 2],
    /// Behind the sync port.
    onward: Lane,
    home: RingInspector<u32>,
    ledgers: [std::cell::RefCell<Ledger>; 4],
    /// Of the worker that has the sync port.
    bell: Rc<Doorbell>,
}

pub(super) fn owner(worker: usize) -> Owner {
    Owner(worker as u32 + 1)
}

fn lane() -> Lane {
    heap_ring_inspected(PACKETS as u32).2
}

fn way_out(lane: &Lane, bell: Rc<Doorbell>) -> LaneOut {
    let ring = heap_successors(lane).0;
    LaneOut { ring, source: 0, ordered: false, closes: false, back: false, bell }
}

fn way_in(lane: &Lane, carries: Carries) -> LaneIn {
    let mut lane = LaneIn::new(heap_successors(lane).1, 0, 0, 0, any_bell());
    lane.carries = carries;
    lane
}

impl Rig {
    pub(super) fn new() -> Self {
        let arena = Arc::new(Arena::modelled(ArenaShape::new(PACKETS as u32, 64)).unwrap());
        (0..PACKETS as u32).for_each(|buffer| arena.owners().set(buffer, owner(GIVER)));
        Rig {
            arena,
            bytes: Arc::new([0, 1].map(UnsafeCell::new)),
            reference: lane(),
            loans: [lane(), lane()],
            answers: [lane(), lane()],
            onward: lane(),
            home: heap_ring_inspected(PACKETS as u32).2,
            ledgers: [0; 4].map(|_| std::cell::RefCell::new(heap_ledger(0).1)),
            bell: Rc::new(Doorbell::new().unwrap()),
        }
    }

    /// A record for a worker (or its successor) that leads so many rings away, and one count more.
    fn ledger(&self, worker: usize, rings: usize) -> weir_mem::LedgerWriter {
        let (writer, reader) = heap_ledger(rings + 1);
        self.ledgers[worker].replace(reader);
        writer
    }

    pub(super) fn giver(&self) -> Giver {
        let lanes = [&self.reference, &self.loans[0], &self.loans[1]];
        let lanes = lanes.map(|lane| way_out(lane, any_bell())).into();
        Giver {
            egress: Egress::with_loans(lanes, &[0; 3], Vec::new(), 8, 1, vec![(1, 0), (2, 0)]),
            ledger: self.ledger(GIVER, 3),
            arena: self.arena.clone(),
        }
    }

    pub(super) fn branch(&self, b: usize) -> Branch {
        let ingress = vec![way_in(&self.loans[b], Carries::Loans)];
        let egress = vec![way_out(&self.answers[b], self.bell.clone())];
        Branch {
            number: b,
            ingress: Ingress::new(ingress, 1, owner(BRANCH + b)),
            egress: Egress::new(egress, &[0], Vec::new(), 8, 1),
            ledger: self.ledger(BRANCH + b, 1),
            arena: self.arena.clone(),
            bytes: self.bytes.clone(),
        }
    }

    /// `most`: how many packets it takes at a time.
    pub(super) fn sync(&self, lost: Verdict, most: usize) -> SyncPort {
        let mut lanes = vec![way_in(&self.reference, Carries::Packets)];
        let answers = |lane| way_in(lane, Carries::Answers { on: 0, lost });
        lanes.extend(self.answers.iter().map(answers));
        let home = Return { ring: heap_successors(&self.home).0, bell: any_bell() };
        let onward = vec![way_out(&self.onward, any_bell())];
        let dropped = self.dropped();
        SyncPort {
            ingress: Ingress::new(lanes, 1, owner(SYNC)),
            egress: Egress::new(onward, &[0], vec![home], 8, 1),
            ledger: self.ledger(SYNC, 2),
            arena: self.arena.clone(),
            bytes: self.bytes.clone(),
            most,
            dropped,
            judged: Vec::new(),
        }
    }

    /// What the worker of the sync port has counted as dropped.
    fn dropped(&self) -> u64 {
        self.ledgers[SYNC].borrow().read().unwrap().last().copied().unwrap_or_default()
    }

    /// Publishes what a dead worker had committed.
    pub(super) fn roll_forward(&self, worker: usize) {
        let committed = self.ledgers[worker].borrow().read().unwrap();
        let lanes: Vec<&Lane> = match worker {
            GIVER => vec![&self.reference, &self.loans[0], &self.loans[1]],
            SYNC => vec![&self.onward],
            branch => vec![&self.answers[branch - BRANCH]],
        };
        for (lane, target) in lanes.iter().zip(&committed) {
            lane.roll_forward(*target);
        }
        if worker == SYNC {
            self.home.roll_forward(committed[1]);
        }
    }

    /// What a dead worker held; loans and answers are nobody's to hold.
    pub(super) fn sweep(&self, worker: usize) -> Vec<u32> {
        let mut in_rings = InRings::new(PACKETS);
        in_rings.look_at(&self.reference);
        in_rings.look_at(&self.onward);
        in_rings.look_at(&self.home);
        in_rings.sweep(self.arena.owners(), owner(worker))
    }

    /// Each buffer was swept, is on its way home or goes on, and so many drops were counted.
    pub(super) fn assert_each_in_one_place(&self, swept: &[u32], dropped: usize) {
        assert_eq!(self.reference.unclaimed(), [], "a packet is stuck");
        let home = self.home.unclaimed();
        let onward = self.onward.unclaimed().iter().map(Entry::index).collect::<Vec<_>>();
        let mut all = [swept, &home, &onward].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1], "leaked or doubled: {swept:?} {home:?} {onward:?}");
        assert_eq!((home.len(), self.dropped()), (dropped, dropped as u64), "counted otherwise");
    }

    /// Somebody has rung for the worker of the sync port.
    pub(super) fn has_rung(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.bell.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }
}
