//! Which outer ports there are, and which is given to whom.

use super::mapping::End;
use std::net::Ipv4Addr;
use weir_nf::ConfigError;
use weir_nf::flow::{LEASE_BLOCK, LEASES, lease};

/// A block of ports on each outer address.
#[derive(Debug, Clone)]
pub struct Ports {
    addresses: Vec<Ipv4Addr>,
    /// The same in order, first and last of those that follow each other: as a rule they are one block, or few.
    blocks: Vec<(u32, u32)>,
    first: u16,
    last: u16,
    /// Ports are leased: an inner end gets one of the lease that its own is of, as other instances have other leases.
    leased: bool,
}

/// The block unless told otherwise: all but the well-known ones.
pub const BLOCK: &str = "1024-65535";
/// Most outer addresses.
pub const MOST_ADDRESSES: usize = 256;
/// Ports that are tried before a packet is given up: what a packet costs is bounded, however full the block is.
const TRIES: u32 = 128;
/// Ports of an address that instances can share, at least: each of the 32 leases has 512 then.
const LEAST_LEASED: u32 = 1 << 14;
/// From one block of a lease to its next, in ports.
const STRIDE: u32 = LEASE_BLOCK as u32 * LEASES as u32;
/// Ports of one parity in a block of a lease.
const PAIRS: u32 = LEASE_BLOCK as u32 / 2;

impl Ports {
    /// Reads the configuration's `addresses` and `ports`; `leased` for one of several instances.
    pub fn new(addresses: Vec<Ipv4Addr>, block: &str, leased: bool) -> Result<Self, ConfigError> {
        let wrong = |at: String, why: String| Err(ConfigError { at, why });
        for (i, address) in addresses.iter().enumerate() {
            if address.is_multicast() || address.is_broadcast() || address.is_unspecified() {
                return wrong(format!("/addresses/{i}"), format!("{address}: no host has it"));
            }
            if addresses.iter().take(i).any(|other| other == address) {
                return wrong(format!("/addresses/{i}"), format!("{address} is there twice"));
            }
        }
        if addresses.len() > MOST_ADDRESSES {
            let why = format!("{} addresses; at most {MOST_ADDRESSES}", addresses.len());
            return wrong("/addresses".to_owned(), why);
        }
        let ends =
            block.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match ends {
            Some((first, last)) if 0 < first && first < last => {
                let count = u32::from(last - first) + 1;
                if leased && count < LEAST_LEASED {
                    let why = format!(
                        "{count} ports are too few for several instances; give {LEAST_LEASED} or more, or have one instance (--instances NF=1)"
                    );
                    return wrong("/ports".to_owned(), why);
                }
                let blocks = blocks(&addresses);
                Ok(Ports { addresses, blocks, first, last, leased })
            }
            _ => {
                let why = format!("'{block}' is no block of ports such as {BLOCK}");
                wrong("/ports".to_owned(), why)
            }
        }
    }

    /// True for an outer address.
    #[inline]
    pub fn has(&self, address: Ipv4Addr) -> bool {
        let address = address.to_bits();
        match self.blocks[..] {
            [(first, last)] => (first..=last).contains(&address),
            _ => {
                let at = self.blocks.partition_point(|(_, last)| *last < address);
                self.blocks.get(at).is_some_and(|(first, _)| *first <= address)
            }
        }
    }

    /// True for an outer end of this block.
    #[inline]
    pub fn owns(&self, outer: End) -> bool {
        self.has(outer.0) && (self.first..=self.last).contains(&outer.1)
    }

    /// True when another instance may know who has an outer end that an inner one sends to.
    #[inline]
    pub fn is_elsewhere(&self, outer: End, inner: End) -> bool {
        self.leased && self.owns(outer) && lease(outer.1) != lease(inner.1)
    }

    /// True when an inner end may have an outer one: of this block, and of the inner one's lease.
    #[inline]
    pub fn fits(&self, inner: End, outer: End) -> bool {
        self.owns(outer) && (!self.leased || lease(inner.1) == lease(outer.1))
    }

