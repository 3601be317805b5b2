//! The real-time class, and turns of the default class: rustix offers neither.

use rustix::io::Errno;
use rustix::process::Pid;
use std::time::Duration;

/// Priority of workers in the real-time class.
pub const WORKER_PRIORITY: i32 = 1;
/// That of an agent, while workers wait for it.
const AGENT_PRIORITY: i32 = 2;
/// That of who watches both.
pub const WATCHDOG_PRIORITY: i32 = 3;

/// Linux `SCHED_FIFO`.
const SCHED_FIFO: i32 = 1;
/// Linux `SCHED_RR`.
const SCHED_RR: i32 = 2;
/// Linux `SCHED_OTHER`.
const SCHED_OTHER: i32 = 0;

fn set(pid: Option<Pid>, policy: i32, priority: i32) -> Result<(), Errno> {
    let param = libc::sched_param { sched_priority: priority };
    let pid = pid.map_or(0, |p| p.as_raw_nonzero().get());
    // SAFETY: the parameter lives through the call; the kernel checks pid, policy and priority.
    if unsafe { libc::sched_setscheduler(pid, policy, &param) } == 0 {
        return Ok(());
    }
    Err(last_error())
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error().raw_os_error();
    error.map_or(Errno::PERM, Errno::from_raw_os_error)
}

/// Puts a process (`None`: the caller's thread) into the real-time class SCHED_FIFO with
/// `priority`, 1 to 99.
pub fn set_fifo(pid: Option<Pid>, priority: i32) -> Result<(), Errno> {
    set(pid, SCHED_FIFO, priority)
}

/// Puts the caller's thread into the real-time class SCHED_RR with `priority`, 1 to 99.
pub fn set_round_robin(priority: i32) -> Result<(), Errno> {
    set(None, SCHED_RR, priority)
}

/// What `sched_setattr` is told (sched_setattr(2), `struct sched_attr`, its first version).
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of the default class: the length of a turn, in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Children begin in the default class, with turns of the usual length.
const RESET_ON_FORK: u64 = 1;
/// The same for `sched_setscheduler`. Who has asked for it and has no privileges cannot take it back, and has to ask for it always.
const POLICY_RESET_ON_FORK: i32 = 0x4000_0000;
/// Length of a short turn.
const SHORT_TURN_NS: u64 = 100_000;

/// How the agent's thread takes its turns. It waits mostly, and others for it.
///
/// In the default class it asks for short turns: who takes short ones and waits mostly comes to its turn as soon as it is woken, and not when those are over
/// that keep the core busy. It gets no more of the core by that; kernels before 6.12 know of no such wish. What it starts begins as if nothing had been
/// asked for. Of a thread that is not in the default class, or is put before others (a negative nice value, which what it starts would not get), nothing changes.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    nice: i32,
}

impl Turns {
    /// Asks for short ones for the caller's thread; `None` if nothing is to change.
    #[must_use]
    pub fn take_short() -> Option<Self> {
        let nice = rustix::process::getpriority_process(None).ok()?;
        // SAFETY: the call has no pointers; 0 is the caller's thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        let turns = Turns { nice };
        let is_usual = nice >= 0 && policy & !POLICY_RESET_ON_FORK == SCHED_OTHER;
        (is_usual && turns.shorten().is_ok()).then_some(turns)
    }

    fn shorten(&self) -> Result<(), Errno> {
        let attr = SchedAttr {
            size: size_of::<SchedAttr>() as u32,
            policy: SCHED_OTHER as u32,
            flags: RESET_ON_FORK,
            nice: self.nice,
            priority: 0,
            runtime: SHORT_TURN_NS,
            deadline: 0,
            period: 0,
        };
        // SAFETY: the attributes live through the call, and say how long they are; the kernel checks them. Only the caller's thread is concerned.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            return Ok(());
        }
        Err(last_error())
    }

    /// Puts the caller's thread, the same one, before workers of the real-time class until [`Turns::step_back`].
    ///
    /// # Errors
    /// When that is not permitted; nothing has changed then.
    pub fn step_in_front(&self) -> Result<(), Errno> {
        set(None, SCHED_FIFO | POLICY_RESET_ON_FORK, AGENT_PRIORITY)
    }

    /// Back into the default class.
    pub fn step_back(&self) {
        if self.shorten().is_err() {
            let _ = set(None, SCHED_OTHER | POLICY_RESET_ON_FORK, 0);
        }
    }
}

/// In which of the real-time classes workers run, if in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealTime {
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_RR.
    RoundRobin,
}

/// The real-time class of a process that is in one as workers are; `None` if it is in another class or has another priority, or there is none.
#[must_use]
pub fn worker_class(pid: Pid) -> Option<RealTime> {
    let number = pid.as_raw_nonzero().get();
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is written to a variable that lives through the call.
    if unsafe { libc::sched_getparam(number, &raw mut param) } != 0
        || param.sched_priority != WORKER_PRIORITY
    {
        return None;
    }
    // SAFETY: the call has no pointers.
    let policy = unsafe { libc::sched_getscheduler(number) };
    match policy & !POLICY_RESET_ON_FORK {
        SCHED_FIFO => Some(RealTime::Fifo),
        SCHED_RR => Some(RealTime::RoundRobin),
        _ => None,
    }
}

/// Puts a process back into the class from which it was taken for a moment, with workers' priority.
///
/// # Errors
/// When it is not permitted, or there is no such process.
pub fn put_back(pid: Pid, class: RealTime) -> Result<(), Errno> {
    let policy = match class {
        RealTime::Fifo => SCHED_FIFO,
        RealTime::RoundRobin => SCHED_RR,
    };
    set(Some(pid), policy, WORKER_PRIORITY)
}

/// How long a process, with all its threads, has had a core so far; `None` when there is none of that number.
#[must_use]
pub fn cpu_time(pid: Pid) -> Option<Duration> {
    let mut clock = 0;
    // SAFETY: the clock's number is written to a variable that lives through the call.
    let found = unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &raw mut clock) };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a variable that lives through the call; the kernel checks the clock.
    if found != 0 || unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let (secs, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    Some(Duration::new(secs, nanos))
}

/// Takes a process (`None`: the caller's thread) back to the default class.
pub fn set_default(pid: Option<Pid>) -> Result<(), Errno> {
    set(pid, SCHED_OTHER, 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn who_computes_has_had_a_core_for_as_long() {
        let (own, begun) = (rustix::process::getpid(), Instant::now());
        let before = cpu_time(own).unwrap();
        while cpu_time(own).unwrap() - before < Duration::from_millis(5) {
            assert!(begun.elapsed() < Duration::from_secs(20), "its time does not pass");
        }
        assert_eq!(worker_class(own), None);
        // The least number that no process has, whatever the machine (PID_MAX_LIMIT).
        let nobody = Pid::from_raw(1 << 22).unwrap();
        assert_eq!((cpu_time(nobody), worker_class(nobody)), (None, None));
        assert!(put_back(nobody, RealTime::Fifo).is_err());
    }
}
