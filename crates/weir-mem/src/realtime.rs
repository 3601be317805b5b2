//! The real-time class, which rustix does not offer.

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

/// Takes a process (`None`: the caller's thread) back to the default class.
pub fn set_default(pid: Option<Pid>) -> Result<(), Errno> {
    set(pid, SCHED_OTHER, 0)
}
