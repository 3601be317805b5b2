//! The audit of a trust domain after a hostile worker: where each buffer is, found out anew.
//!
//! Owner words are not believed, as whoever has memory of the domain can write them. What is believed
//! is what the resting workers say that they hold, then the lanes; each buffer is in one place, and
//! where it is found a second time the entry is voided. Everything else is free and goes to its pool.

use crate::memory::Memory;
use crate::setup::Setup;
use weir_mem::{ArenaShape, Entry, Marker, Owner};

/// What an audit found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Audited {
    /// Entries voided: packets found twice, and nonsense.
    pub(crate) voided: u64,
    /// Buffers given back to their pools.
    pub(crate) freed: u64,
}

/// Audits domain `d`. All its workers must rest at a batch boundary, or be dead; `held` is what
/// they say that they hold, pools apart. Pools' workers must be told to refill afterwards.
pub(crate) fn audit(
    setup: &Setup,
    memory: &mut Memory,
    d: usize,
    held: &[(usize, Vec<u32>)],
) -> Audited {
    let mut audited = Audited::default();
    let domain = &memory.domains[d];
    let mut owners: Vec<Option<Owner>> = vec![None; domain.owners.len()];
    for (w, buffers) in held {
        for &buffer in buffers {
            if let Some(owner @ None) = owners.get_mut(buffer as usize) {
                *owner = Some(number(*w));
            }
        }
    }
    for (lane, ring) in setup.lanes.iter().zip(&memory.lanes) {
        if setup.lane_domain(lane) != d || !lane.has_packets() {
            continue;
        }
        ring.inspector.rewrite(|entry| {
            let keep = match place(&entry, domain.shape()) {
                Some(buffer) => owners.get_mut(buffer as usize).is_some_and(|owner| {
                    let only = owner.is_none();
                    owner.get_or_insert(number(lane.from));
                    only
                }),
                None => entry.as_marker().is_some(),
            };
            if keep {
                return entry;
            }
            audited.voided += 1;
            Entry::marker(Marker::Void, entry.seq())
        });
    }
    for p in 0..memory.pools.len() {
        if memory.pools[p].domain != d {
            continue;
        }
        memory.returns_to(p).for_each(|(_, ring)| ring.inspector.clear());
        memory.pools[p].allocation.inspector.clear();
        memory.pools[p].give.resync();
    }
    for (buffer, owner) in (0..).zip(owners) {
        memory.domains[d].owners.set(buffer, owner.unwrap_or(Owner::AGENT));
        if owner.is_none()
            && let Some(p) = memory.pool_of(d, buffer)
        {
            audited.freed += u64::from(memory.pools[p].give.stage(buffer));
        }
    }
    for pool in memory.pools.iter_mut().filter(|p| p.domain == d) {
        pool.give.publish();
    }
    audited
}

/// Takes home what lies in lanes of domain `d` when all workers have ended, and says how many packets
/// that were: a hostile worker may say that a stream has ended before it has passed on all of it.
pub(crate) fn clear_lanes(setup: &Setup, memory: &mut Memory, d: usize) -> u64 {
    let shape = memory.domains[d].shape();
    let mut left = std::collections::BTreeSet::new();
    for (lane, ring) in
        setup.lanes.iter().zip(&memory.lanes).filter(|(l, _)| setup.lane_domain(l) == d)
    {
        if !lane.has_packets() {
            continue;
        }
        ring.inspector.rewrite(|entry| {
            left.extend(place(&entry, shape));
            Entry::marker(Marker::Void, entry.seq())
        });
    }
    for &buffer in &left {
        memory.domains[d].owners.set(buffer, Owner::AGENT);
        if let Some(p) = memory.pool_of(d, buffer) {
            memory.pools[p].give.stage(buffer);
        }
    }
    for pool in memory.pools.iter_mut().filter(|p| p.domain == d) {
        pool.give.publish();
    }
    left.len() as u64
}

fn number(worker: usize) -> Owner {
    Owner(worker as u32 + 1)
}

/// The buffer of an entry that is a packet within it.
pub(crate) fn place(entry: &Entry, shape: ArenaShape) -> Option<u32> {
    let end = u32::from(entry.offset()) + u32::from(entry.len());
    let fits = entry.is_packet() && entry.index() < shape.buffers() && end <= shape.stride();
    // Bits that no packet has, or the entry would be admitted nowhere.
    let plain =
        Entry::packet(entry.index(), entry.offset(), entry.len(), entry.seq(), entry.aside());
    (fits && plain == *entry).then(|| entry.index())
}
