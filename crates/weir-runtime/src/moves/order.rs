//! What the agent orders of workers that keep flows.

use serde::{Deserialize, Serialize};
use weir_filter::Expr;
use weir_port::balance::BUCKETS;

/// An order, which goes with [`command::ORDER`](crate::spec::command::ORDER).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Move flows of an NF to another of its instances. Answered with
    /// [`FromWorker::Moved`](crate::spec::FromWorker::Moved).
    Move {
        /// What the answer is to say.
        ticket: u64,
        /// The NF, by its place in [`WorkerSpec::groups`](crate::spec::WorkerSpec::groups).
        group: u16,
        /// Which flows.
        what: What,
        /// The instance, from 0.
        to: u16,
    },
    /// An instance is gone for good.
    Gone {
        /// The NF.
        group: u16,
        /// The instance.
        replica: u16,
    },
    /// From now on divide the packets of an NF by these weights. Not of one whose flows can be moved.
    Weigh {
        /// The NF.
        group: u16,
        /// By instance.
        weights: Vec<u32>,
    },
    /// Say which flows there are. Answered with [`FromWorker::Flows`](crate::spec::FromWorker::Flows).
    List {
        /// What the answer is to say.
        ticket: u64,
        /// Only those that it matches, in either direction; `None`: all.
        filter: Option<Expr>,
        /// Most lines of the answer.
        most: u32,
    },
    /// Copy flows for the next generation of the graph, until that is so many bytes; what of these was copied and has changed since after what was
    /// not copied yet. Answered with [`FromWorker::Precopied`](crate::spec::FromWorker::Precopied).
    Precopy {
        /// What the answer is to say.
        ticket: u64,
        /// Nodes of the worker.
        nodes: Vec<u16>,
        /// From the beginning; the copy is known by the ticket.
        first: bool,
        /// Bytes.
        most: u32,
    },
    /// Flows are not copied any more: there will be no next generation for now.
    EndPrecopy,
    /// Of a service that receives: take so many packets a second from now on, those that were late made up for; `None`: as many as are taken.
    Pace(Option<u64>),
    /// Of a service that receives: have fewer and fewer packets under way, as it will soon be told to hold its device; until it is, or is told to receive or
    /// to forget what it has adopted.
    Taper {
        /// So many of its packets lie in rings.
        in_rings: u64,
    },
}

/// Which of an instance's flows are to move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum What {
    /// Those that a filter matches in one of their directions; `None`: all that are there now. New ones of
    /// equal buckets stay.
    Flows(Option<Expr>),
    /// So many of those that are there now, or all if they are fewer.
    Count(u32),
    /// So many hundredths of its buckets, with the flows that are and will be in them.
    Share(u8),
    /// Some of its buckets, with as many flows as these or a little more; in a large table a thirty-second of all that
    /// are there, as each order goes through the whole table. So many buckets stay.
    Some {
        /// Flows.
        flows: u32,
        /// Buckets.
        keep: u32,
    },
    /// Its buckets without flows: none moves but what begins just then. So many buckets stay; how many more would go, had they no
    /// flows, the answer says.
    Free {
        /// Buckets.
        keep: u32,
    },
    /// Of these buckets those that are there, with the flows that are and will be in them.
    Buckets(BucketSet),
    /// The same, of those without flows: none moves but what begins just then. How many stay, the answer says.
    FreeOf(BucketSet),
}

/// Buckets of the flow hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSet {
    /// Of each a bit, the lowest first.
    #[serde(with = "serde_bytes")]
    bits: Vec<u8>,
}

impl BucketSet {
    /// `has`: by bucket whether it is one of them.
    #[must_use]
    pub fn new(has: &[bool]) -> Self {
        let bits = |has: &[bool]| has.iter().rev().fold(0, |bits, has| bits << 1 | u8::from(*has));
        BucketSet { bits: has.chunks(8).map(bits).collect() }
    }

    /// By bucket whether it is one of them.
    #[must_use]
    pub fn to_vec(&self) -> Vec<bool> {
        let bits = self.bits.iter().take(BUCKETS / 8);
        let mut has: Vec<bool> = bits
            .flat_map(|bits| std::array::from_fn::<_, 8, _>(|at| bits >> at & 1 == 1))
            .collect();
        has.resize(BUCKETS, false);
        has
    }
}

/// How many flows a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowTotal {
    /// The node of the worker.
    pub node: u16,
    /// In all.
    pub flows: u64,
    /// How many of them the filter chooses.
    pub chosen: u64,
    /// How many keys of flows were moved here one by one, and so have to be remembered by all who divide packets.
    pub moved: u64,
    /// How many it may have.
    pub most: u32,
    /// How many new ones found no room.
    pub refused: u64,
    /// Memory that they take, in bytes, without what their states point to.
    pub bytes: u64,
}

/// One flow of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowLine {
    /// The node of the worker.
    pub node: u16,
    /// Its keys ([`weir_packet::FlowKey::to_bytes`]), the first one first.
    pub keys: Vec<Vec<u8>>,
    /// Nanoseconds since its first packet, by the NF's time.
    pub age_ns: u64,
    /// Nanoseconds since its last packet.
    pub idle_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_buckets_is_written_down_bit_by_bit() {
        let has = |bucket: u16| bucket.is_multiple_of(3) || bucket == u16::MAX - 1;
        let all: Vec<bool> = (0..=u16::MAX).map(has).collect();
        let set = BucketSet::new(&all);
        assert_eq!((set.bits.len(), set.to_vec()), (BUCKETS / 8, all));
        // Whoever wrote it.
        for bits in [Vec::new(), vec![u8::MAX; BUCKETS]] {
            assert_eq!(BucketSet { bits }.to_vec().len(), BUCKETS);
        }
    }
}
