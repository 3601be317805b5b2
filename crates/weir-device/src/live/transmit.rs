//! What afp and tap share in sending.

use crate::Dropped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::time::{Duration, Instant};
use weir_packet::DropReason;

/// How long one batch may wait for a device that is full, in all.
const PATIENCE: Duration = Duration::from_millis(20);
/// A device that says "no buffers" does not say when there are some.
const NAP: Duration = Duration::from_micros(200);

/// Patience with a device that is full.
#[derive(Debug, Default)]
pub(super) struct Patience(Option<Instant>);

impl Patience {
    /// Waits until the device takes packets again, or for a moment. False when it was waited long
    /// enough.
    pub(super) fn wait(&mut self, fd: impl AsFd, says_when: bool) -> bool {
        let now = Instant::now();
        let end = *self.0.get_or_insert(now + PATIENCE);
        let left = end.saturating_duration_since(now);
        if left.is_zero() {
            return false;
        }
        let left = if says_when { left } else { left.min(NAP) };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
        // Without the flag only the time is waited for; errors of the device end it early, which
        // the next attempt to send shows.
        let fds = if says_when { &mut fds[..] } else { &mut [] };
        let _ = poll(fds, Some(&timeout));
        true
    }
}

/// Counts packets that were not sent.
pub(super) fn drop_packets(dropped: &mut Dropped, reason: DropReason, packets: usize) {
    if let Some(count) = dropped.get_mut(reason as usize) {
        *count += packets as u64;
    }
}
