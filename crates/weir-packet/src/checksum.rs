//! The Internet checksum: computed (RFC 1071), updated (RFC 1624), with pseudo headers, verified.

use crate::Bytes;
use crate::headers::{Fragment, L3, Layers, pending_route, proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A running one's complement sum of big-endian 16-bit words.
///
/// Pieces are added one after the other; only the last may have an odd number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds a 16-bit word.
    #[inline]
    pub fn add_u16(&mut self, word: u16) {
        self.add(u64::from(word));
    }

    /// Adds a 32-bit number (two words).
    #[inline]
    pub fn add_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    /// Adds bytes; an odd last byte counts as the upper half of a word.
    #[inline]
    pub fn add_slice(&mut self, bytes: &[u8]) {
        // 2^32 is 1 modulo 2^16 - 1, so words may be added four bytes at a time and folded later.
        let (quads, rest) = bytes.as_chunks::<4>();
        for &quad in quads {
            self.add(u64::from(u32::from_be_bytes(quad)));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.add(u64::from(u32::from_be_bytes(last)));
    }

    /// Adds `len` bytes of `bytes` from `at` on, and says how many of them were there.
    pub fn add_range<B: Bytes + ?Sized>(&mut self, bytes: &B, at: usize, len: usize) -> usize {
        let mut done = 0;
        let mut buffer = [0; 256];
        while done < len {
            let want = (len - done).min(buffer.len());
            let Some(chunk) = buffer.get_mut(..want) else {
                break;
            };
            let got = bytes.copy_to(at + done, chunk);
            self.add_slice(chunk.get(..got).unwrap_or_default());
            done += got;
            if got < want {
                break;
            }
        }
        done
    }

    /// The checksum: the complement of the folded sum. Zero over data that carries a right checksum.
    #[inline]
    pub fn finish(self) -> u16 {
        !fold(self.0)
    }

    #[inline]
    fn add(&mut self, number: u64) {
        let (sum, carry) = self.0.overflowing_add(number);
        // 2^64 is 1 modulo 2^16 - 1: the carry comes in again at the bottom.
        self.0 = sum.wrapping_add(u64::from(carry));
    }
}

#[inline]
fn fold(mut sum: u64) -> u16 {
    sum = (sum >> 32) + (sum & 0xffff_ffff);
    sum = (sum >> 32) + (sum & 0xffff_ffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// The checksum of a slice. Over a header whose checksum field is zero: what belongs there.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = Sum::default();
    sum.add_slice(bytes);
    sum.finish()
}

/// `check` after a 16-bit word of the data changed from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub fn update_u16(check: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!check) + u64::from(!old) + u64::from(new);
    !fold(sum)
}

/// `check` after an aligned 32-bit number of the data changed from `old` to `new`.
#[inline]
pub fn update_u32(check: u16, old: u32, new: u32) -> u16 {
    let sum = u64::from(!check) + u64::from(!old) + u64::from(new);
    !fold(sum)
}

/// The IPv4 pseudo header (RFC 9293 §3.1) for `len` bytes of transport header and data.
pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Sum {
    let mut sum = Sum::default();
    sum.add_u32(source.to_bits());
    sum.add_u32(destination.to_bits());
    sum.add_u16(u16::from(protocol));
    sum.add_u16(len);
    sum
}

/// The IPv6 pseudo header (RFC 8200 §8.1) for `len` bytes of upper-layer header and data.
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::default();
    sum.add_slice(&source.octets());
    sum.add_slice(&destination.octets());
    sum.add_u32(len);
    sum.add_u16(u16::from(protocol));
    sum
}

/// What a transport checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4Checksum {
    /// It is right.
    Good,
    /// It is wrong (or zero in UDP over IPv6, which RFC 8200 §8.1 forbids).
    Bad,
    /// UDP over IPv4 without a checksum.
    Absent,
    /// It cannot be judged: a fragment, a cut or malformed packet, a source route that is not at
    /// its end, or a protocol without an Internet checksum.
    Unknown,
}

/// Verifies the checksum of TCP, UDP, ICMP or ICMPv6. `layers` must have depth L4.
///
/// A sender that leaves checksums to its network card shows as [`L4Checksum::Bad`] when captured on
/// its own machine.
pub fn verify_l4<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> L4Checksum {
    if !layers.has_l4() || layers.is_truncated() || layers.fragment() != Fragment::Whole {
        return L4Checksum::Unknown;
    }
    let l4 = usize::from(layers.l4);
    let mut len = usize::from(layers.end).saturating_sub(l4);
    if layers.proto == proto::UDP {
        let (Some(udp_len), Some(check)) = (bytes.be16(l4 + 4), bytes.be16(l4 + 6)) else {
            return L4Checksum::Unknown;
        };
        match (check, layers.kind) {
            (0, L3::Ipv4) => return L4Checksum::Absent,
            (0, _) => return L4Checksum::Bad,
            _ => len = len.min(usize::from(udp_len)),
        }
    }
    let Some(mut sum) = pseudo(bytes, layers, len) else {
        return L4Checksum::Unknown;
    };
    if sum.add_range(bytes, l4, len) < len {
        return L4Checksum::Unknown;
    }
    if sum.finish() == 0 { L4Checksum::Good } else { L4Checksum::Bad }
}

/// The pseudo header for the packet's transport protocol: empty for ICMP in IPv4.
fn pseudo<B: Bytes + ?Sized>(bytes: &B, layers: &Layers, len: usize) -> Option<Sum> {
    let short = u16::try_from(len).ok()?;
    match (layers.proto, layers.ips(bytes)?) {
        (proto::ICMP, (IpAddr::V4(_), _)) => Some(Sum::default()),
        (proto::TCP | proto::UDP, (IpAddr::V4(source), IpAddr::V4(destination))) => {
            Some(pseudo_v4(source, destination, layers.proto, short))
        }
        (
            proto::TCP | proto::UDP | proto::ICMPV6,
            (IpAddr::V6(source), IpAddr::V6(destination)),
        ) if !pending_route(bytes, layers) => {
            Some(pseudo_v6(source, destination, layers.proto, short.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_sums_to_ddf2() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_updates_to_zero() {
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn an_odd_last_byte_is_the_upper_half_of_a_word() {
        assert_eq!(checksum(&[1, 2, 3]), checksum(&[1, 2, 3, 0]));
    }

    #[test]
    fn no_bytes_sum_to_nothing() {
        assert_eq!(checksum(&[]), 0xffff);
    }

    #[test]
    fn a_range_beyond_the_end_says_how_much_was_there() {
        let mut sum = Sum::default();
        assert_eq!(sum.add_range([1u8, 2, 3].as_slice(), 1, 100), 2);
        assert_eq!(sum.add_range([1u8, 2, 3].as_slice(), 100, 1), 0);
    }

    #[test]
    fn long_sums_carry_around() {
        let mut sum = Sum(u64::MAX);
        sum.add_u32(u32::MAX);
        assert_eq!(sum.finish(), 0);
    }
}
