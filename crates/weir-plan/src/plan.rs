//! The plan: which worker runs what, and how the workers are wired.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::catalog::ProgramId;
use crate::cores::{self, Apart};
use crate::domains;
use crate::graph::{Edge, EdgeId, Graph, NodeId, NodeKind};
use crate::lanes;
use crate::optimise::{self, Change, Consolidated, Tally};
use crate::parallel::{InSequence, Running};
use crate::size::{self, Bound, Group, Instances, Sizing, Unfolded};
use crate::topology::Topology;

pub(crate) mod error;
mod segments;

pub use error::PlanError;
use segments::segments;
pub(crate) use segments::{program_of, runs};

/// The most lanes of a plan.
pub const MAX_LANES: usize = 1_000_000;
/// The most edges between instances.
pub const MAX_PARTS: u64 = 100_000;

/// Which NFs get a worker of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolate {
    /// Each NF.
    #[default]
    Each,
    /// None: one worker runs all NFs.
    None,
    /// As many workers as the server's cores make good use of, by the cost model.
    Auto,
}

impl fmt::Display for Isolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isolate::Each => "each",
            Isolate::None => "none",
            Isolate::Auto => "auto",
        })
    }
}

/// What a plan is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Which NFs get a worker of their own.
    pub isolate: Isolate,
    /// The cores to use, in order: the first for the Rx and Tx services, the others for NFs; a
    /// single one for all. `None` (or an empty list) leaves it to the kernel. Where [`Options::topology`] has several NUMA nodes, services
    /// have the first of their NIC's node.
    pub cores: Option<Vec<usize>>,
    /// How many cores are online.
    pub online: usize,
    /// Trust domains that the operator gives NF instances, in place of their types' own; empty for
    /// the graph's own.
    pub domains: BTreeMap<String, String>,
    /// NFs and ports whose rings drop when they are full: who sends to them does not wait.
    #[serde(default)]
    pub shed: BTreeSet<String>,
    /// NUMA nodes of the machine.
    #[serde(default)]
    pub topology: Topology,
}

/// A segment's place in [`Plan::segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A source's place in [`Plan::sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u32);

/// What one worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// `rx:lan`, `tx:wan`, `rx:int.3` for a number of a port array, or the NFs' names joined by `+`.
    pub name: String,
    /// What it is.
    pub kind: SegmentKind,
    /// Its nodes, each before those its edges lead to.
    pub nodes: Vec<NodeId>,
    /// Those of its NFs that stand in its order once more, behind the others: packets of some ports come to them along edges that close a
    /// cycle, so many by then. Where there are any, such edges within the segment lead straight on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<(NodeId, u32)>,
    /// True when one of its NFs may write packets, so that it needs write access to their data.
    pub writes_packets: bool,
    /// The outside program that its worker is; `None`: the library alone will do.
    pub program: Option<ProgramId>,
    /// The core it is pinned on.
    pub core: Option<usize>,
    /// The trust domain in whose memory it works; empty for the graph's own. A gate takes from
    /// another one.
    pub domain: String,
}

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// Receives on a port.
    Rx {
        /// The port's number.
        port: u16,
        /// Its packets' source.
        source: SourceId,
    },
    /// Runs NFs.
    Nf,
    /// Copies the packets of an edge from one trust domain into another.
    Gate {
        /// The edge.
        edge: EdgeId,
    },
    /// Sends on a port.
    Tx {
        /// The port's number.
        port: u16,
    },
}

/// Where packets, and the sequence numbers of their order, come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The Rx segment's name.
    pub name: String,
    /// The Rx segment.
    pub segment: SegmentId,
}

/// How an edge's packets get to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// By a function call: both ends are in this segment.
    Direct {
        /// The segment.
        segment: SegmentId,
    },
    /// Through rings: the edge's lanes.
    Ring,
    /// From one branch of a parallel stage to the next: both are given its packets at the same time.
    Stage,
    /// To `Drop`, where they are.
    Drop,
}

