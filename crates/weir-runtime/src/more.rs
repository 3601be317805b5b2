//! µNFs that do more than judge the packets they are given: they make packets, hold them, set
//! timers. What of it the segment does for them.
//!
//! A µNF may send more packets than it was given, so there may be more than the lanes have room
//! for. Those wait in the segment's backlog, in order, and nothing new of their source is taken in while
//! any wait: a full ring pushes back, as always, and nothing is dropped. A full lane keeps back only what is for
//! it, and the watermarks say what still waits: whoever merges it with others could not take anything
//! from it before it has heard of them. Other sources go on: whoever merges what two such segments send would else wait
//! for one source's packets from the first, behind another's that wait for those of the second. For the same reason
//! each source has buffers of its own for what is made of its packets, where there are several such segments.
//! What waits and what is held is in the ledger by number, for the agent to count should the worker die.

use crate::arrays::Pick;
use crate::segment::{Node, Segment, Target, Way, add};
use crate::station::Station;
use std::cell::Cell;
use std::collections::VecDeque;
use weir_mem::Seq;
use weir_nf::{BatchKeys, Kind, Leaving, Pool, Site};
use weir_packet::{BATCH, Packet, Verdict};
use weir_port::{Egress, HomePool};

/// A segment's part in it.
pub(crate) struct Beyond {
    /// Some µNF of the segment does more.
    pub(crate) any: bool,
    /// Some µNF sets timers.
    pub(crate) timers: bool,
    /// Most packets that are made for one that comes in, copies to ports of arrays among them.
    creates: usize,
    /// Free buffers, while µNFs run.
    pub(crate) pool: Pool,
    /// What µNFs have found out of the packets that are on their way through.
    pub(crate) keys: Cell<BatchKeys>,
    /// Packets that found no room, with their lanes.
    backlog: VecDeque<(usize, Packet)>,
    /// Bits of the sources that those are of.
    waiting: u64,
    /// Lanes that were found full when it was last tried to send those: each is for one of them, but for `later` ones.
    full: Vec<usize>,
    /// Some came later, for other lanes.
    later: bool,
}

impl Beyond {
    pub(crate) fn of(nodes: &[Node], picks: &[(usize, Pick)]) -> Self {
        let descriptor = |n: &Node| n.nf.as_ref().map(|nf| nf.descriptor());
        // From the end: how many packets are made, at most, for one that comes to a node.
        let mut made = vec![0usize; nodes.len()];
        for (i, node) in nodes.iter().enumerate().rev() {
            // A node that has lent its µNF makes none, but those are of µNFs that do no more than judge.
            let descriptor = descriptor(node);
            let own = descriptor.map_or(0, |d| usize::from(d.creates));
            // The output of what it makes, if that is one of its own.
            let apart = descriptor
                .and_then(|d| d.outputs.iter().position(|output| Some(*output) == d.creates_to));
            let behind = |leaves: &dyn Fn(usize) -> bool| {
                let outputs = node.outputs.iter().enumerate().filter(|(k, _)| leaves(*k));
                let made_at = |target: Target| match target {
                    Target::Node { node, .. } => made.get(node).copied(),
                    Target::Array { pick } => picks.get(pick).map(|(_, pick)| pick.copies()),
                    Target::Lane { .. } | Target::Back { .. } | Target::Answer | Target::Drop => {
                        None
                    }
                };
                // Of several instances one gets the packet.
                let next = outputs.flat_map(|(_, branches)| branches).flat_map(|b| {
                    let parts = b.spread.iter().flat_map(|spread| spread.parts());
                    parts.map(|part| part.target).chain([b.target]).filter_map(made_at)
                });
                next.max().unwrap_or(0)
            };
            let (given, of_made) = match apart {
                Some(apart) => (behind(&|k| k != apart), behind(&|k| k == apart)),
                None => (behind(&|_| true), behind(&|_| true)),
            };
            let each = of_made.saturating_add(1);
            let all = given.saturating_add(own.saturating_mul(each));
            if let Some(made) = made.get_mut(i) {
                *made = all;
            }
        }
        Beyond {
            any: nodes.iter().any(|n| n.more.is_some()),
            timers: nodes.iter().filter_map(descriptor).any(|d| d.timers),
            creates: made.into_iter().max().unwrap_or(0),
            pool: Pool::default(),
            keys: Cell::default(),
            backlog: VecDeque::new(),
            waiting: 0,
            full: Vec::new(),
            later: false,
        }
    }

