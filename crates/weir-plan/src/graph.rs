//! The policy graph (pGraph): all pipelets in one graph with one node per instance.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_filter::Expr;

use crate::bandwidth::Bandwidth;
use crate::catalog::NfInfo;
use crate::service::{Vnf, VnfOf};
use crate::topo::Successors;

/// A node's place in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// An edge's place in [`Graph::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgeId(pub u32);

impl NodeId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl EdgeId {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Where packets come from, go through, or end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The instance's name: what identifies it from one plan to the next.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Its outputs in their order: one for a port, those of its type for an NF, none for `Drop`.
    pub outputs: Vec<Output>,
    /// Which VNF it is a µNF of, if it came with one.
    #[serde(default)]
    pub vnf: Option<VnfOf>,
    /// Which NF of the policy it is an instance of, where a plan has several of it.
    #[serde(default)]
    pub instance: Option<InstanceOf>,
}

/// One of several instances of an NF. Their number stands at the end of their names, `fw#1`, `fw#2`: a
/// character that no name of a policy has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceOf {
    /// The NF's name.
    pub name: String,
    /// Which, from 0.
    pub index: u32,
}

/// Part of the packets of an edge: those that belong to one of several instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The NF, by its place in [`Plan::groups`](crate::Plan::groups).
    pub group: u32,
    /// The instance, from 0.
    pub index: u32,
    /// The input that decides which end of a packet counts ([`SizedEdge::side`](crate::SizedEdge::side)).
    #[serde(default)]
    pub side: usize,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// A policy port. As the source of edges it gives what its devices receive, as a destination it
    /// sends; the two have nothing to do with each other.
    Port {
        /// Its lowest number.
        first: u16,
        /// Its highest number.
        last: u16,
    },
    /// An NF instance.
    Nf {
        /// Its type's description.
        info: Box<NfInfo>,
        /// Its configuration; `{}` when the policy has none.
        config: Value,
    },
    /// A VNF, made of µNFs by a template. Only in a graph that was not expanded yet
    /// ([`service::expand`](crate::service::expand)); what runs has none.
    Vnf(Box<Vnf>),
    /// The predefined `Drop`.
    Drop,
}

/// One output of a node. A packet takes the first branch whose filter matches it; when none does, it
/// is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its name; empty for a port's.
    pub name: String,
    /// In policy order. Only the last may be without a filter.
    pub branches: Vec<Branch>,
    /// True when the policy says `default drop;`: then what no branch takes is dropped by policy.
    /// Else it was shown that there is no such packet.
    pub default_drop: bool,
}

/// A way out of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// Which packets take it; `None` for all that get here. Free of outputs, not of tags; of automatic
    /// ones in what runs: see [`Graph::not_run`].
    pub filter: Option<Expr>,
    /// The edge.
    pub edge: EdgeId,
}

/// An edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// `x -> y`, with its filter and input as well where there are several from x to y. Unique.
    pub name: String,
    /// Its source.
    pub from: NodeId,
    /// The source's outputs that have it among their branches, in ascending order; empty when no
    /// packet can take it.
    pub outputs: Vec<usize>,
    /// Its destination.
    pub to: NodeId,
    /// The destination's input that it leads to.
    pub input: usize,
    /// The automatic tag that it gives packets.
    #[serde(default)]
    pub tag: Option<String>,
    /// Its filter as in the policy, names of outputs included.
    pub filter: Option<Expr>,
    /// The traffic that the policy expects on it.
    pub bandwidth: Option<Bandwidth>,
    /// The pipelet it was first written in.
    pub pipelet: Option<String>,
    /// For an edge from a port: its number in tests of the edge that packets entered by, if there are
    /// any.
    #[serde(default)]
    pub entry: Option<u32>,
    /// True when it leads back to an NF that leads to its source: without such edges the NFs form no
    /// cycle. Which of a cycle's edges it is follows from the graph alone.
    #[serde(default)]
    pub closes: bool,
    /// True when the operator wants packets dropped that find its ring full, instead of having whoever sends them wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sheds: bool,
    /// Where the order of the text decides between edges from its source (`first match;`): its place among them,
    /// from 1. A packet that an earlier one takes does not come to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_match: Option<u32>,
    /// Which of the packets take it that its filter matches, where they divide over instances.
    #[serde(default)]
    pub share: Option<Share>,
}

