//! Where a packet's headers are: parse once, keep the offsets, read fields later by copy.
//!
//! [`Layers`] is the result: 22 bytes, `Copy`, free of pointers, so it travels in packet metadata
//! and a later reader goes on from the depth that an earlier one reached. It describes bytes that
//! begin with an Ethernet header at offset 0. The bytes (and a `Layers` read back from shared
//! metadata) may have been changed by somebody else meanwhile: every accessor checks again and
//! answers `None` instead of trusting an offset.

mod access;
mod check;
mod fault;
mod ipv6;
mod parse;
mod plain;
mod words;

pub use access::{Mac, tcp};
pub use check::check_ip;
pub use fault::HeaderFault;
pub(crate) use ipv6::pending_route;
pub use parse::{parse, parse_at};
pub use plain::{PlainV4, is_plainly_sound, plain_v4};

/// IP protocol numbers (IANA "Assigned Internet Protocol Numbers") that Weir looks into.
pub mod proto {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// IPv4 in IP (RFC 2003).
    pub const IPIP: u8 = 4;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 in IP (RFC 4213).
    pub const IPV6: u8 = 41;
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: u8 = 47;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// IPv6 routing header (RFC 8200 §4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: u8 = 44;
    /// IPv6 destination options (RFC 8200 §4.6).
    pub const DEST_OPTS: u8 = 60;
    /// Authentication header (RFC 4302).
    pub const AH: u8 = 51;
    /// Encapsulating security payload (RFC 4303): what follows is encrypted.
    pub const ESP: u8 = 50;
    /// IPv6 no next header (RFC 8200 §4.7).
    pub const NO_NEXT: u8 = 59;
}

/// EtherTypes that Weir looks into.
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
    /// Service tag from before 802.1ad, still met.
    pub const QINQ_OLD: u16 = 0x9100;
    /// A whole Ethernet frame in a tunnel (RFC 7637).
    pub const TRANSPARENT_ETHERNET: u16 = 0x6558;
}

/// Most VLAN tags that are walked; a frame with more is [`HeaderFault::TooManyTags`].
pub const MAX_TAGS: u8 = 8;

/// Most IPv6 extension headers that are walked; more is [`HeaderFault::TooManyExtensions`].
pub const MAX_EXTENSIONS: usize = 16;

/// Length of an Ethernet II header without tags, in bytes.
pub const ETHERNET_LEN: usize = 14;

/// How deep a parse has looked. Reaching a depth does not mean that the header is there: a
/// malformed or cut packet, and one that is not IP, reaches every depth that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Depth {
    /// Nothing was looked at.
    #[default]
    None,
    /// Ethernet header and VLAN tags.
    L2,
    /// Also the IP header and IPv6 extension headers.
    L3,
    /// Also the transport header.
    L4,
}

/// What follows the Ethernet header and its tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum L3 {
    /// Nothing was found: the frame ends inside its Ethernet header or tags (or was not parsed).
    #[default]
    None,
    /// IPv4, by EtherType.
    Ipv4,
    /// IPv6, by EtherType.
    Ipv6,
    /// ARP.
    Arp,
    /// Anything else: LLC frames, LLDP, MPLS, PPPoE and unknown types.
    Other,
}

/// With what a packet inside another begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Begins {
    /// An Ethernet header.
    Ethernet,
    /// An IP header: of the version that it says itself.
    Ip,
}

/// Which piece of an IP datagram the packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// The whole datagram. An IPv6 "atomic fragment" (RFC 6946) is whole too.
    Whole,
    /// The first piece: it has the transport header (or at least that header's start).
    First,
    /// A later piece, without a transport header.
    Later,
}

/// Where the headers of a packet are. All offsets count bytes from the start of the Ethernet
/// header, and `l3 <= l4 <= payload <= end <= captured length` holds after every parse.
///
/// A level that is not there is empty: an ARP frame has `l3 == l4 == payload`. Packets longer than
/// 65,535 bytes are seen up to that byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layers {
    /// Start of what follows Ethernet header and tags.
    pub l3: u16,
    /// Start of the transport header; in a later fragment, of the fragment's data.
    pub l4: u16,
    /// Start of what follows the transport header. Equals `l4` unless [`Layers::has_l4`].
    pub payload: u16,
    /// End of the payload. The IP length bounds it (Ethernet padding is not payload); when that
    /// length is larger than what was captured, the captured end.
    pub end: u16,
    /// EtherType after all tags; 0 for frames that carry a length instead (LLC) or are too short.
    pub ether_type: u16,
    /// VLAN id (12 bits) of the outermost tag, 0 without tags.
    pub vlan_outer: u16,
    /// VLAN id of the innermost tag; with one tag the same as `vlan_outer`.
    pub vlan_inner: u16,
    /// Where the IPv6 fragment header is; 0 when there is none.
    pub fragment_header: u16,
    /// Number of VLAN tags.
    pub vlan_count: u8,
    /// IP protocol; for IPv6 the one after the extension headers that were walked.
    pub proto: u8,
    /// What stands at `l3`.
    pub kind: L3,
    /// How deep the parse looked.
    pub depth: Depth,
    /// Bits of [`flags`].
    pub flags: u8,
    /// The first thing that was wrong, as far as the parse looked. It never checks the IPv4 header
    /// checksum and does not know the wire length: that is [`check_ip`].
    pub fault: Option<HeaderFault>,
}

/// Bits of [`Layers::flags`].
pub mod flags {
    /// First fragment of several.
    pub const FRAGMENT_FIRST: u8 = 1;
    /// A fragment that is not the first.
    pub const FRAGMENT_LATER: u8 = 2;
    /// IPv4 options or IPv6 extension headers are present.
    pub const OPTIONS: u8 = 4;
    /// The captured bytes end before the packet does: inside a header, or before the IP length.
    pub const TRUNCATED: u8 = 8;
    /// A whole TCP, UDP, ICMP, ICMPv6 or SCTP header stands at `l4`.
    pub const L4: u8 = 16;
}

impl Layers {
    /// Whether one of the bits in `mask` (see [`flags`]) is set.
    #[inline]
    pub fn has(&self, mask: u8) -> bool {
        self.flags & mask != 0
    }

    /// True for IPv4 and IPv6 packets, well-formed or not.
    #[inline]
    pub fn is_ip(&self) -> bool {
        matches!(self.kind, L3::Ipv4 | L3::Ipv6)
    }

    /// True when a whole transport header of a known protocol stands at `l4`.
    #[inline]
    pub fn has_l4(&self) -> bool {
        self.has(flags::L4)
    }

    /// True when the captured bytes end before the packet does.
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.has(flags::TRUNCATED)
    }

    /// Which piece of a datagram this is.
    #[inline]
    pub fn fragment(&self) -> Fragment {
        if self.has(flags::FRAGMENT_LATER) {
            Fragment::Later
        } else if self.has(flags::FRAGMENT_FIRST) {
            Fragment::First
        } else {
            Fragment::Whole
        }
    }

    /// Payload length in bytes.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(self.end.saturating_sub(self.payload))
    }
}
