//! Holds traffic to rates.

mod meter;

pub use meter::{Buckets, Color, Limit, Meter};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_classify::Action;
use weir_nf::{
    Affinity, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, FLOW_FIELDS, FlowState,
    LayerAccess, Merge, Nf, Packets, ReadOnly, TagDecl, TagKind, TextTag, Touch, WhenFull,
};

/// Holds each flow, and all traffic together, to a rate with bursts.
///
/// A packet is green within the rate, yellow within the excess burst (RFC 2697) or the peak rate (RFC
/// 2698), and red beyond; of two limits the worse counts, and red packets use up nothing. *Output:* `out`.
/// *Drops:* `rate-limit` (red ones), `truncated` (cut before the end of its addresses, so that nobody knows its flow, when flows have a
/// limit). *Config:* `flow` and
/// `total`, a [`Limit`] each: `rate` in bits per second and `burst` in bytes, `excess`, or `peak_rate` and
/// `peak_burst`; without them nothing is limited. `red`: `pass` lets red packets through, told by the tag.
/// *Tag:* `color` (text): `green`, `yellow`, `red`. Both directions of a flow share its limit. Bytes count
/// from the IP header on, by length on the wire; time is the packets'. What is not IP counts in `total` only.
/// *Limits:* 65,536 flows unless told otherwise (`--flows`). A new one takes the place of one that had just one packet, or of one that was idle for long
/// ([`WhenFull::GiveWay`]), which has its burst anew when it comes again: who floods is held by `total`.
/// With `total` there is one instance; without it flows divide over several, and can move.
#[derive(Debug)]
pub struct Policer {
    flow: Option<Meter>,
    total: Option<Meter>,
    red: Action,
    color: Option<TextTag>,
}

/// Configuration of [`Policer`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What each flow may have, both directions together; without it any rate.
    #[serde(default)]
    pub flow: Option<Limit>,
    /// What all may have together, so that there is one instance; without it any rate.
    #[serde(default)]
    pub total: Option<Limit>,
    /// What happens to red packets: `drop` unless told otherwise.
    #[schemars(extend("default" = Action::Drop))]
    pub red: Option<Action>,
}

/// A flow's buckets.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct OfFlow(Buckets);

impl FlowState for OfFlow {}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    fn merge(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What was metered, by colour.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Metered {
    /// Within the rate.
    pub green: Count,
    /// Within excess or peak.
    pub yellow: Count,
    /// Beyond.
    pub red: Count,
    /// Dropped, as they are cut before the end of their addresses.
    pub cut: Count,
    /// Flows that gave way to new ones, as there were too many.
    pub gave_way: u64,
    total: Buckets,
}

impl Merge for Metered {
    const VERSION: u32 = 2;

    fn merge(&mut self, other: Self) {
        self.green.merge(other.green);
        self.yellow.merge(other.yellow);
        self.red.merge(other.red);
        self.cut.merge(other.cut);
        self.gave_way += other.gave_way;
        self.total = self.total.later(other.total);
    }
}

impl Nf for Policer {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Policer",
        summary: "Holds each flow, and all traffic, to a rate with bursts",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            // What ICMP errors quote: the flow that they belong to.
            payload: Touch::Read,
        },
        fields: FLOW_FIELDS,
        may_drop: true,
        effect: Effect::Stateful,
        // One bucket for all of them, if `total` has one.
        affinity: Affinity::All,
        cost_cycles: 110,
        tags: &[TagDecl { name: "color", kind: TagKind::Text }],
        when_full: WhenFull::GiveWay,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = OfFlow;
    type Shared = Metered;

    const AFFINITY_BY: &'static [&'static str] = &["total"];

    fn affinity(config: &Config) -> Affinity {
        if config.total.is_some() { Affinity::All } else { Affinity::Flow }
    }

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        let meter = |limit: Option<Limit>, at| limit.map(|l| Meter::new(&l, at)).transpose();
        Ok(Policer {
            flow: meter(config.flow, "/flow")?,
            total: meter(config.total, "/total")?,
            red: config.red.unwrap_or(Action::Drop),
            color: env.text("color"),
        })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let now = ctx.now(&packet);
            let layers = packet.layers(Depth::L4);
            let bytes = packet.wire_len().saturating_sub(usize::from(layers.l3)) as u64;
            let of_flow = self.flow.as_ref().filter(|_| layers.is_ip());
            let (flow, shared) = match of_flow {
                Some(_) => ctx.flow_and_shared(&packet),
                None => (None, ctx.shared()),
            };
            let mut meters = [
                self.total.as_ref().map(|meter| (meter, &mut shared.total)),
                of_flow.zip(flow).map(|(meter, OfFlow(buckets))| (meter, buckets)),
            ];
            if of_flow.is_some() && meters[1].is_none() {
                shared.cut.add(bytes);
                packet.drop(DropReason::Truncated);
                continue;
            }
            let mut look = |at: usize| match &mut meters[at] {
                Some((meter, buckets)) => meter.look(buckets, now, bytes),
                None => Color::Green,
            };
            let colors = [look(0), look(1)];
            let color = colors[0].max(colors[1]);
            if color != Color::Red {
                for (meter, color) in meters.iter_mut().zip(colors) {
                    if let Some((meter, buckets)) = meter {
                        meter.take(buckets, bytes, color);
                    }
                }
            }
            match color {
                Color::Green => shared.green.add(bytes),
                Color::Yellow => shared.yellow.add(bytes),
                Color::Red => shared.red.add(bytes),
            }
            if let Some(tag) = &self.color {
                tag.set(&packet, color.name().as_bytes());
            }
            if color == Color::Red && self.red == Action::Drop {
                packet.drop(DropReason::RateLimit);
            }
        }
        let gave_way = ctx.gave_way();
        ctx.shared().gave_way += gave_way;
    }
}

weir_nf::register!(Policer);
