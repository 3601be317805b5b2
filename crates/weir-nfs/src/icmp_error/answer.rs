//! Which packets are answered, and with what.

use super::Unreachable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_nf::checksum::{checksum, pseudo_v6};
use weir_nf::headers::proto;
use weir_nf::{Bytes, Fragment, Layers};

/// What is wrong with a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// No hop left.
    Expired,
    /// Too long for the next hop.
    TooBig {
        /// What that takes, in bytes from the IP header on.
        mtu: u16,
    },
    /// The destination cannot be reached.
    Unreachable(Unreachable),
}

impl Fault {
    /// Type, code and the word behind the checksum.
    fn message(self, v6: bool) -> (u8, u8, [u8; 4]) {
        use Unreachable::{Host, NoRoute, Port, Prohibited};
        let word = match self {
            Fault::TooBig { mtu } => u32::from(mtu).to_be_bytes(),
            Fault::Expired | Fault::Unreachable(_) => [0; 4],
        };
        let (kind, code) = match (self, v6) {
            (Fault::Expired, false) => (11, 0),
            (Fault::Expired, true) => (3, 0),
            (Fault::TooBig { .. }, false) => (3, 4),
            (Fault::TooBig { .. }, true) => (2, 0),
            (Fault::Unreachable(NoRoute), false) => (3, 0),
            (Fault::Unreachable(NoRoute), true) => (1, 0),
            (Fault::Unreachable(Host), false) => (3, 1),
            (Fault::Unreachable(Host), true) => (1, 3),
            (Fault::Unreachable(Port), false) => (3, 3),
            (Fault::Unreachable(Port), true) => (1, 4),
            (Fault::Unreachable(Prohibited), false) => (3, 13),
            (Fault::Unreachable(Prohibited), true) => (1, 1),
        };
        (kind, code, word)
    }
}

/// The longest error datagrams, in bytes: RFC 1812 §4.3.2.3; RFC 4443 §2.4 (c).
const LONGEST_V4: usize = 576;
const LONGEST_V6: usize = 1280;
/// Ethernet header and the most tags that are walked.
const LONGEST_L2: usize = 14 + 4 * 8;

/// An error, as a frame.
pub(super) struct Answer {
    frame: [u8; LONGEST_L2 + LONGEST_V6],
    len: usize,
}

impl Answer {
    pub(super) fn bytes(&self) -> &[u8] {
        self.frame.get(..self.len).unwrap_or_default()
    }
}

/// The error that answers a packet from `v4` or `v6`; `None` when it must not be answered. `layers` has
/// depth L4.
pub(super) fn answer<B: Bytes>(
    bytes: &B,
    layers: &Layers,
    fault: Fault,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
) -> Option<Answer> {
    let too_big = matches!(fault, Fault::TooBig { .. });
    if is_error(bytes, layers) || layers.fragment() == Fragment::Later {
        return None;
    }
    let (to_mac, from_mac) = layers.macs(bytes)?;
    let (source, destination) = layers.ips(bytes)?;
    // The group bit: multicast and broadcast. Path-MTU discovery works for IPv6 multicast, so there
    // packet too big is an answer all the same (RFC 4443 §2.4 (e.3)).
    let group = to_mac[0] & 1 != 0 || is_group(destination);
    let exempt = too_big && destination.is_ipv6();
    if (group && !exempt) || from_mac[0] & 1 != 0 || !is_host(source) {
        return None;
    }
    let l3 = usize::from(layers.l3);
    let mut out = Answer { frame: [0; LONGEST_L2 + LONGEST_V6], len: 0 };
    let (kind, code, word) = fault.message(source.is_ipv6());
    let (header, longest) = match source {
        IpAddr::V4(_) => (20, LONGEST_V4),
        IpAddr::V6(_) => (40, LONGEST_V6),
    };
    // As much of the packet as fits, without Ethernet padding.
    let quote = usize::from(layers.end).saturating_sub(l3).min(longest - header - 8);
    let (l2, rest) = out.frame.split_at_mut_checked(l3)?;
    let (ip, rest) = rest.split_at_mut_checked(header)?;
    let icmp = rest.get_mut(..8 + quote)?;
    bytes.copy_to(0, l2);
    // Nobody sends from a group's address: a private one of the same bits.
    let mut own_mac = to_mac;
    if own_mac[0] & 1 != 0 {
        own_mac[0] = own_mac[0] & !1 | 2;
    }
    l2.first_chunk_mut::<12>()?.copy_from_slice([from_mac, own_mac].as_flattened());
    icmp.first_chunk_mut::<8>()?
        .copy_from_slice(&[kind, code, 0, 0, word[0], word[1], word[2], word[3]]);
    bytes.copy_to(l3, icmp.get_mut(8..)?);
    let len = icmp.len() as u16;
    match (source, v4, v6) {
        (IpAddr::V4(to), Some(from), _) => {
            let check = checksum(icmp);
            icmp.get_mut(2..4)?.copy_from_slice(&check.to_be_bytes());
            ip.copy_from_slice(&ipv4_header(from, to, len));
        }
        (IpAddr::V6(to), _, Some(from)) => {
            let mut sum = pseudo_v6(from, to, proto::ICMPV6, len.into());
            sum.add_slice(icmp);
            icmp.get_mut(2..4)?.copy_from_slice(&sum.finish().to_be_bytes());
            ip.copy_from_slice(&ipv6_header(from, to, len));
        }
        _ => return None,
    }
    out.len = l3 + header + 8 + quote;
    Some(out)
}

/// Precedence internetwork control (RFC 1812 §4.3.2.5), not to be fragmented, TTL 64.
fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, payload: u16) -> [u8; 20] {
    let mut header = [0; 20];
    let [hi, lo] = (20 + payload).to_be_bytes();
    header[..10].copy_from_slice(&[0x45, 0xc0, hi, lo, 0, 0, 0x40, 0, 64, proto::ICMP]);
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let check = checksum(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header
}

fn ipv6_header(from: Ipv6Addr, to: Ipv6Addr, payload: u16) -> [u8; 40] {
    let mut header = [0; 40];
    let [hi, lo] = payload.to_be_bytes();
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, hi, lo, proto::ICMPV6, 255]);
    header[8..24].copy_from_slice(&from.octets());
    header[24..40].copy_from_slice(&to.octets());
    header
}

/// ICMP errors and redirects: RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e.1) and (e.2). An ICMP message whose
/// type was cut off may be one.
fn is_error<B: Bytes>(bytes: &B, layers: &Layers) -> bool {
    layers.is_icmp()
        && match (layers.icmp_type_code(bytes), layers.proto) {
            (Some((kind, _)), proto::ICMP) => matches!(kind, 3 | 4 | 5 | 11 | 12),
            (Some((kind, _)), _) => kind < 128 || kind == 137,
            (None, _) => true,
        }
}

fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}

/// True for an address that one host may have (RFC 1812 §4.3.2.7 and §5.3.7, RFC 4443 §2.4 (e.6)).
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !(a.octets()[0] == 0 || a.is_loopback() || a.octets()[0] >= 224),
        IpAddr::V6(a) => !(a.is_unspecified() || a.is_loopback() || a.is_multicast()),
    }
}
