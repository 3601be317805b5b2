//! Who sends by a port, what is between, and who takes: each can die and has a successor on the same rings.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::rc::Rc;
use weir_mem::{
    Arena, ArenaShape, Consumer, Entry, Owner, Packet, Producer, Region, RingShape, Seq,
};
use weir_packet::{BATCH, DropReason, Verdict};
use weir_port::balance::FlowDirector;
use weir_port::{Carries, Doorbell, Egress, Ingress, LaneIn, LaneOut, Pull, answer};

/// Entries of a ring; more than a batch.
pub const RING: usize = 512;
/// Buffers: more than all rings hold.
const BUFFERS: u32 = 4096;
const LOST: Verdict = Verdict::drop(DropReason::BranchLost);
/// Flows that packets are of in turn.
const FLOWS: u64 = 16;

/// A kind of port.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Lanes that packets are sent by, each packet by one.
    pub lanes: usize,
    /// Who takes: one from all lanes, or as many as lanes.
    pub takers: usize,
    /// Branches that are lent the packets.
    pub branches: usize,
    /// Whether markers of migrations come there.
    pub marks: bool,
}

/// A ring to which both ends can be attached anew.
struct Ring(RingShape<Entry>, Region, Region);

impl Ring {
    fn new() -> Self {
        let shape = RingShape::at_least(RING as u32);
        let (p, c) = shape.create("weir-test").unwrap();
        Ring(shape, p, c)
    }

    fn lane_out(&self, ordered: bool) -> LaneOut {
        let ring = Producer::attach(self.0, &self.1, &self.2).unwrap();
        let bell = Rc::new(Doorbell::new().unwrap());
        LaneOut { ring, source: 0, ordered, closes: false, back: false, bell }
    }

    fn lane_in(&self, carries: Carries) -> LaneIn {
        let ring = Consumer::attach(self.0, &self.1, &self.2).unwrap();
        let mut lane = LaneIn::new(ring, 0, 0, 0, Rc::new(Doorbell::new().unwrap()));
        lane.carries = carries;
        lane
    }
}

/// What happens next.
#[derive(Clone, Debug)]
pub enum Event {
    Send(usize),
    Between(usize, usize),
    Take(usize, usize),
    SenderDies(usize),
    TakerDies(usize, usize),
    BranchDies(usize, usize),
}

impl Event {
    pub fn any() -> impl Strategy<Value = Event> {
        let batch = || 1..=BATCH;
        prop_oneof![
            6 => batch().prop_map(Event::Send),
            8 => (0..5usize, batch()).prop_map(|(branch, n)| Event::Between(branch, n)),
            8 => (0..3usize, batch()).prop_map(|(taker, n)| Event::Take(taker, n)),
            1 => batch().prop_map(Event::SenderDies),
            1 => (0..3usize, 0..=BATCH).prop_map(|(taker, n)| Event::TakerDies(taker, n)),
            1 => (0..5usize, 0..=BATCH).prop_map(|(branch, n)| Event::BranchDies(branch, n)),
        ]
    }
}

pub struct Rig {
    pub shape: Shape,
    arena: Arena,
    lanes: Vec<Ring>,
    loans: Vec<Ring>,
    answers: Vec<Ring>,
    sender: Egress,
    branches: Vec<(Ingress, Egress)>,
    takers: Vec<Ingress>,
    director: FlowDirector,
    /// Buffers of no packet.
    free: Vec<u32>,
    pub sent: u64,
    /// By taker: numbers that have come.
    pub came: Vec<Vec<u64>>,
    /// Numbers that were in the hands of a taker that died, and that a branch lost.
    pub lost: BTreeSet<u64>,
    pub dropped: BTreeSet<u64>,
    /// By lane: packets sent, and packets taken.
    pub by_lane: Vec<(u64, u64)>,
}

fn owner(taker: usize) -> Owner {
    Owner(10 + taker as u32)
}

impl Rig {
    pub fn new(shape: Shape) -> Self {
        let rings = |n: usize| (0..n).map(|_| Ring::new()).collect::<Vec<_>>();
        let nobody = || Egress::new(Vec::new(), &[], Vec::new(), 12, 1);
        let mut rig = Rig {
            shape,
            arena: Arena::private(ArenaShape::new(BUFFERS, 64)).unwrap(),
            lanes: rings(shape.lanes),
            loans: rings(shape.branches),
            answers: rings(shape.branches),
            sender: nobody(),
            branches: Vec::new(),
            takers: Vec::new(),
            director: FlowDirector::new(&[1, 1, 1], 7, 0).unwrap(),
            free: (0..BUFFERS).collect(),
            sent: 0,
            came: vec![Vec::new(); shape.takers],
            lost: BTreeSet::new(),
            dropped: BTreeSet::new(),
            by_lane: vec![(0, 0); shape.lanes],
        };
        rig.sender = rig.new_sender();
        rig.branches = (0..shape.branches).map(|b| rig.new_branch(b)).collect();
        rig.takers = (0..shape.takers).map(|t| rig.new_taker(t)).collect();
        rig
    }

