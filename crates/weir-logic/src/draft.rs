//! Packets out of wanted bits. What nobody wants to be something is what it would be in an ordinary
//! packet, so that an example looks like one: addresses from the documentation blocks, TCP, 60 bytes.

use std::collections::BTreeMap;

use crate::theory::Tie;
use crate::variable::Variable;

/// Shortest Ethernet frame without its checksum (IEEE 802.3 §4.2.3.3), in bytes.
const SHORTEST: usize = 60;
/// Longest packet anywhere in Weir, in bytes.
const LONGEST: usize = 65_535;

/// Wanted values of variables, sorted by meaning.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// By offset: which bits, and their values.
    bytes: BTreeMap<usize, (u8, u8)>,
    at_least: usize,
    at_most: Option<usize>,
    l4: Vec<(Variable, bool)>,
    /// Tags that must be true or not, by number and bit.
    pub(crate) tags: Vec<((u32, u32), bool)>,
    /// Bits of numbers that are not looked into, by number and bit.
    pub(crate) opaque: Vec<((u32, u32), bool)>,
}

/// What became of it.
pub(crate) enum Made {
    /// This packet has all wanted bits.
    Packet(Vec<u8>),
    /// No packet has them; these ties say why.
    Never(Vec<Tie>),
}

impl Wanted {
    /// From a diagram's example.
    pub(crate) fn new(chosen: &[(u32, bool)]) -> Self {
        let mut wanted = Self::default();
        for &(place, value) in chosen {
            wanted.add(Variable::at(place), value);
        }
        wanted
    }

    pub(crate) fn add(&mut self, variable: Variable, value: bool) {
        match variable {
            Variable::Has { bytes } => self.length(bytes, value),
            Variable::Bit { byte, bit } => {
                let (mask, bits) = self.bytes.entry(index(byte)).or_default();
                *mask |= 1 << (bit & 7);
                *bits |= u8::from(value) << (bit & 7);
            }
            Variable::L4Has { .. } | Variable::L4Bit { .. } => self.l4.push((variable, value)),
            Variable::Tag { index, bit } => self.tags.push(((index, bit), value)),
            Variable::Opaque { index, bit } => self.opaque.push(((index, bit), value)),
        }
    }

    fn length(&mut self, bytes: u32, there: bool) {
        let bytes = index(bytes);
        if there {
            self.at_least = self.at_least.max(bytes);
        } else {
            let most = bytes.saturating_sub(1);
            self.at_most = Some(self.at_most.map_or(most, |m| m.min(most)));
        }
    }

    /// The same without the lengths that it must have at least.
    pub(crate) fn of_any_length(chosen: &[(u32, bool)]) -> Self {
        let mut wanted = Self::default();
        for &(place, value) in chosen {
            match Variable::at(place) {
                Variable::Has { .. } | Variable::L4Has { .. } if value => {}
                variable => wanted.add(variable, value),
            }
        }
        wanted
    }

    /// What bit `variable` would be in an ordinary packet with what is wanted so far.
    pub(crate) fn ordinary(&self, variable: Variable) -> bool {
        let (byte, bit) = match variable {
            Variable::Has { .. } | Variable::L4Has { .. } => return true,
            Variable::Tag { .. } => return false,
            Variable::Opaque { bit, .. } => return bit == 0,
            Variable::Bit { byte, bit } => (index(byte), bit),
            Variable::L4Bit { l3, byte, bit } => {
                let tie = Tie { l3, words: self.words(&self.bytes(), l3), l4: variable };
                match tie.fixed() {
                    Some(Variable::Bit { byte: fixed, .. }) => (index(fixed), bit),
                    _ => (index(byte), bit),
                }
            }
        };
        self.bytes().get(byte).is_some_and(|b| b >> (bit & 7) & 1 == 1)
    }

    /// Length field of the IPv4 header at `l3`: five words if nothing else is wanted.
    fn words(&self, bytes: &[u8], l3: u32) -> u32 {
        let (mask, bits) = self.bytes.get(&index(l3)).copied().unwrap_or_default();
        let ordinary = if is_ipv4(bytes, index(l3)) {
            bytes.get(index(l3)).copied().unwrap_or(0)
        } else {
            0x45
        };
        u32::from((ordinary & !mask | bits) & 15)
    }

