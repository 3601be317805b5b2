//! Putting a [`Frame`]'s bytes in place.

use super::{Frame, Network, Transport};
use crate::checksum::{Sum, checksum, pseudo_v4, pseudo_v6};
use crate::headers::{ETHERNET_LEN, ether_type, proto};

/// Writes one piece after the other; `None` when there is no more room.
struct Cursor<'b> {
    out: &'b mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.at..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }

    fn zeros(&mut self, count: usize) -> Option<()> {
        self.out.get_mut(self.at..)?.get_mut(..count)?.fill(0);
        self.at += count;
        Some(())
    }

    fn written(&self, from: usize) -> &[u8] {
        self.out.get(from..self.at).unwrap_or_default()
    }

    fn patch(&mut self, at: usize, word: u16) -> Option<()> {
        self.out.get_mut(at..)?.get_mut(..2)?.copy_from_slice(&word.to_be_bytes());
        Some(())
    }
}

/// Length of an extension header with this body, and what its length byte says.
fn extension_len(kind: u8, body: &[u8]) -> (usize, u8) {
    let unit = if kind == proto::AH { 4 } else { 8 };
    let len = (body.len() + 2).next_multiple_of(8);
    let less = if kind == proto::AH { 2 } else { 1 };
    (len, u8::try_from(len / unit).unwrap_or(u8::MAX).saturating_sub(less))
}

