//! What a sound worker would do now, as far as it can be seen from outside: what it says of itself is
//! no proof that it does it.

use super::Agent;
use crate::setup::{LaneCarries, LaneSetup};
use weir_mem::{Entry, Marker, RingInspector, Seq};

/// What a worker could do at once, whatever the others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Duty {
    /// It has packets or an end to take, and room for them.
    Take,
    /// Others may wait for it to pass on a promise; by source, how far.
    Promise(Vec<Option<Seq>>),
}

impl Agent {
    /// What worker `w` could do at once.
    pub(super) fn duty(&self, w: usize) -> Option<Duty> {
        if self.can_take(w) || self.can_answer(w) {
            return Some(Duty::Take);
        }
        let owed: Vec<_> = (0..self.setup.sources).map(|source| self.owes(w, source)).collect();
        owed.iter().any(Option::is_some).then_some(Duty::Promise(owed))
    }

    /// True when worker `w` is a branch of a parallel stage that has taken packets lent to it, and has room to answer
    /// for them. Answers stand at the places of what they answer.
    fn can_answer(&self, w: usize) -> bool {
        let lanes = || self.setup.lanes.iter().zip(&self.memory.lanes);
        lanes().any(|(loan, lent)| {
            let LaneCarries::Loans { of } = loan.carries else { return false };
            loan.to == w
                && lanes().any(|(answer, ring)| {
                    let answers =
                        matches!(answer.carries, LaneCarries::Answers { on, .. } if on == of);
                    let room = ring.inspector.len() < ring.inspector.capacity();
                    answers
                        && answer.from == w
                        && room
                        && lent.inspector.tail() > ring.inspector.head()
                })
        })
    }

    /// True while worker `w` has not passed on some of these promises.
    pub(super) fn still_owes(&self, w: usize, owed: &[Option<Seq>]) -> bool {
        (0..self.setup.sources)
            .zip(owed)
            .any(|(source, owed)| owed.is_some_and(|owed| self.promises_less(w, source, owed)))
    }

    /// How far the lanes of `source` into worker `w` have come, when it has not passed that on to
    /// somebody whom it matters to.
    fn owes(&self, w: usize, source: u16) -> Option<Seq> {
        let reached = frontier(self.fronts(w, source).into_iter().map(|(_, front)| front))?;
        // What waits for room in it goes before any promise, and only itself can count that.
        if self.sends_later(w) {
            return None;
        }
        self.promises_less(w, source, reached).then_some(reached)
    }

    fn promises_less(&self, w: usize, source: u16, than: Seq) -> bool {
        let mut lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        lanes.any(|(lane, ring)| {
            let concerns = lane.from == w && lane.source == source && lane.ordered;
            // Who has passed on the end need not promise any more.
            let ended = || {
                let last = ring.inspector.last_published().and_then(|entry| entry.as_marker());
                last == Some(Marker::EndOfStream)
            };
            concerns && ring.inspector.watermark().before(than) && !ended()
        })
    }

    /// True when worker `w` makes packets, or sends those that it took later.
    pub(super) fn sends_later(&self, w: usize) -> bool {
        let worker = &self.setup.workers[w];
        worker.creates || worker.holders > 0
    }

    /// True when worker `w` may have no room for a packet of `source`.
    fn is_blocked(&self, w: usize, source: u16) -> bool {
        let mut lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        lanes.any(|(lane, ring)| {
            let full = || ring.inspector.len() >= ring.inspector.capacity();
            lane.from == w && lane.source == source && !lane.closes && full()
        })
    }

    /// True when a worker that makes or holds packets may wait for room for those that it has, or for
    /// free buffers. What the others do can only make that falser.
    fn may_wait(&self, w: usize) -> bool {
        let mut lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        let full = |ring: &RingInspector<Entry>| ring.len() >= ring.capacity();
        lanes.any(|(lane, ring)| lane.from == w && !lane.closes && full(&ring.inspector))
            || self.may_lack_buffers(w)
    }

    /// True when worker `w` makes packets, and may have no buffers for those of some source.
    fn may_lack_buffers(&self, w: usize) -> bool {
        self.setup.workers[w].creates && !self.has_buffers(w)
    }

