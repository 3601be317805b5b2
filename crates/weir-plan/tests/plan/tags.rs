//! Tags of NFs in filters: what they may be, what is proved of them, and the places that they get.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::{Types, branches, good, node};
use std::collections::BTreeSet;
use weir_filter::{Expr, SlotTest};
use weir_plan::{Checked, Place, TAG_SLOTS, Tags, Warning, Why, check};

const HEAD: &str = "Port<0> lan; Port<1> a; Port<2> b; Proxy p; Proxy q; FW f; MacSwap x; ";

fn policy(pipelet: &str) -> String {
    format!("{HEAD}pipelet {{ {pipelet} }}")
}

/// Who sets what where, by NF.
fn settings(checked: &Checked, nf: &str) -> Vec<(String, Place)> {
    let tags = Tags::assign(&checked.graph).unwrap();
    tags.of(node(checked, nf).0).iter().map(|s| (s.name.clone(), s.place.clone())).collect()
}

fn unset(checked: &Checked) -> Vec<(String, bool)> {
    let found = checked.warnings.iter().filter_map(|w| match &w.why {
        Warning::TagUnset { tag, never } => Some((tag.clone(), *never)),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_filter_may_ask_what_an_nf_further_back_said() {
    let checked = good(&policy(
        "lan -> p -> f -> x; x [p.url ~ \"^/admin\" && !f.clean && p.score >= 3] -> a;
         x [!(p.url ~ \"^/admin\" && !f.clean && p.score >= 3)] -> b;",
    ));
    let filter = "p.url ~ \"^/admin\" and not f.clean and p.score >= 3";
    assert_eq!(
        branches(&checked, "x"),
        [format!("out: [{filter}] -> a"), format!("out: [not ({filter})] -> b")]
    );
    assert_eq!(unset(&checked), []);
    // The number has a slot; the text's one pattern and the flag share another.
    assert_eq!(
        settings(&checked, "p"),
        [
            ("score".to_owned(), Place::Number { slot: 0 }),
            (
                "url".to_owned(),
                Place::Text { slot: 1, bit: 0, patterns: vec!["^/admin".to_owned()] }
            ),
        ]
    );
    assert_eq!(settings(&checked, "f"), [("clean".to_owned(), Place::Flag { slot: 1, bit: 1 })]);
    assert_eq!(settings(&checked, "x"), []);
}

#[test]
fn an_nf_s_own_edges_may_ask_for_its_tags() {
    let checked =
        good(&policy("lan -> f; f [f.safe && f.clean] -> a; f [!(f.safe && f.clean)] -> b;"));
    assert_eq!(
        branches(&checked, "f"),
        ["safe: [f.clean] -> a", "safe: [not f.clean] -> b", "unsafe: -> b"]
    );
}

#[test]
fn a_type_stands_for_all_its_instances_and_a_name_for_its_own() {
    let checked = good(&policy(
        "lan [tcp] -> p -> x; lan [!tcp] -> q -> x;
         x [Proxy.score == 1] -> a; x [Proxy.score != 1] -> b; x [p.score >= 0 && Proxy.score == 1] -> Drop;
         first match; default drop;",
    ));
    let places =
        |nf| settings(&checked, nf).into_iter().map(|(_, place)| place).collect::<Vec<_>>();
    let (p, q) = (places("p"), places("q"));
    // p says it for itself and for its type, q only for the type.
    assert_eq!((p.len(), q.len()), (2, 1));
    assert!(p.contains(&q[0]));
}

#[test]
fn numbers_and_flags_are_decided_exactly_and_patterns_are_not_looked_into() {
    let edges = |one: &str, other: &str| {
        check(
            &policy(&format!(
                "lan -> p -> f -> x; x [{one}] -> a; x [{other}] -> b; default drop;"
            )),
            &Types,
        )
    };
    for (one, other) in [
        ("p.score == 3", "p.score > 3"),
        ("f.clean", "!f.clean"),
        ("p.score < 10 && tcp", "p.score >= 10"),
        ("p.url ~ \"a\"", "!(p.url ~ \"a\")"),
    ] {
        assert!(edges(one, other).is_ok(), "{one} | {other}");
    }
    let overlap = |one, other| edges(one, other).unwrap_err().remove(0).why;
    match overlap("p.score >= 3", "p.score <= 3") {
        Why::Overlap { example, .. } => {
            assert_eq!(example.numbers.iter().map(|n| n.value).collect::<Vec<_>>(), [3]);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(overlap("f.clean", "tcp"), Why::Overlap { .. }));
    let open = overlap("p.url ~ \"^a\"", "p.url ~ \"^b\"");
    assert!(matches!(open, Why::PerhapsOverlap { .. }), "{open:?}");
    // A packet without a number is in no comparison: neither of these takes it.
    let text = policy("lan -> p -> x; x [p.score == 1] -> a; x [p.score != 1] -> b;");
    assert!(matches!(check(&text, &Types).unwrap_err()[0].why, Why::Hole { .. }));
}

#[test]
fn who_asks_for_what_packets_need_not_have_is_warned() {
    let asked = "x [f.clean] -> a; x [!f.clean] -> b;";
    let checked = good(&policy(&format!("lan -> x; {asked} lan -> Drop; first match;")));
    assert_eq!(unset(&checked), [("f.clean".to_owned(), true), ("f.clean".to_owned(), true)]);
    let some = format!("lan [tcp] -> f -> x; lan [!tcp] -> x; {asked}");
    let never = false;
    assert_eq!(
        unset(&good(&policy(&some))),
        [("f.clean".to_owned(), never), ("f.clean".to_owned(), never)]
    );
    assert_eq!(unset(&good(&policy(&format!("lan -> f -> x; {asked}")))), []);
}

/// A chain of `n` proxies, and an edge for each test.
fn asking(n: usize, tests: impl Iterator<Item = String>) -> String {
    let names: String = (0..n).map(|i| format!("Proxy p{i}; ")).collect();
    let way: String = (0..n).map(|i| format!("p{i} -> ")).collect();
    let edges: String = tests.map(|test| format!("x [{test}] -> a; ")).collect();
    format!("{HEAD}{names} first match; default drop; pipelet {{ lan -> {way} x; {edges} }}")
}

#[test]
fn more_than_fit_into_a_packet_are_refused_with_the_reason() {
    let numbers = |n| asking(n, (0..n).map(|i| format!("p{i}.score == 1")));
    good(&numbers(TAG_SLOTS.into()));
    let error = check(&numbers(9), &Types).unwrap_err().remove(0);
    assert!(
        error.why.to_string().contains("need 9 slots of 64 bits, and a packet has 8"),
        "{error:?}"
    );
    let patterns = |n| asking(1, (0..n).map(|i| format!("p0.url ~ \"{i}\"")));
    good(&patterns(64));
    let error = check(&patterns(65), &Types).unwrap_err().remove(0);
    assert!(error.why.to_string().contains("more than 64 patterns ask for `url`"), "{error:?}");
}

#[test]
fn places_of_different_tags_never_share_a_bit() {
    let tests = (0..6).flat_map(|i| {
        let patterns = (0..50).map(move |k| format!("p{i}.url ~ \"{k}\""));
        patterns.chain((i < 1).then(|| "p0.score == 7".to_owned()))
    });
    let checked = good(&asking(6, tests));
    let tags = Tags::assign(&checked.graph).unwrap();
    let mut taken = BTreeSet::new();
    for (id, _) in checked.graph.node_ids() {
        for setting in tags.of(id) {
            let bits: Vec<(u8, u8)> = match &setting.place {
                Place::Flag { slot, bit } => vec![(*slot, *bit)],
                Place::Number { slot } => (0..64).map(|bit| (*slot, bit)).collect(),
                Place::Text { slot, bit, patterns } => {
                    (0..patterns.len()).map(|k| (*slot, bit + k as u8)).collect()
                }
            };
            assert!(bits.iter().all(|(slot, bit)| *slot < TAG_SLOTS && *bit < 64));
            assert!(bits.into_iter().all(|bit| taken.insert(bit)), "{setting:?}");
        }
    }
    assert_eq!(taken.len(), 6 * 50 + 64);
}

#[test]
fn a_filter_s_tests_become_tests_of_the_bits_that_are_set() {
    let checked = good(&policy("lan -> f -> x; x [f.clean] -> a; x [!f.clean] -> b;"));
    let tags = Tags::assign(&checked.graph).unwrap();
    let filter = |k: usize| node(&checked, "x").1.outputs[0].branches[k].filter.clone().unwrap();
    let set = Expr::Slot(SlotTest { slot: 0, mask: 1, first: 1, last: 1 });
    assert_eq!(tags.place(&filter(0)), set);
    assert_eq!(tags.place(&filter(1)), Expr::not(set));
    assert!(tags.any());
    let none = good(&policy("lan -> f -> x -> a;"));
    assert!(!Tags::assign(&none.graph).unwrap().any());
}

#[test]
fn a_graph_without_tests_of_tags_marks_nothing() {
    let checked = good(&policy("lan -> p -> x -> a;"));
    let tags = Tags::assign(&checked.graph).unwrap();
    let graph = &checked.graph;
    assert!(graph.edge_ids().all(|(id, e)| tags.marks(id).is_empty() && e.entry.is_none()));
    assert_eq!(settings(&checked, "p"), []);
}
