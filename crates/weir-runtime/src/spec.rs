//! What the agent tells a worker.

use serde::{Deserialize, Serialize};
use weir_device::DeviceSpec;
use weir_filter::Expr;
use weir_nf::TagSpec;

/// Version of these messages; together with the memory's layout version it must match.
pub const PROTOCOL_VERSION: u32 = 12;

/// Index of a descriptor in the list that came with the message.
pub type Fd = u16;

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
    /// Index of the edge among the worker's [`WorkerSpec::edges`]; their number: what it drops; more: one
    /// of the ways to an array's ports.
    pub edge: u16,
    /// Whether watermarks matter to somebody further on.
    pub ordered: bool,
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
}

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
    /// Out of the segment, to one of an array's ports.
    Array {
        /// Its index among the worker's [`WorkerSpec::arrays`].
        array: u16,
        /// The [`LaneOutSpec::edge`] of the lanes to its first port; those of the others follow.
        first: u16,
    },
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
    /// Index among the worker's [`WorkerSpec::edges`]; `None` for what is dropped by default.
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
    /// The NF, by its place in [`WorkerSpec::groups`].
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
}

/// A device at one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndSpec {
    /// The worker receives from a device.
    Rx {
        /// The device.
        device: DeviceSpec,
        /// Policy port number.
        port: u16,
        /// Index of the source.
        source: u16,
    },
    /// The worker sends to a device.
    Tx {
        /// The device.
        device: DeviceSpec,
        /// Unit of the time stamps in a capture that it begins: 0 microseconds, 1 nanoseconds.
        nanoseconds: bool,
        /// Whether this worker tells the operator what happens to a live device: not when another
        /// one receives from it.
        tells: bool,
    },
    /// The worker copies packets from one trust domain into another.
    Gate {
        /// It leads into a domain that need not be trusted to take packets.
        into: bool,
        /// It leads out of a domain that need not be trusted to give what it promises.
        out_of: bool,
    },
    /// The worker stands in for one that was named too often: it takes what comes and drops it.
    Drain,
    /// The worker writes what others drop into a capture.
    Dump(DumpSpec),
    /// Neither.
    None,
}

/// Where dropped packets are written, and what is said of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpSpec {
    /// The file.
    pub path: std::path::PathBuf,
    /// The policy's ports: number and name.
    pub ports: Vec<(u16, String)>,
    /// By lane in: the names of its producer's nodes.
    pub droppers: Vec<Vec<String>>,
}

/// How the worker shares the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// Core to stay on.
    pub core: Option<u16>,
    /// Real-time class wanted (SCHED_FIFO, priority 1); without permission it is left out.
    pub real_time: bool,
    /// Whether other workers poll on the same core: then yield instead of spinning.
    pub shares_core: bool,
    /// Microseconds to poll after the last packet before sleeping.
    pub spin_us: u32,
    /// Never sleep, but when called to.
    pub busy: bool,
}

/// Everything a worker needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Layout version of shared memory.
    pub layout: u32,
    /// [`crate::outside::catalogue`] of the agent's library.
    pub catalogue: u64,
    /// Name of the segment.
    pub name: String,
    /// Its number in owner words, from 1.
    pub owner: u32,
    /// Number of sources in the graph.
    pub sources: u16,
    /// By source: the number of the policy's port that its packets came in by.
    pub source_ports: Vec<u16>,
    /// Packet memory of what comes in.
    pub arena: ArenaSpec,
    /// Packet memory of what goes out, where that is another trust domain's: a gate's.
    pub outward: Option<ArenaSpec>,
    /// By source: where its service says that it has ended; writable in that service.
    pub ends: Vec<Fd>,
    /// Lanes in.
    pub lanes_in: Vec<LaneInSpec>,
    /// Lanes out.
    pub lanes_out: Vec<LaneOutSpec>,
    /// Ways back to the home pools, in their order.
    pub returns: Vec<ReturnSpec>,
    /// The worker's own pool.
    pub home: Option<HomeSpec>,
    /// Commands from the agent.
    pub commands: RingSpec,
    /// The worker's own doorbell.
    pub bell: Fd,
    /// Doorbells of the workers behind it on its core, in chain order, if packets come to that core
    /// by this one. It rings them when it is woken.
    pub followers: Vec<Fd>,
    /// Where the first of its core, which has the followers, calls the others to sleep; writable there.
    pub muster: Option<Fd>,
    /// The worker's ledger.
    pub ledger: Fd,
    /// Nodes in topological order. A device's worker has one node for the port.
    pub nodes: Vec<NodeSpec>,
    /// Edges that leave the worker's nodes, by their number in the plan.
    pub edges: Vec<u32>,
    /// The graph's NFs of several instances.
    pub groups: Vec<GroupSpec>,
    /// Arrays of ports that its edges lead to.
    pub arrays: Vec<ArraySpec>,
    /// Where an Rx service writes which flows came in, if its port is of an array that some edge leads to.
    pub learns: Option<Fd>,
    /// Device.
    pub end: EndSpec,
    /// The device's descriptor, of one that the agent holds open (a TAP interface, a packet socket).
    pub device: Option<Fd>,
    /// Whether packets arrive with empty tag slots: some filter of the graph asks for tags.
    pub clear_tags: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// How it shares the machine.
    pub schedule: ScheduleSpec,
    /// Some source is live: while no packets come, timers go by the wall clock.
    pub live: bool,
    /// Most packets that one µNF may hold, so that the pools never run dry of held packets alone.
    pub hold_most: u32,
    /// Where the µNFs' shared state is kept for a successor; `None` for a device's worker.
    pub state: Option<Fd>,
    /// The sandbox to go into before the first packet; `None` for debugging only.
    pub sandbox: Option<crate::sandbox::SandboxSpec>,
    /// Nodes whose µNF has crashed by itself, with the fingerprints of packets that it is not to get.
    pub careful: Vec<(u16, Vec<u64>)>,
    /// For tests: the step of the protocol at which to die, and at which passing of it.
    pub fault: Option<(u32, u32)>,
    /// For tests, in builds with the feature `attacks`: the worker turns hostile, with this seed.
    pub attack: Option<u64>,
}

/// What a worker tells the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromWorker {
    /// Attached and running. The text says what of the schedule was granted.
    Ready {
        /// True when it runs in the real-time class.
        real_time: bool,
    },
    /// It cannot go on, and why.
    Failed(String),
    /// Its code panicked: the message, and where. It ends.
    Panicked(String),
    /// Something the operator should know.
    Warning(String),
    /// What its µNFs have to report, by node, as JSON.
    Report(Vec<String>),
    /// It rests at a batch boundary, as the agent told it to, and holds these buffers besides its
    /// pool's free ones.
    Paused(Vec<u32>),
    /// Its input has ended and everything has been passed on.
    Done,
}

/// Commands in the agent's ring.
pub mod command {
    /// Stop receiving; let what is under way run out.
    pub const STOP: u32 = 1;
    /// Nothing but taking this command: a sign of life.
    pub const PING: u32 = 2;
    /// Rest at the next batch boundary, say so, and wait for `RESUME` or `REFILL`.
    pub const PAUSE: u32 = 3;
    /// Go on; the rings may have been put right meanwhile.
    pub const RESUME: u32 = 4;
    /// As `RESUME`, and forget the free buffers: they come anew.
    pub const REFILL: u32 = 5;
}
