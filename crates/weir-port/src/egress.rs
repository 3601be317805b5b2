//! How packets leave: into lanes, and their buffers back to the pools they came from.

use crate::broken;
use crate::doorbell::Doorbell;
use crate::sync::no_answer;
use std::rc::Rc;
use weir_mem::fault::{self, Step};
use weir_mem::{Entry, Marker, Producer, Seq};
use weir_packet::{BATCH, Packet};

/// One ring that leads away.
pub struct LaneOut {
    /// The ring.
    pub ring: Producer<Entry>,
    /// Index of the packets' source.
    pub source: usize,
    /// Whether somebody further on merges this source, so that watermarks matter.
    pub ordered: bool,
    /// Whether it drops when it is full, as its edge closes a cycle or the operator wants it: then nobody waits for room in it.
    pub closes: bool,
    /// Whether packets come there around a cycle: then no end of a source comes by it.
    pub back: bool,
    /// Wakes the consumer.
    pub bell: Rc<Doorbell>,
}

/// The way back to a pool for buffers whose packet has ended here.
pub struct Return {
    /// The ring; it holds the whole pool, so it is never full.
    pub ring: Producer<u32>,
    /// Wakes the pool's worker.
    pub bell: Rc<Doorbell>,
}

/// All rings out of a worker. Entries are staged while a batch is processed and become visible by
/// [`Egress::publish`], after the ledger has recorded what will be.
pub struct Egress {
    lanes: Vec<LaneOut>,
    returns: Vec<Return>,
    /// `by_edge[edge * sources + source]`: lane of an edge for a source.
    by_edge: Vec<Option<usize>>,
    /// Lanes of each source in which room is waited for: those that drop when they are full are left out.
    by_source: Vec<Vec<usize>>,
    /// By source: whether somebody merges by what a lane of it promises.
    ordered: Vec<bool>,
    /// Buffers per pool is two to this.
    pool_bits: u32,
    /// By lane: what was promised last.
    promised: Vec<Seq>,
    wake: bool,
    /// By source: lane for dropped packets; empty when nobody wants them.
    dumps: Vec<Option<usize>>,
    /// Lanes that lend packets to a parallel stage's branches, each with the lane that it repeats.
    loans: Vec<(usize, usize)>,
}

impl Egress {
    /// Rings out of a worker. `edges` gives, for each lane, the index of the edge it belongs to;
    /// `returns[i]` leads to the pool of buffers `i << pool_bits ..`.
    pub fn new(
        lanes: Vec<LaneOut>,
        edges: &[usize],
        returns: Vec<Return>,
        pool_bits: u32,
        sources: usize,
    ) -> Self {
        Self::with_loans(lanes, edges, returns, pool_bits, sources, Vec::new())
    }

    /// As [`Egress::new`]. Each of `loans` is a lane (whose edge says nothing) and another that it repeats,
    /// entry by entry: the branch port. Only the latter is sent on.
    pub fn with_loans(
        lanes: Vec<LaneOut>,
        edges: &[usize],
        returns: Vec<Return>,
        pool_bits: u32,
        sources: usize,
        loans: Vec<(usize, usize)>,
    ) -> Self {
        let lends = |lane: usize| loans.iter().any(|(loan, _)| *loan == lane);
        let edges = edges.iter().enumerate().filter(|(lane, _)| !lends(*lane));
        let edges: Vec<(usize, usize)> = edges.map(|(lane, edge)| (lane, *edge)).collect();
        let edge_count = edges.iter().map(|(_, e)| e + 1).max().unwrap_or(0);
        let mut by_edge = vec![None; edge_count * sources];
        let mut by_source = vec![Vec::new(); sources];
        // Room on the reference is room on its loans, unless a hostile worker took from it what it must not.
        for (loan, _) in &loans {
            if let Some(list) = lanes.get(*loan).and_then(|l| by_source.get_mut(l.source)) {
                list.push(*loan);
            }
        }
        for (i, edge) in edges {
            let Some(lane) = lanes.get(i) else { continue };
            if let Some(slot) = by_edge.get_mut(edge * sources + lane.source) {
                *slot = Some(i);
            }
            if !lane.closes
                && let Some(list) = by_source.get_mut(lane.source)
            {
                list.push(i);
            }
        }
        let mut ordered = vec![false; sources];
        for lane in lanes.iter().filter(|lane| lane.ordered) {
            if let Some(any) = ordered.get_mut(lane.source) {
                *any = true;
            }
        }
        let promised = lanes.iter().map(|lane| lane.ring.watermark()).collect();
        let dumps = Vec::new();
        let wake = false;
        Egress {
            lanes,
            returns,
            by_edge,
            by_source,
            ordered,
            pool_bits,
            promised,
            wake,
            dumps,
            loans,
        }
    }

    /// Stages for the branches of parallel stages what has been staged for their sync ports. To be called
    /// before the ledger records what will be: then all lanes of a stage move together, whoever dies when.
    #[inline(always)]
    pub fn lend(&mut self) {
        if !self.loans.is_empty() {
            self.lend_all();
        }
    }

