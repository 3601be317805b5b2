//! What comes back around a cycle.
//!
//! Lanes by which packets come around a cycle take no part in any merge: who waited for them would wait for itself. They
//! are those of edges that close cycles, and those behind such an edge that a source's packets reach in no
//! other way. What comes by them was in its source's stream before and has given that place up (promises have passed it), so it
//! gets the place that the stream has reached: behind it nothing earlier follows, and what leaves this worker is in
//! sequence as ever. (As what a µNF has held and releases.)
//!
//! That a source has ended all around a cycle no lane can tell. The agent sees it from outside, and says it
//! ([`Ingress::end_cycles`]).

use super::{Ingress, LaneIn, Pulled};
use weir_mem::{Arena, Marker, Seq};
use weir_packet::{BATCH, Packet};

/// Batches in a row that are taken of what comes back, before one of what comes new. The former has
/// cost work already, so that it should not find its lane full; the latter must not wait for ever.
const TURNS: u32 = 8;

/// The lanes by which packets come around cycles.
pub(super) struct Back {
    /// Indices of the lanes.
    pub(super) lanes: Vec<usize>,
    /// Which of them is next.
    turn: usize,
    /// Batches taken in a row.
    taken: u32,
    /// By source: the furthest place that packets came from.
    places: Vec<Seq>,
    /// Nothing comes back any more that anybody waits for.
    over: bool,
}

impl Back {
    pub(super) fn of(lanes: &[LaneIn], sources: usize) -> Self {
        let lanes: Vec<usize> =
            lanes.iter().enumerate().filter(|(_, lane)| lane.back).map(|(i, _)| i).collect();
        let places = vec![Seq::default(); if lanes.is_empty() { 0 } else { sources }];
        Back { lanes, turn: 0, taken: 0, places, over: false }
    }

    /// New packets of `source` have come, up to `last`.
    pub(super) fn came(&mut self, source: usize, last: Option<&Packet>) {
        self.taken = 0;
        if let (Some(place), Some(last)) = (self.places.get_mut(source), last) {
            *place = later(*place, last.entry().seq());
        }
    }

    /// True when packets of `source` come around a cycle.
    pub(super) fn brings(&self, source: usize, lanes: &[LaneIn]) -> bool {
        let of_source = |i: &usize| lanes.get(*i).is_some_and(|lane| lane.source == source);
        self.lanes.iter().any(of_source)
    }

    /// True when no packets of `source` come back any more.
    pub(super) fn is_over(&self, source: usize, lanes: &[LaneIn]) -> bool {
        self.over || !self.brings(source, lanes)
    }
}

fn later(a: Seq, b: Seq) -> Seq {
    if a.before(b) { b } else { a }
}

impl Ingress {
    /// Takes packets that come back around a cycle, as [`Ingress::pull`] takes others. `None` when there
    /// are none, no room, or when it is the others' turn. To be called before it.
    pub fn pull_back(
        &mut self,
        arena: &Arena,
        out: &mut Vec<Packet>,
        mut room: impl FnMut(usize) -> usize,
    ) -> Option<Pulled> {
        if self.back.taken >= TURNS {
            self.back.taken = 0;
            return None;
        }
        for _ in 0..self.back.lanes.len() {
            let lane = *self.back.lanes.get(self.back.turn)?;
            self.back.turn = (self.back.turn + 1) % self.back.lanes.len();
            let source = self.lanes.get(lane)?.source;
            let room = room(source).min(BATCH);
            let before = out.len();
            if room == 0 || !self.has_back(lane) || self.take(lane, None, room, arena, out) == 0 {
                continue;
            }
            let place = self.place(source);
            for packet in out.get_mut(before..).into_iter().flatten() {
                *packet.entry_mut() = packet.entry().with_seq(place);
            }
            self.back.taken += 1;
            let l = self.lanes.get(lane)?;
            return Some(Pulled { source, lane, node: l.node, input: l.input });
        }
        None
    }

    /// True when a packet is in front of such a lane. An end of its source is nonsense there.
    fn has_back(&mut self, lane: usize) -> bool {
        let Some(lane) = self.lanes.get_mut(lane) else { return false };
        while lane.ring.available(BATCH) > 0 {
            match lane.head(&self.ends).map(|head| head.as_marker()) {
                Some(Some(Marker::EndOfStream)) => {
                    lane.ring.claim(1);
                    lane.rejected += 1;
                }
                Some(_) => return true,
                None => return false,
            }
        }
        false
    }

    /// The place that `source` has reached here: nothing before it follows.
    fn place(&mut self, source: usize) -> Seq {
        let reached = self.frontier(source).unwrap_or_default();
        let Some(place) = self.back.places.get_mut(source) else { return reached };
        *place = later(*place, reached);
        *place
    }

    /// True when packets may come back around a cycle.
    pub fn comes_back(&self) -> bool {
        !self.back.lanes.is_empty()
    }

    /// Nothing is under way around a cycle any more: sources end when all other lanes have ended.
    pub fn end_cycles(&mut self) {
        self.back.over = true;
    }

    /// Takes what comes back of `source` after its end: what a µNF held until then.
    pub fn take_back_late(&mut self, source: usize, arena: &Arena, out: &mut Vec<Packet>) {
        for lane in self.back.lanes.clone() {
            let is_of = self.lanes.get(lane).is_some_and(|lane| lane.source == source);
            if is_of && self.has_back(lane) {
                self.take(lane, None, BATCH, arena, out);
            }
        }
    }
}
