//! What a worker's µNFs remember, kept where a successor finds it after `kill -9`.
//!
//! Two banks and a generation, as in the [ledger](crate::ledger), but of bytes: the worker writes the
//! idle bank and commits it by storing the generation, so a worker that dies while it writes leaves
//! what it had written before.
//!
//! ```text
//! word 0         generation g; bank g & 1 is the committed one, 0: nothing yet
//! words 8..      bank 0: length in bytes, checksum, words
//! …              bank 1
//! ```

use crate::broken;
use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU64, Ordering, fence};
use std::ptr::NonNull;

const HEADER_WORDS: usize = 8;
/// Length and checksum.
const BANK_HEADER: usize = 2;
const WORD: usize = size_of::<u64>();
/// Looks of a reader at what is written meanwhile, before it gives up.
const LOOKS: usize = 8;

/// Most bytes that are kept of one worker's state. The memory is taken as it is written, no sooner.
pub const STATE_BYTES: usize = 16 << 20;

/// The state is larger than [`STATE_BYTES`] and was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of state are more than the {STATE_BYTES} that are kept over a restart")]
pub struct TooLarge(pub usize);

/// A worker's kept state. One process writes; the next reads when that has ended, and the agent may
/// at any time.
pub struct KeptState {
    words: NonNull<AtomicU64>,
    /// Bytes that a bank has room for.
    room: usize,
    /// The generation that was written last, as far as this end knows.
    written: u64,
    _backing: Option<Mapping>,
}

// SAFETY: only atomics behind the pointer, alive with the mapping.
unsafe impl Send for KeptState {}

/// What a look at the state has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing was kept.
    Nothing,
    /// It was written anew meanwhile.
    Moved,
    /// What is there cannot be what was written.
    Damaged,
    /// This.
    Kept(Vec<u8>),
}

impl KeptState {
    /// Bytes of the memory.
    pub const LEN: usize = (HEADER_WORDS + 2 * (BANK_HEADER + STATE_BYTES / WORD)) * WORD;

    /// Attaches to a region of [`KeptState::LEN`] bytes.
    pub fn attach(region: &Region) -> Result<Self, RegionError> {
        let mapping = region.map_writable()?;
        if mapping.len() < Self::LEN {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs: Self::LEN });
        }
        let (words, room) = (mapping.base().cast(), STATE_BYTES);
        let mut state = KeptState { words, room, written: 0, _backing: Some(mapping) };
        // Relaxed: written by a predecessor that is dead, or by nobody.
        state.written = state.generation().load(Ordering::Relaxed);
        Ok(state)
    }

    fn generation(&self) -> &AtomicU64 {
        // SAFETY: the memory is aligned and holds the header; an atomic may be shared.
        unsafe { self.words.as_ref() }
    }

    fn bank(&self, generation: u64) -> &[AtomicU64] {
        let len = BANK_HEADER + self.room / WORD;
        let start = HEADER_WORDS + (generation as usize & 1) * len;
        // SAFETY: header and two banks of that length lie in the memory (checked by `attach`), which
        // lives as long as `self`; atomics may be shared with whoever writes them.
        unsafe { std::slice::from_raw_parts(self.words.add(start).as_ptr(), len) }
    }

    /// Looks anew at what is kept: the agent has written it since this end was attached.
    pub fn resync(&mut self) {
        // Acquire: pairs with the Release in `write`.
        self.written = self.generation().load(Ordering::Acquire);
    }

    /// Keeps `state` in place of what was kept before.
    pub fn write(&mut self, state: &[u8]) -> Result<(), TooLarge> {
        if state.len() > self.room {
            return Err(TooLarge(state.len()));
        }
        let next = self.fill(state);
        // Release: pairs with the Acquire in `look` and in `resync`: who sees the generation sees the bank.
        self.generation().store(next, broken::order("state", Ordering::Release));
        self.written = next;
        // Keeps the next write's stores behind the store above. Pairs with the Acquire fence in `look`.
        fence(Ordering::Release);
        Ok(())
    }

    /// Writes the idle bank; says which generation that is.
    pub(crate) fn fill(&self, state: &[u8]) -> u64 {
        let next = self.written.wrapping_add(1).max(1);
        let mut slots = self.bank(next).iter();
        let head = [state.len() as u64, checksum(state)];
        // The words first: the iterator in front is asked once more than it is used.
        for (word, slot) in head.into_iter().zip(slots.by_ref()) {
            slot.store(word, Ordering::Relaxed);
        }
        let (words, rest) = state.as_chunks::<WORD>();
        let mut last = [0; WORD];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let last = (!rest.is_empty()).then_some(last);
        for (slot, word) in slots.zip(words.iter().copied().chain(last)) {
            slot.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        next
    }

    /// What was kept last; `None` when nothing was, when what is there cannot be it, or when it was
    /// written faster than it could be read. A dead worker's can.
    pub fn read(&self) -> Option<Vec<u8>> {
        for _ in 0..LOOKS {
            match self.look() {
                Look::Moved => {}
                Look::Kept(state) => return Some(state),
                Look::Nothing | Look::Damaged => return None,
            }
        }
        None
    }

    /// True when something was written, whatever it is worth.
    pub fn is_written(&self) -> bool {
        // Relaxed: no data behind it is looked at.
        self.generation().load(Ordering::Relaxed) != 0
    }

    /// Looks once.
    pub(crate) fn look(&self) -> Look {
        // Acquire: pairs with the Release in `write`.
        let generation = self.generation().load(Ordering::Acquire);
        if generation == 0 {
            return Look::Nothing;
        }
        // Copied out, then checked, then used: another process may have written anything.
        let mut words = self.bank(generation).iter().map(|word| word.load(Ordering::Relaxed));
        let (len, sum) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        let len = usize::try_from(len).ok().filter(|&len| len <= self.room);
        let state: Option<Vec<u8>> = len.map(|len| {
            let mut state = Vec::with_capacity(len.next_multiple_of(WORD));
            for word in words.take(len.div_ceil(WORD)) {
                state.extend_from_slice(&word.to_le_bytes());
            }
            state.truncate(len);
            state
        });
        // Acquire fence: pairs with the Release fence in `write`: had we read a word of the write after
        // next, we would now see the next generation.
        fence(Ordering::Acquire);
        if self.generation().load(Ordering::Relaxed) != generation {
            return Look::Moved;
        }
        match state.filter(|state| checksum(state) == sum) {
            Some(state) => Look::Kept(state),
            None => Look::Damaged,
        }
    }

    /// Forgets what was kept, so that a successor begins with nothing. For when nobody runs that writes:
    /// the worker has died.
    pub fn clear(&mut self) {
        self.written = 0;
        // Release: as in `write`.
        self.generation().store(0, Ordering::Release);
    }
}

