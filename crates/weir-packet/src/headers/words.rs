//! [`Layers`] as three words, for metadata in shared memory.
//!
//! Another process may write anything there, so reading back is total: numbers that no enum has
//! give `None`, and the packet is parsed again.

use super::{Depth, HeaderFault, L3, Layers};

fn pack(parts: [u16; 4]) -> u64 {
    parts.iter().fold(0, |word, &part| word << 16 | u64::from(part))
}

fn unpack(word: u64) -> [u16; 4] {
    [(word >> 48) as u16, (word >> 32) as u16, (word >> 16) as u16, word as u16]
}

impl Layers {
    /// The layers as three words, for [`Layers::from_words`] of the same build.
    #[inline]
    pub fn to_words(&self) -> [u64; 3] {
        let fault = self.fault.map_or(0, |fault| fault as u8);
        let small = [
            0,
            0,
            self.vlan_count,
            self.proto,
            self.kind as u8,
            self.depth as u8,
            self.flags,
            fault,
        ];
        [
            pack([self.l3, self.l4, self.payload, self.end]),
            pack([self.ether_type, self.vlan_outer, self.vlan_inner, self.fragment_header]),
            u64::from_be_bytes(small),
        ]
    }

    /// Layers from what [`Layers::to_words`] gave, or `None` when no layers have these words.
    #[inline]
    pub fn from_words(words: [u64; 3]) -> Option<Self> {
        let [l3, l4, payload, end] = unpack(words[0]);
        let [ether_type, vlan_outer, vlan_inner, fragment_header] = unpack(words[1]);
        let [0, 0, vlan_count, proto, kind, depth, flags, fault] = words[2].to_be_bytes() else {
            return None;
        };
        let kind = match kind {
            0 => L3::None,
            1 => L3::Ipv4,
            2 => L3::Ipv6,
            3 => L3::Arp,
            4 => L3::Other,
            _ => return None,
        };
        let depth = match depth {
            0 => Depth::None,
            1 => Depth::L2,
            2 => Depth::L3,
            3 => Depth::L4,
            _ => return None,
        };
        let fault = match fault {
            0 => None,
            number => Some(HeaderFault::from_number(number)?),
        };
        Some(Layers {
            l3,
            l4,
            payload,
            end,
            ether_type,
            vlan_outer,
            vlan_inner,
            fragment_header,
            vlan_count,
            proto,
            kind,
            depth,
            flags,
            fault,
        })
    }
}
