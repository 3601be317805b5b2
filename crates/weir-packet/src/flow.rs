//! Which connection a packet belongs to, and a hash that spreads connections over workers.

mod fields;
mod form;
mod fragments;
mod hash;
mod leases;
mod sip;

pub use fields::{FieldsError, FlowFields};
pub use fragments::{DatagramId, FragmentTable, LIFETIME_NS};
pub use hash::FlowHasher;
pub use leases::{LEASE_BLOCK, LEASES, Side, lease};

use crate::Bytes;
use crate::headers::{Depth, Fragment, L3, Layers, PlainV4, proto};
use std::net::{IpAddr, Ipv6Addr};

/// Which way a packet of a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the key's lower end to its upper end.
    Up,
    /// From the upper end to the lower end.
    Down,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub fn reverse(self) -> Self {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

/// What the port fields of a [`FlowKey`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortKind {
    /// Nothing: the protocol has no ports, or they are not in the packet. Both are 0.
    None,
    /// The ports of TCP, UDP or SCTP.
    Ports,
    /// The identifier of an ICMP or ICMPv6 query (echo and its like), in both.
    QueryId,
    /// Nothing, because the packet is a later fragment: the key is that of all later fragments
    /// between these two addresses. [`FragmentTable`] finds their connection's hash. Both are 0.
    LaterFragment,
    /// One end by itself, whomever it talks to: an inner one of an address translator, with its port or the identifier of
    /// its queries. It is the upper end; the lower one is all zeros.
    Inner,
    /// The same of an outer end.
    Outer,
}

/// The identity of a connection: the same for both directions.
///
/// The two ends are ordered by address, then port, so "lower" and "upper" say nothing about who is
/// client. An ICMP or ICMPv6 error has the key of the flow that it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    lower: u128,
    upper: u128,
    zone: u64,
    /// Ports, protocol and kind in one word: keys are compared and hashed word by word.
    small: Small,
}

/// What of a key is small: from the highest bits on the lower and the upper port, 16 each, then protocol, IP version and
/// [`PortKind`], 8 each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Small(u64);

impl Small {
    #[inline(always)]
    fn new(ports: (u16, u16), proto: u8, v6: bool, kind: PortKind) -> Self {
        let ports = u64::from(ports.0) << 48 | u64::from(ports.1) << 32;
        let version = if v6 { 6 } else { 4 };
        Small(ports | u64::from(proto) << 24 | version << 16 | (kind as u64) << 8)
    }

    #[inline(always)]
    fn ports(self) -> (u16, u16) {
        ((self.0 >> 48) as u16, (self.0 >> 32) as u16)
    }

    #[inline(always)]
    fn proto(self) -> u8 {
        (self.0 >> 24) as u8
    }

    #[inline(always)]
    fn v6(self) -> bool {
        (self.0 >> 16) as u8 == 6
    }

    #[inline(always)]
    fn kind(self) -> PortKind {
        match (self.0 >> 8) as u8 {
            1 => PortKind::Ports,
            2 => PortKind::QueryId,
            3 => PortKind::LaterFragment,
            4 => PortKind::Inner,
            5 => PortKind::Outer,
            _ => PortKind::None,
        }
    }
}

impl std::fmt::Debug for Small {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (self.ports(), self.proto(), self.v6(), self.kind()).fmt(f)
    }
}

impl FlowKey {
    /// No packet's key: of no IP version.
    #[doc(hidden)]
    pub const NOTHING: FlowKey = FlowKey { lower: 0, upper: 0, zone: 0, small: Small(0) };

    /// The key of the flow that the packet belongs to and the packet's direction in it. `layers`
    /// must have depth L3. `None` for packets that are not IP or are cut inside their addresses.
    ///
    /// An ICMP error's direction is the opposite of the packet it quotes: it goes to that one's sender.
    #[inline]
    pub fn from_packet<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> Option<(Self, Direction)> {
        let zone = zone(bytes, layers);
        if layers.is_icmp()
            && let Some(quoted) = quoted(bytes, layers)
            && let Some((key, direction)) = Self::of_headers(bytes, &quoted, zone)
        {
            return Some((key, direction.reverse()));
        }
        Self::of_headers(bytes, layers, zone)
    }

    #[inline]
    fn of_headers<B: Bytes + ?Sized>(
        bytes: &B,
        layers: &Layers,
        zone: u64,
    ) -> Option<(Self, Direction)> {
        let (source, destination) = addresses(bytes, layers)?;
        let (kind, (source_port, destination_port)) = port_fields(bytes, layers);
        let up = (source, source_port) <= (destination, destination_port);
        let ends = [(source, source_port), (destination, destination_port)];
        let [(lower, lower_port), (upper, upper_port)] = if up { ends } else { [ends[1], ends[0]] };
        let v6 = layers.kind == L3::Ipv6;
        let small = Small::new((lower_port, upper_port), layers.proto, v6, kind);
        let key = FlowKey { lower, upper, zone, small };
        Some((key, if up { Direction::Up } else { Direction::Down }))
    }

