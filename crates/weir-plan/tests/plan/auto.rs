//! `isolate: auto`: which NFs share a worker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use crate::common::{Types, good};
use proptest::prelude::*;
use serde_json::Value;
use weir_plan::{
    Catalog, Checked, ConfigProblem, EdgeKind, Isolate, NfInfo, Options, Plan, PlanError,
    SegmentId, SegmentKind, Work, check, render,
};

fn options(online: usize) -> Options {
    Options {
        isolate: Isolate::Auto,
        cores: None,
        online,
        domains: BTreeMap::new(),
        ..Options::default()
    }
}

/// Types `C10`, `C1000` and so on by their cost, and those of all tests.
struct Costs;

impl Catalog for Costs {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let Some(cost_cycles) = type_name.strip_prefix('C').and_then(|n| n.parse().ok()) else {
            return Types.nf(type_name);
        };
        let base = Types.nf("MacSwap")?;
        let work = Work { cost_cycles, ..Work::default() };
        Some(NfInfo { name: type_name.to_owned(), work, ..base })
    }

    fn types(&self) -> Vec<String> {
        Types.types()
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

fn checked(text: &str) -> Checked {
    check(text, &Costs).unwrap_or_else(|errors| panic!("{}", render(&errors, "test.weir", text)))
}

/// The NF workers' names.
fn workers(text: &str, options: &Options) -> Vec<String> {
    let plan = Plan::build(&checked(text).graph, options).unwrap();
    let nfs = plan.segments.iter().filter(|segment| segment.kind == SegmentKind::Nf);
    nfs.map(|segment| segment.name.clone()).collect()
}

fn chain(costs: &[u32]) -> String {
    let names: Vec<String> = (0..costs.len()).map(|i| format!("n{i}")).collect();
    let declared: Vec<String> =
        costs.iter().zip(&names).map(|(cost, name)| format!("C{cost} {name};")).collect();
    let (declared, row) = (declared.join(" "), names.join(" -> "));
    format!("Port<0> lan; Port<1> wan; {declared} pipelet {{ lan -> {row} -> wan; }}")
}

#[test]
fn with_one_core_for_nfs_one_worker_runs_all() {
    assert_eq!(workers(&chain(&[1000, 10, 1000]), &options(2)), ["n0+n1+n2"]);
    assert_eq!(workers(&chain(&[1000, 10, 1000]), &options(1)), ["n0+n1+n2"]);
}

#[test]
fn with_more_cores_dear_nfs_are_apart_and_cheap_ones_stay_with_a_neighbour() {
    assert_eq!(workers(&chain(&[1000, 10, 1000]), &options(3)).len(), 2);
    assert_eq!(workers(&chain(&[1000, 1000, 1000, 1000]), &options(3)), ["n0+n1", "n2+n3"]);
    assert_eq!(workers(&chain(&[500, 500, 1000, 500, 500]), &options(4)), ["n0+n1", "n2", "n3+n4"]);
}

#[test]
fn a_worker_more_must_take_more_off_the_busiest_than_its_rings_cost() {
    // The dear one is the busiest with two workers as with four; one neighbour makes it busier by less than a tenth.
    assert_eq!(workers(&chain(&[4000, 300, 300, 300]), &options(9)), ["n0+n1", "n2+n3"]);
    // Two of 10 cycles: each alone has 70 with its ring's ends, together 80.
    assert_eq!(workers(&chain(&[1, 1]), &options(9)), ["n0+n1"]);
}

#[test]
fn stated_traffic_weighs() {
    let text = |rate: &str| {
        format!(
            "Port<0> lan; Port<1> wan; C500 a; C500 b; C500 c; pipelet {{
               lan [tcp] -> ({rate}) a; lan [!tcp] -> (1 Mpps) b; a -> c; b -> Drop; c -> wan; }}"
        )
    };
    // `b` has so little to do that it stays with whoever is beside it in the order.
    assert_eq!(workers(&text("10 Mpps"), &options(3)).len(), 2);
    assert!(workers(&text("10 Mpps"), &options(3)).iter().any(|name| name == "a"));
}

