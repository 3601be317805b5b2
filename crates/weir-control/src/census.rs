//! Where every buffer is: the check that nothing was leaked or doubled.

use crate::memory::Memory;
use weir_mem::Owner;
use weir_mem::entry::CarriesBuffer;

/// Result of counting the buffers while nobody moves them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Census {
    /// Buffers there are.
    pub buffers: u64,
    /// Free: in a pool's stack, or on the way back to it.
    pub free: u64,
    /// In lanes between workers.
    pub in_lanes: u64,
    /// In the hands of a worker that is not their pool's.
    pub held: u64,
    /// Found in more than one place.
    pub doubled: u64,
}

impl Census {
    /// True when every buffer is in exactly one place.
    pub fn is_sound(&self) -> bool {
        self.free + self.in_lanes + self.held == self.buffers && self.doubled == 0
    }

    /// True when, besides, nothing is held or on its way any more.
    pub fn is_clean(&self) -> bool {
        self.is_sound() && self.free == self.buffers
    }

    /// Counts. Exact only while all workers rest.
    pub(crate) fn take(memory: &Memory) -> Census {
        let n = memory.owners.len();
        let mut places = vec![0u8; n];
        let mut census = Census { buffers: n as u64, ..Census::default() };
        let mut note = |buffer: u32, count: &mut u64| {
            if let Some(place) = places.get_mut(buffer as usize) {
                *place = place.saturating_add(1);
                *count += 1;
            }
        };
        for lane in &memory.lanes {
            for entry in lane.inspector.unclaimed() {
                if let Some(buffer) = entry.buffer() {
                    note(buffer, &mut census.in_lanes);
                }
            }
        }
        let back = memory.workers.iter().flat_map(|w| &w.returns);
        for ring in back.chain(memory.pools.iter().map(|p| &p.allocation)) {
            for buffer in ring.inspector.unclaimed() {
                note(buffer, &mut census.free);
            }
        }
        for buffer in 0..n as u32 {
            if places.get(buffer as usize).is_some_and(|&p| p > 0) {
                continue;
            }
            let home = memory.pools.get(memory.pool_of(buffer)).map(|p| p.worker as u32 + 1);
            match memory.owners.get(buffer) {
                Some(Owner(o)) if Some(o) == home => census.free += 1,
                _ => census.held += 1,
            }
        }
        // What pool owners say they have must be what nobody else has: a buffer that stands in a
        // stack twice, or in a stack and a ring, shows as a difference.
        for pool in &memory.pools {
            let worker = &memory.workers[pool.worker];
            let words = if pool.abandoned { None } else { worker.ledger.read() };
            let said = words.and_then(|w| w.get(worker.layout.free).copied()).unwrap_or(0);
            let p = pool.worker as u32 + 1;
            let owned = (0..n as u32)
                .filter(|&b| places.get(b as usize) == Some(&0))
                .filter(|&b| memory.owners.get(b) == Some(Owner(p)))
                .count() as u64;
            census.doubled += said.abs_diff(owned);
        }
        census.doubled += places.iter().filter(|&&p| p > 1).map(|&p| u64::from(p) - 1).sum::<u64>();
        census
    }
}
