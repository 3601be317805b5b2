//! The parser: Ethernet, VLAN tags, IP, transport header.

use super::{
    Begins, Depth, ETHERNET_LEN, HeaderFault, L3, Layers, MAX_TAGS, ether_type, flags, ipv6, proto,
};
use crate::Bytes;

/// Below this an Ethernet type field is a length (IEEE 802.3 §3.2.6).
const MIN_ETHER_TYPE: u16 = 0x0600;

/// Length of an IPv4 header without options, in bytes.
const IPV4_LEN: usize = 20;

/// Offsets are 16 bits: what lies beyond is not seen.
fn seen<B: Bytes + ?Sized>(bytes: &B) -> usize {
    bytes.len().min(usize::from(u16::MAX))
}

/// `offset` as it is stored. Offsets are bounded by [`seen`], so this never cuts.
fn short(offset: usize) -> u16 {
    u16::try_from(offset).unwrap_or(u16::MAX)
}

/// Parses `bytes`, which begin with an Ethernet header, as deep as `want`.
#[inline]
pub fn parse<B: Bytes + ?Sized>(bytes: &B, want: Depth) -> Layers {
    let mut layers = Layers::default();
    layers.extend(bytes, want);
    layers
}

/// Parses what begins at `at` of `bytes`, inside another packet, as deep as `want`. Offsets count from
/// the start of `bytes`, too. ([`Layers::macs`] and [`Layers::vlan_tci`] read the frame's own, outer ones.)
pub fn parse_at<B: Bytes + ?Sized>(bytes: &B, at: usize, begins: Begins, want: Depth) -> Layers {
    let mut layers = Layers::default();
    let at = at.min(seen(bytes));
    match begins {
        Begins::Ethernet => layers.parse_link(bytes, at),
        Begins::Ip => {
            layers.end = short(seen(bytes));
            let kind = match bytes.u8(at).map(|b| b >> 4) {
                Some(4) => ether_type::IPV4,
                Some(6) => ether_type::IPV6,
                // Nothing that is IP has this type.
                _ => ether_type::TRANSPARENT_ETHERNET,
            };
            layers.network(kind, at);
        }
    }
    layers.depth = Depth::L2;
    layers.any_case(bytes, want);
    layers
}

impl Layers {
    /// Goes on from an earlier, shallower parse of the same bytes until `want` is reached.
    /// Equal to [`parse`] with `want` at once; does nothing when the depth was already reached.
    #[inline]
    pub fn extend<B: Bytes + ?Sized>(&mut self, bytes: &B, want: Depth) {
        if self.depth >= want {
            return;
        }
        if self.depth == Depth::None
            && let Some(layers) = Self::plain(bytes, want)
        {
            *self = layers;
            return;
        }
        self.any_case(bytes, want);
    }

    fn any_case<B: Bytes + ?Sized>(&mut self, bytes: &B, want: Depth) {
        if self.depth < Depth::L2 && want >= Depth::L2 {
            *self = Layers::default();
            self.parse_link(bytes, 0);
            self.depth = Depth::L2;
        }
        if self.depth < Depth::L3 && want >= Depth::L3 {
            match self.kind {
                L3::Ipv4 => self.parse_ipv4(bytes),
                L3::Ipv6 => self.parse_ipv6(bytes),
                L3::None | L3::Arp | L3::Other => {}
            }
            self.depth = Depth::L3;
        }
        if self.depth < Depth::L4 && want >= Depth::L4 {
            self.parse_transport(bytes);
            self.depth = Depth::L4;
        }
    }

