//! How many instances there are, and how packets are divided over them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::Types;
use serde_json::Value;
use weir_plan::service::{
    Described, LatencyDocument, Objective, ObjectiveError, Server, Syntax, choose, describe,
};
use weir_plan::{
    Affinity, Catalog, ConfigProblem, Effect, Field, FieldSet, Instances, Isolate, Key, NfInfo,
    Over, Split, Touch, Way, Work, check, render, size,
};

/// `BySource`, `ByTuple`, `ByFlow`, `ByPort`, `ByClient`, `Free`: named by their affinity; 940 cycles, so that with a
/// ring's 60 a core of 1 GHz manages 1 Mpps. `Nat` is divided by source and writes it, `Vlan` writes tags. `Single` may not be split.
struct Kinds;

impl Catalog for Kinds {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let affinity = match type_name {
            "BySource" | "Nat" | "Vlan" => Affinity::Source,
            "ByTuple" => Affinity::Tuple,
            "ByFlow" => Affinity::Flow,
            "ByPort" => Affinity::Ends,
            "ByClient" => Affinity::Client,
            "Free" | "Single" | "Copy" => Affinity::None,
            _ => return None,
        };
        let base = Types.nf("MacSwap")?;
        let mut access = weir_plan::Access::all(Touch::Read);
        let mut writes = FieldSet::EMPTY;
        if type_name == "Nat" {
            access.l3 = Touch::Write;
            writes = FieldSet::of(&[Field::IpSrc]);
        }
        if type_name == "Vlan" {
            access.l2 = Touch::Write;
            writes = FieldSet::of(&[Field::Vlan]);
        }
        Some(NfInfo {
            alone_by: Vec::new(),
            name: type_name.to_owned(),
            creates: u8::from(type_name == "Copy"),
            work: Work {
                access,
                writes,
                affinity,
                cost_cycles: 940,
                effect: Effect::Stateful,
                scales: type_name != "Single",
                ..Work::default()
            },
            ..base
        })
    }

    fn types(&self) -> Vec<String> {
        ["BySource", "Nat", "Vlan", "ByTuple", "ByFlow", "Free", "Single", "Copy"]
            .map(str::to_owned)
            .to_vec()
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

fn server(cores: u32) -> Server {
    Server { name: "s".to_owned(), cores, ghz: 1.0, nic_bps: None }
}

fn sized_for(text: &str, objective: Option<&Objective>) -> Instances {
    let text = format!("Port<0> lan; Port<1> wan; {text}");
    let checked = check(&text, &Kinds)
        .unwrap_or_else(|errors| panic!("{}", render(&errors, "test.weir", &text)));
    size(&checked.graph, &server(5), objective)
}

fn sized(text: &str) -> Instances {
    sized_for(text, None)
}

fn counts(instances: &Instances) -> Vec<(&str, u32)> {
    instances.nfs.iter().map(|nf| (nf.name.as_str(), nf.count)).collect()
}

fn way(instances: &Instances, edge: &str) -> Way {
    instances.edges.iter().find(|e| e.name == edge).unwrap_or_else(|| panic!("{edge}")).way
}

fn pps(instances: &Instances, edge: &str) -> Option<f64> {
    instances.edges.iter().find(|e| e.name == edge).unwrap_or_else(|| panic!("{edge}")).pps
}

#[test]
fn an_nf_has_as_many_instances_as_its_stated_traffic_needs_cores() {
    for (rate, count) in [("1 pps", 1), ("1 Mpps", 1), ("1000001 pps", 2), ("2.5 Mpps", 3)] {
        let one = sized(&format!("Free a; pipelet {{ lan -> ({rate}) a -> wan; }}"));
        assert_eq!(counts(&one), [("a", count)], "{rate}");
    }
    // 362 bytes a packet: 2.896 Gbps are 1 Mpps.
    let bits = sized("Free a; pipelet { lan -> (5.792 Gbps) a -> wan; }");
    assert_eq!(counts(&bits), [("a", 2)]);
}

#[test]
fn what_is_not_stated_is_spread_evenly_and_what_nobody_states_is_unknown() {
    let one = sized(
        "Free a; Free b; Free c; pipelet { lan -> (4 Mpps) a; a [tcp] -> (1 Mpps) b; a [udp] -> c;
            a [!tcp && !udp] -> Drop; b -> wan; c -> wan; }",
    );
    assert_eq!(pps(&one, "a -> b"), Some(1e6));
    assert_eq!(pps(&one, "a -> c"), Some(1.5e6));
    assert_eq!(pps(&one, "a -> Drop"), Some(1.5e6));
    assert_eq!(counts(&one), [("a", 4), ("b", 1), ("c", 2)]);
    let unknown = sized("Free a; pipelet { lan -> a -> wan; }");
    assert_eq!((pps(&unknown, "lan -> a"), counts(&unknown)), (None, vec![("a", 1)]));
    assert!(unknown.to_text().contains("a: 1 instance; traffic not stated"), "{unknown:?}");
}

