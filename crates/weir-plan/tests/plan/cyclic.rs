//! Graphs with cycles, against the simplest way of saying the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::common::Types;
use proptest::prelude::*;
use serde_json::Value;
use weir_plan::{
    Catalog, ConfigProblem, Edge, EdgeId, EdgeKind, Graph, Isolate, Lane, NfInfo, NodeId, NodeKind,
    Options, Plan, SegmentKind, Work, check,
};

const NFS: usize = 6;

/// The types of the other tests, of NFs that only judge what they are given.
struct Judges;

impl Catalog for Judges {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let info = Types.nf(type_name)?;
        Some(NfInfo { work: Work { timers: false, ..info.work }, ..info })
    }

    fn types(&self) -> Vec<String> {
        Types.types()
    }

    fn check_config(&self, kind: &str, config: &Value) -> Result<(), ConfigProblem> {
        Types.check_config(kind, config)
    }
}

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
        let filter = ["", "[tcp]", "[udp]", "[ingress == 0]", "[ingress == 1-2]"][*filter];
        let to = if *to < NFS { format!("n{to}") } else { ["a", "b"][*to - NFS].to_owned() };
        writeln!(text, "  n{from} {filter} -> {to};").unwrap();
    }
    text + "}"
}

/// Whether a packet that came in by this port may take an edge, as the filters of its node's branches say; where NFs make packets,
/// or nothing goes round, each may.
fn takes(graph: &Graph, edge: (EdgeId, &Edge), port: u16) -> bool {
    let makes = |node: &weir_plan::Node| matches!(&node.kind, NodeKind::Nf { info, .. } if info.creates > 0);
    if graph.nodes().iter().any(makes) || !graph.has_cycles() {
        return !edge.1.outputs.is_empty();
    }
    let at = |filter: &Option<weir_filter::Expr>| filter.as_ref().map(|f| f.resolve_ingress(port));
    graph.outputs(edge.1.from).iter().any(|output| {
        let before = output.branches.iter().take_while(|branch| branch.edge != edge.0);
        let own = output.branches.iter().find(|branch| branch.edge == edge.0);
        let all =
            |filter: &Option<_>| filter.as_ref().is_none_or(|f| *f == weir_filter::Expr::True);
        let is_left = before.map(|branch| at(&branch.filter)).all(|filter| !all(&filter));
        is_left && own.is_some_and(|own| at(&own.filter) != Some(weir_filter::Expr::False))
    })
}

fn port_of(plan: &Plan, source: &weir_plan::Source) -> u16 {
    match plan.segment(source.segment).unwrap().kind {
        SegmentKind::Rx { port, .. } => port,
        _ => panic!("{} is no Rx service", source.name),
    }
}

/// For each edge: the sources whose packets may come along, found by going round until nothing changes.
fn carried(plan: &Plan) -> Vec<BTreeSet<u32>> {
    let graph = &plan.graph;
    let may = |edge: (EdgeId, &Edge), source: u32| {
        takes(graph, edge, port_of(plan, &plan.sources[source as usize]))
    };
    let mut at: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); graph.nodes().len()];
    for (source, id) in plan.sources.iter().zip(0..) {
        let port = plan.segment(source.segment).unwrap().nodes[0];
        at[port.index()].insert(id);
    }
    loop {
        let before = at.clone();
        for (id, edge) in graph.edge_ids() {
            if graph.node(edge.to).unwrap().is_nf() {
                let more = at[edge.from.index()].clone();
                let more = more.into_iter().filter(|source| may((id, edge), *source));
                at[edge.to.index()].extend(more);
            }
        }
        if at == before {
            break;
        }
    }
    let of = |(id, edge): (EdgeId, &Edge)| {
        let all = at[edge.from.index()].iter();
        all.filter(|source| may((id, edge), **source)).copied().collect()
    };
    graph.edge_ids().map(of).collect()
}

