//! A word by which the first worker of a core sends those behind it to sleep for a moment, to wake
//! them in the order of the chain. No data is behind it: who reads it late sleeps later.

use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// The word of one core's first worker.
pub struct Muster {
    word: NonNull<AtomicU32>,
    writable: bool,
    _backing: Option<Mapping>,
}

// SAFETY: only an atomic behind the pointer, alive with the mapping.
unsafe impl Send for Muster {}

impl Muster {
    /// Bytes that it takes.
    pub const LEN: usize = size_of::<AtomicU32>();

    /// Maps it: for writing in the first worker, for reading in those behind it. A predecessor of the
    /// first that died while it called is forgotten.
    pub fn attach(region: &Region, writable: bool) -> Result<Self, RegionError> {
        let mapping = if writable { region.map_writable()? } else { region.map_read_only()? };
        if mapping.len() < Self::LEN {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs: Self::LEN });
        }
        let muster = Muster { word: mapping.base().cast(), writable, _backing: Some(mapping) };
        muster.call(false);
        Ok(muster)
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: within the mapping (checked by `attach`), page-aligned; atomics may be shared.
        unsafe { self.word.as_ref() }
    }

    /// Says whether workers without anything to do are to sleep now. Nothing happens where this process
    /// may only read.
    #[inline]
    pub fn call(&self, to_sleep: bool) {
        if self.writable {
            // Relaxed: no data is behind it. Workers of one core see it at their next turn.
            self.word().store(u32::from(to_sleep), Ordering::Relaxed);
        }
    }

    /// Whether workers without anything to do are to sleep now.
    #[inline]
    pub fn calls(&self) -> bool {
        // Relaxed: as in `call`.
        self.word().load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_who_leads_calls_and_its_successor_begins_without_a_call() {
        let region = Region::create("weir-test", Muster::LEN).unwrap();
        let leads = Muster::attach(&region, true).unwrap();
        let follows = Muster::attach(&region, false).unwrap();
        follows.call(true);
        assert!(!leads.calls());
        leads.call(true);
        assert!(follows.calls());
        let successor = Muster::attach(&region, true).unwrap();
        assert!(!follows.calls() && !successor.calls());
    }
}
