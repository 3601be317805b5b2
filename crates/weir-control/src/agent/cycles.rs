//! The end of what goes around a cycle. A lane's end says that nothing follows by it; around a cycle each would wait
//! for the others'. So lanes by which packets come around one have none, and the agent says when there is nothing under way any more:
//! when all sources have ended, all lanes are empty but for ends, nobody is in the middle of a batch, and all of that
//! was so at one moment.
//!
//! That moment: no worker has committed anything between two readings of all ledgers' generations, and in between
//! every lane was seen empty and every record equal to its rings. Whatever fills a lane is committed first, so a
//! lane that was seen empty is empty still at the second reading; and who has claimed packets that its record does not
//! have yet is in the middle of a batch. (Termination of a distributed computation by two looks at counters:
//! Mattern, Distributed Computing, 1987.)

use super::{Agent, State};
use crate::setup::LaneSetup;
use std::time::{Duration, Instant};
use weir_mem::{Entry, Marker, RingInspector, StreamEnd};
use weir_runtime::spec::command;

/// How often the agent looks.
const EVERY: Duration = Duration::from_millis(20);

/// After all sources have ended nothing may have moved for so long before somebody is named who keeps the run from
/// its end.
const LONG: Duration = Duration::from_secs(5);

/// What the agent knows of the graph's cycles.
#[derive(Default)]
pub(super) struct Cycles {
    looked: Option<Instant>,
    /// Generations of all ledgers when nothing was seen under way.
    quiet: Option<Vec<u64>>,
    /// All ledgers' generations at the last look.
    seen: Vec<u64>,
    /// What had been given and taken then, of all lanes, and since when that has not changed.
    moved: (u64, Option<Instant>),
    /// Whoever takes what comes around was told that nothing does any more.
    pub(super) ended: bool,
}

impl Agent {
    /// Tells those to whom packets come around a cycle that nothing is under way there any more, when that is
    /// so.
    pub(super) fn end_cycles(&mut self) {
        let passed = self.cycles.looked.is_none_or(|at| at.elapsed() >= EVERY);
        if self.cycles.ended || !passed || !self.setup.lanes.iter().any(|lane| lane.back) {
            return;
        }
        self.cycles.looked = Some(Instant::now());
        if !self.all_sources_ended() {
            return;
        }
        let generations = self.generations();
        let quiet = self.nothing_is_under_way() && self.generations() == generations;
        let before = std::mem::replace(&mut self.cycles.quiet, quiet.then(|| generations.clone()));
        // Twice, at some distance: what waits for room in a worker's hands it sends meanwhile.
        if quiet && before == self.cycles.quiet {
            self.cycles.ended = true;
            for w in 0..self.workers.len() {
                self.tell_of_cycles(w);
            }
            return;
        }
        let seen = std::mem::replace(&mut self.cycles.seen, generations);
        self.hurry(&seen);
    }

    /// Names who keeps a run from its end: all sources have ended, nothing has moved in any lane for long, and still
    /// one that has nothing before it commits, or has a record that cannot be. (Who is in the middle of a batch for so long
    /// hangs, and is ended for that.) `seen`: generations at the look before.
    fn hurry(&mut self, seen: &[u64]) {
        let lanes = self.memory.lanes.iter().map(|ring| &ring.inspector);
        let moved = lanes.map(|i| i.head().wrapping_add(i.tail())).fold(0, u64::wrapping_add);
        match self.cycles.moved {
            (before, Some(since)) if before == moved && since.elapsed() > LONG => {}
            (before, Some(_)) if before == moved => return,
            _ => return self.cycles.moved = (moved, Some(Instant::now())),
        }
        self.cycles.moved.1 = None;
        let empty = |w: usize| {
            let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
            let mut lanes = lanes.filter(|(lane, _)| lane.to == w || lane.from == w);
            lanes.all(|(lane, ring)| !lane.has_packets() || only_ends(&ring.inspector))
        };
        let moves = |w: usize| {
            let now = self.memory.workers[w].ledger.generation();
            seen.get(w).is_some_and(|then| *then != now)
        };
        let lag: Vec<usize> = self.laggards().collect();
        let who = (0..self.workers.len()).find(|&w| {
            self.setup.workers[w].runs_nfs() && empty(w) && (moves(w) || lag.contains(&w))
        });
        if let Some(w) = who {
            self.convict(w, "keeps a run from its end");
        }
    }

