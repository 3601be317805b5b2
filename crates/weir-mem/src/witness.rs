//! What a worker is doing, for whoever finds it dead: a few words that outlive it.
//!
//! Written with plain stores and read only after the writer's death: a crash report says which µNF
//! ran and which packet it looked at last.

use crate::region::Mapping;
use crate::sync::{AtomicU64, Ordering};
use std::ptr::NonNull;
use std::sync::Arc;

/// Number of words.
pub(crate) const WORDS: usize = 3;

/// What the dead one was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Testimony {
    /// Index of the node whose µNF ran, when one did.
    pub node: Option<usize>,
    /// First word of the ring entry of the packet that it looked at last.
    pub entry: u64,
    /// Fingerprint of that packet as it came, 0 when none was taken.
    pub fingerprint: u64,
}

/// The writing end.
#[derive(Clone)]
pub struct Witness {
    words: NonNull<AtomicU64>,
    _backing: Option<Arc<Mapping>>,
}

// SAFETY: only atomics behind the pointer, alive with the mapping (or static).
unsafe impl Send for Witness {}
// SAFETY: as for Send.
unsafe impl Sync for Witness {}

#[cfg(not(loom))]
static NOBODY: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

impl Witness {
    /// One that nobody will read.
    #[cfg(not(loom))]
    pub fn nobody() -> Self {
        Witness { words: NonNull::from(&NOBODY).cast(), _backing: None }
    }

    /// # Safety
    /// [`WORDS`] words follow `words`, alive with `backing`.
    pub(crate) unsafe fn new(words: NonNull<AtomicU64>, backing: Option<Arc<Mapping>>) -> Self {
        Witness { words, _backing: backing }
    }

    fn word(&self, i: usize) -> &AtomicU64 {
        // SAFETY: i is below `WORDS` in all calls, and so many words are there (`new`, `nobody`).
        unsafe { self.words.add(i).as_ref() }
    }

    /// The µNF of node `node` is about to run; `None`: it has.
    #[inline(always)]
    pub fn runs(&self, node: Option<usize>) {
        // Relaxed, here and below: read only after this process has ended.
        self.word(0).store(node.map_or(0, |n| n as u64 + 1), Ordering::Relaxed);
    }

    /// Fingerprint of the packet that comes next, 0 for none.
    #[inline(always)]
    pub fn knows(&self, fingerprint: u64) {
        self.word(2).store(fingerprint, Ordering::Relaxed);
    }

    /// Where the entry of the packet that is looked at is written.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn entry(&self) -> NonNull<AtomicU64> {
        // SAFETY: the second of the words that are there.
        unsafe { self.words.add(1) }
    }

    /// What was written last.
    pub fn testimony(&self) -> Testimony {
        let get = |i| self.word(i).load(Ordering::Relaxed);
        let node = usize::try_from(get(0)).ok().and_then(|n| n.checked_sub(1));
        Testimony { node, entry: get(1), fingerprint: get(2) }
    }
}