#[test]
fn trust_domains_and_outside_programs_are_never_mixed_however_few_cores_there_are() {
    let mut apart = options(2);
    apart.domains.insert("n1".to_owned(), "theirs".to_owned());
    assert_eq!(workers(&chain(&[10, 10, 10]), &apart), ["n0", "n1", "n2"]);
    let programs = "Port<0> lan; Port<1> wan; Theirs a; MacSwap m; Others b;
        pipelet { lan -> a -> m -> b -> wan; }";
    assert_eq!(workers(programs, &options(2)), ["a+m", "b"]);
}

#[test]
fn of_several_orders_one_is_taken_that_keeps_a_domain_together() {
    let text = "Port<0> lan; Port<1> wan; C10 a; C10 b; C10 c; C10 d; pipelet {
        lan [tcp] -> a -> b -> wan; lan [!tcp] -> c -> d -> wan; }";
    let mut apart = options(2);
    for name in ["b", "d"] {
        apart.domains.insert(name.to_owned(), "theirs".to_owned());
    }
    assert_eq!(workers(text, &apart), ["a+c", "d+b"]);
}

#[test]
fn more_than_six_workers_on_a_core_are_refused_with_the_cure() {
    let policy = chain(&[10; 13]);
    let mut apart = options(2);
    for i in (0..13).step_by(2) {
        apart.domains.insert(format!("n{i}"), "theirs".to_owned());
    }
    let error = Plan::build(&checked(&policy).graph, &apart).unwrap_err();
    assert_eq!(error, PlanError::TooManyWorkers { workers: 13, most: 6, cores: 1 });
    assert!(error.to_string().contains("give more cores"), "{error}");
    apart.online = 4;
    assert_eq!(Plan::build(&checked(&policy).graph, &apart).map(|_| ()), Ok(()));
}

/// A policy with NFs of all costs whose edges lead to later NFs or to ports.
fn policy() -> impl Strategy<Value = String> {
    let edge = (0..12_usize, 1..14_usize);
    let costs = prop::collection::vec(prop::sample::select(vec![1, 50, 700, 3000]), 12);
    (costs, prop::collection::vec(edge, 1..24)).prop_map(|(costs, edges)| {
        let mut text = String::from("Port<0> lan; Port<1> wan; first match; default drop;\n");
        for (i, cost) in costs.iter().enumerate() {
            text += &format!("C{cost} n{i};\n");
        }
        text += "pipelet { lan -> n0;\n";
        let ends = edges.into_iter().map(|(from, to)| (from, to.max(from + 1).min(12)));
        for (from, to) in ends.collect::<std::collections::BTreeSet<_>>() {
            match to {
                12.. => text += &format!("n{from} -> wan;\n"),
                to => text += &format!("n{from} -> n{to};\n"),
            }
        }
        text + "}"
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn workers_form_no_cycle_are_no_more_than_cores_and_have_each_nf_once(
        text in policy(), online in 1_usize..9
    ) {
        let checked = checked(&text);
        let plan = Plan::build(&checked.graph, &options(online)).unwrap();
        let place = |node| plan.segments.iter().position(|s| s.kind == SegmentKind::Nf && s.nodes.contains(&node));
        let mut times = vec![0; checked.graph.nodes().len()];
        for segment in plan.segments.iter().filter(|s| s.kind == SegmentKind::Nf) {
            segment.nodes.iter().for_each(|node| times[node.index()] += 1);
        }
        for id in checked.graph.order() {
            prop_assert_eq!(times[id.index()], 1);
        }
        for edge in &plan.edges {
            if let (Some(from), Some(to)) = (place(edge.from), place(edge.to)) {
                prop_assert!(from <= to, "{}", plan.to_text());
                let direct = EdgeKind::Direct { segment: SegmentId(u32::try_from(to).unwrap()) };
                prop_assert_eq!(from == to, edge.kind == direct);
            }
        }
        let nfs = plan.segments.iter().filter(|s| s.kind == SegmentKind::Nf).count();
        prop_assert!(nfs <= online.saturating_sub(1).max(1));
    }
}

#[test]
fn an_empty_policy_has_no_nf_worker() {
    let checked = good("Port<0> lan; Port<1> wan; pipelet { lan -> wan; }");
    let plan = Plan::build(&checked.graph, &options(4)).unwrap();
    assert_eq!(plan.segments.len(), 2);
}
