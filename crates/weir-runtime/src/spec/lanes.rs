//! What a worker is joined to: rings, lanes, packet memory.

use super::Fd;
use serde::{Deserialize, Serialize};

/// A ring: its capacity and the descriptors of its two memories.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RingSpec {
    /// Entries that fit; a power of two.
    pub capacity: u32,
    /// The producer's memory.
    pub producer: Fd,
    /// The consumer's memory.
    pub consumer: Fd,
}

/// A way back to a home pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReturnSpec {
    /// Its ring.
    pub ring: RingSpec,
    /// Doorbell of the pool's worker.
    pub bell: Fd,
}

/// A lane into the worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaneInSpec {
    /// Its ring.
    pub ring: RingSpec,
    /// Doorbell of its producer.
    pub bell: Fd,
    /// Index of the source.
    pub source: u16,
    /// Node that it leads to.
    pub node: u16,
    /// Input of that node.
    pub input: u8,
    /// The side that its packets come from, where they are divided by sides ([`SpreadSpec::asks_side`](super::SpreadSpec::asks_side)): 0 is
    /// inside, or the clients'.
    pub side: u8,
    /// Packets come there around a cycle: they get a new place in their source's stream.
    pub back: bool,
    /// What it carries.
    pub carries: CarriesSpec,
}

/// What a lane into a worker carries: [`weir_port::Carries`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CarriesSpec {
    /// Packets.
    #[default]
    Packets,
    /// Packets of a parallel stage, lent to one of its branches.
    Loans,
    /// What a branch says of packets.
    Answers {
        /// Index of their lane among the worker's lanes in.
        on: u16,
        /// Whether packets with which the branch's worker died are dropped.
        drops_lost: bool,
    },
}

/// A lane out of the worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaneOutSpec {
    /// Its ring.
    pub ring: RingSpec,
    /// Doorbell of its consumer.
    pub bell: Fd,
    /// Index of the source.
    pub source: u16,
    /// Index of the edge among the worker's [`WorkerSpec::edges`](super::WorkerSpec::edges); their number: what it drops; more: one
    /// of the ways to an array's ports.
    pub edge: u16,
    /// Whether watermarks matter to somebody further on.
    pub ordered: bool,
    /// What finds it full is dropped, and nobody waits for room in it: its edge closes a cycle, or the operator wants it.
    pub closes: bool,
    /// Packets come there around a cycle: it has no end of its own.
    pub back: bool,
    /// Index among the worker's lanes out of one that it repeats: it lends those packets to a branch of a
    /// parallel stage.
    pub lends: Option<u16>,
}

/// The packet memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArenaSpec {
    /// Number of buffers.
    pub buffers: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Buffers per home pool is two to this.
    pub pool_bits: u32,
    /// Packet bytes; a read-only descriptor when no µNF of the segment writes.
    pub data: Fd,
    /// Whether the bytes may be written.
    pub writable: bool,
    /// Metadata.
    pub meta: Fd,
    /// Owner words.
    pub owners: Fd,
}

/// The pool from which a worker takes buffers for new packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HomeSpec {
    /// First buffer.
    pub first: u32,
    /// Number of buffers.
    pub len: u32,
    /// Rings by which buffers come: the agent's, and one for each worker of the domain.
    pub rings: Vec<RingSpec>,
    /// By which of them the worker itself gives back.
    pub own: Option<u16>,
    /// Whether the buffers are divided among the sources that packets come of.
    pub divides: bool,
}
