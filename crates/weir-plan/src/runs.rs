//! What can be planned and shown, but does not run yet.

use thiserror::Error;

use crate::auto_tags;
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
    /// An automatic tag would have to be carried along.
    #[error(
        "`{edge}` {what}: what led packets there cannot be told from their headers, and tags \
         that edges give are not carried along yet"
    )]
    Tag {
        /// The edge's name.
        edge: String,
        /// What it does with the tag.
        what: String,
    },
    /// An edge leads to several ports.
    #[error(
        "`{edge}` leads to the {count} ports of `{name}`: it runs once the ports that flows come in by are \
         remembered; until then declare a port of its own for these packets, as in `Port<{first}> name;`"
    )]
    PortArray {
        /// The edge's name.
        edge: String,
        /// The array.
        name: String,
        /// Its lowest number.
        first: u16,
        /// How many it has.
        count: usize,
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
            if let Some((node, name)) =
                edge.filter.as_ref().and_then(|f| auto_tags::asked(f).next())
            {
                let what = format!("asks for `{node}.{name}`");
                list.push(NotRun::Tag { edge: edge.name.clone(), what });
            }
            if let Some(tag) = edge.tag.as_ref().filter(|tag| self.reads(edge.to, tag)) {
                let what = format!("gives packets the tag `{tag}`");
                list.push(NotRun::Tag { edge: edge.name.clone(), what });
            }
            if let Some((first, last)) = self.array(edge.to) {
                let name = self.node(edge.to).map_or_else(String::new, |node| node.name.clone());
                let count = usize::from(last.saturating_sub(first)).saturating_add(1);
                list.push(NotRun::PortArray { edge: edge.name.clone(), name, first, count });
            }
        }
        list
    }

    /// True for an NF that attaches or reads a tag of that name itself.
    fn reads(&self, node: NodeId, tag: &str) -> bool {
        let kind = self.node(node).map(|node| &node.kind);
        matches!(kind, Some(NodeKind::Nf { info, .. }) if info.tags.iter().any(|own| own.name == tag))
    }

    /// The lowest and highest number of a port that has several.
    fn array(&self, node: NodeId) -> Option<(u16, u16)> {
        match self.node(node)?.kind {
            NodeKind::Port { first, last } if first < last => Some((first, last)),
            _ => None,
        }
    }
}
