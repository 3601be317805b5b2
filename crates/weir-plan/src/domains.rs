//! Trust domains: which NFs share packet memory, and where packets are copied from one to another.

use std::collections::HashMap;

use crate::graph::{EdgeId, Graph, Node, NodeId, NodeKind};
use crate::plan::{Options, PlanError, Segment, SegmentId, SegmentKind};

/// The trust domain of a node: the operator's word (on it, else on the VNF that it is of), else its
/// type's. Ports are in the graph's own.
pub(crate) fn domain_of<'a>(graph: &'a Graph, options: &'a Options, node: NodeId) -> &'a str {
    let Some(node) = graph.node(node) else {
        return "";
    };
    match &node.kind {
        NodeKind::Nf { info, .. } => {
            let vnf = || node.vnf.as_ref().and_then(|vnf| options.domains.get(&vnf.instance));
            options.domains.get(node.policy_name()).or_else(vnf).unwrap_or(&info.domain)
        }
        NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => "",
    }
}

/// Each instance that is given a domain must be there.
pub(crate) fn check(graph: &Graph, options: &Options) -> Result<(), PlanError> {
    let nfs = || graph.nodes().iter().filter(|node| node.is_nf());
    for instance in options.domains.keys() {
        let of_vnf = |node: &Node| node.vnf.as_ref().is_some_and(|vnf| vnf.instance == *instance);
        if !nfs().any(|node| node.name == *instance || of_vnf(node)) {
            let has = nfs().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(PlanError::NoSuchInstance { instance: instance.clone(), has });
        }
    }
    Ok(())
}

/// Puts a gate for each edge that leads into another domain in front of the segment it leads to, so
/// that lanes still lead from lower to higher segments.
pub(crate) fn with_gates(graph: &Graph, options: &Options, segments: Vec<Segment>) -> Vec<Segment> {
    let mut crossing: HashMap<NodeId, Vec<EdgeId>> = HashMap::new();
    for (id, edge) in graph.edge_ids() {
        let to_drop = graph.node(edge.to).is_none_or(|node| node.kind == NodeKind::Drop);
        let domain = |node| domain_of(graph, options, node);
        if !to_drop && !edge.outputs.is_empty() && domain(edge.from) != domain(edge.to) {
            crossing.entry(edge.to).or_default().push(id);
        }
    }
    let mut all = Vec::with_capacity(segments.len());
    for segment in segments {
        if !matches!(segment.kind, SegmentKind::Rx { .. }) {
            for node in &segment.nodes {
                // An array of ports has several segments; its edges lead to the first.
                for edge in crossing.remove(node).unwrap_or_default() {
                    let name = graph.edge(edge).map_or("", |edge| edge.name.as_str());
                    all.push(Segment {
                        again: Vec::new(),
                        program: None,
                        name: format!("gate:{name}"),
                        kind: SegmentKind::Gate { edge },
                        nodes: Vec::new(),
                        writes_packets: true,
                        core: None,
                        domain: segment.domain.clone(),
                    });
                }
            }
        }
        all.push(segment);
    }
    all
}

/// The gates of the edges that lead into another domain.
pub(crate) fn gates(segments: &[Segment]) -> HashMap<EdgeId, SegmentId> {
    let gate = |(segment, id): (&Segment, u32)| match segment.kind {
        SegmentKind::Gate { edge } => Some((edge, SegmentId(id))),
        _ => None,
    };
    segments.iter().zip(0_u32..).filter_map(gate).collect()
}
