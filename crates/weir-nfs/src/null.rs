//! Does nothing.

use weir_nf::{ConfigError, Ctx, Descriptor, Effect, Env, Nf, NoConfig, Packets, ReadOnly};

/// Passes every packet as it is, without a look at it.
///
/// *Output:* `out`. *Config:* none. What a µNF costs by being there: the yardstick for others, and a
/// place in a policy for a name, a counter, or a capture.
#[derive(Debug)]
pub struct Null;

impl Nf for Null {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Null",
        summary: "Passes every packet as it is",
        cost_cycles: 1,
        effect: Effect::Pure,
        affinity: weir_nf::Affinity::None,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Null)
    }

    #[inline]
    fn process(&self, _: &mut Packets<'_, ReadOnly>, _: &mut Ctx<'_, Self>) {}
}

weir_nf::register!(Null);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_nf::testing::Bench;

    #[test]
    fn every_packet_passes_as_it_is() {
        let frames: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; n.into()]).collect();
        let seen = Bench::new::<Null>(Default::default()).unwrap().run(&frames);
        assert!(seen.iter().all(|s| s.output() == "out"));
        assert_eq!(seen.into_iter().map(|s| s.bytes).collect::<Vec<_>>(), frames);
    }
}
