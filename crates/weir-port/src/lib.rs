//! Ports: how packets come into a worker and leave it.
//!
//! A *lane* is one ring that carries the packets of one source over one edge of the graph. Because
//! a lane has one producer, one consumer and one source, the packets on it are in sequence, and
//! fan-in is a merge of sorted streams: see [`Ingress`].

pub mod balance;
mod broken;
mod doorbell;
mod early;
mod egress;
mod ingress;
#[cfg(all(test, loom))]
mod models;
mod pool;
mod sync;

pub use doorbell::{Doorbell, DoorbellError, Woken};
pub use early::Shares;
pub use egress::{Egress, LaneOut, Return};
pub use ingress::{Ingress, LaneIn, Pull, Pulled, UNSAID};
pub use pool::HomePool;
pub use sync::{Answer, Carries, answer, no_answer};
