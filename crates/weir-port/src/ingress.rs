//! How packets come in: from one lane, or merged from several in the order of their sequence.

use crate::doorbell::Doorbell;
use std::rc::Rc;
use weir_mem::fault::{self, Step};
use weir_mem::{Arena, Consumer, Entry, Marker, Owner, Seq, StreamEnd, packet};
use weir_packet::{BATCH, Packet};

/// One ring that leads here.
pub struct LaneIn {
    /// The ring.
    pub ring: Consumer<Entry>,
    /// Index of the packets' source.
    pub source: usize,
    /// Which node of the segment the lane's edge leads to.
    pub node: usize,
    /// Which input of that node.
    pub input: u8,
    /// Wakes the producer.
    pub bell: Rc<Doorbell>,
    ended: bool,
    rejected: u64,
    /// Promises that went back.
    broken: u64,
    promised: Option<Seq>,
}

impl LaneIn {
    /// A lane that has not ended.
    pub fn new(
        ring: Consumer<Entry>,
        source: usize,
        node: usize,
        input: u8,
        bell: Rc<Doorbell>,
    ) -> Self {
        let (ended, rejected, broken, promised) = (false, 0, 0, None);
        LaneIn { ring, source, node, input, bell, ended, rejected, broken, promised }
    }

    /// Everything that the producer cannot have written if it is sound: indices, entries, promises.
    pub fn nonsense(&self) -> u64 {
        self.ring.nonsense() + self.rejected + self.broken
    }

    /// The first entry. Passes over those that the agent has voided, and over ends of a stream that
    /// has not ended, whoever said so.
    fn head(&mut self, ends: &[StreamEnd]) -> Option<Entry> {
        loop {
            let head = self.ring.peek(0)?;
            match head.as_marker() {
                Some(Marker::Void) => {}
                Some(Marker::EndOfStream)
                    if ends.get(self.source).is_some_and(|end| !end.is_set()) =>
                {
                    self.rejected += 1;
                }
                _ => return Some(head),
            }
            self.ring.claim(1);
            if self.ring.available(1) == 0 {
                return None;
            }
        }
    }

    /// True when its end-of-stream marker has been reached.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Entries that were not packets of the arena: a producer wrote nonsense. They are claimed,
    /// counted and forgotten.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Sequence number of the head, or the watermark below which nothing follows; `None` after
    /// the end of the stream.
    fn frontier(&mut self, ends: &[StreamEnd]) -> Option<Frontier> {
        if self.ended {
            return None;
        }
        // The watermark first, then the ring: an empty ring then means that everything below the
        // watermark has been seen (Consumer::watermark).
        let mut watermark = self.ring.watermark();
        match self.promised {
            // A promise that goes back is none; the one before stands.
            Some(promised) if watermark.before(promised) => {
                self.broken = self.broken.saturating_add(1);
                watermark = promised;
            }
            _ => self.promised = Some(watermark),
        }
        if self.ring.available(1) == 0 {
            return Some(Frontier { seq: watermark, present: false });
        }
        let Some(head) = self.head(ends) else {
            return Some(Frontier { seq: watermark, present: false });
        };
        if head.as_marker() == Some(Marker::EndOfStream) {
            self.ended = true;
            return None;
        }
        Some(Frontier { seq: head.seq(), present: true })
    }
}

#[derive(Clone, Copy)]
struct Frontier {
    seq: Seq,
    present: bool,
}

/// What [`Ingress::pull`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Index of the source.
    pub source: usize,
    /// Index of the lane.
    pub lane: usize,
    /// Node that the packets are for.
    pub node: usize,
    /// Its input.
    pub input: u8,
}

/// All lanes into a worker.
///
/// Where a source reaches this worker by one lane, packets are taken as they come. Where it reaches
/// it by several, they are merged: a lane's head may be taken when no other lane of the source can
/// still bring an earlier packet, that is, when each other lane's head is later, or it is empty and
/// its watermark is not earlier, or it has ended. So packets of one source, and with them those of
/// a flow, leave a fan-in in the order in which they came from the device, however different the
/// paths between were. (Merging by watermarks: Akidau et al., "MillWheel", VLDB 2013.)
pub struct Ingress {
    lanes: Vec<LaneIn>,
    sources: Vec<Vec<usize>>,
    turn: usize,
    owner: Owner,
    touches: bool,
    ends: Vec<StreamEnd>,
    /// Packets of one source need not be in order.
    unordered: bool,
}

