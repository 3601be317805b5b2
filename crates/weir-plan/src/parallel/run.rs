//! Parallel stages that run: which workers are branches, and where they come together.
//!
//! A stage's packets go by an ordinary lane from whoever gives them to whoever has the *sync port*; each branch
//! is lent the same packets, and answers on each (decisions/0012-parallel-stages.md). Branches are whole workers:
//! what of a stage shares one with µNFs that are not in it stays in sequence there. The sync port is in the worker
//! behind the stage if that is one, else in one of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Stage, Verdict, parallelise};
use crate::cores::{self, Apart};
use crate::domains;
use crate::graph::{EdgeId, Graph, NodeId, NodeKind};
use crate::lanes;
use crate::plan::{
    Carries, EdgeKind, Home, Lane, Options, Plan, PlanEdge, PlanError, Segment, SegmentId,
    SegmentKind, homes, plan_edge,
};
use crate::size::Group;
use crate::tags::Tags;

/// Whether µNFs work side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideBySide {
    /// Where the cost model says that it is worth it, and there are cores enough.
    #[default]
    Auto,
    /// Nowhere.
    Never,
    /// Wherever they may.
    Always,
}

/// A parallel stage that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its workers, in chain order; at least two.
    pub branches: Vec<SegmentId>,
    /// The worker that has the sync port.
    pub sync: SegmentId,
    /// The edge by which packets come.
    pub entry: EdgeId,
    /// The last µNF of the stage, whose edges lead on from the sync port.
    pub last: NodeId,
}

/// A stage that runs in sequence, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InSequence {
    /// Its µNFs.
    pub nodes: Vec<NodeId>,
    /// Why.
    pub why: Against,
}

/// Why a stage runs in sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The operator said so.
    Never,
    /// The cost model says so: [`Verdict`] in words.
    Cost(String),
    /// Its µNFs share workers.
    Fused,
    /// Packets come to it by so many edges.
    Entries(usize),
    /// An edge into it or out of it leads into another trust domain.
    Gate,
    /// An NF of it has several instances.
    Instances,
    /// More than one of its branches sets tags, or an edge inside it does.
    Tags,
    /// The graph has cycles.
    Cycles,
    /// A ring inside it, or into it, is to drop when it is full: all branches have each packet.
    Sheds,
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("in sequence: ")?;
        match self {
            Against::Never => f.write_str("as asked for"),
            Against::Cost(why) => f.write_str(why.strip_prefix("in sequence: ").unwrap_or(why)),
            Against::Fused => f.write_str("its NFs share workers"),
            Against::Entries(n) => write!(f, "packets come to it by {n} edges"),
            Against::Gate => f.write_str("it borders on another trust domain"),
            Against::Instances => f.write_str("an NF of it has several instances"),
            Against::Tags => f.write_str("more than one of its branches sets tags"),
            Against::Cycles => f.write_str("the graph has cycles"),
            Against::Sheds => f.write_str("a ring to an NF of it drops when it is full"),
        }
    }
}

/// A stage that is to run, before its sync port has a place.
struct Found {
    /// Places of its workers among the segments.
    branches: Vec<usize>,
    entry: EdgeId,
    last: NodeId,
}

impl Plan {
    /// The same plan with its parallel stages running as such, as far as `which` says and they can.
    ///
    /// # Errors
    /// When it needs too many rings.
    pub fn side_by_side(self, options: &Options, which: SideBySide) -> Result<Self, PlanError> {
        let (mut found, mut in_sequence) = (Vec::new(), Vec::new());
        for stage in parallelise(&self.graph, options, which).stages {
            match find(&self, &stage, which) {
                Ok(one) => found.push(one),
                Err(why) => in_sequence.push(InSequence { nodes: stage.nodes, why }),
            }
        }
        if found.is_empty() {
            return Ok(Plan { in_sequence, ..self });
        }
        let (mut segments, running) = with_syncs(&self, &found);
        let mut apart: Vec<Apart> = self.groups.iter().map(Group::apart).collect();
        let nodes = |id: &SegmentId| segments.get(id.index()).map(|s| s.nodes.clone());
        let branches = |stage: &Running| Apart {
            nodes: stage.branches.iter().filter_map(nodes).flatten().collect(),
            near: true,
        };
        apart.extend(running.iter().map(branches));
        let real_time_ok = cores::assign(&mut segments, options, &apart);
        let mut homes = homes(&self.graph, &segments);
        for stage in &running {
            if let Some(home) = homes.get_mut(stage.last.index()) {
                home.out = vec![stage.sync];
            }
        }
        let mut edges: Vec<PlanEdge> = self
            .graph
            .edge_ids()
            .map(|(id, edge)| plan_edge(&self.graph, &segments, &homes, id, edge))
            .collect();
        for edge in &mut edges {
            if running.iter().any(|stage| stage.is_inside(&homes, edge)) {
                edge.kind = EdgeKind::Stage;
            }
        }
        let mut sources = self.sources;
        for source in &mut sources {
            let name = &source.name;
            if let Some(at) = (0_u32..).zip(&segments).find(|(_, s)| s.name == *name) {
                source.segment = SegmentId(at.0);
            }
        }
        let all = lanes::lanes(&self.graph, &segments, &homes, &sources, &edges)?;
        let mut lanes: Vec<Lane> =
            all.into_iter().flat_map(|lane| spread(&running, lane)).collect();
        lanes::mark_ordered(segments.len(), &mut lanes);
        let stages = running;
        Ok(Plan { segments, edges, sources, lanes, real_time_ok, stages, in_sequence, ..self })
    }
}

