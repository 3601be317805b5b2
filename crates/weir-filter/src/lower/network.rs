//! Terms of the layers above the link: IP versions, protocols, addresses, ports.

use std::net::IpAddr;

use super::link::{
    AARP, ARP, ATALK, DECNET, IPV4, IPV6, RARP, SAP_IPX, SAP_ISO, SAP_NETBEUI, SAP_STP,
};
use super::{Lower, Made, directed, full, numbers};
use crate::arith::Size;
use crate::cond::Cond;
use crate::field::Field;
use crate::net::{Net, mask4, mask6};
use crate::primitive::{Direction, Family, IpFamily, Protocol, Transport};

/// IPv6's fragment header (RFC 8200 §4.5).
const FRAGMENT: u32 = 44;

impl Lower {
    pub(super) fn protocol(&mut self, protocol: Protocol) -> Made {
        match protocol {
            Protocol::Ip => self.kind(IPV4),
            Protocol::Ip6 => self.kind(IPV6),
            Protocol::Arp => self.kind(ARP),
            Protocol::Rarp => self.kind(RARP),
            Protocol::Atalk => self.kind(ATALK),
            Protocol::Aarp => self.kind(AARP),
            Protocol::Decnet => self.kind(DECNET),
            Protocol::Lat => self.kind(0x6004),
            Protocol::Sca => self.kind(0x6007),
            Protocol::Moprc => self.kind(0x6002),
            Protocol::Mopdl => self.kind(0x6001),
            Protocol::Iso => self.kind(SAP_ISO),
            Protocol::Stp => self.kind(SAP_STP),
            Protocol::Ipx => self.kind(SAP_IPX),
            Protocol::Netbeui => self.kind(SAP_NETBEUI),
            Protocol::Esis => self.iso(0x82),
            Protocol::Clnp => self.iso(0x81),
            Protocol::Isis => self.iso(0x83),
            // The types of PDUs: ISO/IEC 10589 §9.
            Protocol::IsisLevel1 => self.isis(&[26, 24, 18, 15, 17]),
            Protocol::IsisLevel2 => self.isis(&[27, 25, 20, 16, 17]),
            Protocol::IsisHello => self.isis(&[17, 15, 16]),
            Protocol::IsisLinkState => self.isis(&[18, 20]),
            Protocol::IsisSequence => self.isis(&[27, 26, 24, 25]),
            Protocol::IsisComplete => self.isis(&[24, 25]),
            Protocol::IsisPartial => self.isis(&[26, 27]),
            Protocol::Tcp => self.ip_protocol(IpFamily::Any, 6),
            Protocol::Udp => self.ip_protocol(IpFamily::Any, 17),
            Protocol::Sctp => self.ip_protocol(IpFamily::Any, 132),
            Protocol::Pim => self.ip_protocol(IpFamily::Any, 103),
            Protocol::Ah => self.ip_protocol(IpFamily::Any, 51),
            Protocol::Esp => self.ip_protocol(IpFamily::Any, 50),
            Protocol::Icmp => self.ip_protocol(IpFamily::Ip, 1),
            Protocol::Igmp => self.ip_protocol(IpFamily::Ip, 2),
            Protocol::Igrp => self.ip_protocol(IpFamily::Ip, 9),
            Protocol::Vrrp | Protocol::Carp => self.ip_protocol(IpFamily::Ip, 112),
            Protocol::Icmp6 => self.ip_protocol(IpFamily::Ip6, 58),
        }
    }

    pub(super) fn ip_protocol(&mut self, family: IpFamily, number: u8) -> Made {
        let mut ways = Vec::with_capacity(2);
        if family != IpFamily::Ip6 {
            let ip = self.kind(IPV4)?;
            ways.push(Cond::All(vec![ip, self.protocol4(&[number.into()])]));
        }
        if family != IpFamily::Ip {
            let ip6 = self.kind(IPV6)?;
            let next = self.next6(&[number.into()]);
            let fragment = self.next6(&[FRAGMENT]);
            let behind = Self::at(self.offsets.network().saturating_add(40), Size::One);
            let behind = Cond::All(vec![fragment, self.is(behind, number.into())]);
            ways.push(Cond::All(vec![ip6, Cond::Any(vec![next, behind])]));
        }
        Ok(Cond::Any(ways))
    }

