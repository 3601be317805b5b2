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

/// When to look next.
pub(super) struct Reserves {
    next: Instant,
    warned: bool,
}

impl Default for Reserves {
    fn default() -> Self {
        Reserves { next: Instant::now() + LOOK, warned: false }
    }
}

impl Agent {
    /// Starts the next process that is to wait, if one is missing. One at a time: the agent has more urgent things to do.
    pub(super) fn fill_reserve(&mut self) {
        // Those of a generation that is about to end would be for nothing.
        if self.stopping || self.is_relinking() || self.reserves.next > Instant::now() {
            return;
        }
        self.reserves.next = Instant::now() + LOOK;
        let Some(w) = (0..self.workers.len()).find(|w| self.lacks_reserve(*w)) else { return };
        // One that has ended takes its leave here.
        self.workers[w].reserve = None;
        match Process::in_reserve(&self.programs, &self.setup, &self.memory, w) {
            Ok(process) => self.workers[w].reserve = Some(process),
            Err(e) => {
                self.reserves.next += RETRY;
                if !std::mem::replace(&mut self.reserves.warned, true) {
                    let text = format!("no process is in reserve for when it dies: {e}");
                    self.events.push_back(Event::Warning { worker: w, text });
                }
            }
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
        // A drain in its place needs other system calls, and other descriptors.
        (self.setup.workers[w].runs_nfs() && !process.has_ended()).then_some(process)
    }

    /// Sends those in reserve home: the graph ends.
    pub(super) fn dismiss_reserve(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.reserve = None);
    }
}
