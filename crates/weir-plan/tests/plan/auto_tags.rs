//! `-> [name] x` where `x` has no such input: an automatic tag.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::{Types, branches, good};
use weir_plan::{PolicyError, Tags, TagsError, Why, check, render};

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

/// What the edges of a policy write into packets: slot, bits and value, by the edge's name.
type Marks = Vec<(String, Vec<(u8, u64, u64)>)>;

fn marks(text: &str) -> Marks {
    let graph = good(&format!("{HEAD} {text}")).graph;
    assert_eq!(graph.not_run(), []);
    let tags = Tags::assign(&graph).unwrap();
    let marks = |id| tags.marks(id).iter().map(|m| (m.slot, m.mask, m.word)).collect();
    graph.edge_ids().map(|(id, edge)| (edge.name.clone(), marks(id))).collect()
}

#[test]
fn what_headers_do_not_tell_any_more_is_written_into_packets_by_the_edges() {
    // Something may have written what the edge looked at.
    let written = marks(
        "pipelet { a [ip] -> [x] w; a [!ip] -> [y] w; c -> w; w [w.x] -> b; w [w.y] -> c; w [!(w.x || w.y)] -> a; }",
    );
    let into: Vec<_> = written.iter().filter(|(name, _)| name.ends_with('w')).collect();
    // One of the two bits for a tag, none for none: what came before is gone.
    let words: Vec<_> = into.iter().map(|(_, marks)| marks.clone()).collect();
    assert_eq!(words, [vec![(0, 3, 1)], vec![(0, 3, 2)], vec![(0, 3, 0)]], "{into:?}");
    let others = written.iter().filter(|(name, _)| !name.ends_with('w'));
    assert!(others.clone().count() > 0 && others.clone().all(|(_, marks)| marks.is_empty()));

    // An output told the edge. A tag that nobody asks for takes no bit.
    let told = marks(
        "pipelet { a -> i; i [i.ip] -> [x] m; i [i.non_ip] -> [y] m; m [m.x] -> b; m [!m.x] -> c; }",
    );
    let words: Vec<_> = told.into_iter().flat_map(|(_, marks)| marks).collect();
    assert_eq!(words, [(0, 1, 1), (0, 1, 0)]);
}

#[test]
fn at_most_64_automatic_tags_of_an_nf_are_asked_for() {
    let policy = |n: usize| {
        let (ins, outs): (String, String) = (0..n)
            .map(|i| {
                let port = i + 1;
                (
                    format!("a [tcp dst port {port}] -> [t{i}] w;"),
                    format!("w [w.t{i} && src port {port}] -> b;"),
                )
            })
            .unzip();
        let text = format!("{HEAD} default drop; pipelet {{ {ins} {outs} }}");
        check(&text, &Types)
    };
    assert!(Tags::assign(&policy(64).unwrap().graph).unwrap().any());
    let said = policy(65).unwrap_err();
    let wanted = TagsError::Automatic { node: "w".to_owned() };
    assert!(
        matches!(&said[..], [PolicyError { why: Why::Tags(e), .. }] if *e == wanted),
        "{said:?}"
    );
}

#[test]
fn a_packet_that_an_nf_makes_has_no_tag() {
    let text = |filter: &str| {
        format!(
            "Port<0> a; Port<1> b; Maker k; MacSwap w; pipelet {{ a -> [x] w; w -> k; k [{filter}] -> b; }}"
        )
    };
    let open = check(&text("w.x"), &Types).unwrap_err();
    assert!(matches!(&open[..], [PolicyError { why: Why::Hole { .. }, .. }]), "{open:?}");
    good(&text("w.x || !w.x"));
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
    assert_eq!(good(&text).graph.not_run().len(), 0);
}
