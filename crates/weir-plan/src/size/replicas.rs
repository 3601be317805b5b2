//! NFs whose instances of equal number share a worker: a segment's replicas. Packets are divided once, and what is remembered of a
//! flow is in one worker, whichever of the NFs remembers it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asked, Instances, Way};
use crate::domains::domain_of;
use crate::graph::{Edge, Graph, NodeId};
use crate::plan::{Options, program_of};

/// Why some NFs cannot be a segment's replicas together; each has the NFs' names, joined by `+`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoReplicas {
    /// Packets of the NF are divided anew, or come from nowhere else of them.
    Parted(String, String),
    /// Packets leave them by this NF and come back.
    Between(String, String),
    /// Beside one by whose ports or clients packets are divided this NF would not have together what it needs.
    Unlike(String, String),
    /// Packets leave them by this NF that have not been at the one by which they are divided.
    Past(String, String),
    /// Packets of one port come from both sides of this NF, by which they are divided.
    BothSides(String, String),
    /// It is of another trust domain, or two are of outside programs.
    Apart(String, String),
}

/// The sets of NFs that are to be a segment's replicas together, each in topological order.
pub(crate) fn replicas(
    graph: &Graph,
    options: &Options,
    asked: &BTreeMap<String, Asked>,
    instances: &Instances,
) -> Result<Vec<Vec<NodeId>>, NoReplicas> {
    let sets: BTreeSet<&[String]> =
        asked.values().map(|asked| asked.replica_of.as_slice()).filter(|s| s.len() > 1).collect();
    let mut all = Vec::new();
    for names in sets {
        let of_set = |id: &&NodeId| graph.node(**id).is_some_and(|node| names.contains(&node.name));
        let set: Vec<NodeId> = graph.order().iter().filter(of_set).copied().collect();
        check(graph, options, instances, &set).map_err(|(why, node)| {
            let node = graph.node(node).map_or_else(String::new, |node| node.name.clone());
            why(names.join("+"), node)
        })?;
        all.push(set);
    }
    Ok(all)
}

pub(super) type Why = fn(String, String) -> NoReplicas;

fn check(
    graph: &Graph,
    options: &Options,
    instances: &Instances,
    set: &[NodeId],
) -> Result<(), (Why, NodeId)> {
    let mut program = None;
    for id in set {
        let own = program_of(graph, *id);
        let first = set.first().map(|first| domain_of(graph, options, *first));
        let other = own.is_some() && program.is_some() && own != program;
        if other || first != Some(domain_of(graph, options, *id)) {
            return Err((NoReplicas::Apart, *id));
        }
        program = program.or(own);
    }
    let inside = |edge: &Edge| set.contains(&edge.from) && set.contains(&edge.to);
    // Each but the first has packets of one before it, as they were divided for that.
    for to in set.iter().skip(1) {
        let mut comes =
            graph.edges().iter().zip(&instances.edges).filter(|(edge, _)| edge.to == *to);
        let parted = |(edge, sized): (&Edge, &super::SizedEdge)| {
            inside(edge) && !matches!(sized.way, Way::Direct(_))
        };
        let several = instances.nfs.iter().any(|nf| nf.node == *to && nf.count > 1);
        let own = comes.clone().any(|(edge, _)| inside(edge));
        if !own || (several && comes.any(parted)) {
            return Err((NoReplicas::Parted, *to));
        }
    }
    if instances.nfs.iter().any(|nf| set.contains(&nf.node) && nf.count > 1) {
        super::sides::check(graph, set)?;
    }
    // Workers form no cycle.
    let mut ways: Vec<NodeId> = Vec::new();
    let onward = |from: NodeId| {
        let edges = graph.edges().iter().filter(move |edge| edge.from == from && !edge.closes);
        edges.map(|edge| edge.to)
    };
    let is_nf = |id: &NodeId| graph.node(*id).is_some_and(crate::graph::Node::is_nf);
    ways.extend(set.iter().flat_map(|id| onward(*id)).filter(|to| !set.contains(to)));
    let mut seen = BTreeSet::new();
    while let Some(at) = ways.pop() {
        if !is_nf(&at) || !seen.insert(at) {
            continue;
        }
        for to in onward(at) {
            if set.contains(&to) {
                return Err((NoReplicas::Between, at));
            }
            ways.push(to);
        }
    }
    Ok(())
}
