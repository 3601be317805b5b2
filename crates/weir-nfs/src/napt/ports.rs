//! Which outer ports there are, and which is given to whom.

use super::table::End;
use std::net::Ipv4Addr;
use weir_nf::ConfigError;

/// A block of ports on each outer address.
#[derive(Debug, Clone)]
pub struct Ports {
    addresses: Vec<Ipv4Addr>,
    /// The same in order.
    sorted: Vec<Ipv4Addr>,
    first: u16,
    last: u16,
}

/// The block unless told otherwise: all but the well-known ones.
pub const BLOCK: &str = "1024-65535";
/// Most outer addresses.
pub const MOST_ADDRESSES: usize = 256;
/// Ports that are tried before a packet is given up: what a packet costs is bounded, however full the block is.
const TRIES: u32 = 128;

impl Ports {
    /// Reads the configuration's `addresses` and `ports`.
    pub fn new(addresses: Vec<Ipv4Addr>, block: &str) -> Result<Self, ConfigError> {
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
                let mut sorted = addresses.clone();
                sorted.sort_unstable();
                Ok(Ports { addresses, sorted, first, last })
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
        self.sorted.binary_search(&address).is_ok()
    }

    /// True for an outer end of this block.
    #[inline]
    pub fn owns(&self, outer: End) -> bool {
        self.has(outer.0) && (self.first..=self.last).contains(&outer.1)
    }

    /// An outer end for an inner one. Its own port when that is free (RFC 4787 §4.2.1), otherwise one of the same
    /// parity (REQ-4), from a place in the block that `start` says. All of an inner address get the same outer
    /// address (REQ-2, paired). Query identifiers are treated like ports.
    pub fn choose(
        &self,
        inner: End,
        _proto: u8,
        start: u64,
        is_free: impl Fn(End) -> bool,
    ) -> Option<End> {
        let count = self.addresses.len();
        let pick =
            (u64::from(inner.0.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let address = *self.addresses.get(pick.checked_rem(count)?)?;
        if (self.first..=self.last).contains(&inner.1) && is_free((address, inner.1)) {
            return Some((address, inner.1));
        }
        // Ports of the inner one's parity, counted from the first.
        let first = u32::from(self.first) + u32::from((self.first ^ inner.1) & 1);
        let last = u32::from(self.last);
        let pairs = last.checked_sub(first)? / 2 + 1;
        let from = (start % u64::from(pairs)) as u32;
        let port = |n: u32| u16::try_from(first + 2 * ((from + n) % pairs)).ok();
        let mut tries = (0..pairs.min(TRIES)).filter_map(port);
        tries.find(|port| is_free((address, *port))).map(|port| (address, port))
    }
}
