//! How many batches are committed at a time.

use std::time::{Duration, Instant};
use weir_packet::BATCH;

/// Batches that are committed together at most, where what they change is replicated: a death takes no more than these.
pub const GROUP: u32 = 8;

/// Batches that are committed together, where what they change is replicated: group commit (DeWitt et al., "Implementation Techniques for
/// Main Memory Database Systems", SIGMOD 1984). A flow is written once for all of them, however many of their packets are its. Only what has waited is
/// grouped: none waits for another that may come.
pub(super) struct Group {
    batches: u32,
    start: Instant,
}

impl Group {
    /// After so long it is committed: who comes behind waits for it.
    const LONGEST: Duration = Duration::from_millis(1);

    pub(super) fn begin() -> Self {
        Group { batches: 0, start: Instant::now() }
    }

    /// Whether another batch goes along, behind one of `came` packets.
    #[inline]
    pub(super) fn goes_on(&mut self, came: usize) -> bool {
        self.batches += 1;
        came == BATCH && self.batches < GROUP && self.start.elapsed() < Self::LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_committed_together_while_they_are_full_and_soon_done() {
        let mut group = Group::begin();
        // However long this took: the clock is looked at below.
        group.start += Duration::from_secs(3600);
        let together = (1..).take_while(|_| group.goes_on(BATCH)).count() as u32 + 1;
        assert_eq!(together, GROUP);

        let mut group = Group::begin();
        assert!(!group.goes_on(BATCH - 1), "nothing more has waited");

        let mut group = Group::begin();
        group.start -= Group::LONGEST;
        assert!(!group.goes_on(BATCH), "what comes behind it has waited long");
    }
}
