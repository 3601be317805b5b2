//! A µNF with its state, behind one virtual call per batch.

use crate::ctx::{Clock, Ctx, Env};
use crate::descriptor::Descriptor;
use crate::flows::{DEFAULT_FLOWS, FlowTable};
use crate::nf::{ConfigError, Nf};
use serde_json::Value;
use weir_mem::Arena;
use weir_packet::{Access, Packet, Packets, Verdict};

/// Why a µNF could not be made from its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration does not have the right form.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// It has, but what it says cannot be.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// No µNF of this name is linked in.
    #[error("there is no NF type `{0}`; `weir nf list` shows those there are")]
    Unknown(String),
    /// Two µNFs of this name are linked in.
    #[error("two NF types are called `{0}`; rename one")]
    Twice(String),
}

/// What became of a batch as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every packet leaves by the first output; verdicts need not be looked at.
    AllFirst,
    /// Look at the verdicts.
    Judged,
}

/// A running µNF, whatever its type.
pub trait Instance: Send {
    /// What it is.
    fn descriptor(&self) -> &'static Descriptor;

    /// Processes a batch that came by `input`. `verdicts` must be [`Verdict::FIRST`] on entry.
    fn process(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        arena: &Arena,
        input: u8,
        clock: &mut Clock,
    ) -> Outcome;

    /// Replaces the configuration; state stays. On an error nothing has changed.
    fn reconfigure(&mut self, config: &Value, env: &Env) -> Result<(), BuildError>;

    /// Its shared state, for reports and to be merged elsewhere.
    fn report(&self) -> Value;

    /// Flows it remembers, and flows that found no room.
    fn flows(&self) -> (usize, u64);
}

pub(crate) struct Running<N: Nf> {
    nf: N,
    shared: N::Shared,
    flows: FlowTable<N::Flow>,
}

fn build<N: Nf>(config: &Value, env: &Env) -> Result<N, BuildError> {
    let empty = Value::Object(Default::default());
    let config = if config.is_null() { &empty } else { config };
    let config: N::Config = serde::Deserialize::deserialize(config)?;
    Ok(N::build(config, env)?)
}

impl<N: Nf> Running<N> {
    pub(crate) fn new(config: &Value, env: &Env) -> Result<Self, BuildError> {
        Ok(Running {
            nf: build(config, env)?,
            shared: N::Shared::default(),
            flows: FlowTable::new(DEFAULT_FLOWS),
        })
    }
}

impl<N: Nf> Instance for Running<N> {
    fn descriptor(&self) -> &'static Descriptor {
        const { assert!(N::DESCRIPTOR.layers.writes() == N::Access::WRITES) };
        &N::DESCRIPTOR
    }

    #[inline]
    fn process(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        arena: &Arena,
        input: u8,
        clock: &mut Clock,
    ) -> Outcome {
        let mut packets = Packets::new(packets, verdicts, arena);
        let (shared, flows) = (&mut self.shared, &mut self.flows);
        let mut ctx = Ctx { clock, input, shared, flows };
        self.nf.process(&mut packets, &mut ctx);
        for (key, flow) in self.flows.take_ended() {
            self.nf.on_flow_end(&key, flow, &mut self.shared);
        }
        if packets.judged() { Outcome::Judged } else { Outcome::AllFirst }
    }

    fn reconfigure(&mut self, config: &Value, env: &Env) -> Result<(), BuildError> {
        self.nf = build(config, env)?;
        Ok(())
    }

    fn report(&self) -> Value {
        serde_json::to_value(&self.shared).unwrap_or(Value::Null)
    }

    fn flows(&self) -> (usize, u64) {
        (self.flows.len(), self.flows.refused())
    }
}
