//! Workers that give away packets with places in the stream that they have not come to.
//!
//! A merge further on would wait for what cannot come ([`crate::places`]). Only while a worker stands still can it
//! be told beyond doubt: promises of those before it may be nonsense now and then, and would not stay the same.

use super::AUDIT_EVERY;
use crate::agent::{Agent, AgentError, State};
use crate::places::{claimed, is_judged, lanes_in, reached};
use std::time::Instant;
use weir_mem::Seq;

/// For how long a worker must have stood still so: looks in a row, a tenth of a second each.
const LOOKS: u32 = 4;
/// What is said of one that is to blame.
const AHEAD: &str = "gave packets places that it has not come to";

/// What was seen of a worker that seems to be ahead of what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    lane: usize,
    /// Entries given by that lane.
    head: u64,
    place: Seq,
    reached: Seq,
}

/// By worker: what was seen at the last looks, and at how many.
#[derive(Default)]
pub(super) struct Ahead {
    last: Option<(Seen, u32)>,
    /// When the domain was put right for it, nobody being named.
    audited: Option<Instant>,
}

impl Ahead {
    /// True when the same has been seen often enough.
    fn again(&mut self, seen: Option<Seen>) -> Option<Seen> {
        let seen = seen?;
        let looks = match self.last {
            Some((last, looks)) if last == seen => looks + 1,
            _ => 1,
        };
        self.last = Some((seen, looks));
        (looks >= LOOKS).then_some(seen)
    }
}

impl Agent {
    /// Names who has given a packet a place that it has not come to, and stands still since.
    pub(super) fn look_at_places(&mut self) -> Result<(), AgentError> {
        for w in 0..self.workers.len() {
            let watched = matches!(self.workers[w].state, State::Running(_))
                && self.setup.workers[w].runs_nfs()
                && self.liveness.is_ready(w)
                && !self.is_excused(w);
            let seen = if watched { self.is_ahead(w) } else { None };
            let ahead = &mut self.trust.records[w].ahead;
            if seen.is_none() {
                ahead.last = None;
            }
            let Some(seen) = ahead.again(seen) else { continue };
            if let Some(w) = self.who_gave(w, seen) {
                self.convict(w, AHEAD);
                continue;
            }
            let ahead = &mut self.trust.records[w].ahead;
            if ahead.audited.is_none_or(|at| at.elapsed() >= AUDIT_EVERY) {
                ahead.audited = Some(Instant::now());
                self.audit(self.setup.workers[w].domain)?;
            }
        }
        Ok(())
    }

    /// A lane by which worker `w` gave a packet last with a place that it has not come to.
    fn is_ahead(&self, w: usize) -> Option<Seen> {
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes).enumerate();
        let mut lanes =
            lanes.filter(|(_, (lane, _))| lane.from == w && is_judged(&self.setup, lane));
        lanes.find_map(|(l, (lane, ring))| {
            // What it gave first, then how far it has come: that can only become more.
            let head = ring.inspector.head();
            let packets = ring.inspector.unclaimed();
            let last = ring.inspector.last_published();
            let places = packets.iter().chain(&last).filter(|e| e.is_packet()).map(|e| e.seq());
            let place = places.reduce(|a, b| if a.before(b) { b } else { a })?;
            let reached = reached(&self.setup, &self.memory, w, lane.source)?;
            reached.before(place).then_some(Seen { lane: l, head, place, reached })
        })
    }

    /// Who gave a packet that place first, which `w` may have only passed on; `None` when that cannot be told.
    fn who_gave(&self, w: usize, seen: Seen) -> Option<usize> {
        let source = self.setup.lanes[seen.lane].source;
        let mut who = w;
        for _ in 0..self.workers.len() {
            let mut giver = None;
            let mut unknown = false;
            for (lane, ring) in lanes_in(&self.setup, &self.memory, who, source) {
                // What services give is right.
                if !self.setup.workers[lane.from].runs_nfs() {
                    continue;
                }
                let taken = claimed(ring);
                let mut taken = taken.iter().filter(|entry| entry.is_packet());
                if taken.any(|entry| !entry.seq().before(seen.place)) {
                    giver = Some(lane.from);
                }
                // What was taken out of a full ring has been written over.
                unknown |= ring.len() == ring.capacity();
            }
            match giver {
                Some(giver) => who = giver,
                None => return (!unknown).then_some(who),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_meanwhile_is_not_ahead() {
        let seq = Seq::new;
        let seen = |head| Some(Seen { lane: 0, head, place: seq(9), reached: seq(7) });
        let mut ahead = Ahead::default();
        assert!((1..LOOKS).all(|_| ahead.again(seen(4)).is_none()));
        assert_eq!(ahead.again(seen(4)), seen(4));
        assert_eq!(ahead.again(seen(5)), None);
    }
}
