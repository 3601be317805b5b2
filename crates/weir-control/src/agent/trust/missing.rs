//! Buffers that nobody has: a worker that takes packets and neither passes them on nor gives them back lets a pool run
//! dry, and then all who wait for its buffers wait for ever, while nobody leaves anything undone that can be seen.
//!
//! That is looked for where nothing moves: each buffer must then be in a ring, in its pool, or in the hands of somebody
//! whose record says so. Whose the missing ones are, owner words say, which all of a domain can write: so the domain is
//! put right, and somebody is named only where there is one that can be.

use crate::agent::{Agent, AgentError, Event, State};
use crate::census::Census;

/// For how long nothing may have moved: looks in a row, a tenth of a second each.
const LOOKS: u32 = 5;
/// So many looks in a row must miss some. An NF may give one back in the very moment of a look.
const CERTAIN: u32 = 3;

/// What was seen of a domain at the last look.
#[derive(Default)]
pub(super) struct Missing {
    /// Entries given and taken, of all its lanes.
    moved: u64,
    /// How often in a row that was the same.
    looks: u32,
    /// All buffers were there since.
    whole: bool,
    /// In so many looks in a row some were not.
    found: u32,
    /// Buffers that were missing so far.
    count: u64,
}

impl Agent {
    /// Looks for buffers that are missing where nothing moves, and gives them back.
    pub(super) fn look_for_missing(&mut self) -> Result<(), AgentError> {
        for d in 0..self.setup.domains.len() {
            let moved = self.entries_moved(d);
            let seen = &mut self.trust.missing[d];
            let same = std::mem::replace(&mut seen.moved, moved) == moved;
            if same {
                seen.looks = seen.looks.saturating_add(1);
            } else {
                (seen.looks, seen.whole, seen.found) = (0, false, 0);
            }
            if seen.looks < LOOKS || seen.whole || !self.is_between_batches(d) {
                continue;
            }
            let held = Census::of_domain(&self.setup, &self.memory, d).held;
            let missing = held.saturating_sub(self.said_to_hold(d));
            if !self.is_between_batches(d) || self.entries_moved(d) != moved {
                continue;
            }
            let seen = &mut self.trust.missing[d];
            seen.whole = missing == 0;
            if seen.whole {
                seen.found = 0;
                continue;
            }
            seen.found += 1;
            if seen.found < CERTAIN {
                continue;
            }
            (seen.looks, seen.found, seen.count) = (0, 0, seen.count + missing);
            if let Some(only) = self.only_nf(d) {
                self.convict(only, "kept packets that it took");
                continue;
            }
            let why = format!(
                "{missing} packets are missing: an NF took them and neither passes them on nor says that it has them; \
                 their buffers are given back"
            );
            self.events.push_back(Event::StandsStill { why });
            self.audit(d)?;
        }
        Ok(())
    }

    /// Buffers that were found missing while the graph ran, and nobody was named for it.
    pub(in crate::agent) fn missing_unnamed(&self) -> u64 {
        let all = self.trust.missing.iter().zip(&self.trust.tainted);
        all.filter(|(_, tainted)| !**tainted).map(|(missing, _)| missing.count).sum()
    }

    fn entries_moved(&self, d: usize) -> u64 {
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        let lanes = lanes.filter(|(lane, _)| self.setup.lane_domain(lane) == d);
        let moved = lanes.map(|(_, r)| r.inspector.head().wrapping_add(r.inspector.tail()));
        moved.fold(0, u64::wrapping_add)
    }

    /// Packets that workers with memory of domain `d` say that they hold.
    fn said_to_hold(&self, d: usize) -> u64 {
        let workers = self.memory.workers.iter().zip(&self.setup.workers);
        let said = workers.filter(|(_, setup)| setup.is_in(d)).filter_map(|(worker, _)| {
            worker.ledger.read().and_then(|words| words.get(worker.layout.held).copied())
        });
        said.fold(0, u64::saturating_add)
    }

    /// True when all workers with memory of domain `d` run, and nobody is in the middle of a batch of its packets.
    fn is_between_batches(&self, d: usize) -> bool {
        let runs = |w: usize| {
            matches!(self.workers[w].state, State::Running(_)) && self.liveness.is_ready(w)
        };
        let mut its = (0..self.workers.len()).filter(|w| self.setup.workers[*w].is_in(d));
        its.all(runs) && self.records_agree(d)
    }
}
