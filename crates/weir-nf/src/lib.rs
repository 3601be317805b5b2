//! The SDK: what the author of a µNF sees.
//!
//! A µNF is one type that implements [`Nf`], registered with [`register!`], in one file with its
//! test. It says what it is (a [`Descriptor`]), what configures it, what it remembers per flow and
//! in all, and what it does to a batch of packets. The loop, the ports, counters, restarts and
//! where it runs are the runtime's business: the same µNF runs isolated in a process of its own or
//! fused with its neighbours. `docs/writing-a-nf.md` is the tour.

mod ctx;
mod descriptor;
mod flows;
mod instance;
mod nf;
mod registry;
pub mod testing;

pub use ctx::{Clock, Ctx, Env};
pub use descriptor::{Affinity, Descriptor, Effect, LayerAccess, TagDecl, TagKind, Touch};
pub use flows::{FlowState, FlowTable};
pub use instance::{BuildError, Instance, Outcome};
pub use nf::{ConfigError, Merge, Nf, NoConfig};
pub use registry::{Registration, find, registrations};

#[doc(hidden)]
pub use inventory;
pub use schemars::{self, JsonSchema};
pub use serde;
pub use serde_json;
pub use weir_packet::{
    Access, BATCH, Bytes, Depth, DropReason, Fragment, HeaderFault, L3, Layers, Packets, Pkt,
    ReadOnly, ReadWrite, TagSlot, Verdict, check_ip, flow, headers, wire,
};
