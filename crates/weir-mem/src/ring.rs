//! Single-producer single-consumer rings.
//!
//! A ring is two memories: the producer's (its index, its watermark, the slots) and the consumer's
//! (its index). Each side can write only its own, so whatever a hostile peer does, it cannot make
//! this side lose its place. There is no multi-producer ring: one producer that dies half-way
//! through an enqueue would block all others for ever.
//!
//! Indices count entries since the ring was made and never wrap in practice (2⁶⁴); the slot is the
//! index modulo the capacity. Each side caches the other's index and reads it again only when the
//! cached one says full or empty (the classic design of FastForward and MCRingBuffer).
//!
//! **Orderings.** `head` (producer's index) is stored with Release by [`Producer::publish`] and
//! loaded with Acquire by the consumer: a consumer that sees the index sees the slots. `tail`
//! (consumer's index) is stored with Release by [`Consumer::claim`] and loaded with Acquire by the
//! producer, so the slots are re-used only after they were read, and by the sweep, so that a claim
//! it sees comes with the owner words written before it. `watermark` is stored with Release after
//! `head`, and loaded with Acquire *before* `head`: see [`Consumer::watermark`].

mod inspector;

pub use inspector::{Indices, Judgement, RingInspector};

use crate::entry::Seq;
use crate::fault::{self, Step};
use crate::region::{Mapping, Region, RegionError};
use crate::shared::{Plain, Shared};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Slot, fence};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// What the producer writes. Two lines: the index is read by the consumer all the time, the
/// watermark only where streams are merged.
#[repr(C, align(128))]
pub(crate) struct ProducerSide {
    head: AtomicU64,
    _pad: [Shared<u64>; 7],
    watermark: AtomicU64,
    /// 1 while the producer sleeps until there is room.
    waiting: AtomicU32,
}

/// What the consumer writes.
#[repr(C, align(128))]
pub(crate) struct ConsumerSide {
    tail: AtomicU64,
    /// 1 while the consumer sleeps until there is something.
    sleeping: AtomicU32,
}

/// Bytes before the first slot.
const HEADER: usize = size_of::<ProducerSide>();

/// Capacity of a ring and kind of its entries; gives the sizes of its two memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingShape<E> {
    capacity: u32,
    entry: PhantomData<E>,
}

impl<E: Plain> RingShape<E> {
    /// A ring that holds at least `capacity` entries (rounded up to a power of two, at least 2).
    pub fn at_least(capacity: u32) -> Self {
        let capacity = capacity.clamp(2, 1 << 26).next_power_of_two();
        RingShape { capacity, entry: PhantomData }
    }

    /// Entries that fit.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of the producer's memory.
    pub fn producer_len(&self) -> usize {
        HEADER + self.capacity as usize * size_of::<E>()
    }

    /// Bytes of the consumer's memory.
    pub fn consumer_len(&self) -> usize {
        size_of::<ConsumerSide>()
    }

    /// Makes the producer's and the consumer's memory.
    pub fn create(&self, name: &str) -> Result<(Region, Region), RegionError> {
        Ok((
            Region::create(&format!("{name}/p"), self.producer_len())?,
            Region::create(&format!("{name}/c"), self.consumer_len())?,
        ))
    }
}

/// Keeps alive what a ring's pointers point into.
enum Backing {
    #[allow(dead_code)] // held for its Drop
    Mapped(Mapping, Mapping),
    #[cfg(any(test, loom))]
    Heap,
}

struct RingMemory<E> {
    producer: NonNull<ProducerSide>,
    consumer: NonNull<ConsumerSide>,
    slots: NonNull<Slot<E>>,
    mask: u64,
    _backing: Arc<Backing>,
}

// SAFETY: the memory is shared by design; the two sides' discipline (one producer, one consumer,
// Release/Acquire on the indices) is kept by `Producer` and `Consumer`, which cannot be cloned.
unsafe impl<E: Send> Send for RingMemory<E> {}

impl<E: Plain> RingMemory<E> {
    fn map(shape: RingShape<E>, producer: Mapping, consumer: Mapping) -> Result<Self, RegionError> {
        for (mapping, needs) in
            [(&producer, shape.producer_len()), (&consumer, shape.consumer_len())]
        {
            if mapping.len() < needs {
                return Err(RegionError::TooSmall { has: mapping.len() as u64, needs });
            }
        }
        // SAFETY: HEADER is within the mapping, as just checked.
        let slots = unsafe { producer.base().add(HEADER) };
        Ok(RingMemory {
            producer: producer.base().cast(),
            consumer: consumer.base().cast(),
            slots: slots.cast(),
            mask: u64::from(shape.capacity) - 1,
            _backing: Arc::new(Backing::Mapped(producer, consumer)),
        })
    }

    fn producer(&self) -> &ProducerSide {
        // SAFETY: page-aligned (or boxed) memory of at least this size, alive with `_backing`; all
        // fields are atomics, so a shared reference is right while others write.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &ConsumerSide {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> &Slot<E> {
        // SAFETY: the mask keeps the index below the capacity, whatever it is; `Slot` is a cell.
        unsafe { self.slots.add((index & self.mask) as usize).as_ref() }
    }

    fn capacity(&self) -> u64 {
        self.mask + 1
    }
}

