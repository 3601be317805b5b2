//! The variables that diagrams decide on, and their order.
//!
//! A packet is its bytes and their number. So a variable is one bit at a fixed offset, or whether
//! the packet has at least so many bytes. What stands behind an IPv4 header has no fixed offset;
//! it has variables of its own, each a function of the bytes, tied to them where a question needs it
//! ([`crate::theory`]).
//!
//! The order is that of the packet: what decides what the following bytes mean stands before them.
//! "At least `n` bytes" stands right before byte `n - 1`, the last that it promises: where a packet
//! ends, everything further right is decided by that.

/// What a variable says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Variable {
    /// It has at least `bytes` bytes; 1 to 65,535, as no packet is longer in Weir.
    Has {
        /// Number of bytes.
        bytes: u32,
    },
    /// Bit `bit` (7 is the highest) of the byte at `byte`.
    Bit {
        /// Offset, at most 65,534.
        byte: u32,
        /// 0 to 7.
        bit: u32,
    },
    /// [`Variable::Has`] counted from the end of the IPv4 header at `l3`.
    L4Has {
        /// Offset of the IPv4 header, at most 4095.
        l3: u32,
        /// Number of bytes, 1 to 4096.
        bytes: u32,
    },
    /// [`Variable::Bit`] counted from the end of the IPv4 header at `l3`.
    L4Bit {
        /// Offset of the IPv4 header, at most 4095.
        l3: u32,
        /// Offset behind the header, at most 4095.
        byte: u32,
        /// 0 to 7.
        bit: u32,
    },
    /// What a tag says.
    Tag {
        /// Its number in the universe, below 2^21.
        index: u32,
        /// 0: it is true, as a truth by itself.
        bit: u32,
    },
    /// A number that is not looked into, or is not the packet's: a tag's value.
    Opaque {
        /// Its number in the universe, below 2^22.
        index: u32,
        /// 0: it is there; 1 is its highest bit.
        bit: u32,
    },
}

/// The kinds' ranges of numbers begin here.
const L4: u32 = 1 << 28;
const TAG: u32 = 1 << 30;
const OPAQUE: u32 = 3 << 29;

/// Largest offset of a byte, and of one that is counted from elsewhere.
const FAR: u32 = 65_534;
const NEAR: u32 = 4_095;

impl Variable {
    /// Its place in the order; `None` when it stands further right than any packet goes.
    pub(crate) fn place(self) -> Option<u32> {
        match self {
            Variable::Has { bytes } => Some(slot(bytes.checked_sub(1)?, FAR)?),
            Variable::Bit { byte, bit } => Some(slot(byte, FAR)? | in_byte(bit)),
            Variable::L4Has { l3, bytes } => l4(l3, slot(bytes.checked_sub(1)?, NEAR)?),
            Variable::L4Bit { l3, byte, bit } => l4(l3, slot(byte, NEAR)? | in_byte(bit)),
            Variable::Tag { index, bit } => {
                Some(TAG | index << 8 | bit).filter(|_| index < 1 << 21 && bit < 1 << 8)
            }
            Variable::Opaque { index, bit } => {
                Some(OPAQUE | index << 7 | bit).filter(|_| index < 1 << 22 && bit < 1 << 7)
            }
        }
    }

    /// The variable at `place`.
    pub(crate) fn at(place: u32) -> Self {
        let (byte, slot) = (place >> 4 & 0xffff, place & 15);
        let bit = 8_u32.saturating_sub(slot);
        let (l3, near) = (place >> 16 & NEAR, byte & NEAR);
        match place {
            OPAQUE.. => Variable::Opaque { index: (place ^ OPAQUE) >> 7, bit: place & 127 },
            TAG.. => Variable::Tag { index: (place ^ TAG) >> 8, bit: place & 255 },
            L4.. if slot == 0 => Variable::L4Has { l3, bytes: near.saturating_add(1) },
            L4.. => Variable::L4Bit { l3, byte: near, bit },
            _ if slot == 0 => Variable::Has { bytes: byte.saturating_add(1) },
            _ => Variable::Bit { byte, bit },
        }
    }
}

/// Sixteen numbers for each byte, of which nine are used.
fn slot(byte: u32, furthest: u32) -> Option<u32> {
    (byte <= furthest).then_some(byte << 4)
}

/// Behind [`Variable::Has`], the highest bit first.
fn in_byte(bit: u32) -> u32 {
    8_u32.saturating_sub(bit & 7)
}

fn l4(l3: u32, place: u32) -> Option<u32> {
    (l3 <= NEAR).then_some(L4 | l3 << 16 | place)
}

#[cfg(test)]
mod tests {
    use super::Variable;

    #[test]
    fn a_place_says_which_variable_it_is() {
        let mut all = Vec::new();
        for byte in [0, 1, 13, 14, 15, 4095] {
            for bit in 0..8 {
                all.push(Variable::Bit { byte, bit });
                all.push(Variable::L4Bit { l3: 14, byte, bit });
                all.push(Variable::L4Bit { l3: 4095, byte, bit });
            }
            all.push(Variable::Has { bytes: byte + 1 });
            all.push(Variable::L4Has { l3: 18, bytes: byte + 1 });
        }
        all.push(Variable::Bit { byte: 65_534, bit: 0 });
        all.push(Variable::Has { bytes: 65_535 });
        for index in [0, 1, 1000] {
            all.push(Variable::Tag { index, bit: 0 });
            all.push(Variable::Tag { index, bit: 64 });
            all.push(Variable::Opaque { index, bit: 0 });
            all.push(Variable::Opaque { index, bit: 64 });
        }
        let places: std::collections::BTreeSet<u32> =
            all.iter().map(|v| v.place().unwrap()).collect();
        assert_eq!(places.len(), all.len());
        for v in all {
            assert_eq!(Variable::at(v.place().unwrap()), v);
        }
    }

    #[test]
    fn what_is_further_right_than_any_packet_has_no_place() {
        for v in [
            Variable::Bit { byte: 65_535, bit: 0 },
            Variable::Has { bytes: 65_536 },
            Variable::Has { bytes: 0 },
            Variable::L4Bit { l3: 4096, byte: 0, bit: 0 },
            Variable::L4Has { l3: 14, bytes: 4097 },
        ] {
            assert_eq!(v.place(), None, "{v:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_packet() {
        let order = [
            Variable::Bit { byte: 12, bit: 0 },
            Variable::Has { bytes: 14 },
            Variable::Bit { byte: 13, bit: 7 },
            Variable::Bit { byte: 13, bit: 0 },
            Variable::Bit { byte: 65_534, bit: 0 },
            Variable::L4Has { l3: 14, bytes: 2 },
            Variable::L4Bit { l3: 14, byte: 1, bit: 7 },
            Variable::L4Has { l3: 18, bytes: 2 },
            Variable::Tag { index: 0, bit: 0 },
            Variable::Opaque { index: 0, bit: 0 },
        ];
        assert!(order.is_sorted_by_key(|v| v.place().unwrap()));
    }
}
