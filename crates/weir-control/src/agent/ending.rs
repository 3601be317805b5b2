//! The end of a graph that does not come to one: whoever asks for it has it within a bound, whatever its workers wait for.

use super::{Agent, State};
use crate::audit::{clear_lanes, place};
use std::collections::BTreeSet;
use std::time::Instant;
use weir_runtime::spec::EndSpec;

impl Agent {
    /// Packets that were under way when the time for them to run out was over.
    pub fn undrained(&self) -> Option<u64> {
        self.undrained
    }

    /// Gives up what was under way when the end was asked for and has not run out in its time.
    pub(super) fn end_in_time(&mut self) {
        if self.ends_by.is_some_and(|by| Instant::now() >= by) && !self.finished {
            self.ends_by = None;
            let done = |state: &State| matches!(state, State::Done(_) | State::Gone);
            if !self.workers.iter().all(|worker| done(&worker.state)) {
                self.cut_short();
            }
        }
    }

    /// Ends all workers that are not done, and counts what they had and what lies between them as lost.
    fn cut_short(&mut self) {
        self.give_up_relinking();
        // First all, then their work is mended: nobody goes on while others' rings are looked at.
        let mut ended = Vec::new();
        for w in 0..self.workers.len() {
            match &mut self.workers[w].state {
                State::Running(process) => process.kill(),
                State::Waiting | State::Restarting(_) => {
                    self.workers[w].state = State::Gone;
                    continue;
                }
                State::Done(_) | State::Gone => continue,
            }
            self.hear_last_words(w);
            self.workers[w].state = State::Gone;
            ended.push(w);
        }
        let mut lost = 0;
        for w in ended {
            // Errors of workers are of no interest any more.
            let offence = self.trust.offence(w).is_some();
            if let Ok(damage) = self.mend(w, offence) {
                self.workers[w].lost += damage.lost;
                lost += damage.lost;
            }
            self.memory.forget_stack(w);
        }
        // What nobody has taken is lost with who would have, once each, whatever else somebody has written there. What was dropped and was
        // to be written down is counted as dropped.
        let mut seen = BTreeSet::new();
        for (lane, ring) in self.setup.lanes.iter().zip(&self.memory.lanes) {
            let to = self.setup.workers.get(lane.to);
            if lane.has_packets() && to.is_some_and(|to| !matches!(to.end, EndSpec::Dump(_))) {
                let d = self.setup.lane_domain(lane);
                let shape = self.memory.domains[d].shape();
                let entries = ring.inspector.unclaimed().into_iter();
                let buffers = entries.filter_map(|entry| place(&entry, shape));
                let packets = buffers.filter(|buffer| seen.insert((d, *buffer))).count() as u64;
                self.workers[lane.to].lost += packets;
                lost += packets;
            }
        }
        for d in 0..self.setup.domains.len() {
            clear_lanes(&self.setup, &mut self.memory, d);
        }
        self.undrained = Some(lost);
    }
}
