//! A packet's fields behind so many VLAN tags, each read at most once and only when a test asks.

use weir_packet::Bytes;

/// EtherTypes (IANA).
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const RARP: u16 = 0x8035;

/// IPv6's fragment header (RFC 8200 §4.5).
const FRAGMENT: u8 = 44;

/// Length of an Ethernet header, in bytes.
const ETHERNET: usize = 14;

/// Two numbers, source's and destination's. `None`: the bytes are not there.
pub(crate) type Pair<T> = (Option<T>, Option<T>);

/// The fields of `packet` as seen behind some number of VLAN tags.
pub(crate) struct View<'p, B: ?Sized> {
    packet: &'p B,
    /// Offset of the network header, in bytes.
    l3: usize,
    /// The EtherType before it.
    pub(crate) ethertype: Option<u16>,
    protocol: Option<Pair<u8>>,
    v4: Option<Pair<u32>>,
    v6: Option<Pair<u128>>,
    ports: Option<Pair<u16>>,
}

impl<'p, B: Bytes + ?Sized> View<'p, B> {
    /// The fields behind `tags` VLAN tags.
    #[inline]
    pub(crate) fn new(packet: &'p B, tags: u32) -> Self {
        let shift = usize::try_from(tags).unwrap_or(usize::MAX).saturating_mul(4);
        let l3 = ETHERNET.saturating_add(shift);
        let ethertype = packet.be16(l3.saturating_sub(2));
        Self { packet, l3, ethertype, protocol: None, v4: None, v6: None, ports: None }
    }

    #[inline]
    fn at(&self, offset: usize) -> usize {
        self.l3.saturating_add(offset)
    }

    /// The protocol number in the IP header, and the one behind an IPv6 fragment header.
    #[inline]
    pub(crate) fn protocol(&mut self) -> Pair<u8> {
        if let Some(known) = self.protocol {
            return known;
        }
        let found = match self.ethertype {
            Some(IPV4) => (self.packet.u8(self.at(9)), None),
            Some(IPV6) => match self.packet.u8(self.at(6)) {
                Some(FRAGMENT) => (Some(FRAGMENT), self.packet.u8(self.at(40))),
                next => (next, None),
            },
            _ => (None, None),
        };
        self.protocol = Some(found);
        found
    }

    /// IPv4 addresses of IPv4, ARP or RARP.
    #[inline]
    pub(crate) fn v4(&mut self) -> Pair<u32> {
        if let Some(known) = self.v4 {
            return known;
        }
        let found = match self.ethertype {
            Some(IPV4) => (self.packet.be32(self.at(12)), self.packet.be32(self.at(16))),
            Some(ARP | RARP) => (self.packet.be32(self.at(14)), self.packet.be32(self.at(24))),
            _ => (None, None),
        };
        self.v4 = Some(found);
        found
    }

    /// IPv6 addresses.
    #[inline]
    pub(crate) fn v6(&mut self) -> Pair<u128> {
        if let Some(known) = self.v6 {
            return known;
        }
        let found = match self.ethertype {
            Some(IPV6) => {
                let load = |at| self.packet.array::<16>(at).map(u128::from_be_bytes);
                (load(self.at(8)), load(self.at(24)))
            }
            _ => (None, None),
        };
        self.v6 = Some(found);
        found
    }

    /// Where ports would be. Does not look at the protocol, which [`View::protocol`] says.
    #[inline]
    pub(crate) fn ports(&mut self) -> Pair<u16> {
        if let Some(known) = self.ports {
            return known;
        }
        let l4 = match self.ethertype {
            // Only the first fragment has ports.
            Some(IPV4) if self.packet.be16(self.at(6)).is_some_and(|f| f & 0x1fff == 0) => {
                self.packet.u8(self.l3).map(|b| self.at(usize::from(b & 0xf).saturating_mul(4)))
            }
            Some(IPV6) => Some(self.at(40)),
            _ => None,
        };
        let found = l4.map_or((None, None), |at| {
            (self.packet.be16(at), self.packet.be16(at.saturating_add(2)))
        });
        self.ports = Some(found);
        found
    }

    /// The VLAN id of the tag here, when there is one.
    #[inline]
    pub(crate) fn vlan(&self) -> Option<u16> {
        self.packet.be16(self.l3).map(|tci| tci & 0x0fff)
    }

    /// MAC addresses, which stand before all tags.
    #[inline]
    pub(crate) fn macs(&self) -> Pair<[u8; 6]> {
        (self.packet.array(6), self.packet.array(0))
    }
}
