//! What the agent tells a worker.

mod lanes;

pub use lanes::{ArenaSpec, CarriesSpec, HomeSpec, LaneInSpec, LaneOutSpec, ReturnSpec, RingSpec};

use crate::moves::{Awaited, FlowLine, FlowTotal};
use serde::{Deserialize, Serialize};
use weir_device::DeviceSpec;
use weir_filter::Expr;
use weir_flow::Party;
use weir_nf::TagSpec;
use weir_port::balance::{Buckets, BucketsError};

/// What stands behind the name in the command line of a worker's process that began in reserve, before its worker had died.
pub const RESERVE: &str = "reserve";

/// Version of these messages; together with the memory's layout version it must match.
pub const PROTOCOL_VERSION: u32 = 34;

/// Index of a descriptor in the list that came with the message.
pub type Fd = u16;

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
        /// Its index among the worker's [`WorkerSpec::arrays`].
        array: u16,
        /// The [`LaneOutSpec::edge`] of the lanes to its first port; those of the others follow.
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
    /// The side that the packets come from, where they are divided by sides: 0 is inside, or the clients'.
    pub side: u8,
}

/// One of the instances of an NF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSpec {
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

/// A worker's part in a crew: those who move flows among the instances of an NF, or of several that are one segment's replicas.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrewSpec {
    /// The NFs that packets are divided for, by their places in [`WorkerSpec::groups`], all by flows and alike: a flow's
    /// packets come to the replica of the same number. Orders name the first.
    pub groups: Vec<u16>,
    /// What the worker is: an instance, or one who divides packets over them, by its number among those.
    pub me: Party,
    /// How often it was started before in this crew.
    pub life: u32,
    /// Of an instance, its nodes in the worker that remember something of flows, in the order that all instances have.
    pub nodes: Vec<u16>,
    /// How many divide packets.
    pub directors: u16,
    /// Those of it that are gone for good.
    pub gone: Vec<Party>,
    /// Of an instance the lanes in by which packets come, each with who sends; of who divides the lanes out, each with the
    /// instance that it leads to. By their places among the worker's.
    pub lanes: Vec<(u16, u16)>,
    /// Letters to and from the others.
    pub mails: Vec<MailSpec>,
}

/// Letters to and from one of a crew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MailSpec {
    /// Who it is.
    pub with: Party,
    /// Sender's and reader's memory of the mail to it.
    pub to: (Fd, Fd),
    /// The same of the mail from it.
    pub from: (Fd, Fd),
    /// Its doorbell.
    pub bell: Fd,
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
        /// Of a live source: which of its packets are given up first when there is too little room. What none of
        /// these takes is the last class.
        early: Vec<EarlySpec>,
    },
    /// The worker sends to a device.
    Tx {
        /// The device.
        device: DeviceSpec,
        /// Policy port number.
        port: u16,
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

impl EndSpec {
    /// Classes by which it counts early drops.
    pub fn classes(&self) -> usize {
        match self {
            EndSpec::Rx { early, .. } if !early.is_empty() => early.len() + 1,
            _ => 0,
        }
    }
}

/// A class of a live source's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlySpec {
    /// The operator's words for it.
    pub text: String,
    /// Which packets; of several classes the first counts.
    pub filter: Expr,
    /// Its weight ([`weir_port::Shares`]).
    pub weight: u32,
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
    /// Cores to stand by on, if it is not to run in that class: whoever it takes over from may run in it on its core, and would hardly let it come
    /// to its turn there. The agent puts it on its own before it begins. Empty: it stands by on its own.
    pub stands_by_on: Vec<u16>,
    /// Whether other workers poll on the same core: then yield instead of spinning.
    pub shares_core: bool,
    /// Microseconds to poll after the last packet before sleeping.
    pub spin_us: u32,
    /// Never sleep, but when called to.
    pub busy: bool,
    /// Of how many packets of a batch the first lines are asked for when it is taken; `None`: of all.
    pub prefetch: Option<u32>,
    /// For experiments.
    pub trial: Trial,
}