impl Ingress {
    /// The lanes into worker `owner`, from `sources` sources.
    pub fn new(lanes: Vec<LaneIn>, sources: usize, owner: Owner) -> Self {
        let mut by_source = vec![Vec::new(); sources];
        for (i, lane) in lanes.iter().enumerate() {
            if let Some(list) = by_source.get_mut(lane.source) {
                list.push(i);
            }
        }
        let (touches, ends, unordered) = (true, Vec::new(), false);
        Ingress { lanes, sources: by_source, turn: 0, owner, touches, ends, unordered }
    }

    /// Where each source's service says that it has ended. Without, markers alone are believed.
    pub fn set_ends(&mut self, ends: Vec<StreamEnd>) {
        self.ends = ends;
    }

    /// Says how far `source` has come, if this worker is its service.
    #[inline]
    pub fn say_progress(&self, source: usize, seq: Seq) {
        if let Some(end) = self.ends.get(source) {
            end.progress(seq);
        }
    }

    /// How far `source` has come, as its service says.
    pub fn reached(&self, source: usize) -> Option<Seq> {
        self.ends.get(source).map(StreamEnd::reached)
    }

    /// Says that `source` has ended, if this worker is its service.
    pub fn say_end(&self, source: usize) {
        if let Some(end) = self.ends.get(source) {
            end.set();
        }
    }

    /// Says whether the worker looks at packet bytes at all: if so, they are asked for early.
    pub fn set_touches(&mut self, touches: bool) {
        self.touches = touches;
    }

    /// Says that packets of one source are taken from each lane as they come.
    pub fn set_unordered(&mut self) {
        self.unordered = true;
    }

    /// The lanes.
    pub fn lanes(&self) -> &[LaneIn] {
        &self.lanes
    }

    /// Takes packets of the next source that has any, at most `room(source)` and [`BATCH`], claims
    /// them, and appends them to `out`.
    pub fn pull(
        &mut self,
        arena: &Arena,
        out: &mut Vec<Packet>,
        mut room: impl FnMut(usize) -> usize,
    ) -> Pull {
        let mut blocked = false;
        for _ in 0..self.sources.len() {
            let source = self.turn;
            self.turn = (self.turn + 1) % self.sources.len();
            if self.sources.get(source).is_none_or(Vec::is_empty) {
                continue;
            }
            let Some((lane, limit)) = self.ready(source) else {
                continue;
            };
            let room = room(source).min(BATCH);
            if room == 0 {
                blocked = true;
                continue;
            }
            if self.take(lane, limit, room, arena, out) > 0
                && let Some(l) = self.lanes.get(lane)
            {
                return Pull::Some(Pulled { source, lane, node: l.node, input: l.input });
            }
        }
        if blocked { Pull::Blocked } else { Pull::None }
    }

    /// The lane of `source` whose head may be taken now, and the first sequence number that may
    /// not (none: take what is there).
    fn ready(&mut self, source: usize) -> Option<(usize, Option<Seq>)> {
        let indices = self.sources.get(source)?;
        if let [only] = indices.as_slice() {
            let lane = self.lanes.get_mut(*only)?;
            if lane.ended || lane.ring.available(BATCH) == 0 {
                return None;
            }
            if lane.head(&self.ends)?.as_marker() == Some(Marker::EndOfStream) {
                lane.ended = true;
                return None;
            }
            return Some((*only, None));
        }
        if self.unordered {
            return self.any_ready(source);
        }
        let mut best: Option<(usize, Seq)> = None;
        let mut limit: Option<Seq> = None;
        for &i in indices {
            let Some(f) = self.lanes.get_mut(i).and_then(|l| l.frontier(&self.ends)) else {
                continue;
            };
            match best {
                Some((_, seq)) if !(f.present && f.seq.before(seq)) => {
                    limit = Some(limit.map_or(f.seq, |l| l.min(f.seq)));
                }
                _ if f.present => {
                    if let Some((_, seq)) = best {
                        limit = Some(limit.map_or(seq, |l| l.min(seq)));
                    }
                    best = Some((i, f.seq));
                }
                _ => limit = Some(limit.map_or(f.seq, |l| l.min(f.seq))),
            }
        }
        let (lane, seq) = best?;
        // A packet *at* another lane's frontier may go: equal numbers are copies of one packet.
        if limit.is_some_and(|l| l.before(seq)) { None } else { Some((lane, limit)) }
    }

    /// The fullest lane of `source` that has a packet, so that none is passed over for ever.
    fn any_ready(&mut self, source: usize) -> Option<(usize, Option<Seq>)> {
        let mut best: Option<(usize, usize)> = None;
        for &i in self.sources.get(source)? {
            let Some(lane) = self.lanes.get_mut(i).filter(|l| !l.ended) else { continue };
            let n = lane.ring.available(usize::MAX);
            if n == 0 || best.is_some_and(|(_, most)| most >= n) {
                continue;
            }
            match lane.head(&self.ends).map(|head| head.as_marker()) {
                Some(Some(Marker::EndOfStream)) => lane.ended = true,
                Some(_) => best = Some((i, n)),
                None => {}
            }
        }
        best.map(|(lane, _)| (lane, None))
    }

