//! Burns time.

use schemars::JsonSchema;
use serde::Deserialize;
use std::hint::black_box;
use weir_nf::{ConfigError, Ctx, Descriptor, Effect, Env, Nf, Packets, ReadOnly};

/// Burns processor time for each packet and touches nothing: a stand-in for a µNF of a given cost
/// in benchmarks (the µNF paper's §VI).
///
/// *Output:* `out`. *Config:* `cycles` per packet, 0 unless told otherwise.
#[derive(Debug)]
pub struct Busy {
    cycles: u32,
}

/// Configuration of [`Busy`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Processor cycles per packet, about: so many dependent integer operations, in pairs.
    #[serde(default)]
    pub cycles: u32,
}

impl Nf for Busy {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Busy",
        summary: "Burns processor cycles and touches nothing",
        // The time is what is wanted: twice is not once. In which order it is spent does not matter.
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = ();

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        Ok(Busy { cycles: config.cycles })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, _: &mut Ctx<'_, Self>) {
        for _ in packets.iter_mut() {
            burn(self.cycles);
        }
    }
}

/// A chain in which each step needs the last one's result, so that a processor cannot overlap them:
/// a rotation and an addition, two cycles. The compiler cannot join steps (rotations alone it
/// would), and knows neither where the chain starts nor that nobody wants its end.
fn burn(cycles: u32) {
    let mut chain = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for step in 0..cycles / 2 {
        chain = chain.rotate_left(7).wrapping_add(u64::from(step));
    }
    black_box(chain);
}

weir_nf::register!(Busy);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::{Duration, Instant};
    use weir_nf::testing::Bench;

    #[test]
    fn packets_pass_untouched() {
        let frames = [vec![], vec![1; 64], vec![2; 1500]];
        let seen = Bench::new::<Busy>(json!({"cycles": 100})).unwrap().run(&frames);
        for (seen, frame) in seen.iter().zip(&frames) {
            assert_eq!((seen.output(), &seen.bytes), ("out", frame));
        }
    }

    /// 50 million dependent operations take more than 5 ms on any processor below 10 GHz; they would
    /// not, were the loop optimised away.
    #[test]
    fn cycles_are_burnt_for_each_packet() {
        let mut bench = Bench::new::<Busy>(json!({"cycles": 25_000_000})).unwrap();
        let start = Instant::now();
        bench.run(&[[0; 64], [0; 64]]);
        assert!(start.elapsed() >= Duration::from_millis(5), "{:?}", start.elapsed());
    }

    #[test]
    fn negative_cycles_are_refused() {
        assert!(Bench::new::<Busy>(json!({"cycles": -1})).is_err());
    }
}
