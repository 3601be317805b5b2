//! By which source flows came in, for packets that are to go back the way they came: written by the Rx
//! services of an array of ports, read by whoever chooses among its ports. Fixed memory; flows that
//! find no room take that of the one silent for longest in their bucket.
//!
//! ```text
//! words 0, 1     secret of the hash: only who has this memory knows which flows collide
//! word 2         clock, in units of 8 s
//! words 8..      buckets of 8 words, a cache line each
//!
//! word   63              24 23 22         16 15            0
//!        [ hash 63..24     ][up][ source + 1 ][ clock       ]      0: nothing
//! ```
//!
//! A flow is one word, so nobody sees half of it: with the number of the bucket 53 bits of a keyed hash
//! stand for it. Writers exchange words against those that they have seen; a writer that dies leaves what
//! it wrote.

use crate::broken;
use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU64, Ordering};
use std::ptr::NonNull;

/// Words of a bucket: a cache line. Fewer in models, which look at all that may happen.
#[cfg(not(loom))]
const WAYS: usize = 8;
#[cfg(loom)]
const WAYS: usize = 2;
/// Buckets of a table in shared memory.
const BUCKETS: usize = 1 << 13;
const HEADER_WORDS: usize = 8;
const CLOCK: usize = 2;
/// Seconds of a unit of the clock.
const UNIT: u64 = 8;
/// Units after which a silent flow is forgotten: five minutes.
const IDLE: u64 = 300 / UNIT;
/// Units by which a writer's clock may be ahead of the one that is read: its word is as of now.
const AHEAD: u64 = 2;
/// Where a word has its parts.
const CLOCK_MASK: u64 = 0xffff;
const SOURCE_SHIFT: u32 = 16;
const SOURCE_MASK: u64 = 0x7f;
const UP: u64 = 1 << 23;
const FLOW_MASK: u64 = !0xff_ffff | UP;
/// How often a writer tries again when others write into its bucket.
const TRIES: usize = 8;

/// The flows that came in by an array of ports.
pub struct Origins {
    words: NonNull<AtomicU64>,
    /// Number of buckets, a power of two.
    buckets: usize,
    writable: bool,
    _backing: Option<Mapping>,
}

// SAFETY: only atomics behind the pointer, alive with the mapping.
unsafe impl Send for Origins {}

impl Origins {
    /// Bytes that it takes.
    pub const LEN: usize = (HEADER_WORDS + BUCKETS * WAYS) * size_of::<AtomicU64>();
    /// Flows that it holds at most; each direction is one.
    pub const FLOWS: usize = BUCKETS * WAYS;
    /// Sources that it can tell apart.
    pub const SOURCES: u8 = SOURCE_MASK as u8;

    /// Maps it: for writing in the Rx services of its ports, for reading in others.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn attach(region: &Region, writable: bool) -> Result<Self, RegionError> {
        let mapping = if writable { region.map_writable()? } else { region.map_read_only()? };
        if mapping.len() < Self::LEN {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs: Self::LEN });
        }
        let words = mapping.base().cast();
        Ok(Origins { words, buckets: BUCKETS, writable, _backing: Some(mapping) })
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        let len = HEADER_WORDS + self.buckets * WAYS;
        // SAFETY: so many words lie in the mapping (checked by `attach`; `buckets` never changes), which
        // is page-aligned; atomics may be shared.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), len) }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &[AtomicU64] {
        let start = HEADER_WORDS + (hash as usize & (self.buckets - 1)) * WAYS;
        self.words().get(start..start + WAYS).unwrap_or_default()
    }

    fn header(&self, i: usize) -> u64 {
        // Relaxed: the secret is written before the memory is handed out, and no data is behind the clock.
        self.words().get(i).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Chooses the secret, before anybody else has the memory.
    pub fn set_secret(&self, secret: [u64; 2]) {
        if self.writable {
            self.words().iter().zip(secret).for_each(|(word, s)| word.store(s, Ordering::Relaxed));
        }
    }

    /// The secret under which flows are hashed.
    pub fn secret(&self) -> u128 {
        u128::from(self.header(0)) | u128::from(self.header(1)) << 64
    }

    /// Says how late it is, in seconds of any clock that goes on by itself. Nothing happens where this
    /// process may only read.
    #[inline]
    pub fn see(&self, seconds: u64) {
        let clock = (seconds / UNIT) & CLOCK_MASK;
        if self.writable
            && let Some(word) = self.words().get(CLOCK)
            && word.load(Ordering::Relaxed) != clock
        {
            word.store(clock, Ordering::Relaxed);
        }
    }

    /// How long ago a word was written, in units. One written just now may be ahead of the clock.
    #[inline]
    fn age(now: u64, word: u64) -> u64 {
        let age = now.wrapping_sub(word) & CLOCK_MASK;
        if age > CLOCK_MASK - AHEAD { 0 } else { age }
    }

    /// A packet of the flow with this hash (under [`Origins::secret`]) came in by `source`; `up` is its
    /// direction. Nothing happens where this process may only read, or for a source that cannot be.
    #[inline]
    pub fn learn(&self, hash: u64, up: bool, source: u8) {
        if !self.writable || source >= Self::SOURCES {
            return;
        }
        let now = self.header(CLOCK);
        let flow = flow(hash, up);
        let word = flow | (u64::from(source) + 1) << SOURCE_SHIFT | now;
        let bucket = self.bucket(hash);
        for _ in 0..TRIES {
            // Relaxed: a word is all there is to a flow, and nothing but it is read because of it. That
            // who takes a packet finds what was learned of those before it comes from the ring: this
            // store is before the Release that publishes the packet.
            let seen: [u64; WAYS] = std::array::from_fn(|i| {
                bucket.get(i).map_or(0, |word| word.load(Ordering::Relaxed))
            });
            let same = seen.iter().position(|old| old & FLOW_MASK == flow && *old != 0);
            let oldest = || {
                let age = |old: u64| if old == 0 { u64::MAX } else { Self::age(now, old) };
                seen.iter().enumerate().max_by_key(|(_, old)| age(**old)).map(|(i, _)| i)
            };
            let Some((at, old)) = same.or_else(oldest).and_then(|i| Some((i, *seen.get(i)?)))
            else {
                return;
            };
            if old != word && !exchange(bucket.get(at), old, word) {
                continue;
            }
            // Two services may have begun with the same flow at the same moment.
            for (i, other) in seen.into_iter().enumerate().skip(at + 1) {
                if other != 0 && other & FLOW_MASK == flow {
                    let _ = exchange(bucket.get(i), other, 0);
                }
            }
            return;
        }
    }

    /// The source that the last packet came in by of the flow with this hash, in this direction; `None`
    /// when none did for five minutes, or it was forgotten. (The clock comes round after six days: a word as old as
    /// that is found again for five minutes, unless it had to make room.)
    #[inline]
    pub fn find(&self, hash: u64, up: bool) -> Option<u8> {
        let (flow, now) = (flow(hash, up), self.header(CLOCK));
        // Relaxed: as in `learn`.
        let words = self.bucket(hash).iter().map(|word| word.load(Ordering::Relaxed));
        let found = words.filter(|word| *word != 0 && word & FLOW_MASK == flow);
        let word = found.min_by_key(|word| Self::age(now, *word))?;
        let source = (word >> SOURCE_SHIFT & SOURCE_MASK) as u8;
        if Self::age(now, word) > IDLE { None } else { source.checked_sub(1) }
    }
}