    /// The same for a packet of which this is known already.
    #[inline(always)]
    pub fn of_plain(plain: &PlainV4) -> (Self, Direction) {
        // Address and port as one number: in the order of pairs of both.
        let end = |address: u32, port: u16| u64::from(address) << 16 | u64::from(port);
        let source = end(plain.source, plain.ports.0);
        let destination = end(plain.destination, plain.ports.1);
        let up = source <= destination;
        let (lower, upper) = (source.min(destination), source.max(destination));
        let proto = if plain.tcp_flags.is_some() { proto::TCP } else { proto::UDP };
        let small = Small::new((lower as u16, upper as u16), proto, false, PortKind::Ports);
        let key =
            FlowKey { lower: (lower >> 16).into(), upper: (upper >> 16).into(), zone: 0, small };
        (key, if up { Direction::Up } else { Direction::Down })
    }

    /// The zone of a packet, whatever it carries, as [`FlowKey::zone`] gives it.
    #[inline]
    pub fn zone_of<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> u64 {
        zone(bytes, layers)
    }

    /// The VLAN stack as one number, 0 for none: exact for up to five tags, folded beyond. Tags with
    /// VLAN id 0 only carry a priority (IEEE 802.1Q §9.6) and do not count.
    pub fn zone(&self) -> u64 {
        self.zone
    }

    /// Address and port of the lower end.
    pub fn lower(&self) -> (IpAddr, u16) {
        (self.address(self.lower), self.small.ports().0)
    }

    /// Address and port of the upper end.
    pub fn upper(&self) -> (IpAddr, u16) {
        (self.address(self.upper), self.small.ports().1)
    }

    /// Address and port of the packet's source and destination, for a packet of this direction.
    pub fn ends(&self, direction: Direction) -> [(IpAddr, u16); 2] {
        match direction {
            Direction::Up => [self.lower(), self.upper()],
            Direction::Down => [self.upper(), self.lower()],
        }
    }

    /// IP protocol number, after IPv6 extension headers.
    pub fn proto(&self) -> u8 {
        self.small.proto()
    }

    /// 4 or 6.
    pub fn version(&self) -> u8 {
        if self.small.v6() { 6 } else { 4 }
    }

    /// What the ports mean.
    pub fn port_kind(&self) -> PortKind {
        self.small.kind()
    }

    fn address(&self, bits: u128) -> IpAddr {
        if self.small.v6() {
            Ipv6Addr::from_bits(bits).into()
        } else {
            std::net::Ipv4Addr::from_bits(bits as u32).into()
        }
    }
}

#[inline]
fn addresses<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> Option<(u128, u128)> {
    match layers.kind {
        L3::Ipv4 => layers.ipv4(bytes).map(|(s, d)| (s.to_bits().into(), d.to_bits().into())),
        L3::Ipv6 => layers.ipv6(bytes).map(|(s, d)| (s.to_bits(), d.to_bits())),
        L3::None | L3::Arp | L3::Other => None,
    }
}

#[inline]
fn port_fields<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> (PortKind, (u16, u16)) {
    if layers.fragment() == Fragment::Later {
        return (PortKind::LaterFragment, (0, 0));
    }
    if let Some(ports) = layers.ports(bytes) {
        return (PortKind::Ports, ports);
    }
    if is_icmp_query(bytes, layers)
        && let Some(id) = layers.icmp_id(bytes)
    {
        return (PortKind::QueryId, (id, id));
    }
    (PortKind::None, (0, 0))
}

/// Folds the VLAN stack into one number.
#[inline]
fn zone<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> u64 {
    if layers.vlan_count == 0 {
        return 0;
    }
    let tags = (0..layers.vlan_count).map_while(|index| layers.vlan_tci(bytes, index));
    let ids = tags.map(|tci| u64::from(tci & 0x0fff)).filter(|&id| id != 0);
    ids.fold(0, |zone, id| zone.rotate_left(12) ^ id)
}

/// ICMP messages that have an identifier which the answer repeats: echo, time stamp, information
/// and address mask (RFC 792, RFC 950), ICMPv6 echo (RFC 4443).
fn is_icmp_query<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> bool {
    let Some((kind, _)) = layers.icmp_type_code(bytes) else {
        return false;
    };
    match layers.proto {
        proto::ICMP => matches!(kind, 0 | 8 | 13..=18),
        _ => matches!(kind, 128 | 129),
    }
}

/// The layers of the packet that an ICMP error (or redirect) quotes. Their fault and truncation
/// say nothing: a quote is cut as a rule.
pub(crate) fn quoted<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> Option<Layers> {
    let (kind, _) = layers.icmp_type_code(bytes)?;
    let is_error = match layers.proto {
        proto::ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        _ => matches!(kind, 1..=4),
    };
    if !is_error {
        return None;
    }
    let start = layers.l4.checked_add(8)?;
    let mut inner = Layers {
        l3: start,
        l4: start,
        payload: start,
        end: layers.end,
        kind: layers.kind,
        depth: Depth::L2,
        ..Layers::default()
    };
    let least = if inner.kind == L3::Ipv4 { 20 } else { 40 };
    let version = bytes.u8(start.into())? >> 4;
    let right_version = version == if inner.kind == L3::Ipv4 { 4 } else { 6 };
    if !right_version || usize::from(start) + least > usize::from(layers.end) {
        return None;
    }
    inner.extend(bytes, Depth::L3);
    Some(inner)
}