/// How a worker may run otherwise than is best, to measure what is: the µNF paper's Fig. 5, NFActor's Fig. 7.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// SCHED_RR in the place of SCHED_FIFO.
    pub round_robin: bool,
    /// When all have had time to start (0.6 s) it never leaves its core to others of its own will.
    pub keeps_core: bool,
    /// Of so many migrations of flows, 128 at most, an instance begins the next only when one has ended; `None`: of as many as is best.
    pub migrations: Option<u16>,
    /// So many flows go together, 8,192 at most; `None`: as many as is best.
    pub flows: Option<u16>,
    /// So many buckets, 16,384 at most.
    pub buckets: Option<u16>,
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
    /// The crews that it is of.
    pub crews: Vec<CrewSpec>,
    /// Arrays of ports that its edges lead to.
    pub arrays: Vec<ArraySpec>,
    /// Where an Rx service writes which flows came in, if its port is of an array that some edge leads to.
    pub learns: Option<Fd>,
    /// Whether the worker is a branch of a parallel stage: all its lanes in lend it packets, and it answers on each.
    pub branch: bool,
    /// Of such a branch: fields of packets that other branches of the stage write meanwhile ([`crate::field`]).
    pub beside: u32,
    /// Device.
    pub end: EndSpec,
    /// The device's descriptor, of one that the agent holds open (a TAP interface, a packet socket).
    pub device: Option<Fd>,
    /// Whether packets arrive with empty tag slots: some filter of the graph asks for tags.
    pub clear_tags: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// By what it hashes what it remembers of flows: its own, and its successors'.
    pub secret: (u64, u64),
    /// How it shares the machine.
    pub schedule: ScheduleSpec,
    /// Some source is live: while no packets come, timers go by the wall clock.
    pub live: bool,
    /// Most packets that one µNF may hold, so that the pools never run dry of held packets alone.
    pub hold_most: u32,
    /// It waits for [`command::GO`] before its first step: another generation of the graph still runs.
    pub standby: bool,
    /// Where the µNFs' whole state is handed over from one generation to the next ([`crate::handover`]);
    /// `None` for a worker without µNFs that sends no fragments where their first went.
    pub handover: Option<Fd>,
    /// Where the µNFs' shared state is kept for a successor; `None` for a device's worker.
    pub state: Option<Fd>,
    /// Where what they remember is replicated ([`weir_mem::ReplicaTable`]), and whose the datagrams are whose fragments it sends where their
    /// first went; `None` when nothing is to be.
    pub replica: Option<Fd>,
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
        /// Packets go, and it reads on what its predecessor has left; it tells when all is read.
        reads: bool,
    },
    /// It cannot go on, and why.
    Failed(String),
    /// Its code panicked: the message, and where. It ends.
    Panicked(String),
    /// Something the operator should know.
    Warning(String),
    /// What it has got back of a predecessor from the replica.
    Recovered {
        /// Flows.
        flows: u64,
        /// Records that were refused.
        refused: u64,
        /// How long reading it took, in microseconds.
        micros: u64,
        /// How long after it was ready the last of it was read: packets came meanwhile.
        after: u64,
    },
    /// Its first batch is through since it has got that back.
    FirstOut {
        /// How long that took, from when it was ready.
        micros: u64,
    },
    /// What its µNFs have to report, by node, as JSON.
    Report(Vec<String>),
    /// It rests at a batch boundary, as the agent told it to, and holds these buffers besides its
    /// pool's free ones.
    Paused(Vec<u32>),
    /// Its input has ended and everything has been passed on.
    Done,
    /// It has attached to the memory of the next generation.
    Adopted,
    /// It could not, and why; it goes on in its own.
    NotAdopted(String),
    /// It rests, has written down all that its µNFs remember, and goes on when it is told where.
    HandedOver(Handing),
    /// It has taken up what the generation before has handed over, and waits for the word to begin.
    TookOver {
        /// What of it could not be taken, and why.
        refused: Vec<String>,
    },
    /// Flows are copied into the memory for what is handed over, as ordered.
    Precopied {
        /// The order's.
        ticket: u64,
        /// How many were copied now.
        copied: u64,
        /// How many are left, those that have changed again among them.
        left: u64,
        /// Some may not have been copied at all yet.
        walks: bool,
        /// Why they are not, if they are not.
        why: Option<String>,
    },
    /// Flows go from here to another instance as their µNF wants it, now and for a second or so.
    Goes {
        /// The NF, as in an order.
        group: u16,
        /// The instance.
        to: u16,
    },
    /// What was ordered to be moved from here is.
    Moved {
        /// The order's.
        ticket: u64,
        /// Flows that have gone.
        flows: u64,
        /// Of each migration, from its first request to its last answer: how long it took, microseconds, and how many flows it had. Of
        /// [`MOST_TIMES`](crate::moves::MOST_TIMES) at most.
        times: Vec<(u64, u64)>,
        /// Buckets that stay for now, as they have flows and only those without were to go
        /// ([`What::Some`](crate::moves::What::Some)).
        left: u32,
        /// Why it is not all, if it is not.
        why: Option<String>,
    },
    /// The flows that there are.
    Flows {
        /// The order's.
        ticket: u64,
        /// By node that keeps flows.
        totals: Vec<FlowTotal>,
        /// The first of those.
        lines: Vec<FlowLine>,
    },
    /// Somebody of its crew has it wait. Answered by [`Awaited::to_command`], if that is not worth it.
    Waits {
        /// For what.
        awaited: Awaited,
        /// For how long, the oldest of it.
        ms: u64,
    },
}

/// How a worker handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handing {
    /// All is written down; so many packets wait for room in its lanes.
    Whole {
        /// Packets that wait.
        backlog: u64,
    },
    /// One of its µNFs holds packets, which cannot go over.
    Held {
        /// Its name.
        nf: String,
        /// How many.
        packets: u64,
    },
    /// What its µNFs remember cannot be handed over, and why.
    Not(String),
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
    /// All sources have ended, and nothing is under way around a cycle any more.
    pub const END_CYCLES: u32 = 6;
    /// Take nothing more from the device; what was taken runs out.
    pub const HOLD: u32 = 7;
    /// Takes back `HOLD`.
    pub const RECEIVE: u32 = 8;
    /// A message follows: attach to the memory that it describes, beside that in use.
    pub const ADOPT: u32 = 9;
    /// Forget what was adopted.
    pub const FORSAKE: u32 = 10;
    /// As `PAUSE`, after everything that the µNFs remember was written down. Who has adopted another memory
    /// goes on in it at `GO`.
    pub const HAND_OVER: u32 = 11;
    /// Begin.
    pub const GO: u32 = 12;
    /// A message follows: an [`Order`](crate::moves::Order).
    pub const ORDER: u32 = 13;
    /// Take up what was handed over, say how that went, and go on to wait for `GO`.
    pub const TAKE_OVER: u32 = 14;
    // Those of `Awaited::to_command` are above 2^31.
}
