//! `protochain`: walking a chain of headers as libpcap does.

use weir_packet::Bytes;

use super::{behind, load};
use crate::arith::Size;
use crate::primitive::IpFamily;

/// Headers looked at; more are no chain. libpcap has no bound, and so a packet can make it walk in
/// circles for ever.
pub(crate) const MAX_HEADERS: usize = 64;

const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const AUTHENTICATION: u32 = 51;
const NONE: u32 = 59;
const DESTINATION: u32 = 60;

/// True when the chain behind the IP header at `network`, of `family`, holds `number`. `None` when
/// bytes are missing or the chain is too long.
///
/// Two of libpcap's ways are kept, for a filter must mean the same: every IPv6 header's length is
/// counted in eight bytes, also the fragment header's; and behind an authentication header the walk
/// goes on at that header's own length, counted from the IP header.
pub(super) fn holds<B: Bytes + ?Sized>(
    packet: &B,
    network: u32,
    family: IpFamily,
    number: u8,
) -> Option<bool> {
    let wanted = u32::from(number);
    let byte = |at: u32| load(packet, at, Size::One);
    let six = family == IpFamily::Ip6;
    let (mut kind, mut at) = if six {
        (byte(network.wrapping_add(6))?, 40_u32)
    } else {
        (byte(network.wrapping_add(9))?, behind(packet, network, 0)?.wrapping_sub(network))
    };
    for _ in 0..MAX_HEADERS {
        if kind == wanted || kind == NONE {
            return Some(kind == wanted);
        }
        let here = network.wrapping_add(at);
        match kind {
            HOP_BY_HOP | DESTINATION | ROUTING | FRAGMENT if six => {
                kind = byte(here)?;
                let length = byte(here.wrapping_add(1))?;
                at = at.wrapping_add(length.wrapping_add(1).wrapping_mul(8));
            }
            AUTHENTICATION => {
                kind = byte(here)?;
                at = byte(here.wrapping_add(1))?.wrapping_add(2).wrapping_mul(4);
            }
            _ => return Some(false),
        }
    }
    None
}