    /// True when worker `w` has free buffers beyond doubt: half of its pool, or of the share of each source that packets
    /// come of, as more are never waited for; whose share a buffer is of is not looked at. What lies in its rings it cannot
    /// hide; what it has taken out of them is its own word.
    fn has_buffers(&self, w: usize) -> bool {
        let Some(p) = self.memory.pools.iter().position(|pool| pool.worker == w) else {
            return false;
        };
        let worker = &self.memory.workers[w];
        // First its word: what it takes out of a ring meanwhile is then missed, not counted twice.
        let words = worker.ledger.read();
        let own = words.and_then(|words| words.get(worker.layout.free).copied()).unwrap_or(0);
        let back = self.memory.returns_to(p).map(|(_, ring)| ring.inspector.len());
        let back = back.sum::<u64>() + self.memory.pools[p].allocation.inspector.len();
        let all = 1u64 << self.memory.pool_bits;
        let away = all / u64::from(self.setup.shares(w)) / 2;
        own.saturating_add(back) >= all - away
    }

    /// What the lanes of `source` that worker `w` takes packets from have in front.
    fn fronts(&self, w: usize, source: u16) -> Vec<(usize, Front)> {
        let lanes = self.setup.lanes.iter().enumerate();
        let taken_from = |lane: &LaneSetup| {
            lane.brings(w, source) && !matches!(lane.carries, LaneCarries::Answers { .. })
        };
        let lanes = lanes.filter(|(_, lane)| taken_from(lane));
        lanes.map(|(l, _)| (l, self.front(l))).collect()
    }

    /// What lane `l` has in front. What the branches of a parallel stage have not answered on yet is as good
    /// as promised.
    fn front(&self, l: usize) -> Front {
        let inspector = &self.memory.lanes[l].inspector;
        // First how far they have: what they say later can only make more true.
        let on =
            |lane: &LaneSetup| matches!(lane.carries, LaneCarries::Answers { on, .. } if on == l);
        let answers = self.setup.lanes.iter().zip(&self.memory.lanes);
        let heads = answers.filter(|(lane, _)| on(lane)).map(|(_, ring)| ring.inspector.head());
        let heads: Vec<u64> = heads.collect();
        let taken = inspector.tail();
        let answered = heads.iter().all(|head| head.wrapping_sub(taken) as i64 > 0);
        match front(inspector) {
            Front::Packet(seq) if !answered => Front::Promise(seq),
            Front::End if !answered => Front::Promise(inspector.watermark()),
            front => front,
        }
    }

    /// The lanes that worker `w` takes from next, each of its source: what is in front of them may be taken,
    /// there is room further on, and nothing of that source goes before it. None of a worker that may wait for buffers: it takes
    /// of other sources what the one that it waits for has none for.
    pub(super) fn next_lanes(&self, w: usize) -> Vec<usize> {
        let mut next = Vec::new();
        if self.may_lack_buffers(w) {
            return next;
        }
        for source in 0..self.setup.sources {
            let fronts = self.fronts(w, source);
            if !self.is_blocked(w, source) {
                next.extend(first_of(&fronts));
            }
        }
        next
    }

    /// True when worker `w` has packets before it that it may take in their order, and room further
    /// on. What the others do can only make that truer.
    pub(super) fn can_take(&self, w: usize) -> bool {
        if self.sends_later(w) && self.may_wait(w) {
            return false;
        }
        (0..self.setup.sources).any(|source| {
            let fronts = self.fronts(w, source);
            let fronts: Vec<Front> = fronts.into_iter().map(|(_, front)| front).collect();
            let only_ends = fronts.iter().all(|front| *front == Front::End);
            may_take(&fronts)
                && !self.is_blocked(w, source)
                && !(only_ends && self.may_come_back(w, source))
        })
    }
}

/// What a lane has for its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    /// A packet with this place in the stream.
    Packet(Seq),
    /// Nothing, and nothing before this follows.
    Promise(Seq),
    /// Its end.
    End,
    /// What is no packet: its consumer has to say what of.
    Unknown,
}

/// What is at the front of a lane. The promise is read before the ring, as consumers do.
fn front(ring: &RingInspector<Entry>) -> Front {
    let promise = ring.watermark();
    match ring.first() {
        None => Front::Promise(promise),
        Some(entry) => match entry.as_marker() {
            Some(Marker::EndOfStream) => Front::End,
            Some(_) => Front::Unknown,
            None => Front::Packet(entry.seq()),
        },
    }
}

