//! A ring's writing end.

use super::{RingMemory, RingShape};
use crate::broken;
use crate::entry::Seq;
use crate::fault::{self, Step};
use crate::region::{Region, RegionError};
use crate::shared::Plain;
use crate::sync::{Ordering, fence};

/// The writing end. There is one per ring at a time: it cannot be cloned, and a restarted worker's
/// is made only after the dead one's.
pub struct Producer<E> {
    memory: RingMemory<E>,
    /// Next slot to stage; published up to `published`.
    staged: u64,
    published: u64,
    tail: u64,
    /// Times that the consumer's index could not be.
    nonsense: u64,
}

impl<E: Plain> Producer<E> {
    /// Attaches to a ring's producing end, continuing where its last producer published.
    pub fn attach(
        shape: RingShape<E>,
        producer: &Region,
        consumer: &Region,
    ) -> Result<Self, RegionError> {
        let memory = RingMemory::map(shape, producer.map_writable()?, consumer.map_read_only()?)?;
        Ok(Self::resume(memory))
    }

    pub(super) fn resume(memory: RingMemory<E>) -> Self {
        // Relaxed: our own index; the dead predecessor's stores happened before our start.
        let head = memory.producer().head.load(Ordering::Relaxed);
        // Acquire: pairs with `Consumer::claim`.
        let tail = memory.consumer().tail.load(Ordering::Acquire);
        // A hostile consumer may have written anything: an index that cannot be is taken for a
        // full ring, until it becomes one that can.
        let tail = if head.wrapping_sub(tail) <= memory.capacity() {
            tail
        } else {
            head.wrapping_sub(memory.capacity())
        };
        Producer { memory, staged: head, published: head, tail, nonsense: 0 }
    }

    /// Forgets what it remembers of both indices and reads them again: the agent has put the ring
    /// right while this end rested with nothing staged.
    pub fn resync(&mut self) {
        // Relaxed and Acquire as in `resume`.
        let head = self.memory.producer().head.load(Ordering::Relaxed);
        let tail = self.memory.consumer().tail.load(Ordering::Acquire);
        let capacity = self.memory.capacity();
        let fits = head.wrapping_sub(tail) <= capacity;
        (self.staged, self.published) = (head, head);
        self.tail = if fits { tail } else { head.wrapping_sub(capacity) };
    }

    /// Times that the consumer's index was seen to be impossible.
    #[inline(always)]
    pub fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// Entries that fit in all.
    pub fn capacity(&self) -> usize {
        self.memory.capacity() as usize
    }

    /// How many more entries can be staged. Reads the consumer's index only when the cached one
    /// leaves less room than `want`.
    #[inline]
    pub fn room(&mut self, want: usize) -> usize {
        let mut room = self.room_cached();
        if room < want {
            // Acquire: pairs with `Consumer::claim`: the slots before it have been read.
            let tail = self.memory.consumer().tail.load(Ordering::Acquire);
            // A hostile consumer may write anything: an index that goes back, or beyond what was
            // published, is not believed.
            if tail.wrapping_sub(self.tail) <= self.published.wrapping_sub(self.tail) {
                self.tail = tail;
            } else {
                self.nonsense = self.nonsense.saturating_add(1);
            }
            room = self.room_cached();
        }
        room
    }

    #[inline(always)]
    fn room_cached(&self) -> usize {
        (self.memory.capacity() - self.staged.wrapping_sub(self.tail)) as usize
    }

    /// Writes one entry into the next slot without publishing it. False when the ring is full.
    #[inline(always)]
    pub fn stage(&mut self, entry: E) -> bool {
        if self.room_cached() == 0 && self.room(1) == 0 {
            return false;
        }
        self.memory.slot(self.staged).store(entry);
        self.staged = self.staged.wrapping_add(1);
        true
    }

    /// Writes entries into the next slots without publishing them, as many as find room; says how
    /// many.
    #[inline]
    pub fn stage_all(&mut self, entries: impl ExactSizeIterator<Item = E>) -> usize {
        let n = self.room(entries.len()).min(entries.len());
        let (slots, mask) = (self.memory.slots, self.memory.mask as usize);
        let mut at = self.staged as usize & mask;
        for entry in entries.take(n) {
            // SAFETY: the mask keeps the index below the capacity; the slots live with the memory.
            unsafe { slots.add(at).as_ref() }.store(entry);
            at = (at + 1) & mask;
        }
        self.staged = self.staged.wrapping_add(n as u64);
        n
    }

