//! Where every buffer is: the check that nothing was leaked or doubled.

use crate::memory::Memory;
use crate::setup::Setup;
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
    pub(crate) fn take(setup: &Setup, memory: &Memory) -> Census {
        let mut census = Census::default();
        for domain in 0..memory.domains.len() {
            census.add(setup, memory, domain);
        }
        census
    }

    /// The buffers of one domain.
    pub(crate) fn of_domain(setup: &Setup, memory: &Memory, d: usize) -> Census {
        let mut census = Census::default();
        census.add(setup, memory, d);
        census
    }

    fn add(&mut self, setup: &Setup, memory: &Memory, d: usize) {
        let owners = &memory.domains[d].owners;
        let n = owners.len();
        self.buffers +=
            memory.pools.iter().filter(|p| p.domain == d).count() as u64 * (1 << memory.pool_bits);
        let mut places = vec![0u8; n];
        let mut note = |buffer: u32, count: &mut u64| {
            if let Some(place) = places.get_mut(buffer as usize) {
                *place = place.saturating_add(1);
                *count += 1;
            }
        };
        for (lane, ring) in setup.lanes.iter().zip(&memory.lanes) {
            if setup.lane_domain(lane) != d || !lane.has_packets() {
                continue;
            }
            for entry in ring.inspector.unclaimed() {
                if let Some(buffer) = entry.buffer() {
                    note(buffer, &mut self.in_lanes);
                }
            }
        }
        for p in (0..memory.pools.len()).filter(|&p| memory.pools[p].domain == d) {
            let back = memory.returns_to(p).map(|(_, ring)| ring);
            for ring in back.chain([&memory.pools[p].allocation]) {
                for buffer in ring.inspector.unclaimed() {
                    note(buffer, &mut self.free);
                }
            }
        }
        for buffer in 0..n as u32 {
            if places.get(buffer as usize).is_some_and(|&p| p > 0) {
                continue;
            }
            let Some(p) = memory.pool_of(d, buffer) else { continue };
            match owners.get(buffer) {
                Some(Owner(o)) if o == memory.pools[p].worker as u32 + 1 => self.free += 1,
                _ => self.held += 1,
            }
        }
        // What pool owners say they have must be what nobody else has: a buffer that stands in a
        // stack twice, or in a stack and a ring, shows as a difference.
        for pool in memory.pools.iter().filter(|p| p.domain == d) {
            let worker = &memory.workers[pool.worker];
            let words = if pool.abandoned { None } else { worker.ledger.read() };
            let said = words.and_then(|w| w.get(worker.layout.free).copied()).unwrap_or(0);
            let p = pool.worker as u32 + 1;
            let owned = (0..n as u32)
                .filter(|&b| places.get(b as usize) == Some(&0))
                .filter(|&b| owners.get(b) == Some(Owner(p)))
                .count() as u64;
            self.doubled += said.abs_diff(owned);
        }
        self.doubled += places.iter().filter(|&&p| p > 1).map(|&p| u64::from(p) - 1).sum::<u64>();
    }
}