/// Whether a packet or the end of a source may be taken, whose lanes have this in front: a merge waits for
/// what may still come before it.
fn may_take(fronts: &[Front]) -> bool {
    let packets = fronts.iter().filter_map(|f| match f {
        Front::Packet(seq) => Some(*seq),
        _ => None,
    });
    let Some(first) = packets.reduce(Seq::min) else {
        return !fronts.is_empty() && fronts.iter().all(|f| *f == Front::End);
    };
    fronts.len() == 1
        || fronts.iter().all(|f| match f {
            Front::Packet(_) | Front::End => true,
            Front::Promise(seq) => !seq.before(first),
            Front::Unknown => false,
        })
}

/// The lanes of a source that have the earliest packet in front, if that may be taken.
fn first_of(fronts: &[(usize, Front)]) -> Vec<usize> {
    if !may_take(&fronts.iter().map(|(_, front)| *front).collect::<Vec<_>>()) {
        return Vec::new();
    }
    let seq = |front: Front| match front {
        Front::Packet(seq) => Some(seq),
        _ => None,
    };
    let earliest = fronts.iter().filter_map(|(_, front)| seq(*front)).reduce(Seq::min);
    let is_first = |(_, front): &&(usize, Front)| seq(*front).is_some_and(|s| Some(s) == earliest);
    fronts.iter().filter(is_first).map(|(lane, _)| *lane).collect()
}

/// Before what nothing of a source follows, whose lanes have this in front; `None` when it has ended, or
/// that cannot be told.
fn frontier(fronts: impl Iterator<Item = Front>) -> Option<Seq> {
    let mut least: Option<Seq> = None;
    for front in fronts {
        match front {
            Front::Packet(seq) | Front::Promise(seq) => {
                least = Some(least.map_or(seq, |least| least.min(seq)));
            }
            Front::End => {}
            Front::Unknown => return None,
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::Front::{End, Packet, Promise, Unknown};
    use super::*;

    #[test]
    fn packets_may_be_taken_when_nothing_before_them_can_still_come() {
        let seq = Seq::new;
        let may = may_take;
        assert!(may(&[Packet(seq(7))]) && !may(&[Promise(seq(7))]));
        // The end is taken when all lanes have it.
        assert!(may(&[End]) && may(&[End, End]) && !may(&[End, Promise(seq(7))]));
        assert!(!may(&[]) && !may(&[Unknown]));
        // Of a merge: what the other lanes promise decides.
        assert!(may(&[Packet(seq(7)), Packet(seq(3)), End]));
        assert!(may(&[Packet(seq(7)), Promise(seq(7))]));
        assert!(!may(&[Packet(seq(7)), Promise(seq(6))]));
        assert!(may(&[Packet(seq(7)), Promise(seq(4)), Packet(seq(4))]));
        assert!(!may(&[Packet(seq(7)), Unknown]));
    }

    #[test]
    fn the_lanes_with_the_earliest_packet_are_taken_from_next() {
        let seq = Seq::new;
        let first =
            |fronts: &[Front]| first_of(&fronts.iter().copied().enumerate().collect::<Vec<_>>());
        assert_eq!(first(&[Packet(seq(7))]), [0]);
        assert_eq!(first(&[Packet(seq(7)), Packet(seq(3)), End]), [1]);
        // Copies of one packet: either may go first.
        assert_eq!(first(&[Packet(seq(3)), Packet(seq(3)), Packet(seq(9))]), [0, 1]);
        // Something earlier may still come, or there is no packet.
        assert!(first(&[Packet(seq(7)), Promise(seq(6))]).is_empty());
        assert!(first(&[End, End]).is_empty() && first(&[]).is_empty());
    }

    #[test]
    fn a_source_has_come_as_far_as_its_latest_lane() {
        let seq = Seq::new;
        let reached = |fronts: &[Front]| frontier(fronts.iter().copied());
        assert_eq!(reached(&[Packet(seq(9)), Promise(seq(4)), End]), Some(seq(4)));
        assert_eq!(reached(&[Promise(seq(9)), Packet(seq(4))]), Some(seq(4)));
        assert_eq!((reached(&[]), reached(&[End])), (None, None));
        assert_eq!(reached(&[Promise(seq(9)), Unknown]), None);
    }
}