    /// An outer end for an inner one. Its own port when that is free (RFC 4787 §4.2.1), otherwise one of the same
    /// parity (REQ-4), and of the same lease, from a place in the block that `start` says. All of an inner address get the same outer
    /// address (REQ-2, paired), at every instance. Query identifiers are treated like ports.
    pub fn choose(
        &self,
        inner: End,
        start: impl FnOnce() -> u64,
        mut is_free: impl FnMut(End) -> bool,
    ) -> Option<End> {
        let count = self.addresses.len();
        let pick =
            (u64::from(inner.0.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let address = *self.addresses.get(pick.checked_rem(count)?)?;
        let is_here = |port: &u16| (self.first..=self.last).contains(port);
        if is_here(&inner.1) && is_free((address, inner.1)) {
            return Some((address, inner.1));
        }
        // Ports of the inner one's parity: from where, and how many.
        let (first, last) = (u32::from(self.first), u32::from(self.last));
        let odd = u32::from((self.first ^ inner.1) & 1);
        let (from, pairs) = match self.leased {
            true => (first / STRIDE, (last / STRIDE - first / STRIDE + 1) * PAIRS),
            false => (first + odd, last.checked_sub(first + odd)? / 2 + 1),
        };
        let block = u32::from(lease(inner.1) * LEASE_BLOCK + (inner.1 & 1));
        let nth = |n: u32| match self.leased {
            true => (from + n / PAIRS) * STRIDE + block + 2 * (n % PAIRS),
            false => from + 2 * n,
        };
        let start = (start() % u64::from(pairs)) as u32;
        let port = |n: u32| u16::try_from(nth((start + n) % pairs)).ok().filter(is_here);
        let mut tries = (0..pairs.min(TRIES)).filter_map(port);
        tries.find(|port| is_free((address, *port))).map(|port| (address, port))
    }
}

/// Addresses in order, those that follow each other together.
fn blocks(addresses: &[Ipv4Addr]) -> Vec<(u32, u32)> {
    let mut sorted: Vec<u32> = addresses.iter().map(|address| address.to_bits()).collect();
    sorted.sort_unstable();
    let mut blocks: Vec<(u32, u32)> = Vec::new();
    for address in sorted {
        match blocks.last_mut() {
            Some((_, last)) if *last + 1 == address => *last = address,
            _ => blocks.push((address, address)),
        }
    }
    blocks
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const INNER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    #[test]
    fn a_leased_port_is_of_the_inner_ones_lease_and_parity_and_all_of_them_are_found() {
        let outer = vec![Ipv4Addr::new(192, 0, 2, 1)];
        let ports = Ports::new(outer, BLOCK, true).unwrap();
        for inner in [1, 53, 500, 1024, 5001, 40_000, 65_535] {
            let mut taken = HashSet::new();
            for start in 0..2000 {
                let free = |end: End| !taken.contains(&end.1);
                let Some((_, port)) = ports.choose((INNER, inner), || start, free) else {
                    continue;
                };
                assert!(port >= 1024 && port % 2 == inner % 2 && lease(port) == lease(inner));
                assert!(taken.insert(port));
            }
            let all = (1024..=65_535).filter(|p| p % 2 == inner % 2 && lease(*p) == lease(inner));
            assert_eq!(taken.len(), all.count(), "{inner}");
        }
    }

    #[test]
    fn addresses_are_outer_ones_whether_they_follow_each_other_or_not() {
        for given in [&[][..], &[5], &[5, 6, 7], &[9, 5, 6, 1, 12, 11]] {
            let address = |n: u8| Ipv4Addr::new(192, 0, 2, n);
            let outer = given.iter().map(|n| address(*n)).collect();
            let ports = Ports::new(outer, BLOCK, false).unwrap();
            for n in 0..=255 {
                assert_eq!(ports.has(address(n)), given.contains(&n), "{n} of {given:?}");
            }
        }
    }

    #[test]
    fn few_ports_are_not_leased() {
        let outer = || vec![Ipv4Addr::new(192, 0, 2, 1)];
        assert_eq!(Ports::new(outer(), "3000-9999", true).unwrap_err().at, "/ports");
        assert!(Ports::new(outer(), "3000-9999", false).is_ok());
        assert!(Ports::new(outer(), "40000-59999", true).is_ok());
    }
}
