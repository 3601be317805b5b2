//! NUMA: which cores have which memory near, and which NICs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What of a machine decides which core does what; a plain value, read by whoever plans. Without several nodes it decides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The cores of each NUMA node, by the node's number.
    pub nodes: BTreeMap<u32, Vec<usize>>,
    /// The node that the NIC of a port is at, by the policy's number of the port. Not there: it is not known, or there is no NIC.
    pub nics: BTreeMap<u16, u32>,
}

impl Topology {
    /// True when there are several nodes.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The node that a core is of.
    #[must_use]
    pub fn node_of(&self, core: usize) -> Option<u32> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(_, cores)| cores.contains(&core)).map(|(node, _)| *node)
    }

    /// ` (node 1)` of a core, where there are several nodes.
    pub(crate) fn behind(&self, core: usize) -> String {
        let node = self.node_of(core).filter(|_| self.has_nodes());
        node.map_or_else(String::new, |node| format!(" (node {node})"))
    }
}
