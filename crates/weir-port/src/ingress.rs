//! How packets come in: from one lane, or merged from several in the order of their sequence.

mod back;
mod lane;
mod marks;

pub use self::lane::{LaneIn, UNSAID};

use self::back::Back;
use self::lane::{Frontier, can_be};
use crate::broken;
use crate::sync::{Answer, Carries, Sync};
use weir_mem::fault::{self, Step};
use weir_mem::{Arena, Entry, Marker, Owner, Seq, StreamEnd, packet};
use weir_packet::{BATCH, Packet};

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
    syncs: Vec<Sync>,
    answers: Vec<Answer>,
    owner: Owner,
    touches: bool,
    /// The packets are somebody else's: nothing is written into their owner words.
    borrows: bool,
    ends: Vec<StreamEnd>,
    /// Packets of one source need not be in order.
    unordered: bool,
    back: Back,
}

impl Ingress {
    /// The lanes into worker `owner`, from `sources` sources.
    pub fn new(lanes: Vec<LaneIn>, sources: usize, owner: Owner) -> Self {
        let mut lanes = lanes;
        let syncs = Sync::of(&mut lanes);
        let mut by_source = vec![Vec::new(); sources];
        let is_merged =
            |lane: &LaneIn| !lane.back && !matches!(lane.carries, Carries::Answers { .. });
        for (i, lane) in lanes.iter().enumerate().filter(|(_, lane)| is_merged(lane)) {
            if let Some(list) = by_source.get_mut(lane.source) {
                list.push(i);
            }
        }
        let (touches, ends, unordered) = (true, Vec::new(), false);
        let borrows = lanes.iter().any(|lane| lane.carries == Carries::Loans);
        let back = Back::of(&lanes, sources);
        let (sources, turn, answers) = (by_source, 0, Vec::new());
        Ingress {
            lanes,
            sources,
            turn,
            syncs,
            answers,
            owner,
            touches,
            borrows,
            ends,
            unordered,
            back,
        }
    }

    /// What a parallel stage's branches say of the packets that were pulled last, if those came from one: as
    /// many as packets. Whoever uses it empties it.
    #[inline(always)]
    pub fn answers(&mut self) -> &mut Vec<Answer> {
        &mut self.answers
    }

    /// True when the head of `lane` may be taken as far as a parallel stage's branches are concerned.
    #[inline(always)]
    fn is_answered(&mut self, lane: usize) -> bool {
        match self.lanes.get(lane).and_then(|lane| lane.sync) {
            None => true,
            Some(_) => self.answered(lane, 1) > 0,
        }
    }

    /// How many of the next entries of `lane` may be taken so, looked up to `want`.
    fn answered(&mut self, lane: usize, want: usize) -> usize {
        let sync = self.lanes.get(lane).filter(|lane| !lane.ended).and_then(|lane| lane.sync);
        match sync.and_then(|sync| self.syncs.get(sync)) {
            None => want,
            Some(sync) => sync.answered(&mut self.lanes, want),
        }
    }