#[test]
fn who_makes_copies_gives_more_than_it_gets() {
    let one = sized("Copy a; Free b; pipelet { lan -> (1 Mpps) a -> b -> wan; }");
    assert_eq!((pps(&one, "a -> b"), counts(&one)), (Some(2e6), vec![("a", 1), ("b", 2)]));
}

#[test]
fn an_objectives_throughput_is_that_of_ports_that_state_nothing() {
    let objective = Objective { pps: 3_000_000, bps: None, latency: None };
    let text = "Free a; pipelet { lan -> a; wan -> a; a [ip] -> lan; a [!ip] -> wan; }";
    let one = sized_for(text, Some(&objective));
    assert_eq!((pps(&one, "lan -> a"), counts(&one)), (Some(1.5e6), vec![("a", 3)]));
}

#[test]
fn packets_are_divided_by_what_must_meet_at_one_instance() {
    for (kind, key) in [
        ("Free", Key::Any),
        ("BySource", Key::Source),
        ("ByTuple", Key::Tuple),
        ("ByFlow", Key::Flow),
        ("ByPort", Key::Ends),
        ("ByClient", Key::Client),
    ] {
        let one = sized(&format!("{kind} a; pipelet {{ lan -> (2 Mpps) a -> wan; }}"));
        assert_eq!(one.nfs[0].split, Some(Split { key, count: 2 }));
        assert_eq!((way(&one, "lan -> a"), way(&one, "a -> wan")), (Way::Hashed(key), Way::Single));
    }
}

#[test]
fn e2_figure_4d_what_is_divided_by_source_needs_no_new_hash_for_the_5_tuple() {
    let one = sized("BySource a; ByTuple b; pipelet { lan -> (2 Mpps) a -> b -> wan; }");
    assert_eq!(counts(&one), [("a", 2), ("b", 2)]);
    assert_eq!(way(&one, "lan -> a"), Way::Hashed(Key::Source));
    assert_eq!(way(&one, "a -> b"), Way::Direct(Key::Source));
    assert_eq!(one.nfs[1].split, Some(Split { key: Key::Source, count: 2 }));
    // Two edges between them, a to b and a' to b', instead of four.
    assert_eq!(one.links(1), [(0, 0), (1, 1)]);
}

#[test]
fn who_rewrites_vlan_tags_undoes_a_division_as_tags_count_in_every_hash() {
    for then in ["BySource", "ByTuple"] {
        let one = sized(&format!("Vlan a; {then} b; pipelet {{ lan -> (2 Mpps) a -> b -> wan; }}"));
        assert!(matches!(way(&one, "a -> b"), Way::Hashed(_)), "{then}: {:?}", way(&one, "a -> b"));
    }
}

