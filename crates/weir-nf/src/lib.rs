//! The SDK: what the author of a µNF sees.
//!
//! A µNF is one type that implements [`Nf`], registered with [`register!`], in one file with its
//! test. It says what it is (a [`Descriptor`]), what configures it, what it remembers per flow and
//! in all, and what it does to a batch of packets. The loop, the ports, counters, restarts and
//! where it runs are the runtime's business: the same µNF runs isolated in a process of its own or
//! fused with its neighbours. `docs/writing-a-nf.md` is the tour.

mod clock;
mod course;
mod ctx;
mod descriptor;
mod desk;
mod flows;
mod held;
mod instance;
mod nf;
mod pool;
mod precopy;
mod registry;
mod replica;
mod schema;
mod tags;
pub mod testing;
mod timers;

pub use ctx::{Cause, Ctx, Env, FlowOf};
pub use descriptor::{
    Affinity, DEFAULT_HOLDS, Descriptor, Effect, FLOW_FIELDS, Field, LayerAccess, TagDecl, TagKind,
    Touch,
};
pub use desk::{Kind, Leaving};
pub use flows::{
    AliasError, BatchKeys, Changed, CopyProgress, FlowIndex, FlowSeen, FlowState, FlowTable,
    Records, RestoreError, SaveError, TcpTimes, Unreadable, Walk, WhenFull, Whither, Wish,
    hash_flows_by, read_state,
};
pub use held::Held;
pub use instance::{BuildError, Instance, Outcome, Site, Take};
pub use nf::{ConfigError, Merge, Neighbours, Nf, NoConfig};
pub use pool::{Fresh, Pool};
pub use precopy::Precopy;
pub use registry::{Registration, find, registrations};
pub use replica::{MOST_SHARED, Piece, Replicate, TIMER_PIECES};
pub use schema::in_words;
pub use tags::{FlagTag, NumberTag, TagError, TagPlace, TagSpec, TextTag};
pub use timers::MOST_TIMERS;

#[doc(hidden)]
pub use inventory;
pub use schemars::{self, JsonSchema};
pub use serde;
pub use serde_json;
pub use weir_packet::{
    Access, BATCH, Bytes, Depth, DropReason, FlowHasher, FlowKey, Fragment, HeaderFault, L3,
    Layers, Packets, Pkt, ReadOnly, ReadWrite, Verdict, check_ip, checksum, flow, headers, wire,
};