    pub(super) fn chain(&mut self, family: IpFamily, number: u8) -> Made {
        let network = self.offsets.network();
        let mut ways = Vec::with_capacity(2);
        for (version, kind) in [(IpFamily::Ip, IPV4), (IpFamily::Ip6, IPV6)] {
            if family == version || family == IpFamily::Any {
                let kind = self.kind(kind)?;
                let chain = Field::Chain { network, family: version, number };
                ways.push(Cond::All(vec![kind, self.is(chain, 1)]));
            }
        }
        Ok(Cond::Any(ways))
    }

    fn protocol4(&mut self, numbers: &[u32]) -> Cond {
        let at = self.offsets.network().saturating_add(9);
        self.one_of(Self::at(at, Size::One), numbers)
    }

    fn next6(&mut self, numbers: &[u32]) -> Cond {
        let at = self.offsets.network().saturating_add(6);
        self.one_of(Self::at(at, Size::One), numbers)
    }

    /// Not a later fragment of IPv4: only the first has ports.
    pub(super) fn first_fragment(&mut self) -> Cond {
        let at = self.offsets.network().saturating_add(6);
        self.is(Self::masked(at, Size::Two, 0x1fff), 0)
    }

    pub(super) fn port(
        &mut self,
        transport: Transport,
        direction: Direction,
        (first, last): (u16, u16),
    ) -> Made {
        let network = self.offsets.network();
        let (first, last) = (first.into(), last.into());
        let ip6 = self.kind(IPV6)?;
        let next = self.next6(numbers(transport));
        let src = self.within(Self::at(network.saturating_add(40), Size::Two), first, last);
        let dst = self.within(Self::at(network.saturating_add(42), Size::Two), first, last);
        let six = Cond::All(vec![ip6, next, directed(direction, src, dst)]);
        let ip = self.kind(IPV4)?;
        let protocol = self.protocol4(numbers(transport));
        let fragment = self.first_fragment();
        let mask = full(Size::Two);
        let behind = |at| Field::Behind { header: network, at, size: Size::Two, mask };
        let src = self.within(behind(0), first, last);
        let dst = self.within(behind(2), first, last);
        let four = Cond::All(vec![ip, protocol, fragment, directed(direction, src, dst)]);
        Ok(Cond::Any(vec![six, four]))
    }

    pub(super) fn net(&mut self, family: Family, direction: Direction, net: Net) -> Made {
        let places = places(net);
        let mut ways = Vec::with_capacity(places.len());
        for (of, kind, src, dst) in places {
            if !family.takes(*of) {
                continue;
            }
            // Behind a label there is no ARP, and `host` means IP alone.
            if self.offsets.labels > 0
                && family == Family::Any
                && *of != Family::Ip
                && *of != Family::Ip6
            {
                continue;
            }
            let kind = self.kind(*kind)?;
            let (src, dst) = (self.address(*src, net), self.address(*dst, net));
            ways.push(Cond::All(vec![kind, directed(direction, src, dst)]));
        }
        Ok(Cond::Any(ways))
    }

    /// The address at `at` bytes of the network layer's header is in `net`.
    fn address(&mut self, at: u32, net: Net) -> Cond {
        let at = self.offsets.network().saturating_add(at);
        address(net, |offset, first, last| {
            self.within(Self::at(at.saturating_add(offset), Size::Four), first, last)
        })
    }
}

/// In what an address may stand: the kind of the payload, and where source and destination are in it.
pub(super) fn places(net: Net) -> &'static [(Family, u16, u32, u32)] {
    match net.address() {
        IpAddr::V4(_) => {
            &[(Family::Ip, IPV4, 12, 16), (Family::Arp, ARP, 14, 24), (Family::Rarp, RARP, 14, 24)]
        }
        IpAddr::V6(_) => &[(Family::Ip6, IPV6, 8, 24)],
    }
}

/// An address is in `net`; `word` says that the four bytes so far behind its begin are in a range.
pub(super) fn address(net: Net, mut word: impl FnMut(u32, u32, u32) -> Cond) -> Cond {
    let len = net.prefix_len();
    match net.address() {
        IpAddr::V4(address) => {
            let first = address.to_bits();
            word(0, first, first | !mask4(len))
        }
        IpAddr::V6(address) => {
            // Word by word, also those that the prefix does not reach: they must be there.
            let (first, last) = (address.to_bits(), address.to_bits() | !mask6(len));
            let words = [(96_u32, 0_u32), (64, 4), (32, 8), (0, 12)].map(|(shift, offset)| {
                let part = |n: u128| u32::try_from((n >> shift) & 0xffff_ffff).unwrap_or(0);
                word(offset, part(first), part(last))
            });
            Cond::All(words.into())
        }
    }
}