/// A checked policy graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) order: Vec<NodeId>,
}

impl Graph {
    /// All nodes: those that have edges, in the order of their declaration; `Drop`, if used, last.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All edges in policy order.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The NFs, each before those that its edges lead to, but for edges that close a cycle.
    #[must_use]
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// A node; `None` when `id` is not of this graph.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// An edge; `None` when `id` is not of this graph.
    #[must_use]
    pub fn edge(&self, id: EdgeId) -> Option<&Edge> {
        self.edges.get(id.index())
    }

    /// A node's outputs; none for `Drop` and for ids that are not of this graph.
    #[must_use]
    pub fn outputs(&self, id: NodeId) -> &[Output] {
        self.node(id).map_or(&[], |node| &node.outputs)
    }

    /// Nodes with their ids.
    pub fn node_ids(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().zip(0_u32..).map(|(node, id)| (NodeId(id), node))
    }

    /// Edges with their ids.
    pub fn edge_ids(&self) -> impl Iterator<Item = (EdgeId, &Edge)> {
        self.edges.iter().zip(0_u32..).map(|(edge, id)| (EdgeId(id), edge))
    }

    /// The edges that leave each node, in policy order.
    pub(crate) fn leaving(&self) -> Vec<Vec<EdgeId>> {
        let mut leaving = vec![Vec::new(); self.nodes.len()];
        for (id, edge) in self.edge_ids() {
            if let Some(list) = leaving.get_mut(edge.from.index()) {
                list.push(id);
            }
        }
        leaving
    }

    /// Has the rings to these nodes drop when they are full.
    pub(crate) fn shed(&mut self, to: &BTreeSet<String>) {
        let sheds: Vec<bool> = self.nodes.iter().map(|n| to.contains(n.policy_name())).collect();
        for edge in &mut self.edges {
            edge.sheds = sheds.get(edge.to.index()).copied().unwrap_or(false);
        }
    }

    /// True when some edge closes a cycle.
    #[must_use]
    pub fn has_cycles(&self) -> bool {
        self.edges.iter().any(|edge| edge.closes)
    }

    /// Edges from NF to NF. What enters a port is sent, and does not come out again.
    pub(crate) fn among_nfs(&self) -> Successors {
        let mut next = vec![Vec::new(); self.nodes.len()];
        let is_nf = |id: NodeId| self.node(id).is_some_and(Node::is_nf);
        for (i, edge) in self.edges.iter().enumerate() {
            if is_nf(edge.from)
                && is_nf(edge.to)
                && let Some(edges) = next.get_mut(edge.from.index())
            {
                edges.push((edge.to.index(), i));
            }
        }
        next
    }

    /// The node of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.node_ids().find(|(_, node)| node.name == name).map(|(id, _)| id)
    }

    /// The port that has that number.
    #[must_use]
    pub fn port(&self, number: u16) -> Option<NodeId> {
        self.node_ids()
            .find(|(_, node)| matches!(node.kind, NodeKind::Port { first, last } if (first..=last).contains(&number)))
            .map(|(id, _)| id)
    }
}

impl Edge {
    /// Its place in an order that decides, in words; empty for edges that exclude each other.
    pub(crate) fn order_in_words(&self) -> String {
        self.first_match.map_or_else(String::new, |place| format!("first match: {place}."))
    }
}

impl Node {
    /// The name that the policy knows it by.
    #[must_use]
    pub fn policy_name(&self) -> &str {
        self.instance.as_ref().map_or(&self.name, |of| &of.name)
    }

    /// True for an NF instance, VNFs included.
    #[must_use]
    pub fn is_nf(&self) -> bool {
        matches!(self.kind, NodeKind::Nf { .. } | NodeKind::Vnf(_))
    }
}