/// What stands for a flow's direction in a word.
fn flow(hash: u64, up: bool) -> u64 {
    let hash = hash & FLOW_MASK & !UP;
    if up { hash | UP } else { hash }
}

/// Writes `new` where `old` is; false when it is not there any more.
#[inline]
fn exchange(word: Option<&AtomicU64>, old: u64, new: u64) -> bool {
    let Some(word) = word else { return true };
    if broken::is("origins") {
        word.store(new, Ordering::Relaxed);
        return true;
    }
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Handles of a table inside this process, for models and tests; leaked.
#[cfg(test)]
pub(crate) fn heap_origins<const N: usize>(buckets: usize) -> [Origins; N] {
    let len = HEADER_WORDS + buckets * WAYS;
    let all: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
    let words = NonNull::from(Box::leak(all.into_boxed_slice())).cast();
    std::array::from_fn(|_| Origins { words, buckets, writable: true, _backing: None })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_found_in_the_direction_it_came_in_by_the_source_it_came_in_by_last() {
        let [table] = heap_origins(4);
        let hash = 0xabcd_ef01_2345_6789;
        assert_eq!(table.find(hash, true), None);
        table.learn(hash, true, 0);
        assert_eq!((table.find(hash, true), table.find(hash, false)), (Some(0), None));
        table.learn(hash, true, 63);
        table.learn(hash, false, 7);
        assert_eq!((table.find(hash, true), table.find(hash, false)), (Some(63), Some(7)));
        assert_eq!(table.find(hash ^ 1 << 24, true), None, "another flow of the same bucket");
    }

    #[test]
    fn a_full_bucket_forgets_the_flow_that_was_silent_for_longest() {
        let [table] = heap_origins(1);
        let hash = |n: u64| n << 40;
        for n in 0..=WAYS as u64 {
            table.see(n * UNIT);
            table.learn(hash(n), true, 1);
        }
        assert_eq!(table.find(hash(0), true), None);
        assert!((1..=WAYS as u64).all(|n| table.find(hash(n), true) == Some(1)));
    }

    #[test]
    fn who_is_silent_for_five_minutes_is_forgotten_whatever_the_clock_began_with() {
        for start in [0, 0xffff * UNIT - 20, u64::from(u32::MAX)] {
            let [table] = heap_origins(2);
            table.see(start);
            table.learn(5, false, 2);
            table.see(start + 280);
            assert_eq!(table.find(5, false), Some(2));
            // Days later too.
            for later in [320, 262_200, 400_000, 0xfff0 * UNIT] {
                table.see(start + later);
                assert_eq!(table.find(5, false), None, "{later} s");
            }
            table.learn(5, false, 3);
            assert_eq!(table.find(5, false), Some(3));
        }
    }

    #[test]
    fn what_a_service_learned_outlives_it_and_nobody_else_can_write() {
        let region = Region::create("weir-test", Origins::LEN).unwrap();
        Origins::attach(&region, true).unwrap().set_secret([3, 4]);
        Origins::attach(&region, true).unwrap().learn(77, true, 9);
        let reader = Origins::attach(&region, false).unwrap();
        reader.learn(78, true, 9);
        reader.set_secret([0, 0]);
        reader.see(100);
        assert_eq!((reader.find(77, true), reader.find(78, true)), (Some(9), None));
        assert_eq!(reader.secret(), 3 | 4 << 64);
    }

    #[test]
    fn whatever_stands_in_the_memory_is_no_source_or_one_that_can_be() {
        let [table] = heap_origins(1);
        let hash = 0xffff_ffff_ff00_0000;
        for (i, word) in table.words().iter().enumerate() {
            word.store(u64::MAX >> (i % 3), Ordering::Relaxed);
        }
        assert!(table.find(hash, true).is_none_or(|source| source < Origins::SOURCES));
        table.learn(hash, true, Origins::SOURCES);
    }
}
