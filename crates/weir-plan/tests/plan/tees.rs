//! `Tee`: a packet takes all edges that match.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::{Types, branches, good};
use weir_plan::{Why, check, render_warnings};

const PORTS: &str = "Port<0> a; Port<1> b; Port<2> c; Port<3> d; Tee t;";

fn tees(text: &str) -> Vec<String> {
    let checked = good(&format!("{PORTS} {text}"));
    let all = checked.graph.nodes().iter().filter(|node| node.name.starts_with('t'));
    all.flat_map(|node| {
        branches(&checked, &node.name).into_iter().map(|way| format!("{} {way}", node.name))
    })
    .collect()
}

#[test]
fn each_edge_of_a_tee_has_an_output_of_its_own() {
    assert_eq!(tees("pipelet { a -> t; t -> b; t -> c; }"), ["t out: -> b", "t copy: -> c"]);
    assert_eq!(
        tees("pipelet { a -> t; t -> b; t [tcp] -> c; t [udp] -> d; t [ip6] -> Drop; }"),
        [
            "t out: -> b",
            "t copy: -> t/2",
            "t/2 out: [tcp] -> c",
            "t/2 copy: -> t/3",
            "t/3 out: [udp] -> d",
            "t/3 copy: [ip6] -> Drop",
        ]
    );
}

#[test]
fn edges_of_a_tee_may_overlap_but_some_edge_takes_each_packet() {
    let errors = |text: &str| {
        check(&format!("{PORTS} {text}"), &Types)
            .map_err(|e| e.into_iter().map(|e| e.why).collect::<Vec<_>>())
    };
    assert!(
        errors("pipelet { a -> t; t [tcp] -> b; t [ip] -> c; t [!(ip || tcp)] -> d; }").is_ok()
    );
    let holes = errors("pipelet { a -> t; t [tcp] -> b; t [ip] -> c; }").unwrap_err();
    let [Why::Hole { name, rest: Some(rest), .. }] = &holes[..] else { panic!("{holes:?}") };
    assert_eq!((name.as_str(), rest.as_str()), ("t", "not (tcp or ip)"));
    assert!(errors("default drop; pipelet { a -> t; t [tcp] -> b; t [ip] -> c; }").is_ok());
    let open = errors("pipelet { a -> t; t [ip] -> b; t [!ip] -> c; b -> t; }");
    assert!(open.is_ok(), "{open:?}");
    let none = errors("pipelet { a -> t; }").unwrap_err();
    assert!(matches!(&none[..], [Why::NoWayOut { name }] if name == "t"), "{none:?}");
}

#[test]
fn pipelets_share_a_tee_without_getting_in_each_other_s_way() {
    assert_eq!(
        tees("pipelet out { a -> t; t -> b; } pipelet back { b -> t; t [ip] -> a; t -> b; }"),
        ["t out: -> b", "t copy: [ip] -> a"]
    );
}

#[test]
fn a_tee_whose_outputs_are_named_is_the_plain_nf() {
    assert_eq!(
        tees("pipelet { a -> t; t [t.out && ip] -> b; t [Tee.out && !ip] -> c; t [t.copy] -> d; }"),
        ["t out: [ip] -> b", "t out: [not ip] -> c", "t copy: -> d"]
    );
    let both = check(&format!("{PORTS} pipelet {{ a -> t; t [t.out] -> b; t -> c; }}"), &Types);
    assert!(matches!(both.unwrap_err()[0].why, Why::Overlap { .. }));
}

#[test]
fn a_tee_with_one_edge_is_worth_a_warning() {
    let text = format!("{PORTS} default drop; pipelet {{ a -> t; t -> b; b -> c -> d; }}");
    let shown = render_warnings(&good(&text).warnings, "p", &text);
    assert!(shown.contains("`t` is a Tee with one edge: it copies nothing"), "{shown}");
}