    /// As [`LaneIn::frontier`].
    fn frontier_of(&mut self, lane: usize) -> Option<Frontier> {
        let answered = self.is_answered(lane);
        self.lanes.get_mut(lane)?.frontier(&self.ends, answered)
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

    /// Says what time stamp the latest packet has that is about to be sent, if this worker is its service.
    #[inline]
    pub fn say_time(&self, source: usize, time_ns: u64) {
        if let Some(end) = self.ends.get(source) {
            end.say_time(time_ns);
        }
    }

    /// The time stamp that `source` has come to, as its service says.
    pub fn time_of(&self, source: usize) -> Option<u64> {
        self.ends.get(source).map(StreamEnd::time)
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

    /// True when packets that come are lent, to a branch of a parallel stage: they belong to somebody else.
    pub fn borrows(&self) -> bool {
        self.borrows
    }

    /// The lanes.
    pub fn lanes(&self) -> &[LaneIn] {
        &self.lanes
    }

    /// Takes packets of the next source that has any, at most `room(source)` and [`BATCH`], claims
    /// them, and appends them to `out`.
    #[inline]
    pub fn pull(
        &mut self,
        arena: &Arena,
        out: &mut Vec<Packet>,
        room: impl FnMut(usize) -> usize,
    ) -> Pull {
        self.pull_up_to(arena, out, room, |_, _, room| room)
    }

    /// As [`Ingress::pull`]; `may` says of a lane how many of the next entries may be taken, of so many
    /// at most.
    #[inline]
    fn pull_up_to(
        &mut self,
        arena: &Arena,
        out: &mut Vec<Packet>,
        mut room: impl FnMut(usize) -> usize,
        mut may: impl FnMut(&mut LaneIn, usize, usize) -> usize,
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
            let room = self.lanes.get_mut(lane).map_or(0, |l| may(l, lane, room));
            if room == 0 {
                blocked = true;
                continue;
            }
            if self.take(lane, limit, room, arena, out) > 0
                && let Some(l) = self.lanes.get(lane)
            {
                if !self.back.lanes.is_empty() {
                    self.back.came(source, out.last());
                }
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
            if lane.is_over() || lane.ring.available(BATCH) == 0 {
                return None;
            }
            let head = lane.head(&self.ends)?;
            if lane.sync.is_some() {
                return self.ready_in_stage(source);
            }
            match head.as_marker() {
                Some(Marker::EndOfStream) => {
                    lane.ended = true;
                    return None;
                }
                Some(Marker::Moved) => return None,
                _ => return Some((*only, None)),
            }
        }
        if self.unordered {
            return self.any_ready(source);
        }
        let mut best: Option<(usize, Seq)> = None;
        let mut limit: Option<Seq> = None;
        for k in 0..indices.len() {
            let Some(&i) = self.sources.get(source).and_then(|list| list.get(k)) else { continue };
            let Some(f) = self.frontier_of(i) else { continue };
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

    /// As [`Ingress::ready`], of a source whose only lane is a parallel stage's.
    #[inline(never)]
    fn ready_in_stage(&mut self, source: usize) -> Option<(usize, Option<Seq>)> {
        let lane = *self.sources.get(source)?.first()?;
        let frontier = self.frontier_of(lane)?;
        frontier.present.then_some((lane, None))
    }

    /// The fullest lane of `source` that has a packet, so that none is passed over for ever.
    fn any_ready(&mut self, source: usize) -> Option<(usize, Option<Seq>)> {
        let mut best: Option<(usize, usize)> = None;
        for &i in self.sources.get(source)? {
            let Some(lane) = self.lanes.get_mut(i) else { continue };
            if lane.is_over() {
                continue;
            }
            let n = lane.ring.available(usize::MAX);
            if n == 0 || best.is_some_and(|(_, most)| most >= n) {
                continue;
            }
            match lane.head(&self.ends).map(|head| head.as_marker()) {
                Some(Some(Marker::EndOfStream)) => lane.ended = true,
                Some(Some(Marker::Moved)) => {}
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
        let Some(l) = self.lanes.get(lane) else { return 0 };
        match l.sync {
            None => self.take_up_to(lane, limit, room, arena, out),
            Some(sync) => self.take_answered((lane, sync), limit, room, arena, out),
        }
    }

    /// As [`Ingress::take`], with the branches' answers.
    #[inline(never)]
    fn take_answered(
        &mut self,
        (lane, sync): (usize, usize),
        limit: Option<Seq>,
        room: usize,
        arena: &Arena,
        out: &mut Vec<Packet>,
    ) -> usize {
        let room = self.answered(lane, room);
        let before = out.len();
        let n = self.take_up_to(lane, limit, room, arena, out);
        self.answers.clear();
        if let (Some(sync), Some(packets)) = (self.syncs.get(sync), out.get(before..)) {
            sync.judge(&mut self.lanes, packets, &mut self.answers);
            sync.catch_up(&mut self.lanes);
        }
        n
    }

    fn take_up_to(
        &mut self,
        lane: usize,
        limit: Option<Seq>,
        room: usize,
        arena: &Arena,
        out: &mut Vec<Packet>,
    ) -> usize {
        let Some(lane) = self.lanes.get_mut(lane) else { return 0 };
        let (ring, owner) = (&mut lane.ring, self.owner);
        let n = match (self.borrows, self.touches) {
            (true, _) => packet::borrow(ring, arena, room, out),
            (false, true) => packet::take::<true>(ring, arena, owner, limit, room, out),
            (false, false) => packet::take::<false>(ring, arena, owner, limit, room, out),
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
    /// source has ended. Never more than the source has sent, whatever places the packets have that wait here: who
    /// passes on a promise that cannot be is taken for whoever made it up.
    pub fn frontier(&mut self, source: usize) -> Option<Seq> {
        let mut least: Option<Seq> = None;
        for k in 0..self.sources.get(source)?.len() {
            let lane = self.sources.get(source).and_then(|list| list.get(k)).copied();
            if let Some(f) = lane.and_then(|lane| self.frontier_of(lane)) {
                least = Some(least.map_or(f.seq, |l| l.min(f.seq)));
            }
        }
        if least.is_some_and(|least| !can_be(&self.ends, source, least)) {
            return self.reached(source);
        }
        // What still comes around a cycle gets the last place that there is.
        least.or_else(|| match self.back.is_over(source, &self.lanes) {
            true => None,
            false => self.reached(source),
        })
    }

    /// True when every lane of `source` has ended (and there is one).
    pub fn source_ended(&mut self, source: usize) -> bool {
        let n = self.sources.get(source).map_or(0, Vec::len);
        (n > 0 || self.back.brings(source, &self.lanes))
            && self.back.is_over(source, &self.lanes)
            && (0..n).all(|k| {
                let lane = self.sources.get(source).and_then(|list| list.get(k)).copied();
                let Some(lane) = lane else { return false };
                self.frontier_of(lane).is_none() && self.lanes.get(lane).is_some_and(|l| l.ended)
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

    /// Takes the end-of-stream markers of `source`, after they were passed on: by this worker, or by a predecessor
    /// that died before it had taken all of them. All lanes have ended then, those too whose marker is gone.
    pub fn finish(&mut self, source: usize) {
        // No ends come around a cycle.
        for lane in self.lanes.iter_mut().filter(|l| l.source == source && !l.back) {
            (lane.ended, lane.finished) = (true, true);
            lane.ring.available(1);
            if lane.ring.peek(0).and_then(|e| e.as_marker()) == Some(Marker::EndOfStream) {
                lane.ring.claim(1);
                fault::step(Step::Claimed);
            }
        }
        self.syncs.iter().for_each(|sync| sync.catch_up(&mut self.lanes));
    }

    /// Takes what comes on lanes of `source` after their end, which only a producer that is not
    /// sound sends: left there, it would hold up whoever gives to that producer. True when there was any.
    pub fn take_late(&mut self, source: usize, arena: &Arena, out: &mut Vec<Packet>) -> bool {
        let mut any = false;
        for i in self.sources.get(source).cloned().unwrap_or_default() {
            if self.lanes.get_mut(i).is_some_and(|l| l.ended && l.ring.available(1) > 0) {
                let before = out.len();
                self.take(i, None, BATCH, arena, out);
                if let Some(lane) = self.lanes.get_mut(i) {
                    // A marker again, which `take` leaves; a packet is no less wrong.
                    let marker = out.len() == before && lane.ring.available(1) > 0;
                    lane.ring.claim(usize::from(marker));
                    lane.rejected += 1;
                    any = true;
                }
            }
        }
        // Nobody is given what comes late.
        self.answers.clear();
        any
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
        // All before any is looked at: a packet that is there may wait for another lane's answer.
        if broken::is("sleep") {
            let waits = self.waits();
            self.lanes.iter_mut().for_each(|lane| lane.ring.sleep());
            return waits;
        }
        self.lanes.iter_mut().for_each(|lane| lane.ring.sleep());
        self.waits()
    }

    /// True when there is something to take.
    pub fn waits(&mut self) -> bool {
        (0..self.lanes.len()).any(|i| {
            let Some(lane) = self.lanes.get_mut(i) else { return false };
            let is_answers = matches!(lane.carries, Carries::Answers { .. });
            let any = lane.ring.refresh() > 0;
            any && !lane.is_over() && !is_answers && self.is_answered(i)
        })
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
