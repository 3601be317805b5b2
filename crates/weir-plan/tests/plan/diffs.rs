//! The actions from one plan to another lead there, and back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::good;
use proptest::prelude::*;
use weir_plan::{Action, Isolate, Options, Plan, State, between, diff};

fn plan(text: &str, isolate: Isolate, cores: Option<Vec<usize>>) -> Plan {
    let options =
        Options { isolate, cores, online: 4, domains: Default::default(), ..Options::default() };
    Plan::build(&good(text).graph, &options).unwrap()
}

fn each(text: &str) -> Plan {
    plan(text, Isolate::Each, None)
}

fn said(old: &Plan, new: &Plan) -> Vec<String> {
    diff(old, new).iter().map(ToString::to_string).collect()
}

const HEAD: &str = "Port<0> lan; Port<1> wan; MacSwap x; MacSwap y; ";

#[test]
fn equal_plans_need_no_actions() {
    let one = each(&format!("{HEAD} pipelet {{ lan -> x -> wan; }}"));
    let same = each(&format!("{HEAD} /* other words */ pipelet p {{ lan -> x; x -> wan; }}"));
    assert_eq!(said(&one, &same), Vec::<String>::new());
}

#[test]
fn an_nf_put_into_a_chain_is_started_before_packets_come_to_it() {
    let old = each(&format!("{HEAD} pipelet {{ lan -> x -> wan; }}"));
    let new = each(&format!("{HEAD} pipelet {{ lan -> x -> y -> wan; }}"));
    assert_eq!(
        said(&old, &new),
        [
            "start worker y",
            "make y (MacSwap {})",
            "lay the ring x => y: x -> y, packets of rx:lan",
            "lay the ring y => tx:wan: y -> wan, packets of rx:lan",
            "route y: out -> wan",
            "route x: out -> y",
            "take away the ring x => tx:wan: x -> wan, packets of rx:lan",
        ]
    );
}

#[test]
fn a_ring_that_only_gets_watermarks_is_not_said_to_become_itself() {
    let text = "Port<0> a; Port<1> b; Port<2> c; MacSwap x; pipelet { a -> x; x -> c; } pipelet { ";
    let old = each(&format!("{text} b -> c; }}"));
    let new = each(
        &format!("{text} a -> c; }}")
            .replace("a -> x", "a [tcp] -> x")
            .replace("a -> c", "a [!tcp] -> c; b -> Drop"),
    );
    let rings: Vec<String> =
        said(&old, &new).into_iter().filter(|s| s.contains("x => tx:c")).collect();
    let ring = "the ring x => tx:c: x -> c, packets of rx:a";
    let wanted = [format!("lay {ring}, with watermarks"), format!("take away {ring}")];
    assert!(wanted.iter().all(|line| rings.contains(line)) && rings.len() == 2, "{rings:?}");
}

