//! Counters of VNFs.

use std::collections::BTreeMap;
use weir_oracle::Outcome;
use weir_plan::{Graph, NodeKind};

/// A VNF's line in the report: packets in and out, drops by reason.
pub type Vnf = (u64, u64, BTreeMap<String, u64>);

/// What must be said of each VNF of a policy: from the oracle's counters of its edges and µNFs.
pub fn vnfs(graph: &Graph, expected: &Outcome) -> BTreeMap<String, Vnf> {
    let of = |id| graph.node(id).unwrap().vnf.as_ref().map(|vnf| vnf.instance.clone());
    let mut vnfs: BTreeMap<String, Vnf> = BTreeMap::new();
    for (id, node) in graph.node_ids() {
        let Some(name) = of(id) else { continue };
        let drops = &mut vnfs.entry(name).or_default().2;
        for (reason, count) in &expected.nodes[&node.name].drops {
            *drops.entry((*reason).to_owned()).or_default() += count;
        }
    }
    for edge in graph.edges() {
        let (from, to) = (of(edge.from), of(edge.to));
        let packets = expected.edges[&edge.name].packets;
        if from == to {
            continue;
        }
        // What an edge to `Drop` takes was dropped by the VNF.
        let leaves = graph.node(edge.to).unwrap().kind != NodeKind::Drop;
        if let Some(vnf) = from.filter(|_| leaves).and_then(|name| vnfs.get_mut(&name)) {
            vnf.1 += packets;
        }
        if let Some(vnf) = to.and_then(|name| vnfs.get_mut(&name)) {
            vnf.0 += packets;
        }
    }
    vnfs
}
