//! What to free when a worker has died.
//!
//! A dead worker held the buffers that it had claimed and not yet passed on. Which those are is
//! told by three things together: the owner words, the rings it wrote (what it published is not its
//! any more, even where nobody has claimed it yet), and the rings it read (a buffer whose owner
//! word it wrote without committing the claim is still in the ring). Order matters: the rings are
//! looked at *first*, because their consumers go on claiming while we look.
//!
//! Sweeping by owner words alone frees buffers twice; letting producers write the next owner leaks:
//! both were tried (docs/architecture.md, "Crashes").

use crate::broken;
use crate::entry::CarriesBuffer;
use crate::owner::{Owner, Owners};
use crate::ring::RingInspector;

/// Buffers that are in rings and therefore not the dead worker's, collected ring by ring.
#[derive(Debug)]
pub struct InRings {
    seen: Vec<u64>,
}

impl InRings {
    /// No ring looked at yet, for an arena of `buffers`.
    pub fn new(buffers: usize) -> Self {
        InRings { seen: vec![0; buffers.div_ceil(64)] }
    }

    /// Notes everything in `ring` that nobody has claimed. To be called for *every* ring that the
    /// dead worker produces into or consumes from, before [`InRings::sweep`].
    pub fn look_at<E: CarriesBuffer>(&mut self, ring: &RingInspector<E>) {
        for buffer in ring.unclaimed().iter().filter_map(CarriesBuffer::buffer) {
            if let Some(word) = self.seen.get_mut(buffer as usize / 64) {
                *word |= 1 << (buffer % 64);
            }
        }
    }

    fn contains(&self, buffer: u32) -> bool {
        self.seen.get(buffer as usize / 64).is_some_and(|w| w & (1 << (buffer % 64)) != 0)
    }

    /// The buffers that `dead` held, which are now the agent's.
    pub fn sweep(&self, owners: &Owners, dead: Owner) -> Vec<u32> {
        let mut swept = Vec::new();
        for buffer in 0..owners.len() as u32 {
            let elsewhere = !broken::is("sweep") && self.contains(buffer);
            if !elsewhere && owners.get(buffer) == Some(dead) {
                owners.set(buffer, Owner::AGENT);
                swept.push(buffer);
            }
        }
        swept
    }
}