#[test]
fn another_configuration_only_reconfigures() {
    let text = |default: &str| {
        format!(
            "Port<0> a; Port<1> b; L3L4Filter f {{ default: \"{default}\" }}; pipelet {{ a -> f -> b; }}"
        )
    };
    assert_eq!(
        said(&each(&text("pass")), &each(&text("drop"))),
        [r#"reconfigure f: default: "pass" becomes "drop""#]
    );
}

#[test]
fn another_filter_only_routes() {
    let text =
        |filter: &str| format!("{HEAD} pipelet {{ lan [{filter}] -> x; x -> wan; default drop; }}");
    assert_eq!(
        said(&each(&text("tcp")), &each(&text("udp"))),
        ["route lan: [udp] -> x; else drop"]
    );
}

#[test]
fn fusing_stops_the_single_workers_last() {
    let text = format!("{HEAD} pipelet {{ lan -> x -> y -> wan; }}");
    let actions = said(&each(&text), &plan(&text, Isolate::None, None));
    assert_eq!(actions.first().unwrap(), "start worker x+y");
    assert_eq!(actions[actions.len() - 2..], ["stop worker x", "stop worker y"]);
    assert!(actions.iter().all(|a| !a.contains("make") && !a.contains("remove")), "{actions:?}");
}

#[test]
fn exchanged_ports_are_said() {
    let text = |lan, wan| {
        format!("Port<{lan}> lan; Port<{wan}> wan; MacSwap x; pipelet {{ lan -> x -> wan; }}")
    };
    assert_eq!(
        said(&each(&text(0, 1)), &each(&text(1, 0))),
        [
            "restart worker rx:lan: it serves port 1 instead of port 0",
            "restart worker tx:wan: it serves port 0 instead of port 1",
        ]
    );
}

#[test]
fn what_is_dropped_by_policy_is_said_by_output() {
    let text = |more: &str| {
        format!("Port<0> a; Port<1> b; FW f; pipelet {{ a -> f; f [f.safe] -> b; {more} }}")
    };
    let (old, new) = (each(&text("f [f.unsafe] -> Drop;")), each(&text("default drop;")));
    assert_eq!(
        said(&old, &new),
        ["route a: -> f; else drop", "route f: safe -> b; else drop safe, unsafe"]
    );
}

#[test]
fn another_core_is_said() {
    let text = format!("{HEAD} pipelet {{ lan -> x -> wan; }}");
    let on = |cores: &[usize]| plan(&text, Isolate::Each, Some(cores.to_vec()));
    let actions = said(&on(&[0, 1]), &on(&[0, 2]));
    assert_eq!(actions, ["restart worker x: on core 2 instead of core 1"]);
}

/// A chain's text from bits: which of four NFs it has, of which type, and some filters.
fn text(bits: u32) -> String {
    let mut nodes = vec!["lan".to_owned()];
    let mut declared = String::from("Port<0> lan; Port<1> wan; ");
    for i in 0..4 {
        if bits >> i & 1 == 1 {
            let kind = if bits >> (i + 4) & 1 == 1 { "MacSwap" } else { "Proxy" };
            declared.push_str(&format!("{kind} n{i}; "));
            nodes.push(format!("n{i}"));
        }
    }
    nodes.push("wan".to_owned());
    let mut edges = String::new();
    for (i, pair) in nodes.windows(2).enumerate() {
        let filter = if bits >> (i + 8) & 1 == 1 { " [tcp port 80]" } else { "" };
        edges.push_str(&format!("{}{filter} -> {}; ", pair[0], pair[1]));
    }
    // Filters leave holes.
    if bits >> 14 & 1 == 1 || bits >> 8 & 0x1f != 0 {
        edges.push_str("default drop; ");
    }
    format!("{declared} pipelet {{ {edges} }}")
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let isolate = prop_oneof![Just(Isolate::Each), Just(Isolate::None)];
    let cores = prop_oneof![Just(None), Just(Some(vec![0, 1])), Just(Some(vec![0, 1, 2]))];
    (0..1_u32 << 15, isolate, cores)
        .prop_map(|(bits, isolate, cores)| plan(&text(bits), isolate, cores))
}

fn walk(state: State, actions: &[Action]) -> Option<State> {
    actions.iter().try_fold(state, State::after)
}

proptest! {
    #[test]
    fn the_actions_lead_from_any_plan_to_any_other_and_back(old in any_plan(), new in any_plan()) {
        let actions = diff(&old, &new);
        let (old, new) = (State::of(&old), State::of(&new));
        prop_assert_eq!(actions.is_empty(), old == new);
        prop_assert_eq!(walk(old.clone(), &actions), Some(new.clone()));
        let back: Vec<Action> = actions.into_iter().rev().map(Action::reversed).collect();
        prop_assert_eq!(walk(new.clone(), &back), Some(old.clone()));
        prop_assert_eq!(walk(new.clone(), &between(&new, &old)), Some(old));
    }

    /// Packets always have a way: whatever a route leads to is there when the route is set, and goes
    /// only when no route leads there any more.
    #[test]
    fn no_step_sends_packets_to_what_is_not_there(old in any_plan(), new in any_plan()) {
        let mut state = State::of(&old);
        for action in diff(&old, &new) {
            state = state.after(&action).unwrap();
            let runs = |node: &str| state.workers.values().any(|w| w.nodes.iter().any(|n| n == node));
            let mut reached = vec!["lan"];
            let mut at = 0;
            while let Some(node) = reached.get(at) {
                at += 1;
                let to = state.routes.get(*node).into_iter().flat_map(|routes| &routes.ways);
                let to: Vec<&str> =
                    to.map(|r| r.to.as_str()).filter(|to| !reached.contains(to)).collect();
                reached.extend(to);
            }
            // Every NF of these chains sends packets somewhere.
            for node in reached.iter().filter(|node| **node != "wan") {
                prop_assert!(runs(node), "after `{}`: {}", action, node);
                prop_assert!(state.routes.contains_key(*node), "after `{}`: {}", action, node);
            }
        }
    }
}
