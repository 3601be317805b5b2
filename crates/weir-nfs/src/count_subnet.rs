//! Counts traffic per subnet.

mod prefix;

pub use prefix::{Counts, Prefixes, Subnets};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::{
    ConfigError, Ctx, Depth, Descriptor, Effect, Env, Field, LayerAccess, Nf, Packets, ReadOnly,
    Touch,
};

/// Counts packets and bytes (on the wire) per subnet, each packet under the longest prefix that its
/// address is in.
///
/// *Output:* `out`. *Config:* `prefixes`, IPv4 and IPv6, at most [`MOST_PREFIXES`]; `by`: `src` (unless told
/// otherwise) or `dst`. What is in none of them, and what is not IP, counts apart. *Source:* longest
/// match as in RFC 1812 §5.2.4.3.
#[derive(Debug)]
pub struct CountSubnet {
    prefixes: Prefixes,
    by: By,
}

/// Most prefixes.
pub const MOST_PREFIXES: usize = 10_000;

/// Which address decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The source.
    #[default]
    Src,
    /// The destination.
    Dst,
}

/// Configuration of [`CountSubnet`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Subnets, such as `192.0.2.0/24` or `2001:db8::/32`.
    #[serde(default)]
    #[schemars(length(max = MOST_PREFIXES))]
    pub prefixes: Vec<String>,
    /// Which address decides.
    #[serde(default)]
    pub by: By,
}

impl Nf for CountSubnet {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "CountSubnet",
        summary: "Counts packets and bytes per subnet",
        layers: LayerAccess { l2: Touch::Read, l3: Touch::Read, ..LayerAccess::NONE },
        fields: &[
            (Field::EthType, Touch::Read),
            (Field::Vlan, Touch::Read),
            (Field::IpSrc, Touch::Read),
            (Field::IpDst, Touch::Read),
        ],
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        // Up to a thousand prefixes of many lengths and addresses by chance; 240 with ten thousand.
        cost_cycles: 150,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Subnets;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        if config.prefixes.len() > MOST_PREFIXES {
            let why = format!("{} prefixes; at most {MOST_PREFIXES}", config.prefixes.len());
            return Err(ConfigError { at: "/prefixes".to_owned(), why });
        }
        Ok(CountSubnet { prefixes: Prefixes::new(&config.prefixes)?, by: config.by })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let counts = ctx.shared();
        counts.align(&self.prefixes);
        for packet in packets.iter_mut() {
            let layers = packet.layers(Depth::L2);
            let address = layers.ips(&packet.bytes()).map(|(src, dst)| match self.by {
                By::Src => src,
                By::Dst => dst,
            });
            let bytes = packet.wire_len() as u64;
            match address {
                None => counts.not_ip.add(bytes),
                Some(address) => counts.add(self.prefixes.find(address), bytes),
            }
        }
    }
}

weir_nf::register!(CountSubnet);
