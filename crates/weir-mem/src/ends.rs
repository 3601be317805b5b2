//! How far a source has come, by sequence and by time, and whether it has really ended: the word of its Rx service, which
//! nobody else can write. An end-of-stream marker or a watermark on a ring is only its producer's
//! word, and a producer need not be trusted: an end believed too early would end a chain for good, and
//! a watermark held back would hold up a merge.

use crate::entry::Seq;
use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU64, Ordering};
use std::ptr::NonNull;

/// One source's word.
pub struct StreamEnd {
    /// Whether it has ended; how far it has come; its latest time stamp.
    words: NonNull<[AtomicU64; 3]>,
    writable: bool,
    _backing: Option<Mapping>,
}

// SAFETY: only an atomic behind the pointer, alive with the mapping.
unsafe impl Send for StreamEnd {}

impl StreamEnd {
    /// Bytes that it takes.
    pub const LEN: usize = size_of::<[AtomicU64; 3]>();

    /// Maps it: for writing in the source's Rx service, for reading in all other workers.
    pub fn attach(region: &Region, writable: bool) -> Result<Self, RegionError> {
        let mapping = if writable { region.map_writable()? } else { region.map_read_only()? };
        if mapping.len() < Self::LEN {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs: Self::LEN });
        }
        Ok(StreamEnd { words: mapping.base().cast(), writable, _backing: Some(mapping) })
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64; 3] {
        // SAFETY: within the mapping (checked by `attach`), page-aligned; atomics may be shared.
        unsafe { self.words.as_ref() }
    }

    /// Says that the source has sent everything before `seq`. Nothing happens where this process may
    /// only read.
    #[inline]
    pub fn progress(&self, seq: Seq) {
        if self.writable {
            // Relaxed: no data is behind it. Who believes a promise made after it (`Producer::set_watermark`)
            // sees it by that.
            self.words()[1].store(seq.get(), Ordering::Relaxed);
        }
    }

    /// How far the source has come.
    pub fn reached(&self) -> Seq {
        // Relaxed: as in `progress`.
        Seq::new(self.words()[1].load(Ordering::Relaxed))
    }

    /// Says which time stamp the latest packet has that is about to be sent. To be called before it is. Nothing happens where
    /// this process may only read.
    #[inline]
    pub fn say_time(&self, time_ns: u64) {
        if self.writable {
            // Relaxed: no data is behind it. Who gets the packet by a ring sees it by the ring's index.
            self.words()[2].store(time_ns, Ordering::Relaxed);
        }
    }

    /// The time stamp of the latest packet that the source has sent, or is about to.
    #[inline]
    pub fn time(&self) -> u64 {
        // Relaxed: as in `say_time`.
        self.words()[2].load(Ordering::Relaxed)
    }

    /// Says that the stream has ended. To be called before the marker is published. Nothing happens
    /// where this process may only read.
    pub fn set(&self) {
        if self.writable {
            // Release, though the ring's index that is stored later orders it already.
            self.words()[0].store(1, Ordering::Release);
        }
    }

    /// True when the source's service has said so.
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in `set`; who has seen the marker sees it.
        self.words()[0].load(Ordering::Acquire) != 0
    }
}

/// A word inside this process, in the source's service and in another worker, for models; leaked.
#[cfg(all(test, loom))]
pub(crate) fn heap_ends() -> [StreamEnd; 2] {
    let words = NonNull::from(Box::leak(Box::new([0; 3].map(AtomicU64::new))));
    [true, false].map(|writable| StreamEnd { words, writable, _backing: None })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_who_may_write_it_ends_a_stream() {
        let region = Region::create("weir-test", StreamEnd::LEN).unwrap();
        let service = StreamEnd::attach(&region, true).unwrap();
        let other = StreamEnd::attach(&region, false).unwrap();
        other.set();
        assert!(!other.is_set());
        service.set();
        assert!(other.is_set());
        other.progress(Seq::new(9));
        assert_eq!(other.reached(), Seq::new(0));
        service.progress(Seq::new(9));
        assert_eq!(other.reached(), Seq::new(9));
        other.say_time(7);
        assert_eq!(other.time(), 0);
        service.say_time(7);
        assert_eq!(other.time(), 7);
    }
}
