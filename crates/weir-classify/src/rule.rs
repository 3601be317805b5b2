//! Rules and the definition of a match.

use crate::headers::{Fragment, Headers, Net};
use core::ops::RangeInclusive;

/// A prefix of addresses. Bits behind the prefix are ignored; a length beyond the address's counts as its full length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Prefix {
    /// Anything, packets without IP too.
    #[default]
    Any,
    /// IPv4 addresses; a length of 0 means 'any IPv4 packet'.
    V4 {
        /// Address in host byte order.
        addr: u32,
        /// Prefix length in bits, 0 to 32.
        len: u8,
    },
    /// IPv6 addresses; a length of 0 means 'any IPv6 packet'.
    V6 {
        /// Address in host byte order.
        addr: u128,
        /// Prefix length in bits, 0 to 128.
        len: u8,
    },
}

/// A test of TCP flags: `flags & mask == value`. Packets without TCP header do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlagMatch {
    /// The flags that are looked at.
    pub mask: u8,
    /// What they must be; bits outside the mask are ignored.
    pub value: u8,
}

/// A test of a MAC address: `mac & mask == addr & mask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacMatch {
    /// The address.
    pub addr: [u8; 6],
    /// The bits that are looked at.
    pub mask: [u8; 6],
}

/// A test of the outer VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VlanMatch {
    /// No tag.
    Untagged,
    /// A tag with this identifier (0 to 4095; larger ones match nothing).
    Id(u16),
}

/// A test of fragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FragmentMatch {
    /// Whole datagrams only.
    No,
    /// First or later fragments.
    Yes,
    /// First fragments.
    First,
    /// Later fragments.
    Later,
}

/// One rule; every field's default accepts any packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Source address.
    pub src: Prefix,
    /// Destination address.
    pub dst: Prefix,
    /// Source ports. The full range tests nothing; any other does not match packets without ports. An empty
    /// range matches no packet.
    pub sport: RangeInclusive<u16>,
    /// Destination ports, as `sport`.
    pub dport: RangeInclusive<u16>,
    /// Protocol number.
    pub proto: Option<u8>,
    /// TCP flags.
    pub tcp_flags: Option<FlagMatch>,
    /// ICMP or ICMPv6 type.
    pub icmp_type: Option<u8>,
    /// ICMP or ICMPv6 code.
    pub icmp_code: Option<u8>,
    /// Source MAC address.
    pub src_mac: Option<MacMatch>,
    /// Destination MAC address.
    pub dst_mac: Option<MacMatch>,
    /// EtherType behind VLAN tags.
    pub ether_type: Option<u16>,
    /// Outer VLAN tag.
    pub vlan: Option<VlanMatch>,
    /// Fragmentation.
    pub fragment: Option<FragmentMatch>,
}

impl Default for Rule {
    fn default() -> Self {
        Rule {
            src: Prefix::Any,
            dst: Prefix::Any,
            sport: 0..=u16::MAX,
            dport: 0..=u16::MAX,
            proto: None,
            tcp_flags: None,
            icmp_type: None,
            icmp_code: None,
            src_mac: None,
            dst_mac: None,
            ether_type: None,
            vlan: None,
            fragment: None,
        }
    }
}

/// Mask of the first `len` of 32 bits.
pub(crate) fn mask32(len: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(len))).unwrap_or(0)
}

/// Mask of the first `len` of 128 bits.
pub(crate) fn mask128(len: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(len))).unwrap_or(0)
}

/// An IPv6 address of four words as one number.
pub(crate) fn join(words: [u32; 4]) -> u128 {
    words.iter().fold(0, |sum, word| sum << 32 | u128::from(*word))
}

impl Prefix {
    fn matches_v4(self, address: u32) -> bool {
        match self {
            Prefix::Any => true,
            Prefix::V4 { addr, len } => (address ^ addr) & mask32(len) == 0,
            Prefix::V6 { .. } => false,
        }
    }

    fn matches_v6(self, address: [u32; 4]) -> bool {
        match self {
            Prefix::Any => true,
            Prefix::V4 { .. } => false,
            Prefix::V6 { addr, len } => (join(address) ^ addr) & mask128(len) == 0,
        }
    }
}

impl MacMatch {
    fn matches(&self, mac: &[u8; 6]) -> bool {
        mac.iter().zip(&self.addr).zip(&self.mask).all(|((is, want), mask)| (is ^ want) & mask == 0)
    }
}

impl FragmentMatch {
    fn matches(self, fragment: Fragment) -> bool {
        match self {
            FragmentMatch::No => fragment == Fragment::Whole,
            FragmentMatch::Yes => fragment != Fragment::Whole,
            FragmentMatch::First => fragment == Fragment::First,
            FragmentMatch::Later => fragment == Fragment::Later,
        }
    }
}

impl Rule {
    /// True when the packet has everything the rule asks for. This is the definition that the compiled
    /// [`crate::Classifier`] must agree with; it is not meant to be fast.
    pub fn matches(&self, headers: &Headers) -> bool {
        let full = 0..=u16::MAX;
        let net = match headers.net {
            Net::None => self.src == Prefix::Any && self.dst == Prefix::Any,
            Net::V4 { src, dst } => self.src.matches_v4(src) && self.dst.matches_v4(dst),
            Net::V6 { src, dst } => self.src.matches_v6(src) && self.dst.matches_v6(dst),
        };
        let ports = match headers.ports {
            Some((source, destination)) => {
                self.sport.contains(&source) && self.dport.contains(&destination)
            }
            None => self.sport == full && self.dport == full,
        };
        let vlan = match self.vlan {
            None => true,
            Some(VlanMatch::Untagged) => headers.vlan.is_none(),
            Some(VlanMatch::Id(id)) => headers.vlan.is_some_and(|is| is & 0xFFF == id),
        };
        net && ports
            && vlan
            && self.proto.is_none_or(|proto| headers.proto == Some(proto))
            && self.tcp_flags.is_none_or(|want| {
                headers.tcp_flags.is_some_and(|flags| (flags ^ want.value) & want.mask == 0)
            })
            && self.icmp_type.is_none_or(|want| headers.icmp.is_some_and(|(kind, _)| kind == want))
            && self.icmp_code.is_none_or(|want| headers.icmp.is_some_and(|(_, code)| code == want))
            && self.src_mac.is_none_or(|want| want.matches(&headers.src_mac))
            && self.dst_mac.is_none_or(|want| want.matches(&headers.dst_mac))
            && self.ether_type.is_none_or(|want| headers.ether_type == want)
            && self.fragment.is_none_or(|want| want.matches(headers.fragment))
    }
}
