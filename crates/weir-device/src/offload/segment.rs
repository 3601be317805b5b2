//! Cutting super-packets into segments: what hardware calls TSO (for TCP) and USO (for UDP).

use super::checksum::stored;
use super::nested::{Nested, gre_has_checksum};
use super::{GsoKind, OffloadError, VnetHeader};
use std::net::IpAddr;
use std::ops::Range;
use weir_packet::checksum::{Sum, checksum, pseudo_v4, pseudo_v6};
use weir_packet::headers::{proto, tcp};
use weir_packet::{L3, Layers};

/// A super-packet whose headers were checked. It does not hold the frame: the caller brings the
/// same bytes to each call, so that cutting can be left and taken up again.
#[derive(Debug, Clone, Copy)]
pub struct Gso {
    nested: Nested,
    /// Payload bytes per segment.
    size: usize,
    /// Sum of the pseudo header without the length; `None`: packets carry no checksum.
    seed: Option<Sum>,
}

impl Gso {
    /// Checks `frame` against `header`; `None` when it is not to be cut.
    pub fn new(frame: &[u8], header: &VnetHeader) -> Result<Option<Self>, OffloadError> {
        let Some(kind) = header.gso()? else {
            return Ok(None);
        };
        if header.gso_size == 0 {
            return Err(OffloadError::NoSize);
        }
        // Of a packet in a tunnel the kernel leaves the checksum, too.
        let start = header.needs_checksum().then_some(header.csum_start);
        let nested = Nested::find(frame, start)?;
        let layers = &nested.inner;
        let fits = match kind {
            GsoKind::TcpV4 => layers.kind == L3::Ipv4 && layers.proto == proto::TCP,
            GsoKind::TcpV6 => layers.kind == L3::Ipv6 && layers.proto == proto::TCP,
            GsoKind::Udp => layers.proto == proto::UDP,
        };
        if !fits || !layers.has_l4() {
            return Err(OffloadError::Headers);
        }
        let seed = seed(frame, layers, header)?;
        Ok(Some(Gso { nested, size: usize::from(header.gso_size), seed }))
    }

    /// How many segments there are: at least one.
    pub fn segments(&self) -> usize {
        self.nested.inner.payload_len().div_ceil(self.size).max(1)
    }

    /// Length of segment `index` in bytes, headers and all.
    pub fn len(&self, index: usize) -> usize {
        usize::from(self.nested.inner.payload) + self.payload(index).len()
    }

    fn payload(&self, index: usize) -> Range<usize> {
        let layers = &self.nested.inner;
        let end = usize::from(layers.end);
        let from = (usize::from(layers.payload) + index * self.size).min(end);
        from..(from + self.size).min(end)
    }

    /// Makes segment `index` of `frame`, which must be the frame that this was made of: its headers
    /// go to `head` (what was in it is lost); its payload is the piece of the frame that is returned.
    pub fn cut(
        &self,
        frame: &[u8],
        index: usize,
        head: &mut Vec<u8>,
    ) -> Result<Range<usize>, OffloadError> {
        let inner = &self.nested.inner;
        let headers = frame.get(..usize::from(inner.payload));
        head.clear();
        head.extend_from_slice(headers.ok_or(OffloadError::Headers)?);
        let place = self.payload(index);
        let bytes = frame.get(place.clone()).ok_or(OffloadError::Headers)?;
        let mut payload = Sum::default();
        payload.add_slice(bytes);
        let payload = Payload { len: bytes.len(), sum: !payload.finish() };
        // From the inside out: what is outside may have a checksum over what is inside.
        self.transport(head, index, &payload);
        network(head, inner, index, payload.len);
        for layers in self.nested.around().iter().rev() {
            carrier(head, layers, &payload);
            network(head, layers, index, payload.len);
        }
        Ok(place)
    }

    /// TCP: sequence number and flags; UDP: length; both: checksum.
    fn transport(&self, head: &mut [u8], index: usize, payload: &Payload) {
        let layers = &self.nested.inner;
        let l4 = usize::from(layers.l4);
        let len = head.len() - l4 + payload.len;
        if layers.proto == proto::TCP {
            let seq = head.get(l4 + 4..l4 + 8).and_then(|b| b.first_chunk::<4>());
            let seq = u32::from_be_bytes(seq.copied().unwrap_or_default());
            let seq = seq.wrapping_add((index * self.size) as u32);
            if let Some(to) = head.get_mut(l4 + 4..l4 + 8) {
                to.copy_from_slice(&seq.to_be_bytes());
            }
            if let Some(flags) = head.get_mut(l4 + 13) {
                if index + 1 < self.segments() {
                    *flags &= !(tcp::FIN | tcp::PSH);
                }
                if index > 0 {
                    *flags &= !tcp::CWR;
                }
            }
        } else {
            put16(head, l4 + 4, len as u16);
        }
        if let Some(mut sum) = self.seed {
            sum.add_u16(len as u16);
            put_checksum(head, l4, checksum_at(layers), sum, payload);
        }
    }
}

