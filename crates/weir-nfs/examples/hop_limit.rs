//! The µNF of `docs/writing-a-nf.md`, whole: `cargo test --example hop_limit`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::{
    Affinity, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, FlowState, LayerAccess,
    Merge, Nf, NumberTag, Packets, ReadOnly, TagDecl, TagKind, Touch,
};

/// Drops packets whose TTL or hop limit is below a minimum, and packets of flows that had too many
/// of them.
///
/// *Outputs:* `ip`, `non_ip`. *Drops:* `expired`. *Tag:* `left`, what the header says.
/// *Source:* RFC 791 §3.1, RFC 8200 §3.
#[derive(Debug)]
pub struct HopLimit {
    min: u8,
    strikes: u32,
    left: Option<NumberTag>,
}

/// Configuration of [`HopLimit`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The least TTL or hop limit that passes.
    #[serde(default = "one")]
    min: u8,
    /// So many expired packets block their flow; 0: never.
    #[serde(default)]
    strikes: u32,
}

fn one() -> u8 {
    1
}

/// Expired packets of one flow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Strikes(u32);

impl FlowState for Strikes {}

/// Expired packets in all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Count {
    expired: u64,
}

impl Merge for Count {
    fn merge(&mut self, other: Self) {
        self.expired += other.expired;
    }
}

const IP: u8 = 0;
const NON_IP: u8 = 1;

impl Nf for HopLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "HopLimit",
        summary: "Drops packets with too small a TTL or hop limit",
        outputs: &["ip", "non_ip"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Nop,
        },
        may_drop: true,
        effect: Effect::Stateful,
        affinity: Affinity::Flow,
        cost_cycles: 80,
        tags: &[TagDecl { name: "left", kind: TagKind::Number }],
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = Strikes;
    type Shared = Count;

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        if config.min == 0 {
            let why = "0 lets everything pass; the least is 1".to_owned();
            return Err(ConfigError { at: "/min".to_owned(), why });
        }
        let left = env.number("left");
        Ok(HopLimit { min: config.min, strikes: config.strikes, left })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let layers = packet.layers(Depth::L2);
            let Some(ttl) = layers.ttl(&packet.bytes()) else {
                packet.send(NON_IP);
                continue;
            };
            if let Some(left) = &self.left {
                left.set(&packet, ttl.into());
            }
            let expired = ttl < self.min;
            let flow = ctx.flow(&packet);
            let strikes = flow.map_or(0, |Strikes(count)| {
                *count = count.saturating_add(expired.into());
                *count
            });
            if expired || self.strikes > 0 && strikes >= self.strikes {
                ctx.shared().expired += u64::from(expired);
                packet.drop(DropReason::Expired);
            } else {
                packet.send(IP);
            }
        }
    }
}

weir_nf::register!(HopLimit);

/// A µNF has no `main`: linking it is enough. This one says that it is there.
fn main() {
    for nf in weir_nf::registrations() {
        println!("{}: {}", nf.descriptor.name, nf.descriptor.summary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_nf::testing::Bench;
    use weir_nf::wire::Frame;

    fn frame(ttl: u8) -> Vec<u8> {
        Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).udp(7, 7).ttl(ttl).vlan(7).build()
    }

    #[test]
    fn a_flow_with_too_many_is_blocked() {
        let mut bench = Bench::new::<HopLimit>(json!({"min": 5, "strikes": 2})).unwrap();
        let seen = bench.run(&[frame(9), frame(1), frame(9), frame(1), frame(9)]);
        let passes: Vec<_> = seen.iter().map(|s| s.verdict.is_ok()).collect();
        assert_eq!(passes, [true, false, true, false, false]);
    }

    #[test]
    fn what_is_left_is_told_to_those_who_ask() {
        let place = weir_nf::TagPlace::Number { slot: 0 };
        let left = weir_nf::TagSpec { name: "left".to_owned(), place };
        let env = Env::new(&[left], 0).unwrap();
        let mut bench = Bench::with_env::<HopLimit>(json!({"min": 1}), &env).unwrap();
        let arp = Frame::other(0x0806).payload(&[0; 28]).build();
        // One more than the number; 0 says that there is none.
        let words: Vec<_> = bench.run(&[frame(9), arp]).iter().map(|s| s.tags[0]).collect();
        assert_eq!(words, [10, 0]);
    }

    #[test]
    fn a_minimum_of_zero_is_refused() {
        let error = Bench::new::<HopLimit>(json!({"min": 0})).err().unwrap();
        assert_eq!(error.to_string(), "/min: 0 lets everything pass; the least is 1");
    }

    #[test]
    fn packets_below_the_minimum_are_dropped_and_counted() {
        let mut bench = Bench::new::<HopLimit>(json!({"min": 5})).unwrap();
        let arp = Frame::other(0x0806).payload(&[0; 28]).build();
        let seen = bench.run(&[frame(5), frame(4), arp]);
        let verdicts: Vec<_> = seen.iter().map(|s| s.verdict).collect();
        assert_eq!(verdicts, [Ok("ip"), Err(DropReason::Expired), Ok("non_ip")]);
        assert_eq!(bench.report(), json!({"expired": 1}));
    }
}
