//! Runs one segment: a process that takes batches from its ingress, sends them through its µNFs
//! and gives them to its egress, until its input ends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | what the agent tells a worker: its segment, its rings, its place on the machine |
//! | [`link`] | how it tells: messages with descriptors over a Unix socket |
//! | [`layout`] | where in the worker's ledger which number stands |
//! | [`sandbox`] | what a worker may still ask of the kernel |
//! | [`outside`] | what a program with NFs of its own says of them |
//! | [`segment`] | the µNFs and the edges between them |
//! | [`handover`] | what the NFs know, from one generation of the graph to the next |
//! | [`moves`] | flows that go from one instance of an NF to another |
//! | [`worker`] | the process |

mod arrays;
mod attach;
#[cfg(feature = "attacks")]
mod attack;
mod careful;
mod dump;
mod early;
mod fingerprint;
mod gate;
pub mod handover;
mod idle;
mod job;
mod keep;
pub mod layout;
pub mod link;
mod more;
pub mod moves;
pub mod outside;
mod pace;
mod replica;
pub mod sandbox;
mod schedule;
pub mod segment;
#[cfg(feature = "slowed")]
mod slowed;
pub mod spec;
mod spread;
mod stage;
mod station;
mod takes;
mod taper;
pub mod worker;

pub use fingerprint::{field, fingerprint};
pub use job::GROUP;
pub use keep::{Kept, read_kept};
pub use worker::{Stepper, main as worker_main};