/// What of a segment is behind its headers.
struct Payload {
    len: usize,
    /// Sum of its bytes, folded.
    sum: u16,
}

/// The sum of everything in the pseudo header that all segments share.
fn seed(frame: &[u8], layers: &Layers, header: &VnetHeader) -> Result<Option<Sum>, OffloadError> {
    let at = checksum_at(layers);
    let there = be16(frame, at).ok_or(OffloadError::Headers)?;
    if header.needs_checksum() {
        if usize::from(header.csum_start) + usize::from(header.csum_offset) != at {
            return Err(OffloadError::ChecksumPlace);
        }
        return Ok(Some(left_over(there, l4_len(layers) as u16)));
    }
    if there == 0 && layers.proto == proto::UDP && layers.kind == L3::Ipv4 {
        return Ok(None);
    }
    Ok(Some(match layers.ips(frame).ok_or(OffloadError::Headers)? {
        (IpAddr::V4(a), IpAddr::V4(b)) => pseudo_v4(a, b, layers.proto, 0),
        (IpAddr::V6(a), IpAddr::V6(b)) => pseudo_v6(a, b, layers.proto, 0),
        _ => return Err(OffloadError::Headers),
    }))
}

/// The pseudo header's sum without the length, from where the kernel leaves it with the whole length: in
/// the checksum's place. It is not made of the addresses, as a routing header changes which ones count.
fn left_over(there: u16, whole_len: u16) -> Sum {
    let mut sum = Sum::default();
    sum.add_u16(there);
    sum.add_u16(!whole_len);
    sum
}

/// Bytes of transport header and payload.
fn l4_len(layers: &Layers) -> usize {
    usize::from(layers.end.saturating_sub(layers.l4))
}

fn checksum_at(layers: &Layers) -> usize {
    usize::from(layers.l4) + if layers.proto == proto::TCP { 16 } else { 6 }
}

/// Length; for IPv4 identification and header checksum too.
fn network(head: &mut [u8], layers: &Layers, index: usize, payload: usize) {
    let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
    let behind = head.len() + payload;
    if layers.kind == L3::Ipv6 {
        const HEADER: usize = 40;
        put16(head, l3 + 4, (behind - l3 - HEADER) as u16);
        return;
    }
    put16(head, l3 + 2, (behind - l3) as u16);
    let id = be16(head, l3 + 4).unwrap_or(0);
    put16(head, l3 + 4, id.wrapping_add(index as u16));
    put16(head, l3 + 10, 0);
    let sum = checksum(head.get(l3..l4).unwrap_or_default());
    put16(head, l3 + 10, sum);
}

/// The header by which a packet carries another: UDP's length, and the checksum if it has one.
fn carrier(head: &mut [u8], layers: &Layers, payload: &Payload) {
    let l4 = usize::from(layers.l4);
    let len = (head.len() - l4 + payload.len) as u16;
    match layers.proto {
        proto::UDP => {
            put16(head, l4 + 4, len);
            let at = checksum_at(layers);
            let there = be16(head, at).unwrap_or(0);
            // Without one, also where IPv6 has it so (RFC 6935), it stays without.
            if there != 0 {
                let mut sum = left_over(there, l4_len(layers) as u16);
                sum.add_u16(len);
                put_checksum(head, l4, at, sum, payload);
            }
        }
        proto::GRE if gre_has_checksum(head, l4) => {
            put_checksum(head, l4, l4 + 4, Sum::default(), payload);
        }
        _ => {}
    }
}

/// Puts at `at` the checksum of everything from `from` on, begun with `sum`.
fn put_checksum(head: &mut [u8], from: usize, at: usize, mut sum: Sum, payload: &Payload) {
    put16(head, at, 0);
    // Headers have even lengths, so the payload begins with a whole word.
    sum.add_slice(head.get(from..).unwrap_or_default());
    sum.add_u16(payload.sum);
    put16(head, at, stored(sum));
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().map(|b| u16::from_be_bytes(*b))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(to) = bytes.get_mut(at..at + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}
