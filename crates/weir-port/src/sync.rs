//! The sync port: a packet of a parallel stage goes on when every branch has answered on it.
//!
//! Three kinds of rings make a stage (decisions/0012-parallel-stages.md). The *reference* lane is an
//! ordinary one, from whoever gives the packets to whoever has the sync port. A *loan* lane repeats it for
//! a branch, entry by entry at the same index ([`crate::Egress::lend`]): a branch looks at the packets and
//! never owns them. An *answer* lane has the branch's verdict on each, at the same index again. So
//! which answer is on which packet needs no search, whoever died when: an index says it.

use crate::broken;
use crate::ingress::LaneIn;
use weir_mem::{Consumer, Entry, Marker, Seq};
use weir_packet::{Packet, Verdict};

/// What a lane carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// Packets, which belong to whoever takes them.
    #[default]
    Packets,
    /// Packets of a parallel stage for one of its branches: they belong to whoever has the sync port.
    Loans,
    /// What a branch says of the packets of another lane.
    Answers {
        /// Index of that lane among the worker's.
        on: usize,
        /// What becomes of packets with which the branch's worker died.
        lost: Verdict,
    },
}

/// What the branches of a stage say of a packet together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The first drop of a branch, else the last branch's output.
    pub verdict: Verdict,
    /// The branch whose verdict that is, counted from 0 in the order of the chain.
    pub branch: usize,
}

/// A branch's answer as an entry: what it was asked about, with the verdict as its number aside.
#[must_use]
pub const fn answer(asked: &Entry, verdict: Verdict) -> Entry {
    asked.with_aside(verdict.number())
}

/// What stands in an answer lane for a packet with which the branch's worker died.
#[must_use]
pub const fn no_answer() -> Entry {
    Entry::marker(Marker::Void, Seq::new(0))
}

/// The lanes of a stage that end in a sync port.
pub(crate) struct Sync {
    /// Index of the reference lane.
    lane: usize,
    /// By branch: index of its answer lane, and what becomes of packets that it lost.
    branches: Vec<(usize, Verdict)>,
}

/// How many entries of `answers` are on packets that were taken already; below zero: so many answers are
/// missing, which only a hostile worker can bring about.
fn stale(answers: &Consumer<Entry>, taken: u64) -> i64 {
    taken.wrapping_sub(answers.claimed()) as i64
}

impl Sync {
    /// The sync ports of a worker with these lanes; each reference lane is told which is its.
    pub(crate) fn of(lanes: &mut [LaneIn]) -> Vec<Sync> {
        let mut all: Vec<Sync> = Vec::new();
        for i in 0..lanes.len() {
            let Some(Carries::Answers { on, lost }) = lanes.get(i).map(|lane| lane.carries) else {
                continue;
            };
            let at = all.iter().position(|sync| sync.lane == on).unwrap_or_else(|| {
                all.push(Sync { lane: on, branches: Vec::new() });
                all.len() - 1
            });
            if let Some(sync) = all.get_mut(at) {
                sync.branches.push((i, lost));
            }
            if let Some(reference) = lanes.get_mut(on) {
                reference.sync = Some(at);
            }
        }
        all
    }

    fn taken(&self, lanes: &[LaneIn]) -> u64 {
        lanes.get(self.lane).map_or(0, |lane| lane.ring.claimed())
    }

    /// How many of the next entries of the reference lane every branch has answered on, looked up to `want`.
    pub(crate) fn answered(&self, lanes: &mut [LaneIn], want: usize) -> usize {
        // A predecessor may have left as many stale answers as there is room for.
        if !broken::is("stale") {
            self.catch_up(lanes);
        }
        let taken = self.taken(lanes);
        let mut least = want;
        let branches = if broken::is("sync") {
            self.branches.get(..1).unwrap_or_default()
        } else {
            &self.branches
        };
        for (at, _) in branches {
            let Some(answers) = lanes.get_mut(*at).map(|lane| &mut lane.ring) else { return 0 };
            let stale = stale(answers, taken);
            let needed = usize::try_from(stale.saturating_add(least as i64)).unwrap_or(0);
            let there = answers.available(needed) as i64;
            least = least.min(usize::try_from(there.saturating_sub(stale)).unwrap_or(0));
        }
        least
    }

    /// What the branches say of `packets`, which have just been taken from the reference lane.
    pub(crate) fn judge(&self, lanes: &mut [LaneIn], packets: &[Packet], out: &mut Vec<Answer>) {
        let taken = self.taken(lanes).wrapping_sub(packets.len() as u64);
        let pass = Answer { verdict: Verdict::FIRST, branch: 0 };
        out.resize(packets.len(), pass);
        for (branch, (at, lost)) in self.branches.iter().enumerate() {
            let Some(lane) = lanes.get_mut(*at) else { continue };
            let stale = if broken::is("stale") { 0 } else { stale(&lane.ring, taken) };
            for (i, (packet, judged)) in packets.iter().zip(out.iter_mut()).enumerate() {
                let place = usize::try_from(stale.saturating_add(i as i64)).ok();
                let entry = place.and_then(|place| lane.ring.peek(place));
                let of = |e: &Entry| *e == answer(packet.entry(), Verdict::from_number(e.aside()));
                let verdict = match entry {
                    Some(entry) if of(&entry) => Verdict::from_number(entry.aside()),
                    Some(entry) if entry.as_marker() != Some(Marker::Void) => {
                        lane.reject();
                        *lost
                    }
                    _ => *lost,
                };
                // A packet that an earlier branch drops a later one would not have seen.
                if judged.verdict.as_output().is_some() {
                    *judged = Answer { verdict, branch };
                }
            }
        }
    }

    /// Takes the answers on what has been taken from the reference lane. After that lane's claim: who dies
    /// between has left answers that are stale, which a successor knows by their index.
    pub(crate) fn catch_up(&self, lanes: &mut [LaneIn]) {
        let taken = self.taken(lanes);
        for (at, _) in &self.branches {
            let Some(answers) = lanes.get_mut(*at).map(|lane| &mut lane.ring) else { continue };
            let stale = usize::try_from(stale(answers, taken)).unwrap_or(0);
            if stale > 0 {
                let there = answers.available(stale);
                answers.claim(stale.min(there));
            }
        }
    }
}
