//! Pipelets whose edges meet in one NF are told apart by their traffic classes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::{Types, branches, good};
use weir_plan::{Tags, Why, check, render_warnings};

/// E2's figure 14 as far as graphs go that have no cycle: ports are single, and the way in has a
/// firewall and a proxy of its own. The NAT is on both ways.
const FIGURE_14: &str = "
Proxy p; Proxy p_in; NAT n; FW f; FW f_in;
Port<0> int; Port<8> ext;
Address my_net 10.12.30.0/24;
Address wan_net 131.114.88.92/30;
default drop;
pipelet outbound {
  int [dst port 80] -> p;
  int [!(dst port 80)] -> n;
  p [!(dst ip my_net)] -> n;
  n -> f;
  f [FW.safe && !(dst ip wan_net)] -> ext;
  f [!FW.safe] -> Drop;
}
pipelet inbound {
  ext -> f_in;
  f_in [FW.safe && (dst ip wan_net)] -> n;
  n [(src port 80) && (dst ip my_net)] -> p_in;
  n [!(src port 80) && (dst ip my_net)] -> int;
  p_in [dst ip my_net] -> int;
}
";

#[test]
fn figure_14_s_edge_from_the_nat_to_the_firewall_is_limited_to_what_came_by_the_internal_port() {
    let checked = good(FIGURE_14);
    assert_eq!(
        branches(&checked, "n"),
        [
            "out: [ingress == 0] -> f",
            "out: [ingress == 8 and src port 80 and dst net 10.12.30.0/24] -> p_in",
            "out: [ingress == 8 and not src port 80 and dst net 10.12.30.0/24] -> int",
        ]
    );
    // Nothing else was ambiguous.
    assert_eq!(branches(&checked, "p_in"), ["out: [dst net 10.12.30.0/24] -> int"]);
}

#[test]
fn each_edge_that_was_limited_is_shown() {
    let shown = render_warnings(&good(FIGURE_14).warnings, "f.weir", FIGURE_14);
    let heads: Vec<&str> = shown.lines().filter(|line| line.starts_with("f.weir")).collect();
    assert_eq!(
        heads,
        [
            "f.weir:11:3: note: added `ingress == 0` to this edge: the traffic of its pipelet. Else it and the edge in line 18 took the same packets",
            "f.weir:18:3: note: added `ingress == 8` to this edge: the traffic of its pipelet. Else it and the edge in line 11 took the same packets",
            "f.weir:19:3: note: added `ingress == 8` to this edge: the traffic of its pipelet. Else it and the edge in line 11 took the same packets",
        ],
        "{shown}"
    );
    assert!(good(FIGURE_14).graph.to_text().contains("\n  [ingress == 0] -> f\n"));
}

#[test]
fn what_is_written_as_the_remedy_has_it_needs_none() {
    let text = FIGURE_14
        .replace("n -> f;", "n [ingress == 0] -> f;")
        .replace("n [(", "n [ingress == 8 && (")
        .replace("n [!(src", "n [ingress == 8 && !(src");
    assert_eq!(good(&text).warnings, []);
}

#[test]
fn ports_of_arrays_are_all_in_the_class() {
    let checked = good(
        "Port<0-7> int; Port<8-15> ext; Port<16> a; Port<17> b; NAT n;
         pipelet { int -> n; n -> a; } pipelet { ext -> n; n -> b; }",
    );
    assert_eq!(
        branches(&checked, "n"),
        ["out: [ingress == 0-7] -> a", "out: [ingress == 8-15] -> b"]
    );
}

