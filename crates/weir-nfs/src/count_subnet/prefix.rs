//! Prefixes, the longest match among them, and what was counted under each.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use weir_nf::{ConfigError, Merge};

/// Which prefix addresses are in, as ranges: where each begins, and the place in the list of the longest prefix that
/// covers it. One search among numbers in order, however many lengths of prefixes there are.
#[derive(Debug, Default)]
struct Ranges {
    starts: Vec<u128>,
    places: Vec<Option<u32>>,
}

/// A prefix: its first address, its last one, its place in the list.
type Span = (u128, u128, u32);

impl Ranges {
    /// Of `spans`, of which any two are apart or one is in the other, none twice.
    fn new(mut spans: Vec<Span>) -> Self {
        // Who covers others goes before them.
        spans.sort_unstable_by_key(|&(first, last, _)| (first, std::cmp::Reverse(last)));
        let mut ranges = Ranges::default();
        ranges.begin(0, None);
        let mut covers: Vec<Span> = Vec::new();
        for span in spans {
            ranges.end(&mut covers, span.0);
            ranges.begin(span.0, Some(span.2));
            covers.push(span);
        }
        ranges.end(&mut covers, u128::MAX);
        ranges
    }

    /// From `start` on it is `place`.
    fn begin(&mut self, start: u128, place: Option<u32>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.places.pop();
        }
        self.starts.push(start);
        self.places.push(place);
    }

    /// Behind the last address of what ends before `next`, it is what covers that.
    fn end(&mut self, covers: &mut Vec<Span>, next: u128) {
        while let Some(&(_, last, _)) = covers.last().filter(|(_, last, _)| *last < next) {
            covers.pop();
            self.begin(last + 1, covers.last().map(|(.., place)| *place));
        }
    }

    #[inline]
    fn find(&self, address: u128) -> Option<usize> {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.places.get(behind.checked_sub(1)?)?.map(|place| place as usize)
    }
}

/// A list of prefixes.
#[derive(Debug, Default)]
pub struct Prefixes {
    names: Vec<String>,
    /// IPv4 and IPv6.
    ranges: [Ranges; 2],
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
        let mut spans: [Vec<Span>; 2] = Default::default();
        let mut seen = HashSet::new();
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
            if !seen.insert((family, bits, len)) {
                return Err(fail(format!("`{name}` is there twice")));
            }
            let others = upper(u128::MAX, width - len, 128);
            if let (Some(spans), Ok(place)) = (spans.get_mut(family), i.try_into()) {
                spans.push((bits, bits | others, place));
            }
            list.push(name.clone());
        }
        let ranges = spans.map(Ranges::new);
        let mut hasher = DefaultHasher::new();
        list.hash(&mut hasher);
        Ok(Prefixes { names: list, ranges, id: hasher.finish() | 1 })
    }

    /// Place in the list of the longest prefix that `address` is in.
    #[inline]
    pub fn find(&self, address: IpAddr) -> Option<usize> {
        let (family, bits, _) = bits(address);
        self.ranges.get(family)?.find(bits)
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