#[cfg(any(test, loom))]
impl<E: Plain> RingMemory<E> {
    /// A ring inside this process, for models and tests. The memory is leaked: models run in
    /// processes that end.
    fn heap_pair(capacity: u32) -> (Self, Self) {
        let producer = NonNull::from(Box::leak(Box::new(ProducerSide {
            head: AtomicU64::new(0),
            _pad: std::array::from_fn(|_| Shared::new(0)),
            watermark: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
        })));
        let consumer = NonNull::from(Box::leak(Box::new(ConsumerSide {
            tail: AtomicU64::new(0),
            sleeping: AtomicU32::new(0),
        })));
        #[cfg(not(loom))]
        let slots: Vec<E> = vec![E::ZERO; capacity as usize];
        #[cfg(loom)]
        let slots: Vec<Slot<E>> = (0..capacity).map(|_| Slot::new(E::ZERO)).collect();
        let slots = NonNull::from(Box::leak(slots.into_boxed_slice())).cast::<Slot<E>>();
        let make = || RingMemory {
            producer,
            consumer,
            slots,
            mask: u64::from(capacity) - 1,
            _backing: Arc::new(Backing::Heap),
        };
        (make(), make())
    }
}

/// A ring inside this process, for models and tests.
#[cfg(any(test, loom))]
pub fn heap_ring<E: Plain>(capacity: u32) -> (Producer<E>, Consumer<E>) {
    let (p, c) = RingMemory::heap_pair(capacity);
    (Producer::resume(p), Consumer::resume(c))
}

/// As [`heap_ring`], with the agent's view.
#[cfg(any(test, loom))]
pub fn heap_ring_inspected<E: Plain>(
    capacity: u32,
) -> (Producer<E>, Consumer<E>, RingInspector<E>) {
    let (p, c) = RingMemory::heap_pair(capacity);
    let inspector = RingInspector {
        memory: RingMemory {
            producer: p.producer,
            consumer: p.consumer,
            slots: p.slots,
            mask: p.mask,
            _backing: p._backing.clone(),
        },
    };
    (Producer::resume(p), Consumer::resume(c), inspector)
}

/// The ends that a restarted worker attaches to a ring inside this process.
#[cfg(all(test, loom))]
pub(crate) fn heap_successors<E: Plain>(agent: &RingInspector<E>) -> (Producer<E>, Consumer<E>) {
    let again = || RingMemory {
        producer: agent.memory.producer,
        consumer: agent.memory.consumer,
        slots: agent.memory.slots,
        mask: agent.memory.mask,
        _backing: agent.memory._backing.clone(),
    };
    (Producer::resume(again()), Consumer::resume(again()))
}

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

    fn resume(memory: RingMemory<E>) -> Self {
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
        #[cfg(not(feature = "broken-publish"))]
        // Release: pairs with the Acquire in `Consumer::available`.
        self.memory.producer().head.store(self.staged, Ordering::Release);
        #[cfg(feature = "broken-publish")]
        self.memory.producer().head.store(self.staged, Ordering::Relaxed);
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

    #[inline]
    fn consumer_sleeps(&self) -> bool {
        // SeqCst fence: pairs with the one in `Consumer::sleep`. Either we see its flag, or it sees
        // our index: no wake-up is lost.
        #[cfg(not(feature = "broken-doorbell"))]
        fence(Ordering::SeqCst);
        self.memory.consumer().sleeping.load(Ordering::Relaxed) != 0
    }

    /// Says that this producer is going to sleep until there is room; true when there is room for
    /// `want` already, and it must not sleep.
    pub fn wait(&mut self, want: usize) -> bool {
        self.memory.producer().waiting.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `Consumer::producer_waits`.
        #[cfg(not(feature = "broken-doorbell"))]
        fence(Ordering::SeqCst);
        self.room(want) >= want
    }

    /// Takes back [`Producer::wait`].
    pub fn wake(&mut self) {
        self.memory.producer().waiting.store(0, Ordering::Relaxed);
    }
}

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

    fn resume(memory: RingMemory<E>) -> Self {
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
        #[cfg(not(feature = "broken-claim"))]
        self.memory.consumer().tail.store(self.tail, Ordering::Release);
        #[cfg(feature = "broken-claim")]
        self.memory.consumer().tail.store(self.tail, Ordering::Relaxed);
    }

    /// True when the producer sleeps until there is room, and at least half of the ring is free.
    #[inline]
    pub fn producer_waits(&mut self) -> bool {
        // SeqCst fence: pairs with the one in `Producer::wait`.
        #[cfg(not(feature = "broken-doorbell"))]
        fence(Ordering::SeqCst);
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
        #[cfg(not(feature = "broken-watermark"))]
        let order = Ordering::Acquire;
        // Broken here and not in `set_watermark`: there, the fence in `publish` orders as well.
        #[cfg(feature = "broken-watermark")]
        let order = Ordering::Relaxed;
        Seq::new(self.memory.producer().watermark.load(order))
    }

    /// Says that this consumer is going to sleep. Check the ring (and the watermark) once more
    /// afterwards; only then sleep.
    pub fn sleep(&mut self) {
        self.memory.consumer().sleeping.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `Producer::consumer_sleeps`.
        #[cfg(not(feature = "broken-doorbell"))]
        fence(Ordering::SeqCst);
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
