//! Processes that were killed, and whose end takes the kernel long: it takes their memory apart, for which it may have to wait (seconds, with other
//! work on the machine). The agent does not wait for that: who is on its way out runs nothing of its program any more. The successor of a device's service begins
//! when it has gone, with its files; that of a worker of µNFs, which has none, when it is on its way out ([`weir_mem::knell`]).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an end mostly takes at most.
pub(crate) const SOON: Duration = Duration::from_millis(20);
/// Time between two looks at one that takes longer.
const LOOK: Duration = Duration::from_millis(1);
/// In the flags of a task: it is on its way out, and does not come back to its program (`PF_EXITING`, the kernel's `sched.h`).
const EXITING: u64 = 4;
/// Their place in `/proc/PID/stat` behind the name (proc_pid_stat(5)).
const FLAGS: usize = 6;
/// That of the number of its threads, of which none counts any more that the kernel is through with.
const THREADS: usize = 17;
/// That of how much memory it has.
const MEMORY: usize = 20;
/// That of how it ends, as wait(2) has it: 0 for who may not know.
const STATUS: usize = 49;

/// Those that were left to end by themselves, until somebody has taken note of it.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A process that somebody takes note of in the end, whatever becomes of who started it.
pub(crate) struct Reaped {
    pid: Pid,
    /// Until it is dropped.
    child: Option<Child>,
    /// It is on its way out, and how is known.
    killed: Cell<bool>,
}

impl Reaped {
    pub(crate) fn new(child: Child) -> Self {
        reap();
        Reaped { pid: Pid::from_child(&child), child: Some(child), killed: Cell::new(false) }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// True when it is on its way out as somebody has killed it, and nothing writes to its memory any more. The kernel may not have taken it apart.
    pub(crate) fn was_killed(&self) -> bool {
        let killed = self.child.as_ref().is_some_and(|child| was_killed(child.id()));
        if killed {
            self.killed.set(true);
        }
        killed
    }

    /// How it ended. Waits for it, but not for the kernel to take apart who [was killed](Reaped::was_killed).
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.child else { return Err(io::ErrorKind::NotFound.into()) };
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if self.killed.get() {
            make_way(self.pid);
            return Ok(ExitStatus::from_raw(Signal::KILL.as_raw()));
        }
        child.wait()
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

/// Waits until those have gone that were left to end by themselves, at the end of all: others may want what they have open.
pub(crate) fn wait_for_all(patience: Duration) {
    let since = Instant::now();
    loop {
        reap();
        let some = !LEFT.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !some || since.elapsed() > patience {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// True when all threads of a process are on their way out: by its own doing, or as somebody has killed it. False for one that cannot be looked at.
pub(crate) fn is_exiting(pid: u32) -> bool {
    let Ok(mut tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.all(|task| match task.and_then(|task| stat(&task.path().join("stat"))) {
        Ok(stat) => field(&stat, FLAGS).is_some_and(|flags| flags & EXITING != 0),
        Err(e) => has_gone(&e),
    })
}

/// Whether that is said of a task that is no more.
fn has_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| gone.contains(&error))
}

/// True when a process is on its way out as somebody has killed it, and nothing writes to its memory any more, not even the kernel, which does to
/// lock words that it is told of: its only thread has none any more.
fn was_killed(pid: u32) -> bool {
    let killed = u64::from(Signal::KILL.as_raw().unsigned_abs());
    stat(Path::new(&format!("/proc/{pid}/stat"))).is_ok_and(|stat| {
        let is = |place, value| field(&stat, place) == Some(value);
        let exits = field(&stat, FLAGS).is_some_and(|flags| flags & EXITING != 0);
        exits && is(STATUS, killed) && is(THREADS, 1) && is(MEMORY, 0)
    })
}

/// What such a file says.
pub(crate) fn stat(path: &Path) -> io::Result<String> {
    // The name may have any bytes in it.
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// A number in it.
fn field(stat: &str, place: usize) -> Option<u64> {
    // Nothing behind the name has a bracket.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(place)?.parse().ok()
}

/// Has a process that is on its way out stand in nobody's way, if it may be told so: it is no longer in the class of workers, nor bound to its core, where its
/// successor is to run. Nor is it sent off that, as it would go to where the agent is.
fn make_way(pid: Pid) {
    let _ = weir_mem::realtime::set_default(Some(pid));
    if let (Ok(mut cores), Ok(its)) = (sched_getaffinity(None), sched_getaffinity(Some(pid))) {
        (0..CpuSet::MAX_CPU).filter(|core| its.is_set(*core)).for_each(|core| cores.set(core));
        let _ = sched_setaffinity(Some(pid), &cores);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
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
    fn who_was_killed_is_told_from_who_ended_otherwise() {
        let ends = |ends: &str| {
            let mut child = Command::new("sh").args(["-c", ends]).spawn().unwrap();
            let pid = Pid::from_child(&child);
            // Nobody takes note of it yet: that is how it is found.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), options).unwrap();
            let killed = was_killed(child.id());
            child.wait().unwrap();
            killed
        };
        assert!(ends("kill -KILL $$"));
        assert!(!ends("kill -TERM $$"));
        assert!(!ends("exit 9"));
        let mut lives = Command::new("sleep").arg("1000").spawn().unwrap();
        let killed = was_killed(lives.id());
        lives.kill().unwrap();
        lives.wait().unwrap();
        assert!(!killed);
    }

    #[test]
    fn a_thread_may_call_itself_anything() {
        // What is no text, and what looks like the end of the name.
        for name in [c"\xff\xfe", c") Z 1 2 3"] {
            let named = std::thread::spawn(move || {
                rustix::thread::set_name(name).unwrap();
                stat(Path::new("/proc/thread-self/stat"))
            });
            let said = named.join().unwrap().unwrap();
            let flags = field(&said, FLAGS);
            assert!(flags.is_some_and(|flags| flags & EXITING == 0), "{said}");
        }
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
