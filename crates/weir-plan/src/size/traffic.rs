//! How much traffic each edge and node is expected to carry.

use serde::{Deserialize, Serialize};

use crate::bandwidth::Bandwidth;
use crate::graph::{Edge, EdgeId, Graph, NodeId, NodeKind};

/// Mean length of packets in bytes where bits per second are given and nothing is said of it: that of
/// seven packets of 64, four of 594 and one of 1518 bytes ("simple IMIX").
pub const MEAN_PACKET_BYTES: u32 = 362;

/// Where an estimate comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimate {
    /// The policy states it on the edge.
    Stated,
    /// A share of what comes to the node before: what its edges do not state, evenly over those.
    Spread,
    /// Nothing before the edge is stated.
    #[default]
    Unknown,
}

/// What a port gives that says nothing on its edges, in packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unstated {
    /// Not known.
    Unknown,
    /// This much together, evenly over such ports.
    Together(f64),
    /// This much each.
    Each(f64),
}

/// An edge's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Packets per second; zero when unknown.
    pub(crate) pps: f64,
    pub(crate) estimate: Estimate,
}

/// The traffic of each edge and node.
pub(crate) struct Traffic {
    edges: Vec<Load>,
    /// Packets per second that come to a node; `None` when nothing of it is known.
    nodes: Vec<Option<f64>>,
}

impl Traffic {
    /// Follows the traffic through the graph, from the ports on. An NF is taken to drop nothing.
    pub(crate) fn of(graph: &Graph, unstated: Unstated, packet_bytes: u32) -> Self {
        let mut traffic = Traffic {
            edges: vec![Load::default(); graph.edges().len()],
            nodes: vec![None; graph.nodes().len()],
        };
        let leaving = graph.leaving();
        let of = |id: NodeId| leaving.get(id.index()).map(Vec::as_slice).unwrap_or_default();
        let pps = |edge: &Edge| edge.bandwidth.map(|given| in_packets(given, packet_bytes));
        let is_port = |id: &NodeId| {
            graph.node(*id).is_some_and(|node| matches!(node.kind, NodeKind::Port { .. }))
        };
        let ports: Vec<NodeId> = graph.node_ids().map(|(id, _)| id).filter(is_port).collect();
        let silent = |id: &&NodeId| {
            let mut edges = of(**id).iter().filter_map(|edge| graph.edge(*edge)).peekable();
            edges.peek().is_some() && edges.all(|edge| edge.bandwidth.is_none())
        };
        let each = match unstated {
            Unstated::Unknown => None,
            Unstated::Each(pps) => Some(pps),
            Unstated::Together(all) => {
                let stated: f64 =
                    graph.edges().iter().filter(|e| is_port(&e.from)).filter_map(pps).sum();
                Some((all - stated).max(0.0) / ports.iter().filter(silent).count().max(1) as f64)
            }
        };
        for port in &ports {
            let gives = each.filter(|_| silent(&port));
            traffic.spread(graph, of(*port), gives, &pps);
        }
        for id in graph.order() {
            let copies = match graph.node(*id).map(|node| &node.kind) {
                Some(NodeKind::Nf { info, .. }) => 1.0 + f64::from(info.creates),
                _ => 1.0,
            };
            let gives = traffic.node(*id).map(|comes| comes * copies);
            traffic.spread(graph, of(*id), gives, &pps);
        }
        traffic
    }

    /// Divides what a node gives over its edges.
    fn spread(
        &mut self,
        graph: &Graph,
        leaving: &[EdgeId],
        gives: Option<f64>,
        stated: &dyn Fn(&Edge) -> Option<f64>,
    ) {
        let edges = || leaving.iter().filter_map(|id| Some((*id, graph.edge(*id)?)));
        let taken = |edge: &Edge| !edge.outputs.is_empty();
        let said: f64 = edges().filter_map(|(_, edge)| stated(edge)).sum();
        let rest = edges().filter(|(_, edge)| taken(edge) && stated(edge).is_none()).count();
        for (id, edge) in edges() {
            let load = match (stated(edge), gives) {
                _ if !taken(edge) => Load { pps: 0.0, estimate: Estimate::Spread },
                (Some(pps), _) => Load { pps, estimate: Estimate::Stated },
                (None, Some(all)) => {
                    let pps = (all - said).max(0.0) / rest.max(1) as f64;
                    Load { pps, estimate: Estimate::Spread }
                }
                (None, None) => Load::default(),
            };
            if let Some(place) = self.edges.get_mut(id.index()) {
                *place = load;
            }
            if load.estimate != Estimate::Unknown
                && let Some(node) = self.nodes.get_mut(edge.to.index())
            {
                *node = Some(node.unwrap_or(0.0) + load.pps);
            }
        }
    }

    /// An edge's traffic.
    pub(crate) fn edge(&self, id: EdgeId) -> Load {
        self.edges.get(id.index()).copied().unwrap_or_default()
    }

    /// Packets per second that come to a node.
    pub(crate) fn node(&self, id: NodeId) -> Option<f64> {
        self.nodes.get(id.index()).copied().flatten()
    }
}

fn in_packets(given: Bandwidth, packet_bytes: u32) -> f64 {
    match given {
        Bandwidth::Pps(pps) => pps as f64,
        Bandwidth::Bps(bps) => bps as f64 / (f64::from(packet_bytes.max(1)) * 8.0),
    }
}