/// An edge of the graph in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEdge {
    /// Its place here and in the graph.
    pub id: EdgeId,
    /// Its unique name, `x -> y`.
    pub name: String,
    /// Its source.
    pub from: NodeId,
    /// The source's outputs whose packets may take it.
    pub outputs: Vec<usize>,
    /// Its destination.
    pub to: NodeId,
    /// The destination's input.
    pub input: usize,
    /// How packets get across.
    pub kind: EdgeKind,
}

/// One SPSC ring: the packets of one source on one edge between segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The edge.
    pub edge: EdgeId,
    /// Where the packets came from.
    pub source: SourceId,
    /// The producer.
    pub from: SegmentId,
    /// The consumer.
    pub to: SegmentId,
    /// True when the consumer, or a segment behind it, merges two or more lanes of this source, so
    /// that its producer must publish watermarks.
    pub ordered: bool,
    /// True when it drops when it is full, instead of having its producer wait: its edge closes a cycle, or the operator wants it.
    #[serde(default)]
    pub closes: bool,
    /// True when packets of this source come there only around a cycle, or back to where it begins: it takes no
    /// part in any merge, and has no end of its own.
    #[serde(default)]
    pub back: bool,
    /// What it carries.
    #[serde(default)]
    pub carries: Carries,
}

/// What a lane carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// Packets.
    #[default]
    Packets,
    /// The packets of a parallel stage, lent to a branch.
    Loans {
        /// The stage's place in [`Plan::stages`].
        stage: u32,
        /// The branch's place in it.
        branch: u32,
    },
    /// What a branch says of them.
    Answers {
        /// The stage's place in [`Plan::stages`].
        stage: u32,
        /// The branch's place in it.
        branch: u32,
    },
}

/// A plan. Serialised, it is all that a worker needs to know of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The policy graph that it runs.
    pub graph: Graph,
    /// Rx segments, NF segments in chain order, Tx segments.
    pub segments: Vec<Segment>,
    /// The graph's edges, in its order.
    pub edges: Vec<PlanEdge>,
    /// One for each Rx segment, in the same order.
    pub sources: Vec<Source>,
    /// By edge, then source.
    pub lanes: Vec<Lane>,
    /// True when a core is sure to have no NF worker, so that workers of the real-time class leave
    /// the machine usable. Without pinning: when there are more cores than NF workers.
    pub real_time_ok: bool,
    /// NFs that are merged: those of a list are in one worker, and one instance if they remember
    /// nothing.
    pub merged: Vec<Vec<NodeId>>,
    /// NFs that have several instances, each a node of its own here.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Parallel stages that run as such.
    #[serde(default)]
    pub stages: Vec<Running>,
    /// Those that run in sequence.
    #[serde(default)]
    pub in_sequence: Vec<InSequence>,
    /// Which counters of the graph make those of the policy.
    pub tally: Tally,
    /// What consolidation did to the policy's graph.
    pub changes: Vec<Change>,
    /// NUMA nodes of the machine that it is for.
    #[serde(default)]
    pub topology: Topology,
}

impl Plan {
    /// Divides a graph into segments and wires them.
    ///
    /// # Errors
    /// When it needs too many rings or workers, or a domain is given to an NF that there is not.
    pub fn build(graph: &Graph, options: &Options) -> Result<Self, PlanError> {
        domains::check(graph, options)?;
        let none = (Vec::new(), Vec::new(), Vec::new());
        Self::of(graph, options, none, Tally::plain(graph), Vec::new())
    }

    /// As [`Plan::build`], for what [`crate::consolidate`] makes of the graph.
    ///
    /// # Errors
    /// When it needs too many rings or workers, or a domain is given to an NF that there is not.
    pub fn consolidated(graph: &Graph, options: &Options) -> Result<Self, PlanError> {
        domains::check(graph, options)?;
        let Consolidated { graph, merged, tally, changes } = optimise::consolidate(graph, options);
        Self::of(&graph, options, (merged, Vec::new(), Vec::new()), tally, changes)
    }

