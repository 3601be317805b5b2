//! The meaning of filters, said as plainly as possible: what the compiled form is tested against.
//! Shares no code with it.

use std::net::IpAddr;

use crate::expr::Expr;
use crate::net::Net;
use crate::primitive::{Direction, Family, IpFamily, Primitive, Protocol, Transport};

/// True when `packet`, an Ethernet frame, matches `expr`. Slow; for tests and oracles.
///
/// A tag that was not resolved is false.
#[must_use]
pub fn naive_matches(expr: &Expr, packet: &[u8]) -> bool {
    let mut tags = 0;
    expression(expr, packet, &mut tags)
}

/// Looks at every part, also when the result is known already: each `vlan` moves what follows it.
fn expression(expr: &Expr, packet: &[u8], tags: &mut usize) -> bool {
    match expr {
        Expr::True => true,
        Expr::False | Expr::Tag { .. } => false,
        Expr::Not(inner) => !expression(inner, packet, tags),
        Expr::And(list) => {
            let mut all = true;
            for e in list {
                let this = expression(e, packet, tags);
                all = all && this;
            }
            all
        }
        Expr::Or(list) => {
            let mut any = false;
            for e in list {
                let this = expression(e, packet, tags);
                any = any || this;
            }
            any
        }
        Expr::Primitive(p) => {
            let result = primitive(p, packet, 14 + 4 * *tags).unwrap_or(false);
            if matches!(p, Primitive::Vlan { .. }) {
                *tags += 1;
            }
            result
        }
    }
}

/// `None` when bytes that decide it are missing.
fn primitive(p: &Primitive, packet: &[u8], l3: usize) -> Option<bool> {
    match p {
        Primitive::Protocol(Protocol::Ip) => Some(number(packet, l3 - 2, 2)? == 0x0800),
        Primitive::Protocol(Protocol::Ip6) => Some(number(packet, l3 - 2, 2)? == 0x86dd),
        Primitive::Protocol(Protocol::Arp) => Some(number(packet, l3 - 2, 2)? == 0x0806),
        Primitive::Protocol(Protocol::Rarp) => Some(number(packet, l3 - 2, 2)? == 0x8035),
        Primitive::EtherProto(n) => Some(number(packet, l3 - 2, 2)? == u128::from(*n)),
        Primitive::Protocol(Protocol::Tcp) => ip_protocol(packet, l3, IpFamily::Any, 6),
        Primitive::Protocol(Protocol::Udp) => ip_protocol(packet, l3, IpFamily::Any, 17),
        Primitive::Protocol(Protocol::Sctp) => ip_protocol(packet, l3, IpFamily::Any, 132),
        Primitive::Protocol(Protocol::Icmp) => ip_protocol(packet, l3, IpFamily::Ip, 1),
        Primitive::Protocol(Protocol::Icmp6) => ip_protocol(packet, l3, IpFamily::Ip6, 58),
        Primitive::IpProto { family, number } => {
            ip_protocol(packet, l3, *family, u128::from(*number))
        }
        Primitive::Vlan { id } => {
            if ![0x8100, 0x88a8, 0x9100].contains(&number(packet, l3 - 2, 2)?) {
                return Some(false);
            }
            match id {
                None => Some(true),
                Some(id) => Some(number(packet, l3, 2)? % 4096 == u128::from(*id)),
            }
        }
        Primitive::Ether { direction, mac } => {
            let wanted = mac.0.iter().fold(0, |n, b| n * 256 + u128::from(*b));
            either(
                *direction,
                || Some(number(packet, 6, 6)? == wanted),
                || Some(number(packet, 0, 6)? == wanted),
            )
        }
        Primitive::Net { family, direction, net } => address(packet, l3, *family, *direction, net),
        Primitive::Port { transport, direction, first, last } => {
            let l4 = match number(packet, l3 - 2, 2)? {
                0x0800 => {
                    if !has_ports(*transport, number(packet, l3 + 9, 1)?)
                        || number(packet, l3 + 6, 2)? % 0x2000 != 0
                    {
                        return Some(false);
                    }
                    l3 + usize::try_from(number(packet, l3, 1)? % 16).ok()? * 4
                }
                0x86dd if has_ports(*transport, number(packet, l3 + 6, 1)?) => l3 + 40,
                _ => return Some(false),
            };
            let range = u128::from(*first)..=u128::from(*last);
            either(
                *direction,
                || Some(range.contains(&number(packet, l4, 2)?)),
                || Some(range.contains(&number(packet, l4 + 2, 2)?)),
            )
        }
    }
}

fn has_ports(transport: Transport, protocol: u128) -> bool {
    match transport {
        Transport::Any => [6, 17, 132].contains(&protocol),
        Transport::Tcp => protocol == 6,
        Transport::Udp => protocol == 17,
        Transport::Sctp => protocol == 132,
    }
}

fn ip_protocol(packet: &[u8], l3: usize, family: IpFamily, wanted: u128) -> Option<bool> {
    match number(packet, l3 - 2, 2)? {
        0x0800 if family != IpFamily::Ip6 => Some(number(packet, l3 + 9, 1)? == wanted),
        0x86dd if family != IpFamily::Ip => {
            let next = number(packet, l3 + 6, 1)?;
            Some(next == wanted || (next == 44 && number(packet, l3 + 40, 1)? == wanted))
        }
        _ => Some(false),
    }
}

fn address(
    packet: &[u8],
    l3: usize,
    family: Family,
    direction: Direction,
    net: &Net,
) -> Option<bool> {
    let kind = match number(packet, l3 - 2, 2)? {
        0x0800 => Family::Ip,
        0x86dd => Family::Ip6,
        0x0806 => Family::Arp,
        0x8035 => Family::Rarp,
        _ => return Some(false),
    };
    let (wanted, bits, src, dst) = match (net.address(), kind) {
        (IpAddr::V4(a), Family::Ip) => (u128::from(a.to_bits()), 32, 12, 16),
        (IpAddr::V4(a), Family::Arp | Family::Rarp) => (u128::from(a.to_bits()), 32, 14, 24),
        (IpAddr::V6(a), Family::Ip6) => (a.to_bits(), 128, 8, 24),
        _ => return Some(false),
    };
    if family != Family::Any && family != kind {
        return Some(false);
    }
    let same = |at: usize| {
        let found = number(packet, at, bits / 8)?;
        // Compared bit by bit from the top, as far as the prefix goes.
        Some(
            (0..usize::from(net.prefix_len())).all(|i| (found ^ wanted) >> (bits - 1 - i) & 1 == 0),
        )
    };
    either(direction, || same(l3 + src), || same(l3 + dst))
}

/// The source first; what is missing ends the question, as in libpcap.
fn either(
    direction: Direction,
    src: impl Fn() -> Option<bool>,
    dst: impl Fn() -> Option<bool>,
) -> Option<bool> {
    match direction {
        Direction::Src => src(),
        Direction::Dst => dst(),
        Direction::Either => Some(src()? || dst()?),
        Direction::Both => Some(src()? && dst()?),
    }
}

/// The big-endian number in `len` bytes at `at`.
fn number(packet: &[u8], at: usize, len: usize) -> Option<u128> {
    let bytes = packet.get(at..at + len)?;
    Some(bytes.iter().fold(0, |n, b| n * 256 + u128::from(*b)))
}
