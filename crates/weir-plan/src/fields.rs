//! Parts of a packet that µNFs touch each for itself.

use serde::{Deserialize, Serialize};

use crate::describe::{Touch, Work};

/// A part of a packet that one µNF may write while another reads its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Destination MAC address.
    EthDst,
    /// Source MAC address.
    EthSrc,
    /// The type that follows the addresses and tags.
    EthType,
    /// VLAN tags.
    Vlan,
    /// Source address of the IP header.
    IpSrc,
    /// Destination address of the IP header.
    IpDst,
    /// TTL or hop limit.
    IpTtl,
    /// Type of service or traffic class.
    IpTos,
    /// Protocol or next header.
    IpProto,
    /// Total or payload length.
    IpLength,
    /// Checksum of the IPv4 header.
    IpChecksum,
    /// What else the IP header has: version, fragmentation, flow label, options, extension headers.
    IpOther,
    /// Source port.
    L4Src,
    /// Destination port.
    L4Dst,
    /// TCP's flags.
    L4Flags,
    /// Checksum of the transport header.
    L4Checksum,
    /// What else the transport header has.
    L4Other,
    /// What follows the headers.
    Payload,
}

impl Field {
    /// All, in a packet's order.
    pub const ALL: [Field; 18] = [
        Field::EthDst,
        Field::EthSrc,
        Field::EthType,
        Field::Vlan,
        Field::IpSrc,
        Field::IpDst,
        Field::IpTtl,
        Field::IpTos,
        Field::IpProto,
        Field::IpLength,
        Field::IpChecksum,
        Field::IpOther,
        Field::L4Src,
        Field::L4Dst,
        Field::L4Flags,
        Field::L4Checksum,
        Field::L4Other,
        Field::Payload,
    ];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Field::EthDst => "the destination MAC address",
            Field::EthSrc => "the source MAC address",
            Field::EthType => "the Ethernet type",
            Field::Vlan => "VLAN tags",
            Field::IpSrc => "the source address",
            Field::IpDst => "the destination address",
            Field::IpTtl => "TTL or hop limit",
            Field::IpTos => "the type of service",
            Field::IpProto => "the IP protocol",
            Field::IpLength => "the IP length",
            Field::IpChecksum => "the IP header's checksum",
            Field::IpOther => "the rest of the IP header",
            Field::L4Src => "the source port",
            Field::L4Dst => "the destination port",
            Field::L4Flags => "TCP's flags",
            Field::L4Checksum => "the transport header's checksum",
            Field::L4Other => "the rest of the transport header",
            Field::Payload => "the payload",
        }
    }
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Field>", into = "Vec<Field>")]
pub struct FieldSet(u32);

impl FieldSet {
    /// No field.
    pub const EMPTY: Self = Self(0);
    /// Ethernet header and VLAN tags.
    pub const L2: Self = Self::of(&[Field::EthDst, Field::EthSrc, Field::EthType, Field::Vlan]);
    /// IP header and extension headers.
    pub const L3: Self = Self::of(&[
        Field::IpSrc,
        Field::IpDst,
        Field::IpTtl,
        Field::IpTos,
        Field::IpProto,
        Field::IpLength,
        Field::IpChecksum,
        Field::IpOther,
    ]);
    /// Transport header.
    pub const L4: Self =
        Self::of(&[Field::L4Src, Field::L4Dst, Field::L4Flags, Field::L4Checksum, Field::L4Other]);
    /// What follows the headers.
    pub const PAYLOAD: Self = Self::of(&[Field::Payload]);

    /// These fields.
    #[must_use]
    pub const fn of(fields: &[Field]) -> Self {
        let mut bits = 0;
        let mut rest = fields;
        while let [first, more @ ..] = rest {
            bits |= 1 << *first as u32;
            rest = more;
        }
        Self(bits)
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in this one only.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True when no field is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when the field is in it.
    #[must_use]
    pub const fn has(self, field: Field) -> bool {
        self.0 >> field as u32 & 1 == 1
    }

    /// A bit for each field, by its place in [`Field::ALL`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Its fields in a packet's order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.has(*field))
    }
}

impl From<Vec<Field>> for FieldSet {
    fn from(fields: Vec<Field>) -> Self {
        Self::of(&fields)
    }
}

impl From<FieldSet> for Vec<Field> {
    fn from(set: FieldSet) -> Self {
        set.iter().collect()
    }
}

/// What a µNF reads and writes in all, what it needs to find its fields included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Fields that its outcome may depend on.
    pub reads: FieldSet,
    /// Fields that it may change.
    pub writes: FieldSet,
}

