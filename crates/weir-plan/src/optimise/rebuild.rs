//! The graph of what is left, and which of its counters make the policy's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::graph::{Branch, Edge, EdgeId, Graph, NodeId, NodeKind};
use crate::optimise::known::Course;

/// The policy's counters as sums of the plan's. A µNF whose answer is known does not change or drop
/// the packets that pass it over, so packets and bytes of an edge past it are those of each edge that
/// it stands for, and nothing need be derived for drops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The policy's edges, in their order.
    pub edges: Vec<Tallied>,
    /// NFs that packets pass over, and those that are left out; in the graph's order.
    pub nodes: Vec<PassedOver>,
    /// The VNFs of the policy or request, in the graph's order.
    #[serde(default)]
    pub vnfs: Vec<VnfTally>,
}

/// What makes a VNF's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnfTally {
    /// Its name.
    pub instance: String,
    /// The template that it was made from.
    pub template: String,
    /// Names of its µNFs.
    pub nodes: Vec<String>,
    /// Places in [`Tally::edges`] of those that lead into it.
    pub ins: Vec<usize>,
    /// Places in [`Tally::edges`] of those that lead out of it.
    pub outs: Vec<usize>,
}

/// One of the policy's edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallied {
    /// Its name.
    pub name: String,
    /// The plan's edges whose packets took it; none when no packet can.
    pub sum: Vec<EdgeId>,
}

/// An NF that some packets, or all, do not come to though they would in the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The NF before it in the graph's order, beside which the operator expects it.
    pub behind: Option<String>,
    /// True when it is not in the plan: it has no counters of its own.
    pub left_out: bool,
    /// The plan's edges whose packets would have come to it: to be added to what it counts itself.
    pub sum: Vec<EdgeId>,
}

impl Tally {
    /// Of a graph that runs as it is.
    pub(crate) fn plain(graph: &Graph) -> Self {
        let same = graph.edge_ids();
        let edges = same.map(|(id, edge)| Tallied { name: edge.name.clone(), sum: vec![id] });
        Tally { edges: edges.collect(), nodes: Vec::new(), vnfs: vnfs(graph) }
    }
}

fn vnfs(graph: &Graph) -> Vec<VnfTally> {
    let mut vnfs: Vec<VnfTally> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for node in graph.nodes() {
        let Some(of) = &node.vnf else { continue };
        let place = *places.entry(&of.instance).or_insert_with(|| {
            let (instance, template) = (of.instance.clone(), of.template.clone());
            let (nodes, ins, outs) = (Vec::new(), Vec::new(), Vec::new());
            vnfs.push(VnfTally { instance, template, nodes, ins, outs });
            vnfs.len().saturating_sub(1)
        });
        if let Some(vnf) = vnfs.get_mut(place) {
            vnf.nodes.push(node.name.clone());
        }
    }
    let place = |node: NodeId| {
        let of = graph.node(node).and_then(|node| node.vnf.as_ref())?;
        places.get(of.instance.as_str()).copied()
    };
    for (at, edge) in graph.edges().iter().enumerate() {
        let (from, to) = (place(edge.from), place(edge.to));
        // What a VNF drops by an edge is counted as dropped, where it was.
        let dropped = graph.node(edge.to).is_some_and(|to| to.kind == NodeKind::Drop);
        if from == to || dropped {
            continue;
        }
        if let Some(vnf) = from.and_then(|from| vnfs.get_mut(from)) {
            vnf.outs.push(at);
        }
        if let Some(vnf) = to.and_then(|to| vnfs.get_mut(to)) {
            vnf.ins.push(at);
        }
    }
    vnfs
}

/// What is left of a graph when packets take these courses.
pub(super) fn rebuild(graph: &Graph, courses: &[Course], left_out: &[bool]) -> (Graph, Tally) {
    let paths = paths(graph, courses, left_out);
    let (mut nodes, ids) = nodes(graph, &paths, left_out);
    let id = |node: NodeId| ids.get(node.index()).copied().flatten();
    let mut edges = Vec::with_capacity(paths.len());
    for (path, outputs) in &paths {
        if let Some((mut edge, from, to)) = edge(graph, path).and_then(|edge| {
            let (from, to) = (id(edge.from)?, id(edge.to)?);
            Some((edge, from, to))
        }) {
            (edge.from, edge.to) = (from, to);
            edge.outputs.clone_from(outputs);
            edges.push(edge);
        }
    }
    let places: BTreeMap<&[EdgeId], EdgeId> =
        paths.keys().map(Vec::as_slice).zip((0_u32..).map(EdgeId)).collect();
    for course in courses {
        let output = id(course.from).and_then(|from| nodes.get_mut(from.index()));
        if let Some(output) = output.and_then(|node| node.outputs.get_mut(course.output))
            && let Some(edge) = places.get(course.path.as_slice())
        {
            output.branches.push(Branch { filter: course.filter.clone(), edge: *edge });
        }
    }
    let tally = tally(graph, &paths, left_out);
    edges.extend(silent(graph, &edges, &ids));
    let mut rebuilt = Graph { nodes, edges, order: Vec::new() };
    rebuilt.sort();
    (rebuilt, tally)
}

