//! One facade for atomics and cells, switchable to the loom model checker.
//!
//! Everything concurrent in this crate goes through these names; under `--cfg loom` the same code
//! runs in loom's explorer. (The idea of a single facade: githedgehog/dataplane, `concurrency`.)

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// One ring slot: written by the producer before it publishes, read by the consumer after it has
/// seen the publication.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct Slot<E>(std::cell::UnsafeCell<E>);

#[cfg(not(loom))]
impl<E: crate::shared::Plain> Slot<E> {
    pub(crate) fn load(&self) -> E {
        // SAFETY: the slot's own memory.
        unsafe { E::load(self.0.get()) }
    }

    pub(crate) fn store(&self, value: E) {
        // SAFETY: the slot's own memory, mapped writable by a producer.
        unsafe { value.store(self.0.get()) }
    }
}

/// The loom version tells loom of each access, so that a missing ordering shows as a data race.
#[cfg(loom)]
pub(crate) struct Slot<E>(loom::cell::UnsafeCell<E>);

#[cfg(loom)]
impl<E: crate::shared::Plain> Slot<E> {
    pub(crate) fn new(value: E) -> Self {
        Slot(loom::cell::UnsafeCell::new(value))
    }

    pub(crate) fn load(&self) -> E {
        // SAFETY: the slot's own memory.
        self.0.with(|p| unsafe { E::load(p.cast_mut()) })
    }

    pub(crate) fn store(&self, value: E) {
        // SAFETY: the slot's own memory.
        self.0.with_mut(|p| unsafe { value.store(p) });
    }
}
