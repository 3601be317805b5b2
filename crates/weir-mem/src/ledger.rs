//! The commit record of a worker: what makes one batch of its work atomic against `kill -9`.
//!
//! A worker's batch ends with several stores that belong together: the indices of the rings it
//! publishes, its counters, its place in a capture. Dying between two of them would lose packets
//! or count them twice. So the worker first writes *all* of them as words into one of two banks,
//! then commits by storing the bank's generation, then publishes. The agent that finds it dead
//! reads the committed bank and publishes what is missing ("roll forward"): a batch is either
//! wholly done or wholly undone, and counters always agree with rings.
//!
//! ```text
//! word 0         generation g; bank g & 1 is the committed one
//! word 1         rings when the worker dies (`crate::knell`)
//! words 8..11    what the worker is doing ([`crate::Witness`])
//! words 16..     bank 0
//! …              bank 1
//! ```
//!
//! Source of the idea: redo logging with two alternating checkpoints (Gray & Reuter, "Transaction
//! Processing", 1993, ch. 9), shrunk to one record.

use crate::broken;
use crate::fault::{self, Step};
#[cfg(not(loom))]
use crate::knell::{self, Knell};
use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::witness::{Testimony, Witness};
use std::ptr::NonNull;
use std::sync::Arc;

/// How often a copy is tried. A worker that commits small batches does so about as often as a copy takes: where workers shared a core, 64 copies
/// in a row came to nothing for one reader in a hundred. It is a bound, as a hostile worker may write nothing but generations.
const ATTEMPTS: u32 = 1024;

const HEADER_WORDS: usize = 16;
#[cfg(not(loom))]
const KNELL: usize = 1;
const WITNESS: usize = 8;
const _: () = assert!(WITNESS + crate::witness::WORDS <= HEADER_WORDS);

struct LedgerMemory {
    words: NonNull<AtomicU64>,
    len: usize,
    _backing: Option<Arc<Mapping>>,
}

// SAFETY: only atomics behind the pointer, alive with the mapping.
unsafe impl Send for LedgerMemory {}
// SAFETY: as for Send.
unsafe impl Sync for LedgerMemory {}

impl LedgerMemory {
    fn attach(region: &Region, len: usize) -> Result<Self, RegionError> {
        let mapping = region.map_writable()?;
        let needs = Ledger::len_for(len);
        if mapping.len() < needs {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs });
        }
        let words = mapping.base().cast();
        Ok(LedgerMemory { words, len, _backing: Some(Arc::new(mapping)) })
    }

    fn generation(&self) -> &AtomicU64 {
        // SAFETY: the mapping holds the header; an atomic may be shared.
        unsafe { self.words.as_ref() }
    }

    fn witness(&self) -> Witness {
        // SAFETY: the words lie in the header (asserted above), which the mapping holds.
        unsafe { Witness::new(self.words.add(WITNESS), self._backing.clone()) }
    }

    #[cfg(not(loom))]
    fn knell(&self) -> Knell {
        // SAFETY: the word lies in the header, which the mapping holds, and is nothing else.
        unsafe { Knell::new(self.words.add(KNELL).cast(), self._backing.clone()) }
    }

    #[inline(always)]
    fn bank(&self, generation: u64) -> &[AtomicU64] {
        let start = HEADER_WORDS + (generation as usize & 1) * self.len;
        // SAFETY: header and two banks of `len` words lie in the mapping (checked by `attach`);
        // atomics may be shared with whoever writes them.
        unsafe { std::slice::from_raw_parts(self.words.add(start).as_ptr(), self.len) }
    }
}

/// The worker's end.
pub struct LedgerWriter {
    memory: LedgerMemory,
    generation: u64,
}

impl LedgerWriter {
    /// Attaches and continues from the last commit.
    pub fn attach(region: &Region, words: usize) -> Result<Self, RegionError> {
        Ok(Self::resume(LedgerMemory::attach(region, words)?))
    }

    fn resume(memory: LedgerMemory) -> Self {
        // Relaxed: written by our dead predecessor, or nobody.
        let generation = memory.generation().load(Ordering::Relaxed);
        LedgerWriter { memory, generation }
    }

    /// The words committed last.
    pub fn committed(&self) -> Vec<u64> {
        self.memory.bank(self.generation).iter().map(|w| w.load(Ordering::Relaxed)).collect()
    }

    /// Goes on from what the agent has written since ([`Ledger::reset`]), while this end rested.
    pub fn reload(&mut self) {
        // Acquire: pairs with the Release in `Ledger::reset`.
        self.generation = self.memory.generation().load(Ordering::Acquire);
    }

    /// Has the agent hear when the calling thread ends, which may ask for it once; false where that is not to be had.
    #[cfg(not(loom))]
    pub fn arm_knell(&self) -> bool {
        knell::arm(self.memory.knell())
    }

    /// Where the worker writes what it is doing.
    pub fn witness(&self) -> Witness {
        self.memory.witness()
    }