impl Frame<'_> {
    /// The frame's length in bytes, padding included.
    pub fn len(&self) -> usize {
        let len = self.transport_offset() + self.transport_len() + self.payload.len();
        len.max(self.pad_to)
    }

    /// Never true: a frame has at least its Ethernet header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the frame at the beginning of `out` and says how long it is; `None` when it does not
    /// fit, or does not fit into the 16-bit length of its IP header.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let mut cursor = Cursor { out, at: 0 };
        cursor.put(&self.destination)?;
        cursor.put(&self.source)?;
        for (tpid, tci) in self.tags.iter().take(self.tag_count) {
            cursor.put(&tpid.to_be_bytes())?;
            cursor.put(&tci.to_be_bytes())?;
        }
        match self.network {
            Network::Ipv4 { source, destination } => {
                self.put_ipv4(&mut cursor)?;
                self.put_transport(&mut cursor, |proto, len| {
                    pseudo_v4(source, destination, proto, len)
                })?;
            }
            Network::Ipv6 { source, destination } => {
                self.put_ipv6(&mut cursor)?;
                self.put_transport(&mut cursor, |proto, len| {
                    pseudo_v6(source, destination, proto, len.into())
                })?;
            }
            Network::Other(kind) => {
                cursor.put(&kind.to_be_bytes())?;
                cursor.put(self.payload)?;
            }
        }
        cursor.zeros(self.pad_to.saturating_sub(cursor.at))?;
        Some(cursor.at)
    }

    /// Where the transport header begins.
    pub(super) fn transport_offset(&self) -> usize {
        let link = ETHERNET_LEN + 4 * self.tag_count;
        match self.network {
            Network::Ipv4 { .. } => link + 20 + self.options.len().next_multiple_of(4),
            Network::Ipv6 { .. } => link + 40 + self.extensions_len(),
            Network::Other(_) => link,
        }
    }

    pub(super) fn transport_len(&self) -> usize {
        match (self.network, self.transport) {
            (Network::Other(_), _) | (_, Transport::Raw(_)) => 0,
            (_, Transport::Tcp { .. }) => 20,
            (_, Transport::Udp { .. } | Transport::Icmp { .. }) => 8,
        }
    }

    fn extensions_len(&self) -> usize {
        let fragment = if self.piece.is_some() { 8 } else { 0 };
        self.extensions.iter().map(|(kind, body)| extension_len(*kind, body).0).sum::<usize>()
            + fragment
    }

    fn put_ipv4(&self, cursor: &mut Cursor) -> Option<()> {
        let Network::Ipv4 { source, destination } = self.network else {
            return None;
        };
        let header = 20 + self.options.len().next_multiple_of(4);
        let total = u16::try_from(header + self.transport_len() + self.payload.len()).ok()?;
        let fragment =
            self.piece.map_or(0, |piece| (piece.offset / 8) | (u16::from(piece.more) << 13));
        cursor.put(&ether_type::IPV4.to_be_bytes())?;
        let start = cursor.at;
        cursor.put(&[0x40 | u8::try_from(header / 4).ok()?, 0])?;
        cursor.put(&total.to_be_bytes())?;
        cursor.put(&(self.id as u16).to_be_bytes())?;
        cursor.put(&fragment.to_be_bytes())?;
        cursor.put(&[self.ttl, self.protocol(), 0, 0])?;
        cursor.put(&source.octets())?;
        cursor.put(&destination.octets())?;
        cursor.put(self.options)?;
        cursor.zeros(header - 20 - self.options.len())?;
        let check = checksum(cursor.written(start));
        cursor.patch(start + 10, check)
    }

    fn put_ipv6(&self, cursor: &mut Cursor) -> Option<()> {
        let Network::Ipv6 { source, destination } = self.network else {
            return None;
        };
        let length = self.extensions_len() + self.transport_len() + self.payload.len();
        // What follows each header: the next extension, then a fragment header if there is one.
        let last = if self.piece.is_some() { proto::FRAGMENT } else { self.protocol() };
        let after = |index: usize| self.extensions.get(index).map_or(last, |(kind, _)| *kind);
        cursor.put(&ether_type::IPV6.to_be_bytes())?;
        cursor.put(&[0x60, 0, 0, 0])?;
        cursor.put(&u16::try_from(length).ok()?.to_be_bytes())?;
        cursor.put(&[after(0), self.ttl])?;
        cursor.put(&source.octets())?;
        cursor.put(&destination.octets())?;
        for (index, (kind, body)) in self.extensions.iter().enumerate() {
            let (len, units) = extension_len(*kind, body);
            cursor.put(&[after(index + 1), units])?;
            cursor.put(body)?;
            cursor.zeros(len - 2 - body.len())?;
        }
        if let Some(piece) = self.piece {
            cursor.put(&[self.protocol(), 0])?;
            cursor.put(&(piece.offset & !7 | u16::from(piece.more)).to_be_bytes())?;
            cursor.put(&self.id.to_be_bytes())?;
        }
        Some(())
    }

    /// Transport header and payload; `pseudo` gives the pseudo header for a protocol and length.
    fn put_transport(&self, cursor: &mut Cursor, pseudo: impl Fn(u8, u16) -> Sum) -> Option<()> {
        let start = cursor.at;
        let len = u16::try_from(self.transport_len() + self.payload.len()).ok()?;
        let check_at = match self.transport {
            Transport::Raw(_) => None,
            Transport::Udp { ports: (source, destination) } => {
                cursor.put(&source.to_be_bytes())?;
                cursor.put(&destination.to_be_bytes())?;
                cursor.put(&len.to_be_bytes())?;
                cursor.put(&[0, 0])?;
                Some(6)
            }
            Transport::Tcp { ports: (source, destination), seq, ack, flags } => {
                cursor.put(&source.to_be_bytes())?;
                cursor.put(&destination.to_be_bytes())?;
                cursor.put(&seq.to_be_bytes())?;
                cursor.put(&ack.to_be_bytes())?;
                // 5 words of header, a full window, no checksum yet, no urgent pointer.
                cursor.put(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0])?;
                Some(16)
            }
            Transport::Icmp { kind, code, rest } => {
                cursor.put(&[kind, code, 0, 0])?;
                cursor.put(&rest)?;
                Some(2)
            }
        };
        cursor.put(self.payload)?;
        let Some(check_at) = check_at else {
            return Some(());
        };
        let proto = self.protocol();
        let mut sum = if proto == proto::ICMP { Sum::default() } else { pseudo(proto, len) };
        sum.add_slice(cursor.written(start));
        let check = match (sum.finish(), proto) {
            // UDP sends a zero checksum as all ones: zero says that there is none (RFC 768).
            (0, proto::UDP) => 0xffff,
            (check, _) => check,
        };
        cursor.patch(start + check_at, check)
    }
}
