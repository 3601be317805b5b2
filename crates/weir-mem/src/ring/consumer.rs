//! A ring's reading end.

use super::{RingMemory, RingShape};
use crate::broken;
use crate::entry::Seq;
use crate::region::{Region, RegionError};
use crate::shared::Plain;
use crate::sync::{Ordering, Slot, fence};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The reading end; one per ring at a time.
pub struct Consumer<E> {
    memory: RingMemory<E>,
    tail: u64,
    head: u64,
    /// Times that the producer's index could not be.
    nonsense: u64,
}

impl<E: Plain> Consumer<E> {
    /// Attaches to a ring's consuming end, continuing where its last consumer claimed.
    pub fn attach(
        shape: RingShape<E>,
        producer: &Region,
        consumer: &Region,
    ) -> Result<Self, RegionError> {
        let memory = RingMemory::map(shape, producer.map_read_only()?, consumer.map_writable()?)?;
        Ok(Self::resume(memory))
    }

    pub(super) fn resume(memory: RingMemory<E>) -> Self {
        // Relaxed: our own index.
        let tail = memory.consumer().tail.load(Ordering::Relaxed);
        Consumer { memory, tail, head: tail, nonsense: 0 }
    }

    /// Forgets what it remembers of both indices and reads them again: the agent has put the ring
    /// right while this end rested.
    pub fn resync(&mut self) {
        // Relaxed: our own index; the agent's store happened before its command to go on.
        self.tail = self.memory.consumer().tail.load(Ordering::Relaxed);
        self.head = self.tail;
    }

    /// Times that the producer's index was seen to be impossible.
    #[inline(always)]
    pub fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// Entries that fit in all.
    pub fn capacity(&self) -> usize {
        self.memory.capacity() as usize
    }

    /// Entries that can be peeked at. Reads the producer's index only when fewer than `want` are
    /// known.
    #[inline]
    pub fn available(&mut self, want: usize) -> usize {
        let known = self.head.wrapping_sub(self.tail) as usize;
        if known < want { self.refresh() } else { known }
    }

    /// As [`Consumer::available`], always reading the producer's index.
    #[inline]
    pub fn refresh(&mut self) -> usize {
        // Acquire: pairs with `Producer::publish`: the slots before it can be read.
        let head = self.memory.producer().head.load(Ordering::Acquire);
        // A hostile producer may write anything: never more than fit, never fewer than we knew.
        let ahead = head.wrapping_sub(self.tail);
        if ahead <= self.memory.capacity() && ahead >= self.head.wrapping_sub(self.tail) {
            self.head = head;
        } else {
            self.nonsense = self.nonsense.saturating_add(1);
        }
        self.head.wrapping_sub(self.tail) as usize
    }

    /// A copy of the `i`th entry after the claimed ones, `None` when it isn't there (yet).
    #[inline(always)]
    pub fn peek(&self, i: usize) -> Option<E> {
        if (i as u64) < self.head.wrapping_sub(self.tail) {
            Some(self.memory.slot(self.tail.wrapping_add(i as u64)).load())
        } else {
            None
        }
    }

    /// The slots of the next `n` entries, at most the ring's capacity, as two runs: up to its end, and
    /// from its start. Whether there are so many entries is the caller's business.
    #[inline(always)]
    pub(crate) fn window(&self, n: usize) -> [Run<'_, E>; 2] {
        let (slots, at) = (self.memory.slots, (self.tail & self.memory.mask) as usize);
        let capacity = self.memory.capacity() as usize;
        let before_wrap = n.min(capacity - at);
        // SAFETY: the mask keeps `at` below the capacity.
        let first = unsafe { slots.add(at) };
        let rest = (n - before_wrap).min(capacity);
        [
            Run { slots: first, left: before_wrap, ring: PhantomData },
            Run { slots, left: rest, ring: PhantomData },
        ]
    }

    /// Takes the next `n` entries (at most those available): the producer may re-use their slots.
    /// Owner words must have been written before.
    #[inline]
    pub fn claim(&mut self, n: usize) {
        let n = (n as u64).min(self.head.wrapping_sub(self.tail));
        self.tail = self.tail.wrapping_add(n);
        // Release: pairs with the Acquire in `Producer::room`, and in `RingInspector::tail`: who
        // sees the claim sees the owner words.
        self.memory.consumer().tail.store(self.tail, broken::order("claim", Ordering::Release));
    }

    /// True when the producer sleeps until there is room, and at least half of the ring is free.
    #[inline]
    pub fn producer_waits(&mut self) -> bool {
        // SeqCst fence: pairs with the one in `Producer::wait`.
        if !broken::is("doorbell") {
            fence(Ordering::SeqCst);
        }
        self.memory.producer().waiting.load(Ordering::Relaxed) != 0
            && self.refresh() as u64 <= self.memory.capacity() / 2
    }

    /// Index up to which entries are claimed.
    #[inline(always)]
    pub fn claimed(&self) -> u64 {
        self.tail
    }

    /// The producer's promise that nothing before it follows. Read it *before* looking for
    /// entries: then an empty ring means that everything before the watermark has been seen.
    #[inline]
    pub fn watermark(&self) -> Seq {
        // Acquire: pairs with `Producer::set_watermark`; orders it before the load of `head`.
        // Broken here and not in `set_watermark`: there, the fence in `publish` orders as well.
        let order = broken::order("watermark", Ordering::Acquire);
        Seq::new(self.memory.producer().watermark.load(order))
    }

    /// Says that this consumer is going to sleep. Check the ring (and the watermark) once more
    /// afterwards; only then sleep.
    pub fn sleep(&mut self) {
        self.memory.consumer().sleeping.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `Producer::consumer_sleeps`.
        if !broken::is("doorbell") {
            fence(Ordering::SeqCst);
        }
    }

    /// Takes back [`Consumer::sleep`].
    pub fn wake(&mut self) {
        self.memory.consumer().sleeping.store(0, Ordering::Relaxed);
    }
}

/// Neighbouring slots of a ring, to be read one after the other.
pub(crate) struct Run<'r, E> {
    slots: NonNull<Slot<E>>,
    left: usize,
    ring: PhantomData<&'r ()>,
}

impl<E: Plain> Iterator for Run<'_, E> {
    type Item = E;

    /// A copy of the next slot's entry.
    #[inline(always)]
    fn next(&mut self) -> Option<E> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: `window` made the run from slots of the ring, which live with it; `left` more
        // follow.
        let entry = unsafe { self.slots.as_ref() }.load();
        // SAFETY: at most one behind the last slot.
        self.slots = unsafe { self.slots.add(1) };
        Some(entry)
    }
}
