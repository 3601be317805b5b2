//! VNFs to their µNFs: a graph with VNFs to the graph that runs.
//!
//! A VNF `fw` becomes nodes called `fw/check`, `fw/filter`: no instance of a policy can have such a
//! name. What leaves the VNF by one of its outputs takes that output's edges from the µNF that
//! sends it there, so the graph means what it meant before.

use serde_json::Value;
use weir_filter::Expr;

use crate::bandwidth::Bandwidth;
use crate::catalog::{Around, Catalog, ConfigProblem};
use crate::graph::{Edge, EdgeId, Graph, Node, NodeId, NodeKind, Output};
use crate::service::template::Way;
use crate::service::vnf::{Vnf, VnfOf};

/// What separates a VNF's name from its µNF's.
pub const SEPARATOR: char = '/';

/// Replaces each VNF by its µNFs; a graph without VNFs stays as it is.
#[must_use]
pub fn expand(graph: &Graph) -> Graph {
    if !graph.nodes().iter().any(|node| matches!(node.kind, NodeKind::Vnf(_))) {
        return graph.clone();
    }
    let mut expansion = Expansion::new(graph);
    let mut done = vec![false; graph.nodes().len()];
    // A node's edges stand where the first of them stood.
    let of_edges = graph.edges().iter().map(|edge| edge.from);
    let all = graph.node_ids().map(|(id, _)| id);
    for id in of_edges.chain(all) {
        let Some(done) = done.get_mut(id.index()).filter(|done| !**done) else { continue };
        *done = true;
        match graph.node(id).map(|node| &node.kind) {
            Some(NodeKind::Vnf(vnf)) => expansion.vnf(id, vnf),
            Some(_) => expansion.plain(id),
            None => {}
        }
    }
    let mut graph = expansion.expanded;
    graph.name_edges();
    graph.settle_order();
    graph.sort();
    graph
}

