//! Writes addresses and ports, and keeps checksums right (RFC 1624).

use std::net::{IpAddr, Ipv4Addr};
use weir_nf::checksum::{update_u16, update_u32};
use weir_nf::headers::{PlainV4, proto};
use weir_nf::{Bytes, Field, Fragment, L3, LayerAccess, Layers, Pkt, ReadWrite, Touch};

/// What whoever rewrites addresses and ports reads and writes.
pub(crate) const LAYERS: LayerAccess = LayerAccess {
    l2: Touch::Read,
    l3: Touch::Write,
    l4: Touch::Write,
    // What ICMP errors quote.
    payload: Touch::Write,
};

/// The same by fields.
pub(crate) const FIELDS: &[(Field, Touch)] = &[
    (Field::EthType, Touch::Read),
    (Field::Vlan, Touch::Read),
    (Field::IpSrc, Touch::Write),
    (Field::IpDst, Touch::Write),
    (Field::IpProto, Touch::Read),
    (Field::IpLength, Touch::Read),
    (Field::IpOther, Touch::Read),
];

/// Which end of a packet is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Where it is from.
    Source,
    /// Where it goes.
    Destination,
}

/// A packet's headers, or those of a packet that an ICMP error quotes: places in bytes from the frame's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headers {
    /// IPv6; otherwise IPv4.
    pub v6: bool,
    /// The IP header.
    pub l3: usize,
    /// The transport header; none in later fragments.
    pub l4: Option<usize>,
    /// The protocol.
    pub proto: u8,
    /// Nothing from here on is written.
    pub end: usize,
}

impl Headers {
    /// Those of an IP packet.
    pub fn of(layers: &Layers) -> Self {
        let l4 = (layers.fragment() != Fragment::Later).then_some(usize::from(layers.l4));
        let (l3, end) = (usize::from(layers.l3), usize::from(layers.end));
        Headers { v6: layers.kind == L3::Ipv6, l3, l4, proto: layers.proto, end }
    }
}

/// Words that were written: what checksums over them need to know.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    words: [(u16, u16); 16],
    len: usize,
}

impl Written {
    #[inline]
    fn push(&mut self, old: u16, new: u16) {
        if let Some(word) = self.words.get_mut(self.len) {
            *word = (old, new);
            self.len += 1;
        }
    }

    /// What a checksum over these words becomes.
    #[inline]
    fn update(&self, check: u16) -> u16 {
        let words = self.words.iter().take(self.len);
        words.fold(check, |check, (old, new)| update_u16(check, *old, *new))
    }
}

/// Writes one address, and IPv4's header checksum: what was written of the address, and in all. `None` for an address of
/// the other family, or a packet that ends before it.
#[inline]
pub(crate) fn readdress(
    packet: &mut Pkt<'_, ReadWrite>,
    headers: &Headers,
    which: Which,
    address: IpAddr,
) -> Option<(Written, Written)> {
    let Headers { v6, l3, end, .. } = *headers;
    let is_source = which == Which::Source;
    let mut written = Written::default();
    match address {
        IpAddr::V4(address) if !v6 => {
            let at = l3 + if is_source { 12 } else { 16 };
            let [high, low] = [(address.to_bits() >> 16) as u16, address.to_bits() as u16];
            for (at, word) in [(at, high), (at + 2, low)] {
                let old = put(packet, at, word, end)?;
                written.push(old, word);
            }
            let mut all = written;
            let old = get(packet, l3 + 10, end)?;
            put_and_note(packet, l3 + 10, written.update(old), end, &mut all);
            Some((written, all))
        }
        IpAddr::V6(address) if v6 => {
            let at = l3 + if is_source { 8 } else { 24 };
            for (n, word) in address.segments().into_iter().enumerate() {
                let old = put(packet, at + 2 * n, word, end)?;
                written.push(old, word);
            }
            Some((written, written))
        }
        _ => None,
    }
}

