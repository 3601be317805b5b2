//! Moments in which real-time workers leave their cores to others, of the agent's choice instead of the kernel's.
//!
//! Whoever is in a real-time class for more than a part of a period (0.95 of a second, unless it is told otherwise; sched(7),
//! `sched_rt_runtime_us`) is kept from that core for the rest of it: a worker that always finds packets, or polls, stands still for up to
//! 50 ms in each second, and its NIC loses what comes meanwhile. So busy workers are put into the default class for a short moment many
//! times a second. They work on in it, unless others wait for their core: for those it is.
//!
//! All that are busy on a core do so together, those of other graphs too: each graph's watchdog goes by the same clock.

use super::Watched;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weir_mem::realtime::{RealTime, cpu_time, put_back, set_default, worker_class};

/// How often busy workers take a breath: whenever the machine's clock (CLOCK_MONOTONIC) has a multiple of it.
const TICK: Duration = Duration::from_millis(20);
/// More than what the kernel asks for by this part of the time: it counts in periods of its own, and a busy time's first moments, a look
/// or two, are noticed late.
const SPARE: f64 = 0.02;
/// Of whose core its workers have less than this part, all together, is not busy.
const BUSY: f64 = 0.25;

/// A worker of the real-time class, and the core that it is bound to.
pub(crate) type OnCore = (Pid, Option<u16>);

/// The watchdog could not put workers back into the class that it had taken them out of for a moment.
pub(super) struct Lost;

/// What the kernel takes from real-time tasks of each second, and what workers have had.
pub(super) struct Breath {
    /// How long a breath takes; `None`: the kernel takes nothing, or workers could not be put back.
    length: Option<Duration>,
    /// What each worker had of its core when it was looked at last.
    had: HashMap<i32, Duration>,
    looked: Instant,
    busy: HashSet<Option<u16>>,
}

impl Breath {
    /// As this kernel wants it.
    pub(super) fn new() -> Self {
        let read = |name: &str| {
            let path = format!("/proc/sys/kernel/sched_rt_{name}_us");
            std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok()
        };
        let limit = read("runtime").zip(read("period")).filter(|_| may_put_back());
        let length = limit.and_then(|(run, period)| length(run, period));
        Breath { length, had: HashMap::new(), looked: Instant::now(), busy: HashSet::new() }
    }

    /// When to look again, if that is sooner than in `usual`.
    pub(super) fn next(&self, usual: Duration) -> Duration {
        if self.busy.is_empty() { usual } else { usual.min(TICK - since_tick()) }
    }

    /// Looks which cores are busy, and has the workers of those breathe that were so at the last look and are.
    pub(super) fn look(&mut self, watched: &Mutex<Watched>) -> Result<(), Lost> {
        let Some(length) = self.length else { return Ok(()) };
        let workers = watched.lock().map_or_else(|_| Vec::new(), |all| all.real_time.clone());
        let before = std::mem::take(&mut self.busy);
        let span = self.looked.elapsed();
        let had = workers.iter().filter_map(|(pid, _)| Some((number(*pid), cpu_time(*pid)?)));
        let had: HashMap<i32, Duration> = had.collect();
        self.busy = busy(&workers, &self.had, &had, span);
        (self.had, self.looked) = (had, Instant::now());
        // Between two ticks it is looked at only.
        let left = length.saturating_sub(since_tick());
        let breathe: Vec<Pid> = workers
            .iter()
            .filter(|(_, core)| before.contains(core) && self.busy.contains(core))
            .map(|(pid, _)| *pid)
            .collect();
        if breathe.is_empty() || left.is_zero() {
            return Ok(());
        }
        let lost = leave_for(&breathe, left, watched);
        if lost.is_err() {
            self.length = None;
            self.busy.clear();
        }
        lost
    }
}

/// Who puts others into the real-time class needs this where these may not do so themselves, as workers in their sandbox may not; a limit
/// (RLIMIT_RTPRIO) of its own is not enough.
fn may_put_back() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_NICE))
}

/// Since the last multiple of [`TICK`].
fn since_tick() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    Duration::from_nanos(ns.rem_euclid(TICK.as_nanos() as i128) as u64)
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// The cores that are busy, by what workers had of them before and have had by now. Of whom is not known what it had before has had all.
fn busy(
    workers: &[OnCore],
    before: &HashMap<i32, Duration>,
    now: &HashMap<i32, Duration>,
    span: Duration,
) -> HashSet<Option<u16>> {
    let mut used: HashMap<Option<u16>, Duration> = HashMap::new();
    for (pid, core) in workers {
        let Some(had) = now.get(&number(*pid)) else { continue };
        let since = before.get(&number(*pid)).map_or(span, |before| had.saturating_sub(*before));
        *used.entry(*core).or_default() += since;
    }
    let busy = used.into_iter().filter(|(_, used)| *used > span.mul_f64(BUSY));
    busy.map(|(core, _)| core).collect()
}

