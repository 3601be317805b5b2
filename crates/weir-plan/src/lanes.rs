//! Rings between segments: one per edge and source, and which of them need watermarks.

use std::collections::HashMap;

use crate::domains;
use crate::graph::{EdgeId, Graph, NodeId, NodeKind};
use crate::plan::{
    Carries, EdgeKind, Home, Lane, MAX_LANES, PlanEdge, PlanError, Segment, SegmentId, SegmentKind,
    Source, SourceId,
};
use crate::reach::Reach;
use crate::topo;

/// A set of sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sources(Vec<u64>);

impl Sources {
    fn insert(&mut self, source: usize) {
        let (word, bit) = (source / 64, source % 64);
        if self.0.len() <= word {
            self.0.resize(word.saturating_add(1), 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1_u64 << bit;
        }
    }

    fn add(&mut self, other: &Sources) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn contains(&self, source: usize) -> bool {
        self.0.get(source / 64).is_some_and(|word| word >> (source % 64) & 1 == 1)
    }

    fn len(&self) -> usize {
        self.0
            .iter()
            .map(|word| usize::try_from(word.count_ones()).unwrap_or(0))
            .fold(0, usize::saturating_add)
    }
}

/// All lanes, by edge, then source.
pub(crate) fn lanes(
    graph: &Graph,
    segments: &[Segment],
    homes: &[Home],
    sources: &[Source],
    edges: &[PlanEdge],
) -> Result<Vec<Lane>, PlanError> {
    let Carried { all: carried, fresh } = carried(graph, segments, homes, sources, edges);
    let is_ring = |edge: &PlanEdge| edge.kind == EdgeKind::Ring;
    let rings = || edges.iter().zip(&carried).filter(|(edge, _)| is_ring(edge));
    let ends = |edge: &PlanEdge| homes.get(edge.to.index()).map_or(0, |home| home.inward.len());
    let count = rings()
        .map(|(edge, set)| set.len().saturating_mul(ends(edge)))
        .fold(0, usize::saturating_add);
    if count > MAX_LANES {
        return Err(PlanError::TooManyLanes { count });
    }
    let mut list = Vec::with_capacity(count);
    let gates = domains::gates(segments);
    refuse_gates_on_cycles(graph, &gates)?;
    for (edge, set) in rings() {
        let to = homes.get(edge.to.index()).map(|home| home.inward.as_slice()).unwrap_or_default();
        let own = homes.get(edge.from.index()).map(|home| home.out.as_slice()).unwrap_or_default();
        let is_port =
            graph.node(edge.from).is_some_and(|node| matches!(node.kind, NodeKind::Port { .. }));
        for (source, id) in sources.iter().zip(0_u32..).filter(|(_, id)| set.contains(index(*id))) {
            // A port's packets are produced by the source itself.
            let from = if is_port { Some(source.segment) } else { own.first().copied() };
            if let Some(from) = from {
                let source = SourceId(id);
                let closes = graph.edge(edge.id).is_some_and(|edge| edge.closes);
                let back = closes
                    || fresh
                        .as_ref()
                        .and_then(|fresh| fresh.get(edge.id.index()))
                        .is_some_and(|fresh| !fresh.contains(index(id)));
                let gate = gates.get(&edge.id).copied();
                let sheds = graph.edge(edge.id).is_some_and(|edge| edge.sheds);
                let lane = |from, to| {
                    let (edge, ordered, carries) = (edge.id, false, Carries::Packets);
                    // A gate has had the packet copied: it is who comes before it that drops.
                    let closes = closes || sheds && Some(from) != gate;
                    Lane { edge, source, from, to, ordered, closes, back, carries }
                };
                if back && gate.is_some() {
                    return Err(PlanError::CycleAcross { edge: edge.name.clone() });
                }
                list.extend(gate.map(|gate| lane(from, gate)));
                list.extend(to.iter().map(|to| lane(gate.unwrap_or(from), *to)));
            }
        }
    }
    mark_ordered(segments.len(), &mut list);
    Ok(list)
}

/// A packet's count of rounds would be the word of whoever it comes from: one domain that says nothing of it keeps
/// packets of another's going round, and the run from its end.
fn refuse_gates_on_cycles(
    graph: &Graph,
    gates: &HashMap<EdgeId, SegmentId>,
) -> Result<(), PlanError> {
    if !graph.has_cycles() {
        return Ok(());
    }
    let next = graph.among_nfs();
    let edges = graph.edges().iter().zip((0..).map(EdgeId));
    let mut crossing = edges.filter(|(_, id)| gates.contains_key(id)).map(|(edge, _)| edge);
    match crossing.find(|edge| topo::reaches(&next, edge.to.index(), edge.from.index())) {
        Some(edge) => Err(PlanError::CycleAcross { edge: edge.name.clone() }),
        None => Ok(()),
    }
}

/// For each edge, whose packets may cross it.
struct Carried {
    all: Vec<Sources>,
    /// Without having gone back along a ring that closes a cycle; `None`: there is none.
    fresh: Option<Vec<Sources>>,
}

fn carried(
    graph: &Graph,
    segments: &[Segment],
    homes: &[Home],
    sources: &[Source],
    edges: &[PlanEdge],
) -> Carried {
    let mut begin = vec![Sources::default(); graph.nodes().len()];
    let port_of =
        |source: &Source| homes.iter().position(|home| home.out.contains(&source.segment));
    for (source, i) in sources.iter().zip(0_usize..) {
        if let Some(set) = port_of(source).and_then(|port| begin.get_mut(port)) {
            set.insert(i);
        }
    }
    if !graph.has_cycles() {
        return Carried { all: once_through(graph, begin, edges), fresh: None };
    }
    let reach = Reach::new(graph);
    let (mut all, mut fresh) =
        (vec![Sources::default(); edges.len()], vec![Sources::default(); edges.len()]);
    let goes_back = |id: EdgeId| {
        let is_ring = edges.get(id.index()).is_some_and(|edge| edge.kind == EdgeKind::Ring);
        is_ring && graph.edge(id).is_some_and(|edge| edge.closes)
    };
    for (source, i) in sources.iter().zip(0_usize..) {
        let port = match segments.get(source.segment.index()).map(|segment| segment.kind) {
            Some(SegmentKind::Rx { port, .. }) => port,
            _ => continue,
        };
        let from = (0_u32..).map(NodeId).zip(&begin).find(|(_, set)| set.contains(i));
        let Some((from, _)) = from else { continue };
        let mark = |sets: &mut Vec<Sources>, follows: &dyn Fn(EdgeId) -> bool| {
            for id in reach.edges(from, port, follows) {
                if let Some(set) = sets.get_mut(id.index()) {
                    set.insert(i);
                }
            }
        };
        mark(&mut all, &|_| true);
        mark(&mut fresh, &|id| !goes_back(id));
    }
    Carried { all, fresh: Some(fresh) }
}

/// Where there are no cycles: by node, whose packets come to it, in the order of the NFs.
fn once_through(graph: &Graph, mut at_node: Vec<Sources>, edges: &[PlanEdge]) -> Vec<Sources> {
    let mut out: Vec<Vec<&PlanEdge>> = vec![Vec::new(); graph.nodes().len()];
    for edge in edges.iter().filter(|edge| !edge.outputs.is_empty()) {
        if let Some(list) = out.get_mut(edge.from.index()) {
            list.push(edge);
        }
    }
    let mut carried = vec![Sources::default(); edges.len()];
    let ports = graph.node_ids().filter(|(_, node)| !node.is_nf()).map(|(id, _)| id);
    for node in ports.chain(graph.order().iter().copied()) {
        let set = at_node.get(node.index()).cloned().unwrap_or_default();
        for edge in out.get(node.index()).into_iter().flatten() {
            if let Some(place) = carried.get_mut(edge.id.index()) {
                place.clone_from(&set);
            }
            // What enters a port is sent, and does not come out again.
            if graph.node(edge.to).is_some_and(crate::graph::Node::is_nf)
                && let Some(place) = at_node.get_mut(edge.to.index())
            {
                place.add(&set);
            }
        }
    }
    carried
}

/// Marks the lanes in front of a merge of the same source, and those that lead to such lanes. What goes back
/// around a cycle gets a new place where it comes in, so it takes no part. Nor does what a parallel stage's branches are
/// lent, and say: it is at the index of the packet itself.
pub(crate) fn mark_ordered(segments: usize, lanes: &mut [Lane]) {
    let mut once = vec![Sources::default(); segments];
    let mut needed = vec![Sources::default(); segments];
    let mut into: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
    let mut todo = Vec::new();
    let merged = |lane: &Lane| !lane.back && lane.carries == Carries::Packets;
    for (i, lane) in lanes.iter().enumerate().filter(|(_, lane)| merged(lane)) {
        let (to, source) = (lane.to.index(), index(lane.source.0));
        into.entry((to, source)).or_default().push(i);
        let (Some(once), Some(needed)) = (once.get_mut(to), needed.get_mut(to)) else {
            continue;
        };
        if !once.contains(source) {
            once.insert(source);
        } else if !needed.contains(source) {
            needed.insert(source);
            todo.push((to, source));
        }
    }
    // Each segment and source at most once.
    while let Some((to, source)) = todo.pop() {
        for i in into.get(&(to, source)).into_iter().flatten() {
            let Some(lane) = lanes.get_mut(*i) else { continue };
            lane.ordered = true;
            let from = lane.from.index();
            if let Some(set) = needed.get_mut(from).filter(|set| !set.contains(source)) {
                set.insert(source);
                todo.push((from, source));
            }
        }
    }
}

fn index(source: u32) -> usize {
    usize::try_from(source).unwrap_or(usize::MAX)
}
