//! Edges of one node that take the same packets: how many of them there may be, who is helped, who is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write;

use crate::common::{Types, branches, good};
use weir_plan::{MAX_ERRORS, PolicyError, Why, check};

fn errors(text: &str) -> Vec<PolicyError> {
    check(text, &Types).unwrap_err()
}

fn edges(count: usize, filter: impl Fn(usize) -> String) -> String {
    let edges = (0..count).fold(String::new(), |mut text, i| {
        writeln!(text, "lan [{}] -> wan;", filter(i)).unwrap();
        text
    });
    format!("Port<0> lan; Port<1> wan; pipelet {{\n{edges}default drop;\n}}\n")
}

#[test]
fn of_very_many_edges_that_overlap_in_pairs_as_many_are_shown_as_there_are_errors_at_most() {
    let errors = errors(&edges(200, |i| format!("port {}", i + 1)));
    assert_eq!(errors.len(), MAX_ERRORS + 1);
    let (last, overlaps) = errors.split_last().unwrap();
    assert_eq!(last.why, Why::TooManyErrors);
    assert!(overlaps.iter().all(|e| matches!(e.why, Why::Overlap { .. })), "{overlaps:?}");
}

#[test]
fn of_very_many_pipelets_that_meet_in_one_nf_each_gets_its_port() {
    let ports = 300;
    let mut text = String::from("Theirs x;\n");
    for i in 0..ports {
        let next = (i + 1) % ports;
        writeln!(text, "Port<{i}> p{i}; pipelet {{ p{i} -> x; x -> p{next}; }}").unwrap();
    }
    let checked = good(&text);
    let expected: Vec<String> =
        (0..ports).map(|i| format!("out: [ingress == {i}] -> p{}", (i + 1) % ports)).collect();
    assert_eq!(branches(&checked, "x"), expected);
}

#[test]
fn what_cannot_be_decided_of_many_edges_is_said_and_ends() {
    let errors = errors(&edges(40, |i| format!("ip[8] * {} = 7", i + 3)));
    assert!(!errors.is_empty());
    assert!(
        errors.iter().all(|e| matches!(
            e.why,
            Why::PerhapsOverlap { .. } | Why::Overlap { .. } | Why::TooManyErrors
        )),
        "{errors:?}"
    );
}

#[test]
fn first_match_in_one_pipelet_leaves_the_edges_of_others_as_they_are_told_apart() {
    let text = "Port<0> lan; Port<1> wan; Port<2> dmz; Theirs x;
         pipelet a { lan -> x; x [tcp] -> wan; x [!tcp] -> Drop; }
         pipelet b { FIRST dmz -> x; x [tcp port 22] -> lan; x -> Drop; }";
    assert_eq!(
        branches(&good(&text.replace("FIRST", "first match;")), "x"),
        [
            "out: [ingress == 0 and tcp] -> wan",
            "out: [ingress == 0 and not tcp] -> Drop",
            "out: [ingress == 2 and tcp port 22] -> lan",
            "out: [ingress == 2] -> Drop",
        ]
    );
    let errors = errors(&text.replace("FIRST", ""));
    assert!(matches!(&errors[..], [e] if matches!(e.why, Why::Overlap { .. })), "{errors:?}");
}

#[test]
fn pipelets_that_share_a_port_need_no_way_for_what_enters_no_nf_of_theirs() {
    let text = "Port<0> lan; Port<1> wan; Port<2> dmz; L3L4Filter x;
         pipelet a { lan [tcp] -> x; x -> wan; }
         pipelet b { lan [udp] -> x; x -> dmz; }
         pipelet c { lan [!(tcp || udp)] -> TO; }";
    assert_eq!(
        branches(&good(&text.replace("TO", "Drop")), "x"),
        ["out: [ingress == 0 and tcp] -> wan", "out: [ingress == 0 and udp] -> dmz"]
    );
    let errors = errors(&text.replace("TO", "x"));
    assert!(matches!(&errors[..], [e] if matches!(e.why, Why::Hole { .. })), "{errors:?}");
}

#[test]
fn what_an_nf_without_inputs_sends_came_in_nowhere_so_everything_may_come() {
    let errors = errors(
        "Port<0> lan; Port<1> wan; Clock g;
         pipelet { lan -> wan; g [ingress == 0] -> wan; g [ingress == 0 && tcp] -> lan; }",
    );
    let overlap = |e: &PolicyError| matches!(e.why, Why::Overlap { .. });
    let hole = |e: &PolicyError| matches!(e.why, Why::Hole { .. });
    assert!(errors.iter().any(overlap) && errors.iter().any(hole), "{errors:?}");
}
