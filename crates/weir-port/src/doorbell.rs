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

/// What ended a wait, besides the bell and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The other descriptor has something, or was closed by its peer.
    pub other: bool,
    /// The device's descriptor is in error.
    pub trouble: bool,
    /// The device has something to read.
    pub device: bool,
}

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
        Ok(self.wait_with(other, None, timeout)?.other)
    }

    /// As [`Doorbell::wait`], and until `device` has something to read or is in error.
    pub fn wait_with(
        &self,
        other: Option<BorrowedFd<'_>>,
        device: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<Woken, DoorbellError> {
        // A descriptor in place of one that is not there is not looked at afterwards.
        let fd = |fd: Option<BorrowedFd<'_>>| {
            let events = if fd.is_some() { PollFlags::IN } else { PollFlags::empty() };
            (fd.is_some(), events)
        };
        let ((has_other, other_events), (has_device, device_events)) = (fd(other), fd(device));
        let bell = self.0.as_fd();
        let mut fds = [
            PollFd::from_borrowed_fd(bell, PollFlags::IN),
            PollFd::from_borrowed_fd(other.unwrap_or(bell), other_events),
            PollFd::from_borrowed_fd(device.unwrap_or(bell), device_events),
        ];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [_, other, device] = fds.map(|f| f.revents());
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
        Ok(Woken {
            other: has_other && !other.is_empty(),
            trouble: has_device && device.intersects(!PollFlags::IN),
            device: has_device && device.intersects(PollFlags::IN),
        })
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
