//! A worker's place on the machine: its core and its scheduling class.

use crate::spec::ScheduleSpec;
use rustix::thread::{CpuSet, sched_setaffinity};
use weir_mem::realtime::WORKER_PRIORITY;

/// Applies the schedule as far as permitted. True when the real-time class was granted.
///
/// The class comes before the core: a task that enters a core's real-time queue after it was
/// pinned there can starve behind those already on it.
pub(crate) fn apply(schedule: &ScheduleSpec, stands_by: bool) -> bool {
    let class = || match schedule.trial.round_robin {
        true => weir_mem::realtime::set_round_robin(WORKER_PRIORITY),
        false => weir_mem::realtime::set_fifo(None, WORKER_PRIORITY),
    };
    let real_time = schedule.real_time && class().is_ok();
    let elsewhere = stands_by && !schedule.real_time && !schedule.stands_by_on.is_empty();
    let own = schedule.core.as_slice();
    let cores = if elsewhere { &schedule.stands_by_on } else { own };
    if !cores.is_empty() {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(usize::from(*core)));
        // Refused when the core is not ours to use; the worker then runs where it may.
        let _ = sched_setaffinity(None, &set);
    }
    real_time
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::apply;
    use crate::spec::{ScheduleSpec, Trial};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity, sched_yield};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    /// How often somebody comes to the core of others.
    const TIMES: u32 = 5;
    /// How long it may take all of these times. Whoever waits there in the default class waits for what the kernel leaves that beside
    /// real-time ones: most of a second, the first time at least.
    const MOST: Duration = Duration::from_millis(600);

    fn to(core: u16) -> ScheduleSpec {
        ScheduleSpec {
            core: Some(core),
            real_time: true,
            stands_by_on: Vec::new(),
            shares_core: true,
            spin_us: 0,
            busy: false,
            prefetch: None,
            trial: Trial::default(),
        }
    }

    /// How long it takes a thread that begins elsewhere.
    fn comes_to(core: u16, from: &CpuSet) -> Duration {
        sched_setaffinity(None, from).unwrap();
        let begun = Instant::now();
        assert!(apply(&to(core), false));
        let took = begun.elapsed();
        assert_eq!(sched_getcpu(), usize::from(core));
        took
    }

    /// As when a worker is started anew while the others of its core poll: these never leave it to the default class.
    #[test]
    fn a_worker_comes_at_once_to_a_core_on_which_real_time_ones_poll() {
        let ours = sched_getaffinity(None).unwrap();
        let mut cores = (0..CpuSet::MAX_CPU as u16).rev().filter(|c| ours.is_set((*c).into()));
        let (Some(core), Some(other)) = (cores.next(), cores.next()) else {
            return println!("skipped: a_worker_comes_at_once: one core");
        };
        let mut from = CpuSet::new();
        from.set(other.into());
        // 0: the other one has not begun; 1: it polls; 2: it may not, or is to end.
        let state = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let granted = apply(&to(core), false);
                // Relaxed: the word says all there is to know.
                state.store(if granted { 1 } else { 2 }, Ordering::Relaxed);
                // Should the test fail, the core is not kept for good.
                let end = Instant::now() + Duration::from_secs(20);
                while state.load(Ordering::Relaxed) == 1 && Instant::now() < end {
                    sched_yield();
                }
            });
            while state.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            if state.load(Ordering::Relaxed) == 2 {
                return println!("skipped: a_worker_comes_at_once: no real-time class");
            }
            let from = &from;
            let each: Vec<Duration> = (0..TIMES)
                .map(|_| std::thread::scope(|s| s.spawn(|| comes_to(core, from)).join().unwrap()))
                .collect();
            state.store(2, Ordering::Relaxed);
            let all: Duration = each.iter().sum();
            assert!(all < MOST, "it waits for the core of others: {each:?}");
        });
    }
}