    fn new_sender(&self) -> Egress {
        let ordered = self.shape.lanes > self.shape.takers;
        let lanes = self.lanes.iter().map(|ring| ring.lane_out(ordered));
        let lanes: Vec<_> = lanes.chain(self.loans.iter().map(|r| r.lane_out(false))).collect();
        let edges: Vec<usize> = (0..lanes.len()).collect();
        let loans = (self.lanes.len()..lanes.len()).map(|loan| (loan, 0)).collect();
        Egress::with_loans(lanes, &edges, Vec::new(), 12, 1, loans)
    }

    fn new_branch(&self, b: usize) -> (Ingress, Egress) {
        let ingress = Ingress::new(vec![self.loans[b].lane_in(Carries::Loans)], 1, Owner(1));
        let lane = self.answers[b].lane_out(false);
        let mut egress = Egress::new(vec![lane], &[0], Vec::new(), 12, 1);
        // What a predecessor had been asked and never answered has no answer.
        egress.answer(0, ingress.lanes()[0].ring.claimed(), &[]);
        egress.publish();
        (ingress, egress)
    }

    fn lanes_of(&self, taker: usize) -> std::ops::Range<usize> {
        match self.shape.takers {
            1 => 0..self.shape.lanes,
            _ => taker..taker + 1,
        }
    }

    fn new_taker(&self, taker: usize) -> Ingress {
        let own = &self.lanes[self.lanes_of(taker)];
        let mut lanes: Vec<_> = own.iter().map(|ring| ring.lane_in(Carries::Packets)).collect();
        let answers = self.answers.iter();
        lanes.extend(answers.map(|r| r.lane_in(Carries::Answers { on: 0, lost: LOST })));
        let mut ingress = Ingress::new(lanes, 1, owner(taker));
        if self.shape.marks {
            (0..own.len()).for_each(|lane| ingress.take_marks(lane));
        }
        ingress
    }

    /// The lane of the packet with this number: any of those that are merged, or that of its flow's instance.
    fn lane(&self, number: u64) -> usize {
        let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self.shape.takers {
            1 => (spread(number) >> 32) as usize % self.shape.lanes,
            _ => self.director.at(spread(number % FLOWS)).into(),
        }
    }

    fn stage(&mut self, n: usize) -> Vec<(usize, u32)> {
        let n = self.sender.room(0, n).min(self.free.len()).min(n);
        let mut staged = Vec::new();
        for number in (self.sent..).take(n) {
            let (lane, buffer) = (self.lane(number), self.free.pop().unwrap());
            let entry = Entry::packet(buffer, 0, 60, Seq::new(number), 0);
            let packet = Packet::admit(entry, self.arena.view()).unwrap();
            self.sender.send(lane, packet).unwrap();
            staged.push((lane, buffer));
        }
        self.sender.lend();
        staged
    }

    /// Sends up to `n` of the next packets in one batch, as many as there is room for; how many.
    pub fn send(&mut self, n: usize) -> usize {
        let staged = self.stage(n);
        staged.iter().for_each(|(lane, _)| self.by_lane[*lane].0 += 1);
        self.sent += staged.len() as u64;
        self.sender.publish();
        self.sender.set_watermark(0, Seq::new(self.sent));
        staged.len()
    }

    /// The sender stages up to `n` packets and dies before anybody sees them. Their buffers are its still.
    pub fn sender_dies(&mut self, n: usize) {
        let staged = self.stage(n);
        self.free.extend(staged.into_iter().map(|(_, buffer)| buffer));
        self.sender = self.new_sender();
    }

    /// Branch `b` answers on up to `n` packets, and passes on the end.
    pub fn between(&mut self, b: usize, n: usize) {
        let Some((ingress, egress)) = self.branches.get_mut(b) else { return };
        let mut packets = Vec::new();
        let room = egress.room(0, n);
        if let Pull::Some(_) = ingress.pull(&self.arena, &mut packets, |_| room) {
            let first = ingress.lanes()[0].ring.claimed() - packets.len() as u64;
            let entries = packets.into_iter().map(Packet::into_entry);
            let answers: Vec<Entry> = entries.map(|e| answer(&e, Verdict::FIRST)).collect();
            assert!(egress.answer(0, first, &answers));
            egress.publish();
        }
        if ingress.source_ended(0) && ingress.lanes()[0].ring.peek(0).is_some() && egress.end(0) {
            egress.publish();
            ingress.finish(0);
        }
    }

    pub fn all_between(&mut self, n: usize) {
        (0..self.shape.branches).for_each(|b| self.between(b, n));
    }