/// How the fields of a layer are found: by these fields of the layers below.
const FOUND_BY: [(FieldSet, FieldSet); 3] = [
    (FieldSet::L3, FieldSet::of(&[Field::EthType, Field::Vlan, Field::IpOther])),
    (FieldSet::L4, FieldSet::of(&[Field::EthType, Field::Vlan, Field::IpOther, Field::IpProto])),
    (
        FieldSet::PAYLOAD,
        FieldSet::of(&[
            Field::EthType,
            Field::Vlan,
            Field::IpOther,
            Field::IpProto,
            Field::IpLength,
            Field::L4Other,
        ]),
    ),
];

/// What the transport's checksum covers: its pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1), header and payload.
const UNDER_L4_CHECKSUM: FieldSet =
    FieldSet::of(&[Field::IpSrc, Field::IpDst, Field::IpProto, Field::IpLength])
        .or(FieldSet::L4)
        .or(FieldSet::PAYLOAD);

impl Work {
    /// What it reads and writes, by field. A layer of which no field is named counts as a whole, as its
    /// [`Access`](crate::Access) says; who writes a field that a checksum covers writes the
    /// checksum, and who writes a field may have read it.
    #[must_use]
    pub fn touched(&self) -> Touched {
        let access = &self.access;
        let layers = [
            (access.l2, FieldSet::L2),
            (access.l3, FieldSet::L3),
            (access.l4, FieldSet::L4),
            (access.payload, FieldSet::PAYLOAD),
        ];
        let (mut reads, mut writes) = (FieldSet::EMPTY, FieldSet::EMPTY);
        for (touch, layer) in layers {
            let (read, written) = (self.reads.and(layer), self.writes.and(layer));
            let named = read.or(written);
            if touch == Touch::Write {
                writes = writes.or(if written.is_empty() { layer } else { written });
            }
            if touch != Touch::Nop {
                reads = reads.or(if named.is_empty() { layer } else { named });
            }
        }
        if !writes.and(FieldSet::L3).is_empty() {
            writes = writes.or(FieldSet::of(&[Field::IpChecksum]));
        }
        if !writes.and(UNDER_L4_CHECKSUM).is_empty() {
            writes = writes.or(FieldSet::of(&[Field::L4Checksum]));
        }
        reads = reads.or(writes);
        for (layer, found_by) in FOUND_BY {
            if !reads.and(layer).is_empty() {
                reads = reads.or(found_by);
            }
        }
        Touched { reads, writes }
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, FieldSet};
    use crate::describe::{Access, Touch, Work};

    fn work(access: Access, reads: &[Field], writes: &[Field]) -> Work {
        let (reads, writes) = (FieldSet::of(reads), FieldSet::of(writes));
        Work { access, reads, writes, ..Work::default() }
    }

    const NONE: Access = Access::all(Touch::Nop);

    #[test]
    fn a_layer_without_named_fields_is_touched_as_a_whole() {
        let all = work(Access { l2: Touch::Write, ..NONE }, &[], &[]).touched();
        assert_eq!((all.reads, all.writes), (FieldSet::L2, FieldSet::L2));
        let named = work(Access { l2: Touch::Write, ..NONE }, &[], &[Field::EthDst]).touched();
        let dst = FieldSet::of(&[Field::EthDst]);
        assert_eq!((named.reads, named.writes), (dst, dst));
        // Fields of a layer that is said not to be touched are not believed to widen the access.
        assert!(work(NONE, &[Field::IpSrc], &[Field::IpSrc]).touched().reads.is_empty());
    }

    #[test]
    fn who_writes_what_a_checksum_covers_writes_the_checksum() {
        let l3 = Access { l3: Touch::Write, ..NONE };
        let writes = |field| work(l3, &[], &[field]).touched().writes;
        assert!(writes(Field::IpTtl).has(Field::IpChecksum));
        assert!(!writes(Field::IpTtl).has(Field::L4Checksum));
        assert!(writes(Field::IpSrc).has(Field::L4Checksum));
        let payload = work(Access { payload: Touch::Write, ..NONE }, &[], &[]).touched();
        assert!(payload.writes.has(Field::L4Checksum) && !payload.writes.has(Field::IpChecksum));
    }

    #[test]
    fn who_looks_at_a_layer_looks_at_what_leads_to_it() {
        let ports = work(Access { l4: Touch::Read, ..NONE }, &[Field::L4Dst], &[]).touched();
        for by in [Field::EthType, Field::Vlan, Field::IpProto, Field::IpOther, Field::L4Dst] {
            assert!(ports.reads.has(by), "{by:?}");
        }
        for not in [Field::IpTtl, Field::IpSrc, Field::L4Src, Field::EthDst, Field::Payload] {
            assert!(!ports.reads.has(not), "{not:?}");
        }
    }
}
