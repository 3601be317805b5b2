//! The branch and sync ports: every packet of a parallel stage goes on once, in order, when all branches
//! have answered on it, whoever died meanwhile.
#![allow(clippy::unwrap_used)] // set-up of tests

use proptest::prelude::*;
use std::rc::Rc;
use weir_mem::{
    Arena, ArenaShape, Consumer, Entry, Marker, Owner, Packet, Producer, Region, RingShape, Seq,
};
use weir_packet::{DropReason, Verdict};
use weir_port::{Carries, Doorbell, Egress, Ingress, LaneIn, LaneOut, Pull, answer, no_answer};

const RING: u32 = 16;
const SYNC: Owner = Owner(9);

/// A ring to which both ends can be attached anew, as successors do.
struct Ring(RingShape<Entry>, Region, Region);

impl Ring {
    fn new() -> Self {
        let shape = RingShape::at_least(RING);
        let (p, c) = shape.create("weir-test").unwrap();
        Ring(shape, p, c)
    }

    fn lane_out(&self) -> LaneOut {
        let ring = Producer::attach(self.0, &self.1, &self.2).unwrap();
        LaneOut {
            ring,
            source: 0,
            ordered: false,
            closes: false,
            back: false,
            bell: Rc::new(Doorbell::new().unwrap()),
        }
    }

    fn lane_in(&self, carries: Carries) -> LaneIn {
        let ring = Consumer::attach(self.0, &self.1, &self.2).unwrap();
        let mut lane = LaneIn::new(ring, 0, 0, 0, Rc::new(Doorbell::new().unwrap()));
        lane.carries = carries;
        lane
    }
}

/// What a branch says of the packet with this number.
fn says(branch: usize, n: u64) -> Verdict {
    match n % 7 == branch as u64 {
        true => Verdict::drop(DropReason::Filtered),
        false => Verdict::output((n % 3) as u8),
    }
}

/// A stage: who gives, the branches, who has the sync port.
struct Stage {
    arena: Arena,
    reference: Ring,
    loans: Vec<Ring>,
    answers: Vec<Ring>,
    lost: Vec<Verdict>,
    giver: Egress,
    branches: Vec<(Ingress, Egress)>,
    sync: Ingress,
    given: u64,
    /// What came out: number, verdict, branch.
    out: Vec<(u64, Verdict, usize)>,
    /// What died with the sync port's worker.
    taken_along: Vec<u64>,
}

impl Stage {
    fn new(lost: &[Verdict]) -> Self {
        let rings = || (0..lost.len()).map(|_| Ring::new()).collect::<Vec<_>>();
        let (reference, loans, answers) = (Ring::new(), rings(), rings());
        let arena = Arena::private(ArenaShape::new(64, 64)).unwrap();
        let lost = lost.to_vec();
        let mut stage = Stage {
            giver: Egress::new(Vec::new(), &[], Vec::new(), 8, 1),
            branches: Vec::new(),
            sync: Ingress::new(Vec::new(), 1, SYNC),
            arena,
            reference,
            loans,
            answers,
            lost,
            given: 0,
            out: Vec::new(),
            taken_along: Vec::new(),
        };
        stage.giver = stage.new_giver();
        stage.branches = (0..stage.lost.len()).map(|b| stage.new_branch(b)).collect();
        stage.sync = stage.new_sync();
        stage
    }

    fn new_giver(&self) -> Egress {
        let lanes: Vec<LaneOut> =
            [&self.reference].into_iter().chain(&self.loans).map(Ring::lane_out).collect();
        let loans = (1..lanes.len()).map(|loan| (loan, 0)).collect();
        let edges = vec![0; lanes.len()];
        Egress::with_loans(lanes, &edges, Vec::new(), 8, 1, loans)
    }

    fn new_branch(&self, b: usize) -> (Ingress, Egress) {
        let ingress = Ingress::new(vec![self.loans[b].lane_in(Carries::Loans)], 1, Owner(1));
        let mut egress = Egress::new(vec![self.answers[b].lane_out()], &[0], Vec::new(), 8, 1);
        let claimed = ingress.lanes()[0].ring.claimed();
        egress.answer(0, claimed, &[]);
        egress.publish();
        (ingress, egress)
    }

    fn new_sync(&self) -> Ingress {
        let mut lanes = vec![self.reference.lane_in(Carries::Packets)];
        for (ring, lost) in self.answers.iter().zip(&self.lost) {
            lanes.push(ring.lane_in(Carries::Answers { on: 0, lost: *lost }));
        }
        Ingress::new(lanes, 1, SYNC)
    }

