//! Putting edges into a graph: which outputs' packets can take each, and in what order.

use std::collections::HashMap;

use weir_filter::Expr;

use crate::auto_tags;
use crate::graph::{Branch, Edge, EdgeId, Graph, NodeId, NodeKind};
use crate::topo;

impl Graph {
    /// Adds an edge behind those that are there. It becomes a branch of each output some packet of
    /// which could take it.
    pub(crate) fn add(&mut self, mut edge: Edge) {
        let Ok(id) = u32::try_from(self.edges.len()) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(edge.from.index()) {
            for (k, output) in node.outputs.iter_mut().enumerate() {
                let all_taken =
                    output.branches.last().is_some_and(|branch| branch.filter.is_none());
                let filter = resolve(edge.filter.as_ref(), &output.name);
                if all_taken || filter == Expr::False {
                    continue;
                }
                let filter = (filter != Expr::True).then_some(filter);
                output.branches.push(Branch { filter, edge: EdgeId(id) });
                edge.outputs.push(k);
            }
        }
        self.edges.push(edge);
    }

    /// Forgets that the order decides where it does not: no output has another edge of which that is said.
    pub(crate) fn settle_order(&mut self) {
        let ordered =
            |branch: &Branch| self.edge(branch.edge).is_some_and(|edge| edge.first_match.is_some());
        let decides = |edge: &Edge| {
            let outputs = edge.outputs.iter().filter_map(|k| self.outputs(edge.from).get(*k));
            let mut counts =
                outputs.map(|output| output.branches.iter().filter(|b| ordered(b)).count());
            counts.any(|count| count > 1)
        };
        let decide: Vec<bool> = self.edges.iter().map(decides).collect();
        for (edge, decides) in self.edges.iter_mut().zip(decide) {
            edge.first_match = edge.first_match.filter(|_| decides);
        }
    }

    /// Names each edge `x -> y`, or in full when there are several from x to y.
    pub(crate) fn name_edges(&mut self) {
        let mut count: HashMap<(NodeId, NodeId), usize> = HashMap::new();
        for edge in &self.edges {
            let n = count.entry((edge.from, edge.to)).or_default();
            *n = n.saturating_add(1);
        }
        let nodes = &self.nodes;
        for edge in &mut self.edges {
            let (Some(from), Some(to)) = (nodes.get(edge.from.index()), nodes.get(edge.to.index()))
            else {
                continue;
            };
            let in_full = count.get(&(edge.from, edge.to)).is_some_and(|n| *n > 1);
            let filter = edge.filter.as_ref().filter(|_| in_full);
            let filter = filter.map_or_else(String::new, |filter| format!(" [{filter}]"));
            let input = match &to.kind {
                NodeKind::Nf { info, .. } if in_full && info.inputs.len() > 1 => {
                    info.inputs.get(edge.input)
                }
                NodeKind::Vnf(vnf) if in_full && vnf.info.inputs.len() > 1 => {
                    vnf.info.inputs.get(edge.input)
                }
                _ => None,
            };
            let tag = edge.tag.as_ref().filter(|_| in_full);
            let input = input.or(tag).map_or_else(String::new, |input| format!("[{input}] "));
            edge.name = format!("{}{filter} -> {input}{}", from.name, to.name);
        }
    }

    /// Brings the NFs in order, and finds the edges that close cycles.
    pub(crate) fn sort(&mut self) {
        self.edges.iter_mut().for_each(|edge| edge.closes = false);
        let next = self.among_nfs();
        if topo::order(&next).len() < next.len() {
            let is_nf = |end| self.node(end).is_some_and(crate::graph::Node::is_nf);
            let entered = self.edges.iter().filter(|edge| !is_nf(edge.from) && is_nf(edge.to));
            for id in topo::closing(&next, entered.map(|edge| edge.to.index()).collect()) {
                if let Some(edge) = self.edges.get_mut(id) {
                    edge.closes = true;
                }
            }
        }
        self.sort_as_it_closes();
    }

    /// The same where it is known which edges close cycles.
    pub(crate) fn sort_as_it_closes(&mut self) {
        let mut next = self.among_nfs();
        let closes = |id: usize| self.edges.get(id).is_some_and(|edge| edge.closes);
        next.iter_mut().for_each(|edges| edges.retain(|(_, id)| !closes(*id)));
        let ids = topo::order(&next).into_iter().filter_map(|i| u32::try_from(i).ok().map(NodeId));
        self.order =
            ids.filter(|id| self.node(*id).is_some_and(crate::graph::Node::is_nf)).collect();
    }
}

/// The filter for packets of one output: that the output is this one is known. What is left of tags
/// are automatic ones.
pub(crate) fn resolve(filter: Option<&Expr>, output: &str) -> Expr {
    filter.map_or(Expr::True, |filter| {
        filter.resolve_tags(&mut |scope, name| {
            (!auto_tags::is_scope(scope)).then_some(name == output)
        })
    })
}
