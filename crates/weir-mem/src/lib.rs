//! Shared memory for packets: regions, rings, buffers with owners, and the ledger that makes a
//! batch of work atomic against `kill -9`.
//!
//! This is one of the two crates that may use `unsafe`. Everything it hands out is safe to use
//! while another process writes to the same memory: bytes are read and written by volatile copy,
//! every number that comes out of shared memory is checked before it is used as an index, and no
//! reference into shared memory to a type without interior mutability ever exists.
//!
//! | module | what it holds |
//! |---|---|
//! | [`region`] | memory behind a file descriptor that can be passed to another process |
//! | [`entry`] | what a ring carries: packets and in-band markers, 16 bytes each |
//! | [`ends`] | whether a source has really ended |
//! | [`muster`] | how workers of a core are put into the order of the chain |
//! | [`origins`] | by which source flows came in |
//! | [`ring`] | single-producer single-consumer rings with a watermark |
//! | [`arena`] | packet buffers, their metadata and their owner words |
//! | [`packet`] | the handle of a packet, and taking packets from a ring |
//! | [`ledger`] | the atomic commit record of a worker |
//! | [`knell`] | hearing of a worker's death when it begins |
//! | [`mail`] | letters between two processes |
//! | [`state`] | what a worker's µNFs remember, for a successor |
//! | [`replica`] | the same of each flow, as of the last commit |
//! | [`sweep`] | what to free when a worker has died |
//! | [`realtime`] | the real-time class, a system call that is not in rustix |
//! | [`fault`] | named steps at which a test can kill a worker |

// Under its own name too, for code that unit tests share with tests/.
#[cfg(all(test, not(loom)))]
extern crate self as weir_mem;

pub mod arena;
mod broken;
pub mod bytes;
pub mod ends;
pub mod entry;
pub mod fault;
#[cfg(not(loom))]
pub mod knell;
pub mod ledger;
pub mod mail;
pub mod meta;
#[cfg(loom)]
pub mod model;
#[cfg(all(test, loom))]
mod models;
pub mod muster;
pub mod origins;
pub mod owner;
pub mod packet;
mod prefetch;
pub mod realtime;
pub mod region;
pub mod replica;
pub mod ring;
pub mod shared;
pub mod state;
pub mod sweep;
mod sync;
#[cfg(all(test, not(loom)))]
mod threads;
mod witness;

pub use arena::{Access, Arena, ArenaShape, ArenaView};
pub use bytes::{SharedBytes, SharedBytesMut, SharedHead};
pub use ends::StreamEnd;
pub use entry::{Entry, Marker, Seq};
pub use ledger::{Ledger, LedgerWriter};
pub use mail::{MailError, MailIn, MailOut};
pub use meta::Meta;
pub use muster::Muster;
pub use origins::Origins;
pub use owner::{Owner, Owners};
pub use packet::Packet;
pub use prefetch::prefetch;
pub use region::{Mapping, Region, RegionError};
pub use replica::{Found, PutError, RECORD_BYTES, Reopened, ReplicaTable, ReplicaView};
pub use ring::{Consumer, Indices, Judgement, Producer, RingInspector, RingShape};
pub use state::{KeptState, TooLarge};
pub use witness::{Testimony, Witness};
