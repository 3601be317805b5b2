//! How the packets of an address translator divide: by the port of one of their ends.
//!
//! Ports are dealt out in blocks to leases, the same way on both sides of the translator. An inner end gets an outer one of the lease that its own port is
//! of. So who divides what comes from inside by the source's port, and what comes from outside by the destination's, sends both to who has the
//! lease, without knowing a single mapping; and when a lease goes elsewhere, its mappings and its free ports go together.

use super::{Direction, FlowHasher, FlowKey, PortKind, Small};
use crate::headers::proto;
use std::net::{IpAddr, Ipv4Addr};

/// Leases that there are: as many instances at most share the ports.
pub const LEASES: u16 = 32;

/// Ports that follow each other and are of one lease.
pub const LEASE_BLOCK: u16 = 64;

/// The lease that a port, or the identifier of a query, is of: blocks of 64, dealt out in turn.
#[inline]
#[must_use]
pub fn lease(port: u16) -> u16 {
    port / LEASE_BLOCK % LEASES
}

/// A side of an address translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What comes from here counts by its source.
    Inside,
    /// What comes from here counts by its destination.
    Outside,
}

impl FlowKey {
    /// The key of one end by itself. `port`: or the identifier of its queries.
    #[inline]
    #[must_use]
    pub fn of_end(side: Side, proto: u8, address: Ipv4Addr, port: u16) -> Self {
        let kind = match side {
            Side::Inside => PortKind::Inner,
            Side::Outside => PortKind::Outer,
        };
        let small = Small::new((0, port), proto, false, kind);
        FlowKey { lower: 0, upper: address.to_bits().into(), zone: 0, small }
    }

    /// The key of the end that counts of a packet with this key and direction that comes from `side`. `None` for what has none
    /// that could be translated: not IPv4, or without ports.
    #[inline]
    #[must_use]
    pub fn end_at(&self, direction: Direction, side: Side) -> Option<Self> {
        let known = matches!(self.proto(), proto::TCP | proto::UDP | proto::ICMP);
        if !known || !matches!(self.port_kind(), PortKind::Ports | PortKind::QueryId) {
            return None;
        }
        let [source, destination] = self.ends(direction);
        match if side == Side::Inside { source } else { destination } {
            (IpAddr::V4(address), port) => Some(Self::of_end(side, self.proto(), address, port)),
            (IpAddr::V6(_), _) => None,
        }
    }

    /// True when packets with the key `other` are of what this key stands for: the same key, or one of its ends by itself.
    #[must_use]
    pub fn covers(&self, other: &FlowKey) -> bool {
        let is_end = || {
            let (ports, port) = (other.small.ports(), self.small.ports().1);
            matches!(other.port_kind(), PortKind::Ports | PortKind::QueryId)
                && (self.proto(), self.version()) == (other.proto(), other.version())
                && [(other.lower, ports.0), (other.upper, ports.1)].contains(&(self.upper, port))
        };
        self == other || matches!(self.port_kind(), PortKind::Inner | PortKind::Outer) && is_end()
    }
}

impl FlowHasher {
    /// The hash by which packets with a key are divided. Its upper 16 bits are the bucket: of an end by itself that of its lease; all
    /// of a lease have the same. Of every other key it is [`FlowHasher::hash`].
    #[inline]
    #[must_use]
    pub fn place(&self, key: &FlowKey) -> u64 {
        let hash = self.hash(key);
        match key.port_kind() {
            PortKind::Inner | PortKind::Outer => {
                // Leases are spread evenly over the buckets.
                let bucket = u64::from(lease(key.small.ports().1) * (u16::MAX / LEASES + 1));
                (bucket << 48) | (hash & (u64::MAX >> 16))
            }
            _ => hash,
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn key(from: (IpAddr, u16), to: (IpAddr, u16)) -> (FlowKey, Direction) {
        FlowKey::between(from, to, proto::UDP, PortKind::Ports, 0).unwrap()
    }

    #[test]
    fn both_ends_of_a_lease_have_one_bucket_and_leases_have_equal_parts_of_ports_and_buckets() {
        let hasher = FlowHasher::new(7);
        let mut ports = BTreeMap::new();
        for port in 0..=u16::MAX {
            let inner = FlowKey::of_end(Side::Inside, proto::TCP, [10, 0, 0, 1].into(), port);
            let outer = FlowKey::of_end(Side::Outside, proto::TCP, [192, 0, 2, 1].into(), port);
            assert_eq!(hasher.place(&inner) >> 48, hasher.place(&outer) >> 48);
            assert_ne!(hasher.place(&inner), hasher.place(&outer));
            *ports.entry(hasher.place(&inner) >> 48).or_insert(0) += 1;
        }
        let buckets: Vec<_> = ports.into_iter().collect();
        assert_eq!(buckets, (0..32).map(|n| (n * 2048, 2048)).collect::<Vec<_>>());
    }

    #[test]
    fn the_end_that_counts_is_the_source_from_inside_and_the_destination_from_outside() {
        let (host, outer) = (([10, 0, 0, 1].into(), 5000), ([192, 0, 2, 1].into(), 6000));
        let of = |side, (address, port)| FlowKey::of_end(side, proto::UDP, address, port);
        for (from, to) in [(host, outer), (outer, host)] {
            let (key, direction) = key((IpAddr::V4(from.0), from.1), (IpAddr::V4(to.0), to.1));
            assert_eq!(key.end_at(direction, Side::Inside), Some(of(Side::Inside, from)));
            assert_eq!(key.end_at(direction, Side::Outside), Some(of(Side::Outside, to)));
            assert!(of(Side::Inside, from).covers(&key) && of(Side::Outside, to).covers(&key));
            assert!(!of(Side::Inside, (from.0, 1)).covers(&key));
        }
        let other = FlowKey::between(
            ([10, 0, 0, 1].into(), 0),
            ([10, 0, 0, 2].into(), 0),
            47,
            PortKind::None,
            0,
        );
        let (other, direction) = other.unwrap();
        assert_eq!(other.end_at(direction, Side::Inside), None);
    }

    #[test]
    fn the_key_of_an_end_can_be_written_down_and_says_its_side() {
        let key = FlowKey::of_end(Side::Outside, proto::TCP, [192, 0, 2, 1].into(), 6000);
        assert_eq!(FlowKey::from_bytes(&key.to_bytes()), Some(key));
        assert_eq!(key.to_string(), "proto 6 192.0.2.1:6000 outside");
        let mut bytes = key.to_bytes();
        bytes[0] = 1;
        assert_eq!(FlowKey::from_bytes(&bytes), None);
    }
}
