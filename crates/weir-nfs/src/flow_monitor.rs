//! Counts traffic per flow.

mod top;

pub use top::{Account, Talker, Top, Watched};

use top::TopInLetters;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::headers::plain_v4;
use weir_nf::{
    Affinity, ConfigError, Ctx, Depth, Descriptor, Effect, Env, FLOW_FIELDS, FlowKey, Fragment,
    LayerAccess, Merge, Nf, NumberTag, Packets, ReadOnly, TagDecl, TagKind, Touch, WhenFull,
};

/// Counts packets, bytes (on the wire) and TCP flags of each flow and direction, and lists the flows
/// with the most bytes.
///
/// *Output:* `out`. *Config:* `top`, flows listed, [`MOST_LISTED`] at most. *Tags:* `packets` and `bytes` (numbers), what
/// the packet's flow has had in both directions, itself included. A flow's first packet says which
/// direction is the first; ICMP errors count for the flow that they quote, later fragments for that of
/// their first fragment. A flow that has been idle for 120 s and comes again is a new one. *Source:* RFC 7011
/// and 5102 (what a flow record says), NFActor's flow monitor. *Limits:* packets without a flow count in all only, as
/// `untold`. 65,536 flows unless told otherwise (`--flows`): a new one takes the place of one that had just one packet, or of one that was idle for long
/// ([`WhenFull::GiveWay`]), which is a new flow when it comes again. The list is exact but for that.
#[derive(Debug)]
pub struct FlowMonitor {
    top: usize,
    packets: Option<NumberTag>,
    bytes: Option<NumberTag>,
}

/// Most flows that can be listed: a flow that enters the list is compared with all that are there.
pub const MOST_LISTED: u16 = 100;

/// Flows listed unless told otherwise.
const LISTED: u16 = 10;

/// Configuration of [`FlowMonitor`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many flows are listed, those with the most bytes; at most 100.
    #[schemars(range(max = MOST_LISTED), extend("default" = LISTED))]
    pub top: Option<u16>,
}

/// What was seen in all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that no flow's account has: not IP, or cut before the end of their addresses.
    pub untold: u64,
    /// Flows that have begun.
    pub flows: u64,
    /// Of these, flows that have ended.
    pub ended: u64,
    /// Of these, flows that gave way to new ones, as there were too many.
    pub gave_way: u64,
    /// The flows with the most bytes.
    pub top: Top,
}

/// [`Traffic`] as version 2 wrote it: flags as letters.
#[derive(Deserialize)]
struct InLetters {
    packets: u64,
    bytes: u64,
    untold: u64,
    flows: u64,
    ended: u64,
    gave_way: u64,
    top: TopInLetters,
}

impl Merge for Traffic {
    const VERSION: u32 = 3;

    fn from_version(version: u32, bytes: &[u8]) -> Option<Self> {
        let old = weir_nf::read_state(bytes).ok().filter(|_| version == 2)?;
        let InLetters { packets, bytes, untold, flows, ended, gave_way, top } = old;
        Some(Traffic { packets, bytes, untold, flows, ended, gave_way, top: top.into() })
    }

    fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.untold += other.untold;
        self.flows += other.flows;
        self.ended += other.ended;
        self.gave_way += other.gave_way;
        self.top.merge(other.top);
    }
}

impl Nf for FlowMonitor {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "FlowMonitor",
        summary: "Counts packets, bytes and TCP flags per flow and direction",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            // What ICMP errors quote: the flow that they belong to.
            payload: Touch::Read,
        },
        fields: FLOW_FIELDS,
        effect: Effect::Stateful,
        affinity: Affinity::Flow,
        cost_cycles: 110,
        tags: &[
            TagDecl { name: "packets", kind: TagKind::Number },
            TagDecl { name: "bytes", kind: TagKind::Number },
        ],
        when_full: WhenFull::GiveWay,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = Watched;
    type Shared = Traffic;

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        let top = config.top.unwrap_or(LISTED);
        if top > MOST_LISTED {
            let why = format!("{top} flows; at most {MOST_LISTED} can be listed");
            return Err(ConfigError { at: "/top".to_owned(), why });
        }
        let (packets, bytes) = (env.number("packets"), env.number("bytes"));
        Ok(FlowMonitor { top: top.into(), packets, bytes })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        ctx.shared().top.limit(self.top);
        for packet in packets.iter_mut() {
            let (now, len) = (ctx.now(&packet), packet.wire_len() as u64);
            let (flow, shared) = ctx.flow_of_and_shared(&packet);
            shared.packets += 1;
            shared.bytes += len;
            let Some(flow) = flow else {
                shared.untold += 1;
                continue;
            };
            shared.flows += u64::from(flow.is_new);
            let bytes = packet.bytes();
            let flags = match plain_v4(&bytes) {
                Some(plain) => plain.tcp_flags,
                None => packet.layers(Depth::L4).tcp_flags(&bytes),
            };
            let place = shared.top.place_of(flow.state);
            flow.state.account.add(flow.from_starter, len, flags.unwrap_or(0), now);
            let ends = || {
                let layers = packet.layers(Depth::L4);
                // A later fragment has no ports: its flow's next packet will name it.
                let whole = layers.fragment() != Fragment::Later;
                let (key, direction) = FlowKey::from_packet(&bytes, &layers).filter(|_| whole)?;
                let by_starter = if flow.from_starter { direction } else { direction.reverse() };
                Some((key.ends(by_starter).map(Into::into), key.proto(), key.zone()))
            };
            shared.top.note(place, flow.state, ends);
            if let Some(tag) = &self.packets {
                tag.set(&packet, flow.state.account.packets.iter().sum());
            }
            if let Some(tag) = &self.bytes {
                tag.set(&packet, flow.state.account.bytes.iter().sum());
            }
        }
        let gave_way = ctx.gave_way();
        ctx.shared().gave_way += gave_way;
    }

    fn on_flow_end(&self, _: &FlowKey, _: Watched, shared: &mut Traffic) {
        shared.ended += 1;
    }
}

weir_nf::register!(FlowMonitor);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn what_version_2_wrote_of_all_is_read() {
        // 9 packets, 260 bytes, none untold, 2 flows of which 1 has ended and none gave way.
        // One that is listed: 10.0.0.1:7 and 10.0.0.2:9, TCP, no VLANs; 3 packets and 1 back, 200 and 60 bytes, flags S and SA, from 7 to 9 ns.
        let mut old: Vec<u8> = vec![9, 0x84, 0x02, 0, 2, 1, 0, 1];
        for (host, port) in [(1, 7), (2, 9)] {
            old.extend([0, 10, 0, 0, host, port]);
        }
        old.extend([6, 0, 3, 1, 200, 1, 60, 1, b'S', 2, b'S', b'A', 7, 9, 10]);
        let read = Traffic::from_version(2, &old).unwrap();
        assert_eq!((read.packets, read.bytes, read.flows, read.ended), (9, 260, 2, 1));
        let json = serde_json::to_value(&read.top).unwrap();
        let listed = &json["talkers"][0];
        assert_eq!(listed["ends"], serde_json::json!(["10.0.0.1:7", "10.0.0.2:9"]));
        assert_eq!(listed["account"]["flags"], serde_json::json!(["S", "SA"]));
        assert!(Traffic::from_version(1, &old).is_none());
    }
}
