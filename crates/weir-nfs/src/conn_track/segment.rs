//! What connection tracking reads of a TCP segment.

use weir_nf::headers::{PlainV4, proto, tcp};
use weir_nf::{Bytes, Fragment, L3, Layers};

/// A TCP segment's header, as far as connections depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number; counts with the flag ACK only.
    pub ack: u32,
    /// Window as sent, unscaled.
    pub window: u16,
    /// Flags: see [`weir_nf::headers::tcp`].
    pub flags: u8,
    /// Bytes of data, by the IP header's length: more may have been sent than was captured.
    pub len: u32,
    /// Window scale option of a SYN (RFC 7323 §2).
    pub scale: Option<u8>,
}

/// The largest window scale (RFC 7323 §2.3); larger ones count as this.
const MAX_SCALE: u8 = 14;

impl Segment {
    /// Reads the segment of a packet, the data of which may go on in later fragments. `None` when it
    /// has no whole TCP header. `layers` has depth L4.
    #[inline]
    pub fn read<B: Bytes>(bytes: &B, layers: &Layers) -> Option<Segment> {
        if !layers.has_l4() || layers.proto != proto::TCP || layers.fragment() == Fragment::Later {
            return None;
        }
        let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
        let payload = usize::from(layers.payload);
        let ip_end = match layers.kind {
            L3::Ipv4 => l3 + usize::from(bytes.be16(l3 + 2)?),
            _ => l3 + 40 + usize::from(bytes.be16(l3 + 4)?),
        };
        let flags = layers.tcp_flags(bytes)?;
        let scale = if flags & tcp::SYN == 0 { None } else { scale(bytes, l4 + 20, payload) };
        Some(Segment {
            seq: bytes.be32(l4 + 4)?,
            ack: bytes.be32(l4 + 8)?,
            window: bytes.be16(l4 + 14)?,
            flags,
            len: u32::try_from(ip_end.saturating_sub(payload)).ok()?,
            scale,
        })
    }

    /// The same of a plain packet, which has a whole TCP header with these flags.
    #[inline]
    pub fn of_plain<B: Bytes>(bytes: &B, plain: &PlainV4, flags: u8) -> Segment {
        const OPTIONS: usize = 54;
        let has_scale = flags & tcp::SYN != 0;
        Segment {
            seq: plain.seq(),
            ack: plain.ack(),
            window: plain.window(),
            flags,
            len: plain.end.saturating_sub(plain.payload) as u32,
            scale: if has_scale { scale(bytes, OPTIONS, plain.payload) } else { None },
        }
    }

    /// True when one of `flags` is set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// The sequence number behind its last byte; SYN and FIN count one each (RFC 9293 §3.4).
    #[inline]
    pub fn end(&self) -> u32 {
        let marks = u32::from(self.has(tcp::SYN)) + u32::from(self.has(tcp::FIN));
        self.seq.wrapping_add(self.len).wrapping_add(marks)
    }

    /// True for the combinations of flags that a TCP sends, whatever URG, PSH and ECN's bits say.
    pub fn has_sound_flags(&self) -> bool {
        let bits = self.flags & (tcp::SYN | tcp::FIN | tcp::RST | tcp::ACK);
        const SOUND: [u8; 6] = [
            tcp::SYN,
            tcp::SYN | tcp::ACK,
            tcp::ACK,
            tcp::FIN | tcp::ACK,
            tcp::RST,
            tcp::RST | tcp::ACK,
        ];
        SOUND.contains(&bits)
    }
}

/// The window scale option among those in `at..end` (RFC 9293 §3.1: kind, length, value).
fn scale<B: Bytes>(bytes: &B, mut at: usize, end: usize) -> Option<u8> {
    while at < end {
        match bytes.u8(at)? {
            0 => return None,
            1 => at += 1,
            3 if bytes.u8(at + 1)? == 3 && at + 3 <= end => {
                return bytes.u8(at + 2).map(|shift| shift.min(MAX_SCALE));
            }
            _ => at += usize::from(bytes.u8(at + 1)?).max(2),
        }
    }
    None
}
