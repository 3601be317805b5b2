//! Packets and rules as words: the form the lookup works on.
//!
//! Every field is a test `word & mask == value` of one of 16 words, except the ports, which are ranges.

use crate::headers::{Fragment, Headers, Net};
use crate::ports::{NO_PORTS, PortClasses};
use crate::rule::{FragmentMatch, Prefix, Rule, VlanMatch, mask32, mask128};

pub(crate) const WORDS: usize = 16;
pub(crate) const SRC: usize = 0;
pub(crate) const DST: usize = 1;
pub(crate) const SPORT: usize = 2;
pub(crate) const DPORT: usize = 3;
/// Protocol, presence bits, fragment bits, TCP flags.
pub(crate) const META: usize = 4;
const ICMP: usize = 5;
/// EtherType and VLAN.
const ETHER: usize = 6;
const MAC: [usize; 3] = [7, 8, 9];
const SRC_REST: [usize; 3] = [10, 11, 12];
const DST_REST: [usize; 3] = [13, 14, 15];

const HAS_PROTO: u32 = 1 << 8;
const IS_FRAGMENT: u32 = 1 << 9;
const IS_LATER: u32 = 1 << 10;
const HAS_FLAGS: u32 = 1 << 11;
const HAS_ICMP: u32 = 1 << 12;
pub(crate) const HAS_PORTS: u32 = 1 << 13;
/// The flags have the upper half of the word to themselves.
const FLAGS_SHIFT: u32 = 16;
/// Stands for 'untagged' where a VLAN identifier (12 bits) would be.
const UNTAGGED: u32 = 0xFFFF;

/// The range of ports that tests nothing.
pub(crate) const ALL_PORTS: (u16, u16) = (0, u16::MAX);

/// A packet as words.
pub(crate) type Key = [u32; WORDS];

/// The address family a rule or packet belongs to; each has its own trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
    Other,
}

/// The words of `headers`, ports as they are; link-layer words only when `link` says that a rule looks at them.
#[inline]
pub(crate) fn words(headers: &Headers, link: bool) -> (Family, Key) {
    let mut key = [0; WORDS];
    let family = match headers.net {
        Net::V4 { src, dst } => {
            key[SRC] = src;
            key[DST] = dst;
            Family::V4
        }
        Net::V6 { src, dst } => {
            [key[SRC], key[SRC_REST[0]], key[SRC_REST[1]], key[SRC_REST[2]]] = src;
            [key[DST], key[DST_REST[0]], key[DST_REST[1]], key[DST_REST[2]]] = dst;
            Family::V6
        }
        Net::None => Family::Other,
    };
    let (source, destination) = headers.ports.unwrap_or_default();
    key[SPORT] = u32::from(source);
    key[DPORT] = u32::from(destination);
    let mut meta = match headers.proto {
        Some(proto) => HAS_PROTO | u32::from(proto),
        None => 0,
    };
    meta |= match headers.fragment {
        Fragment::Whole => 0,
        Fragment::First => IS_FRAGMENT,
        Fragment::Later => IS_FRAGMENT | IS_LATER,
    };
    // Without branches: which packets have flags is random in real traffic, so a branch here would mispredict.
    let (kind, code) = headers.icmp.unwrap_or_default();
    meta |= if headers.ports.is_some() { HAS_PORTS } else { 0 };
    meta |= if headers.tcp_flags.is_some() { HAS_FLAGS } else { 0 };
    meta |= u32::from(headers.tcp_flags.unwrap_or_default()) << FLAGS_SHIFT;
    meta |= if headers.icmp.is_some() { HAS_ICMP } else { 0 };
    key[ICMP] = u32::from(kind) << 8 | u32::from(code);
    key[META] = meta;
    if link {
        let vlan = headers.vlan.map_or(UNTAGGED, |id| u32::from(id & 0xFFF));
        key[ETHER] = u32::from(headers.ether_type) << 16 | vlan;
        [key[MAC[0]], key[MAC[1]], key[MAC[2]]] = mac_words(&headers.src_mac, &headers.dst_mac);
    }
    (family, key)
}

/// The word [`META`] of a whole TCP or UDP datagram over IP with all of its header there.
#[inline]
pub(crate) fn plain_meta(proto: u8, tcp_flags: Option<u8>) -> u32 {
    let flags = tcp_flags.map_or(0, |flags| HAS_FLAGS | u32::from(flags) << FLAGS_SHIFT);
    HAS_PROTO | HAS_PORTS | u32::from(proto) | flags
}

