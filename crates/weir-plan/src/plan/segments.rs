//! Which nodes are a segment.

use super::{Isolate, Options, PlanError, Segment, SegmentKind, SourceId};
use crate::auto;
use crate::catalog::ProgramId;
use crate::domains::{self, domain_of};
use crate::graph::{Graph, Node, NodeId, NodeKind};
use crate::optimise;
use crate::reach::Reach;

/// Rx segments, NF segments in chain order, Tx segments, with the gates that trust domains need. The NFs of each of `replicas` are in one.
pub(super) fn segments(
    graph: &Graph,
    options: &Options,
    merged: &[Vec<NodeId>],
    replicas: &[Vec<NodeId>],
) -> Result<Vec<Segment>, PlanError> {
    let mut segments = Vec::new();
    let mut source = 0_u32;
    for (id, node) in graph.node_ids() {
        if let NodeKind::Port { first, last } = node.kind
            && graph.edges().iter().any(|edge| edge.from == id)
        {
            for port in first..=last {
                let kind = SegmentKind::Rx { port, source: SourceId(source) };
                source = source.saturating_add(1);
                segments.push(service(port_name("rx", node, port), kind, id));
            }
        }
    }
    let runs: Vec<Vec<NodeId>> = match options.isolate {
        Isolate::Each => optimise::in_order(graph, &[merged, replicas].concat()),
        Isolate::None => runs(graph, options),
        Isolate::Auto => auto::runs(graph, options, replicas)?,
    };
    // Who would be left out is in a circle of workers.
    let is_left_out = |id: &&NodeId| !runs.iter().any(|run| run.contains(*id));
    if let Some(left) = graph.order().iter().find(is_left_out) {
        let set = replicas.iter().find(|set| set.contains(left)).or(replicas.first());
        let name = |id: &NodeId| graph.node(*id).map_or("", Node::policy_name).to_owned();
        let nfs: Vec<String> = set.into_iter().flatten().map(name).collect();
        return Err(PlanError::Between { nfs: nfs.join("+"), nf: name(left) });
    }
    let reach = Reach::new(graph);
    segments.extend(runs.into_iter().map(|run| nf_segment(&reach, graph, options, run)));
    for (id, node) in graph.node_ids() {
        if let NodeKind::Port { first, last } = node.kind
            && graph.edges().iter().any(|edge| edge.to == id)
        {
            for port in first..=last {
                segments.push(service(port_name("tx", node, port), SegmentKind::Tx { port }, id));
            }
        }
    }
    Ok(domains::with_gates(graph, options, segments))
}

fn port_name(direction: &str, node: &Node, port: u16) -> String {
    match node.kind {
        NodeKind::Port { first, last } if first < last => {
            format!("{direction}:{}.{port}", node.name)
        }
        _ => format!("{direction}:{}", node.name),
    }
}

fn service(name: String, kind: SegmentKind, node: NodeId) -> Segment {
    let domain = String::new();
    Segment {
        name,
        kind,
        nodes: vec![node],
        again: Vec::new(),
        writes_packets: false,
        program: None,
        core: None,
        domain,
    }
}

fn nf_segment(reach: &Reach<'_>, graph: &Graph, options: &Options, nodes: Vec<NodeId>) -> Segment {
    let here = || nodes.iter().filter_map(|id| graph.node(*id));
    let names: Vec<&str> = here().map(|node| node.name.as_str()).collect();
    let name = names.join("+");
    let writes_packets =
        here().any(|node| matches!(&node.kind, NodeKind::Nf { info, .. } if info.writes_packets));
    let domain = nodes.first().map_or("", |id| domain_of(graph, options, *id)).to_owned();
    let program = nodes.iter().find_map(|id| program_of(graph, *id));
    let again = reach.again(&nodes).unwrap_or_default();
    let kind = SegmentKind::Nf;
    Segment { name, kind, nodes, again, writes_packets, program, core: None, domain }
}

pub(crate) fn program_of(graph: &Graph, id: NodeId) -> Option<ProgramId> {
    match graph.node(id).map(|node| &node.kind) {
        Some(NodeKind::Nf { info, .. }) => info.program,
        _ => None,
    }
}

/// The NFs in as few runs of the topological order as are of one trust domain each and have at most
/// one outside program. No edge but those that close cycles leads from a later run to an earlier one.
pub(crate) fn runs(graph: &Graph, options: &Options) -> Vec<Vec<NodeId>> {
    let mut runs: Vec<Vec<NodeId>> = Vec::new();
    let mut programs = None;
    for &id in graph.order() {
        let program = program_of(graph, id);
        let fits = programs.is_none() || program.is_none() || programs == program;
        let last = runs.last().and_then(|run| run.last()).copied();
        let own = domain_of(graph, options, id);
        let same = last.is_some_and(|last| domain_of(graph, options, last) == own);
        match runs.last_mut() {
            Some(run) if fits && same => run.push(id),
            _ => {
                runs.push(vec![id]);
                programs = None;
            }
        }
        programs = programs.or(program);
    }
    runs
}