    /// How many packets may be taken in now, `most` at most.
    pub(crate) fn appetite(&self, most: usize) -> Appetite {
        Appetite { most, creates: self.creates, waiting: self.waiting }
    }

    /// True when a packet of `source` waits for room.
    #[inline(always)]
    pub(crate) fn waits(&self, source: usize) -> bool {
        self.waiting & bit(source) != 0
    }

    /// True when no packet waits for room.
    pub(crate) fn has_no_backlog(&self) -> bool {
        self.backlog.is_empty()
    }

    /// How many do.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// True when a packet waits for room in this lane.
    pub(crate) fn has_backlog_for(&self, lane: usize) -> bool {
        self.backlog.iter().any(|(of, _)| *of == lane)
    }

    /// Packets of `source` found no room in `lane`: they wait, behind what waits already.
    pub(crate) fn wait(
        &mut self,
        source: usize,
        lane: usize,
        packets: impl IntoIterator<Item = Packet>,
    ) {
        let before = self.backlog.len();
        self.backlog.extend(packets.into_iter().map(|packet| (lane, packet)));
        if self.backlog.len() > before {
            self.waiting |= bit(source);
            self.later |= !self.full.contains(&lane);
        }
    }

    /// True when some of what waits may find room now.
    pub(crate) fn may_send(&self, egress: &mut Egress) -> bool {
        self.later || self.full.iter().any(|lane| egress.has_room(*lane))
    }

    /// The same, where each that is taken in needs a buffer itself.
    pub(crate) fn most_received(&self, home: &mut HomePool, owners: &weir_mem::Owners) -> usize {
        match self.creates {
            0 => BATCH,
            creates => most(creates.saturating_add(1), home, owners),
        }
    }
}

/// The bit of a source; there are no more of them than bits.
#[inline(always)]
fn bit(source: usize) -> u64 {
    1u64.checked_shl(source as u32).unwrap_or(0)
}

/// How many packets a worker may take in.
#[derive(Clone, Copy)]
pub(crate) struct Appetite {
    most: usize,
    /// Most packets that are made for each.
    creates: usize,
    /// Bits of sources of which packets wait for room further on.
    waiting: u64,
}

impl Appetite {
    /// For one that makes none.
    pub(crate) fn up_to(most: usize) -> Self {
        Appetite { most, creates: 0, waiting: 0 }
    }

    /// Of `source`, so that there is a buffer for each that is made; those of that source are served from here on.
    #[inline]
    pub(crate) fn of(
        self,
        source: usize,
        home: Option<&mut HomePool>,
        owners: &weir_mem::Owners,
    ) -> usize {
        match home {
            _ if self.waiting & bit(source) != 0 => 0,
            Some(home) if self.creates > 0 => {
                home.serve(source);
                self.most.min(most(self.creates, home, owners))
            }
            _ => self.most,
        }
    }

    /// Of `source`, of those that come back around a cycle: they do not wait for buffers.
    #[inline]
    pub(crate) fn back(self, source: usize) -> usize {
        if self.waiting & bit(source) != 0 { 0 } else { self.most }
    }
}

/// For how many packets that each need so many free buffers there are enough: a batch at most.
pub(crate) fn most(each: usize, home: &mut HomePool, owners: &weir_mem::Owners) -> usize {
    if each == 0 {
        return BATCH;
    }
    let all = home.share_len();
    let free = home.refill(owners, BATCH.saturating_mul(each).min(all));
    match free / each {
        // All of them, of which half may be held, are hardly enough for one: it gets what there is.
        0 if each > all / 2 => free.min(1),
        n => n.min(BATCH),
    }
}

impl Segment {
    /// As [`Segment::dispatch`], with the packets that the µNF sent besides in between.
    #[cold]
    pub(crate) fn dispatch_more(
        &mut self,
        i: usize,
        batch: &mut Vec<Packet>,
        leaving: Vec<Leaving>,
        way: &mut Way<'_>,
    ) {
        let mut leaving = leaving.into_iter().peekable();
        for (k, (packet, verdict)) in batch.drain(..).zip(self.verdicts).enumerate() {
            while let Some(other) = leaving.next_if(|l| l.at <= 2 * k) {
                self.place_other(i, other, way);
            }
            if verdict == Verdict::HELD {
                // The µNF has it: this handle is forgotten.
                let _ = packet.into_entry();
            } else {
                self.place(i, packet, verdict, way);
            }
        }
        for other in leaving {
            self.place_other(i, other, way);
        }
    }