    /// As [`Plan::consolidated`], or [`Plan::build`] if not `consolidate`, with as many instances of each NF as the
    /// operator asks for or the expected traffic needs and the server's cores make good use of. Also
    /// gives the instance graph that it follows.
    ///
    /// # Errors
    /// As these; and when instances are asked for that there cannot be.
    pub fn sized(
        graph: &Graph,
        options: &Options,
        consolidate: bool,
        sizing: Sizing<'_>,
    ) -> Result<(Self, Instances), PlanError> {
        domains::check(graph, options)?;
        error::asked_for(graph, sizing)?;
        error::shed(graph, options)?;
        let mut shedding = graph.clone();
        shedding.shed(&options.shed);
        let graph = &shedding;
        let bound = match options.isolate {
            Isolate::None => Bound::OneWorker,
            Isolate::Each | Isolate::Auto => Bound::Cores,
        };
        let several = |graph: &Graph| {
            let all = size::sized(graph, sizing, bound).nfs.into_iter();
            let apart = |nf: &size::SizedNf| nf.count > 1 || !nf.replica_of().is_empty();
            all.filter(apart).map(|nf| nf.node).collect()
        };
        let done = match consolidate {
            true => optimise::consolidate_but(graph, options, several),
            false => Consolidated {
                graph: graph.clone(),
                merged: Vec::new(),
                tally: Tally::plain(graph),
                changes: Vec::new(),
            },
        };
        let Consolidated { graph, merged, mut tally, changes } = done;
        let instances = size::sized(&graph, sizing, bound);
        let parts = (0..instances.edges.len()).map(|edge| instances.parts(edge));
        let count = parts.fold(0, u64::saturating_add);
        if count > MAX_PARTS {
            return Err(PlanError::TooManyParts { count });
        }
        let sets = size::replicas(&graph, options, sizing.asked, &instances)?;
        let Unfolded { graph, groups, edges, nodes } = size::unfold(&graph, &instances);
        let of = |id: &NodeId| nodes.get(id.index()).map(Vec::as_slice).unwrap_or_default();
        let replicas = sets.iter().flat_map(|set| {
            let count = set.iter().map(|id| of(id).len()).max().unwrap_or(0);
            (0..count).map(|k| set.iter().filter_map(|id| of(id).get(k).copied()).collect())
        });
        let replicas = replicas.collect();
        let many = |list: &[EdgeId]| -> Vec<EdgeId> {
            list.iter()
                .flat_map(|id| edges.get(id.index()).into_iter().flatten())
                .copied()
                .collect()
        };
        tally.edges.iter_mut().for_each(|edge| edge.sum = many(&edge.sum));
        tally.nodes.iter_mut().for_each(|node| node.sum = many(&node.sum));
        let now = |id: &NodeId| nodes.get(id.index())?.first().copied();
        let merged = merged.iter().map(|list| list.iter().filter_map(now).collect()).collect();
        let plan = Self::of(&graph, options, (merged, groups, replicas), tally, changes)?;
        Ok((plan, instances))
    }

    fn of(
        graph: &Graph,
        options: &Options,
        (merged, groups, replicas): (Vec<Vec<NodeId>>, Vec<Group>, Vec<Vec<NodeId>>),
        tally: Tally,
        changes: Vec<Change>,
    ) -> Result<Self, PlanError> {
        let mut segments = segments(graph, options, &merged, &replicas)?;
        let apart: Vec<Apart> = groups.iter().map(|group| group.apart()).collect();
        let real_time_ok = cores::assign(&mut segments, options, &apart);
        let homes = homes(graph, &segments);
        let sources = sources(&segments);
        let edges: Vec<PlanEdge> = graph
            .edge_ids()
            .map(|(id, edge)| plan_edge(graph, &segments, &homes, id, edge))
            .collect();
        let lanes = lanes::lanes(graph, &segments, &homes, &sources, &edges)?;
        let graph = graph.clone();
        Ok(Self {
            graph,
            segments,
            edges,
            sources,
            lanes,
            real_time_ok,
            merged,
            groups,
            stages: Vec::new(),
            in_sequence: Vec::new(),
            tally,
            changes,
            topology: options.topology.clone(),
        })
    }

