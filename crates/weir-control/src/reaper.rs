//! Processes that were killed, and whose end takes the kernel long: it takes their memory apart, for which it may have to wait (seconds, with other
//! work on the machine). The agent does not wait for that: who is on its way out runs nothing of its program any more. Its successor begins when it has gone,
//! with its files and its memory.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::process::Pid;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an end mostly takes at most.
pub(crate) const SOON: Duration = Duration::from_millis(20);
/// Time between two looks at one that takes longer.
const LOOK: Duration = Duration::from_millis(1);
/// In the flags of a task: it is on its way out, and does not come back to its program (`PF_EXITING`, the kernel's `sched.h`).
const EXITING: u64 = 4;
/// Its place in `/proc/PID/stat` behind the name (proc(5)).
const FLAGS: usize = 6;

/// Those that were left to end by themselves, until somebody has taken note of it.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A process that somebody takes note of in the end, whatever becomes of who started it.
pub(crate) struct Reaped {
    pid: Pid,
    /// Until it is dropped.
    child: Option<Child>,
}

impl Reaped {
    pub(crate) fn new(child: Child) -> Self {
        reap();
        Reaped { pid: Pid::from_child(&child), child: Some(child) }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended; waits for it.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.child {
            Some(child) => child.wait(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Ends it at once: when this returns it runs nothing of its program any more. Should the kernel take longer than `patience` to take it apart, `pidfd`
    /// says later that it has ended.
    pub(crate) fn kill(&mut self, pidfd: BorrowedFd<'_>, patience: Duration) {
        let Some(child) = &mut self.child else { return };
        let _ = child.kill();
        let since = Instant::now();
        loop {
            let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
            let left = patience.saturating_sub(since.elapsed());
            let wait = if left.is_zero() { LOOK } else { left };
            if poll(&mut fds, Timespec::try_from(wait).ok().as_ref()).is_ok_and(|n| n > 0) {
                let _ = child.wait();
                return;
            }
            // One that cannot be looked at is waited for.
            if since.elapsed() >= patience && is_exiting(child.id()) {
                return;
            }
        }
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take()
            && matches!(child.try_wait(), Ok(None))
        {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        }
    }
}

/// Takes note of those that have ended meanwhile.
pub(crate) fn reap() {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// True when all threads of a process are on their way out: by its own doing, or as somebody has killed it.
pub(crate) fn is_exiting(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let flags = |stat: &str| -> Option<u64> {
        // The name may have anything in it, but nothing behind it has a bracket.
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(FLAGS)?.parse().ok()
    };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat"));
        stat.ok().and_then(|stat| flags(&stat)).is_none_or(|flags| flags & EXITING != 0)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::process::Command;

    #[test]
    fn who_runs_is_not_exiting_and_who_is_killed_is_taken_note_of() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert!(!is_exiting(child.id()));
        let mut process = Reaped::new(child);
        process.kill(pidfd.as_fd(), SOON);
        assert!(!process.wait().unwrap().success());
    }

    #[test]
    fn who_has_ended_and_nobody_has_taken_note_of_is_exiting_and_is_reaped() {
        let child = Command::new("true").spawn().unwrap();
        let id = child.id();
        let end = Instant::now() + Duration::from_secs(10);
        while !is_exiting(id) {
            assert!(Instant::now() < end, "it does not end");
        }
        drop(Reaped::new(child));
        let is_there = || std::path::Path::new(&format!("/proc/{id}")).exists();
        while is_there() {
            reap();
            assert!(Instant::now() < end, "it is not reaped");
        }
    }
}
