//! Who holds a buffer: a dense array of one word per buffer, outside the metadata.
//!
//! A *consumer* writes its own number when it claims a buffer, before it moves its ring index;
//! producers never write owners. Together with the rings' content this says at any time where each
//! buffer is (the protocol and the experiments that led to it: docs/architecture.md, "Crashes").

use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU32, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Number of a worker, or of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Owner(pub u32);

impl Owner {
    /// The agent: buffers on their way back to a pool after a sweep, and all of them at the start.
    pub const AGENT: Owner = Owner(0);
}

/// The owner words of an arena.
pub struct Owners {
    words: NonNull<AtomicU32>,
    len: usize,
    _backing: Option<Arc<Mapping>>,
}

// SAFETY: only atomics behind the pointer, alive with the mapping.
unsafe impl Send for Owners {}
// SAFETY: as for Send.
unsafe impl Sync for Owners {}

impl Owners {
    /// Bytes that `buffers` owner words take.
    pub fn len_for(buffers: u32) -> usize {
        buffers as usize * size_of::<AtomicU32>()
    }

    /// Maps the owner words of `buffers` buffers.
    pub fn attach(region: &Region, buffers: u32) -> Result<Self, RegionError> {
        let mapping = region.map_writable()?;
        let needs = Self::len_for(buffers);
        if mapping.len() < needs {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs });
        }
        Ok(Owners {
            words: mapping.base().cast(),
            len: buffers as usize,
            _backing: Some(Arc::new(mapping)),
        })
    }

    /// Owner words inside this process, for models and tests; leaked.
    #[cfg(any(test, loom))]
    pub fn heap(buffers: u32) -> &'static Self {
        Box::leak(Box::new(Self::in_process(buffers)))
    }

    #[cfg(any(test, loom))]
    pub(crate) fn in_process(buffers: u32) -> Self {
        let words: Vec<AtomicU32> = (0..buffers).map(|_| AtomicU32::new(0)).collect();
        let words = NonNull::from(Box::leak(words.into_boxed_slice())).cast();
        Owners { words, len: buffers as usize, _backing: None }
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn word(&self, buffer: u32) -> Option<&AtomicU32> {
        if (buffer as usize) < self.len {
            // SAFETY: below `len`, within the mapping; an atomic may be shared.
            Some(unsafe { self.words.add(buffer as usize).as_ref() })
        } else {
            None
        }
    }

    /// A view to pass by value into loops.
    #[inline(always)]
    pub fn view(&self) -> OwnersView<'_> {
        OwnersView { words: self.words, len: self.len, owners: PhantomData }
    }

    /// Writes the owner of `buffer`; nothing happens for a buffer that does not exist.
    #[inline(always)]
    pub fn set(&self, buffer: u32, owner: Owner) {
        if let Some(word) = self.word(buffer) {
            // Relaxed: published by the Release store of the ring index that follows it.
            word.store(owner.0, Ordering::Relaxed);
        }
    }

    /// The owner of `buffer`.
    #[inline(always)]
    pub fn get(&self, buffer: u32) -> Option<Owner> {
        // Relaxed: read after the Acquire load of a ring index, or of a worker known to be dead.
        self.word(buffer).map(|w| Owner(w.load(Ordering::Relaxed)))
    }
}

/// Where an arena's owner words are. Borrowed from [`Owners`], so the mapping outlives it.
#[derive(Clone, Copy)]
pub struct OwnersView<'a> {
    words: NonNull<AtomicU32>,
    len: usize,
    owners: PhantomData<&'a Owners>,
}

impl OwnersView<'_> {
    /// As [`Owners::set`], for a buffer that was checked.
    ///
    /// # Safety
    /// `buffer` is below the number of owner words.
    #[inline(always)]
    pub(crate) unsafe fn set_within(self, buffer: u32, owner: Owner) {
        debug_assert!((buffer as usize) < self.len);
        // SAFETY: below `len` (the caller), within the mapping; an atomic may be shared.
        let word = unsafe { self.words.add(buffer as usize).as_ref() };
        // Relaxed: as in `Owners::set`.
        word.store(owner.0, Ordering::Relaxed);
    }

    /// As [`Owners::set`]; says whose it was. Not one atomic step: one process at a time claims a
    /// buffer, and who lies about it is not made honest by one.
    ///
    /// # Safety
    /// `buffer` is below the number of owner words.
    #[inline(always)]
    pub(crate) unsafe fn replace_within(self, buffer: u32, owner: Owner) -> Owner {
        debug_assert!((buffer as usize) < self.len);
        // SAFETY: below `len` (the caller), within the mapping; an atomic may be shared.
        let word = unsafe { self.words.add(buffer as usize).as_ref() };
        // Relaxed: as in `Owners::get` and `Owners::set`.
        let old = Owner(word.load(Ordering::Relaxed));
        word.store(owner.0, Ordering::Relaxed);
        old
    }

    /// As [`Owners::set`].
    #[inline(always)]
    pub fn set(self, buffer: u32, owner: Owner) {
        if (buffer as usize) < self.len {
            // SAFETY: below `len`, within the mapping; an atomic may be shared.
            let word = unsafe { self.words.add(buffer as usize).as_ref() };
            // Relaxed: as in `Owners::set`.
            word.store(owner.0, Ordering::Relaxed);
        }
    }
}