    /// A segment; `None` when `id` is not of this plan.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id.index())
    }

    /// The segment of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<SegmentId> {
        self.segments
            .iter()
            .zip(0_u32..)
            .find(|(segment, _)| segment.name == name)
            .map(|(_, id)| SegmentId(id))
    }

    /// The lanes that a segment consumes.
    pub fn lanes_into(&self, segment: SegmentId) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(move |lane| lane.to == segment)
    }

    /// The lanes that a segment produces.
    pub fn lanes_out_of(&self, segment: SegmentId) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(move |lane| lane.from == segment)
    }
}

/// Where a node runs. A port has one segment for each of its numbers and direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Home {
    /// The segments that give what leaves the node.
    pub(crate) out: Vec<SegmentId>,
    /// The segments that take what enters it: of a port array one for each number.
    pub(crate) inward: Vec<SegmentId>,
}

pub(crate) fn homes(graph: &Graph, segments: &[Segment]) -> Vec<Home> {
    let mut homes = vec![Home::default(); graph.nodes().len()];
    for (segment, id) in segments.iter().zip((0_u32..).map(SegmentId)) {
        for node in &segment.nodes {
            let Some(home) = homes.get_mut(node.index()) else {
                continue;
            };
            if !matches!(segment.kind, SegmentKind::Tx { .. }) {
                home.out.push(id);
            }
            if !matches!(segment.kind, SegmentKind::Rx { .. }) {
                home.inward.push(id);
            }
        }
    }
    homes
}

fn sources(segments: &[Segment]) -> Vec<Source> {
    let rx = segments.iter().zip((0_u32..).map(SegmentId));
    rx.filter(|(segment, _)| matches!(segment.kind, SegmentKind::Rx { .. }))
        .map(|(segment, id)| Source { name: segment.name.clone(), segment: id })
        .collect()
}

pub(crate) fn plan_edge(
    graph: &Graph,
    segments: &[Segment],
    homes: &[Home],
    id: EdgeId,
    edge: &Edge,
) -> PlanEdge {
    let home = |node: NodeId| homes.get(node.index());
    let from = home(edge.from).map(|home| home.out.as_slice()).unwrap_or_default();
    let to = home(edge.to).map(|home| home.inward.as_slice()).unwrap_or_default();
    let to_drop = graph.node(edge.to).is_some_and(|node| node.kind == NodeKind::Drop);
    let kind = match (from, to) {
        _ if to_drop => EdgeKind::Drop,
        // What goes back in its own segment waits in a ring, as any that goes back, unless it is known how often it does.
        ([from], [to]) if from == to && (!edge.closes || leads_on(segments, *to, edge)) => {
            EdgeKind::Direct { segment: *to }
        }
        _ => EdgeKind::Ring,
    };
    PlanEdge {
        id,
        name: edge.name.clone(),
        from: edge.from,
        outputs: edge.outputs.clone(),
        to: edge.to,
        input: edge.input,
        kind,
    }
}

/// True for an edge that closes a cycle within a segment in whose order the NF behind it stands once more.
fn leads_on(segments: &[Segment], segment: SegmentId, edge: &Edge) -> bool {
    segments.get(segment.index()).is_some_and(|segment| {
        let again = segment.again.iter().any(|(node, _)| *node == edge.to);
        again && segment.nodes.contains(&edge.from)
    })
}