    #[inline(never)]
    fn lend_all(&mut self) {
        for &(loan, of) in &self.loans {
            if let Ok([loan, of]) = self.lanes.get_disjoint_mut([loan, of]) {
                loan.ring.repeat(&of.ring);
            }
        }
    }

    /// Says that the lanes of `edge` are for dropped packets.
    pub fn set_dump_edge(&mut self, edge: usize) {
        let lanes: Vec<_> = (0..self.by_source.len()).map(|s| self.lane(edge, s)).collect();
        if lanes.iter().any(Option::is_some) {
            self.dumps = lanes;
        }
    }

    /// Lane for dropped packets of `source`; `None`: their buffers go home.
    #[inline(always)]
    pub fn dump(&self, source: usize) -> Option<usize> {
        self.dumps.get(source).copied().flatten()
    }

    /// How many packets of `source` can be dropped, looked up to `want`.
    #[inline]
    pub fn dump_room(&mut self, source: usize, want: usize) -> usize {
        let lane = self.dump(source).and_then(|lane| self.lanes.get_mut(lane));
        lane.map_or(want, |lane| lane.ring.room(want))
    }

    /// True for a lane of dropped packets.
    pub fn is_dump(&self, lane: usize) -> bool {
        self.dumps.contains(&Some(lane))
    }

