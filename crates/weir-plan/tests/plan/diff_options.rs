//! Actions between plans of one policy under other options: instances and their weights, trust domains, parallel
//! stages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::Types;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use weir_plan::service::Server;
use weir_plan::{
    Access, Action, Asked, Catalog, ConfigProblem, Effect, Isolate, NfInfo, Options, Plan,
    SideBySide, Sizing, State, Touch, Work, between, check, diff, render,
};

/// `Look` reads, remembers, and takes so long that two are worth a stage.
struct Look;

impl Catalog for Look {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let work = Work {
            access: Access::all(Touch::Read),
            cost_cycles: 940,
            effect: Effect::Stateful,
            scales: true,
            ..Work::default()
        };
        let info = Types.nf("CheckIpHeader").filter(|_| type_name == "Look")?;
        let outputs = vec!["out".to_owned()];
        Some(NfInfo { name: type_name.to_owned(), outputs, work, ..info })
    }

    fn types(&self) -> Vec<String> {
        vec!["Look".to_owned()]
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

/// What differs.
#[derive(Clone, Debug, Default)]
struct Told {
    /// Weights of `a`'s instances.
    a: Option<Vec<u32>>,
    /// The domain of `b`.
    b: Option<&'static str>,
    which: SideBySide,
}

fn planned(told: &Told) -> Plan {
    let text =
        "Port<0> lan; Port<1> wan; Look a; Look b; Look c; pipelet { lan -> a -> b -> c -> wan; }";
    let checked = check(text, &Look)
        .unwrap_or_else(|errors| panic!("{}", render(&errors, "test.weir", text)));
    let domains = told.b.map(|domain| ("b".to_owned(), domain.to_owned()));
    let domains = domains.into_iter().collect();
    let options =
        Options { isolate: Isolate::Each, cores: None, online: 8, domains, ..Options::default() };
    let server = Server { name: "s".to_owned(), cores: 8, ghz: 1.0, nic_bps: None };
    let asked = |weights| ("a".to_owned(), Asked::weighted(weights));
    let asked: BTreeMap<String, Asked> = told.a.clone().map(asked).into_iter().collect();
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    let plan = Plan::sized(&checked.graph, &options, false, sizing).unwrap().0;
    plan.side_by_side(&options, told.which).unwrap()
}

fn said(old: &Told, new: &Told) -> Vec<String> {
    diff(&planned(old), &planned(new)).iter().map(ToString::to_string).collect()
}

fn never() -> Told {
    Told { which: SideBySide::Never, ..Told::default() }
}

fn has(actions: &[String], line: &str) {
    assert!(actions.iter().any(|action| action == line), "{line}: {actions:#?}");
}

#[test]
fn a_ring_whose_packets_are_lent_from_now_on_is_another_ring() {
    let parallel = Told { which: SideBySide::Always, ..Told::default() };
    let actions = said(&never(), &parallel);
    has(&actions, "start worker sync:c");
    has(&actions, "lay the ring rx:lan => a: lan -> a, packets lent of rx:lan");
    has(&actions, "lay the ring a => sync:c: lan -> a, answers on packets of rx:lan");
    has(&actions, "take away the ring rx:lan => a: lan -> a, packets of rx:lan");
    let back = said(&parallel, &never());
    has(&back, "lay the ring rx:lan => a: lan -> a, packets of rx:lan");
    has(&back, "take away the ring rx:lan => a: lan -> a, packets lent of rx:lan");
}

#[test]
fn instances_and_another_division_are_said() {
    let with = |weights: &[u32]| Told { a: Some(weights.to_vec()), ..never() };
    let actions = said(&never(), &with(&[1, 1]));
    let division = "divide packets of a over a#1, a#2 by source address";
    has(&actions, division);
    has(&actions, "start worker a#2");
    has(&actions, "route lan: -> a#1 (its share); -> a#2 (its share)");
    assert_eq!(said(&with(&[1, 1]), &with(&[2, 1])), [format!("{division}, weights 2:1")]);
    has(&said(&with(&[2, 1]), &never()), "run a as one instance");
}

#[test]
fn another_trust_domain_is_said_with_its_gates() {
    let actions = said(&never(), &Told { b: Some("guest"), ..never() });
    has(&actions, "restart worker b: in domain `guest` instead of the graph's own domain");
    let gates = actions.iter().filter(|a| a.starts_with("start worker ")).count();
    assert_eq!(gates, 2, "{actions:#?}");
    has(
        &said(&Told { b: Some("guest"), ..never() }, &Told { b: Some("other"), ..never() }),
        "restart worker b: in domain `other` instead of domain `guest`",
    );
}

fn any_told() -> impl Strategy<Value = Told> {
    let weights = proptest::option::of(proptest::collection::vec(1..3_u32, 1..4));
    let domain = proptest::option::of(prop_oneof![Just("guest"), Just("other")]);
    let which =
        prop_oneof![Just(SideBySide::Auto), Just(SideBySide::Never), Just(SideBySide::Always)];
    (weights, domain, which).prop_map(|(a, b, which)| Told { a, b, which })
}

fn walk(state: State, actions: &[Action]) -> Option<State> {
    actions.iter().try_fold(state, State::after)
}

proptest! {
    #[test]
    fn the_actions_lead_from_any_options_to_any_others_and_back(old in any_told(), new in any_told()) {
        let (old, new) = (planned(&old), planned(&new));
        let actions = diff(&old, &new);
        // Nothing that runs differs without an action.
        let runs = |plan: &Plan| {
            let Plan { segments, lanes, groups, stages, .. } = plan.clone();
            (segments, lanes, groups, stages)
        };
        prop_assert_eq!(actions.is_empty(), runs(&old) == runs(&new));
        let (old, new) = (State::of(&old), State::of(&new));
        prop_assert_eq!(walk(old.clone(), &actions), Some(new.clone()));
        let back: Vec<Action> = actions.into_iter().rev().map(Action::reversed).collect();
        prop_assert_eq!(walk(new.clone(), &back), Some(old.clone()));
        prop_assert_eq!(walk(new.clone(), &between(&new, &old)), Some(old));
    }
}
