//! Cutting super-packets into segments: what hardware calls TSO (for TCP) and USO (for UDP).

use super::checksum::stored;
use super::{GsoKind, OffloadError, VnetHeader};
use std::net::IpAddr;
use std::ops::Range;
use weir_packet::checksum::{Sum, checksum, pseudo_v4, pseudo_v6};
use weir_packet::headers::{proto, tcp};
use weir_packet::{Depth, Fragment, L3, Layers, parse};

/// A super-packet whose headers were checked. It does not hold the frame: the caller brings the
/// same bytes to each call, so that cutting can be left and taken up again.
#[derive(Debug, Clone, Copy)]
pub struct Gso {
    layers: Layers,
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
        let layers = parse(frame, Depth::L4);
        let fits = match kind {
            GsoKind::TcpV4 => layers.kind == L3::Ipv4 && layers.proto == proto::TCP,
            GsoKind::TcpV6 => layers.kind == L3::Ipv6 && layers.proto == proto::TCP,
            GsoKind::Udp => layers.is_ip() && layers.proto == proto::UDP,
        };
        let whole = layers.has_l4() && !layers.is_truncated() && layers.fault.is_none();
        if !fits || !whole {
            return Err(OffloadError::Headers);
        }
        if layers.fragment() != Fragment::Whole || layers.fragment_header != 0 {
            return Err(OffloadError::Fragment);
        }
        let size = usize::from(header.gso_size);
        let mut gso = Gso { layers, size, seed: None };
        gso.seed = gso.pseudo_header(frame, header)?;
        Ok(Some(gso))
    }

    /// The sum of everything in the pseudo header that all segments share.
    fn pseudo_header(
        &self,
        frame: &[u8],
        header: &VnetHeader,
    ) -> Result<Option<Sum>, OffloadError> {
        let (l4, at) = (usize::from(self.layers.l4), self.checksum_at());
        let there = be16(frame, at).ok_or(OffloadError::Headers)?;
        if header.needs_checksum() {
            let place = usize::from(header.csum_start) + usize::from(header.csum_offset);
            if usize::from(header.csum_start) != l4 || place != at {
                return Err(OffloadError::ChecksumPlace);
            }
            // It stands in the checksum's place, with the whole length. It is taken from there and
            // not made of the addresses, as a routing header changes which ones count.
            let mut sum = Sum::default();
            sum.add_u16(there);
            sum.add_u16(!(self.l4_len() as u16));
            return Ok(Some(sum));
        }
        if there == 0 && self.layers.proto == proto::UDP && self.layers.kind == L3::Ipv4 {
            return Ok(None);
        }
        let proto = self.layers.proto;
        Ok(Some(match self.layers.ips(frame).ok_or(OffloadError::Headers)? {
            (IpAddr::V4(a), IpAddr::V4(b)) => pseudo_v4(a, b, proto, 0),
            (IpAddr::V6(a), IpAddr::V6(b)) => pseudo_v6(a, b, proto, 0),
            _ => return Err(OffloadError::Headers),
        }))
    }

    /// Bytes of transport header and payload.
    fn l4_len(&self) -> usize {
        usize::from(self.layers.end.saturating_sub(self.layers.l4))
    }

    fn checksum_at(&self) -> usize {
        usize::from(self.layers.l4) + if self.layers.proto == proto::TCP { 16 } else { 6 }
    }

    /// How many segments there are: at least one.
    pub fn segments(&self) -> usize {
        self.layers.payload_len().div_ceil(self.size).max(1)
    }

    /// Length of segment `index` in bytes, headers and all.
    pub fn len(&self, index: usize) -> usize {
        usize::from(self.layers.payload) + self.payload(index).len()
    }

    fn payload(&self, index: usize) -> Range<usize> {
        let end = usize::from(self.layers.end);
        let from = (usize::from(self.layers.payload) + index * self.size).min(end);
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
        let headers = frame.get(..usize::from(self.layers.payload));
        head.clear();
        head.extend_from_slice(headers.ok_or(OffloadError::Headers)?);
        let payload = self.payload(index);
        let bytes = frame.get(payload.clone()).ok_or(OffloadError::Headers)?;
        let last = index + 1 >= self.segments();
        self.network(head, index, bytes.len());
        self.transport(head, index, last, bytes);
        Ok(payload)
    }

    /// Length; for IPv4 identification and header checksum too.
    fn network(&self, head: &mut [u8], index: usize, payload: usize) {
        let (l3, l4) = (usize::from(self.layers.l3), usize::from(self.layers.l4));
        let behind = usize::from(self.layers.payload) + payload;
        if self.layers.kind == L3::Ipv6 {
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

    /// TCP: sequence number and flags; UDP: length; both: checksum.
    fn transport(&self, head: &mut [u8], index: usize, last: bool, payload: &[u8]) {
        let l4 = usize::from(self.layers.l4);
        let len = head.len() - l4 + payload.len();
        if self.layers.proto == proto::TCP {
            let seq = head.get(l4 + 4..l4 + 8).and_then(|b| b.first_chunk::<4>());
            let seq = u32::from_be_bytes(seq.copied().unwrap_or_default());
            let seq = seq.wrapping_add((index * self.size) as u32);
            if let Some(to) = head.get_mut(l4 + 4..l4 + 8) {
                to.copy_from_slice(&seq.to_be_bytes());
            }
            if let Some(flags) = head.get_mut(l4 + 13) {
                if !last {
                    *flags &= !(tcp::FIN | tcp::PSH);
                }
                if index > 0 {
                    *flags &= !tcp::CWR;
                }
            }
        } else {
            put16(head, l4 + 4, len as u16);
        }
        let Some(mut sum) = self.seed else { return };
        put16(head, self.checksum_at(), 0);
        sum.add_u16(len as u16);
        sum.add_slice(head.get(l4..).unwrap_or_default());
        sum.add_slice(payload);
        put16(head, self.checksum_at(), stored(sum));
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().map(|b| u16::from_be_bytes(*b))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(to) = bytes.get_mut(at..at + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}