#[test]
fn pipelets_that_share_a_port_are_told_apart_by_their_filters_where_nothing_writes() {
    let text = "Port<0> lan; Port<1> a; Port<2> b; L3L4Filter f; TYPE g;
         pipelet { lan [tcp port 80] -> f; f -> g; g -> a; }
         pipelet { lan [!(tcp port 80)] -> f; f -> g; g [udp] -> b; g [!udp] -> Drop; }";
    let checked = good(&text.replace("TYPE", "Theirs"));
    assert_eq!(branches(&checked, "f"), ["out: -> g"], "one edge of both");
    assert_eq!(
        branches(&checked, "g"),
        [
            "out: [ingress == 0 and tcp port 80] -> a",
            "out: [ingress == 0 and not tcp port 80 and udp] -> b",
            "out: [ingress == 0 and not tcp port 80 and not udp] -> Drop",
        ]
    );
    // Behind an NF that may write, the filters say nothing of what came in: a tag does.
    let text = text.replace("TYPE", "NAT");
    let checked = good(&text);
    assert_eq!(
        branches(&checked, "g"),
        [
            "out: [Port.entry == 1] -> a",
            "out: [Port.entry == 2 and udp] -> b",
            "out: [Port.entry == 2 and not udp] -> Drop",
        ]
    );
    let shown = render_warnings(&checked.warnings, "p.weir", &text);
    assert!(
        shown.starts_with(
            "p.weir:2:52: note: added to this edge that packets entered by the edge in line 2, column 20: the traffic of its pipelet. Else it and the edge in line 3 took the same packets, and behind `g`, which may write packets, a tag must tell"
        ),
        "{shown}"
    );
    // Who enters by which edge is marked, in one slot.
    let tags = Tags::assign(&checked.graph).unwrap();
    let marks: Vec<_> =
        checked.graph.edge_ids().map(|(id, _)| tags.marks(id).first().map(|m| m.word)).collect();
    assert_eq!(marks[..3], [Some(2), None, None]);
    assert_eq!(marks.iter().flatten().collect::<Vec<_>>(), [&2, &3]);
}

#[test]
fn an_entrance_of_both_pipelets_tells_nothing() {
    let text = "Port<0> lan; Port<1> a; Port<2> b; NAT g; TYPE f;
         pipelet { lan [tcp] -> g; g -> a; }
         pipelet { lan [tcp] -> g; lan [!tcp] -> g; g -> b; }";
    let errors = check(&text.replace("TYPE f", "FW f"), &Types).unwrap_err();
    let why: Vec<String> = errors.iter().map(|e| e.why.instead()).collect();
    assert!(
        why[0].starts_with("their pipelets' traffic classes have packets in common"),
        "{why:?}"
    );
}

#[test]
fn what_enters_by_the_edge_of_a_third_pipelet_needs_a_way_too() {
    let text = "Port<0> lan; Port<1> a; Port<2> b; NAT g; L3L4Filter f;
         pipelet { lan [tcp] -> g; g -> a; }
         pipelet { lan [udp] -> g; g -> b; }
         pipelet { lan [!(tcp || udp)] -> f; f -> TO; }";
    good(&text.replace("TO", "a"));
    let errors = check(&text.replace("TO", "g"), &Types).unwrap_err();
    assert!(
        matches!(&errors[..], [e] if matches!(&e.why, Why::Hole { name, added: true, .. } if name == "g")),
        "{errors:?}"
    );
}

#[test]
fn an_edge_of_several_pipelets_gets_all_their_classes() {
    let checked = good(
        "Port<0> a; Port<1> b; Port<2> c; NAT n;
         pipelet { a -> n; n -> a; } pipelet { b -> n; n -> a; } pipelet { c -> n; n -> b; }",
    );
    assert_eq!(
        branches(&checked, "n"),
        ["out: [ingress == 0 or ingress == 1] -> a", "out: [ingress == 2] -> b"]
    );
}

#[test]
fn what_cannot_come_to_an_nf_needs_no_way() {
    let text = "Port<0> a; Port<1> b; Port<2> c; NAT n; NAT m; pipelet {
        a -> n; b -> n; c -> m; m -> Drop; n [ingress == 0] -> b; n [ingress == IN] -> a; }";
    good(&text.replace("IN", "1"));
    let errors = check(&text.replace("IN", "2"), &Types).unwrap_err();
    assert!(
        matches!(&errors[..], [e] if matches!(&e.why, Why::Hole { name, added: false, .. } if name == "n")),
        "{errors:?}"
    );
}

