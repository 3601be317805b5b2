//! Copies packets.

use serde::{Deserialize, Serialize};
use weir_nf::{
    ConfigError, Ctx, Descriptor, Effect, Env, LayerAccess, Merge, Nf, NoConfig, Packets, ReadOnly,
    Touch,
};

/// Sends every packet on, and a copy of it another way.
///
/// *Outputs:* `out`, the packet itself; `copy`, a copy with the same bytes, time and tags, directly
/// behind it. *Config:* none. A Tee is given no more packets than there are free buffers, so
/// copying slows input down rather than losing copies; should one be missing all the same, the
/// packet goes on alone and is counted as `no_buffer`.
#[derive(Debug)]
pub struct Tee;

const COPY: u8 = 1;

/// What was copied.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Copied {
    /// Packets of which a copy was sent.
    pub copied: u64,
    /// Packets of which none could be made.
    pub no_buffer: u64,
}

impl Merge for Copied {
    fn merge(&mut self, other: Self) {
        self.copied += other.copied;
        self.no_buffer += other.no_buffer;
    }
}

impl Nf for Tee {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Tee",
        summary: "Sends every packet on, and a copy of it by another output",
        outputs: &["out", "copy"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        cost_cycles: 100,
        creates: 1,
        creates_to: Some("copy"),
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Copied;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Tee)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let Some(copy) = ctx.copy(&packet) else {
                ctx.shared().no_buffer += 1;
                continue;
            };
            let cause = ctx.cause(&packet);
            ctx.emit(copy, COPY, &cause);
            ctx.shared().copied += 1;
        }
    }
}

weir_nf::register!(Tee);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_nf::testing::Bench;

    #[test]
    fn every_packet_goes_on_and_its_copy_leaves_by_copy() {
        let frames: Vec<Vec<u8>> = [0, 1, 60, 300, 9000].map(|n| vec![n as u8; n]).into();
        let mut bench = Bench::new::<Tee>(Default::default()).unwrap();
        let seen = bench.run(&frames);
        assert!(seen.iter().all(|s| s.output() == "out"));
        assert_eq!(seen.into_iter().map(|s| s.bytes).collect::<Vec<_>>(), frames);
        let copies = bench.made();
        assert!(copies.iter().all(|s| s.output() == "copy"));
        assert_eq!(copies.into_iter().map(|s| s.bytes).collect::<Vec<_>>(), frames);
        assert_eq!(bench.report(), json!({"copied": 5, "no_buffer": 0}));
    }

    #[test]
    fn without_a_buffer_the_packet_goes_on_alone_and_is_counted() {
        let mut bench = Bench::new::<Tee>(Default::default()).unwrap();
        bench.set_buffers(2);
        let seen = bench.run(&[[1; 60], [2; 60], [3; 60]]);
        assert!(seen.iter().all(|s| s.output() == "out"));
        assert_eq!(bench.made().len(), 2);
        assert_eq!(bench.report(), json!({"copied": 2, "no_buffer": 1}));
        // What had left is free again.
        assert_eq!(bench.buffers(), 2);
    }
}
