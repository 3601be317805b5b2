//! One decision of a compiled filter.

use std::net::IpAddr;

use weir_packet::Bytes;

use crate::net::{mask4, mask6};
use crate::primitive::{Direction, Family, IpFamily, Primitive, Protocol, Transport};
use crate::view::{ARP, IPV4, IPV6, Pair, RARP, View};

/// A primitive with all that can be worked out beforehand.
#[derive(Clone, Debug)]
pub(super) enum Test {
    EtherType(u16),
    Protocol {
        v4: bool,
        v6: bool,
        number: u8,
    },
    Vlan {
        id: Option<u16>,
    },
    /// `family` narrows it to one EtherType; without, all that have IPv4 addresses.
    Net4 {
        ethertype: Option<u16>,
        direction: Direction,
        want: u32,
        mask: u32,
    },
    /// Boxed: it is rare, and would make every node twice as long.
    Net6(Box<Net6>),
    Port {
        tcp: bool,
        udp: bool,
        sctp: bool,
        direction: Direction,
        first: u16,
        last: u16,
    },
    Ether {
        direction: Direction,
        mac: [u8; 6],
    },
    Never,
}

#[derive(Clone, Debug)]
pub(super) struct Net6 {
    direction: Direction,
    want: u128,
    mask: u128,
}

impl Test {
    pub(super) fn new(primitive: &Primitive) -> Self {
        match primitive {
            Primitive::Protocol(p) => match p {
                Protocol::Ip => Test::EtherType(IPV4),
                Protocol::Ip6 => Test::EtherType(IPV6),
                Protocol::Arp => Test::EtherType(ARP),
                Protocol::Rarp => Test::EtherType(RARP),
                Protocol::Tcp => Test::Protocol { v4: true, v6: true, number: 6 },
                Protocol::Udp => Test::Protocol { v4: true, v6: true, number: 17 },
                Protocol::Sctp => Test::Protocol { v4: true, v6: true, number: 132 },
                Protocol::Icmp => Test::Protocol { v4: true, v6: false, number: 1 },
                Protocol::Icmp6 => Test::Protocol { v4: false, v6: true, number: 58 },
            },
            Primitive::IpProto { family, number } => Test::Protocol {
                v4: *family != IpFamily::Ip6,
                v6: *family != IpFamily::Ip,
                number: *number,
            },
            Primitive::EtherProto(number) => Test::EtherType(*number),
            Primitive::Vlan { id } => Test::Vlan { id: *id },
            Primitive::Net { family, direction, net } => {
                let direction = *direction;
                let len = net.prefix_len();
                match (net.address(), family) {
                    (IpAddr::V4(a), Family::Any | Family::Ip | Family::Arp | Family::Rarp) => {
                        let ethertype = match family {
                            Family::Ip => Some(IPV4),
                            Family::Arp => Some(ARP),
                            Family::Rarp => Some(RARP),
                            Family::Any | Family::Ip6 => None,
                        };
                        Test::Net4 { ethertype, direction, want: a.to_bits(), mask: mask4(len) }
                    }
                    (IpAddr::V6(a), Family::Any | Family::Ip6) => Test::Net6(Box::new(Net6 {
                        direction,
                        want: a.to_bits(),
                        mask: mask6(len),
                    })),
                    _ => Test::Never,
                }
            }
            Primitive::Port { transport, direction, first, last } => {
                let includes = |t| *transport == Transport::Any || *transport == t;
                Test::Port {
                    tcp: includes(Transport::Tcp),
                    udp: includes(Transport::Udp),
                    sctp: includes(Transport::Sctp),
                    direction: *direction,
                    first: *first,
                    last: *last,
                }
            }
            Primitive::Ether { direction, mac } => {
                Test::Ether { direction: *direction, mac: mac.0 }
            }
        }
    }

    #[inline]
    pub(super) fn holds<B: Bytes + ?Sized>(&self, view: &mut View<'_, B>) -> bool {
        match self {
            Test::EtherType(want) => view.ethertype == Some(*want),
            Test::Protocol { v4, v6, number } => {
                let wanted_version = match view.ethertype {
                    Some(IPV4) => *v4,
                    Some(IPV6) => *v6,
                    _ => false,
                };
                if !wanted_version {
                    return false;
                }
                let (first, behind) = view.protocol();
                first == Some(*number) || behind == Some(*number)
            }
            Test::Vlan { id } => {
                matches!(view.ethertype, Some(0x8100 | 0x88a8 | 0x9100))
                    && (id.is_none() || view.vlan() == *id)
            }
            Test::Net4 { ethertype, direction, want, mask } => {
                (ethertype.is_none() || view.ethertype == *ethertype)
                    && pair(*direction, view.v4(), |a| a & mask == *want)
            }
            Test::Net6(net) => pair(net.direction, view.v6(), |a| a & net.mask == net.want),
            Test::Port { tcp, udp, sctp, direction, first, last } => {
                let has_ports = match view.protocol().0 {
                    Some(6) => *tcp,
                    Some(17) => *udp,
                    Some(132) => *sctp,
                    _ => false,
                };
                has_ports && pair(*direction, view.ports(), |p| (*first..=*last).contains(&p))
            }
            Test::Ether { direction, mac } => {
                let (src, dst) = view.macs();
                // libpcap reads the source, which stands behind the destination, first.
                let dst = if *direction == Direction::Either && src.is_none() { None } else { dst };
                pair(*direction, (src, dst), |m| m == *mac)
            }
            Test::Never => false,
        }
    }
}

/// What is not there does not match.
#[inline]
fn pair<T>(direction: Direction, (src, dst): Pair<T>, f: impl Fn(T) -> bool) -> bool {
    match direction {
        Direction::Either => src.is_some_and(&f) || dst.is_some_and(&f),
        Direction::Src => src.is_some_and(&f),
        Direction::Dst => dst.is_some_and(&f),
        Direction::Both => src.is_some_and(&f) && dst.is_some_and(&f),
    }
}