    /// Commits `words` (as many as the ledger has; missing ones keep an older value).
    #[inline]
    pub fn commit(&mut self, words: &[u64]) {
        let next = self.generation.wrapping_add(1);
        for (slot, &word) in self.memory.bank(next).iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        fault::step(Step::Banked);
        // Release: pairs with the Acquire in `Ledger::read`: who sees the generation sees the bank.
        self.memory.generation().store(next, broken::order("ledger", Ordering::Release));
        // A live reader must not see the next bank's words before this generation: the fence keeps
        // the following commit's relaxed stores behind the store above. Pairs with the Acquire
        // fence in `Ledger::read`.
        fence(Ordering::Release);
        self.generation = next;
    }
}

/// The agent's end.
pub struct Ledger {
    memory: LedgerMemory,
}

impl Ledger {
    /// Bytes that a ledger of `words` words takes.
    pub fn len_for(words: usize) -> usize {
        (HEADER_WORDS + 2 * words) * size_of::<AtomicU64>()
    }

    /// Attaches to a ledger of `words` words.
    pub fn attach(region: &Region, words: usize) -> Result<Self, RegionError> {
        Ok(Ledger { memory: LedgerMemory::attach(region, words)? })
    }

    /// A consistent copy of the words committed last, while the worker lives or after. `None` when
    /// the worker committed so fast that no copy succeeded, as a sound one hardly does; a dead worker's always does.
    pub fn read(&self) -> Option<Vec<u64>> {
        let mut words = Vec::new();
        for _ in 0..ATTEMPTS {
            // Acquire: pairs with the Release in `commit`.
            let before = self.memory.generation().load(Ordering::Acquire);
            let bank = self.memory.bank(before);
            words.clear();
            words.extend(bank.iter().map(|w| w.load(Ordering::Relaxed)));
            // Acquire fence: pairs with the Release fence in `commit`: had we read a word of the
            // commit after next, we would now see the next generation.
            fence(Ordering::Acquire);
            if self.memory.generation().load(Ordering::Relaxed) == before {
                return Some(words);
            }
        }
        None
    }

    /// Writes the record anew, for the successor of a worker that has ended and whose record is not
    /// to be believed, or for one that has not begun.
    pub fn reset(&self, words: &[u64]) {
        for bank in [0, 1] {
            for (slot, &word) in self.memory.bank(bank).iter().zip(words) {
                slot.store(word, Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire in `read` and in `reload`.
        self.memory.generation().store(0, Ordering::Release);
    }

    /// What the worker was doing when it ended.
    pub fn testimony(&self) -> Testimony {
        self.memory.witness().testimony()
    }

    /// Rings when the worker ends, if it has [hung](LedgerWriter::arm_knell) it.
    #[cfg(not(loom))]
    pub fn knell(&self) -> Knell {
        self.memory.knell()
    }

    /// Commits so far: grows while the worker works.
    pub fn generation(&self) -> u64 {
        self.memory.generation().load(Ordering::Relaxed)
    }
}

/// A ledger inside this process, for models and tests; leaked.
#[cfg(any(test, loom))]
pub fn heap_ledger(words: usize) -> (LedgerWriter, Ledger) {
    let all: Vec<AtomicU64> = (0..HEADER_WORDS + 2 * words).map(|_| AtomicU64::new(0)).collect();
    let at = NonNull::from(Box::leak(all.into_boxed_slice())).cast();
    let memory = || LedgerMemory { words: at, len: words, _backing: None };
    (LedgerWriter::resume(memory()), Ledger { memory: memory() })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_has_not_begun_goes_on_from_what_the_agent_wrote() {
        let region = Region::create("weir-test", Ledger::len_for(3)).unwrap();
        let mut writer = LedgerWriter::attach(&region, 3).unwrap();
        let agent = Ledger::attach(&region, 3).unwrap();
        agent.reset(&[7, 8, 9]);
        writer.reload();
        assert_eq!(writer.committed(), [7, 8, 9]);
        writer.commit(&[8, 8, 9]);
        assert_eq!(agent.read().unwrap(), [8, 8, 9]);
    }

    #[test]
    fn whoever_looks_at_a_worker_that_commits_all_the_time_gets_a_copy_each_time() {
        const WORDS: usize = 120;
        let region = Region::create("weir-test", Ledger::len_for(WORDS)).unwrap();
        let mut writer = LedgerWriter::attach(&region, WORDS).unwrap();
        let reader = Ledger::attach(&region, WORDS).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1.. {
                    writer.commit(&[n; WORDS]);
                    // What handling a packet takes, or less.
                    (0..10).for_each(|_| std::hint::spin_loop());
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let (mut missed, mut torn) = (0, 0);
            for _ in 0..20_000 {
                match reader.read() {
                    Some(words) => torn += u32::from(words.iter().any(|w| *w != words[0])),
                    None => missed += 1,
                }
            }
            // Before anything fails: the writer is waited for.
            done.store(true, Ordering::Relaxed);
            assert_eq!((missed, torn), (0, 0));
        });
    }

    #[test]
    fn a_restarted_worker_finds_what_was_committed_last() {
        let region = Region::create("weir-test", Ledger::len_for(3)).unwrap();
        let mut writer = LedgerWriter::attach(&region, 3).unwrap();
        writer.commit(&[1, 2, 3]);
        writer.commit(&[4, 5, 6]);
        assert_eq!(LedgerWriter::attach(&region, 3).unwrap().committed(), [4, 5, 6]);
        assert_eq!(Ledger::attach(&region, 3).unwrap().read().unwrap(), [4, 5, 6]);
    }
}
