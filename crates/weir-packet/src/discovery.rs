//! Packets by which stations of an Ethernet find each other.

use crate::headers::{L3, Mac, proto};
use crate::{Bytes, FlowKey, Layers};

/// ICMPv6 types of neighbour discovery: router solicitation to redirect (RFC 4861 §4).
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// Who a frame is from and for, on its Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stations {
    /// The VLAN stack, as [`FlowKey::zone`] gives it.
    pub zone: u64,
    from: Mac,
    to: Mac,
}

impl Stations {
    /// `None` for a frame that ends inside these addresses. `layers` must have depth L2.
    #[inline]
    pub fn of<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> Option<Self> {
        let (to, from) = layers.macs(bytes)?;
        Some(Stations { zone: FlowKey::zone_of(bytes, layers), from, to })
    }

    /// The station that it is for; `None` when it is for several (broadcast, multicast).
    #[inline]
    pub fn addressee(&self) -> Option<Mac> {
        is_station(self.to).then_some(self.to)
    }

    /// The station that sent it; `None` when it names none.
    #[inline]
    pub fn sender(&self) -> Option<Mac> {
        is_station(self.from).then_some(self.from)
    }
}

/// True for the address of one station: no group bit (IEEE 802 §8.2), and not the address of none.
#[inline]
fn is_station(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != Mac::default()
}

/// True for packets of ARP (RFC 826) and of IPv6's neighbour discovery (RFC 4861), which are about an Ethernet and its
/// addresses, not of a flow between two hosts. `layers` must have depth L3.
#[inline]
pub fn is_discovery<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> bool {
    match layers.kind {
        L3::Arp => true,
        L3::Ipv6 if layers.proto == proto::ICMPV6 => layers
            .icmp_type_code(bytes)
            .is_some_and(|(kind, _)| NEIGHBOUR_DISCOVERY.contains(&kind)),
        _ => false,
    }
}
