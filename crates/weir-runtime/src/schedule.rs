//! A worker's place on the machine: its core and its scheduling class.

use crate::spec::ScheduleSpec;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Applies the schedule as far as permitted. True when the real-time class was granted.
///
/// The class comes before the core: a task that enters a core's real-time queue after it was
/// pinned there can starve behind those already on it.
pub(crate) fn apply(schedule: &ScheduleSpec) -> bool {
    let class = || match schedule.trial.round_robin {
        true => weir_mem::realtime::set_round_robin(1),
        false => weir_mem::realtime::set_fifo(None, 1),
    };
    let real_time = schedule.real_time && class().is_ok();
    if let Some(core) = schedule.core {
        let mut set = CpuSet::new();
        set.set(usize::from(core));
        // Refused when the core is not ours to use; the worker then runs where it may.
        let _ = sched_setaffinity(None, &set);
    }
    real_time
}
