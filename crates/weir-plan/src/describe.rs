//! What a µNF does to packets, as far as the planner may rely on it.

use serde::{Deserialize, Serialize};

use crate::fields::{Field, FieldSet};

/// What is done to one layer of a packet (the µNF paper's NOP, ReadOnly and ReadWrite, §IV-D).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Touch {
    /// Neither read nor written.
    Nop,
    /// Read.
    Read,
    /// Read and written.
    Write,
}

/// What is done to each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// Ethernet header and VLAN tags.
    pub l2: Touch,
    /// IP header and extension headers.
    pub l3: Touch,
    /// Transport header.
    pub l4: Touch,
    /// What follows.
    pub payload: Touch,
}

/// What happens when the same packet goes through twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The outcome depends on the packet and the configuration only; packets stay as they are.
    Pure,
    /// Doing it twice is doing it once.
    Idempotent,
    /// It remembers, or changes packets anew each time.
    Stateful,
    /// It has effects outside (logs, other systems).
    External,
}

/// Which packets must meet at the same instance when there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Any instance will do.
    None,
    /// Both directions of a flow.
    Flow,
    /// All packets of a source address.
    Source,
    /// Of what comes to the first input packets of equal source ports, of the rest packets of equal destination ports: those of
    /// one lease of ports.
    Ends,
    /// All packets of an end: the source's address, port and protocol, of what comes to the first input, the destination's of the rest.
    Client,
    /// One direction of a flow: packets with the same 5-tuple.
    Tuple,
    /// Packets that agree in these fields of the 5-tuple; [`Affinity::of_fields`] makes it.
    Fields {
        /// The fields.
        fields: FieldSet,
        /// Those of the other direction of a flow meet them.
        symmetric: bool,
    },
}

/// The 5-tuple.
pub(crate) const TUPLE: FieldSet =
    FieldSet::of(&[Field::IpSrc, Field::IpDst, Field::IpProto, Field::L4Src, Field::L4Dst]);

impl Affinity {
    /// Packets that agree in `fields`, in either direction of a flow if `symmetric`; by the name that it has, if it has one. `None`
    /// when there are no fields, or others than those of the 5-tuple, or when the fields of one direction are not those of the other.
    #[must_use]
    pub fn of_fields(fields: FieldSet, symmetric: bool) -> Option<Self> {
        let alike = |a, b| fields.has(a) == fields.has(b);
        let both_ways = alike(Field::IpSrc, Field::IpDst) && alike(Field::L4Src, Field::L4Dst);
        if fields.is_empty() || !fields.without(TUPLE).is_empty() || (symmetric && !both_ways) {
            return None;
        }
        Some(match symmetric {
            true if fields == TUPLE => Affinity::Flow,
            false if fields == TUPLE => Affinity::Tuple,
            false if fields == FieldSet::of(&[Field::IpSrc]) => Affinity::Source,
            // The protocol alone is the same both ways.
            _ => Affinity::Fields { fields, symmetric: symmetric && fields != PROTO },
        })
    }
}

const PROTO: FieldSet = FieldSet::of(&[Field::IpProto]);

/// What the planner may rely on when it moves, merges or removes a µNF. The default is the worst:
/// what a description leaves out must not allow anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// What it does to each layer.
    pub access: Access,
    /// What going through twice means.
    pub effect: Effect,
    /// What must meet at one instance.
    pub affinity: Affinity,
    /// Cost in processor cycles per packet, roughly.
    pub cost_cycles: u32,
    /// True when it keeps counters or tables of its own, which its VNF's report shows.
    pub keeps: bool,
    /// True when it remembers something of each flow.
    pub follows: bool,
    /// True when it does something at times of its own.
    pub timers: bool,
    /// Which fields of a layer are read, for layers of which not all is.
    pub reads: FieldSet,
    /// Which fields of a layer are written, for layers of which not all is.
    pub writes: FieldSet,
    /// True when it may run several times on a server, packets divided by its affinity.
    pub scales: bool,
}

impl Access {
    /// Every layer is touched like this.
    #[must_use]
    pub const fn all(touch: Touch) -> Self {
        Self { l2: touch, l3: touch, l4: touch, payload: touch }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self {
            access: Access::all(Touch::Write),
            effect: Effect::External,
            affinity: Affinity::Source,
            cost_cycles: 1_000,
            keeps: true,
            follows: true,
            timers: true,
            reads: FieldSet::EMPTY,
            writes: FieldSet::EMPTY,
            scales: false,
        }
    }
}
