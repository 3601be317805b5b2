//! Per-flow state: an index of keys, a slab of states, a timer wheel, and flows as bytes.
//!
//! The index says which flow a key leads to, as a dense number; the slab has the states by that number. So
//! several slabs could stand behind one index; today each µNF has its own.

mod batch;
mod form;
mod fragments;
mod index;
mod notes;
mod paged;
mod precopy;
mod seen;
mod state;
mod table;
mod tcp;
mod unread;
mod wheel;
mod wishes;

pub use batch::BatchKeys;
pub(crate) use batch::Found;
pub use form::{RestoreError, SaveError, read_state};
pub use index::{AliasError, FlowIndex, hash_flows_by};
pub use notes::Changed;
pub use precopy::CopyProgress;
pub use seen::{FlowSeen, Walk};
pub use state::{FlowState, WhenFull};
pub use table::FlowTable;
pub use tcp::TcpTimes;
pub use unread::{Records, Unreadable};
pub use wishes::{Whither, Wish};

pub(crate) use form::{Appended, Reader, read_versioned, write_len};
