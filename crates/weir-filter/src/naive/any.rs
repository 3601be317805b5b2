//! `any`: everything in front of the upper layer taken off, one layer after the other.

use std::net::IpAddr;

use super::{either, number};
use crate::net::Net;
use crate::primitive::{AnyTest, Direction, Family, Network, Transport};

pub(super) fn holds(test: &AnyTest, frame: &[u8]) -> Option<bool> {
    let (kind, header) = below(frame)?;
    match test {
        AnyTest::Network(Network::Ip) => return Some(kind == 0x0800),
        AnyTest::Network(Network::Ip6) => return Some(kind == 0x86dd),
        AnyTest::Network(Network::Arp) => return Some(kind == 0x0806),
        AnyTest::Network(Network::Rarp) => return Some(kind == 0x8035),
        AnyTest::Net { family, direction, net } => {
            return address(*family, *direction, net, kind, header);
        }
        AnyTest::Protocol(_) | AnyTest::Port { .. } => {}
    }
    let (protocol, rest) = upper(kind, header)?;
    match test {
        AnyTest::Network(_) | AnyTest::Net { .. } => None,
        AnyTest::Protocol(wanted) => Some(protocol == u128::from(*wanted)),
        AnyTest::Port { transport, direction, first, last } => {
            let has_ports = match transport {
                Transport::Any => [6, 17, 132].contains(&protocol),
                Transport::Tcp => protocol == 6,
                Transport::Udp => protocol == 17,
                Transport::Sctp => protocol == 132,
            };
            if !has_ports {
                return Some(false);
            }
            // In a later fragment there are no ports.
            let rest = rest?;
            let range = u128::from(*first)..=u128::from(*last);
            either(
                *direction,
                || Some(range.contains(&number(rest, 0, 2)?)),
                || Some(range.contains(&number(rest, 2, 2)?)),
            )
        }
    }
}

/// As `Place::address`, of one header whose kind is known.
fn address(
    family: Family,
    direction: Direction,
    net: &Net,
    kind: u128,
    header: &[u8],
) -> Option<bool> {
    let (of, src, dst) = match (kind, net.address()) {
        (0x0800, IpAddr::V4(_)) => (Family::Ip, 12, 16),
        (0x0806, IpAddr::V4(_)) => (Family::Arp, 14, 24),
        (0x8035, IpAddr::V4(_)) => (Family::Rarp, 14, 24),
        (0x86dd, IpAddr::V6(_)) => (Family::Ip6, 8, 24),
        _ => return Some(false),
    };
    if family != of && family != Family::Any {
        return Some(false);
    }
    let same = |at: usize| {
        let (wanted, len) = match net.address() {
            IpAddr::V4(a) => (u128::from(a.to_bits()), 4),
            IpAddr::V6(a) => (a.to_bits(), 16),
        };
        let rest = u32::try_from(8 * len).ok()? - u32::from(net.prefix_len());
        let found = number(header, at, len)?;
        Some((found ^ wanted).checked_shr(rest).unwrap_or(0) == 0)
    };
    either(direction, || same(src), || same(dst))
}

/// The protocol, and its bytes unless they are in another fragment.
fn upper(kind: u128, rest: &[u8]) -> Option<(u128, Option<&[u8]>)> {
    match kind {
        0x0800 => {
            let length = usize::try_from(number(rest, 0, 1)? % 16 * 4).ok()?;
            let is_first = number(rest, 6, 2)? % 0x2000 == 0;
            let protocol = number(rest, 9, 1)?;
            Some((protocol, rest.get(length..).filter(|_| is_first)))
        }
        0x86dd => extensions(number(rest, 6, 1)?, rest.get(40..)),
        _ => None,
    }
}

/// What stands behind tags, labels and sessions, and its bytes.
fn below(frame: &[u8]) -> Option<(u128, &[u8])> {
    let mut kind = number(frame, 12, 2)?;
    let mut rest = frame.get(14..)?;
    for _ in 0..32 {
        match kind {
            0x8100 | 0x88a8 | 0x9100 => {
                kind = number(rest, 2, 2)?;
                rest = rest.get(4..)?;
            }
            0x8847 | 0x8848 => {
                let is_last = number(rest, 2, 1)? % 2 == 1;
                rest = rest.get(4..)?;
                if is_last {
                    kind = match number(rest, 0, 1)? / 16 {
                        4 => 0x0800,
                        6 => 0x86dd,
                        _ => return None,
                    };
                }
            }
            0x8864 => {
                kind = match number(rest, 6, 2)? {
                    0x21 => 0x0800,
                    0x57 => 0x86dd,
                    _ => return None,
                };
                rest = rest.get(8..)?;
            }
            _ => return Some((kind, rest)),
        }
    }
    None
}

/// Takes off extension headers; `rest` is `None` when the packet ends before.
fn extensions(mut next: u128, mut rest: Option<&[u8]>) -> Option<(u128, Option<&[u8]>)> {
    for _ in 0..32 {
        if ![0, 43, 44, 51, 60, 135, 139, 140].contains(&next) {
            return Some((next, rest));
        }
        let header = rest?;
        let units = usize::try_from(number(header, 1, 1).unwrap_or(0)).ok()?;
        let (length, is_first) = match next {
            44 => (8, number(header, 2, 2)? / 8 == 0),
            51 => {
                number(header, 1, 1)?;
                (4 * (units + 2), true)
            }
            _ => {
                number(header, 1, 1)?;
                (8 * (units + 1), true)
            }
        };
        next = number(header, 0, 1)?;
        if !is_first {
            return Some((next, None));
        }
        rest = header.get(length..);
    }
    None
}