/// Lets µNFs generate their configurations from what they were given and from their
/// neighbours (µNF paper §IV-A, "configuration generator").
///
/// # Errors
/// For each that cannot: the µNF, and why.
pub(crate) fn configure(
    graph: &mut Graph,
    catalog: &dyn Catalog,
) -> Result<(), Vec<(NodeId, ConfigProblem)>> {
    let mut problems = Vec::new();
    let mut made: Vec<(usize, Value)> = Vec::new();
    for ((id, node), around) in graph.node_ids().zip(neighbours(graph)) {
        let NodeKind::Nf { info, config } = &node.kind else { continue };
        // What is as it was has been checked.
        let generated = match catalog.generate(&info.name, config, &around) {
            Ok(generated) if generated == *config => continue,
            Ok(generated) => catalog.check_config(&info.name, &generated).map(|()| generated),
            Err(problem) => Err(problem),
        };
        match generated {
            Ok(generated) => made.push((id.index(), generated)),
            Err(problem) => problems.push((id, problem)),
        }
    }
    for (at, generated) in made {
        if let Some(NodeKind::Nf { config, .. }) = graph.nodes.get_mut(at).map(|n| &mut n.kind) {
            *config = generated;
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The neighbours of each node.
fn neighbours(graph: &Graph) -> Vec<Around> {
    let named = |node: NodeId| graph.node(node).map_or_else(String::new, |node| node.name.clone());
    let none = |names: &[String]| names.iter().map(|name| (name.clone(), Vec::new())).collect();
    let mut all: Vec<Around> = graph
        .nodes()
        .iter()
        .map(|node| match &node.kind {
            NodeKind::Nf { info, .. } => {
                Around { inputs: none(&info.inputs), outputs: none(&info.outputs) }
            }
            _ => Around::default(),
        })
        .collect();
    for edge in graph.edges() {
        let to = all.get_mut(edge.to.index()).and_then(|around| around.inputs.get_mut(edge.input));
        if let Some((_, from)) = to {
            from.push(named(edge.from));
        }
        for output in &edge.outputs {
            let from = all.get_mut(edge.from.index());
            if let Some((_, to)) = from.and_then(|around| around.outputs.get_mut(*output)) {
                to.push(named(edge.to));
            }
        }
    }
    all
}

struct Expansion<'g> {
    graph: &'g Graph,
    expanded: Graph,
    /// By old node: its first new one. A VNF's µNFs follow each other.
    first: Vec<NodeId>,
    drop: NodeId,
    /// By old node: the old edges that leave it.
    leaving: Vec<Vec<EdgeId>>,
}

/// An edge that is about to be made of several outputs' branches.
struct Draft {
    outputs: Vec<usize>,
    filter: Option<Expr>,
    to: (NodeId, usize),
    tag: Option<String>,
    bandwidth: Option<Bandwidth>,
    pipelet: Option<String>,
    /// The old edge that it follows.
    follows: Option<EdgeId>,
}

impl<'g> Expansion<'g> {
    fn new(graph: &'g Graph) -> Self {
        let mut nodes = Vec::new();
        let mut first = Vec::new();
        let id = |nodes: &Vec<Node>| NodeId(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let mut drop = None;
        let mut drops = false;
        for node in graph.nodes() {
            first.push(id(&nodes));
            match &node.kind {
                NodeKind::Vnf(vnf) => {
                    drops |= vnf.ways.iter().flatten().any(|way| *way == Way::Drop);
                    nodes.extend(micro_nfs(node, vnf));
                }
                NodeKind::Drop => {
                    drop = Some(id(&nodes));
                    nodes.push(empty(node));
                }
                _ => nodes.push(empty(node)),
            }
        }
        let drop = drop.unwrap_or_else(|| {
            let place = id(&nodes);
            if drops {
                let outputs = Vec::new();
                nodes.push(Node {
                    name: "Drop".to_owned(),
                    kind: NodeKind::Drop,
                    outputs,
                    vnf: None,
                    instance: None,
                });
            }
            place
        });
        let expanded = Graph { nodes, edges: Vec::new(), order: Vec::new() };
        Self { graph, expanded, first, drop, leaving: graph.leaving() }
    }

    fn new_id(&self, old: NodeId, offset: usize) -> NodeId {
        let first = self.first.get(old.index()).map_or(u32::MAX, |id| id.0);
        NodeId(first.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX)))
    }

    /// Where an edge to an old node's input leads now.
    fn enter(&self, to: NodeId, input: usize) -> (NodeId, usize) {
        match self.graph.node(to).map(|node| &node.kind) {
            Some(NodeKind::Vnf(vnf)) => {
                let (node, input) = vnf.entries.get(input).copied().unwrap_or_default();
                (self.new_id(to, node), input)
            }
            _ => (self.new_id(to, 0), input),
        }
    }

    /// The edges of a node that stays.
    fn plain(&mut self, id: NodeId) {
        let edges = self.leaving.get(id.index()).cloned().unwrap_or_default();
        for edge in edges.into_iter().filter_map(|edge| self.graph.edge(edge)) {
            let (to, input) = self.enter(edge.to, edge.input);
            let (name, outputs) = (String::new(), Vec::new());
            let from = self.new_id(id, 0);
            self.expanded.add(Edge { name, outputs, from, to, input, ..edge.clone() });
        }
    }

    /// The edges inside and out of a VNF.
    fn vnf(&mut self, id: NodeId, vnf: &Vnf) {
        for (k, (node, ways)) in vnf.nodes.iter().zip(&vnf.ways).enumerate() {
            let from = self.new_id(id, k);
            for draft in self.drafts(id, ways) {
                let (to, input) = draft.to;
                let said = tags(&node.name, &node.info.outputs, &draft.outputs);
                let filter = match (said, draft.filter) {
                    (None, filter) => filter,
                    (Some(said), None) => Some(said),
                    (Some(said), Some(filter)) => Some(Expr::and(vec![said, filter])),
                };
                self.expanded.add(Edge {
                    name: String::new(),
                    from,
                    outputs: Vec::new(),
                    to,
                    input,
                    tag: draft.tag,
                    filter,
                    bandwidth: draft.bandwidth,
                    pipelet: draft.pipelet,
                    entry: None,
                    closes: false,
                    sheds: false,
                    first_match: draft.follows.and_then(|edge| self.graph.edge(edge)?.first_match),
                    share: None,
                });
            }
        }
    }

    /// The edges of a µNF in their order. What several outputs do alike is one edge, as far as that
    /// leaves the order of each output's branches as it is.
    fn drafts(&self, id: NodeId, ways: &[Way]) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = Vec::new();
        for (output, way) in ways.iter().enumerate() {
            let mut least = 0;
            for branch in self.branches(id, *way) {
                let same = drafts.iter().enumerate().skip(least).find(|(_, draft)| {
                    draft.to == branch.to
                        && draft.filter == branch.filter
                        && draft.follows == branch.follows
                });
                match same.map(|(at, _)| at) {
                    Some(at) => {
                        least = at.saturating_add(1);
                        if let Some(draft) = drafts.get_mut(at) {
                            draft.outputs.push(output);
                        }
                    }
                    None => {
                        drafts.push(Draft { outputs: vec![output], ..branch });
                        least = drafts.len();
                    }
                }
            }
        }
        drafts
    }

    /// Where packets that take `way` go.
    fn branches(&self, id: NodeId, way: Way) -> Vec<Draft> {
        let inner = |to| Draft {
            outputs: Vec::new(),
            filter: None,
            to,
            tag: None,
            bandwidth: None,
            pipelet: None,
            follows: None,
        };
        match way {
            Way::Node { node, input } => vec![inner((self.new_id(id, node), input))],
            Way::Drop => vec![inner((self.drop, 0))],
            Way::Nowhere => Vec::new(),
            Way::Out(output) => {
                let branches = self.graph.outputs(id).get(output).map(|output| &output.branches);
                let branches = branches.into_iter().flatten().filter_map(|branch| {
                    let edge = self.graph.edge(branch.edge)?;
                    Some(Draft {
                        outputs: Vec::new(),
                        filter: branch.filter.clone(),
                        to: self.enter(edge.to, edge.input),
                        tag: edge.tag.clone(),
                        bandwidth: edge.bandwidth,
                        pipelet: edge.pipelet.clone(),
                        follows: Some(branch.edge),
                    })
                });
                branches.collect()
            }
        }
    }
}

