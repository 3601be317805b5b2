//! Reading single header fields by copy.
//!
//! A field is `None` when the packet does not have it, when it was not captured, or when the
//! layers do not reach deep enough.

use super::{Fragment, HeaderFault, L3, Layers, ipv6, proto};
use crate::Bytes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bits of the TCP flags byte (RFC 9293 §3.1), as [`Layers::tcp_flags`] gives it.
pub mod tcp {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// A MAC address, in wire order.
pub type Mac = [u8; 6];

impl Layers {
    /// Destination and source MAC address, in wire order.
    #[inline]
    pub fn macs<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(Mac, Mac)> {
        Some((bytes.array(0)?, bytes.array(6)?))
    }

    /// The tag control information (priority, DEI, VLAN id) of tag `index`, 0 being the outermost.
    #[inline]
    pub fn vlan_tci<B: Bytes + ?Sized>(&self, bytes: &B, index: u8) -> Option<u16> {
        if index >= self.vlan_count {
            return None;
        }
        bytes.be16(super::ETHERNET_LEN + 4 * usize::from(index))
    }

    /// Source and destination of an IPv4 packet.
    #[inline]
    pub fn ipv4<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(Ipv4Addr, Ipv4Addr)> {
        if self.kind != L3::Ipv4 {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = bytes.array(usize::from(self.l3) + 12)?;
        Some((Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h)))
    }

    /// Source and destination of an IPv6 packet.
    #[inline]
    pub fn ipv6<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(Ipv6Addr, Ipv6Addr)> {
        if self.kind != L3::Ipv6 {
            return None;
        }
        let source: [u8; 16] = bytes.array(usize::from(self.l3) + 8)?;
        let destination: [u8; 16] = bytes.array(usize::from(self.l3) + 24)?;
        Some((source.into(), destination.into()))
    }

    /// Source and destination IP address. They are read where the EtherType says they are, even
    /// when the header has a fault.
    #[inline]
    pub fn ips<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(IpAddr, IpAddr)> {
        match self.kind {
            L3::Ipv4 => self.ipv4(bytes).map(|(s, d)| (s.into(), d.into())),
            L3::Ipv6 => self.ipv6(bytes).map(|(s, d)| (s.into(), d.into())),
            L3::None | L3::Arp | L3::Other => None,
        }
    }

    /// IPv4 time to live or IPv6 hop limit.
    #[inline]
    pub fn ttl<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<u8> {
        match self.kind {
            L3::Ipv4 => bytes.u8(usize::from(self.l3) + 8),
            L3::Ipv6 => bytes.u8(usize::from(self.l3) + 7),
            L3::None | L3::Arp | L3::Other => None,
        }
    }

    /// IPv4 type of service or IPv6 traffic class (DSCP and ECN, RFC 2474 and 3168).
    #[inline]
    pub fn traffic_class<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<u8> {
        match self.kind {
            L3::Ipv4 => bytes.u8(usize::from(self.l3) + 1),
            L3::Ipv6 => bytes.be16(usize::from(self.l3)).map(|word| (word >> 4) as u8),
            L3::None | L3::Arp | L3::Other => None,
        }
    }

    /// The identification that the fragments of one datagram share; `None` for whole datagrams.
    #[inline]
    pub fn fragment_id<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<u32> {
        match (self.fragment(), self.kind) {
            (Fragment::Whole, _) => None,
            (_, L3::Ipv4) => bytes.be16(usize::from(self.l3) + 4).map(u32::from),
            (_, L3::Ipv6) => bytes.be32(usize::from(self.fragment_header) + 4),
            (_, L3::None | L3::Arp | L3::Other) => None,
        }
    }

    /// Which bytes of its datagram a fragment brings, as its headers say: the first, how many, and whether more follow. `None` for whole
    /// datagrams, and where headers contradict themselves.
    pub fn fragment_extent<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(u32, u32, bool)> {
        let l3 = usize::from(self.l3);
        match (self.fragment(), self.kind) {
            (Fragment::Whole, _) | (_, L3::None | L3::Arp | L3::Other) => None,
            (_, L3::Ipv4) => {
                let word = u32::from(bytes.be16(l3 + 6)?);
                let header = u32::from(bytes.u8(l3)? & 0x0f) * 4;
                let len = u32::from(bytes.be16(l3 + 2)?).checked_sub(header)?;
                Some(((word & 0x1fff) * 8, len, word & 0x2000 != 0))
            }
            (_, L3::Ipv6) => {
                let header = usize::from(self.fragment_header);
                let word = u32::from(bytes.be16(header + 2)?);
                let end = l3 + ipv6::FIXED_LEN + usize::from(bytes.be16(l3 + 4)?);
                let len = end.checked_sub(header + ipv6::FRAGMENT_LEN)?;
                Some((word & 0xfff8, u32::try_from(len).ok()?, word & 1 != 0))
            }
        }
    }

    /// `N` bytes at `offset` inside the transport header, when they are part of the IP payload.
    /// Asked for protocol numbers only after [`Layers::extend`] to L3 or deeper.
    #[inline]
    fn transport_array<B: Bytes + ?Sized, const N: usize>(
        &self,
        bytes: &B,
        offset: usize,
    ) -> Option<[u8; N]> {
        let at = usize::from(self.l4) + offset;
        let unreadable = matches!(
            self.fault,
            Some(
                HeaderFault::Version
                    | HeaderFault::HeaderLength
                    | HeaderFault::ExtensionCut
                    | HeaderFault::TooManyExtensions
            )
        );
        if unreadable || self.fragment() == Fragment::Later || at + N > usize::from(self.end) {
            return None;
        }
        bytes.array(at)
    }

    /// Source and destination port of TCP, UDP or SCTP. Needs depth L3. Also given when the rest of
    /// the transport header is cut or wrong; never for a later fragment.
    #[inline]
    pub fn ports<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(u16, u16)> {
        if !self.is_ip() || !matches!(self.proto, proto::TCP | proto::UDP | proto::SCTP) {
            return None;
        }
        let [a, b, c, d] = self.transport_array(bytes, 0)?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// The TCP flags byte, see [`tcp`]. Needs depth L3.
    #[inline]
    pub fn tcp_flags<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<u8> {
        if !self.is_ip() || self.proto != proto::TCP {
            return None;
        }
        self.transport_array(bytes, 13).map(|[bits]| bits)
    }

    /// True for ICMP in IPv4 and ICMPv6 in IPv6. Needs depth L3.
    #[inline]
    pub fn is_icmp(&self) -> bool {
        matches!((self.kind, self.proto), (L3::Ipv4, proto::ICMP) | (L3::Ipv6, proto::ICMPV6))
    }

    /// Type and code of ICMP or ICMPv6. Needs depth L3.
    #[inline]
    pub fn icmp_type_code<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<(u8, u8)> {
        if !self.is_icmp() {
            return None;
        }
        self.transport_array(bytes, 0).map(|[kind, code]| (kind, code))
    }

    /// Where the headers of the packet are that an ICMP error (or redirect) quotes, to depth L3, in the same
    /// bytes; `None` for everything else. Its fault and truncation say nothing: a quote is cut as a rule.
    pub fn quoted<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<Layers> {
        crate::flow::quoted(bytes, self)
    }

    /// The 16 bits at offset 4 of an ICMP message: the identifier of echo and its like.
    #[inline]
    pub(crate) fn icmp_id<B: Bytes + ?Sized>(&self, bytes: &B) -> Option<u16> {
        self.transport_array(bytes, 4).map(u16::from_be_bytes)
    }
}