impl Running {
    /// True for an edge from one branch to the next.
    fn is_inside(&self, homes: &[Home], edge: &PlanEdge) -> bool {
        let home = |node: NodeId| homes.get(node.index()).and_then(|home| home.inward.first());
        let place = |node| home(node).and_then(|s| self.branches.iter().position(|b| b == s));
        match (place(edge.from), place(edge.to)) {
            (Some(from), Some(to)) => from != to,
            _ => false,
        }
    }
}

/// The segments with those that sync ports need for themselves, and the stages in them.
fn with_syncs(plan: &Plan, found: &[Found]) -> (Vec<Segment>, Vec<Running>) {
    let is_branch = |at: usize| found.iter().any(|stage| stage.branches.contains(&at));
    // By stage: the segment that has the sync port, by its place now; none of those if it is to be one of its own.
    let hosts: Vec<Option<usize>> =
        found.iter().map(|stage| host(plan, stage.last).filter(|host| !is_branch(*host))).collect();
    let mut segments = Vec::with_capacity(plan.segments.len());
    // By place now: place then.
    let mut moved = Vec::with_capacity(plan.segments.len());
    let mut own: Vec<Option<usize>> = vec![None; found.len()];
    for (at, segment) in plan.segments.iter().enumerate() {
        moved.push(segments.len());
        segments.push(segment.clone());
        let of = found.iter().position(|stage| stage.branches.last() == Some(&at));
        if let Some(of) = of.filter(|of| hosts.get(*of) == Some(&None)) {
            let last = found.get(of).and_then(|stage| plan.graph.node(stage.last));
            if let Some(own) = own.get_mut(of) {
                *own = Some(segments.len());
            }
            segments.push(Segment {
                again: Vec::new(),
                name: format!("sync:{}", last.map_or("", |node| node.name.as_str())),
                kind: SegmentKind::Nf,
                nodes: Vec::new(),
                writes_packets: false,
                program: None,
                core: None,
                domain: segment.domain.clone(),
            });
        }
    }
    let id = |at: usize| SegmentId(u32::try_from(at).unwrap_or(u32::MAX));
    let then = |at: &usize| id(moved.get(*at).copied().unwrap_or(usize::MAX));
    let running = found.iter().zip(hosts.iter().zip(own)).map(|(stage, (host, own))| Running {
        branches: stage.branches.iter().map(then).collect(),
        sync: own.map_or_else(|| host.as_ref().map_or(id(usize::MAX), then), id),
        entry: stage.entry,
        last: stage.last,
    });
    let running = running.collect();
    (segments, running)
}

/// The one worker of µNFs that all packets of `last` go to which are not dropped.
fn host(plan: &Plan, last: NodeId) -> Option<usize> {
    let to = plan.edges.iter().filter(|edge| {
        edge.from == last && !edge.outputs.is_empty() && edge.kind != EdgeKind::Drop
    });
    let mut homes = to.map(|edge| nf_segment(plan, edge.to));
    let first = homes.next().flatten()?;
    homes.all(|home| home == Some(first)).then_some(first)
}

/// The place of the segment that a µNF runs in.
fn nf_segment(plan: &Plan, node: NodeId) -> Option<usize> {
    plan.segments.iter().position(|s| s.kind == SegmentKind::Nf && s.nodes.contains(&node))
}