/// Two ends of a state of up to `room` bytes inside this process, for models; leaked.
#[cfg(all(test, loom))]
pub(crate) fn heap_state(room: usize) -> (KeptState, KeptState) {
    let words = HEADER_WORDS + 2 * (BANK_HEADER + room / WORD);
    let all: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    let words = NonNull::from(Box::leak(all.into_boxed_slice())).cast();
    let end = || KeptState { words, room, written: 0, _backing: None };
    (end(), end())
}

/// In the manner of FNV-1a, 64 bits (Fowler, Noll, Vo), by words, which are an eighth as many as bytes: against accidents, not against
/// anybody. Each step has an inverse, so that a change of one word never gets lost.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, word: u64| {
        let sum = (sum ^ word).wrapping_mul(0x0100_0000_01b3);
        sum ^ sum >> 32
    };
    let (words, rest) = bytes.as_chunks::<WORD>();
    let mut last = [0; WORD];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let begin = step(0xcbf2_9ce4_8422_2325, bytes.len() as u64);
    let sum = words.iter().fold(begin, |sum, word| step(sum, u64::from_le_bytes(*word)));
    step(sum, u64::from_le_bytes(last))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_successor_finds_what_was_written_last() {
        let region = Region::create("weir-test", KeptState::LEN).unwrap();
        let mut worker = KeptState::attach(&region).unwrap();
        assert_eq!(worker.read(), None);
        for state in [&b"first"[..], b"", b"the third, longer than the first"] {
            worker.write(state).unwrap();
            assert_eq!(KeptState::attach(&region).unwrap().read().unwrap(), state);
        }
    }

    #[test]
    fn what_was_cleared_is_not_found_and_can_be_written_anew() {
        let region = Region::create("weir-test", KeptState::LEN).unwrap();
        let mut worker = KeptState::attach(&region).unwrap();
        worker.write(b"one").unwrap();
        worker.write(b"two").unwrap();
        KeptState::attach(&region).unwrap().clear();
        assert_eq!(worker.read(), None);
        worker.write(b"three").unwrap();
        assert_eq!(worker.read().unwrap(), b"three");
    }

    #[test]
    fn a_write_that_was_not_finished_leaves_the_one_before() {
        let region = Region::create("weir-test", KeptState::LEN).unwrap();
        let mut worker = KeptState::attach(&region).unwrap();
        worker.write(b"whole").unwrap();
        // All of a write but its last store.
        worker.fill(&[9; 40]);
        assert_eq!(KeptState::attach(&region).unwrap().read().unwrap(), b"whole");
    }

    #[test]
    fn what_is_too_large_is_refused_and_what_is_damaged_is_not_believed() {
        let region = Region::create("weir-test", KeptState::LEN).unwrap();
        let mut worker = KeptState::attach(&region).unwrap();
        worker.write(b"small").unwrap();
        let large = vec![0; STATE_BYTES + 1];
        assert_eq!(worker.write(&large), Err(TooLarge(STATE_BYTES + 1)));
        assert_eq!(worker.read().unwrap(), b"small");
        // Relaxed: one thread.
        let put = |at: usize, word| worker.bank(1)[at].store(word, Ordering::Relaxed);
        put(BANK_HEADER, u64::from_le_bytes(*b"Small\0\0\0"));
        assert_eq!(worker.read(), None);
        put(0, u64::MAX);
        assert_eq!(worker.read(), None);
    }
}
