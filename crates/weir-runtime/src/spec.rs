//! What the agent tells a worker.

mod crews;
mod ends;
mod lanes;
mod nodes;

pub use crews::{CrewSpec, MailSpec};
pub use ends::{DumpSpec, EarlySpec, EndSpec};
pub use lanes::{ArenaSpec, CarriesSpec, HomeSpec, LaneInSpec, LaneOutSpec, ReturnSpec, RingSpec};
pub use nodes::{
    ArraySpec, BranchSpec, GroupSpec, MarkSpec, NodeSpec, PartSpec, ReplicateSpec, ShareSpec,
    SpreadSpec, TargetSpec,
};

use crate::moves::{Awaited, FlowLine, FlowTotal};
use serde::{Deserialize, Serialize};

/// What stands behind the name in the command line of a worker's process that began in reserve, before its worker had died.
pub const RESERVE: &str = "reserve";

/// Version of these messages; together with the memory's layout version it must match.
pub const PROTOCOL_VERSION: u32 = 35;

/// Index of a descriptor in the list that came with the message.
pub type Fd = u16;

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
