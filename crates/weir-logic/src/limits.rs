//! What a universe may use at most.

use thiserror::Error;

/// Bounds on memory and time. Reaching one makes an answer unknown, never late or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes of all diagrams together, 12 bytes each and up to 16 for finding it.
    pub nodes: usize,
    /// Steps of one call, of the order of 50 ns each. Trying a packet takes some as well: as many as
    /// what it is tried on costs.
    pub steps: u64,
    /// Steps of all calls together.
    pub steps_in_all: u64,
    /// Variables (bits of packets, mostly) on one path. Bounds the stack, too.
    pub variables: u32,
    /// Packets made for one question until one is found that is really an example.
    pub tries: u32,
}

impl Default for Limits {
    /// At most about 100 MB, half a second a call, 3 s in all.
    fn default() -> Self {
        Self { nodes: 1 << 22, steps: 1 << 23, steps_in_all: 1 << 26, variables: 2048, tries: 64 }
    }
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum Spent {
    /// [`Limits::nodes`].
    #[error("the filters' decision diagrams outgrew their memory")]
    Nodes,
    /// [`Limits::steps`] or [`Limits::steps_in_all`].
    #[error("the filters' decision diagrams took too many steps")]
    Steps,
    /// [`Limits::variables`].
    #[error("the filters look at too many different bits")]
    Variables,
}
