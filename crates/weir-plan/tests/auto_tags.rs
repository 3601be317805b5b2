//! `-> [name] x` where `x` has no such input: an automatic tag.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common;

use common::{Types, branches, good};
use weir_plan::{PolicyError, Why, check, render};

const HEAD: &str =
    "Port<0> a; Port<1> b; Port<2> c; CheckIpHeader i; L3L4Filter m; L3L4Filter n; MacSwap w;";

fn errors(text: &str) -> Vec<PolicyError> {
    check(&format!("{HEAD} {text}"), &Types).map_or_else(|e| e, |_| Vec::new())
}

#[test]
fn a_name_is_an_input_first() {
    let checked = good("Port<0> a; RateLimiter r; pipelet { a -> [prio1] r -> a; }");
    assert_eq!((checked.graph.edges()[0].input, &checked.graph.edges()[0].tag), (1, &None));
    // Of several inputs a name must be one: which else would it lead to?
    let wrong =
        check("Port<0> a; RateLimiter r; pipelet { a -> [prio2] r -> a; }", &Types).unwrap_err();
    assert!(matches!(wrong[0].why, Why::UnknownInput { .. }));
}

#[test]
fn a_tag_stands_for_what_headers_and_the_port_say_of_the_edge() {
    let checked = good(&format!(
        "{HEAD} pipelet {{ a [tcp] -> [fast] m; a [!tcp] -> [slow] m; b -> m;
           m -> n; n [m.fast] -> b; n [m.slow] -> c; n [!(m.fast || m.slow)] -> Drop; }}"
    ));
    assert_eq!(
        branches(&checked, "n"),
        [
            "out: [ingress == 0 and tcp] -> b",
            "out: [ingress == 0 and not tcp] -> c",
            "out: [not ((ingress == 0 and tcp) or (ingress == 0 and not tcp))] -> Drop",
        ]
    );
    assert_eq!(checked.graph.edges()[0].tag.as_deref(), Some("fast"));
    assert_eq!(checked.graph.not_run(), []);
}

#[test]
fn each_packet_has_the_tag_of_the_edge_that_it_took() {
    // Two tags exclude each other, and together are all, if all edges have one and no way leads past.
    assert_eq!(errors("pipelet { a -> [x] w; b -> [y] w; w [w.x] -> a; w [w.y] -> b; }"), []);
    let open = errors("pipelet { a -> [x] w; b -> [y] w; c -> w; w [w.x] -> a; w [w.y] -> b; }");
    let [PolicyError { why: Why::Hole { rest: Some(rest), .. }, .. }] = &open[..] else {
        panic!("{open:?}")
    };
    assert_eq!(rest, "not (w.x or w.y)");
    assert_eq!(
        errors(&format!(
            "pipelet {{ a -> [x] w; b -> [y] w; c -> w; w [w.x] -> a; w [w.y] -> b; w [{rest}] -> c; }}"
        )),
        []
    );
    let past = errors("pipelet { a -> [x] w; b -> n; w -> n; n [w.x] -> a; }");
    assert!(matches!(&past[..], [PolicyError { why: Why::Hole { .. }, .. }]), "{past:?}");
    let both = errors(
        "pipelet { a [ip] -> [x] w; a [!ip] -> [y] w; w [w.x] -> a; w [w.x] -> b; w [w.y] -> c; }",
    );
    assert!(matches!(&both[..], [PolicyError { why: Why::Overlap { .. }, .. }]), "{both:?}");
}

#[test]
fn what_headers_do_not_tell_any_more_is_planned_and_not_run() {
    for (edges, last) in [
        // Something may have written what the edge looked at.
        ("a [ip] -> [x] w; a [!ip] -> [y] w; w [w.x] -> b; w [w.y] -> c;", "w"),
        // An output told the edge.
        ("a -> i; i [i.ip] -> [x] m; i [i.non_ip] -> [y] m; m [m.x] -> b; m [m.y] -> c;", "m"),
        // Packets may come back by another edge.
        ("a -> [x] m; m -> n; n [ip] -> [y] m; n [!ip] -> Drop; m [m.x] -> b; m [m.y] -> c;", "m"),
    ] {
        let edges = edges.replace("m -> n; n [ip]", "m [udp] -> n; n [ip]");
        let edges = match edges.contains("udp") {
            true => {
                edges.replace("m [m.x]", "m [!udp && m.x]").replace("m [m.y]", "m [!udp && m.y]")
            }
            false => edges,
        };
        let checked = good(&format!("{HEAD} pipelet {{ {edges} }}"));
        let why: Vec<String> = checked.graph.not_run().iter().map(ToString::to_string).collect();
        let asks = format!("asks for `{last}.x`: what led packets there cannot be told");
        assert!(why.iter().any(|why| why.contains(&asks)), "{edges}: {why:?}");
    }
}

#[test]
fn a_tag_is_known_at_its_nf_and_behind_it_only() {
    let text = format!("{HEAD} pipelet {{ a -> [x] m; m -> b; c [m.x] -> b; c [!m.x] -> a; }}");
    let wrong = check(&text, &Types).unwrap_err();
    let shown = render(&wrong, "p", &text);
    assert_eq!(wrong.len(), 2, "{shown}");
    assert!(
        shown
            .contains("`m.x` is what an edge to `m` says, but no packet from `c` came through `m`"),
        "{shown}"
    );
    let output = errors("pipelet { a -> [ip] i; i -> b; }");
    assert!(
        matches!(&output[..], [PolicyError { why: Why::TagIsOutput { .. }, .. }]),
        "{output:?}"
    );
    let port = errors("pipelet { a -> [x] b; }");
    assert!(matches!(&port[..], [PolicyError { why: Why::NoInputs { .. }, .. }]), "{port:?}");
}

#[test]
fn so_many_edges_may_ask_for_tags_and_long_ways_are_looked_through_in_time() {
    let asking = |n: usize| {
        let edges: String =
            (0..n).map(|i| format!("m [tcp dst port {} && m.x] -> b;\n", i + 1)).collect();
        errors(&format!("default drop; pipelet {{ a -> [x] m; c -> m;\n{edges} }}"))
    };
    assert_eq!(asking(200), []);
    let many = asking(1001);
    assert!(matches!(&many[..], [PolicyError { why: Why::TooManyTags, .. }]), "{:?}", many.first());
    // Each NF doubles the ways to the next: past some they are not written out.
    let text: String = (0..40).map(|i| format!("L3L4Filter n{i};\n")).collect();
    let ways = |i: usize| format!("n{i} [tcp] -> n{}; n{i} [!tcp] -> n{};\n", i + 1, i + 1);
    let ways: String = (0..39).map(ways).collect();
    let text = format!(
        "{HEAD} {text} pipelet {{ a -> n0; {ways} n39 [ip] -> [x] m; n39 [!ip] -> m; m [m.x] -> b; m [!m.x] -> c; }}"
    );
    assert_eq!(good(&text).graph.not_run().len(), 2);
}
