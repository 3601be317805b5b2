//! Where in a worker's ledger which number stands. Agent and worker reckon it from the same spec.

use crate::spec::WorkerSpec;
use weir_device::Place;
use weir_packet::REASONS;

/// Numbers per node: packets and bytes in, packets that were timed, their nanoseconds, drops.
pub const NODE_WORDS: usize = 4 + REASONS;
/// Numbers per edge: packets and bytes.
pub const EDGE_WORDS: usize = 2;

/// Start of each group of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of rings out (lanes, then returns), whose indices after publication stand first.
    pub rings_out: usize,
    /// Lanes in: index up to which entries were claimed.
    pub lanes_in: usize,
    /// Number of lanes in.
    pub lanes_in_len: usize,
    /// The device's place.
    pub place: usize,
    /// Next sequence number of the worker's own source.
    pub seq: usize,
    /// Free buffers in the worker's stack.
    pub free: usize,
    /// Entries and buffer numbers that could not be right.
    pub rejected: usize,
    /// Bit i: source i has ended and its end was passed on.
    pub ended: usize,
    /// Nonsense seen, by ring: lanes in, then rings out, then the home pool's rings.
    pub nonsense: usize,
    /// Number of the home pool's rings.
    pub home_len: usize,
    /// Buffers that came back twice.
    pub doubled: usize,
    /// Packets that the worker's µNFs made, without copies.
    pub created: usize,
    /// Copies of packets that they made.
    pub copied: usize,
    /// Packets that they hold, or that wait for room.
    pub held: usize,
    /// The last batch whose records in the replica count.
    pub replica: usize,
    /// Nodes' numbers.
    pub nodes: usize,
    /// Edges' numbers.
    pub edges: usize,
    /// Early drops by class.
    pub classes: usize,
    /// Words in all.
    pub len: usize,
}

impl Layout {
    /// The layout of the worker that `spec` describes.
    pub fn of(spec: &WorkerSpec) -> Self {
        let rings_out = spec.lanes_out.len() + spec.returns.len();
        let home = spec.home.as_ref().map_or(0, |h| h.rings.len());
        let (nodes, edges, classes) = (spec.nodes.len(), spec.edges.len(), spec.end.classes());
        Self::new(rings_out, spec.lanes_in.len(), home, nodes, edges, classes)
    }

    /// The layout of a worker with so many rings out, lanes in, rings of its home pool, nodes, edges and
    /// classes of its source's packets.
    pub fn new(
        rings_out: usize,
        lanes_in: usize,
        home: usize,
        nodes: usize,
        edges: usize,
        classes: usize,
    ) -> Self {
        let place = rings_out + lanes_in;
        let seq = place + size_of::<Place>() / size_of::<u64>();
        let nonsense = seq + 9;
        let first_node = nonsense + lanes_in + rings_out + home;
        let first_edge = first_node + nodes * NODE_WORDS;
        let first_class = first_edge + edges * EDGE_WORDS;
        Layout {
            rings_out,
            lanes_in: rings_out,
            lanes_in_len: lanes_in,
            place,
            seq,
            free: seq + 1,
            rejected: seq + 2,
            ended: seq + 3,
            created: seq + 4,
            copied: seq + 5,
            held: seq + 6,
            replica: seq + 7,
            doubled: seq + 8,
            nonsense,
            home_len: home,
            nodes: first_node,
            edges: first_edge,
            classes: first_class,
            len: first_class + classes,
        }
    }
}

/// A node's numbers, read from a ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Packets in.
    pub packets: u64,
    /// Bytes in.
    pub bytes: u64,
    /// Packets whose processing was timed.
    pub timed_packets: u64,
    /// What it took in nanoseconds.
    pub timed_ns: u64,
    /// Drops by reason.
    pub drops: [u64; REASONS],
}

impl NodeCounts {
    /// The numbers of node `node`.
    pub fn read(words: &[u64], layout: &Layout, node: usize) -> Self {
        let at = |i: usize| words.get(layout.nodes + node * NODE_WORDS + i).copied().unwrap_or(0);
        NodeCounts {
            packets: at(0),
            bytes: at(1),
            timed_packets: at(2),
            timed_ns: at(3),
            drops: std::array::from_fn(|i| at(4 + i)),
        }
    }

    /// Drops in all.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}
