//! Segments, lanes and cores: small plans in full, and random ones against a plain reference.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use crate::common::good;
use proptest::prelude::*;
use weir_plan::{EdgeKind, Graph, Isolate, Lane, NodeKind, Options, Plan, SegmentKind};

fn options(isolate: Isolate, cores: Option<&[usize]>) -> Options {
    Options {
        isolate,
        cores: cores.map(<[usize]>::to_vec),
        online: 2,
        domains: Default::default(),
        ..Options::default()
    }
}

fn plan(text: &str, isolate: Isolate) -> Plan {
    Plan::build(&good(text).graph, &options(isolate, None)).unwrap()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.segments.iter().map(|s| s.name.as_str()).collect()
}

const CHAIN: &str =
    "Port<0> lan; Port<1> wan; MacSwap x; L3L4Filter y; pipelet { lan -> x -> y -> wan; }";
const DIAMOND: &str = "Port<0> a; Port<1> b; MacSwap x; MacSwap y; MacSwap z;
    pipelet { a [tcp] -> x; a [!tcp] -> y; x -> z; y -> z; z -> b; b -> Drop; }";

#[test]
fn each_nf_has_its_segment() {
    let plan = plan(CHAIN, Isolate::Each);
    assert_eq!(
        plan.to_text(),
        "segments\n  rx:lan\n  x, writes packets\n  y\n  tx:wan\nedges\n  lan -> x: ring\n  x -> y: ring\n  y -> wan: ring\nrings\n  rx:lan => x: lan -> x, packets of rx:lan\n  x => y: x -> y, packets of rx:lan\n  y => tx:wan: y -> wan, packets of rx:lan\n"
    );
}

#[test]
fn one_segment_has_all_nfs() {
    let plan = plan(CHAIN, Isolate::None);
    assert_eq!(
        plan.to_text(),
        "segments\n  rx:lan\n  x+y, writes packets\n  tx:wan\nedges\n  lan -> x: ring\n  x -> y: direct in x+y\n  y -> wan: ring\nrings\n  rx:lan => x+y: lan -> x, packets of rx:lan\n  x+y => tx:wan: y -> wan, packets of rx:lan\n"
    );
}

