//! The real-time class, and turns of the default class: rustix offers neither.

use rustix::io::Errno;
use rustix::process::Pid;

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
    Err(std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::PERM, Errno::from_raw_os_error))
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

/// Children begin as if nothing had been asked for.
const RESET_ON_FORK: u64 = 1;

/// Asks for short turns (0.1 ms) for the caller's thread, in the default class: who takes short ones and waits mostly comes to its turn as soon as it is woken,
/// and not when those are over that keep the core busy. It gets no more of the core by that. Kernels before 6.12 know of no such wish. Nothing is asked for
/// of who is put before others (a negative nice value), as its children would not be any more.
///
/// # Errors
/// When the kernel refuses.
pub fn take_short_turns() -> Result<(), Errno> {
    let nice = rustix::process::getpriority_process(None)?;
    if nice < 0 {
        return Ok(());
    }
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: SCHED_OTHER as u32,
        flags: RESET_ON_FORK,
        nice,
        priority: 0,
        runtime: 100_000,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the attributes live through the call, and say how long they are; the kernel checks them. No thread but this one is concerned.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()
        .raw_os_error()
        .map_or(Errno::PERM, Errno::from_raw_os_error))
}

/// Takes a process (`None`: the caller's thread) back to the default class.
pub fn set_default(pid: Option<Pid>) -> Result<(), Errno> {
    set(pid, SCHED_OTHER, 0)
}