/// The same words with the ports' classes instead of the ports: what trees are cut by.
#[inline]
pub(crate) fn classed(mut key: Key, sport: &PortClasses, dport: &PortClasses) -> Key {
    let has = key[META] & HAS_PORTS != 0;
    let class = |classes: &PortClasses, port: u32| {
        if has { u32::from(classes.class(port as u16)) } else { u32::from(NO_PORTS) }
    };
    key[SPORT] = class(sport, key[SPORT]);
    key[DPORT] = class(dport, key[DPORT]);
    key
}

fn mac_words(src: &[u8; 6], dst: &[u8; 6]) -> [u32; 3] {
    let [a, b, c, d, e, f] = *src;
    let [g, h, i, j, k, l] = *dst;
    [
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
        u32::from_be_bytes([i, j, k, l]),
    ]
}

/// A rule as words.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) masks: Key,
    pub(crate) values: Key,
    /// First and last class.
    pub(crate) sport: (u16, u16),
    /// First and last class.
    pub(crate) dport: (u16, u16),
    /// First and last source and destination port.
    pub(crate) ports: [(u16, u16); 2],
    /// Position in the caller's list.
    pub(crate) index: u32,
}

impl Compiled {
    /// `None` when the rule cannot match a packet of this family.
    pub(crate) fn new(
        rule: &Rule,
        index: u32,
        family: Family,
        sport: &PortClasses,
        dport: &PortClasses,
    ) -> Option<Self> {
        if rule.sport.is_empty() || rule.dport.is_empty() {
            return None;
        }
        let mut compiled = Compiled {
            masks: [0; WORDS],
            values: [0; WORDS],
            sport: sport.range(&rule.sport),
            dport: dport.range(&rule.dport),
            ports: [&rule.sport, &rule.dport].map(|range| (*range.start(), *range.end())),
            index,
        };
        if compiled.ports != [ALL_PORTS; 2] {
            compiled.test(META, HAS_PORTS, HAS_PORTS);
        }
        compiled.address(rule.src, family, SRC, SRC_REST)?;
        compiled.address(rule.dst, family, DST, DST_REST)?;
        if let Some(proto) = rule.proto {
            compiled.test(META, HAS_PROTO | 0xFF, HAS_PROTO | u32::from(proto));
        }
        match rule.fragment {
            None => {}
            Some(FragmentMatch::No) => compiled.test(META, IS_FRAGMENT, 0),
            Some(FragmentMatch::Yes) => compiled.test(META, IS_FRAGMENT, IS_FRAGMENT),
            Some(FragmentMatch::First) => compiled.test(META, IS_FRAGMENT | IS_LATER, IS_FRAGMENT),
            Some(FragmentMatch::Later) => compiled.test(META, IS_LATER, IS_LATER),
        }
        if let Some(want) = rule.tcp_flags {
            let mask = HAS_FLAGS | u32::from(want.mask) << FLAGS_SHIFT;
            compiled.test(META, mask, HAS_FLAGS | u32::from(want.value) << FLAGS_SHIFT);
        }
        if let Some(kind) = rule.icmp_type {
            compiled.test(META, HAS_ICMP, HAS_ICMP);
            compiled.test(ICMP, 0xFF00, u32::from(kind) << 8);
        }
        if let Some(code) = rule.icmp_code {
            compiled.test(META, HAS_ICMP, HAS_ICMP);
            compiled.test(ICMP, 0x00FF, u32::from(code));
        }
        if let Some(ether_type) = rule.ether_type {
            compiled.test(ETHER, 0xFFFF_0000, u32::from(ether_type) << 16);
        }
        match rule.vlan {
            None => {}
            Some(VlanMatch::Untagged) => compiled.test(ETHER, 0xFFFF, UNTAGGED),
            Some(VlanMatch::Id(id)) if id > 0xFFF => return None,
            Some(VlanMatch::Id(id)) => compiled.test(ETHER, 0xFFFF, u32::from(id)),
        }
        let any = crate::rule::MacMatch { addr: [0; 6], mask: [0; 6] };
        let (src, dst) = (rule.src_mac.unwrap_or(any), rule.dst_mac.unwrap_or(any));
        let (masks, values) = (mac_words(&src.mask, &dst.mask), mac_words(&src.addr, &dst.addr));
        for ((word, mask), value) in MAC.into_iter().zip(masks).zip(values) {
            compiled.test(word, mask, value);
        }
        Some(compiled)
    }

