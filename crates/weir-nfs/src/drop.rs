//! Drops everything.

use schemars::JsonSchema;
use serde::Deserialize;
use weir_nf::{ConfigError, Ctx, Descriptor, DropReason, Effect, Env, Nf, Packets, ReadOnly};

/// Drops every packet.
///
/// *Output:* `out`, which nothing ever takes (an NF has at least one). *Config:* `reason`, the name
/// that drops are counted under, `policy` unless told otherwise.
#[derive(Debug)]
pub struct Drop {
    reason: DropReason,
}

/// Configuration of [`Drop`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the drop reason, such as `filtered`.
    #[schemars(extend("default" = DropReason::Policy.name(), "enum" = names()))]
    pub reason: Option<String>,
}

impl Nf for Drop {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Drop",
        summary: "Drops every packet",
        may_drop: true,
        cost_cycles: 5,
        effect: Effect::Pure,
        affinity: weir_nf::Affinity::None,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = ();

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let Some(name) = config.reason else {
            return Ok(Drop { reason: DropReason::Policy });
        };
        match DropReason::ALL.iter().find(|r| r.name() == name) {
            Some(&reason) => Ok(Drop { reason }),
            None => {
                let why = format!("no drop reason is called `{name}`: {}", names().join(", "));
                Err(ConfigError { at: "/reason".into(), why })
            }
        }
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, _: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            packet.drop(self.reason);
        }
    }
}

/// What may be written.
fn names() -> Vec<&'static str> {
    DropReason::ALL.iter().map(|reason| reason.name()).collect()
}

weir_nf::register!(Drop);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_nf::testing::Bench;

    #[test]
    fn every_packet_is_dropped_under_the_configured_reason() {
        let frames = [vec![], vec![0; 5], vec![0; 1500]];
        let cases = [
            (json!(null), DropReason::Policy),
            (json!({"reason": "filtered"}), DropReason::Filtered),
        ];
        for (config, reason) in cases {
            let seen = Bench::new::<Drop>(config).unwrap().run(&frames);
            assert!(seen.iter().all(|s| s.verdict == Err(reason)), "{seen:?}");
            assert_eq!(seen.len(), 3);
        }
    }

    #[test]
    fn an_unknown_reason_is_refused_with_the_known_ones() {
        let error = Bench::new::<Drop>(json!({"reason": "bored"})).err().unwrap().to_string();
        assert!(error.starts_with("/reason: no drop reason is called `bored`"), "{error}");
        assert!(error.contains("bad-header"), "{error}");
    }
}