    fn take(
        &mut self,
        lane: usize,
        limit: Option<Seq>,
        room: usize,
        arena: &Arena,
        out: &mut Vec<Packet>,
    ) -> usize {
        let Some(lane) = self.lanes.get_mut(lane) else { return 0 };
        let (ring, owner) = (&mut lane.ring, self.owner);
        let n = match self.touches {
            true => packet::take::<true>(ring, arena, owner, limit, room, out),
            false => packet::take::<false>(ring, arena, owner, limit, room, out),
        };
        fault::step(Step::Owned);
        if n == 0 {
            // Neither a packet of this arena nor a marker that we know: nobody can use it. (A
            // packet beyond the limit is left alone.)
            let nonsense = |e: &Entry| e.as_marker().is_none() && !arena.admits(e);
            if lane.ring.peek(0).as_ref().is_some_and(nonsense) {
                lane.ring.claim(1);
                lane.rejected += 1;
            }
            return 0;
        }
        lane.ring.claim(n);
        fault::step(Step::Claimed);
        n
    }

    /// Promise for what leaves this worker: no packet of `source` before it will. `None` when the
    /// source has ended.
    pub fn frontier(&mut self, source: usize) -> Option<Seq> {
        let indices = self.sources.get(source)?;
        let mut least: Option<Seq> = None;
        for &i in indices {
            if let Some(f) = self.lanes.get_mut(i).and_then(|l| l.frontier(&self.ends)) {
                least = Some(least.map_or(f.seq, |l| l.min(f.seq)));
            }
        }
        least
    }

    /// True when every lane of `source` has ended (and there is one).
    pub fn source_ended(&mut self, source: usize) -> bool {
        let Some(indices) = self.sources.get(source) else {
            return false;
        };
        !indices.is_empty()
            && indices.iter().all(|&i| {
                self.lanes.get_mut(i).is_some_and(|l| l.frontier(&self.ends).is_none() && l.ended)
            })
    }

    /// Forgets what it remembers of its rings: the agent has put them right while this worker
    /// rested.
    pub fn resync(&mut self) {
        for lane in &mut self.lanes {
            lane.ring.resync();
            lane.promised = None;
        }
    }

    /// Number of sources.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Takes the end-of-stream markers of `source`, after they were passed on.
    pub fn finish(&mut self, source: usize) {
        for lane in self.lanes.iter_mut().filter(|l| l.source == source && l.ended) {
            lane.ring.available(1);
            if lane.ring.peek(0).and_then(|e| e.as_marker()) == Some(Marker::EndOfStream) {
                lane.ring.claim(1);
            }
        }
    }

    /// Takes what comes on lanes of `source` after their end, which only a producer that is not
    /// sound sends: left there, it would hold up whoever gives to that producer.
    pub fn take_late(&mut self, source: usize, arena: &Arena, out: &mut Vec<Packet>) {
        for i in self.sources.get(source).cloned().unwrap_or_default() {
            if self.lanes.get_mut(i).is_some_and(|l| l.ended && l.ring.available(1) > 0) {
                let before = out.len();
                self.take(i, None, BATCH, arena, out);
                if let Some(lane) = self.lanes.get_mut(i) {
                    // A marker again, which `take` leaves; a packet is no less wrong.
                    let marker = out.len() == before && lane.ring.available(1) > 0;
                    lane.ring.claim(usize::from(marker));
                    lane.rejected += 1;
                }
            }
        }
    }

    /// Wakes producers that wait for room.
    #[inline]
    pub fn wake_producers(&mut self) {
        for lane in &mut self.lanes {
            if lane.ring.producer_waits() {
                lane.bell.ring();
            }
        }
    }

    /// Says that this worker is going to sleep; true when there is something to do after all.
    pub fn sleep(&mut self) -> bool {
        let mut something = false;
        for lane in &mut self.lanes {
            lane.ring.sleep();
            something |= !lane.ended && lane.ring.refresh() > 0;
        }
        something
    }

    /// True when there is something to take.
    pub fn waits(&mut self) -> bool {
        self.lanes.iter_mut().any(|lane| !lane.ended && lane.ring.refresh() > 0)
    }

    /// Takes back [`Ingress::sleep`].
    pub fn wake(&mut self) {
        self.lanes.iter_mut().for_each(|l| l.ring.wake());
    }
}

/// Outcome of [`Ingress::pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Packets were taken.
    Some(Pulled),
    /// There are packets, but no room for them further on.
    Blocked,
    /// Nothing can be taken now.
    None,
}
