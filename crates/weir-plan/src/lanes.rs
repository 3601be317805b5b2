//! Rings between segments: one per edge and source, and which of them need watermarks.

use crate::domains;
use crate::graph::{Graph, NodeKind};
use crate::plan::{
    EdgeKind, Home, Lane, MAX_LANES, PlanEdge, PlanError, Segment, SegmentId, Source, SourceId,
};

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

    fn both(&self, other: &Sources) -> Sources {
        Sources(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
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
    let carried = carried(graph, homes, sources, edges);
    let is_ring = |edge: &PlanEdge| edge.kind == EdgeKind::Ring;
    let rings = || edges.iter().zip(&carried).filter(|(edge, _)| is_ring(edge));
    let count = rings().map(|(_, set)| set.len()).fold(0, usize::saturating_add);
    if count > MAX_LANES {
        return Err(PlanError::TooManyLanes { count });
    }
    let mut list = Vec::with_capacity(count);
    for (edge, set) in rings() {
        let to = homes.get(edge.to.index()).and_then(|home| home.inward);
        let own = homes.get(edge.from.index()).map(|home| home.out.as_slice()).unwrap_or_default();
        let is_port =
            graph.node(edge.from).is_some_and(|node| matches!(node.kind, NodeKind::Port { .. }));
        for (source, id) in sources.iter().zip(0_u32..).filter(|(_, id)| set.contains(index(*id))) {
            // A port's packets are produced by the source itself.
            let from = if is_port { Some(source.segment) } else { own.first().copied() };
            if let (Some(from), Some(to)) = (from, to) {
                let source = SourceId(id);
                let lane = |from, to| Lane { edge: edge.id, source, from, to, ordered: false };
                match domains::gate(segments, edge.id) {
                    Some(gate) => list.extend([lane(from, gate), lane(gate, to)]),
                    None => list.push(lane(from, to)),
                }
            }
        }
    }
    mark_ordered(segments.len(), &mut list);
    Ok(list)
}

/// For each edge, whose packets may cross it.
fn carried(graph: &Graph, homes: &[Home], sources: &[Source], edges: &[PlanEdge]) -> Vec<Sources> {
    let mut at_node = vec![Sources::default(); graph.nodes().len()];
    for (source, i) in sources.iter().zip(0_usize..) {
        let port = homes.iter().position(|home| home.out.contains(&source.segment));
        if let Some(set) = port.and_then(|port| at_node.get_mut(port)) {
            set.insert(i);
        }
    }
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

/// Marks the lanes in front of a merge of the same source. Lanes lead from lower to higher segments,
/// so going backwards over the segments each is decided before those that lead to it.
fn mark_ordered(segments: usize, lanes: &mut [Lane]) {
    let mut once = vec![Sources::default(); segments];
    let mut needed = vec![Sources::default(); segments];
    for lane in lanes.iter() {
        let mut this = Sources::default();
        this.insert(index(lane.source.0));
        if let (Some(once), Some(twice)) =
            (once.get_mut(lane.to.index()), needed.get_mut(lane.to.index()))
        {
            twice.add(&once.both(&this));
            once.add(&this);
        }
    }
    let mut by_producer: Vec<usize> = (0..lanes.len()).collect();
    by_producer.sort_by_key(|i| std::cmp::Reverse(lanes.get(*i).map(|lane| lane.from)));
    let is_needed = |needed: &[Sources], at: SegmentId, source: SourceId| {
        needed.get(at.index()).is_some_and(|set| set.contains(index(source.0)))
    };
    for i in by_producer {
        let Some(lane) = lanes.get_mut(i) else {
            continue;
        };
        lane.ordered = is_needed(&needed, lane.to, lane.source);
        if lane.ordered
            && let Some(set) = needed.get_mut(lane.from.index())
        {
            set.insert(index(lane.source.0));
        }
    }
}

fn index(source: u32) -> usize {
    usize::try_from(source).unwrap_or(usize::MAX)
}
