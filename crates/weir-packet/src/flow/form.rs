//! Flow keys as bytes, for flows that move, and keys that no packet has shown yet.

use super::{Direction, FlowKey, PortKind, Small};
use std::fmt;
use std::net::IpAddr;

impl FlowKey {
    /// Length of [`FlowKey::to_bytes`].
    pub const BYTES: usize = 48;

    /// The key of the flow between two ends, and the direction of a packet from `source` to
    /// `destination` in it: as [`FlowKey::from_packet`] gives it for such a packet. For what translates
    /// addresses, and knows how a flow's packets will look. `zone` as [`FlowKey::zone`] gives it. `None` when
    /// one address is IPv4 and the other IPv6, or when there are ports and `kind` says that there are none.
    #[must_use]
    pub fn between(
        source: (IpAddr, u16),
        destination: (IpAddr, u16),
        proto: u8,
        kind: PortKind,
        zone: u64,
    ) -> Option<(Self, Direction)> {
        let v6 = source.0.is_ipv6();
        if v6 != destination.0.is_ipv6() {
            return None;
        }
        let bits = |(address, port): (IpAddr, u16)| match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), port),
            IpAddr::V6(address) => (address.to_bits(), port),
        };
        let (source, destination) = (bits(source), bits(destination));
        let up = source <= destination;
        let (lower, upper) = if up { (source, destination) } else { (destination, source) };
        let small = Small::new((lower.1, upper.1), proto, v6, kind);
        let key = FlowKey { lower: lower.0, upper: upper.0, zone, small };
        let direction = if up { Direction::Up } else { Direction::Down };
        key.is_canonical().then_some((key, direction))
    }

    /// The key as bytes, little-endian: zone, lower and upper address, lower and upper port, protocol,
    /// 1 for IPv6, what the ports mean, and a zero.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (lower_port, upper_port) = self.small.ports();
        let ([a, b], [c, d]) = (lower_port.to_le_bytes(), upper_port.to_le_bytes());
        let (proto, v6, kind) = (self.small.proto(), self.small.v6(), self.small.kind());
        let small = [a, b, c, d, proto, u8::from(v6), kind as u8, 0];
        let (addresses, rest) = bytes.split_at_mut(40);
        let (zone, ends) = addresses.split_at_mut(8);
        let (lower, upper) = ends.split_at_mut(16);
        zone.copy_from_slice(&self.zone.to_le_bytes());
        lower.copy_from_slice(&self.lower.to_le_bytes());
        upper.copy_from_slice(&self.upper.to_le_bytes());
        rest.copy_from_slice(&small);
        bytes
    }

    /// Reads what [`FlowKey::to_bytes`] wrote; `None` for bytes that no packet's key has.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (zone, rest) = bytes.split_first_chunk::<8>()?;
        let (lower, rest) = rest.split_first_chunk::<16>()?;
        let (upper, rest) = rest.split_first_chunk::<16>()?;
        let (lower_port, rest) = rest.split_first_chunk::<2>()?;
        let (upper_port, rest) = rest.split_first_chunk::<2>()?;
        let &[proto, v6 @ (0 | 1), kind, 0] = rest else { return None };
        let ports = (u16::from_le_bytes(*lower_port), u16::from_le_bytes(*upper_port));
        let kind = match kind {
            0 => PortKind::None,
            1 => PortKind::Ports,
            2 => PortKind::QueryId,
            3 => PortKind::LaterFragment,
            4 => PortKind::Inner,
            5 => PortKind::Outer,
            _ => return None,
        };
        let key = FlowKey {
            lower: u128::from_le_bytes(*lower),
            upper: u128::from_le_bytes(*upper),
            zone: u64::from_le_bytes(*zone),
            small: Small::new(ports, proto, v6 == 1, kind),
        };
        key.is_canonical().then_some(key)
    }

    /// True when a packet can have this key: its ends in order, IPv4 addresses of 32 bits, ports only
    /// where there are any.
    fn is_canonical(&self) -> bool {
        let ports = self.small.ports();
        let fits = self.small.v6() || (self.lower | self.upper) >> 32 == 0;
        let meant = match self.small.kind() {
            PortKind::Ports => true,
            PortKind::QueryId => ports.0 == ports.1,
            PortKind::None | PortKind::LaterFragment => ports == (0, 0),
            PortKind::Inner | PortKind::Outer => (self.zone, self.lower, ports.0) == (0, 0, 0),
        };
        fits && meant && (self.lower, ports.0) <= (self.upper, ports.1)
    }
}

impl fmt::Display for FlowKey {
    /// As in `proto 6 10.0.0.1:80-10.0.0.2:4000`, with the zone when there is one; of an end by itself `proto 6 10.0.0.1:80 inside`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proto {} ", self.proto())?;
        let side = match self.port_kind() {
            PortKind::Inner => Some("inside"),
            PortKind::Outer => Some("outside"),
            _ => None,
        };
        if let Some(side) = side {
            let (address, port) = self.upper();
            return write!(f, "{address}:{port} {side}");
        }
        for (place, (address, port)) in [self.lower(), self.upper()].into_iter().enumerate() {
            let before = if place == 0 { "" } else { "-" };
            match (self.port_kind(), address) {
                (PortKind::None | PortKind::LaterFragment, _) => write!(f, "{before}{address}")?,
                (_, IpAddr::V4(_)) => write!(f, "{before}{address}:{port}")?,
                (_, IpAddr::V6(_)) => write!(f, "{before}[{address}]:{port}")?,
            }
        }
        match self.zone {
            0 => Ok(()),
            zone => write!(f, " vlan {zone}"),
        }
    }
}
