//! Waking a worker that sleeps.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::Duration;

/// Why a doorbell could not be made or waited for.
#[derive(Debug, thiserror::Error)]
#[error("doorbell: {0}")]
pub struct DoorbellError(#[from] Errno);

/// An event counter of the kernel that one worker waits for and others ring. Ringing costs a
/// system call, so it is rung only for a worker that said in shared memory that it sleeps.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new one.
    pub fn new() -> Result<Self, DoorbellError> {
        Ok(Doorbell(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// One that another process made.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Doorbell(fd)
    }

    /// Its descriptor, to be passed on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Wakes whoever waits. A counter that is full (nobody answers) is left as it is.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until rung, until `other` has something to read, or until `timeout` is over.
    /// True when `other` has something (or was closed by its peer).
    pub fn wait(
        &self,
        other: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<bool, DoorbellError> {
        let mut fds = Vec::with_capacity(2);
        fds.push(PollFd::new(&self.0, PollFlags::IN));
        if let Some(other) = &other {
            fds.push(PollFd::new(other, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let heard = fds.get(1).is_some_and(|f| !f.revents().is_empty());
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
        Ok(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_rung_doorbell_does_not_wait_and_an_answered_one_does() {
        let bell = Doorbell::new().unwrap();
        bell.ring();
        let start = Instant::now();
        bell.wait(None, Duration::from_secs(10)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
        let start = Instant::now();
        bell.wait(None, Duration::from_millis(20)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