    /// As [`Producer::stage_all`], from entries that lie one after the other.
    #[inline]
    pub fn stage_slice(&mut self, entries: &[E]) -> usize {
        // Tests die between two entries, and models watch each slot.
        if cfg!(any(loom, feature = "faults")) {
            return self.stage_all(entries.iter().map(|e| {
                fault::step(Step::HalfStaged);
                *e
            }));
        }
        let n = self.room(entries.len()).min(entries.len());
        let at = (self.staged & self.memory.mask) as usize;
        let before_wrap = n.min(self.memory.capacity() as usize - at);
        // SAFETY: `at + before_wrap` is at most the capacity and `n - before_wrap` below it; `entries`
        // has n, and is private memory: it does not overlap the ring's. The slots are this
        // producer's alone until it publishes them (`room`).
        unsafe {
            let slots = self.memory.slots.cast::<E>().as_ptr();
            let from = entries.as_ptr();
            std::ptr::copy_nonoverlapping(from, slots.add(at), before_wrap);
            std::ptr::copy_nonoverlapping(from.add(before_wrap), slots, n - before_wrap);
        }
        self.staged = self.staged.wrapping_add(n as u64);
        n
    }

    /// Stages what `other` has staged and this ring has not yet, each entry at the index that it has there.
    /// What finds no room is staged the next time.
    pub fn repeat(&mut self, other: &Self) {
        // Further apart than the slots reach back, or behind: only where a hostile worker has been at work. Then
        // other entries stand there, or these do already; the indices come together again all the same.
        let ahead = other.staged.wrapping_sub(self.staged) as i64;
        let ahead = usize::try_from(ahead).unwrap_or(0).min(self.capacity());
        for _ in 0..ahead.min(self.room(ahead)) {
            let entry = other.memory.slot(self.staged).load();
            self.memory.slot(self.staged).store(entry);
            self.staged = self.staged.wrapping_add(1);
            fault::step(Step::HalfStaged);
        }
    }

    /// Index up to which entries are staged: what the ledger records before publishing.
    #[inline(always)]
    pub fn staged(&self) -> u64 {
        self.staged
    }

    /// Index up to which entries are published.
    #[inline(always)]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Makes all staged entries visible to the consumer. True when it asked to be woken.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.staged == self.published {
            return false;
        }
        // Release: pairs with the Acquire in `Consumer::available`.
        self.memory.producer().head.store(self.staged, broken::order("publish", Ordering::Release));
        self.published = self.staged;
        self.consumer_sleeps()
    }

    /// Promises that no entry before `seq` follows. True when the consumer asked to be woken.
    /// To be called after [`Producer::publish`].
    #[inline]
    pub fn set_watermark(&mut self, seq: Seq) -> bool {
        // Release: pairs with the Acquire in `Consumer::watermark`; `head` was stored before.
        self.memory.producer().watermark.store(seq.get(), Ordering::Release);
        self.consumer_sleeps()
    }

    /// What was promised last, by this end or by whom it succeeds.
    pub fn watermark(&self) -> Seq {
        // Relaxed: our own word; a predecessor's stores, and the agent's, happened before.
        Seq::new(self.memory.producer().watermark.load(Ordering::Relaxed))
    }

    #[inline]
    fn consumer_sleeps(&self) -> bool {
        // SeqCst fence: pairs with the one in `Consumer::sleep`. Either we see its flag, or it sees
        // our index: no wake-up is lost.
        if !broken::is("doorbell") {
            fence(Ordering::SeqCst);
        }
        self.memory.consumer().sleeping.load(Ordering::Relaxed) != 0
    }

    /// Says that this producer is going to sleep until there is room; true when there is room for
    /// `want` already, and it must not sleep.
    pub fn wait(&mut self, want: usize) -> bool {
        self.memory.producer().waiting.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `Consumer::producer_waits`.
        if !broken::is("doorbell") {
            fence(Ordering::SeqCst);
        }
        self.room(want) >= want
    }

    /// Takes back [`Producer::wait`].
    pub fn wake(&mut self) {
        self.memory.producer().waiting.store(0, Ordering::Relaxed);
    }
}
