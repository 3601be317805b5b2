//! The trait that a µNF implements.

use crate::ctx::{Cause, Ctx, Env};
use crate::descriptor::{Affinity, Descriptor};
use crate::flows::FlowState;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_packet::{Access, FlowKey, Packets};

/// A packet processor.
///
/// The value itself is its compiled configuration and does not change while packets pass: what a
/// µNF remembers stands in `Flow` and `Shared`, where the runtime finds it: `Shared` is kept when its
/// worker dies, but for what the last tenth of a second added; `Flow` is lost then, as are timers, unless an operator has
/// the µNF replicated ([`Replicate`](crate::Replicate)); held packets always are. `()` says that there is nothing to remember. An NF that keeps state elsewhere
/// (in a cell of its own) loses all of it at the next restart.
pub trait Nf: Sized + Send + 'static {
    /// What it is and may do.
    const DESCRIPTOR: Descriptor;
    /// [`ReadOnly`](weir_packet::ReadOnly) or [`ReadWrite`](weir_packet::ReadWrite).
    type Access: Access;
    /// Its configuration, as written in a policy. Replacing it while running builds a new value
    /// and keeps `Flow` and `Shared`.
    type Config: DeserializeOwned + JsonSchema;
    /// What it remembers of each flow.
    type Flow: FlowState;
    /// What it remembers in all.
    type Shared: Merge;

    /// Generates the configuration from what the policy or a template says and from what this µNF is
    /// connected to, so that nobody has to write down what the links say already (the µNF paper's
    /// configuration generator, §IV-A). Called once, while planning; it must be pure. Most µNFs need
    /// none.
    fn generate(config: Value, _neighbours: &Neighbours) -> Result<Value, ConfigError> {
        Ok(config)
    }

    /// Which packets must meet at one instance, for who tells it by its configuration, as fewer must than the descriptor
    /// says. It must be pure.
    fn affinity(_config: &Self::Config) -> Affinity {
        Self::DESCRIPTOR.affinity
    }

    /// The fields of the configuration that [`Nf::affinity`] looks at: who is refused several instances is told which it is.
    const AFFINITY_BY: &'static [&'static str] = &[];

    /// Compiles a configuration: whatever costs time is done here, not per packet.
    fn build(config: Self::Config, env: &Env) -> Result<Self, ConfigError>;

    /// Processes a batch. A packet without a verdict leaves by the first output.
    fn process(&self, packets: &mut Packets<'_, Self::Access>, ctx: &mut Ctx<'_, Self>);

    /// The flow `key` has ended: it was idle for as long as the descriptor says. What it held in
    /// `shared` (a port, a count) can be given back.
    fn on_flow_end(&self, _key: &FlowKey, _flow: Self::Flow, _shared: &mut Self::Shared) {}

    /// A timer that `ctx.timer` set has run out. What it sends follows from `cause`.
    fn on_timer(&self, _token: u64, _cause: &Cause, _ctx: &mut Ctx<'_, Self>) {}

    /// The input has ended: the last chance to send what is held (`ctx.all_held`). What is held
    /// afterwards is dropped as `held-at-end`. Called once, if any packet came; timers that are
    /// outstanding are not called.
    fn on_end(&self, _cause: &Cause, _ctx: &mut Ctx<'_, Self>) {}
}

/// State that is not per flow: counters, tables. Two replicas' states merge into one.
pub trait Merge: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Version of the serialised form.
    const VERSION: u32 = 1;

    /// Reads what an earlier `version` of the µNF wrote, as [`FlowState::from_version`] does.
    fn from_version(_version: u32, _bytes: &[u8]) -> Option<Self> {
        None
    }

    /// Adds what another replica, or an earlier incarnation, remembered.
    fn merge(&mut self, other: Self);
}

impl Merge for () {
    fn merge(&mut self, (): ()) {}
}

/// What a µNF is connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Each input, in the descriptor's order, with the names of the nodes that packets come from.
    pub inputs: Vec<(String, Vec<String>)>,
    /// Each output with the names of the nodes that packets go to; none: nothing takes them.
    pub outputs: Vec<(String, Vec<String>)>,
}

/// The configuration of a µNF that has nothing to configure.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// A configuration that parses but cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{at}{}{why}", if at.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// Where in the configuration, as a JSON pointer such as `/rules/3/src`.
    pub at: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}
