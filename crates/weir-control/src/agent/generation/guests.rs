//! Workers of the next generation on cores of real-time ones, before they begin.
//!
//! A worker of the default class that stands by on a core of real-time workers gets what the kernel leaves that class, some 5 % at worst:
//! a million flows were then copied for 26 seconds, and it was not through with the last of them when packets had run out.
//! So it stands by in their class, and takes turns with them. No core gets real-time workers by it that has none.

use crate::agent::{Agent, State};
use crate::setup::{Setup, WorkerSetup};

/// Notes which workers of `next` stand by in the class of those that they are to take over from.
pub(super) fn mark(now: &Setup, next: &mut Setup) {
    let is_beside = |worker: &WorkerSetup| {
        let mut real_time = now.workers.iter().filter(|w| w.schedule.real_time);
        real_time.any(|w| w.schedule.core == worker.schedule.core)
    };
    for worker in &mut next.workers {
        // Whether it runs in that class itself is known when it is launched: another graph may have taken the last core.
        worker.schedule.guest = worker.runs_nfs() && worker.program.is_none() && is_beside(worker);
    }
}

impl Agent {
    /// Before those of this generation begin that stand by in the real-time class, and do not run in it.
    pub(super) fn guests_step_back(&self) {
        for (worker, setup) in self.workers.iter().zip(&self.setup.workers) {
            if let State::Running(process) = &worker.state
                && setup.schedule.guest
                && !setup.schedule.real_time
            {
                // Not permitted where it did not get the class either.
                let _ = weir_mem::realtime::set_default(Some(process.pid()));
            }
        }
    }
}