    /// Whether packets are dropped that find no room in a lane.
    #[inline]
    pub fn sheds(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.closes)
    }

    /// Lane of `edge` for `source`.
    #[inline]
    pub fn lane(&self, edge: usize, source: usize) -> Option<usize> {
        self.by_edge.get(edge * self.by_source.len() + source).copied().flatten()
    }

    /// Stages a branch's answers on a lane, the first at index `first`: that of what it is the answer to. What
    /// was asked before and never answered, by a predecessor that died, is answered with [`no_answer`].
    /// False when there was no room for all.
    pub fn answer(&mut self, lane: usize, first: u64, answers: &[Entry]) -> bool {
        let Some(ring) = self.lanes.get_mut(lane).map(|lane| &mut lane.ring) else { return false };
        let ahead = first.wrapping_sub(ring.staged()) as i64;
        let ahead = if broken::is("answer") { ahead.min(0) } else { ahead };
        // More than fit only where a hostile worker has been at work.
        for _ in 0..ahead.min(ring.capacity() as i64) {
            if !ring.stage(no_answer()) {
                return false;
            }
        }
        let known = usize::try_from(ahead.saturating_neg()).unwrap_or(0).min(answers.len());
        let rest = answers.get(known..).unwrap_or_default();
        ring.stage_slice(rest) == rest.len()
    }

    /// How many packets wait on a lane for its consumer, those that are staged included.
    #[inline]
    pub fn waiting(&mut self, lane: usize) -> usize {
        self.lanes.get_mut(lane).map_or(0, |lane| {
            let capacity = lane.ring.capacity();
            capacity - lane.ring.room(capacity).min(capacity)
        })
    }

    /// True when a packet can be sent on a lane.
    #[inline]
    pub fn has_room(&mut self, lane: usize) -> bool {
        self.lanes.get_mut(lane).is_some_and(|lane| lane.ring.room(1) > 0)
    }

    /// How many packets of `source` can be sent whatever way they take, looked up to `want`.
    #[inline]
    pub fn room(&mut self, source: usize, want: usize) -> usize {
        let ahead = self.room_ahead(source, want);
        ahead.min(self.dump_room(source, want))
    }

    /// The same, but of packets that are not dropped: whether there is room for those that are is not looked at.
    #[inline]
    pub fn room_ahead(&mut self, source: usize, want: usize) -> usize {
        let Some(list) = self.by_source.get(source) else {
            return 0;
        };
        let (mut room, dump) = (want, self.dump(source));
        for &i in list {
            if let Some(lane) = self.lanes.get_mut(i).filter(|_| Some(i) != dump) {
                room = room.min(lane.ring.room(want));
            }
        }
        room
    }

    /// Stages a packet on a lane. Gives it back when the lane is full.
    #[inline]
    pub fn send(&mut self, lane: usize, packet: Packet) -> Result<(), Packet> {
        let Some(lane) = self.lanes.get_mut(lane) else {
            return Err(packet);
        };
        if lane.ring.stage(*packet.entry()) {
            let _ = packet.into_entry();
            fault::step(Step::HalfStaged);
            Ok(())
        } else {
            Err(packet)
        }
    }

    /// Stages all packets on a lane, in order. Those that find no room stay.
    #[inline]
    pub fn send_all(&mut self, lane: usize, packets: &mut Vec<Packet>) {
        let Some(lane) = self.lanes.get_mut(lane) else {
            return;
        };
        let n = lane.ring.stage_slice(Packet::entries(packets));
        packets.drain(..n).for_each(|p| {
            let _ = p.into_entry();
        });
    }

    /// Stages a buffer's way home. False when its pool has no way back from here, or the ring is
    /// full, which only a corrupt buffer number or a doubled buffer can cause.
    #[inline]
    pub fn give_back(&mut self, packet: Packet) -> bool {
        let index = packet.into_entry().index();
        match self.returns.get_mut((index >> self.pool_bits) as usize) {
            Some(back) => {
                let staged = back.ring.stage(index);
                fault::step(Step::HalfStaged);
                staged
            }
            None => false,
        }
    }

    /// Stages the way home of all `packets`, whatever pools they are of.
    #[inline]
    pub fn give_all_back(&mut self, packets: &mut Vec<Packet>) {
        if let [back] = self.returns.as_mut_slice() {
            back.ring.stage_all(packets.drain(..).map(|p| {
                fault::step(Step::HalfStaged);
                p.into_entry().index()
            }));
            return;
        }
        for packet in packets.drain(..) {
            self.give_back(packet);
        }
    }

    /// Stages a marker on a lane, behind what was sent there; false when the lane is full.
    pub fn mark(&mut self, lane: usize, marker: Entry) -> bool {
        self.lanes.get_mut(lane).is_some_and(|lane| lane.ring.stage(marker))
    }

    /// Stages the end of `source`'s stream on all its lanes; false when one is full (call again).
    pub fn end(&mut self, source: usize) -> bool {
        if self.room(source, 1) == 0 {
            return false;
        }
        // What drops packets does not drop the end.
        let mut lanes = self.lanes.iter_mut();
        if lanes.any(|l| l.source == source && l.closes && !l.back && l.ring.room(1) == 0) {
            return false;
        }
        // Loans repeat it.
        let loans = &self.loans;
        let lends = |at: usize| loans.iter().any(|(loan, _)| *loan == at);
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            if lane.source == source && !lane.back && !lends(i) {
                lane.ring.stage(Entry::marker(Marker::EndOfStream, Seq::new(0)));
            }
        }
        true
    }

    /// What the ledger records: each ring's index after publication: lanes, then
    /// returns.
    #[inline]
    pub fn targets<'w>(&self, words: impl Iterator<Item = &'w mut u64>) {
        let lanes = self.lanes.iter().map(|l| l.ring.staged());
        let returns = self.returns.iter().map(|r| r.ring.staged());
        for (word, target) in words.zip(lanes.chain(returns)) {
            *word = target;
        }
    }

    /// Nonsense that the consumer of each ring wrote as its index: lanes, then returns.
    pub fn nonsense(&self) -> impl Iterator<Item = u64> {
        let lanes = self.lanes.iter().map(|l| l.ring.nonsense());
        lanes.chain(self.returns.iter().map(|r| r.ring.nonsense()))
    }

    /// Forgets what it remembers of its rings: the agent has put them right while this worker
    /// rested with nothing staged.
    pub fn resync(&mut self) {
        self.lanes.iter_mut().for_each(|l| l.ring.resync());
        // The agent may have promised in its stead.
        self.promised.clear();
        self.promised.extend(self.lanes.iter().map(|lane| lane.ring.watermark()));
        self.returns.iter_mut().for_each(|r| r.ring.resync());
    }

    /// The lanes.
    pub fn lanes(&self) -> &[LaneOut] {
        &self.lanes
    }

    /// Makes everything staged visible and wakes whoever sleeps for it.
    #[inline]
    pub fn publish(&mut self) {
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            if lane.ring.publish() {
                lane.bell.ring();
            }
            if i == 0 {
                fault::step(Step::HalfPublished);
            }
        }
        fault::step(Step::HalfPublished);
        for back in &mut self.returns {
            if back.ring.publish() {
                back.bell.ring();
            }
        }
        fault::step(Step::Published);
    }

    /// Promises that no packet of `source` before `seq` follows. To be called after
    /// [`Egress::publish`]. A promise is never taken back: not one that a predecessor has made, nor one
    /// that the agent has.
    #[inline]
    pub fn set_watermark(&mut self, source: usize, seq: Seq) {
        for &i in self.by_source.get(source).into_iter().flatten() {
            let (Some(lane), Some(last)) = (self.lanes.get_mut(i), self.promised.get_mut(i)) else {
                continue;
            };
            if !lane.ordered || !last.before(seq) {
                continue;
            }
            *last = seq;
            if lane.ring.set_watermark(seq) {
                lane.bell.ring();
            }
        }
    }

    /// True when watermarks of `source` matter to somebody.
    pub fn is_ordered(&self, source: usize) -> bool {
        self.ordered.get(source).copied().unwrap_or(false)
    }

    /// Says that this worker is going to sleep until there is room; true when there is already.
    pub fn sleep(&mut self) -> bool {
        self.wake = true;
        // All lanes must have room before anything can be taken: waking for one that has while
        // another has not would only spin.
        let mut all = true;
        for lane in self.lanes.iter_mut().filter(|lane| !lane.closes) {
            // Who has taken everything makes no more room, and would ring whenever it looks.
            if lane.ring.wait(lane.ring.capacity()) {
                lane.ring.wake();
            }
            let want = BATCH.min(lane.ring.capacity());
            all &= lane.ring.room(want) >= want;
        }
        all
    }

    /// Takes back [`Egress::sleep`].
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.wake) {
            self.lanes.iter_mut().for_each(|l| l.ring.wake());
        }
    }
}
