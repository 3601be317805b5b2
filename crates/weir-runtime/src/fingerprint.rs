//! What a packet is known by when it comes again.

use std::hash::{DefaultHasher, Hasher};
use weir_mem::SharedBytes;
use weir_packet::headers::{Depth, L3, Layers, proto};
use weir_packet::parse;

/// Fields of a packet as bits, in the planner's order (`weir_plan::Field::ALL`).
pub mod field {
    /// Destination MAC address.
    pub const ETH_DST: u32 = 1;
    /// Source MAC address.
    pub const ETH_SRC: u32 = 1 << 1;
    /// The type behind the addresses and tags.
    pub const ETH_TYPE: u32 = 1 << 2;
    /// VLAN tags.
    pub const VLAN: u32 = 1 << 3;
    /// Source address of the IP header.
    pub const IP_SRC: u32 = 1 << 4;
    /// Destination address of the IP header.
    pub const IP_DST: u32 = 1 << 5;
    /// TTL or hop limit.
    pub const IP_TTL: u32 = 1 << 6;
    /// Type of service or traffic class.
    pub const IP_TOS: u32 = 1 << 7;
    /// Protocol or next header.
    pub const IP_PROTO: u32 = 1 << 8;
    /// Total or payload length.
    pub const IP_LENGTH: u32 = 1 << 9;
    /// Checksum of the IPv4 header.
    pub const IP_CHECKSUM: u32 = 1 << 10;
    /// What else the IP header has.
    pub const IP_OTHER: u32 = 1 << 11;
    /// Source port.
    pub const L4_SRC: u32 = 1 << 12;
    /// Destination port.
    pub const L4_DST: u32 = 1 << 13;
    /// TCP's flags.
    pub const L4_FLAGS: u32 = 1 << 14;
    /// Checksum of the transport header.
    pub const L4_CHECKSUM: u32 = 1 << 15;
    /// What else the transport header has.
    pub const L4_OTHER: u32 = 1 << 16;
    /// What follows the headers.
    pub const PAYLOAD: u32 = 1 << 17;
}

/// Fingerprint of a packet: SipHash over its length and its bytes, never 0. Equal in all processes of one build.
///
/// `but`: fields ([`field`]) that are left out, as others write them at the same time: in a parallel stage a packet is seen before, after or amid that. Who is
/// given packets there reads none of these, so nothing that it does depends on them.
pub fn fingerprint(bytes: &SharedBytes<'_>, but: u32) -> u64 {
    let hidden = match but {
        0 => Hidden::default(),
        _ => Hidden::of(&parse(bytes, Depth::L4), but),
    };
    let mut hasher = DefaultHasher::new();
    hasher.write_usize(bytes.len());
    let mut piece = [0; 64];
    let mut at = 0;
    while at < bytes.len() {
        let n = bytes.copy_to(at, &mut piece);
        hidden.clear(at, piece.get_mut(..n).unwrap_or_default());
        hasher.write(piece.get(..n).unwrap_or_default());
        at += n;
    }
    hasher.finish().max(1)
}

/// Where a packet is not looked at: from, to.
#[derive(Default)]
struct Hidden {
    ranges: [(usize, usize); 20],
    count: usize,
}

impl Hidden {
    fn of(layers: &Layers, but: u32) -> Self {
        let mut hidden = Hidden::default();
        let has = |fields: u32| but & fields != 0;
        let end = usize::MAX;
        let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4.max(layers.l3)));
        let mut hide = |fields: u32, from: usize, to: usize| {
            if let Some(range) = hidden.ranges.get_mut(hidden.count).filter(|_| has(fields)) {
                *range = (from, to);
                hidden.count += 1;
            }
        };
        hide(field::ETH_DST, 0, 6);
        hide(field::ETH_SRC, 6, 12);
        // Where what follows is depends on these; who reads any of it reads them.
        hide(field::ETH_TYPE | field::VLAN, 12, end);
        hide(field::IP_OTHER | field::IP_PROTO | field::IP_LENGTH, l3, end);
        hide(field::L4_OTHER, l4, end);
        let ip = |offset: usize| l3.saturating_add(offset);
        match layers.kind {
            L3::Ipv4 => {
                hide(field::IP_TOS, ip(1), ip(2));
                hide(field::IP_TTL, ip(8), ip(9));
                hide(field::IP_CHECKSUM, ip(10), ip(12));
                hide(field::IP_SRC, ip(12), ip(16));
                hide(field::IP_DST, ip(16), ip(20));
            }
            L3::Ipv6 => {
                // Half of either byte is something else.
                hide(field::IP_TOS, ip(0), ip(2));
                hide(field::IP_TTL, ip(7), ip(8));
                hide(field::IP_SRC, ip(8), ip(24));
                hide(field::IP_DST, ip(24), ip(40));
            }
            L3::None | L3::Arp | L3::Other => hide(!0 << 4, l3, end),
        }
        let transport = |offset: usize| l4.saturating_add(offset);
        if !layers.has_l4() {
            hide(!0 << 12, l4, end);
        }
        hide(field::L4_SRC, l4, transport(2));
        hide(field::L4_DST, transport(2), transport(4));
        hide(field::PAYLOAD, usize::from(layers.payload).max(l4), end);
        let checksum = match layers.proto {
            proto::TCP => 16,
            proto::UDP => 6,
            _ => 2,
        };
        hide(field::L4_CHECKSUM, transport(checksum), transport(checksum + 2));
        hide(field::L4_FLAGS, transport(13), transport(14));
        hidden
    }

    /// Clears what is hidden of `piece`, which begins at `at`.
    fn clear(&self, at: usize, piece: &mut [u8]) {
        for (from, to) in self.ranges.iter().take(self.count) {
            let from = from.saturating_sub(at).min(piece.len());
            let to = to.saturating_sub(at).min(piece.len());
            piece.get_mut(from..to).unwrap_or_default().fill(0);
        }
    }
}
