//! Processes in reserve: of each replicated worker one waits that is to be its successor, in the sandbox that it would be started in.
//!
//! To start a process there takes some three milliseconds, more than half of what flows are away for when few packets wait. It is told its work
//! when the worker has died, as one that is started then; until then it has nothing of the graph, and runs nothing. Of programs that are
//! not weir's own there is none in reserve: nobody watches what they would do until then.

use super::{Agent, Event, State};
use crate::process::Process;
use std::time::{Duration, Instant};

/// How often the agent looks who has nobody in reserve, and how long a graph runs before it first does.
const LOOK: Duration = Duration::from_millis(200);
/// The next look after a process could not be started.
const RETRY: Duration = Duration::from_secs(10);

/// The next look after one was started.
const NEXT: Duration = Duration::from_millis(20);
/// So many end before they are needed until that is told.
const ODD: u32 = 5;

/// When to look next, and at whom first.
pub(super) struct Reserves {
    next: Instant,
    from: usize,
    /// How many have ended before they were needed, but for looks at which none had: the more, the longer until the next is begun.
    ended: u32,
    warned: bool,
}

impl Default for Reserves {
    fn default() -> Self {
        Reserves { next: Instant::now() + LOOK, from: 0, ended: 0, warned: false }
    }
}

impl Agent {
    /// Starts the next process that is to wait, if one is missing. One at a time: the agent has more urgent things to do.
    pub(super) fn fill_reserve(&mut self) {
        // Those of a generation that is about to end would be for nothing.
        if self.stopping || self.is_relinking() || self.reserves.next > Instant::now() {
            return;
        }
        let count = self.workers.len();
        let each = (0..count).map(|nth| (self.reserves.from + nth) % count.max(1));
        let Some(w) = each.into_iter().find(|w| self.lacks_reserve(*w)) else {
            self.reserves.next = Instant::now() + LOOK;
            self.reserves.ended = self.reserves.ended.saturating_sub(1);
            return;
        };
        self.reserves.from = w + 1;
        let mut pause = NEXT;
        if let Some(ended) = self.workers[w].reserve.take() {
            ended.discard();
            self.reserves.ended += 1;
            pause = LOOK * (1 << self.reserves.ended.min(ODD));
            if self.reserves.ended == ODD {
                self.warn_of_reserve(
                    w,
                    "processes in reserve end before they are needed (as others' may)",
                );
            }
        }
        match Process::in_reserve(&self.programs, &self.setup, &self.memory, w) {
            Ok(process) => self.workers[w].reserve = Some(process),
            Err(e) => {
                pause = RETRY;
                self.warn_of_reserve(w, &format!("no process is in reserve for when it dies: {e}"));
            }
        }
        self.reserves.next = Instant::now() + pause;
    }

    fn warn_of_reserve(&mut self, worker: usize, text: &str) {
        if !std::mem::replace(&mut self.reserves.warned, true) {
            let name = &self.setup.workers[worker].name;
            let text = format!("{name}: {text}");
            self.events.push_back(Event::Warning { worker, text });
        }
    }

    /// Whether worker `w` is to have a process in reserve, and has none.
    fn lacks_reserve(&self, w: usize) -> bool {
        let setup = &self.setup.workers[w];
        let worker = &self.workers[w];
        // Who is about to die once more is started as others are: its successor has not been ready yet.
        matches!(worker.state, State::Running(_))
            && self.liveness.is_ready(w)
            && setup.program.is_none()
            && !setup.schedule.trial.round_robin
            && setup.nodes.iter().any(|node| node.replicate.is_some())
            && worker.reserve.as_ref().is_none_or(Process::has_ended)
    }

    /// Whether a process waits that is to be worker `w`'s successor.
    pub fn has_reserve(&self, w: usize) -> bool {
        self.workers.get(w).is_some_and(|worker| worker.reserve.is_some())
    }

    /// The process that waits to be worker `w`'s, if there is one that can be.
    pub(super) fn out_of_reserve(&mut self, w: usize) -> Option<Process> {
        let process = self.workers[w].reserve.take()?;
        // A drain in its place needs other descriptors.
        if !self.setup.workers[w].runs_nfs() || process.has_ended() {
            process.discard();
            return None;
        }
        self.reserves.ended = 0;
        Some(process)
    }

    /// Sends those in reserve home: the graph ends.
    pub(super) fn dismiss_reserve(&mut self) {
        let all = self.workers.iter_mut().filter_map(|worker| worker.reserve.take());
        all.for_each(Process::discard);
    }
}
