//! On which cores workers of the next generation stand by.
//!
//! One that is to run in the default class gets, on a core of real-time workers, what the kernel leaves that class there, some 5 % at worst: a million
//! flows were copied for 27 seconds then, and who took them was not through with the last ones when packets had run out. So it stands by on
//! other cores, and is put on its own before it begins.

use crate::agent::{Agent, State};
use crate::setup::Setup;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Notes for `next` which cores real-time workers of this generation leave to others.
pub(super) fn place(now: &Setup, next: &mut Setup) {
    if let Ok(ours) = sched_getaffinity(None) {
        let ours = (0..CpuSet::MAX_CPU as u16).filter(|core| ours.is_set(usize::from(*core)));
        let ours: Vec<u16> = ours.collect();
        let real_time = now.workers.iter().filter(|w| w.schedule.real_time);
        let taken: Vec<u16> = real_time.filter_map(|w| w.schedule.core).collect();
        for worker in next.workers.iter_mut().filter(|worker| worker.runs_nfs()) {
            // Whether it is to run in that class itself is known when it is launched: another graph may have taken the last core.
            worker.schedule.stands_by_on = elsewhere(worker.schedule.core, &ours, &taken);
        }
    }
}

/// Where a worker of this core stands by, of `ours`, if real-time ones have `taken` some; nowhere else if its own is not among those.
fn elsewhere(core: Option<u16>, ours: &[u16], taken: &[u16]) -> Vec<u16> {
    let is_taken = |core: &u16| taken.contains(core);
    match core.as_ref().is_some_and(is_taken) {
        true => ours.iter().copied().filter(|core| !is_taken(core)).collect(),
        false => Vec::new(),
    }
}

impl Agent {
    /// Puts workers of this generation, which have not begun, on their own cores.
    pub(super) fn take_own_cores(&self) {
        for (worker, setup) in self.workers.iter().zip(&self.setup.workers) {
            let schedule = &setup.schedule;
            if let State::Running(process) | State::Done(process) = &worker.state
                && let Some(core) = schedule.core.filter(|_| !schedule.stands_by_on.is_empty())
            {
                let mut own = CpuSet::new();
                own.set(usize::from(core));
                // Refused when the core is not ours to use; it then runs where it may.
                let _ = sched_setaffinity(Some(process.pid()), &own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::elsewhere;

    #[test]
    fn only_who_comes_to_a_core_of_real_time_workers_stands_by_elsewhere_and_on_none_of_theirs() {
        assert_eq!(elsewhere(Some(1), &[0, 1, 2, 3], &[1, 3]), [0, 2]);
        assert!(elsewhere(Some(0), &[0, 1, 2, 3], &[1, 3]).is_empty());
        assert!(elsewhere(None, &[0, 1], &[1]).is_empty());
        assert!(elsewhere(Some(1), &[0, 1], &[]).is_empty());
        // They have all: it stands by on its own.
        assert!(elsewhere(Some(1), &[0, 1], &[0, 1]).is_empty());
    }
}