/// Writes one end of the packet. Gives what was written, checksums included.
#[inline]
pub(crate) fn rewrite(
    packet: &mut Pkt<'_, ReadWrite>,
    headers: &Headers,
    which: Which,
    (address, port): (IpAddr, u16),
) -> Option<Written> {
    let Headers { l4, proto, end, .. } = *headers;
    let (addresses, mut all) = readdress(packet, headers, which, address)?;
    let Some(l4) = l4 else { return Some(all) };
    let (port_at, check_at) = match (proto, which) {
        (proto::ICMP | proto::ICMPV6, _) => (l4 + 4, l4 + 2),
        (proto::TCP, Which::Source) => (l4, l4 + 16),
        (proto::TCP, Which::Destination) => (l4 + 2, l4 + 16),
        (_, Which::Source) => (l4, l4 + 6),
        (_, Which::Destination) => (l4 + 2, l4 + 6),
    };
    // ICMP's checksum has no pseudo header; ICMPv6's has one.
    let mut covered = if proto == proto::ICMP { Written::default() } else { addresses };
    let old = put(packet, port_at, port, end)?;
    covered.push(old, port);
    all.push(old, port);
    // A quote may end before it; UDP may be without.
    let check = get(packet, check_at, end).filter(|check| proto != proto::UDP || *check != 0);
    if let Some(check) = check {
        let new = match covered.update(check) {
            0 if proto == proto::UDP => 0xffff,
            new => new,
        };
        put_and_note(packet, check_at, new, end, &mut all);
    }
    Some(all)
}

/// As [`rewrite`] of a plain packet, without telling what was written.
#[inline]
pub(crate) fn rewrite_plain(
    packet: &mut Pkt<'_, ReadWrite>,
    plain: &PlainV4,
    which: Which,
    (address, port): (Ipv4Addr, u16),
) -> Option<()> {
    // Of an untagged packet without IP options.
    const IP_CHECK: usize = 24;
    const L4: usize = 34;
    let (address_at, old_address, port_at, old_port) = match which {
        Which::Source => (26, plain.source, L4, plain.ports.0),
        Which::Destination => (30, plain.destination, L4 + 2, plain.ports.1),
    };
    let is_udp = plain.proto() == proto::UDP;
    let check_at = L4 + if is_udp { 6 } else { 16 };
    let mut bytes = packet.bytes_mut()?;
    let (ip_check, check) = (bytes.as_read().be16(IP_CHECK)?, bytes.as_read().be16(check_at)?);
    let new_address = address.to_bits();
    bytes.set_ne32(address_at, new_address.to_be());
    bytes.set_ne16(port_at, port.to_be());
    bytes.set_ne16(IP_CHECK, update_u32(ip_check, old_address, new_address).to_be());
    // UDP may be without.
    if !is_udp || check != 0 {
        let of_address = update_u32(check, old_address, new_address);
        let new = match update_u16(of_address, old_port, port) {
            0 if is_udp => 0xffff,
            new => new,
        };
        bytes.set_ne16(check_at, new.to_be());
    }
    Some(())
}

/// Corrects the checksum of an ICMP or ICMPv6 message after words that it covers were written.
pub(crate) fn correct(packet: &mut Pkt<'_, ReadWrite>, l4: usize, end: usize, written: &Written) {
    if let Some(check) = get(packet, l4 + 2, end) {
        put(packet, l4 + 2, written.update(check), end);
    }
}

#[inline]
fn get(packet: &Pkt<'_, ReadWrite>, at: usize, end: usize) -> Option<u16> {
    packet.bytes().be16(at).filter(|_| at + 2 <= end)
}

/// Writes a word; gives the old one.
#[inline]
fn put(packet: &mut Pkt<'_, ReadWrite>, at: usize, word: u16, end: usize) -> Option<u16> {
    let old = get(packet, at, end)?;
    packet.bytes_mut()?.set_ne16(at, word.to_be()).then_some(old)
}

#[inline]
fn put_and_note(
    packet: &mut Pkt<'_, ReadWrite>,
    at: usize,
    word: u16,
    end: usize,
    all: &mut Written,
) {
    if let Some(old) = put(packet, at, word, end) {
        all.push(old, word);
    }
}
