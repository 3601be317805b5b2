//! What IP carries.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::{Place, either};
use crate::net::Net;
use crate::primitive::{Direction, Family, Group, IpFamily, Protocol, Transport};

impl Place<'_> {
    pub(super) fn protocol(&self, protocol: Protocol) -> Option<bool> {
        match protocol {
            Protocol::Ip => self.is(0x0800),
            Protocol::Ip6 => self.is(0x86dd),
            Protocol::Arp => self.is(0x0806),
            Protocol::Rarp => self.is(0x8035),
            Protocol::Atalk => self.is(0x809b),
            Protocol::Aarp => self.is(0x80f3),
            Protocol::Decnet => self.is(0x6003),
            Protocol::Lat => self.is(0x6004),
            Protocol::Sca => self.is(0x6007),
            Protocol::Moprc => self.is(0x6002),
            Protocol::Mopdl => self.is(0x6001),
            Protocol::Iso => self.is(0xfe),
            Protocol::Stp => self.is(0x42),
            Protocol::Ipx => self.is(0xe0),
            Protocol::Netbeui => self.is(0xf0),
            Protocol::Esis => self.iso(0x82),
            Protocol::Clnp => self.iso(0x81),
            Protocol::Isis => self.iso(0x83),
            Protocol::IsisLevel1 => self.isis(&[15, 17, 18, 24, 26]),
            Protocol::IsisLevel2 => self.isis(&[16, 17, 20, 25, 27]),
            Protocol::IsisHello => self.isis(&[15, 16, 17]),
            Protocol::IsisLinkState => self.isis(&[18, 20]),
            Protocol::IsisSequence => self.isis(&[24, 25, 26, 27]),
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

    pub(super) fn ip_protocol(&self, family: IpFamily, wanted: u128) -> Option<bool> {
        let l3 = self.network();
        if family != IpFamily::Ip6 && self.is(0x0800)? {
            return Some(self.number(l3 + 9, 1)? == wanted);
        }
        if family != IpFamily::Ip && self.is(0x86dd)? {
            let next = self.number(l3 + 6, 1)?;
            return Some(next == wanted || (next == 44 && self.number(l3 + 40, 1)? == wanted));
        }
        Some(false)
    }

    /// As libpcap walks: behind an authentication header it goes on at that header's length, counted
    /// from the IP header.
    pub(super) fn chain(&self, family: IpFamily, wanted: u128) -> Option<bool> {
        let l3 = self.network();
        let load = |at: usize| self.number(l3 + at, 1);
        let (six, mut next, mut at) = if family != IpFamily::Ip6 && self.is(0x0800)? {
            (false, load(9)?, usize::try_from(load(0)? % 16).ok()? * 4)
        } else if family != IpFamily::Ip && self.is(0x86dd)? {
            (true, load(6)?, 40)
        } else {
            return Some(false);
        };
        for _ in 0..64 {
            if next == wanted {
                return Some(true);
            }
            match next {
                0 | 43 | 44 | 60 if six => {
                    next = load(at)?;
                    at += 8 * (1 + usize::try_from(load(at + 1)?).ok()?);
                }
                51 => {
                    next = load(at)?;
                    at = 4 * (2 + usize::try_from(load(at + 1)?).ok()?);
                }
                _ => return Some(false),
            }
        }
        None
    }

    pub(super) fn port(
        &self,
        transport: Transport,
        direction: Direction,
        range: RangeInclusive<u128>,
    ) -> Option<bool> {
        let l3 = self.network();
        let has_ports = |protocol: u128| match transport {
            Transport::Any => [6, 17, 132].contains(&protocol),
            Transport::Tcp => protocol == 6,
            Transport::Udp => protocol == 17,
            Transport::Sctp => protocol == 132,
        };
        let l4 = if self.is(0x86dd)? {
            if !has_ports(self.number(l3 + 6, 1)?) {
                return Some(false);
            }
            l3 + 40
        } else if self.is(0x0800)? {
            if !has_ports(self.number(l3 + 9, 1)?) || self.number(l3 + 6, 2)? % 0x2000 != 0 {
                return Some(false);
            }
            l3 + usize::try_from(self.number(l3, 1)? % 16).ok()? * 4
        } else {
            return Some(false);
        };
        either(
            direction,
            || Some(range.contains(&self.number(l4, 2)?)),
            || Some(range.contains(&self.number(l4 + 2, 2)?)),
        )
    }

    pub(super) fn address(&self, family: Family, direction: Direction, net: &Net) -> Option<bool> {
        let (wanted, len, kinds): (u128, usize, &[_]) = match net.address() {
            IpAddr::V4(a) => (
                u128::from(a.to_bits()),
                4,
                &[
                    (Family::Ip, 0x0800, 12, 16),
                    (Family::Arp, 0x0806, 14, 24),
                    (Family::Rarp, 0x8035, 14, 24),
                ],
            ),
            IpAddr::V6(a) => (a.to_bits(), 16, &[(Family::Ip6, 0x86dd, 8, 24)]),
        };
        for (of, kind, src, dst) in kinds {
            let asked = family == *of || family == Family::Any;
            // Behind a label nothing but IP can be told.
            let skipped = family == Family::Any && self.labels > 0 && len == 4 && *of != Family::Ip;
            if !asked || skipped || !self.is(*kind)? {
                continue;
            }
            let same = |at: usize| {
                let found = self.number(self.network() + at, len)?;
                // Compared bit by bit from the top, as far as the prefix goes.
                let mut bits = 0..usize::from(net.prefix_len());
                Some(bits.all(|i| (found ^ wanted) >> (8 * len - 1 - i) & 1 == 0))
            };
            return either(direction, || same(*src), || same(*dst));
        }
        Some(false)
    }

    pub(super) fn multicast(&self, group: Group) -> Option<bool> {
        match group {
            Group::Ether if self.ppp => None,
            Group::Ether => Some(self.number(0, 1)? % 2 == 1),
            Group::Ip => Some(self.is(0x0800)? && self.number(self.network() + 16, 1)? >= 224),
            Group::Ip6 => Some(self.is(0x86dd)? && self.number(self.network() + 24, 1)? == 255),
        }
    }

    pub(super) fn tos(&self, tos: u128) -> Option<bool> {
        if self.is(0x0800)? {
            return Some(self.number(self.network() + 1, 1)? == tos);
        }
        Some(self.is(0x86dd)? && self.number(self.network(), 2)? / 16 % 256 == tos)
    }
}
