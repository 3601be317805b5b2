//! What a worker's µNFs remember, kept where a successor finds it after `kill -9`.
//!
//! Two banks and a generation, as in the [ledger](crate::ledger), but of bytes: the worker writes the
//! idle bank and commits it by storing the generation, so a worker that dies while it writes leaves
//! what it had written before.
//!
//! ```text
//! bytes 0..8     generation g; bank g & 1 is the committed one, 0: nothing yet
//! bytes 64..     bank 0: length, checksum, bytes
//! …              bank 1
//! ```

use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU64, Ordering};

const HEADER: usize = 64;
/// Length and checksum.
const BANK_HEADER: usize = 16;

/// Most bytes that are kept of one worker's state. The memory is taken as it is written, no sooner.
pub const STATE_BYTES: usize = 16 << 20;

/// The state is larger than [`STATE_BYTES`] and was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of state are more than the {STATE_BYTES} that are kept over a restart")]
pub struct TooLarge(pub usize);

/// A worker's kept state. One process writes; the next reads when that has ended.
pub struct KeptState {
    mapping: Mapping,
}

impl KeptState {
    /// Bytes of the memory.
    pub const LEN: usize = HEADER + 2 * (BANK_HEADER + STATE_BYTES);

    /// Attaches to a region of [`KeptState::LEN`] bytes.
    pub fn attach(region: &Region) -> Result<Self, RegionError> {
        let mapping = region.map_writable()?;
        if mapping.len() < Self::LEN {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs: Self::LEN });
        }
        Ok(KeptState { mapping })
    }

    fn generation(&self) -> &AtomicU64 {
        // SAFETY: the mapping is page aligned and holds the header; an atomic may be shared.
        unsafe { self.mapping.base().cast().as_ref() }
    }

    fn bank(generation: u64) -> usize {
        HEADER + (generation as usize & 1) * (BANK_HEADER + STATE_BYTES)
    }

    /// Keeps `state` in place of what was kept before.
    pub fn write(&mut self, state: &[u8]) -> Result<(), TooLarge> {
        if state.len() > STATE_BYTES {
            return Err(TooLarge(state.len()));
        }
        let next = self.generation().load(Ordering::Relaxed).wrapping_add(1).max(1);
        let at = Self::bank(next);
        self.put(at, &(state.len() as u64).to_le_bytes());
        self.put(at + 8, &checksum(state).to_le_bytes());
        self.put(at + BANK_HEADER, state);
        // Release: pairs with the Acquire in `read`. That alone is for a reader that runs meanwhile;
        // for a successor the kernel's end of the process orders everything.
        self.generation().store(next, Ordering::Release);
        Ok(())
    }

    /// What was kept last; `None` when nothing was, or what is there cannot be it.
    pub fn read(&self) -> Option<Vec<u8>> {
        let generation = self.generation().load(Ordering::Acquire);
        if generation == 0 {
            return None;
        }
        let at = Self::bank(generation);
        let number = |at| {
            let mut bytes = [0; 8];
            self.get(at, &mut bytes);
            u64::from_le_bytes(bytes)
        };
        // Copied out, then checked, then used: another process may have written anything.
        let len = usize::try_from(number(at)).ok().filter(|&len| len <= STATE_BYTES)?;
        let mut state = vec![0; len];
        self.get(at + BANK_HEADER, &mut state);
        (checksum(&state) == number(at + 8)).then_some(state)
    }

    /// Forgets what was kept, so that a successor begins with nothing. For when nobody runs that writes:
    /// the worker has died.
    pub fn clear(&mut self) {
        // Release: as in `write`.
        self.generation().store(0, Ordering::Release);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        let room = self.mapping.len().saturating_sub(at);
        for (i, &byte) in bytes.iter().take(room).enumerate() {
            // SAFETY: at + i is below the mapping's length, which lives as long as `self`; volatile
            // as another process may read.
            unsafe { self.mapping.base().as_ptr().add(at + i).write_volatile(byte) };
        }
    }

    fn get(&self, at: usize, out: &mut [u8]) {
        let room = self.mapping.len().saturating_sub(at);
        for (i, byte) in out.iter_mut().take(room).enumerate() {
            // SAFETY: as in `put`.
            *byte = unsafe { self.mapping.base().as_ptr().add(at + i).read_volatile() };
        }
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): against accidents, not against anybody.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
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
        worker.put(KeptState::bank(2), &[9; 40]);
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
        worker.put(KeptState::bank(1) + BANK_HEADER, b"S");
        assert_eq!(worker.read(), None);
        worker.put(KeptState::bank(1), &[0xff; 8]);
        assert_eq!(worker.read(), None);
    }
}
