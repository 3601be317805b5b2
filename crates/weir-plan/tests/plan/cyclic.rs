//! Graphs with cycles, against the simplest way of saying the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::common::good;
use proptest::prelude::*;
use weir_plan::{Graph, Isolate, Lane, NodeKind, Options, Plan};

const NFS: usize = 6;

/// A policy of two ports, one of them an array, and NFs with any edges among them.
fn policy(kinds: &[usize], edges: &[(usize, usize, usize)]) -> String {
    let mut text = String::from("Port<0> a; Port<1-2> b; first match; default drop;\n");
    let kind = |i: usize| ["L3L4Filter", "CheckIpHeader", "Tee"][kinds[i]];
    for i in 0..NFS {
        writeln!(text, "{} n{i};", kind(i)).unwrap();
    }
    text += "pipelet { a -> n0; b -> n1;\n";
    let mut seen = BTreeSet::new();
    for (from, to, filter) in edges.iter().filter(|edge| seen.insert(**edge)) {
        let filter = ["", "[tcp]", "[udp]"][*filter];
        let to = if *to < NFS { format!("n{to}") } else { ["a", "b"][*to - NFS].to_owned() };
        writeln!(text, "  n{from} {filter} -> {to};").unwrap();
    }
    text + "}"
}

/// For each edge: the sources whose packets may come along, found by going round until nothing changes.
fn carried(plan: &Plan) -> Vec<BTreeSet<u32>> {
    let graph = &plan.graph;
    let mut at: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); graph.nodes().len()];
    for (source, id) in plan.sources.iter().zip(0..) {
        let port = plan.segment(source.segment).unwrap().nodes[0];
        at[port.index()].insert(id);
    }
    loop {
        let before = at.clone();
        for edge in graph.edges().iter().filter(|edge| !edge.outputs.is_empty()) {
            if graph.node(edge.to).unwrap().is_nf() {
                let more = at[edge.from.index()].clone();
                at[edge.to.index()].extend(more);
            }
        }
        if at == before {
            break;
        }
    }
    let of = |edge: &weir_plan::Edge| match edge.outputs.is_empty() {
        true => BTreeSet::new(),
        false => at[edge.from.index()].clone(),
    };
    graph.edges().iter().map(of).collect()
}

/// Whether packets of the lane's source come to where it begins without going along an edge that closes a cycle.
fn fresh(plan: &Plan, lane: &Lane) -> bool {
    let graph = &plan.graph;
    let source = &plan.sources[usize::try_from(lane.source.0).unwrap()];
    let mut at = BTreeSet::from([plan.segment(source.segment).unwrap().nodes[0]]);
    loop {
        let before = at.len();
        for edge in graph.edges().iter().filter(|e| !e.closes && !e.outputs.is_empty()) {
            if at.contains(&edge.from) && graph.node(edge.to).unwrap().is_nf() {
                at.insert(edge.to);
            }
        }
        if at.len() == before {
            return at.contains(&graph.edge(lane.edge).unwrap().from);
        }
    }
}

/// For each lane whether it must be ordered, found by going round until nothing changes.
fn ordered(plan: &Plan) -> Vec<bool> {
    let lanes = &plan.lanes;
    // What goes back around a cycle is not merged.
    let into = |segment, source| {
        let into = |lane: &&Lane| lane.to == segment && lane.source == source && !lane.back;
        lanes.iter().filter(into).count()
    };
    let mut ordered: Vec<bool> =
        lanes.iter().map(|lane| !lane.back && into(lane.to, lane.source) > 1).collect();
    loop {
        let before = ordered.clone();
        for (i, lane) in lanes.iter().enumerate() {
            let behind = lanes.iter().zip(&before);
            ordered[i] |= !lane.back
                && behind
                    .filter(|(next, _)| next.from == lane.to && next.source == lane.source)
                    .any(|(_, ordered)| *ordered);
        }
        if ordered == before {
            return ordered;
        }
    }
}

/// The NFs are in an order that exactly the closing edges go against.
fn closing_edges_are_right(graph: &Graph) {
    let place = |id| graph.order().iter().position(|other| *other == id);
    let nfs = graph.nodes().iter().filter(|node| node.is_nf()).count();
    assert_eq!(graph.order().len(), nfs);
    for edge in graph.edges() {
        let (Some(from), Some(to)) = (place(edge.from), place(edge.to)) else {
            assert!(!edge.closes, "{}", edge.name);
            continue;
        };
        assert_eq!(from >= to, edge.closes, "{}", edge.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_is_ordered_planned_and_consolidated(
        kinds in prop::collection::vec(0_usize..3, NFS),
        edges in prop::collection::vec((0..NFS, 0..NFS + 2, 0_usize..3), 0..14),
        fused in any::<bool>(),
    ) {
        let text = policy(&kinds, &edges);
        let checked = good(&text);
        let graph = &checked.graph;
        closing_edges_are_right(graph);
        let isolate = if fused { Isolate::None } else { Isolate::Each };
        let options = Options { isolate, cores: None, online: 2, domains: Default::default() , ..Options::default() };
        let plan = Plan::build(graph, &options).unwrap();
        for (edge, sources) in plan.edges.iter().zip(carried(&plan)) {
            let lanes = plan.lanes.iter().filter(|lane| lane.edge == edge.id);
            let count = lanes.clone().count();
            let on: BTreeSet<u32> = lanes.map(|lane| lane.source.0).collect();
            let ends = match graph.node(edge.to).unwrap().kind {
                NodeKind::Port { first, last } => usize::from(last - first) + 1,
                _ => 1,
            };
            match edge.kind {
                weir_plan::EdgeKind::Ring => {
                    prop_assert_eq!(&on, &sources, "{}: {}", text, edge.name);
                    prop_assert_eq!(count, sources.len() * ends, "{}: {}", text, edge.name);
                }
                _ => prop_assert_eq!(count, 0),
            }
        }
        for lane in &plan.lanes {
            let closes = graph.edge(lane.edge).unwrap().closes;
            prop_assert_eq!(lane.closes, closes, "{}", text);
            let fresh = fresh(&plan, lane);
            prop_assert_eq!(lane.back, closes || !fresh, "{}", text);
        }
        let marked: Vec<bool> = plan.lanes.iter().map(|lane| lane.ordered).collect();
        prop_assert_eq!(marked, ordered(&plan), "{}", text);
        let consolidated = Plan::consolidated(graph, &options).unwrap();
        closing_edges_are_right(&consolidated.graph);
        prop_assert_eq!(consolidated.tally.edges.len(), graph.edges().len());
        prop_assert!(!plan.to_text().is_empty() && !plan.to_dot().is_empty());
    }
}