#[test]
fn edges_between_which_the_order_decides_are_marked_with_their_places() {
    let text = |order: &str| {
        format!(
            "Port<0> a; Port<1> b; MacSwap x;
             pipelet {{ {order} a [tcp] -> x; a [port 80] -> b; a -> Drop; }} pipelet {{ x -> b; }}"
        )
    };
    let checked = good(&text("first match;"));
    let shown = checked.graph.to_text();
    for line in [
        "[tcp] -> x (first match: 1.)",
        "[port 80] -> b (first match: 2.)",
        "-> Drop (first match: 3.)",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    // An edge that is alone is in no order.
    assert!(shown.contains("-> b\n"), "{shown}");
    let svg = checked.graph.to_diagram("t").to_svg().unwrap();
    assert!(svg.contains("first match: 2."), "{svg}");
    let plan = Plan::build(&checked.graph, &options(Isolate::Each, None)).unwrap();
    assert!(plan.to_text().contains("a -> b: ring, first match: 2.\n"), "{}", plan.to_text());
    let apart = "Port<0> a; Port<1> b; MacSwap x; pipelet { a [tcp] -> x; a [!tcp] -> b; x -> b; }";
    assert!(!good(apart).graph.to_text().contains("first match"));
}

/// Each worker with its program; ports' services have none.
fn programs(plan: &Plan) -> Vec<(&str, Option<u16>)> {
    let nfs = plan.segments.iter().filter(|s| s.kind == SegmentKind::Nf);
    nfs.map(|s| (s.name.as_str(), s.program.map(|p| p.0))).collect()
}

#[test]
fn an_outside_nf_is_fused_with_library_nfs() {
    let text = "Port<0> a; Port<1> b; MacSwap x; Theirs t; Theirs u; MacSwap y;
        pipelet { a -> x; x -> t; t -> u; u -> y; y -> b; }";
    assert_eq!(programs(&plan(text, Isolate::None)), [("x+t+u+y", Some(0))]);
    let each = [("x", None), ("t", Some(0)), ("u", Some(0)), ("y", None)];
    assert_eq!(programs(&plan(text, Isolate::Each)), each);
}

#[test]
fn nfs_of_two_programs_are_never_fused() {
    let text =
        "Port<0> a; Port<1> b; MacSwap x; Theirs t; MacSwap y; Others o; MacSwap z; Theirs u;
        pipelet { a -> x; x -> t; t -> y; y -> o; o -> z; z -> u; u -> b; }";
    let plan = plan(text, Isolate::None);
    assert_eq!(programs(&plan), [("x+t+y", Some(0)), ("o+z", Some(1)), ("u", Some(0))]);
    // What only reads does not get to write because a neighbour does.
    let writes: Vec<_> = plan.segments.iter().map(|s| s.writes_packets).collect();
    assert_eq!(writes, [false, true, true, false, false]);
}

#[test]
fn workers_of_several_programs_form_no_cycle() {
    let text = "Port<0> a; Port<1> b; Theirs s; Others t; Theirs u; Others v; MacSwap w;
        pipelet { a [tcp] -> s; a [!tcp] -> t; s -> v; t -> u; u -> w; v -> w; w -> b; }";
    let plan = plan(text, Isolate::None);
    for lane in &plan.lanes {
        assert!(lane.from < lane.to, "{:?} in {:?}", lane, programs(&plan));
    }
}

#[test]
fn lanes_in_front_of_a_merge_are_ordered_and_those_behind_it_are_not() {
    let plan = plan(DIAMOND, Isolate::Each);
    let ordered: Vec<(&str, bool)> =
        plan.lanes.iter().map(|l| (plan.edges[l.edge.index()].name.as_str(), l.ordered)).collect();
    assert_eq!(
        ordered,
        [("a -> x", true), ("a -> y", true), ("x -> z", true), ("y -> z", true), ("z -> b", false)]
    );
    assert_eq!(plan.edges[5].kind, EdgeKind::Drop);
}

#[test]
fn packets_of_different_sources_on_one_edge_have_lanes_of_their_own() {
    let plan =
        plan("Port<0> a; Port<1> b; MacSwap x; pipelet { a -> x; b -> x; x -> b; }", Isolate::Each);
    assert_eq!(plan.lanes.len(), 4);
    assert!(plan.lanes.iter().all(|lane| !lane.ordered));
    assert_eq!(names(&plan), ["rx:a", "rx:b", "x", "tx:b"]);
}

#[test]
fn a_port_array_receives_on_each_of_its_numbers() {
    let plan = plan("Port<4-6> int; Port<1> b; pipelet { int -> b; }", Isolate::Each);
    assert_eq!(names(&plan), ["rx:int.4", "rx:int.5", "rx:int.6", "tx:b"]);
    assert!(matches!(plan.segments[2].kind, SegmentKind::Rx { port: 6, .. }));
    assert_eq!(plan.lanes.len(), 3);
}

#[test]
fn cores_are_given_in_contiguous_runs() {
    let mut text = String::from("Port<0> a; ");
    (0..5).for_each(|i| text.push_str(&format!("MacSwap x{i}; ")));
    text.push_str("pipelet { a -> x0 -> x1 -> x2 -> x3 -> x4 -> a; }");
    let graph = good(&text).graph;
    let cores = |isolate, cores: Option<&[usize]>, online| {
        let plan = Plan::build(&graph, &Options { online, ..options(isolate, cores) }).unwrap();
        (plan.segments.iter().map(|s| s.core).collect::<Vec<_>>(), plan.real_time_ok)
    };
    let some = |list: &[usize]| list.iter().copied().map(Some).collect::<Vec<_>>();
    assert_eq!(cores(Isolate::Each, Some(&[0, 1]), 2), (some(&[0, 1, 1, 1, 1, 1, 0]), true));
    assert_eq!(cores(Isolate::Each, Some(&[3, 1, 2]), 4), (some(&[3, 1, 1, 1, 2, 2, 3]), true));
    assert_eq!(
        cores(Isolate::Each, Some(&[0, 1, 2, 3, 4, 5, 6, 7]), 5),
        (some(&[0, 1, 2, 3, 4, 5, 0]), false)
    );
    assert_eq!(cores(Isolate::Each, Some(&[1]), 1), (some(&[1; 7]), false));
    // Rx and Tx are in the default class: real-time NFs on their core would starve them.
    assert_eq!(cores(Isolate::Each, Some(&[1]), 2), (some(&[1; 7]), false));
    assert_eq!(cores(Isolate::None, Some(&[0, 1]), 2), (some(&[0, 1, 0]), true));
    assert_eq!(cores(Isolate::None, None, 2), (vec![None; 3], true));
    assert_eq!(cores(Isolate::Each, None, 2), (vec![None; 7], false));
}

#[test]
fn a_plan_survives_serialisation() {
    let plan = plan(DIAMOND, Isolate::None);
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn graphs_and_plans_are_drawn() {
    let checked = good(DIAMOND);
    assert_eq!(
        checked.graph.to_text(),
        "a (port 0)\n  [tcp] -> x\n  [not tcp] -> y\nb (port 1)\n  -> Drop\nx (MacSwap)\n  -> z\ny (MacSwap)\n  -> z\nz (MacSwap)\n  -> b\nDrop (drops)\n"
    );
    let dot = plan(DIAMOND, Isolate::None).to_dot();
    assert!(dot.starts_with("digraph weir {\n") && dot.ends_with("}\n"));
    for part in ["subgraph cluster_2 {", "label=\"x+y+z\";", "[label=\"tcp\", style=dashed];"] {
        assert!(dot.contains(part), "{part} in {dot}");
    }
    assert_eq!(checked.graph.to_dot().matches(" -> ").count(), checked.graph.edges().len());
}

/// A policy with `ports` ports and `nfs` NFs whose edges lead to later NFs or to ports.
fn policy() -> impl Strategy<Value = String> {
    (1_usize..4, 0_usize..7).prop_flat_map(|(ports, nfs)| {
        let edge = (0..ports + nfs, 0..ports + nfs + 1, 0..5_usize);
        prop::collection::vec(edge, 1..16).prop_map(move |edges| {
            let name = |i: usize| match i {
                i if i < ports => format!("p{i}"),
                i if i < ports + nfs => format!("n{i}"),
                _ => "Drop".to_owned(),
            };
            let mut text: String = (0..ports).map(|i| format!("Port<{i}> p{i};\n")).collect();
            text.push_str("first match; default drop;\n");
            (ports..ports + nfs).for_each(|i| text.push_str(&format!("CheckIpHeader n{i};\n")));
            let mut seen = BTreeSet::new();
            text.push_str("pipelet {\n");
            for (from, to, filter) in edges {
                let from_nf = from >= ports;
                let to_nf = (ports..ports + nfs).contains(&to);
                // Forwards only: no cycles.
                let forwards = !(from_nf && to_nf) || from < to;
                let filter = match filter {
                    0 => "".to_owned(),
                    1 => "[tcp] ".to_owned(),
                    2 => "[udp] ".to_owned(),
                    3 if from_nf => format!("[n{from}.ip] "),
                    4 if from_nf => format!("[n{from}.non_ip && !ip] "),
                    _ => "[ip6] ".to_owned(),
                };
                if forwards && seen.insert((from, to, filter.clone())) {
                    text.push_str(&format!("  {} {filter}-> {};\n", name(from), name(to)));
                }
            }
            if seen.is_empty() {
                text.push_str("  p0 -> Drop;\n");
            }
            text.push_str("}\n");
            text
        })
    })
}

/// All ways of a packet from an Rx segment on, as the lanes along it; by trying all branches.
fn ways(graph: &Graph, plan: &Plan) -> Vec<Vec<Lane>> {
    let mut found = Vec::new();
    for (source, id) in plan.sources.iter().zip(0_u32..) {
        let start = plan.segments[source.segment.index()].nodes[0];
        let mut todo = vec![(start, source.segment, Vec::new())];
        while let Some((node, segment, way)) = todo.pop() {
            found.push(way.clone());
            // What has entered a port or Drop is gone.
            if !way.is_empty() && !graph.node(node).unwrap().is_nf() {
                continue;
            }
            for branch in graph.outputs(node).iter().flat_map(|output| &output.branches) {
                let edge = graph.edge(branch.edge).unwrap();
                let mut way = way.clone();
                let to = plan.segments.iter().position(|s| {
                    s.nodes.contains(&edge.to) && !matches!(s.kind, SegmentKind::Rx { .. })
                });
                let Some(to) = to else { continue };
                let to = weir_plan::SegmentId(to as u32);
                if to != segment {
                    let source = weir_plan::SourceId(id);
                    way.push(Lane {
                        edge: branch.edge,
                        source,
                        from: segment,
                        to,
                        ordered: false,
                        closes: false,
                        back: false,
                        carries: weir_plan::Carries::Packets,
                    });
                }
                todo.push((edge.to, to, way));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lanes_are_those_that_some_packet_could_take_and_are_ordered_before_merges(text in policy()) {
        let graph = good(&text).graph;
        for isolate in [Isolate::Each, Isolate::None] {
            let plan = Plan::build(&graph, &options(isolate, None)).unwrap();
            let ways = ways(&graph, &plan);
            let key = |lane: &Lane| (lane.edge, lane.source, lane.from, lane.to);
            let expected: BTreeSet<_> = ways.iter().flatten().map(key).collect();
            let actual: Vec<_> = plan.lanes.iter().map(key).collect();
            prop_assert_eq!(&actual, &expected.iter().copied().collect::<Vec<_>>(), "{}", text);
            for lane in &plan.lanes {
                // Some way that this lane is on goes, by it or after it, into a segment with another lane of the source.
                let merges = |l: &Lane| expected.iter().filter(|(_, s, _, to)| *s == l.source && *to == l.to).count() > 1;
                let ordered = ways.iter().any(|way| {
                    let at = way.iter().position(|l| key(l) == key(lane));
                    at.is_some_and(|at| way[at..].iter().any(merges))
                });
                prop_assert_eq!(lane.ordered, ordered, "{:?} of {}", lane, text);
            }
        }
    }

    #[test]
    fn each_nf_with_edges_is_in_one_segment_and_each_edge_has_its_kind(text in policy()) {
        let graph = good(&text).graph;
        for isolate in [Isolate::Each, Isolate::None] {
            let plan = Plan::build(&graph, &options(isolate, Some(&[0, 1]))).unwrap();
            for (id, node) in graph.node_ids() {
                let homes = plan.segments.iter().filter(|s| s.kind == SegmentKind::Nf && s.nodes.contains(&id)).count();
                prop_assert_eq!(homes, usize::from(matches!(node.kind, NodeKind::Nf { .. })));
            }
            let unique: BTreeSet<&str> = plan.segments.iter().map(|s| s.name.as_str()).collect();
            prop_assert_eq!(unique.len(), plan.segments.len());
            let unique: BTreeSet<&str> = plan.edges.iter().map(|e| e.name.as_str()).collect();
            prop_assert_eq!(unique.len(), plan.edges.len());
            for edge in &plan.edges {
                let nf = |id| graph.node(id).unwrap().is_nf();
                let expected_direct = isolate == Isolate::None && nf(edge.from) && nf(edge.to);
                prop_assert_eq!(matches!(edge.kind, EdgeKind::Direct { .. }), expected_direct);
            }
            // Everything flows forwards, so that nothing waits for itself.
            prop_assert!(plan.lanes.iter().all(|lane| lane.from < lane.to));
        }
    }
}
