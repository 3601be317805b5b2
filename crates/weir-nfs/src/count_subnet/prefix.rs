//! Prefixes, the longest match among them, and what was counted under each.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use weir_nf::{ConfigError, Merge};

/// Prefixes of one length, by their bits, with their places in the list.
type OfLength = (u8, HashMap<u128, usize>);

/// A list of prefixes.
#[derive(Debug, Default)]
pub struct Prefixes {
    names: Vec<String>,
    /// IPv4 and IPv6, each by length, the longest first.
    tables: [Vec<OfLength>; 2],
    /// Tells this list from others; never 0.
    id: u64,
}

/// Family (0: IPv4, 1: IPv6), bits and length of an address.
fn bits(address: IpAddr) -> (usize, u128, u8) {
    match address {
        IpAddr::V4(a) => (0, a.to_bits().into(), 32),
        IpAddr::V6(a) => (1, a.to_bits(), 128),
    }
}

/// The upper `len` of `width` bits.
fn upper(bits: u128, len: u8, width: u8) -> u128 {
    bits.checked_shr(u32::from(width - len)).unwrap_or(0)
}

impl Prefixes {
    /// The prefixes `names`, each once and without host bits.
    pub fn new(names: &[String]) -> Result<Self, ConfigError> {
        let mut tables: [BTreeMap<u8, HashMap<u128, usize>>; 2] = Default::default();
        let mut list = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let fail = |why: String| ConfigError { at: format!("/prefixes/{i}"), why };
            let parsed = name.split_once('/').and_then(|(address, len)| {
                let (family, bits, width) = bits(address.parse().ok()?);
                let len: u8 = len.parse().ok().filter(|len| *len <= width)?;
                Some((family, bits, len, width))
            });
            let Some((family, bits, len, width)) = parsed else {
                return Err(fail(format!("`{name}` is no subnet; write 192.0.2.0/24")));
            };
            let network = upper(bits, len, width);
            if network.checked_shl(u32::from(width - len)).unwrap_or(0) != bits {
                return Err(fail(format!("`{name}` has bits behind its /{len}; clear them")));
            }
            let table = tables.get_mut(family).map(|t| t.entry(len).or_default());
            if table.is_none_or(|t| t.insert(network, i).is_some()) {
                return Err(fail(format!("`{name}` is there twice")));
            }
            list.push(name.clone());
        }
        let tables = tables.map(|t| t.into_iter().rev().collect());
        let mut hasher = DefaultHasher::new();
        list.hash(&mut hasher);
        Ok(Prefixes { names: list, tables, id: hasher.finish() | 1 })
    }

    /// Place in the list of the longest prefix that `address` is in.
    #[inline]
    pub fn find(&self, address: IpAddr) -> Option<usize> {
        let (family, bits, width) = bits(address);
        let mut lengths = self.tables.get(family)?.iter();
        lengths.find_map(|(len, table)| table.get(&upper(bits, *len, width)).copied())
    }
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Counts {
    #[inline]
    pub(super) fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    fn merge(&mut self, other: Counts) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Traffic by subnet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Subnets {
    /// By prefix, in the order of the configuration.
    pub subnets: Vec<(String, Counts)>,
    /// In none of them.
    pub other: Counts,
    /// Not IP.
    pub not_ip: Counts,
    /// Which list `subnets` is in line with; 0: none.
    #[serde(skip)]
    aligned: u64,
}

impl Subnets {
    /// Brings the list in line with the configuration, when that is another; what was counted under
    /// prefixes that are gone counts as in none.
    pub(super) fn align(&mut self, prefixes: &Prefixes) {
        if self.aligned == prefixes.id {
            return;
        }
        self.aligned = prefixes.id;
        let mut old: HashMap<String, Counts> =
            std::mem::take(&mut self.subnets).into_iter().collect();
        let kept = prefixes.names.iter().map(|n| (n.clone(), old.remove(n).unwrap_or_default()));
        self.subnets = kept.collect();
        old.values().for_each(|gone| self.other.merge(*gone));
    }

    #[inline]
    pub(super) fn add(&mut self, place: Option<usize>, bytes: u64) {
        match place.and_then(|i| self.subnets.get_mut(i)) {
            Some((_, counts)) => counts.add(bytes),
            None => self.other.add(bytes),
        }
    }
}

impl Merge for Subnets {
    fn merge(&mut self, other: Self) {
        self.aligned = 0;
        self.other.merge(other.other);
        self.not_ip.merge(other.not_ip);
        let mut theirs: BTreeMap<String, Counts> = other.subnets.into_iter().collect();
        for (name, counts) in &mut self.subnets {
            counts.merge(theirs.remove(name).unwrap_or_default());
        }
        self.subnets.extend(theirs);
    }
}
