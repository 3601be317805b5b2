//! Where packets of each port come, as far as it is known from where they came in: an edge whose filter asks for another port
//! (`ingress == 0`) takes none of them, and behind one that takes all of them nothing is left.
//!
//! So NFs may form a cycle that no packet goes around, as a firewall and an address translator do whose two sides are two ports.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use weir_filter::Expr;

use crate::graph::{EdgeId, Graph, NodeId, NodeKind};

/// Along so many edges that close cycles packets may go within a segment before rings take them back instead.
const MOST_ROUNDS: u32 = 3;

/// Where packets of each port come.
pub(crate) struct Reach<'g> {
    graph: &'g Graph,
    /// What a filter says of the port counts: where NFs make packets, or hold some, these may leave with those of another port.
    by_port: bool,
    /// By port: the edges by which its packets come.
    comes: OnceCell<Vec<(u16, BTreeSet<EdgeId>)>>,
}

impl<'g> Reach<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        let others = graph.nodes().iter().any(|node| match &node.kind {
            NodeKind::Nf { info, .. } => info.creates > 0 || info.holds > 0 || info.work.timers,
            NodeKind::Vnf(_) => true,
            NodeKind::Port { .. } | NodeKind::Drop => false,
        });
        Reach { graph, by_port: !others, comes: OnceCell::new() }
    }

    /// The edges that packets which came in by `port` may take from a node.
    pub(crate) fn on(&self, node: NodeId, port: u16) -> Vec<EdgeId> {
        let mut edges = Vec::new();
        for output in self.graph.outputs(node) {
            for branch in &output.branches {
                let filter = branch.filter.as_ref().filter(|_| self.by_port);
                let filter = filter.filter(|filter| filter.asks_ingress());
                match filter.map(|filter| filter.resolve_ingress(port)) {
                    Some(Expr::False) => {}
                    // An instance's part of them is not all.
                    Some(Expr::True) if !self.divides(branch.edge) => {
                        edges.push(branch.edge);
                        break;
                    }
                    _ => edges.push(branch.edge),
                }
            }
        }
        edges
    }

    fn divides(&self, edge: EdgeId) -> bool {
        self.graph.edge(edge).is_some_and(|edge| edge.share.is_some())
    }

    /// The edges by which packets of `port` come, which leave the node `from`; among NFs only on along edges that it follows.
    pub(crate) fn edges(
        &self,
        from: NodeId,
        port: u16,
        follows: impl Fn(EdgeId) -> bool,
    ) -> BTreeSet<EdgeId> {
        let (mut seen, mut ways) = (BTreeSet::from([from]), vec![from]);
        let mut edges = BTreeSet::new();
        while let Some(at) = ways.pop() {
            for id in self.on(at, port) {
                edges.insert(id);
                let to = self.graph.edge(id).map(|edge| edge.to);
                // What enters a port is sent, and does not come out again.
                let is_nf =
                    |to: &NodeId| self.graph.node(*to).is_some_and(crate::graph::Node::is_nf);
                if let Some(to) = to.filter(is_nf)
                    && follows(id)
                    && seen.insert(to)
                {
                    ways.push(to);
                }
            }
        }
        edges
    }

    /// By port: the edges by which its packets come.
    pub(crate) fn comes(&self) -> &[(u16, BTreeSet<EdgeId>)] {
        self.comes.get_or_init(|| {
            let of = |(node, port)| (port, self.edges(node, port, |_| true));
            self.ports().map(of).collect()
        })
    }

    /// All ports by number, with their nodes.
    fn ports(&self) -> impl Iterator<Item = (NodeId, u16)> {
        self.graph.node_ids().flat_map(|(id, node)| match node.kind {
            NodeKind::Port { first, last } => (first..=last).map(|port| (id, port)).collect(),
            _ => Vec::new(),
        })
    }

    /// By port: the nodes of a segment that its packets come to from elsewhere.
    fn entered(&self, nodes: &[NodeId]) -> BTreeMap<u16, BTreeSet<NodeId>> {
        let mut entered: BTreeMap<u16, BTreeSet<NodeId>> = BTreeMap::new();
        for (port, comes) in self.comes() {
            let comes = comes.iter().filter_map(|id| self.graph.edge(*id));
            let into = comes
                .filter(|edge| nodes.contains(&edge.to) && !nodes.contains(&edge.from))
                .map(|edge| edge.to);
            let into: BTreeSet<NodeId> = into.collect();
            if !into.is_empty() {
                entered.insert(*port, into);
            }
        }
        entered
    }

    /// The NFs that have to stand in a segment's order once more when edges that close cycles within it lead straight on: with how many such
    /// edges packets have gone along by then. `None` where rings have to take them back: as packets may go round for ever, or NFs make some, or hold some
    /// back, or packets of one port come to an NF both after some rounds and after others: those after fewer would leave first, whoever
    /// came first. Empty where there are no such edges.
    pub(crate) fn again(&self, nodes: &[NodeId]) -> Option<Vec<(NodeId, u32)>> {
        let inside = |id: NodeId| nodes.contains(&id);
        let mut edges = self.graph.edges().iter();
        if !edges.any(|edge| edge.closes && inside(edge.from) && inside(edge.to)) {
            return Some(Vec::new());
        }
        if !self.by_port {
            return None;
        }
        let mut met: BTreeSet<(NodeId, u32)> = BTreeSet::new();
        for (port, entries) in self.entered(nodes) {
            let mut ways: Vec<(NodeId, u32)> = entries.into_iter().map(|node| (node, 0)).collect();
            let mut seen: BTreeSet<(NodeId, u32)> = ways.iter().copied().collect();
            while let Some((at, round)) = ways.pop() {
                for edge in self.on(at, port).into_iter().filter_map(|id| self.graph.edge(id)) {
                    let next = (edge.to, round.saturating_add(u32::from(edge.closes)));
                    if inside(edge.to) && seen.insert(next) {
                        ways.push(next);
                    }
                    if inside(edge.to) && next.1 > MOST_ROUNDS {
                        return None;
                    }
                }
            }
            let mut nodes: Vec<NodeId> = seen.iter().map(|(node, _)| *node).collect();
            nodes.dedup();
            if nodes.len() < seen.len() {
                return None;
            }
            met.extend(seen.into_iter().filter(|(_, round)| *round > 0));
        }
        let place = |node: NodeId| nodes.iter().position(|own| *own == node);
        let mut again: Vec<(NodeId, u32)> = met.into_iter().collect();
        again.sort_by_key(|(node, round)| (*round, place(*node)));
        Some(again)
    }
}