/// The edges of the new graph, as the policy's edges that each stands for, with the outputs whose
/// packets take it. In policy order.
fn paths(
    graph: &Graph,
    courses: &[Course],
    left_out: &[bool],
) -> BTreeMap<Vec<EdgeId>, Vec<usize>> {
    let mut paths: BTreeMap<Vec<EdgeId>, Vec<usize>> = BTreeMap::new();
    for course in courses {
        paths.entry(course.path.clone()).or_default().push(course.output);
    }
    let is_out = |node: NodeId| left_out.get(node.index()).copied().unwrap_or(true);
    for (id, edge) in graph.edge_ids() {
        // No packet can take it, but it is in the policy.
        if edge.outputs.is_empty() && !is_out(edge.from) && !is_out(edge.to) {
            paths.entry(vec![id]).or_default();
        }
    }
    paths
}

/// The nodes that stay, without branches, and what each old one's number is now.
fn nodes(
    graph: &Graph,
    paths: &BTreeMap<Vec<EdgeId>, Vec<usize>>,
    left_out: &[bool],
) -> (Vec<crate::graph::Node>, Vec<Option<NodeId>>) {
    let ends = |edge: &EdgeId| graph.edge(*edge).map(|edge| edge.to);
    let drops = paths.keys().filter_map(|path| ends(path.last()?));
    let mut dropping = vec![false; graph.nodes().len()];
    for to in drops {
        if let Some(place) = dropping.get_mut(to.index()) {
            *place = true;
        }
    }
    let (mut nodes, mut ids) = (Vec::new(), Vec::new());
    for ((node, out), used) in graph.nodes().iter().zip(left_out).zip(dropping) {
        if *out || node.kind == NodeKind::Drop && !used {
            ids.push(None);
            continue;
        }
        ids.push(u32::try_from(nodes.len()).ok().map(NodeId));
        let mut node = node.clone();
        node.outputs.iter_mut().for_each(|output| output.branches.clear());
        nodes.push(node);
    }
    (nodes, ids)
}

/// The edge that stands for those of a path, with the policy's node numbers.
fn edge(graph: &Graph, path: &[EdgeId]) -> Option<Edge> {
    let first = graph.edge(*path.first()?)?;
    let last = graph.edge(*path.last()?)?;
    let names: Vec<&str> =
        path.iter().filter_map(|id| graph.edge(*id)).map(|edge| edge.name.as_str()).collect();
    let (name, tag) = (names.join(", "), last.tag.clone());
    Some(Edge { name, to: last.to, input: last.input, tag, ..first.clone() })
}

/// A port that is left without an edge keeps one that no packet takes: its device is still opened, and
/// its output still there, if empty.
fn silent(graph: &Graph, edges: &[Edge], ids: &[Option<NodeId>]) -> Vec<Edge> {
    let id = |node: NodeId| ids.get(node.index()).copied().flatten();
    let Some(source) = edges.first().map(|edge| edge.from) else {
        return Vec::new();
    };
    let mut silent: Vec<Edge> = Vec::new();
    for edge in graph.edges() {
        let is_port =
            graph.node(edge.to).is_some_and(|to| matches!(to.kind, NodeKind::Port { .. }));
        let Some(to) = id(edge.to).filter(|_| is_port) else { continue };
        if !edges.iter().chain(&silent).any(|other| other.to == to) {
            let (name, outputs) = (edge.name.clone(), Vec::new());
            silent.push(Edge { name, from: source, outputs, to, ..edge.clone() });
        }
    }
    silent
}

fn tally(graph: &Graph, paths: &BTreeMap<Vec<EdgeId>, Vec<usize>>, left_out: &[bool]) -> Tally {
    let mut taken = vec![Vec::new(); graph.edges().len()];
    let mut passed = vec![Vec::new(); graph.nodes().len()];
    for (path, new) in paths.keys().zip((0_u32..).map(EdgeId)) {
        for edge in path {
            if let Some(list) = taken.get_mut(edge.index()) {
                list.push(new);
            }
        }
        for edge in path.iter().rev().skip(1).filter_map(|edge| graph.edge(*edge)) {
            if let Some(list) = passed.get_mut(edge.to.index()) {
                list.push(new);
            }
        }
    }
    let edges = graph.edges().iter().zip(taken);
    let edges = edges.map(|(edge, sum)| Tallied { name: edge.name.clone(), sum }).collect();
    let mut nodes = Vec::new();
    let mut behind: Option<&str> = None;
    for id in graph.order() {
        let Some(node) = graph.node(*id) else { continue };
        let sum = passed.get_mut(id.index()).map(std::mem::take).unwrap_or_default();
        let left_out = left_out.get(id.index()).copied().unwrap_or(false);
        if let NodeKind::Nf { info, .. } = &node.kind
            && (left_out || !sum.is_empty())
        {
            let (name, kind) = (node.name.clone(), info.name.clone());
            let behind = behind.map(str::to_owned);
            nodes.push(PassedOver { name, kind, behind, left_out, sum });
        }
        behind = Some(&node.name);
    }
    Tally { edges, nodes, vnfs: vnfs(graph) }
}