/// Whether packets of the lane's source come to where it begins without going back along a ring that closes a cycle.
fn fresh(plan: &Plan, lane: &Lane) -> bool {
    let graph = &plan.graph;
    let source = &plan.sources[usize::try_from(lane.source.0).unwrap()];
    let mut at = BTreeSet::from([plan.segment(source.segment).unwrap().nodes[0]]);
    loop {
        let before = at.len();
        let goes_on = |(id, edge): &(EdgeId, &Edge)| {
            let is_ring = plan.edges[id.index()].kind == EdgeKind::Ring;
            !(edge.closes && is_ring) && takes(graph, (*id, edge), port_of(plan, source))
        };
        for (_, edge) in graph.edge_ids().filter(goes_on) {
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

/// Where closing edges within a segment lead straight on, packets of no port go round without end, or meet an NF at two times; and they do lead
/// straight on where that is so, unless some NF makes packets, which may leave with those of any port: found by going every way there is. How many
/// NFs are met again.
fn again_is_right(plan: &Plan) -> usize {
    let (graph, carried) = (&plan.graph, carried(plan));
    let makes = |node: &weir_plan::Node| matches!(&node.kind, NodeKind::Nf { info, .. } if info.creates > 0);
    let made = graph.nodes().iter().any(makes);
    let mut count = 0;
    for segment in plan.segments.iter().filter(|segment| segment.kind == SegmentKind::Nf) {
        let inside = |id: &NodeId| segment.nodes.contains(id);
        let (mut met, mut may) = (BTreeSet::new(), !made);
        for (source, id) in plan.sources.iter().zip(0..) {
            let port = port_of(plan, source);
            let enters = |(edge_id, edge): &(EdgeId, &Edge)| {
                carried[edge_id.index()].contains(&id) && inside(&edge.to) && !inside(&edge.from)
            };
            let mut ways: Vec<(NodeId, u32)> =
                graph.edge_ids().filter(enters).map(|(_, edge)| (edge.to, 0)).collect();
            let mut seen: BTreeSet<(NodeId, u32)> = BTreeSet::new();
            while let Some((at, rounds)) = ways.pop() {
                // Whoever has been nearly everywhere so often will go on.
                if rounds > 2 * NFS as u32 {
                    may = false;
                } else if seen.insert((at, rounds)) {
                    let on = graph.edge_ids().filter(|(id, edge)| {
                        edge.from == at && inside(&edge.to) && takes(graph, (*id, edge), port)
                    });
                    ways.extend(on.map(|(_, edge)| (edge.to, rounds + u32::from(edge.closes))));
                }
            }
            let nodes: BTreeSet<NodeId> = seen.iter().map(|(node, _)| *node).collect();
            may &= nodes.len() == seen.len() && seen.iter().all(|(_, rounds)| *rounds <= 3);
            met.extend(seen.into_iter().filter(|(_, rounds)| *rounds > 0));
        }
        let wanted = if may { met } else { BTreeSet::new() };
        let got: BTreeSet<(NodeId, u32)> = segment.again.iter().copied().collect();
        assert_eq!(got, wanted, "{}", plan.to_text());
        count += got.len();
    }
    count
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
        // With Tees, of which the packets may leave by any way, and without.
        kinds in (2_usize..4).prop_flat_map(|kinds| prop::collection::vec(0..kinds, NFS)),
        edges in prop::collection::vec((0..NFS, 0..NFS + 2, 0_usize..5), 0..14),
        fused in any::<bool>(),
    ) {
        let text = policy(&kinds, &edges);
        let checked = check(&text, &Judges).unwrap();
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
        let again = again_is_right(&plan);
        prop_assert!(fused || again == 0 || graph.edges().iter().any(|edge| edge.from == edge.to));
        let marked: Vec<bool> = plan.lanes.iter().map(|lane| lane.ordered).collect();
        prop_assert_eq!(marked, ordered(&plan), "{}", text);
        let consolidated = Plan::consolidated(graph, &options).unwrap();
        closing_edges_are_right(&consolidated.graph);
        prop_assert_eq!(consolidated.tally.edges.len(), graph.edges().len());
        prop_assert!(!plan.to_text().is_empty() && !plan.to_dot().is_empty());
    }
}

/// Most random graphs have none of it.
#[test]
fn packets_of_each_port_meet_an_nf_again_at_one_time_and_go_on_in_their_order() {
    let options = Options { isolate: Isolate::None, ..Options::default() };
    let plan = |edges: &str| {
        let text = format!(
            "Port<0> a; Port<1> b; first match; default drop; MacSwap s; MacSwap x; MacSwap y; MacSwap z; pipelet {{ {edges} }}"
        );
        Plan::build(&check(&text, &Judges).unwrap().graph, &options).unwrap()
    };
    let met = |plan: &Plan| -> Vec<(String, u32)> {
        let again = plan.segments.iter().flat_map(|segment| &segment.again);
        again.map(|(id, round)| (plan.graph.node(*id).unwrap().name.clone(), *round)).collect()
    };
    let once = plan(
        "a -> x -> y; y [ingress == 0] -> b; b -> y; y [ingress == 1] -> x; x [ingress == 1] -> a;",
    );
    assert!(met(&once).is_empty(), "x takes what comes from b before it asks: {}", once.to_text());
    let once = plan(
        "a -> x; x [ingress == 0] -> y; y [ingress == 0] -> b; b -> y; y [ingress == 1] -> x; x [ingress == 1] -> z; z -> a;",
    );
    assert_eq!(
        (again_is_right(&once), met(&once)),
        (2, vec![("x".to_owned(), 1), ("z".to_owned(), 1)])
    );
    assert!(once.lanes.iter().all(|lane| !lane.closes && !lane.back));
    // What s sends to x straight away would leave before what comes there by y, whoever came first.
    let two = plan(
        "a -> x; x [ingress == 0] -> y; y [ingress == 0] -> b; b -> s; s [ip[8] > 60] -> x; s -> y;
         y [ingress == 1] -> x; x [ingress == 1] -> z; z -> a;",
    );
    assert_eq!((again_is_right(&two), met(&two)), (0, Vec::new()));
    assert!(two.lanes.iter().any(|lane| lane.closes));
    // x and y alone let nothing round; by z it goes.
    let text = "Port<0> a; Port<1> b; first match; default drop; MacSwap x; MacSwap y; MacSwap z;
pipelet { a -> x; b -> x; x [ingress == 0] -> y; y [ingress == 1] -> x; x [ingress == 1 && tcp] -> z; z -> y; }";
    let warnings = check(text, &Judges).unwrap().warnings;
    let said: Vec<String> = warnings.iter().map(|warning| warning.why.to_string()).collect();
    assert!(said.iter().any(|said| said.contains("packets may go in a circle")), "{said:?}");
}
