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
    changes: u64,
}

/// Sets more than can have been set stand in no replica.
const BEYOND_SETS: u64 = 1 << 63;

impl Timers {
    /// Sets one; false when there are too many.
    pub(crate) fn set(&mut self, due_ns: u64, token: u64) -> bool {
        if self.heap.len() >= MOST_TIMERS {
            return false;
        }
        self.set += 1;
        self.changes += 1;
        self.heap.push(Reverse((due_ns, self.set, token)));
        true
    }

    /// More of them, as [`Timers::unsorted`] gives them; false, and nothing has changed, when there are too many, or one cannot be.
    pub(crate) fn put(&mut self, timers: &[(u64, u64, u64)]) -> bool {
        let fits = timers.len() <= MOST_TIMERS.saturating_sub(self.heap.len());
        if !fits || timers.iter().any(|(_, set, _)| *set >= BEYOND_SETS) {
            return false;
        }
        self.set = timers.iter().fold(self.set, |most, (_, set, _)| most.max(*set));
        self.changes += 1;
        self.heap.extend(timers.iter().copied().map(Reverse));
        true
    }

    /// How often one was set or taken.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// All, in the order in which they are due: when, and the token.
    pub(crate) fn all(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = self.heap.iter().map(|Reverse(timer)| *timer).collect();
        all.sort_unstable();
        all.into_iter().map(|(due, _, token)| (due, token)).collect()
    }

    /// All, in no order: when each is due, which it was to be set, and its token.
    pub(crate) fn unsorted(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.heap.iter().map(|Reverse(timer)| *timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
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
        self.changes += 1;
        self.heap.pop().map(|Reverse((due, _, token))| (due, token))
    }
}
