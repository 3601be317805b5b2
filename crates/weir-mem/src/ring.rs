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

mod consumer;
mod inspector;
mod producer;

pub use consumer::Consumer;
pub use inspector::{Indices, Judgement, RingInspector};
pub use producer::Producer;

use crate::region::{Mapping, Region, RegionError};
use crate::shared::{Plain, Shared};
use crate::sync::{AtomicU32, AtomicU64, Slot};
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
#[cfg(loom)]
pub fn heap_successors<E: Plain>(agent: &RingInspector<E>) -> (Producer<E>, Consumer<E>) {
    let again = || RingMemory {
        producer: agent.memory.producer,
        consumer: agent.memory.consumer,
        slots: agent.memory.slots,
        mask: agent.memory.mask,
        _backing: agent.memory._backing.clone(),
    };
    (Producer::resume(again()), Consumer::resume(again()))
}
