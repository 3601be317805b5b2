//! A keyed, symmetric hash of flow keys.

use super::FlowKey;
use crate::Bytes;
use crate::headers::{Layers, Mac};
use siphasher::sip::SipHasher13;

/// Hashes flow keys under a secret seed. Both directions of a connection hash alike, because the
/// key is the same for both.
///
/// SipHash-1-3, from the `siphasher` crate: whoever can choose addresses and ports must not be able
/// to choose them so that all connections meet in one bucket or on one worker. SipHash is a keyed
/// pseudo-random function made for that, and the 1-3 variant is what Rust's and Python's own maps
/// use. Faster hashes (rapidhash, foldhash, ahash) promise less: they are seeded but were not
/// designed to withstand someone who can observe what collides, such as which worker answers. The
/// price is small: an IPv4 key is three words, an IPv6 key six.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    sip: SipHasher13,
}

impl FlowHasher {
    /// A hasher with this secret seed. Equal seeds hash alike, in every process and on every
    /// machine: the seed is the graph's, not the worker's.
    pub fn new(seed: u128) -> Self {
        FlowHasher { sip: SipHasher13::new_with_keys(seed as u64, (seed >> 64) as u64) }
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
        let [a, b] = key.lower_port.to_be_bytes();
        let [c, d] = key.upper_port.to_be_bytes();
        let small = u64::from_be_bytes([a, b, c, d, key.proto, key.version(), key.kind as u8, 0]);
        let mut input = [0; 48];
        let (words, _) = input.as_chunks_mut::<8>();
        let put = |words: &mut [[u8; 8]], values: &[u64]| {
            for (word, value) in words.iter_mut().zip(values) {
                *word = value.to_le_bytes();
            }
        };
        // The lengths differ, and SipHash hashes the length too: no IPv4 key looks like an IPv6 key.
        if key.v6 {
            let high = |n: u128| (n >> 64) as u64;
            let low = |n: u128| n as u64;
            put(
                words,
                &[
                    high(key.lower),
                    low(key.lower),
                    high(key.upper),
                    low(key.upper),
                    small,
                    key.zone,
                ],
            );
            self.sip.hash(&input)
        } else {
            // IPv4 addresses are the low 32 bits.
            put(words, &[(key.lower << 32 | key.upper) as u64, small, key.zone]);
            self.sip.hash(input.first_chunk::<24>().map_or(&[], |bytes| bytes.as_slice()))
        }
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
