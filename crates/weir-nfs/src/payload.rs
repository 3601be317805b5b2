//! TCP payload that may be HTTP, copied out of the packet.

use std::ops::Range;
use weir_nf::headers::{PlainV4, proto};
use weir_nf::{Access, Bytes, Depth, Layers, Pkt};

/// Where the payload of a TCP segment is, in bytes from the start of the packet: as far as
/// captured, without Ethernet padding. `None` for anything but TCP over IP, for later fragments
/// and for segments without payload.
#[inline]
pub(crate) fn tcp_payload(layers: &Layers) -> Option<Range<usize>> {
    let range = usize::from(layers.payload)..usize::from(layers.end);
    (layers.has_l4() && layers.proto == proto::TCP && !range.is_empty()).then_some(range)
}

/// As [`tcp_payload`], for a plain packet.
#[inline]
pub(crate) fn plain_tcp_payload(plain: &PlainV4) -> Option<Range<usize>> {
    (plain.tcp_flags.is_some() && plain.payload < plain.end).then_some(plain.payload..plain.end)
}

/// Whether a payload whose first bytes are these may begin with a request; false settles it.
#[inline]
pub(crate) fn may_be_request(first: u8) -> bool {
    matches!(first, b'A'..=b'Z' | b'\r' | b'\n')
}

/// A buffer for payloads, made once: 64 KiB, more than any packet has.
///
/// Parsers need a slice, and packet memory may change while it is looked at, so what is judged is
/// a copy. It is no state: nothing in it outlives the packet.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u8>);

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch(vec![0; 1 << 16])
    }

    /// The packet's TCP payload when it may begin with an HTTP request.
    #[inline]
    pub(crate) fn requests<A: Access>(&mut self, packet: &Pkt<'_, A>) -> Option<&[u8]> {
        let payload = tcp_payload(&packet.layers(Depth::L4))?;
        let first = packet.bytes().u8(payload.start)?;
        // Answers are the most common payload that starts with a capital letter.
        if !may_be_request(first) || packet.bytes().array(payload.start) == Some(*b"HTTP/") {
            return None;
        }
        self.copy(&packet.bytes(), payload)
    }

    /// The first `len` bytes of what was copied last.
    #[inline]
    pub(crate) fn copied(&self, len: usize) -> Option<&[u8]> {
        self.0.get(..len)
    }

    /// The bytes of `range`.
    #[inline]
    pub(crate) fn copy<B: Bytes>(&mut self, bytes: &B, range: Range<usize>) -> Option<&[u8]> {
        let room = self.0.get_mut(..range.len())?;
        let len = bytes.copy_to(range.start, room);
        room.get(..len)
    }
}

/// Appends `bytes` to `text` as printable ASCII, other bytes and the backslash as `\xNN`, and stops
/// before `text` gets longer than `limit` bytes. False when it stopped.
pub(crate) fn push_escaped(text: &mut String, bytes: &[u8], limit: usize) -> bool {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(HEX.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    for &byte in bytes {
        let plain = matches!(byte, b' '..=b'~') && byte != b'\\';
        if text.len() + if plain { 1 } else { 4 } > limit {
            return false;
        }
        if plain {
            text.push(char::from(byte));
        } else {
            text.extend(['\\', 'x', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::push_escaped;

    #[test]
    fn escaped_text_is_printable_and_never_longer_than_asked() {
        let mut text = String::new();
        assert!(push_escaped(&mut text, b"/a b?\x00\xff\\", 100));
        assert_eq!(text, "/a b?\\x00\\xff\\x5c");
        for limit in 0..20 {
            let mut text = String::new();
            let whole = push_escaped(&mut text, b"/a b?\x00\xff\\", limit);
            assert!(text.len() <= limit);
            assert_eq!(whole, limit >= 17);
        }
    }
}
