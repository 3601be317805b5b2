//! From the instance graph to a graph with a node for each instance, which then is planned and run like
//! any other. Edges to an NF of several instances become one for each; of packets that the edge's filter
//! takes, each has its [`Share`]. Who gives packets decides, so an edge needs nothing between.

use serde::{Deserialize, Serialize};

use super::{Instances, Key, SizedEdge, SizedNf, Way};
use crate::bandwidth::Bandwidth;
use crate::cores::Apart;
use crate::graph::{Branch, Edge, EdgeId, Graph, InstanceOf, Node, NodeId, Share};

/// An NF that has several instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its instances.
    pub nodes: Vec<NodeId>,
    /// How packets are divided over them, by whoever hashes.
    pub spread: Spread,
    /// The instances' weights.
    pub weights: Vec<u32>,
}

impl Group {
    /// Its instances are to be on cores of their own.
    pub(crate) fn apart(&self) -> Apart {
        Apart { nodes: self.nodes.clone(), near: false }
    }
}

/// How packets find their instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// One after the other.
    InTurn,
    /// To the one with the least waiting before it.
    LeastLoaded,
    /// Those that are the same by this key to the same.
    By(Key),
}

/// A graph with a node for each instance.
pub(crate) struct Unfolded {
    pub(crate) graph: Graph,
    pub(crate) groups: Vec<Group>,
    /// By edge of the graph before: those that it has become.
    pub(crate) edges: Vec<Vec<EdgeId>>,
    /// By node of the graph before: those that it has become.
    pub(crate) nodes: Vec<Vec<NodeId>>,
}

/// Replaces each NF by its instances. Names of the others, and the order of all, stay.
pub(crate) fn unfold(graph: &Graph, instances: &Instances) -> Unfolded {
    let mut sized: Vec<Option<&SizedNf>> = vec![None; graph.nodes().len()];
    for nf in instances.nfs.iter().filter(|nf| nf.count > 1) {
        if let Some(place) = sized.get_mut(nf.node.index()) {
            *place = Some(nf);
        }
    }
    let mut groups = Vec::new();
    // By old node: its group.
    let mut group_of: Vec<Option<u32>> = vec![None; graph.nodes().len()];
    let (mut made, mut nodes) = (Vec::new(), Vec::new());
    for ((node, nf), place) in graph.nodes().iter().zip(sized).zip(&mut group_of) {
        let count = nf.map_or(1, |nf| nf.count);
        let first = u32::try_from(made.len()).unwrap_or(u32::MAX);
        let ids: Vec<_> = (0..count).map(|k| NodeId(first.saturating_add(k))).collect();
        for index in 0..count {
            let mut copy = node.clone();
            copy.outputs.iter_mut().for_each(|output| output.branches.clear());
            if count > 1 {
                copy.name = format!("{}#{}", node.name, index.saturating_add(1));
                copy.instance = Some(InstanceOf { name: node.name.clone(), index });
            }
            made.push(copy);
        }
        if let Some(nf) = nf {
            *place = u32::try_from(groups.len()).ok();
            groups.push(group(nf, ids.clone()));
        }
        nodes.push(ids);
    }
    let mut unfolded = Unfolded {
        graph: Graph { nodes: made, edges: Vec::new(), order: Vec::new() },
        groups,
        edges: Vec::new(),
        nodes,
    };
    for (at, (edge, sized)) in graph.edges().iter().zip(&instances.edges).enumerate() {
        let links = instances.links(at);
        unfolded.edge(edge, sized, &links, group_of.get(edge.to.index()).copied().flatten());
    }
    for (id, node) in graph.node_ids() {
        unfolded.branches(id, node);
    }
    // Of each edge all parts close a cycle, or none: instances of equal number are alike.
    unfolded.graph.sort_as_it_closes();
    unfolded
}

fn group(nf: &SizedNf, nodes: Vec<NodeId>) -> Group {
    let least = nf.asked.as_ref().is_some_and(|asked| asked.least_loaded);
    let spread = match nf.split.map(|split| split.key) {
        None | Some(Key::Any) if least => Spread::LeastLoaded,
        None | Some(Key::Any) => Spread::InTurn,
        Some(key) => Spread::By(key),
    };
    Group { name: nf.name.clone(), nodes, spread, weights: nf.weights() }
}

impl Unfolded {
    fn nodes_of(&self, old: NodeId) -> &[NodeId] {
        self.nodes.get(old.index()).map(Vec::as_slice).unwrap_or_default()
    }

    /// What an edge becomes.
    fn edge(&mut self, edge: &Edge, sized: &SizedEdge, links: &[(u32, u32)], group: Option<u32>) {
        let (froms, tos) = sized.counts;
        let mut ids = Vec::with_capacity(links.len());
        for &(a, b) in links {
            let end = |list: &[NodeId], k: u32| {
                list.get(usize::try_from(k).unwrap_or(usize::MAX)).copied()
            };
            let (Some(from), Some(to)) =
                (end(self.nodes_of(edge.from), a), end(self.nodes_of(edge.to), b))
            else {
                continue;
            };
            let which = |of: u32, k: u32| match of {
                1 => String::new(),
                _ => format!("#{}", k.saturating_add(1)),
            };
            let name = match (which(froms, a), which(tos, b)) {
                (a, b) if a.is_empty() && b.is_empty() => edge.name.clone(),
                (a, b) => format!("{} ({a}>{b})", edge.name),
            };
            // Their part of what is known of the traffic.
            let parts = links.len() as f64;
            let bandwidth = match sized.pps.filter(|_| links.len() > 1) {
                Some(pps) => Some(Bandwidth::Pps((pps / parts).ceil() as u64)),
                None => edge.bandwidth,
            };
            let hashed = matches!(sized.way, Way::Hashed(_));
            let share =
                group.filter(|_| hashed).map(|group| Share { group, index: b, side: sized.side });
            let Ok(id) = u32::try_from(self.graph.edges.len()) else { return };
            self.graph.edges.push(Edge { name, from, to, bandwidth, share, ..edge.clone() });
            ids.push(EdgeId(id));
        }
        self.edges.push(ids);
    }

    /// Gives the instances of a node its branches: an edge's parts stand together, in the order of their
    /// instances.
    fn branches(&mut self, old: NodeId, node: &Node) {
        for id in self.nodes_of(old).to_vec() {
            for (k, output) in node.outputs.iter().enumerate() {
                let parts = |branch: &Branch| {
                    let ids = self.edges.get(branch.edge.index()).map(Vec::as_slice);
                    let own = ids
                        .unwrap_or_default()
                        .iter()
                        .filter(|part| self.graph.edge(**part).is_some_and(|edge| edge.from == id));
                    let part =
                        |edge: &EdgeId| Branch { filter: branch.filter.clone(), edge: *edge };
                    own.map(part).collect::<Vec<_>>()
                };
                let branches = output.branches.iter().flat_map(parts).collect();
                let made = self.graph.nodes.get_mut(id.index());
                if let Some(output) = made.and_then(|node| node.outputs.get_mut(k)) {
                    output.branches = branches;
                }
            }
        }
    }
}
