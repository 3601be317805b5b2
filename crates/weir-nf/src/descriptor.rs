//! What a µNF says of itself.

use crate::flows::{TcpTimes, WhenFull};

/// What is done to one layer of a packet (the µNF paper's NOP / ReadOnly / ReadWrite, §IV-D).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// Neither read nor written.
    Nop,
    /// Read.
    Read,
    /// Read and written.
    Write,
}

/// A field of a layer, for µNFs that do not touch all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
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
    /// What else the IP header has: version, fragmentation, flow label, options, extension headers.
    IpOther,
    /// Source port.
    L4Src,
    /// Destination port.
    L4Dst,
    /// TCP's flags.
    L4Flags,
    /// What else the transport header has.
    L4Other,
}

/// The fields of layers 2 and 3 that finding a packet's flow reads ([`Ctx::flow`](crate::Ctx::flow)). Layer 4 and the payload, where an ICMP error
/// quotes its flow, are read besides.
pub const FLOW_FIELDS: &[(Field, Touch)] = &[
    (Field::EthType, Touch::Read),
    (Field::Vlan, Touch::Read),
    (Field::IpSrc, Touch::Read),
    (Field::IpDst, Touch::Read),
    (Field::IpProto, Touch::Read),
    (Field::IpLength, Touch::Read),
    (Field::IpOther, Touch::Read),
];

/// What is done to each layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct LayerAccess {
    /// Ethernet header and VLAN tags.
    pub l2: Touch,
    /// IP header and extension headers.
    pub l3: Touch,
    /// Transport header.
    pub l4: Touch,
    /// What follows.
    pub payload: Touch,
}

impl LayerAccess {
    /// Touches nothing.
    pub const NONE: LayerAccess =
        LayerAccess { l2: Touch::Nop, l3: Touch::Nop, l4: Touch::Nop, payload: Touch::Nop };

    /// True when some layer is written.
    pub const fn writes(&self) -> bool {
        matches!(self.l2, Touch::Write)
            || matches!(self.l3, Touch::Write)
            || matches!(self.l4, Touch::Write)
            || matches!(self.payload, Touch::Write)
    }
}

/// What happens when the same packet goes through twice. Only `Pure` and `Idempotent` µNFs may be
/// consolidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
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

/// Which packets must meet at the same instance when the µNF is replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// Any instance will do.
    None,
    /// Both directions of a flow.
    Flow,
    /// Packets that agree in these fields of the 5-tuple: one or more of [`Field::IpSrc`], [`Field::IpDst`], [`Field::IpProto`],
    /// [`Field::L4Src`] and [`Field::L4Dst`]. IP version and VLAN tags always count, and a later fragment has the ports of its first.
    Fields {
        /// The fields.
        fields: &'static [Field],
        /// Both directions meet, too: those of one are the other's with its ends changed round. Then both addresses are among the
        /// fields or none, and both ports or none.
        symmetric: bool,
    },
    /// All packets of a lease of ports: of what comes to the first input the source's port counts, of the rest the
    /// destination's ([`lease`](crate::flow::lease)). For what translates ports: that state is partitioned, and who has a lease has its
    /// ports, used and free.
    Ends,
    /// All packets of a client's end (address, port, protocol): of what comes to the first input the source counts, of the rest the
    /// destination. For what writes the other end, such as a load balancer: packets of both directions meet whatever is written
    /// there. The µNF begins flows with packets of its first input only.
    Client,
    /// All packets there are: only one instance may be, as of what limits a rate in all.
    All,
}

impl Affinity {
    /// True where it depends on the input which end of a packet counts.
    pub const fn asks_sides(&self) -> bool {
        matches!(self, Affinity::Ends | Affinity::Client)
    }

    /// False for fields that nothing can be divided by. A µNF that declares such does not compile.
    pub const fn is_sound(&self) -> bool {
        let Affinity::Fields { fields, symmetric } = self else { return true };
        let (mut rest, mut addresses, mut ports) = (*fields, (false, false), (false, false));
        while let [first, more @ ..] = rest {
            match first {
                Field::IpSrc => addresses.0 = true,
                Field::IpDst => addresses.1 = true,
                Field::L4Src => ports.0 = true,
                Field::L4Dst => ports.1 = true,
                Field::IpProto => {}
                _ => return false,
            }
            rest = more;
        }
        let both_ways = addresses.0 == addresses.1 && ports.0 == ports.1;
        !fields.is_empty() && (both_ways || !*symmetric)
    }
}

/// The type of a tag's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TagKind {
    /// True or not, and not until it is said.
    Flag,
    /// A number of up to 64 bits.
    Number,
    /// Bytes, for regular expressions.
    Text,
}

/// A named attribute that the µNF attaches to packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct TagDecl {
    /// Its name, such as `url`: policies write `http.url` for what the instance `http` says.
    pub name: &'static str,
    /// Type of its value.
    pub kind: TagKind,
}