/// A node without its edges.
fn empty(node: &Node) -> Node {
    let outputs = node.outputs.iter();
    let outputs = outputs.map(|output| Output { branches: Vec::new(), ..output.clone() }).collect();
    Node { outputs, ..node.clone() }
}

fn micro_nfs(node: &Node, vnf: &Vnf) -> Vec<Node> {
    let all = vnf.nodes.iter().zip(&vnf.ways);
    let made = all.map(|(inner, ways)| {
        // What finds no edge at the VNF's output finds none here either, for the same reason.
        let default_drop = |way: Option<&Way>| match way {
            Some(Way::Out(output)) => node.outputs.get(*output).is_some_and(|o| o.default_drop),
            _ => false,
        };
        let outputs = inner.info.outputs.iter().enumerate().map(|(k, name)| Output {
            name: name.clone(),
            branches: Vec::new(),
            default_drop: default_drop(ways.get(k)),
        });
        Node {
            name: format!("{}{SEPARATOR}{}", node.name, inner.name),
            kind: NodeKind::Nf { info: Box::new(inner.info.clone()), config: inner.config.clone() },
            outputs: outputs.collect(),
            vnf: Some(VnfOf {
                instance: node.name.clone(),
                template: vnf.info.name.clone(),
                node: inner.name.clone(),
            }),
            instance: None,
        }
    });
    made.collect()
}

/// `check.ip || check.non_ip`: that packets come by one of these outputs; `None` for all of them.
fn tags(scope: &str, all: &[String], some: &[usize]) -> Option<Expr> {
    if some.len() >= all.len() {
        return None;
    }
    let names = some.iter().filter_map(|output| all.get(*output));
    let mut tags: Vec<Expr> =
        names.map(|name| Expr::Tag { scope: scope.to_owned(), name: name.clone() }).collect();
    if tags.len() == 1 { tags.pop() } else { Some(Expr::Or(tags)) }
}
