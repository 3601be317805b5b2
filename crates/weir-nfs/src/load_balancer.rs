//! Spreads flows over back-ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_nf::serde_json::json;
use weir_nf::{
    Affinity, ConfigError, Ctx, Depth, Descriptor, Effect, Env, FLOW_FIELDS, FlowHasher, FlowKey,
    FlowState, LayerAccess, Neighbours, Nf, Packets, ReadOnly, Touch,
};

/// Sends each flow to one of up to 16 back-ends, by a seeded hash of the flow.
///
/// *Outputs:* `b0` to `b15`, a back-end each; `other`, what is not IP. *Config:* `backends`, numbers of
/// the outputs in use; generated from the links when left out. Both directions of a flow, IP
/// fragments and ICMP errors about it take the same output, and a flow keeps its output when
/// `backends` changes, as long as its output stays. Only the flows of an output that goes move
/// (rendezvous hashing). *Source:* the µNF paper's Load Balancer (§II), "distributes packets to back-end
/// servers based on flow signature"; writing the next hop's MAC address is the paper's Tx
/// service's business (§IV-C), so packets stay as they are. *Limits:* when the flow table is full, new flows go by
/// the hash alone, and fragments whose first has not been seen go together by their addresses.
#[derive(Debug)]
pub struct LoadBalancer {
    hasher: FlowHasher,
    /// Which output each back-end number in use is; by bucket of the hash.
    buckets: Vec<u8>,
    /// Outputs in use, a bit each.
    used: u16,
}

/// Configuration of [`LoadBalancer`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Numbers of the outputs in use, from 0 to 15; without it those that are linked.
    #[serde(default)]
    #[schemars(length(min = 1, max = MOST), inner(range(max = 15)), extend("uniqueItems" = true))]
    pub backends: Option<Vec<u8>>,
}

/// The output that a flow was given.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Chosen(Option<u8>);

impl FlowState for Chosen {}

const MOST: u8 = 16;
const OTHER: u8 = MOST;
/// Buckets of the hash: with 16 back-ends one has 256 of them, give or take a few in a hundred.
const BUCKETS: usize = 4096;

impl LoadBalancer {
    /// The output that the packet's flow hashes to; `None` for what has no flow.
    #[inline]
    fn hashed(&self, key: &FlowKey) -> u8 {
        let bucket = self.hasher.hash(key) as usize % BUCKETS;
        self.buckets.get(bucket).copied().unwrap_or(OTHER)
    }

    fn in_use(&self, output: u8) -> bool {
        self.used.checked_shr(output.into()).is_some_and(|bits| bits & 1 == 1)
    }
}

/// A number in which every bit depends on every bit of `x` (the finaliser of SplitMix64, Steele et al., 2014).
pub(crate) fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Nf for LoadBalancer {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "LoadBalancer",
        summary: "Spreads flows over up to 16 back-ends by a hash of the flow",
        outputs: &[
            "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b11", "b12", "b13",
            "b14", "b15", "other",
        ],
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
        cost_cycles: 120,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = Chosen;
    type Shared = ();

    fn generate(config: Value, neighbours: &Neighbours) -> Result<Value, ConfigError> {
        if config.get("backends").is_some_and(|given| !given.is_null()) {
            return Ok(config);
        }
        let linked = neighbours.outputs.iter().zip(0..MOST).filter(|((_, to), _)| !to.is_empty());
        let backends: Vec<u8> = linked.map(|(_, output)| output).collect();
        if backends.is_empty() {
            let why = "no back-end is linked; link at least one of its outputs `b0` to `b15`";
            return Err(ConfigError { at: "/backends".to_owned(), why: why.to_owned() });
        }
        Ok(json!({ "backends": backends }))
    }

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        let wrong = |at: String, why: String| Err(ConfigError { at, why });
        let backends = config.backends.unwrap_or_else(|| (0..MOST).collect());
        let mut used = 0_u16;
        for (i, backend) in backends.iter().enumerate() {
            let at = format!("/backends/{i}");
            match 1_u16.checked_shl(u32::from(*backend)) {
                None => return wrong(at, format!("{backend}: write a number from 0 to 15")),
                Some(bit) if used & bit != 0 => {
                    return wrong(at, format!("{backend} is there twice; write it once"));
                }
                Some(bit) => used |= bit,
            }
        }
        if used == 0 {
            return wrong("/backends".to_owned(), "write at least one back-end".to_owned());
        }
        let weight =
            |bucket: usize, backend: u8| mixed(((bucket as u64) << 8) | u64::from(backend));
        let best = |bucket| backends.iter().copied().max_by_key(|b| weight(bucket, *b));
        let buckets = (0..BUCKETS).filter_map(best).collect();
        // The flow hash of the graph's seed: equal runs spread alike.
        let seed = u128::from(mixed(env.seed)) << 64 | u128::from(env.seed);
        Ok(LoadBalancer { hasher: FlowHasher::new(seed), buckets, used })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let layers = packet.layers(Depth::L4);
            let Some((key, _)) = FlowKey::from_packet(&packet.bytes(), &layers) else {
                packet.send(OTHER);
                continue;
            };
            let output = match ctx.flow(&packet) {
                Some(Chosen(Some(output))) if self.in_use(*output) => *output,
                Some(chosen) => *chosen.0.insert(self.hashed(&key)),
                None => self.hashed(&key),
            };
            packet.send(output);
        }
    }
}