#[test]
fn e2_figure_4c_what_is_divided_by_the_5_tuple_is_hashed_anew_by_source() {
    let one = sized("ByTuple a; BySource b; pipelet { lan -> (2 Mpps) a -> b -> wan; }");
    assert_eq!(way(&one, "a -> b"), Way::Hashed(Key::Source));
    assert_eq!(one.links(1), [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

#[test]
fn the_two_directions_of_a_flow_have_different_sources_so_they_are_hashed_anew() {
    let one = sized("BySource a; ByFlow b; pipelet { lan -> (2 Mpps) a -> b -> wan; }");
    assert_eq!(way(&one, "a -> b"), Way::Hashed(Key::Flow));
    let one = sized("ByFlow a; ByTuple b; pipelet { lan -> (2 Mpps) a -> b -> wan; }");
    assert_eq!(way(&one, "a -> b"), Way::Direct(Key::Flow));
}

#[test]
fn what_depends_on_the_input_is_hashed_anew_before_and_behind() {
    for (before, behind, key) in [
        ("ByPort", "ByPort", Key::Ends),
        ("ByFlow", "ByPort", Key::Ends),
        ("ByPort", "ByTuple", Key::Tuple),
        ("ByClient", "ByClient", Key::Client),
        ("BySource", "ByClient", Key::Client),
        ("ByClient", "ByFlow", Key::Flow),
    ] {
        let one =
            sized(&format!("{before} a; {behind} b; pipelet {{ lan -> (2 Mpps) a -> b -> wan; }}"));
        assert_eq!(way(&one, "a -> b"), Way::Hashed(key), "{before}, {behind}");
    }
}

#[test]
fn who_writes_what_packets_were_divided_by_ends_the_division() {
    let one = sized("Nat a; ByTuple b; pipelet { lan -> (2 Mpps) a -> b -> wan; }");
    assert_eq!(way(&one, "a -> b"), Way::Hashed(Key::Tuple));
}

#[test]
fn a_division_goes_on_through_several_nfs_and_into_a_divisor_of_its_number() {
    let one = sized(
        "BySource a; ByTuple b; ByTuple c; pipelet { lan -> (4 Mpps) a -> b; b -> (2 Mpps) c -> wan; }",
    );
    assert_eq!(counts(&one), [("a", 4), ("b", 4), ("c", 2)]);
    assert_eq!(way(&one, "b -> c"), Way::Direct(Key::Source));
    assert_eq!(one.links(2), [(0, 0), (1, 1), (2, 0), (3, 1)]);
    let three = sized("BySource a; ByTuple b; pipelet { lan -> (2 Mpps) a -> (3 Mpps) b -> wan; }");
    assert_eq!(way(&three, "a -> b"), Way::Hashed(Key::Tuple));
}

#[test]
fn packets_that_come_by_different_ways_meet_at_the_same_instance() {
    // What comes from the port is hashed as what comes from `a` was.
    let one = sized(
        "BySource a; ByTuple b; pipelet { lan [tcp] -> (3 Mpps) a -> b; lan [!tcp] -> (0 pps) b; b -> wan; }",
    );
    assert_eq!(way(&one, "a -> b"), Way::Direct(Key::Source));
    assert_eq!(way(&one, "lan -> b"), Way::Hashed(Key::Source));
}

#[test]
fn what_may_not_be_split_is_one_and_says_so_when_it_is_too_slow() {
    let one = sized("Single a; pipelet { lan -> (3 Mpps) a -> wan; }");
    assert_eq!((one.nfs[0].count, one.nfs[0].over), (1, Some(Over::OneOnly { needed: 3 })));
    let said: Vec<_> = one.warnings().collect();
    assert_eq!(
        said,
        [
            "a: 3.00 Mpps are expected and a core manages 1.00 Mpps: 3 instances would do, but its description allows one; say `scaling` there, or send it less"
        ]
    );
    assert_eq!(sized("Single a; pipelet { lan -> (1 Mpps) a -> wan; }").warnings().count(), 0);
}

#[test]
fn no_traffic_makes_instances_without_number() {
    let one = sized("Free a; pipelet { lan -> (18446744073709551615 pps) a -> wan; }");
    assert_eq!(one.nfs[0].count, 64);
    assert!(matches!(one.nfs[0].over, Some(Over::TooMany { .. })), "{one:?}");
}

#[test]
fn cores_that_are_needed_are_held_against_those_there_are() {
    let few = sized("Free a; Free b; pipelet { lan -> (2 Mpps) a -> b -> wan; }");
    assert_eq!((few.cores_needed, few.cores), (4, 4));
    assert!(!few.to_text().contains("too few"));
    let many = sized("Free a; Free b; pipelet { lan -> (3 Mpps) a -> b -> wan; }");
    assert_eq!(many.cores_needed, 6);
    assert!(many.to_text().contains("cores for NFs: 6 needed, 4 there: too few"));
}

#[test]
fn an_nf_description_says_whether_and_how_an_nf_is_split() {
    let text = r#"{ "nf": "Ids", "scaling": { "cores": true }, "affinity": ["src_ip", "dst_ip", "proto", "src_port", "dst_port"] }"#;
    let all = describe(text, Syntax::Json).unwrap();
    let [Described { info, .. }] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((info.work.affinity, info.work.scales), (Affinity::Tuple, true));
    let silent = describe(r#"{ "nf": "Ids" }"#, Syntax::Json).unwrap();
    assert_eq!(
        (silent[0].info.work.affinity, silent[0].info.work.scales),
        (Affinity::Source, false)
    );
}

#[test]
fn an_objective_splits_what_may_be_split_and_says_what_may_not() {
    let chain = |last: &str| {
        let text = format!(
            "Port<0> p; Port<1> q; ByFlow a; {last} b; pipelet {{ p -> a; a -> b; b -> q; }}"
        );
        check(&text, &Kinds).unwrap().graph
    };
    // One core manages 1 Mpps of each.
    let wanted = |pps| Objective { pps, bps: None, latency: None };
    let place =
        |pps, cores| choose(&chain("Free"), &wanted(pps), &server(cores), &Default::default());
    let split = place(1_800_000, 8).unwrap().placement;
    assert_eq!((split.isolate, split.workers, split.cores), (Isolate::Each, 4, 4));
    assert!((split.pps - 2e6).abs() < 1.0, "{}", split.pps);
    let error = place(1_800_000, 4).unwrap_err();
    assert!(matches!(error, ObjectiveError::Cores { needed: 4, cores: 4, .. }), "{error}");
    // Each of two instances waits less than one would, and one could not keep up.
    let bound = LatencyDocument { percentile: 99.0, at_most_us: 100.0 };
    let soon = Objective { latency: Some(bound), ..wanted(1_800_000) };
    let soon = choose(&chain("Free"), &soon, &server(8), &Default::default()).unwrap().placement;
    assert_eq!(soon.cores, 4);
    // At 900 kpps a packet takes 1 µs of work and nine of waiting, twice, and the tail is ln 100 of that.
    let us = soon.latency_us.unwrap();
    assert!((us - 2.0 * 10.0 * 100f64.ln()).abs() < 0.1, "{us}");
    let error =
        choose(&chain("Single"), &wanted(1_800_000), &server(8), &Default::default()).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("b takes 1000 cycles") && said.contains("`scaling:"), "{said}");
    assert!(matches!(error, ObjectiveError::TooSlow { count: 1, .. }), "{error}");
    // What a link is stated to carry does not meet an objective that asks for more.
    let text = "Port<0> p; Port<1> q; ByFlow a; pipelet { p -> (1 kpps) a; a -> q; }";
    let stated = check(text, &Kinds).unwrap().graph;
    let error = choose(&stated, &wanted(1_800_000), &server(8), &Default::default()).unwrap_err();
    assert!(matches!(error, ObjectiveError::TooSlow { .. }), "{error}");
}