    /// Gives up to `n` packets, as many as there is room for.
    fn give(&mut self, n: usize) {
        for _ in 0..n.min(self.giver.room(0, n)) {
            let entry = Entry::packet(self.given as u32 % 64, 0, 60, Seq::new(self.given), 0);
            let packet = Packet::admit(entry, self.arena.view()).unwrap();
            self.giver.send(0, packet).unwrap();
            self.given += 1;
        }
        self.giver.lend();
        self.giver.publish();
    }

    /// Branch `b` takes up to `n` packets and answers, or dies before it does.
    fn work(&mut self, b: usize, n: usize, dies: bool) {
        let (ingress, egress) = &mut self.branches[b];
        let mut packets = Vec::new();
        let room = egress.room(0, n);
        let Pull::Some(_) = ingress.pull(&self.arena, &mut packets, |_| room) else { return };
        if dies {
            self.branches[b] = self.new_branch(b);
            return;
        }
        let first = ingress.lanes()[0].ring.claimed() - packets.len() as u64;
        let answers: Vec<Entry> = packets
            .drain(..)
            .map(Packet::into_entry)
            .map(|entry| answer(&entry, says(b, entry.seq().get())))
            .collect();
        assert!(egress.answer(0, first, &answers));
        egress.publish();
    }

    /// The worker of the sync port takes up to `n` packets, those that are `answered` or any, and dies.
    fn sync_dies(&mut self, n: usize, answered: bool) {
        let mut reference = self.reference.lane_in(Carries::Packets).ring;
        let there = reference.available(n).min(n);
        let ends = self.branches.iter().map(|(_, egress)| egress.lanes()[0].ring.published());
        let until = ends.min().unwrap().saturating_sub(reference.claimed()) as usize;
        let n = if answered { there.min(until) } else { there };
        for i in 0..n {
            self.taken_along.push(reference.peek(i).unwrap().seq().get());
        }
        reference.claim(n);
        self.sync = self.new_sync();
    }

    /// What is answered on goes on, up to `n` packets.
    fn go_on(&mut self, n: usize) {
        let mut packets = Vec::new();
        if let Pull::Some(_) = self.sync.pull(&self.arena, &mut packets, |_| n) {
            let answers = self.sync.answers();
            assert_eq!(answers.len(), packets.len());
            for (packet, judged) in packets.into_iter().zip(answers.drain(..)) {
                let n = packet.into_entry().seq().get();
                self.out.push((n, judged.verdict, judged.branch));
            }
        }
    }
}

/// What the branches in a row would have said.
fn in_sequence(branches: usize, n: u64) -> (u64, Verdict, usize) {
    let dropper = (0..branches).find(|b| says(*b, n).as_output().is_none());
    let branch = dropper.unwrap_or(branches - 1);
    (n, says(branch, n), branch)
}

#[test]
fn a_packet_waits_until_every_branch_has_answered_and_the_answers_are_of_each() {
    let mut stage = Stage::new(&[Verdict::FIRST; 3]);
    stage.give(9);
    stage.work(0, 9, false);
    stage.work(1, 5, false);
    stage.go_on(9);
    assert_eq!(stage.out, []);
    assert!(!stage.sync.waits(), "there is nothing to take yet");
    stage.work(2, 7, false);
    assert!(stage.sync.waits());
    stage.go_on(9);
    let expected: Vec<_> = (0..5).map(|n| in_sequence(3, n)).collect();
    assert_eq!(stage.out, expected);
}

#[test]
fn the_owner_of_a_lent_packet_stays_whoever_it_was_until_the_sync_port_takes_it() {
    let mut stage = Stage::new(&[Verdict::FIRST; 2]);
    stage.give(1);
    stage.work(0, 1, false);
    stage.work(1, 1, false);
    assert_eq!(stage.arena.owners().get(0), Some(Owner::AGENT));
    stage.go_on(1);
    assert_eq!(stage.arena.owners().get(0), Some(SYNC));
}

#[test]
fn a_packet_with_which_a_branch_died_passes_it_or_is_dropped_as_lost() {
    let lost = Verdict::drop(DropReason::BranchLost);
    for (given, expected) in [([Verdict::FIRST, lost], lost), ([Verdict::FIRST; 2], Verdict::FIRST)]
    {
        let mut stage = Stage::new(&given);
        stage.give(4);
        stage.work(0, 4, false);
        stage.work(1, 2, true);
        stage.go_on(4);
        stage.work(1, 4, false);
        stage.go_on(4);
        // Number 0 the first branch drops: that it was lost with the other says nothing more.
        let expected = [in_sequence(2, 0), (1, expected, 1), in_sequence(2, 2), in_sequence(2, 3)];
        assert_eq!(stage.out, expected);
    }
}