    /// Branch `b` takes up to `n` packets and dies before it has answered.
    pub fn branch_dies(&mut self, b: usize, n: usize) {
        let Some((ingress, egress)) = self.branches.get_mut(b) else { return };
        let mut packets = Vec::new();
        let room = egress.room(0, n);
        let _ = ingress.pull(&self.arena, &mut packets, |_| room);
        for packet in packets {
            let _ = packet.into_entry();
        }
        self.branches[b] = self.new_branch(b);
    }

    /// Who takes takes up to `n` packets: their numbers with what becomes of them.
    fn pull(&mut self, taker: usize, n: usize) -> Vec<(u64, u32, Verdict)> {
        let mut packets = Vec::new();
        let ingress = &mut self.takers[taker];
        let Pull::Some(pulled) = ingress.pull(&self.arena, &mut packets, |_| n) else {
            return Vec::new();
        };
        let lane = self.lanes_of(taker).start + pulled.lane;
        self.by_lane[lane].1 += packets.len() as u64;
        let answers = std::mem::take(self.takers[taker].answers());
        let verdict = |i: usize| answers.get(i).map_or(Verdict::FIRST, |answer| answer.verdict);
        let entries = packets.into_iter().map(Packet::into_entry).enumerate();
        let all: Vec<_> = entries.map(|(i, e)| (e.seq().get(), e.index(), verdict(i))).collect();
        for (number, buffer, _) in &all {
            assert_eq!(self.arena.owners().get(*buffer), Some(owner(taker)), "packet {number}");
        }
        all
    }

    /// Takes up to `n` packets in one batch; how many.
    pub fn take(&mut self, taker: usize, n: usize) -> usize {
        let taker = taker % self.shape.takers;
        let all = self.pull(taker, n);
        for (number, buffer, verdict) in &all {
            self.free.push(*buffer);
            match verdict.as_output() {
                Some(_) => self.came[taker].push(*number),
                None => assert!(self.dropped.insert(*number), "packet {number} is dropped twice"),
            }
        }
        all.len()
    }

    /// Who takes dies with up to `n` packets that it has claimed in its hands. What carries its owner word then, and lies in
    /// no ring, is swept.
    pub fn taker_dies(&mut self, taker: usize, n: usize) {
        let taker = taker % self.shape.takers;
        let all = if n == 0 { Vec::new() } else { self.pull(taker, n) };
        for (number, buffer, _) in all {
            assert!(self.lost.insert(number), "packet {number} is lost twice");
            self.free.push(buffer);
        }
        self.takers[taker] = self.new_taker(taker);
    }

    /// Ends the stream; false without room.
    pub fn end(&mut self) -> bool {
        let ends = self.sender.end(0);
        self.sender.lend();
        self.sender.publish();
        ends
    }

    pub fn has_ended(&mut self, taker: usize) -> bool {
        self.takers[taker].source_ended(0)
    }

    pub fn finish(&mut self, taker: usize) {
        self.takers[taker].finish(0);
        self.takers[taker].finish(0);
    }

    /// Puts a marker behind what was sent, on every lane; false without room.
    pub fn mark(&mut self, number: u32) -> bool {
        let all = (0..self.shape.lanes).all(|lane| self.sender.mark(lane, Entry::moved(1, number)));
        self.sender.publish();
        all
    }

    /// Takes the marker that is next on a lane, if one is: its number.
    pub fn pass_mark(&mut self, lane: usize) -> Option<u32> {
        let taker = if self.shape.takers == 1 { 0 } else { lane };
        let own = lane - self.lanes_of(taker).start;
        let (_, number) = self.takers[taker].mark(own)?;
        self.takers[taker].pass_mark(own);
        Some(number)
    }

    /// Everything that was sent has come, or was counted; each once and in order, and each buffer is free once.
    pub fn assert_settled(&self) {
        let mut all: Vec<u64> = self.came.iter().flatten().copied().collect();
        for came in &self.came {
            assert!(came.is_sorted_by(|a, b| a < b), "out of order, or doubled: {came:?}");
        }
        all.extend(self.lost.iter().chain(&self.dropped));
        all.sort_unstable();
        assert_eq!(all, (0..self.sent).collect::<Vec<_>>());
        let unique: BTreeSet<u32> = self.free.iter().copied().collect();
        assert_eq!((unique.len(), self.free.len()), (BUFFERS as usize, BUFFERS as usize));
        let nonsense: u64 = self.takers.iter().flat_map(Ingress::lanes).map(LaneIn::nonsense).sum();
        assert_eq!(nonsense, 0);
    }

    /// Until nothing is under way.
    pub fn drain(&mut self) {
        loop {
            let branches = self.shape.branches;
            self.all_between(BATCH);
            let taken: usize = (0..self.shape.takers).map(|taker| self.take(taker, BATCH)).sum();
            let waits = branches > 0 && self.takers.iter_mut().any(Ingress::waits);
            if taken == 0 && !waits {
                return;
            }
        }
    }
}
