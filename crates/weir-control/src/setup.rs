//! What is to run: workers and the lanes between them, free of file descriptors.

use weir_runtime::spec::{EndSpec, NodeSpec, ScheduleSpec};

/// A worker to run.
#[derive(Debug, Clone)]
pub struct WorkerSetup {
    /// Name of its segment.
    pub name: String,
    /// Its device, if it is a device's service.
    pub end: EndSpec,
    /// Its nodes in topological order.
    pub nodes: Vec<NodeSpec>,
    /// Edges that leave its nodes, by their number in the plan.
    pub edges: Vec<u32>,
    /// Whether it may write packet bytes.
    pub writable: bool,
    /// How it shares the machine.
    pub schedule: ScheduleSpec,
    /// For tests: where its first incarnation dies.
    pub fault: Option<(u32, u32)>,
}

impl WorkerSetup {
    /// True when it takes buffers for new packets, and so has a home pool.
    pub fn has_home(&self) -> bool {
        matches!(self.end, EndSpec::Rx { .. })
    }
}

/// A lane between two workers.
#[derive(Debug, Clone)]
pub struct LaneSetup {
    /// Index of the producing worker.
    pub from: usize,
    /// Index of the consuming worker.
    pub to: usize,
    /// Index of the source.
    pub source: u16,
    /// Index among the producing worker's edges.
    pub edge: u16,
    /// Whether watermarks matter to somebody further on.
    pub ordered: bool,
    /// Node of the consuming worker.
    pub node: u16,
    /// Its input.
    pub input: u8,
}

/// Sizes of the graph's memory.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Longest packet in bytes.
    pub packet: u32,
    /// Buffers of each home pool: two to this.
    pub pool_bits: u32,
    /// Entries of each lane.
    pub ring: u32,
}

/// Everything that is to run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Workers. Owner words carry their index plus one.
    pub workers: Vec<WorkerSetup>,
    /// Lanes.
    pub lanes: Vec<LaneSetup>,
    /// Number of sources.
    pub sources: u16,
    /// Sizes.
    pub sizes: Sizes,
    /// Tag slots in use.
    pub tags: Vec<(String, u8)>,
    /// Seed of everything random.
    pub seed: u64,
}