weir_nf::register!(LoadBalancer);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_nf::testing::Bench;
    use weir_nf::wire::Frame;

    fn spread(config: Value, frames: &[Vec<u8>]) -> Vec<&'static str> {
        let mut bench = Bench::new::<LoadBalancer>(config).unwrap();
        bench.run(frames).iter().map(weir_nf::testing::Seen::output).collect()
    }

    fn v4(client: u16, reply: bool) -> Vec<u8> {
        let (a, b) = ([10, 0, (client >> 8) as u8, client as u8], [192, 0, 2, 1]);
        match reply {
            false => Frame::ipv4(a, b).tcp(40_000, 80, 2).build(),
            true => Frame::ipv4(b, a).tcp(80, 40_000, 18).build(),
        }
    }

    fn v6(client: u16, reply: bool) -> Vec<u8> {
        let (mut a, b) = ([0xfd; 16], [0xfe; 16]);
        a[14..].copy_from_slice(&client.to_be_bytes());
        match reply {
            false => Frame::ipv6(a, b).udp(40_000, 53).build(),
            true => Frame::ipv6(b, a).udp(53, 40_000).build(),
        }
    }

    #[test]
    fn both_directions_of_a_flow_go_to_the_same_back_end_and_flows_spread_evenly() {
        for make in [v4, v6] {
            let there: Vec<_> = (0..1000).map(|client| make(client, false)).collect();
            let back: Vec<_> = (0..1000).map(|client| make(client, true)).collect();
            let config = json!({"backends": [0, 1, 2, 3]});
            // A bench each: the flow table must not be what makes them agree.
            let seen = spread(config.clone(), &there);
            assert_eq!(seen, spread(config, &back));
            let mut count: BTreeMap<&str, usize> = BTreeMap::new();
            seen.iter().for_each(|output| *count.entry(output).or_default() += 1);
            assert_eq!(count.keys().copied().collect::<Vec<_>>(), ["b0", "b1", "b2", "b3"]);
            assert!(count.values().all(|n| (180..320).contains(n)), "{count:?}");
        }
    }

    #[test]
    fn only_the_flows_of_a_back_end_that_goes_move() {
        let frames: Vec<_> = (0..500).map(|client| v4(client, false)).collect();
        let four = spread(json!({"backends": [0, 1, 2, 3]}), &frames);
        let three = spread(json!({"backends": [0, 1, 3]}), &frames);
        for (before, after) in four.iter().zip(&three) {
            assert!(before == after || *before == "b2", "{before} moved to {after}");
        }
        assert!(!three.contains(&"b2") && four.contains(&"b2"));
    }

    #[test]
    fn later_fragments_follow_their_first() {
        for client in 0..50 {
            let whole = Frame::ipv4([10, 0, 0, client], [192, 0, 2, 1]).udp(4000, 53);
            let fragments = whole.payload(&[7; 100]).fragments(40);
            assert!(fragments.len() > 2);
            let seen = spread(json!({"backends": [0, 1, 2, 3, 4]}), &fragments);
            assert!(seen.iter().all(|output| output == &seen[0]), "{seen:?}");
        }
    }

    #[test]
    fn what_is_not_ip_leaves_by_other() {
        let arp = Frame::other(0x0806).payload(&[0; 28]).build();
        assert_eq!(spread(json!({}), &[arp, vec![0; 5], Vec::new()]), ["other"; 3]);
    }

    #[test]
    fn the_links_say_which_back_ends_there_are_unless_the_configuration_does() {
        let to =
            |n: usize| (format!("b{n}"), if n % 7 == 1 { vec!["x".to_owned()] } else { vec![] });
        let linked = Neighbours { inputs: Vec::new(), outputs: (0..17).map(to).collect() };
        let generated = LoadBalancer::generate(json!({}), &linked).unwrap();
        assert_eq!(generated, json!({"backends": [1, 8, 15]}));
        let given = json!({"backends": [4]});
        assert_eq!(LoadBalancer::generate(given.clone(), &linked).unwrap(), given);
        let error = LoadBalancer::generate(json!({}), &Neighbours::default()).unwrap_err();
        assert!(error.to_string().contains("link at least one"), "{error}");
    }

    #[test]
    fn back_ends_that_cannot_be_are_refused_by_place() {
        for (config, at) in [
            (json!({"backends": []}), "/backends:"),
            (json!({"backends": [0, 16]}), "/backends/1:"),
            (json!({"backends": [3, 4, 3]}), "/backends/2:"),
        ] {
            let Err(error) = Bench::new::<LoadBalancer>(config) else { panic!("{at} was taken") };
            assert!(error.to_string().starts_with(at), "{error}");
        }
    }
}
