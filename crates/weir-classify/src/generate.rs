//! Seeded rule sets with the statistics of ClassBench's three kinds of filter sets (Taylor and Turner,
//! IEEE/ACM ToN 2007): nested address prefixes from a limited pool, few distinct ports, typical protocols.
//!
//! The distributions are simplified from the paper's figures, not its seed files.

use crate::headers::{Headers, Net};
use crate::rule::{Prefix, Rule, join, mask32, mask128};
use core::ops::RangeInclusive;
use std::collections::HashSet;

/// Kind of filter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Access control list: specific addresses, any source port, exact destination ports.
    Acl,
    /// Firewall: many wildcard addresses, ranges on both ports.
    Fw,
    /// IP chains: a mix of both.
    Ipc,
}

/// Small seeded generator (SplitMix64, Steele et al. 2014): same numbers on every machine, no dependency.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `bound` (0 when `bound` is 0).
    pub fn below(&mut self, bound: usize) -> usize {
        let bits = usize::try_from(self.bits() >> 33).unwrap_or(0);
        bits.checked_rem(bound).unwrap_or(0)
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.bits() >> 32).unwrap_or(0)
    }

    fn port(&mut self, range: &RangeInclusive<u16>) -> u16 {
        let width = usize::from(range.end().saturating_sub(*range.start())).saturating_add(1);
        range.start().saturating_add(u16::try_from(self.below(width)).unwrap_or(0))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).copied()
    }
}

/// `n` distinct IPv4 rules of the given kind (fewer only if the generator's pools cannot make that many).
pub fn generate(seed: u64, n: usize, kind: Kind) -> Vec<Rule> {
    let mut random = Random::new(seed);
    let pool = n.div_ceil(4).max(8);
    let sources = addresses(&mut random, pool);
    let destinations = addresses(&mut random, pool);
    let ports: Vec<u16> =
        (0..48).map(|_| random.port(&(1..=10_000))).chain([22, 25, 53, 80, 110, 443]).collect();
    let mut rules = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..n.saturating_mul(8) {
        if rules.len() == n {
            break;
        }
        let rule = draw(&mut random, kind, &sources, &destinations, &ports);
        if seen.insert(rule.clone()) {
            rules.push(rule);
        }
    }
    rules
}

/// Nested prefixes: half of them refine an earlier one.
fn addresses(random: &mut Random, count: usize) -> Vec<Prefix> {
    let mut pool: Vec<(u32, u8)> = Vec::new();
    for _ in 0..count {
        let parent = if random.chance(50) { random.pick(&pool) } else { None };
        let (addr, from) = parent.unwrap_or_else(|| (random.word(), 12));
        let len = match random.below(10) {
            0..4 => 32,
            4..7 => 24,
            _ => 14 + u8::try_from(random.below(18)).unwrap_or(0),
        }
        .max(from);
        let addr = addr & mask32(from) | random.word() & !mask32(from);
        pool.push((addr & mask32(len), len));
    }
    pool.into_iter().map(|(addr, len)| Prefix::V4 { addr, len }).collect()
}

fn draw(
    random: &mut Random,
    kind: Kind,
    sources: &[Prefix],
    destinations: &[Prefix],
    ports: &[u16],
) -> Rule {
    let (wide_source, wide_destination, source_port) = match kind {
        Kind::Acl => (8, 2, 2),
        Kind::Fw => (40, 25, 30),
        Kind::Ipc => (15, 12, 10),
    };
    let address = |random: &mut Random, wide: usize, pool: &[Prefix]| {
        if random.chance(wide) {
            let len = if random.chance(80) { 0 } else { 8 };
            return Prefix::V4 { addr: random.word() & mask32(len), len };
        }
        random.pick(pool).unwrap_or_default()
    };
    let src = address(random, wide_source, sources);
    let dst = address(random, wide_destination, destinations);
    let proto = match random.below(20) {
        0..13 => Some(6),
        13..17 => Some(17),
        17 => Some(1),
        _ => None,
    };
    // Real lists have no rule early on that takes everything: one with two wide addresses names a service.
    let service = wide(src) && wide(dst);
    let proto = if service { Some(6) } else { proto };
    let mut rule = Rule { src, dst, proto, ..Rule::default() };
    if service {
        let port = random.pick(ports).unwrap_or(80);
        rule.dport = port..=port;
        if random.chance(source_port) {
            rule.sport = range(random, ports);
        }
    } else if matches!(proto, Some(6 | 17)) {
        if random.chance(source_port) {
            rule.sport = range(random, ports);
        }
        if random.chance(85) {
            rule.dport = range(random, ports);
        }
    }
    rule
}

fn wide(prefix: Prefix) -> bool {
    matches!(prefix, Prefix::V4 { len: 0..=8, .. })
}

fn range(random: &mut Random, ports: &[u16]) -> RangeInclusive<u16> {
    let port = random.pick(ports).unwrap_or(80);
    match random.below(10) {
        0..7 => port..=port,
        7 => 1024..=u16::MAX,
        8 => 0..=1023,
        _ => port..=port.saturating_add(u16::try_from(random.below(500)).unwrap_or(0)),
    }
}

/// `count` headers, each inside one rule, evenly over the rules; what a rule leaves open is random.
///
/// An earlier rule may match too. Empty when there are no rules.
pub fn headers_hitting(seed: u64, rules: &[Rule], count: usize) -> Vec<Headers> {
    let mut random = Random::new(seed);
    (0..count).zip(rules.iter().cycle()).map(|(_, rule)| inside(&mut random, rule)).collect()
}

fn inside(random: &mut Random, rule: &Rule) -> Headers {
    let v6 = [rule.src, rule.dst].iter().any(|prefix| matches!(prefix, Prefix::V6 { .. }));
    let proto = rule.proto.unwrap_or_else(|| if random.chance(70) { 6 } else { 17 });
    let net = if v6 {
        Net::V6 { src: address_v6(random, rule.src), dst: address_v6(random, rule.dst) }
    } else {
        Net::V4 { src: address_v4(random, rule.src), dst: address_v4(random, rule.dst) }
    };
    Headers {
        net,
        ports: matches!(proto, 6 | 17)
            .then(|| (random.port(&rule.sport), random.port(&rule.dport))),
        proto: Some(proto),
        tcp_flags: (proto == 6).then(|| rule.tcp_flags.map_or(0x10, |want| want.value & want.mask)),
        icmp: matches!(proto, 1 | 58)
            .then(|| (rule.icmp_type.unwrap_or(8), rule.icmp_code.unwrap_or(0))),
        ether_type: rule.ether_type.unwrap_or(if v6 { 0x86DD } else { 0x0800 }),
        src_mac: rule.src_mac.map_or([2, 0, 0, 0, 0, 1], |want| want.addr),
        dst_mac: rule.dst_mac.map_or([2, 0, 0, 0, 0, 2], |want| want.addr),
        ..Headers::default()
    }
}

fn address_v4(random: &mut Random, prefix: Prefix) -> u32 {
    match prefix {
        Prefix::V4 { addr, len } => addr & mask32(len) | random.word() & !mask32(len),
        _ => random.word(),
    }
}

fn address_v6(random: &mut Random, prefix: Prefix) -> [u32; 4] {
    let words = [random.word(), random.word(), random.word(), random.word()];
    let Prefix::V6 { addr, len } = prefix else { return words };
    let bits = addr & mask128(len) | join(words) & !mask128(len);
    [96_u32, 64, 32, 0]
        .map(|shift| u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or(0))
}
