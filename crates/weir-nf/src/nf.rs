//! The trait that a µNF implements.

use crate::ctx::{Ctx, Env};
use crate::descriptor::Descriptor;
use crate::flows::FlowState;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_packet::{Access, FlowKey, Packets};

/// A packet processor.
///
/// The value itself is its compiled configuration and does not change while packets pass: what a
/// µNF remembers stands in `Flow` and `Shared`, where the runtime finds it (to keep it over a
/// restart, to move and to merge it: hooks for what is to come; today a worker that dies loses it). `()` says that there is nothing to remember. An NF that keeps state elsewhere
/// (in a cell of its own) loses it at the next restart.
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

    /// Compiles a configuration: whatever costs time is done here, not per packet.
    fn build(config: Self::Config, env: &Env) -> Result<Self, ConfigError>;

    /// Processes a batch. A packet without a verdict leaves by the first output.
    fn process(&self, packets: &mut Packets<'_, Self::Access>, ctx: &mut Ctx<'_, Self>);

    /// The flow `key` has ended: it was idle for too long and had to make room. What it held in
    /// `shared` (a port, a count) can be given back.
    fn on_flow_end(&self, _key: &FlowKey, _flow: Self::Flow, _shared: &mut Self::Shared) {}
}

/// State that is not per flow: counters, tables. Two replicas' states merge into one.
pub trait Merge: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Version of the serialised form; another version is not restored.
    const VERSION: u32 = 1;

    /// Adds what another replica, or an earlier incarnation, remembered.
    fn merge(&mut self, other: Self);
}

impl Merge for () {
    fn merge(&mut self, (): ()) {}
}

/// The configuration of a µNF that has nothing to configure.
#[derive(Debug, Clone, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// A configuration that parses but cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {why}")]
pub struct ConfigError {
    /// Where in the configuration, as a JSON pointer such as `/rules/3/src`.
    pub at: String,
    /// What is wrong, and what to write instead.
    pub why: String,
}
