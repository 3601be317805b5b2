//! What can be planned and shown, but does not run yet.

use thiserror::Error;

use crate::graph::{Edge, Graph, Node, NodeId, NodeKind};

/// What keeps a graph from running.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun {
    /// An NF on a cycle makes packets. Those of its buffers that go round would be what it waits for, and
    /// one copy each round would soon be more than any ring holds.
    #[error(
        "`{nf}` makes packets, and they may come back to it by `{edge}`: declare a second instance for the way back"
    )]
    MakesInCycle {
        /// The NF.
        nf: String,
        /// An edge that closes a cycle which it is on.
        edge: String,
    },
    /// An NF sets or reads the automatic tag itself.
    #[error(
        "`{edge}` gives packets the tag `{tag}`, which `{nf}` sets or reads itself by its description, and NFs \
         are not shown tags yet: give it an input of that name (`method: port`), or the tag another name"
    )]
    Tag {
        /// The edge's name.
        edge: String,
        /// The tag.
        tag: String,
        /// The NF.
        nf: String,
    },
}

impl Graph {
    /// All that keeps it from running, in the order of its edges; nothing when it runs.
    #[must_use]
    pub fn not_run(&self) -> Vec<NotRun> {
        let mut list = Vec::new();
        for edge in self.edges() {
            if edge.closes {
                for nf in self.makers_around(edge) {
                    list.push(NotRun::MakesInCycle { nf, edge: edge.name.clone() });
                }
            }
            if let Some(tag) = edge.tag.as_ref().filter(|tag| self.reads(edge.to, tag)) {
                let nf = self.node(edge.to).map_or_else(String::new, |node| node.name.clone());
                list.push(NotRun::Tag { edge: edge.name.clone(), tag: tag.clone(), nf });
            }
        }
        list
    }

    /// Names of NFs that make packets on the cycles that `closing` closes: behind its end, and before its
    /// beginning.
    fn makers_around(&self, closing: &Edge) -> Vec<String> {
        let makes =
            |node: &&Node| matches!(&node.kind, NodeKind::Nf { info, .. } if info.creates > 0);
        if self.nodes().iter().filter(makes).count() == 0 {
            return Vec::new();
        }
        let behind = self.reached(closing.to, |edge| (edge.from, edge.to));
        let before = self.reached(closing.from, |edge| (edge.to, edge.from));
        let around = self.nodes().iter().zip(behind.iter().zip(before));
        let around = around.filter(|(_, (behind, before))| **behind && *before);
        around.map(|(node, _)| node).filter(makes).map(|node| node.name.clone()).collect()
    }

    /// By NF: whether edges between NFs (what enters a port does not come out again), each taken in the direction that `ends` gives it, lead there from `start`.
    fn reached(&self, start: NodeId, ends: impl Fn(&Edge) -> (NodeId, NodeId)) -> Vec<bool> {
        let mut next = vec![Vec::new(); self.nodes().len()];
        let is_nf = |id| self.node(id).is_some_and(Node::is_nf);
        let between = self.edges().iter().filter(|edge| is_nf(edge.from) && is_nf(edge.to));
        for (from, to) in between.map(&ends) {
            if let Some(list) = next.get_mut(from.index()) {
                list.push(to.index());
            }
        }
        let mut reached = vec![false; next.len()];
        let mut todo = vec![start.index()];
        while let Some(at) = todo.pop() {
            if let Some(seen) = reached.get_mut(at)
                && !std::mem::replace(seen, true)
            {
                todo.extend(next.get(at).into_iter().flatten());
            }
        }
        reached
    }

    /// True for an NF that attaches or reads a tag of that name itself.
    fn reads(&self, node: NodeId, tag: &str) -> bool {
        let kind = self.node(node).map(|node| &node.kind);
        matches!(kind, Some(NodeKind::Nf { info, .. }) if info.tags.iter().any(|own| own.name == tag))
    }
}
