//! What a worker's nodes are, and where their packets go.

use super::Fd;
use serde::{Deserialize, Serialize};
use weir_filter::Expr;
use weir_nf::TagSpec;
use weir_port::balance::{Buckets, BucketsError};

/// Where packets of a node go.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum TargetSpec {
    /// To another node of this segment (one that stands later in the list).
    Node {
        /// Its index.
        node: u16,
        /// Its input.
        input: u8,
    },
    /// Out of the segment, over the branch's edge.
    Lane,
    /// The same, where the edge closes a cycle.
    Back,
    /// Out of the segment, to one of an array's ports.
    Array {
        /// Its index among the worker's [`WorkerSpec::arrays`](super::WorkerSpec::arrays).
        array: u16,
        /// The [`LaneOutSpec::edge`](super::LaneOutSpec::edge) of the lanes to its first port; those of the others follow.
        first: u16,
    },
    /// Nowhere: this is the end of a parallel stage's branch. What becomes of the packet the sync port is told.
    Answer,
    /// Nowhere.
    Drop,
}

/// An array of ports that edges of the worker lead to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArraySpec {
    /// How many ports it has.
    pub ports: u16,
    /// By source: which of them its packets came in by, counted from 0; `None` for none of them.
    pub places: Vec<Option<u16>>,
    /// Where it is written which flows came in by it ([`weir_mem::Origins`]); read-only. `None` when no
    /// packets come in by it.
    pub origins: Option<Fd>,
}

/// One edge at a node's output, tried in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BranchSpec {
    /// Which packets take it; `None`: all.
    pub filter: Option<Expr>,
    /// Index among the worker's [`WorkerSpec::edges`](super::WorkerSpec::edges); `None` for what is dropped by default.
    pub edge: Option<u16>,
    /// Where it leads.
    pub target: TargetSpec,
    /// What is written into the tag slots of packets that take it.
    pub marks: Vec<MarkSpec>,
    /// Packets may have been held on their way: then they need not be of the source that their lane is
    /// for, and the port that they came in by stands in their metadata.
    pub held: bool,
    /// Which of those packets, where they divide over instances. Branches of one edge of the policy stand
    /// together, those of all instances, from the first.
    pub share: Option<ShareSpec>,
}

/// Part of the packets that a filter takes: those of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareSpec {
    /// The NF, by its place in [`WorkerSpec::groups`](super::WorkerSpec::groups).
    pub group: u16,
    /// The instance.
    pub index: u8,
    /// The side that the packets come from, where they are divided by sides: 0 is inside, or the clients'.
    pub side: u8,
}

/// One of the instances of an NF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSpec {
    /// The NF, by its place in [`WorkerSpec::groups`](super::WorkerSpec::groups).
    pub group: u16,
    /// The instance.
    pub index: u8,
}

/// How an NF's packets divide over its instances. All workers have the same of it and the same seed, so a flow's
/// packets meet whoever sends them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// The instances' weights.
    pub weights: Vec<u32>,
    /// What decides.
    pub spread: SpreadSpec,
    /// Where buckets of the flow hash begin, as [`Buckets::save`] writes it, if not as the weights say: the flows of this NF
    /// were divided otherwise in the generation before, and stay.
    #[serde(with = "serde_bytes")]
    pub table: Option<Vec<u8>>,
}

impl GroupSpec {
    /// Where buckets of the flow hash begin.
    ///
    /// # Errors
    /// When the weights, or what was written down, are none.
    pub fn buckets(&self) -> Result<Buckets, BucketsError> {
        match &self.table {
            Some(table) => Buckets::restore(table, self.weights.len()),
            None => Buckets::new(&self.weights),
        }
    }
}

/// What decides which instance a packet goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpreadSpec {
    /// They take turns.
    InTurn,
    /// Who has the least waiting before it.
    LeastLoaded,
    /// The source address.
    Source,
    /// The 5-tuple.
    Tuple,
    /// The flow: the 5-tuple in either direction.
    Flow,
    /// Who has the lease of the source's port, of what comes to the first input; of the destination's, of the rest.
    Ends,
    /// The source's address, port and protocol, of what comes to the first input; the destination's, of the rest.
    Client,
    /// These fields of the 5-tuple; of ends the source's and the destination's.
    Fields {
        /// Addresses.
        addresses: (bool, bool),
        /// Ports.
        ports: (bool, bool),
        /// The protocol.
        proto: bool,
        /// Those of the other direction of a flow go the same way.
        symmetric: bool,
    },
}

impl SpreadSpec {
    /// True when ports decide, which later fragments have not.
    #[must_use]
    pub fn asks_ports(self) -> bool {
        match self {
            SpreadSpec::InTurn | SpreadSpec::LeastLoaded | SpreadSpec::Source => false,
            SpreadSpec::Tuple | SpreadSpec::Flow | SpreadSpec::Ends | SpreadSpec::Client => true,
            SpreadSpec::Fields { ports, .. } => ports.0 || ports.1,
        }
    }

    /// True when an end decides, which one by the input that a packet comes to.
    #[must_use]
    pub fn asks_side(self) -> bool {
        matches!(self, SpreadSpec::Ends | SpreadSpec::Client)
    }
}

/// Bits of a tag slot, and what they become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkSpec {
    /// The slot.
    pub slot: u8,
    /// Which bits.
    pub mask: u64,
    /// What they become.
    pub word: u64,
}

/// One node of a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Name of the instance.
    pub name: String,
    /// The µNF's type and its configuration as JSON; `None` for a device's port.
    pub nf: Option<(String, String)>,
    /// For each output the edges, in the order in which they are tried.
    pub outputs: Vec<Vec<BranchSpec>>,
    /// The tags that the µNF is to set.
    pub tags: Vec<TagSpec>,
    /// Edges that lead here; with more than one, packets are brought into sequence.
    pub fan_in: u16,
    /// An earlier node of the segment whose µNF this one is too: of equal type, configuration and tags, and
    /// with nothing that it remembers. Everything else each has to itself.
    pub instance_of: Option<u16>,
    /// The NF `instance_of` stands in the order once more here, for packets that have to be in others first: it is the same, and may
    /// remember what it likes.
    pub again: bool,
    /// Of the sync port of a parallel stage: its number of branches. For each branch but the last, in the order of the
    /// chain, a node with 0 stands before it, which counts what that branch drops.
    pub sync: Option<u16>,
    /// Which instance of an NF it is, of several.
    pub part: Option<PartSpec>,
    /// Whether what the µNF remembers outlives its worker, and as of when.
    pub replicate: Option<ReplicateSpec>,
    /// How many flows the µNF may remember, if not as many as its descriptor says.
    pub flows: Option<u32>,
}

impl NodeSpec {
    /// Which instance of its NF it is, of several; 0 for the only one.
    #[must_use]
    pub fn instance(&self) -> u8 {
        self.part.map_or(0, |part| part.index)
    }
}

/// When a change of what a µNF remembers is written into its replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicateSpec {
    /// With the batch that made it, before any packet of the batch leaves.
    Batch,
    /// With so many packets of the flow.
    Every(u16),
    /// When so many microseconds have gone by since the last.
    Micros(u32),
}