/// What a µNF is and may do. The runtime holds it to it: a µNF that does not declare a write has no
/// method to write with.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Descriptor {
    /// Name of the type, as policies use it.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Names of its inputs; most have one, `in`.
    pub inputs: &'static [&'static str],
    /// Names of its outputs; the first is where packets go without a verdict.
    pub outputs: &'static [&'static str],
    /// What it does to each layer.
    pub layers: LayerAccess,
    /// Which fields it reads or writes, of layers of which it does not touch all; a layer of which none is
    /// named counts as a whole. Checksums over what it writes go without saying. µNFs that touch different
    /// fields may work side by side.
    pub fields: &'static [(Field, Touch)],
    /// Whether it may drop packets.
    pub may_drop: bool,
    /// Whether it adds or removes headers.
    pub resizes: bool,
    /// What going through twice means.
    pub effect: Effect,
    /// What must meet at one instance; left out, everything, so that there is one.
    pub affinity: Affinity,
    /// Cost hint in processor cycles per packet.
    pub cost_cycles: u32,
    /// Tags that it attaches.
    pub tags: &'static [TagDecl],
    /// Trust domain: µNFs of one domain share packet memory; between domains packets are copied.
    /// Empty for the graph's own. An operator may say otherwise (`--domain`).
    pub domain: &'static str,
    /// How many packets it makes at most (`ctx.alloc`, `ctx.copy`) for each that it is given; 0: none.
    /// It is given no more packets than there are buffers for.
    pub creates: u8,
    /// The output by which all packets leave that it makes, and no others; `None`: they leave by any.
    /// Where copies are copied again, so many fewer buffers have to be kept ready.
    pub creates_to: Option<&'static str>,
    /// How many packets it holds at most (`ctx.hold`) at a time; 0: none.
    pub holds: u32,
    /// Whether it sets timers (`ctx.timer`). It is then given packets one at a time.
    pub timers: bool,
    /// Most flows that it remembers.
    pub flows: u32,
    /// What becomes of a new one when all are busy.
    pub when_full: WhenFull,
    /// A flow without packets for so many nanoseconds has ended.
    pub flow_idle_ns: u64,
    /// Other times for flows of TCP, by how far their connection is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_idle: Option<TcpTimes>,
}

/// How many packets a µNF that holds any may hold at most, unless it has a reason for another limit.
pub const DEFAULT_HOLDS: u32 = 1024;

impl Descriptor {
    /// A µNF with one input, one output, that touches nothing: to be refined with `..`.
    pub const BASE: Descriptor = Descriptor {
        name: "",
        summary: "",
        inputs: &["in"],
        outputs: &["out"],
        layers: LayerAccess::NONE,
        fields: &[],
        may_drop: false,
        resizes: false,
        // What nobody says must not allow anything: neither leaving it out nor merging it.
        effect: Effect::External,
        // The worst: what nothing is known of is not divided.
        affinity: Affinity::All,
        cost_cycles: 20,
        tags: &[],
        domain: "",
        creates: 0,
        creates_to: None,
        holds: 0,
        timers: false,
        flows: 1 << 16,
        when_full: WhenFull::Refuse,
        flow_idle_ns: 120_000_000_000,
        tcp_idle: None,
    };

    /// True when it does more than judge the packets that it is given: then others may leave.
    pub const fn does_more(&self) -> bool {
        self.creates > 0 || self.holds > 0 || self.timers
    }
}

#[cfg(test)]
mod tests {
    use super::{Affinity, Field};

    const BOTH: &[Field] = &[Field::IpSrc, Field::IpDst];

    #[test]
    fn fields_that_nothing_can_be_divided_by_are_not_sound() {
        for (fields, symmetric, is_sound) in [
            (BOTH, true, true),
            (&[Field::IpDst, Field::L4Dst, Field::IpProto], false, true),
            (&[Field::L4Src, Field::L4Dst], true, true),
            (&[Field::IpProto], true, true),
            (&[], false, false),
            // The other direction's destination is this one's source.
            (&[Field::IpDst], true, false),
            (&[Field::IpSrc, Field::IpDst, Field::L4Src], true, false),
            // Not of the 5-tuple.
            (&[Field::IpSrc, Field::IpTtl], false, false),
        ] {
            let affinity = Affinity::Fields { fields, symmetric };
            assert_eq!(affinity.is_sound(), is_sound, "{affinity:?}");
        }
    }

    #[test]
    fn descriptions_say_by_which_fields() {
        let said = serde_json::json!(Affinity::Fields { fields: BOTH, symmetric: true });
        let want =
            serde_json::json!({"fields": {"fields": ["ip_src", "ip_dst"], "symmetric": true}});
        assert_eq!(said, want);
    }
}