    /// An untagged, unfragmented IPv4 packet without options, or IPv6 packet without extension headers, that
    /// carries TCP, UDP or ICMP and is right in every length: a few loads, no loop. `None` says nothing.
    #[inline(always)]
    pub(crate) fn plain<B: Bytes + ?Sized>(bytes: &B, want: Depth) -> Option<Layers> {
        const V4: usize = ETHERNET_LEN + IPV4_LEN;
        const V6: usize = ETHERNET_LEN + ipv6::FIXED_LEN;
        if want < Depth::L3 {
            return None;
        }
        let [e0, e1, version, _, t0, t1, n0, _] = bytes.array::<8>(12)?;
        let length = usize::from(u16::from_be_bytes([t0, t1]));
        let (kind, l4, end, proto) = match ([e0, e1], version) {
            ([0x08, 0x00], 0x45) => {
                let [f0, f1, _, proto] = bytes.array::<4>(20)?;
                if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
                    return None;
                }
                (L3::Ipv4, V4, ETHERNET_LEN + length, proto)
            }
            ([0x86, 0xdd], 0x60..=0x6f) => {
                // The payload length is where IPv4 has its identification.
                let length = usize::from(u16::from_be_bytes([n0, bytes.u8(19)?]));
                (L3::Ipv6, V6, V6 + length, bytes.u8(20)?)
            }
            _ => return None,
        };
        if end < l4 || end > seen(bytes) {
            return None;
        }
        let mut payload = l4;
        let mut bits = 0;
        let deep = want == Depth::L4;
        payload += match proto {
            proto::TCP if deep => {
                bytes.u8(l4 + 12).map(|b| usize::from(b >> 4) * 4).filter(|&n| n >= 20)?
            }
            proto::UDP if deep => {
                let length = usize::from(bytes.be16(l4 + 4)?);
                if length < 8 || l4 + length > end {
                    return None;
                }
                8
            }
            proto::TCP | proto::UDP => 0,
            proto::ICMP if kind == L3::Ipv4 => {
                if deep {
                    8
                } else {
                    0
                }
            }
            proto::ICMPV6 if kind == L3::Ipv6 => {
                if deep {
                    8
                } else {
                    0
                }
            }
            _ => return None,
        };
        if payload > end {
            return None;
        }
        if deep {
            bits = flags::L4;
        }
        Some(Layers {
            l3: ETHERNET_LEN as u16,
            l4: l4 as u16,
            payload: short(payload),
            end: short(end),
            ether_type: if l4 == V4 { ether_type::IPV4 } else { ether_type::IPV6 },
            proto,
            kind,
            depth: want,
            flags: bits,
            ..Layers::default()
        })
    }

    /// Everything from `offset` on is data of the level that begins there.
    fn rest_from(&mut self, offset: usize) {
        let offset = short(offset).min(self.end);
        self.l4 = offset;
        self.payload = offset;
    }

    fn note(&mut self, fault: HeaderFault) {
        self.fault = self.fault.or(Some(fault));
    }

    fn parse_link<B: Bytes + ?Sized>(&mut self, bytes: &B, start: usize) {
        let captured = seen(bytes);
        self.end = short(captured);
        let mut at = start + ETHERNET_LEN - 2;
        loop {
            let Some(kind) = bytes.be16(at).filter(|_| at + 2 <= captured) else {
                self.flags |= flags::TRUNCATED;
                self.l3 = self.end;
                self.rest_from(captured);
                return;
            };
            at += 2;
            let tag = matches!(kind, ether_type::VLAN | ether_type::QINQ | ether_type::QINQ_OLD);
            if !tag || self.vlan_count >= MAX_TAGS {
                if tag {
                    self.note(HeaderFault::TooManyTags);
                }
                self.network(kind, at);
                return;
            }
            if let Some(tci) = bytes.be16(at).filter(|_| at + 2 <= captured) {
                self.vlan_inner = tci & 0x0fff;
                if self.vlan_count == 0 {
                    self.vlan_outer = self.vlan_inner;
                }
                self.vlan_count += 1;
            }
            at += 2;
        }
    }

    /// Notes that what has type (or length) `kind` begins at `at`.
    fn network(&mut self, kind: u16, at: usize) {
        self.l3 = short(at);
        self.kind = match kind {
            ether_type::IPV4 => L3::Ipv4,
            ether_type::IPV6 => L3::Ipv6,
            ether_type::ARP => L3::Arp,
            _ => L3::Other,
        };
        if kind < MIN_ETHER_TYPE {
            self.end = self.end.min(self.l3.saturating_add(kind));
        } else {
            self.ether_type = kind;
        }
        self.rest_from(at);
    }

    /// Ends the packet where its IP header says, or where the capture does.
    fn bound(&mut self, ip_end: usize) {
        if ip_end > usize::from(self.end) {
            self.flags |= flags::TRUNCATED;
        } else {
            self.end = short(ip_end);
        }
    }

    fn parse_ipv4<B: Bytes + ?Sized>(&mut self, bytes: &B) {
        let l3 = usize::from(self.l3);
        let Some(header) =
            bytes.array::<IPV4_LEN>(l3).filter(|_| l3 + IPV4_LEN <= usize::from(self.end))
        else {
            self.flags |= flags::TRUNCATED;
            return;
        };
        let [vhl, _, t0, t1, _, _, f0, f1, _, proto, ..] = header;
        self.proto = proto;
        if vhl >> 4 != 4 {
            return self.note(HeaderFault::Version);
        }
        let length = usize::from(vhl & 0x0f) * 4;
        if length < IPV4_LEN {
            return self.note(HeaderFault::HeaderLength);
        }
        if length > IPV4_LEN {
            self.flags |= flags::OPTIONS;
        }
        let fragment = u16::from_be_bytes([f0, f1]);
        if fragment & 0x1fff != 0 {
            self.flags |= flags::FRAGMENT_LATER;
        } else if fragment & 0x2000 != 0 {
            self.flags |= flags::FRAGMENT_FIRST;
        }
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        if total < length {
            self.note(HeaderFault::TotalLengthShort);
        } else {
            self.bound(l3 + total);
        }
        if l3 + length > usize::from(self.end) {
            self.flags |= flags::TRUNCATED;
        }
        self.rest_from(l3 + length);
    }

    fn parse_ipv6<B: Bytes + ?Sized>(&mut self, bytes: &B) {
        let l3 = usize::from(self.l3);
        let start = l3 + ipv6::FIXED_LEN;
        let fixed = bytes.array::<8>(l3).filter(|_| start <= usize::from(self.end));
        let Some([version, _, _, _, p0, p1, next, _]) = fixed else {
            self.flags |= flags::TRUNCATED;
            return;
        };
        self.proto = next;
        if version >> 4 != 6 {
            return self.note(HeaderFault::Version);
        }
        self.bound(start + usize::from(u16::from_be_bytes([p0, p1])));
        let chain = ipv6::walk(bytes, start, next, usize::from(self.end));
        self.proto = chain.proto;
        if chain.any {
            self.flags |= flags::OPTIONS;
        }
        if chain.later {
            self.flags |= flags::FRAGMENT_LATER;
        } else if chain.more {
            self.flags |= flags::FRAGMENT_FIRST;
        }
        self.fragment_header = chain.fragment.map_or(0, short);
        if let Some(fault) = chain.fault {
            self.note(fault);
        }
        // A chain that the capture cut is not known to be wrong; one that its own length cut is.
        if chain.cut && !self.is_truncated() {
            self.note(HeaderFault::ExtensionCut);
        }
        self.rest_from(chain.at);
    }

    fn parse_transport<B: Bytes + ?Sized>(&mut self, bytes: &B) {
        let readable = match self.fault {
            None | Some(HeaderFault::HopByHopMisplaced) => true,
            Some(_) => false,
        };
        if !self.is_ip() || !readable || self.has(flags::FRAGMENT_LATER) {
            return;
        }
        let l4 = usize::from(self.l4);
        let room = usize::from(self.end).saturating_sub(l4);
        let least = match (self.proto, self.kind) {
            (proto::TCP, _) => 20,
            (proto::UDP, _) | (proto::ICMP, L3::Ipv4) | (proto::ICMPV6, L3::Ipv6) => 8,
            (proto::SCTP, _) => 12,
            _ => return,
        };
        if room < least {
            return self.transport_cut();
        }
        let length = match self.proto {
            proto::TCP => match bytes.u8(l4 + 12).map(|b| usize::from(b >> 4) * 4) {
                Some(length) if length >= least => length,
                _ => return self.note(HeaderFault::TcpDataOffset),
            },
            proto::UDP => {
                let length = bytes.be16(l4 + 4).map_or(0, usize::from);
                let whole = !self.has(flags::TRUNCATED | flags::FRAGMENT_FIRST);
                if length < least || whole && length > room {
                    return self.note(HeaderFault::UdpLength);
                }
                least
            }
            _ => least,
        };
        if room < length {
            return self.transport_cut();
        }
        self.flags |= flags::L4;
        self.payload = short(l4 + length);
    }

    /// The transport header is not all there. A first fragment may be that short (RFC 1858 calls
    /// it an attack, but reassembly would still find the header), and so may a cut capture.
    fn transport_cut(&mut self) {
        if !self.has(flags::TRUNCATED | flags::FRAGMENT_FIRST) {
            self.note(HeaderFault::TransportCut);
        }
    }
}