    fn place_other(&mut self, i: usize, other: Leaving, way: &mut Way<'_>) {
        match other.kind {
            Kind::Created => add(way.words, self.layout.created, 1),
            Kind::Copied => add(way.words, self.layout.copied, 1),
            Kind::Released => {}
        }
        self.place(i, other.packet, other.verdict, way);
    }

    /// Calls `work` while the segment may take `home`'s free buffers.
    #[inline]
    pub(crate) fn with_buffers(&mut self, home: &mut HomePool, work: impl FnOnce(&mut Self)) {
        self.more.pool.fill(home.lend());
        work(self);
        home.unlend(self.more.pool.drain());
    }

    /// Calls `work` with what it needs of the station: buffers for new packets, rings out, and the
    /// ledger's words. Not for an Rx service, which takes its buffers itself.
    #[inline]
    pub(crate) fn with<T>(
        &mut self,
        station: &mut Station,
        source: usize,
        work: impl FnOnce(&mut Self, &mut Way<'_>) -> T,
    ) -> T {
        if let Some(home) = &mut station.home {
            home.serve(source);
            // For packets it was looked for buffers when they were taken, but not for what timers and ends make, or packets that come
            // back around a cycle.
            home.refill(station.arena.owners(), BATCH.saturating_mul(self.more.creates));
            self.more.pool.fill(home.lend());
        }
        let Station { arena, egress, words, .. } = station;
        let done = work(self, &mut Way { arena, egress, source, words });
        if let Some(home) = &mut station.home {
            home.unlend(self.more.pool.drain());
        }
        if self.more.any {
            let held = self.in_hand(&station.egress);
            station.set(station.layout.held, held);
        }
        done
    }

    /// Packets that are in this worker's hands when it rests between two batches.
    /// What was dropped and waits to be written down is counted as dropped.
    pub(crate) fn in_hand(&self, egress: &weir_port::Egress) -> u64 {
        let held = |n: &Node| n.nf.as_ref().map_or(0, |nf| nf.held());
        let nodes = self.nodes.iter().filter(|n| n.more.is_some());
        let waiting = self.more.backlog.iter().filter(|(lane, _)| !egress.is_dump(*lane));
        (nodes.map(held).sum::<usize>() + waiting.count()) as u64
    }

    /// The buffers of those packets.
    pub(crate) fn buffers_in_hand(&self) -> Vec<u32> {
        let mut buffers: Vec<u32> = self.more.backlog.iter().map(|b| b.1.entry().index()).collect();
        for nf in self.nodes.iter().filter_map(|n| n.nf.as_ref()) {
            nf.held_buffers(&mut buffers);
        }
        buffers
    }

    /// Sends what waits for room, as far as there is any; true when nothing waits any more. Each lane gets
    /// its packets in order.
    pub(crate) fn clear_backlog(&mut self, way: &mut Way<'_>) -> bool {
        let Beyond { backlog, full, waiting, later, .. } = &mut self.more;
        full.clear();
        (*waiting, *later) = (0, false);
        // Once around: what finds no room is behind the others then, in the order in which it was.
        for _ in 0..backlog.len() {
            let Some((lane, packet)) = backlog.pop_front() else { break };
            let sent = match full.contains(&lane) {
                true => Err(packet),
                false => way.egress.send(lane, packet),
            };
            if let Err(packet) = sent {
                if !full.contains(&lane) {
                    full.push(lane);
                }
                *waiting |= way.egress.lanes().get(lane).map_or(0, |lane| bit(lane.source));
                backlog.push_back((lane, packet));
            }
        }
        backlog.is_empty()
    }

    /// Promises what may be promised while packets wait: what comes before the first of a source that waits.
    pub(crate) fn pass_watermarks(&self, station: &mut Station) {
        if self.more.backlog.is_empty() {
            return station.pass_watermarks();
        }
        let mut first = [None::<Seq>; u64::BITS as usize];
        for (lane, packet) in &self.more.backlog {
            let lane = station.egress.lanes().get(*lane);
            if let Some(first) = lane.and_then(|lane| first.get_mut(lane.source)) {
                let seq = packet.entry().seq();
                *first = Some(first.map_or(seq, |first| first.min(seq)));
            }
        }
        station.pass_watermarks_before(|source| first.get(source).copied().flatten());
    }

    /// Calls timers that are due by the wall clock; `ended` has the bits of sources whose end was
    /// passed on. True when anything was sent; and in how many
    /// nanoseconds to call again.
    pub(crate) fn tick(
        &mut self,
        station: &mut Station,
        wall_ns: u64,
        ended: u64,
    ) -> (bool, Option<u64>) {
        // From which place on nothing of a source was sent yet.
        let sources = station.ingress.sources();
        let open = |s: usize| ended & (1 << s) == 0;
        let promise = |s| if open(s) { station.ingress.frontier(s) } else { None };
        let promised: Vec<Option<Seq>> = (0..sources).map(promise).collect();
        self.tick_nodes(station, wall_ns, &promised)
    }

    fn tick_nodes(
        &mut self,
        station: &mut Station,
        wall_ns: u64,
        promised: &[Option<Seq>],
    ) -> (bool, Option<u64>) {
        let (mut sent, mut next) = (false, None);
        for i in 0..self.nodes.len() {
            let Some(Node { nf: Some(_), more: Some(more), .. }) = self.nodes.get_mut(i) else {
                continue;
            };
            let others = (0..u64::BITS as usize).filter(|s| more.comes & (1 << s) != 0);
            let place = |s: usize| promised.get(s).copied().flatten().map(|seq| (s, seq));
            let first = std::iter::once(more.last_source);
            let Some((source, promised)) = first.chain(others).find_map(place) else { continue };
            // What it sends would have to wait behind what waits already.
            if self.more.waits(source) {
                continue;
            }
            // Not before what it was given last.
            let last = more.places.get(source).copied().unwrap_or(promised);
            let seq = if last.before(promised) { promised } else { last };
            // What it makes has the buffers of the source in whose stream it goes.
            let (sends, due) = self.with(station, source, |segment, way| {
                let Some(Node { nf: Some(nf), .. }) = segment.nodes.get_mut(i) else {
                    return (false, None);
                };
                let (pool, keys) = (&segment.more.pool, &segment.more.keys);
                let due = nf.tick(wall_ns, seq, Site { arena: way.arena, pool, keys });
                let sends = !nf.leaving().is_empty();
                if sends {
                    segment.send_off(i, way);
                }
                (sends, due)
            });
            next = [next, due].into_iter().flatten().min();
            sent |= sends;
        }
        (sent, next)
    }

    /// A source has ended, as have those whose bits are set in `ended`: tells the µNFs that get no
    /// packets any more, in the order of the graph, and sends what they still send. May be called
    /// again when there was no room for all of it. `reached`: how far it had come.
    pub(crate) fn end_source(
        &mut self,
        source: usize,
        ended: u64,
        reached: Option<Seq>,
        way: &mut Way<'_>,
    ) {
        for i in 0..self.nodes.len() {
            let Some(Node { nf: Some(nf), more: Some(more), .. }) = self.nodes.get_mut(i) else {
                continue;
            };
            if more.comes & !more.over & (1 << source) == 0 {
                continue;
            }
            let has_places = more.sources & (1 << source) != 0 && more.stands_in != Some(source);
            more.over |= 1 << source;
            more.sources &= !(1 << source);
            // Also one whose first packet is still to come: its worker may have begun late.
            if more.comes & !more.over & !ended != 0 {
                continue;
            }
            way.source = source;
            let site = Site { arena: way.arena, pool: &self.more.pool, keys: &self.more.keys };
            let last = more.places.get(source).copied().unwrap_or_default();
            // Where none of its packets came nothing goes before what it has come to.
            let reached = reached.filter(|_| !has_places);
            let place = reached.filter(|reached| last.before(*reached)).unwrap_or(last);
            nf.end(place, site);
            self.send_off(i, way);
        }
    }

    /// Sends what a µNF sent without being given a packet, all the way.
    fn send_off(&mut self, i: usize, way: &mut Way<'_>) {
        self.dispatch(i, &mut Vec::new(), way);
        self.verdicts.fill(Verdict::FIRST);
        self.carry_on(i + 1, way);
    }
}