/// How a stage would run; why not, otherwise.
fn find(plan: &Plan, stage: &Stage, which: SideBySide) -> Result<Found, Against> {
    let graph = &plan.graph;
    match which {
        SideBySide::Never => return Err(Against::Never),
        SideBySide::Auto if !matches!(stage.verdict, Verdict::Parallel { .. }) => {
            return Err(Against::Cost(stage.verdict.to_string()));
        }
        SideBySide::Auto | SideBySide::Always => {}
    }
    if graph.has_cycles() {
        return Err(Against::Cycles);
    }
    if stage.nodes.iter().any(|id| plan.groups.iter().any(|group| group.nodes.contains(id))) {
        return Err(Against::Instances);
    }
    if graph.edges().iter().any(|edge| edge.sheds && stage.nodes.contains(&edge.to)) {
        return Err(Against::Sheds);
    }
    let branches = branches(plan, stage);
    let nodes = || branches.iter().filter_map(|at| plan.segments.get(*at)).flat_map(|s| &s.nodes);
    let ([_, _, ..], Some(&first), Some(&last)) =
        (branches.as_slice(), nodes().next(), nodes().last())
    else {
        return Err(Against::Fused);
    };
    let taken = |edge: &&PlanEdge| !edge.outputs.is_empty();
    let into: Vec<&PlanEdge> =
        plan.edges.iter().filter(|edge| edge.to == first).filter(taken).collect();
    let [entry] = into.as_slice() else { return Err(Against::Entries(into.len())) };
    if graph.edge(entry.id).is_some_and(|edge| edge.share.is_some()) {
        return Err(Against::Instances);
    }
    let gates = domains::gates(&plan.segments);
    let mut out = plan.edges.iter().filter(|edge| edge.from == last);
    if gates.contains_key(&entry.id) || out.any(|edge| gates.contains_key(&edge.id)) {
        return Err(Against::Gate);
    }
    if !tags_apart(plan, graph, &branches) {
        return Err(Against::Tags);
    }
    Ok(Found { branches, entry: entry.id, last })
}

/// The first run of workers, in chain order, that have µNFs of the stage and no others.
fn branches(plan: &Plan, stage: &Stage) -> Vec<usize> {
    let mut run: Vec<usize> = Vec::new();
    for id in &stage.nodes {
        let Some(at) = nf_segment(plan, *id) else { return Vec::new() };
        let whole = plan
            .segments
            .get(at)
            .is_some_and(|segment| segment.nodes.iter().all(|node| stage.nodes.contains(node)));
        match whole {
            true if run.last() == Some(&at) => {}
            true => run.push(at),
            false if run.len() > 1 => break,
            false => run.clear(),
        }
    }
    run
}

/// Tags are written word by word: only one branch may, and no edge between two.
fn tags_apart(plan: &Plan, graph: &Graph, branches: &[usize]) -> bool {
    let sets = |id: &NodeId| match graph.node(*id).map(|node| &node.kind) {
        Some(NodeKind::Nf { info, .. }) => !info.tags.is_empty(),
        _ => false,
    };
    let segments = || branches.iter().filter_map(|at| plan.segments.get(*at));
    let inside = |id: NodeId| segments().any(|segment| segment.nodes.contains(&id));
    // Where tags have no room nothing runs at all.
    let marks = Tags::assign(graph).ok();
    let marked = plan.edges.iter().any(|edge| {
        let marks = marks.as_ref().is_some_and(|tags| !tags.marks(edge.id).is_empty());
        marks && inside(edge.from) && inside(edge.to)
    });
    segments().filter(|segment| segment.nodes.iter().any(sets)).count() <= 1 && !marked
}

/// A lane into a stage is as many lanes as it has branches twice, and the packets' own way.
fn spread(running: &[Running], lane: Lane) -> Vec<Lane> {
    let Some((n, stage)) = (0_u32..).zip(running).find(|(_, stage)| stage.entry == lane.edge)
    else {
        return vec![lane];
    };
    let mut all = vec![Lane { to: stage.sync, ..lane.clone() }];
    for (branch, to) in (0_u32..).zip(&stage.branches) {
        let carries = Carries::Loans { stage: n, branch };
        all.push(Lane { to: *to, carries, ordered: false, ..lane.clone() });
        let carries = Carries::Answers { stage: n, branch };
        all.push(Lane { from: *to, to: stage.sync, carries, ordered: false, ..lane.clone() });
    }
    all
}
