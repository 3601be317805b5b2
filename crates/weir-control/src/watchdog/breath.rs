//! Moments in which real-time workers leave their cores to others, of the agent's choice instead of the kernel's.
//!
//! Whoever is in a real-time class for more than a part of a period (0.95 of a second, unless it is told otherwise; sched(7),
//! `sched_rt_runtime_us`) is kept from that core for the rest of it: a worker that always finds packets, or polls, stands still for up to
//! 50 ms in each second, and its NIC loses what comes meanwhile. So busy workers are put into the default class for a short moment many
//! times a second, all together. They work on in it, unless others wait for their core: for those it is.

use rustix::process::Pid;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use weir_mem::realtime::{RealTime, class_of, cpu_time, put_back, set_default};

/// How often busy workers take a breath.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// More than what the kernel asks for by this part of the time: it counts in periods of its own, and the first moments of a busy time
/// are noticed late.
const SPARE: f64 = 0.02;
/// Workers that had cores for less than this part of the time, all together, are not busy.
const BUSY: f64 = 0.5;

/// What the kernel takes from real-time tasks of each second, and what workers have had.
pub(super) struct Breath {
    /// How long a breath takes; `None`: the kernel takes nothing.
    length: Option<Duration>,
    /// What each worker had of its core when it was looked at last.
    had: HashMap<i32, Duration>,
    looked: Instant,
    busy: bool,
}

impl Breath {
    /// As this kernel wants it.
    pub(super) fn new() -> Self {
        let read = |name: &str| {
            let path = format!("/proc/sys/kernel/sched_rt_{name}_us");
            std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok()
        };
        let length =
            read("runtime").zip(read("period")).and_then(|(run, period)| length(run, period));
        Breath { length, had: HashMap::new(), looked: Instant::now(), busy: false }
    }

    /// True while it is to be looked at again after a [`TICK`].
    pub(super) fn is_soon(&self) -> bool {
        self.busy
    }

    /// Looks whether those of these workers are busy that are in a real-time class, and has them breathe if they are.
    pub(super) fn look(&mut self, workers: &[Pid]) {
        let Some(length) = self.length else { return };
        let classes = workers.iter().filter_map(|pid| Some((*pid, class_of(*pid)?)));
        let classes: Vec<(Pid, RealTime)> = classes.collect();
        let had = classes.iter().filter_map(|(pid, _)| Some((number(*pid), cpu_time(*pid)?)));
        let had: HashMap<i32, Duration> = had.collect();
        let since = |(pid, had): (&i32, &Duration)| {
            self.had.get(pid).map_or(Duration::ZERO, |before| had.saturating_sub(*before))
        };
        let used: Duration = had.iter().map(since).sum();
        self.busy = used > self.looked.elapsed().mul_f64(BUSY);
        (self.had, self.looked) = (had, Instant::now());
        if self.busy {
            breathe(&classes, length);
        }
    }
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
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
fn breathe(workers: &[(Pid, RealTime)], length: Duration) {
    let taken = workers.iter().filter(|(pid, _)| set_default(Some(*pid)).is_ok());
    let taken: Vec<_> = taken.collect();
    std::thread::sleep(length);
    // In the order of the chain, so that they stand in their cores' queues as before. Who has died meanwhile is not found.
    for (pid, class) in taken {
        let _ = put_back(*pid, *class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breath_is_what_the_kernel_takes_and_a_little_more() {
        let ms = |run, period| length(run, period).map(|length| length.as_micros());
        assert_eq!(ms(950_000, 1_000_000), Some(1_400));
        assert_eq!(ms(500_000, 1_000_000), Some(10_400));
        // Nothing may be in the class at all, which is not granted then.
        assert_eq!(ms(0, 1_000_000), Some(20_000));
        // The kernel takes nothing.
        assert_eq!([ms(-1, 1_000_000), ms(1_000_000, 1_000_000), ms(950_000, 0)], [None; 3]);
    }
}