/// How long a breath takes that comes once a [`TICK`], where real-time tasks may have `run` of each `period`.
fn length(run: i64, period: i64) -> Option<Duration> {
    if run < 0 || period <= 0 || run >= period {
        return None;
    }
    let part = 1.0 - run as f64 / period as f64 + SPARE;
    Some(TICK.mul_f64(part.min(1.0)))
}

/// Puts these into the default class for a while.
fn leave_for(workers: &[Pid], span: Duration, watched: &Mutex<Watched>) -> Result<(), Lost> {
    // One that is in another class, or has another priority, was put there by somebody else.
    let classes = workers.iter().filter_map(|pid| Some((*pid, worker_class(*pid)?)));
    let taken = classes.filter(|(pid, _)| set_default(Some(*pid)).is_ok());
    let taken: Vec<(Pid, RealTime)> = taken.collect();
    std::thread::sleep(span);
    // Who has died meanwhile is told to be no more, before its number can be another's, and may be on its way out in the default class.
    let Ok(now) = watched.lock() else { return Err(Lost) };
    let is_there = |pid: &Pid| now.real_time.iter().any(|(there, _)| there == pid);
    let mut result = Ok(());
    for (pid, class) in taken.into_iter().filter(|(pid, _)| is_there(pid)) {
        let back = put_back(pid, class);
        if back.is_err_and(|e| e != rustix::io::Errno::SRCH) {
            result = Err(Lost);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breath_is_what_the_kernel_takes_and_a_little_more() {
        let us = |run, period| length(run, period).map(|length| length.as_micros());
        assert_eq!(us(950_000, 1_000_000), Some(1_400));
        assert_eq!(us(500_000, 1_000_000), Some(10_400));
        // Nothing may be in the class at all, which is not granted then.
        assert_eq!(us(0, 1_000_000), Some(20_000));
        // The kernel takes nothing.
        assert_eq!([us(-1, 1_000_000), us(1_000_000, 1_000_000), us(950_000, 0)], [None; 3]);
    }

    /// Two looks at most, and the rest of a tick, go by before a busy time's first breath.
    #[test]
    fn what_is_left_to_the_class_is_less_than_the_kernel_allows_also_in_a_busy_times_first_second()
    {
        for (run, period) in [(950_000, 1_000_000), (900_000, 1_000_000), (500_000, 1_000_000)] {
            let rest = length(run, period).unwrap().as_secs_f64() / TICK.as_secs_f64();
            let late = super::super::EVERY.as_secs_f64() * (1.0 + BUSY) + TICK.as_secs_f64();
            let late = late.min(run as f64 / 1e6);
            let had = late + (1.0 - late) * (1.0 - rest);
            assert!(had < run as f64 / 1e6 || run < 900_000, "{had} of {run}");
            assert!(1.0 - rest < run as f64 / period as f64, "{run}");
        }
    }

    #[test]
    fn a_core_is_busy_by_all_of_its_workers_and_no_other_is() {
        let pid = |n| Pid::from_raw(n).unwrap();
        let workers = [(pid(1), Some(0)), (pid(2), Some(0)), (pid(3), Some(1)), (pid(4), None)];
        let ms = |all: [u64; 4]| {
            let had = (1..).zip(all.map(Duration::from_millis));
            had.collect::<HashMap<i32, Duration>>()
        };
        let span = Duration::from_millis(100);
        let before = ms([10, 10, 10, 10]);
        let of = |now| busy(&workers, &before, &ms(now), span);
        assert_eq!(of([20, 30, 30, 30]), HashSet::from([Some(0)]));
        assert_eq!(of([20, 20, 30, 30]), HashSet::new());
        assert_eq!(of([10, 10, 40, 40]), HashSet::from([Some(1), None]));
        // Of a new one nothing is known.
        assert_eq!(busy(&workers[2..3], &HashMap::new(), &before, span), [Some(1)].into());
        // And one that has ended uses nothing.
        assert_eq!(busy(&workers, &before, &HashMap::new(), span), HashSet::new());
    }

    #[test]
    fn a_tick_is_always_less_than_one_away() {
        for _ in 0..100 {
            assert!(since_tick() < TICK);
        }
    }
}