#[test]
fn under_first_match_nothing_is_added() {
    let checked = good(
        "Port<0> a; Port<1> b; NAT n; first match;
         pipelet { a -> n; n [tcp] -> b; n [!tcp] -> Drop; } pipelet { b -> n; n [ip] -> a; }",
    );
    assert_eq!(
        branches(&checked, "n"),
        ["out: [tcp] -> b", "out: [not tcp] -> Drop", "out: [ip] -> a"]
    );
}

#[test]
fn figure_2_s_chain_is_sound_as_it_stands() {
    let checked = good(
        "Port<0> in; Port<1> out; FW f; Proxy p; NAT n;
         pipelet { in -> f; f [f.safe && dst port 80] -> p; f [f.safe && !(dst port 80)] -> n;
                   f [f.unsafe] -> Drop; p -> n; n -> out; }",
    );
    assert_eq!(checked.warnings, []);
    assert_eq!(
        branches(&checked, "f"),
        ["safe: [dst port 80] -> p", "safe: [not dst port 80] -> n", "unsafe: -> Drop"]
    );
}

#[test]
fn a_class_of_several_ports_is_shown_as_it_can_be_written_beside_a_filter() {
    let text = "Port<0> a; Port<1> b; Port<2> c; Port<3> out; NAT n;
        pipelet { a -> n; b -> n; n [tcp] -> out; n [!tcp] -> Drop; }
        pipelet { c -> n; n -> Drop; }";
    let checked = good(text);
    let shown = render_warnings(&checked.warnings, "p.weir", text);
    assert!(shown.contains("note: added `(ingress == 0 or ingress == 1)` to this edge"), "{shown}");
    assert!(shown.contains("= write `(ingress == 0 or ingress == 1)` into its filter"), "{shown}");
    // Written so, it needs no remedy.
    let class = "(ingress == 0 or ingress == 1)";
    let written = text
        .replace("n [tcp]", &format!("n [{class} && tcp]"))
        .replace("n [!tcp]", &format!("n [{class} && !tcp]"))
        .replace("n -> Drop", "n [ingress == 2] -> Drop");
    assert_eq!(render_warnings(&good(&written).warnings, "p.weir", &written), "");
}

#[test]
fn what_one_pipelet_says_twice_stays_an_error_beside_what_the_remedy_helps() {
    let text = "Port<0> a; Port<1> b; Port<2> out; NAT n;
        pipelet { a -> n; n [tcp] -> out; n [port 80] -> Drop; n [!(tcp || port 80)] -> Drop; }
        pipelet { b -> n; n -> b; }";
    let errors = check(text, &Types).unwrap_err();
    let said: Vec<String> = errors.iter().map(|e| e.why.to_string()).collect();
    assert_eq!(errors.len(), 1, "only the pipelet's own mistake is left: {said:?}");
    assert!(
        said[0].starts_with("this edge and the one in line 2, column 27 both take a packet"),
        "{said:?}"
    );
    // The two that overlap are of one pipelet, and one of its packets comes from a port of its own.
    assert!(!said[0].contains("ingress == 1"), "{said:?}");
}

#[test]
fn edges_of_one_pipelet_with_two_ports_are_told_to_ask_for_the_port() {
    let text = "Port<0> a; Port<7> b; NAT n;
        pipelet { a -> n; b -> n; n -> a; n -> b; }";
    let errors = check(text, &Types).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].why.instead().contains("`[ingress == 0]`"), "{}", errors[0].why.instead());
    let asked = text.replace("n -> a", "n [ingress == 7] -> a");
    good(&asked.replace("n -> b", "n [ingress == 0] -> b"));
    // With one port there is nothing to ask.
    let one = "Port<0> a; Port<7> b; NAT n; pipelet { a -> n; n -> a; n -> b; }";
    let errors = check(one, &Types).unwrap_err();
    assert!(!errors[0].why.instead().contains("ingress"), "{}", errors[0].why.instead());
}
