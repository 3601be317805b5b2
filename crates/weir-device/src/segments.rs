//! What made-up TCP segments carry, and how a flow's follow each other.

use weir_packet::checksum::update_u32;
use weir_packet::headers::proto;

const SEQ: usize = 4;
const CHECK: usize = 16;

const HEAD: &[u8] =
    b"GET /products/item?id=42 HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nX-Pad: ";
const END: &[u8] = b"\r\n\r\n";

/// The shortest [`http_request`], in bytes.
pub(crate) const SHORTEST_REQUEST: usize = HEAD.len() + END.len();

/// A whole HTTP request without a body, of `len` bytes, or of as few as it can have.
pub fn http_request(len: usize) -> Vec<u8> {
    let mut request = HEAD.to_vec();
    request.resize(len.max(SHORTEST_REQUEST) - END.len(), b'x');
    request.extend_from_slice(END);
    request
}

/// Where the TCP header of a made-up packet is: behind Ethernet and IP, which have neither tag nor option. `None` when it has none.
pub(crate) fn tcp_at(protocol: u8, ipv6: bool) -> Option<usize> {
    (protocol == proto::TCP).then_some(if ipv6 { 54 } else { 34 })
}

/// Gives the segment whose TCP header is at `tcp` another sequence number, by what it has, and the checksum that goes with it.
#[inline]
pub(crate) fn renumber(packet: &mut [u8], tcp: usize, seq: impl FnOnce(u32) -> u32) {
    let Some(header) = packet.get_mut(tcp..) else { return };
    let (Some(&old), Some(&check)) = (
        header.get(SEQ..).and_then(|rest| rest.first_chunk::<4>()),
        header.get(CHECK..).and_then(|rest| rest.first_chunk::<2>()),
    ) else {
        return;
    };
    let old = u32::from_be_bytes(old);
    let new = seq(old);
    let check = update_u32(u16::from_be_bytes(check), old, new);
    for (at, bytes) in [(SEQ, &new.to_be_bytes()[..]), (CHECK, &check.to_be_bytes()[..])] {
        if let Some(to) = header.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_packet::checksum::{L4Checksum, verify_l4};
    use weir_packet::{Depth, check_ip, parse};

    /// The sequence number of a sound TCP segment, and what it carries.
    pub(crate) fn sound(packet: &[u8]) -> (u32, &[u8]) {
        let layers = parse(packet, Depth::L4);
        assert_eq!(check_ip(packet, &layers, packet.len()), Ok(()));
        assert_eq!(verify_l4(packet, &layers), L4Checksum::Good);
        let seq = packet[usize::from(layers.l4) + SEQ..].first_chunk().unwrap();
        (u32::from_be_bytes(*seq), &packet[usize::from(layers.payload)..usize::from(layers.end)])
    }

    #[test]
    fn a_request_has_the_length_that_is_asked_for_or_the_least() {
        for (len, has) in [(0, SHORTEST_REQUEST), (SHORTEST_REQUEST, SHORTEST_REQUEST), (142, 142)]
        {
            let request = http_request(len);
            assert_eq!(request.len(), has);
            assert!(request.starts_with(b"GET /") && request.ends_with(b"\r\n\r\n"));
        }
    }
}
