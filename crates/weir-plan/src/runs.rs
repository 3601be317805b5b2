//! What can be planned and shown, but does not run yet.

use thiserror::Error;

use crate::graph::{Graph, NodeId, NodeKind};

/// What keeps a graph from running.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun {
    /// NFs lead to each other.
    #[error(
        "packets may go in a circle, which `{edge}` closes: it runs once there are edges that drop when full \
         instead of waiting; until then declare a second instance for the way back"
    )]
    Cycle {
        /// The closing edge's name.
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
                list.push(NotRun::Cycle { edge: edge.name.clone() });
            }
            if let Some(tag) = edge.tag.as_ref().filter(|tag| self.reads(edge.to, tag)) {
                let nf = self.node(edge.to).map_or_else(String::new, |node| node.name.clone());
                list.push(NotRun::Tag { edge: edge.name.clone(), tag: tag.clone(), nf });
            }
        }
        list
    }

    /// True for an NF that attaches or reads a tag of that name itself.
    fn reads(&self, node: NodeId, tag: &str) -> bool {
        let kind = self.node(node).map(|node| &node.kind);
        matches!(kind, Some(NodeKind::Nf { info, .. }) if info.tags.iter().any(|own| own.name == tag))
    }
}
