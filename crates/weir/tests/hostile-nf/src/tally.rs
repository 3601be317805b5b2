//! `Tally`, a µNF that there are several versions of: `bin/tally-*.rs`. The first counted packets of each flow; the second
//! counts bytes as well, and reads what the first wrote; the third reads nothing but its own.

use serde::{Deserialize, Serialize};
use weir_nf::{FlowState, Merge};

/// What versions remember of a flow.
pub trait Seen: FlowState {
    /// One packet more; how many that makes, and how many bytes if they are counted.
    fn count(&mut self, len: u64) -> (u64, u64);
}

/// What was seen in all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Total {
    /// Which version saw the last packet.
    pub version: u32,
    /// Flows that have begun.
    pub flows: u64,
    /// Packets, and counted bytes, of the flow that has most of them.
    pub most: (u64, u64),
}

impl Merge for Total {
    fn merge(&mut self, other: Self) {
        self.version = self.version.max(other.version);
        self.flows += other.flows;
        self.most = self.most.max(other.most);
    }
}

/// The µNF of version `$version`, whose flows' state is a `$state`.
#[macro_export]
macro_rules! tally {
    ($version:literal, $state:ty) => {
        struct Tally;

        impl weir_nf::Nf for Tally {
            const DESCRIPTOR: weir_nf::Descriptor = weir_nf::Descriptor {
                name: "Tally",
                summary: "Counts packets of flows, in one of several versions",
                layers: weir_nf::LayerAccess {
                    l2: weir_nf::Touch::Read,
                    l3: weir_nf::Touch::Read,
                    l4: weir_nf::Touch::Read,
                    ..weir_nf::LayerAccess::NONE
                },
                fields: weir_nf::FLOW_FIELDS,
                effect: weir_nf::Effect::Stateful,
                affinity: weir_nf::Affinity::Flow,
                ..weir_nf::Descriptor::BASE
            };
            type Access = weir_nf::ReadOnly;
            type Config = weir_nf::NoConfig;
            type Flow = $state;
            type Shared = tally::Total;

            fn build(_: Self::Config, _: &weir_nf::Env) -> Result<Self, weir_nf::ConfigError> {
                Ok(Tally)
            }

            fn process(
                &self,
                packets: &mut weir_nf::Packets<'_, weir_nf::ReadOnly>,
                ctx: &mut weir_nf::Ctx<'_, Self>,
            ) {
                for packet in packets.iter_mut() {
                    let (flow, total) = ctx.flow_of_and_shared(&packet);
                    let Some(flow) = flow else { continue };
                    let seen = tally::Seen::count(flow.state, packet.wire_len() as u64);
                    total.version = $version;
                    total.flows += u64::from(flow.is_new);
                    total.most = total.most.max(seen);
                }
            }
        }

        weir_nf::register!(Tally);

        fn main() -> std::process::ExitCode {
            weir_worker::main()
        }
    };
}