    fn test(&mut self, word: usize, mask: u32, value: u32) {
        if let (Some(masks), Some(values)) = (self.masks.get_mut(word), self.values.get_mut(word)) {
            *masks |= mask;
            *values |= value & mask;
        }
    }

    fn address(
        &mut self,
        prefix: Prefix,
        family: Family,
        first: usize,
        rest: [usize; 3],
    ) -> Option<()> {
        match (prefix, family) {
            (Prefix::Any, _) => {}
            (Prefix::V4 { addr, len }, Family::V4) => self.test(first, mask32(len), addr),
            (Prefix::V6 { addr, len }, Family::V6) => {
                let mask = mask128(len);
                for (word, shift) in
                    [first, rest[0], rest[1], rest[2]].into_iter().zip([96_u32, 64, 32, 0])
                {
                    let part = |bits: u128| {
                        u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or(0)
                    };
                    self.test(word, part(mask), part(addr));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// True when the rule looks at link-layer words.
    pub(crate) fn tests_link(&self) -> bool {
        [ETHER, MAC[0], MAC[1], MAC[2]]
            .iter()
            .any(|&word| self.masks.get(word).is_some_and(|&mask| mask != 0))
    }
}

/// The part of a rule that most lookups compare: 40 bytes, so that a leaf's comparisons touch few cache lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hot {
    src: (u32, u32),
    dst: (u32, u32),
    meta: (u32, u32),
    sport: (u16, u16),
    dport: (u16, u16),
    /// Position in the caller's list.
    pub(crate) index: u32,
    /// Position of the other words' tests; `u32::MAX` when the rule has none.
    rest: u32,
}

/// The tests of the words that [`Hot`] leaves out.
#[derive(Debug, Clone)]
pub(crate) struct Cold {
    masks: Key,
    values: Key,
}

impl Hot {
    pub(crate) fn new(rule: &Compiled, cold: &mut Vec<Cold>) -> Self {
        let usual = [SRC, DST, SPORT, DPORT, META];
        let mut rest = u32::MAX;
        if rule.masks.iter().enumerate().any(|(word, &mask)| mask != 0 && !usual.contains(&word)) {
            rest = u32::try_from(cold.len()).unwrap_or(u32::MAX);
            cold.push(Cold { masks: rule.masks, values: rule.values });
        }
        Hot {
            src: (rule.masks[SRC], rule.values[SRC]),
            dst: (rule.masks[DST], rule.values[DST]),
            meta: (rule.masks[META], rule.values[META]),
            sport: rule.sport,
            dport: rule.dport,
            index: rule.index,
            rest,
        }
    }

    /// A rule that matches nothing.
    pub(crate) const NEVER: Hot = Hot {
        src: (0, 1),
        dst: (0, 0),
        meta: (0, 0),
        sport: (0, 0),
        dport: (0, 0),
        index: u32::MAX,
        rest: u32::MAX,
    };

    /// True when the words of this struct match; see [`Hot::has_rest`]. No branches.
    #[inline]
    pub(crate) fn matches(&self, key: &Key) -> bool {
        let differ = (key[SRC] & self.src.0 ^ self.src.1)
            | (key[DST] & self.dst.0 ^ self.dst.1)
            | (key[META] & self.meta.0 ^ self.meta.1);
        // One comparison per range: below the start wraps around to a large number.
        let outside = |class: u32, (first, last): (u16, u16)| {
            class.wrapping_sub(u32::from(first)) > u32::from(last.wrapping_sub(first))
        };
        (differ == 0) & !outside(key[SPORT], self.sport) & !outside(key[DPORT], self.dport)
    }

    /// True when there is more to test: [`Hot::rest_matches`].
    #[inline]
    pub(crate) fn has_rest(&self) -> bool {
        self.rest != u32::MAX
    }

    /// The tests of the words that are not in this struct.
    pub(crate) fn rest_matches(&self, key: &Key, cold: &[Cold]) -> bool {
        usize::try_from(self.rest).ok().and_then(|at| cold.get(at)).is_some_and(|cold| {
            key.iter()
                .zip(&cold.masks)
                .zip(&cold.values)
                .all(|((word, mask), value)| word & mask == *value)
        })
    }
}