    /// Tells worker `w`, which may have started just now, what it has to know of cycles.
    pub(super) fn tell_of_cycles(&mut self, w: usize) {
        if self.cycles.ended && self.setup.lanes.iter().any(|lane| lane.to == w && lane.back) {
            self.order(w, command::END_CYCLES);
        }
    }

    /// True while packets of `source` may come back to worker `w` around a cycle, so that their end is not
    /// yet to be taken.
    pub(super) fn may_come_back(&self, w: usize, source: u16) -> bool {
        let closes = |l: &LaneSetup| l.to == w && l.source == source && l.back;
        !self.cycles.ended && self.setup.lanes.iter().any(closes)
    }

    fn all_sources_ended(&self) -> bool {
        self.memory.said.iter().all(StreamEnd::is_set)
    }

    fn generations(&self) -> Vec<u64> {
        self.memory.workers.iter().map(|worker| worker.ledger.generation()).collect()
    }

    /// True when all lanes are empty but for ends, and all records of workers agree with their rings: nobody has taken
    /// packets and not committed, or committed and not published.
    pub(super) fn nothing_is_under_way(&self) -> bool {
        let dead = |w: &super::Worker| matches!(w.state, State::Waiting | State::Restarting(_));
        !self.workers.iter().any(dead) && self.laggards().next().is_none()
    }

    /// True when nobody has taken packets of domain `d` and not committed, or committed and not published.
    pub(super) fn records_agree(&self, d: usize) -> bool {
        self.differing(|lane| self.setup.lane_domain(lane) != d, |_| true).next().is_none()
    }

    /// Workers that are not through with what came to them, or whose record says so; some more than once.
    fn laggards(&self) -> impl Iterator<Item = usize> {
        self.differing(|_| false, only_ends)
    }

    /// Workers whose record does not agree with their rings, or that have something else in a lane before them than
    /// what `may_lie` there, but for lanes that are passed over; some more than once.
    fn differing(
        &self,
        pass_over: impl Fn(&LaneSetup) -> bool,
        may_lie: fn(&RingInspector<Entry>) -> bool,
    ) -> impl Iterator<Item = usize> {
        let words: Vec<Vec<u64>> =
            self.memory.workers.iter().map(|w| w.ledger.read().unwrap_or_default()).collect();
        let (mut outs, mut ins) = (vec![0; words.len()], vec![0; words.len()]);
        let said = move |w: usize, at: usize| words[w].get(at).copied();
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes).enumerate();
        lanes.flat_map(move |(l, (lane, ring))| {
            let &LaneSetup { from, to, .. } = lane;
            let (out, claimed) = (outs[from], self.memory.workers[to].layout.lanes_in + ins[to]);
            (outs[from], ins[to]) = (out + 1, ins[to] + 1);
            let i = &ring.inspector;
            if !lane.has_packets() || pass_over(lane) {
                // Lent, or a branch's answers, which may stay behind when nobody waits for them any more.
                return [None, None].into_iter().flatten();
            }
            // Of a source that has ended the record is one further: its marker. What a dead one had claimed and
            // not committed was written off, and its successor has no reason yet to write a record.
            let off = self.memory.written_off[l];
            let agrees = said(to, claimed)
                .map(|n| n.max(off))
                .is_some_and(|n| n == i.tail() || n == i.tail().wrapping_add(1));
            let published = said(from, out) == Some(i.head());
            [(!published).then_some(from), (!(may_lie(i) && agrees)).then_some(to)]
                .into_iter()
                .flatten()
        })
    }
}

/// True for a lane that is empty but for ends.
fn only_ends(ring: &RingInspector<Entry>) -> bool {
    ring.unclaimed().iter().all(|e| e.as_marker() == Some(Marker::EndOfStream))
}
