//! When a µNF wants to be called again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Timers that may be outstanding per µNF; more are refused.
pub const MOST_TIMERS: usize = 1 << 16;

/// Outstanding timers, the earliest first; equal ones in the order in which they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    set: u64,
}

impl Timers {
    /// Sets one; false when there are too many.
    pub(crate) fn set(&mut self, due_ns: u64, token: u64) -> bool {
        if self.heap.len() >= MOST_TIMERS {
            return false;
        }
        self.set += 1;
        self.heap.push(Reverse((due_ns, self.set, token)));
        true
    }

    /// When the next is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    /// Takes the next that is due at `now`.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        if self.next()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((due, _, token))| (due, token))
    }
}
