//! The short way for plain packets: untagged IPv4 without options, TCP or UDP, whole.
//!
//! Nearly every packet of most networks is one. All that filters ask of it stands in 40 bytes at fixed places, which
//! are read once, eight at a time; what is not plain goes the general way ([`parse`](super::parse)).

use crate::Bytes;

/// What a plain packet says: the same as [`Layers`](super::Layers) at depth L4 and its accessors say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainV4 {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// TCP flags; `None` for UDP.
    pub tcp_flags: Option<u8>,
    /// Start of what follows the transport header, in bytes from the start of the packet.
    pub payload: usize,
    /// End of the IP packet: Ethernet padding may follow.
    pub end: usize,
    /// The second and third eight bytes that the transport header is part of, from byte 36 and 44 on.
    words: (u64, u64),
}

impl PlainV4 {
    /// TCP's sequence number; of UDP it is something else, as are the next two.
    #[inline]
    pub fn seq(&self) -> u32 {
        (self.words.0 >> 16) as u32
    }

    /// TCP's acknowledgment number.
    #[inline]
    pub fn ack(&self) -> u32 {
        (self.words.0 << 16) as u32 | (self.words.1 >> 48) as u32
    }

    /// TCP's window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        (self.words.1 >> 16) as u16
    }

    /// The protocol: TCP or UDP.
    #[inline]
    pub fn proto(&self) -> u8 {
        if self.tcp_flags.is_some() { super::proto::TCP } else { super::proto::UDP }
    }
}

/// Start of the transport header.
const L4: usize = 34;

/// The packet's fields when it is plain and no length in it contradicts another. `None` says nothing.
#[inline(always)]
pub fn plain_v4<B: Bytes + ?Sized>(bytes: &B) -> Option<PlainV4> {
    // The last first: its bounds check is the others' too.
    let word = |at| bytes.array::<8>(at).map(u64::from_be_bytes);
    let (e, d, c) = (word(44)?, word(36)?, word(28)?);
    let (b, a) = (word(20)?, word(12)?);
    // EtherType, version and header length; fragment offset and "more fragments".
    if a >> 40 != 0x08_0045 || b >> 48 & 0x3fff != 0 {
        return None;
    }
    let end = 14 + usize::from((a >> 16) as u16);
    let tcp = match (b >> 32) as u8 {
        super::proto::TCP => true,
        super::proto::UDP => false,
        _ => return None,
    };
    let data_offset = (e >> 44) as usize % 16 * 4;
    let udp_length = usize::from((d >> 32) as u16);
    let header = if tcp { data_offset } else { 8 };
    let reach = if tcp { data_offset } else { udp_length };
    let least = if tcp { 20 } else { 8 };
    if end > bytes.len() || reach < least || L4 + reach > end {
        return None;
    }
    Some(PlainV4 {
        source: (b as u32) << 16 | (c >> 48) as u32,
        destination: (c >> 16) as u32,
        ports: (c as u16, (d >> 48) as u16),
        tcp_flags: tcp.then_some((e >> 32) as u8),
        payload: L4 + header,
        end,
        words: (d, e),
    })
}

/// True when [`check_ip`](super::check_ip) accepts the packet for certain: untagged, all of its header captured,
/// without options or extension headers, no length beyond the captured bytes. False says nothing.
#[inline(always)]
pub fn is_plainly_sound<B: Bytes + ?Sized>(bytes: &B) -> bool {
    let word = |at| bytes.array::<8>(at).map(u64::from_be_bytes);
    let (Some(c), Some(b), Some(a)) = (word(28), word(20), word(12)) else {
        return false;
    };
    let captured = bytes.len().saturating_sub(14);
    if a >> 40 == 0x08_0045 {
        let total = usize::from((a >> 16) as u16);
        // Header words, without what stands before and behind: EtherType and source port.
        let (a, c) = (a & 0xffff_ffff_ffff, c & !0xffff);
        // 2^16 is 1 modulo 2^16 - 1, so pieces of 32 bits may be added and folded later (RFC 1071 §2).
        let halves = |number: u64| (number >> 32) + (number & 0xffff_ffff);
        let sum = halves(halves(a) + halves(b) + halves(c));
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        return sum == 0xffff && (20..=captured).contains(&total);
    }
    a >> 44 == 0x8_6dd6 && sound_v6(bytes, captured)
}

#[inline]
fn sound_v6<B: Bytes + ?Sized>(bytes: &B, captured: usize) -> bool {
    let Some([p0, p1, next, _]) = bytes.array::<4>(18) else { return false };
    let length = super::ipv6::FIXED_LEN + usize::from(u16::from_be_bytes([p0, p1]));
    length <= captured && !super::ipv6::is_extension(next)
}