    /// The packet; `seed` 0 is the ordinary one, others fill with something else what is not wanted
    /// to be anything.
    pub(crate) fn packet(mut self, seed: u64) -> Made {
        let mut ties = Vec::new();
        let mut lengths = Vec::new();
        for (tie, value) in self.tied() {
            match tie.fixed() {
                Some(Variable::Bit { byte, bit }) => {
                    let (mask, bits) = self.bytes.get(&index(byte)).copied().unwrap_or_default();
                    if mask >> (bit & 7) & 1 == 1 && (bits >> (bit & 7) & 1 == 1) != value {
                        ties.push(tie);
                    } else {
                        self.add(Variable::Bit { byte, bit }, value);
                    }
                }
                Some(fixed) => {
                    self.add(fixed, value);
                    lengths.push(tie);
                }
                // Behind the end of any packet, so it cannot be.
                None if value => ties.push(tie),
                None => {}
            }
        }
        if self.at_most.is_some_and(|m| m < self.at_least) {
            ties.extend(lengths);
        }
        if !ties.is_empty() {
            return Made::Never(ties);
        }
        let mut packet = self.bytes();
        let mut length = packet.len().max(SHORTEST);
        if seed != 0 {
            let mut random = seed;
            for byte in packet.iter_mut().skip(14) {
                // Half of them stay: then lengths and versions are often still right.
                let n = next(&mut random);
                if n >> 63 == 1 {
                    *byte = n.to_be_bytes()[7];
                }
            }
            self.overlay(&mut packet);
            length = length.saturating_add(usize::from(next(&mut random).to_be_bytes()[7]));
        }
        let length = length.max(self.at_least).min(self.at_most.unwrap_or(LONGEST)).min(LONGEST);
        packet.resize(length, 0);
        Made::Packet(packet)
    }

    /// What is wanted behind IPv4 headers, tied to offsets by the headers' lengths; these are then
    /// wanted, too.
    fn tied(&mut self) -> Vec<(Tie, bool)> {
        let ordinary = self.bytes();
        let l4 = std::mem::take(&mut self.l4);
        let mut tied = Vec::with_capacity(l4.len());
        for (l4, value) in l4 {
            if let Variable::L4Has { l3, .. } | Variable::L4Bit { l3, .. } = l4 {
                let words = self.words(&ordinary, l3);
                for bit in 0..4 {
                    let value = words.checked_shr(bit).unwrap_or(0) & 1 == 1;
                    self.add(Variable::Bit { byte: l3, bit }, value);
                }
                tied.push((Tie { l3, words, l4 }, value));
            }
        }
        tied
    }

    fn overlay(&self, packet: &mut Vec<u8>) {
        for (&at, &(mask, bits)) in &self.bytes {
            if at >= packet.len() && at < LONGEST {
                packet.resize(at.saturating_add(1), 0);
            }
            if let Some(byte) = packet.get_mut(at) {
                *byte = *byte & !mask | bits;
            }
        }
    }

    /// The first EtherType that has what is wanted of the one at `at`; none may have it all.
    fn ordinary_kind(&self, packet: &mut [u8], at: usize) {
        let kind = KINDS.iter().find(|kind| {
            kind.iter().zip(at..).all(|(byte, at)| {
                let (mask, bits) = self.bytes.get(&at).copied().unwrap_or_default();
                byte & mask == bits
            })
        });
        for (byte, new) in packet.iter_mut().skip(at).zip(kind.into_iter().flatten()) {
            *byte = *new;
        }
    }

    /// An ordinary packet with what is wanted, header by header: what is wanted of one decides which
    /// is the next.
    fn bytes(&self) -> Vec<u8> {
        let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let mut l3 = packet.len();
        loop {
            self.overlay(&mut packet);
            self.ordinary_kind(&mut packet, l3.saturating_sub(2));
            let kind = packet.get(l3.saturating_sub(2)..l3);
            let header = match kind {
                Some([0x81, 0] | [0x88, 0xa8] | [0x91, 0]) if l3 < 4_000 => &[0, 1, 8, 0][..],
                Some([8, 0]) => &IPV4_TCP[..],
                Some([0x86, 0xdd]) => &IPV6_TCP[..],
                Some([8, 6] | [0x80, 0x35]) => &ARP[..],
                _ => return packet,
            };
            let end = l3.saturating_add(header.len());
            if packet.len() < end {
                packet.resize(end, 0);
            }
            for (byte, new) in packet.iter_mut().skip(l3).zip(header) {
                *byte = *new;
            }
            self.overlay(&mut packet);
            if header.len() > 4 {
                return packet;
            }
            l3 = end;
        }
    }
}

/// EtherTypes, the most ordinary first.
const KINDS: [[u8; 2]; 5] = [[8, 0], [0x86, 0xdd], [0x81, 0], [8, 6], [0x88, 0xa8]];

/// 192.0.2.1 to 198.51.100.2 (RFC 5737), TCP from port 1024 to 80, SYN, no data.
const IPV4_TCP: [u8; 40] = [
    0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2, // IPv4
    4, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP
];

/// 2001:db8::1 to 2001:db8::2 (RFC 3849), the same TCP.
const IPV6_TCP: [u8; 60] = [
    0x60, 0, 0, 0, 0, 20, 6, 64, // IPv6
    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // destination
    4, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP
];

/// A request (RFC 826) of 192.0.2.1 for 192.0.2.2.
const ARP: [u8; 28] =
    [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2];

fn is_ipv4(packet: &[u8], l3: usize) -> bool {
    packet.get(l3.saturating_sub(2)..l3) == Some(&[8, 0])
}

fn index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// SplitMix64 (Steele, Lea and Flood 2014): the same seed gives the same packet everywhere.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