#[test]
fn answers_on_packets_that_a_predecessor_took_are_passed_over() {
    let mut stage = Stage::new(&[Verdict::FIRST; 2]);
    stage.give(6);
    stage.work(0, 6, false);
    stage.work(1, 6, false);
    // It died between the claim of two packets and that of their answers.
    let mut reference = stage.reference.lane_in(Carries::Packets);
    reference.ring.available(2);
    reference.ring.claim(2);
    stage.sync = stage.new_sync();
    stage.go_on(9);
    assert_eq!(stage.out, (2..6).map(|n| in_sequence(2, n)).collect::<Vec<_>>());
}

#[test]
fn the_end_of_the_stream_comes_when_every_branch_has_passed_it_on() {
    let mut stage = Stage::new(&[Verdict::FIRST; 2]);
    assert!(stage.giver.end(0));
    stage.giver.lend();
    stage.giver.publish();
    for b in 0..2 {
        assert!(!stage.sync.source_ended(0), "branch {b} has not");
        let (ingress, egress) = &mut stage.branches[b];
        assert!(ingress.source_ended(0) && egress.end(0));
        egress.publish();
        ingress.finish(0);
    }
    assert!(stage.sync.source_ended(0));
    stage.sync.finish(0);
    let left = stage.sync.lanes().iter().filter(|lane| lane.ring.peek(0).is_some()).count();
    assert_eq!(left, 0, "the markers are taken");
}

#[test]
fn an_answer_that_is_not_on_the_packet_counts_as_none_and_as_nonsense() {
    let mut stage = Stage::new(&[Verdict::drop(DropReason::BranchLost)]);
    stage.give(2);
    let other = Entry::packet(7, 0, 60, Seq::new(0), 0);
    stage.branches[0].1.answer(0, 0, &[answer(&other, Verdict::FIRST), no_answer()]);
    stage.branches[0].1.publish();
    stage.go_on(2);
    let lost = Verdict::drop(DropReason::BranchLost);
    assert_eq!(stage.out, [(0, lost, 0), (1, lost, 0)]);
    assert_eq!(stage.sync.lanes()[1].rejected(), 1);
    assert!(no_answer().as_marker() == Some(Marker::Void));
}

#[derive(Clone, Debug)]
enum Event {
    Give(usize),
    Work(usize, usize, bool),
    GoOn(usize),
    NewGiver,
    NewSync,
    /// The worker of the sync port dies between its claim of packets and that of the answers.
    SyncDies(usize),
    /// One that is hostile takes what nobody has answered on.
    SyncSteals(usize),
}

fn event(branches: usize) -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..20usize).prop_map(Event::Give),
        8 => (0..branches, 1..20usize, prop::bool::weighted(0.1))
            .prop_map(|(b, n, dies)| Event::Work(b, n, dies)),
        4 => (1..20usize).prop_map(Event::GoOn),
        1 => Just(Event::NewGiver),
        1 => Just(Event::NewSync),
        1 => (1..20usize).prop_map(Event::SyncDies),
        1 => (1..20usize).prop_map(Event::SyncSteals),
    ]
}

proptest! {
    #[test]
    fn every_packet_goes_on_once_in_order_with_what_the_branches_said(
        branches in 1..6usize, seed in prop::collection::vec(event(5), 1..200),
    ) {
        let lost = Verdict::drop(DropReason::BranchLost);
        let mut stage = Stage::new(&vec![lost; branches]);
        // Stealing mixes up what is lent and what has gone: then answers may be missing.
        let mut deaths = seed.iter().filter(|e| matches!(e, Event::SyncSteals(_))).count();
        for event in seed {
            match event {
                Event::Give(n) => stage.give(n),
                Event::Work(b, n, dies) => {
                    deaths += usize::from(dies);
                    stage.work(b % branches, n, dies);
                }
                Event::GoOn(n) => stage.go_on(n),
                Event::NewGiver => stage.giver = stage.new_giver(),
                Event::NewSync => stage.sync = stage.new_sync(),
                Event::SyncDies(n) => stage.sync_dies(n, true),
                Event::SyncSteals(n) => stage.sync_dies(n, false),
            }
        }
        for _ in 0..4 {
            (0..branches).for_each(|b| stage.work(b, 32, false));
            stage.go_on(32);
        }
        let left = stage.out.len() + stage.taken_along.len();
        prop_assert_eq!(left as u64, stage.given, "some got stuck");
        let numbers = (0..stage.given).filter(|n| !stage.taken_along.contains(n));
        for (n, got) in numbers.zip(&stage.out) {
            let right = in_sequence(branches, n);
            let is_lost = got.0 == n && got.1 == lost;
            prop_assert!(*got == right || deaths > 0 && is_lost, "{n}: {got:?}, not {right:?}");
        }
    }
}
