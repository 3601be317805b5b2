//! A keyed, symmetric hash of flow keys.

use super::{FlowKey, sip};
use crate::Bytes;
use crate::headers::{Layers, Mac};
use siphasher::sip::SipHasher13;

/// Hashes flow keys under a secret seed. Both directions of a connection hash alike, because the
/// key is the same for both.
///
/// SipHash-1-3 (Aumasson & Bernstein, "SipHash: a fast short-input PRF", 2012): whoever can choose addresses and ports must not be able
/// to choose them so that all connections meet in one bucket or on one worker. SipHash is a keyed
/// pseudo-random function made for that, and the 1-3 variant is what Rust's and Python's own maps
/// use. Faster hashes (rapidhash, foldhash, ahash) promise less: they are seeded but were not
/// designed to withstand someone who can observe what collides, such as which worker answers. The
/// price is small: an IPv4 key is three words, an IPv6 key six, and those of a batch are hashed side by side.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    seed: (u64, u64),
    sip: SipHasher13,
}

impl FlowHasher {
    /// A hasher with this secret seed. Equal seeds hash alike, in every process and on every
    /// machine: the seed is the graph's, not the worker's.
    pub fn new(seed: u128) -> Self {
        let seed = (seed as u64, (seed >> 64) as u64);
        FlowHasher { seed, sip: SipHasher13::new_with_keys(seed.0, seed.1) }
    }

    /// The hasher by which a graph with this seed chooses among the ports of an array: another than
    /// µNFs have, so that what one of them has chosen by a hash is spread over all ports again.
    pub fn for_ports(seed: u64) -> Self {
        // "ports of" in ASCII.
        Self::new(u128::from(seed) | 0x706f_7274_7320_6f66 << 64)
    }

    /// One of `count` places for a flow, from 0: the same for both directions, all equally likely.
    #[inline]
    pub fn choose(&self, key: &FlowKey, count: usize) -> usize {
        // Multiply and shift (Lemire, "Fast Random Integer Generation in an Interval", 2019, §3).
        ((u128::from(self.hash(key)) * count as u128) >> 64) as usize
    }

    /// The 64-bit hash of a flow key.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        match key.small.v6() {
            false => sip::one(self.seed, Self::v4(key)),
            true => sip::one(self.seed, Self::v6(key)),
        }
    }

    /// The lower halves of the hashes of many keys, eight at a time where that can be. Equal to [`FlowHasher::hash`] of each.
    pub fn hash_all(&self, keys: &[FlowKey], hashes: &mut [u32]) {
        let count = keys.len().min(hashes.len());
        let (keys, _) = keys.split_at(count);
        let (hashes, _) = hashes.split_at_mut(count);
        let (eights, rest) = keys.as_chunks::<{ sip::LANES }>();
        let (of_eights, of_rest) = hashes.as_chunks_mut::<{ sip::LANES }>();
        sip::many(self.seed, eights, of_eights);
        for (hash, key) in of_rest.iter_mut().zip(rest) {
            *hash = self.hash(key) as u32;
        }
    }

    /// What is hashed of an IPv4 key, whose addresses are the low 32 bits. The lengths differ, and SipHash hashes the length too: no
    /// IPv4 key looks like an IPv6 key.
    #[inline(always)]
    pub(super) fn v4(key: &FlowKey) -> [u64; 3] {
        [(key.lower << 32 | key.upper) as u64, key.small.0, key.zone]
    }

    /// What is hashed of an IPv6 key.
    #[inline(always)]
    pub(super) fn v6(key: &FlowKey) -> [u64; 6] {
        let high = |n: u128| (n >> 64) as u64;
        let (lower, upper) = (key.lower, key.upper);
        [high(lower), lower as u64, high(upper), upper as u64, key.small.0, key.zone]
    }

    /// The upper half of [`FlowHasher::hash`], for metadata that keeps 32 bits.
    #[inline]
    pub fn hash32(&self, key: &FlowKey) -> u32 {
        (self.hash(key) >> 32) as u32
    }

    /// Hashes anything else under the same seed.
    #[inline]
    pub(super) fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        self.sip.hash(bytes)
    }

    /// A hash for frames without a flow (ARP, LLDP and the like): of the two MAC addresses, whichever way
    /// the frame goes.
    #[inline]
    pub fn hash_frame<B: Bytes + ?Sized>(&self, bytes: &B) -> u64 {
        let to = bytes.array::<6>(0).unwrap_or_default();
        let from = bytes.array::<6>(6).unwrap_or_default();
        let (a, b) = if to < from { (to, from) } else { (from, to) };
        let mut both = [0; 12];
        let (first, second) = both.split_at_mut(6);
        first.copy_from_slice(&a);
        second.copy_from_slice(&b);
        self.hash_bytes(&both)
    }

    /// A hash for a station of an Ethernet: its VLAN stack ([`FlowKey::zone`]) and address. Never that of a flow
    /// but by chance: what is hashed has another length.
    #[inline]
    pub fn hash_station(&self, zone: u64, mac: Mac) -> u64 {
        let mut both = [0; 14];
        let (first, second) = both.split_at_mut(8);
        first.copy_from_slice(&zone.to_le_bytes());
        second.copy_from_slice(&mac);
        self.hash_bytes(&both)
    }

    /// The hash of the flow that a packet belongs to; `layers` must have depth L3. `None` when the
    /// packet is not IP. Later fragments hash by their addresses only: see [`super::FragmentTable`].
    #[inline]
    pub fn hash_packet<B: Bytes + ?Sized>(&self, bytes: &B, layers: &Layers) -> Option<u64> {
        FlowKey::from_packet(bytes, layers).map(|(key, _)| self.hash(&key))
    }
}
