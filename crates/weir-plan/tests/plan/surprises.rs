//! Where filters mean, as libpcap's do, less or other than they seem to, the user is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::good;
use weir_plan::render_warnings;

/// What is said of a policy with these edges out of `lan`.
fn said(edges: &str) -> String {
    let text =
        format!("Port<0> lan; Port<1> wan; pipelet {{\n{edges}\n}}\nfirst match; default drop;\n");
    render_warnings(&good(&text).surprises, "test.weir", &text)
}

#[test]
fn a_protocol_misses_what_any_finds() {
    let said = said("lan [tcp] -> wan;");
    for part in [
        "test.weir:2:1: warning: `tcp` misses packets with a VLAN tag",
        "`tcp` misses IPv6 packets with most extension headers",
        "= write `any tcp` if those shall match, too",
    ] {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
}

#[test]
fn what_looks_through_tags_surprises_nobody() {
    assert_eq!(said("lan [any tcp] -> wan;\nlan [any src net 10.0.0.0/8] -> Drop;"), "");
}

#[test]
fn addresses_and_ip_itself_miss_what_any_finds() {
    for (term, instead) in [
        ("ip", "any ip"),
        ("ip6", "any ip6"),
        ("host 10.0.0.1", "any host 10.0.0.1"),
        ("dst net 10.0.0.0/8", "any dst net 10.0.0.0/8"),
    ] {
        let said = said(&format!("lan [{term}] -> wan;"));
        let cure = format!("= write `{instead}` if those shall match, too");
        assert!(said.contains("misses packets with a VLAN tag") && said.contains(&cure), "{said}");
    }
}

#[test]
fn what_any_finds_divides_packets_as_provably_as_what_it_is_written_for() {
    let text = "Port<0> lan; Port<1> wan; pipelet {
        lan [any ip && any tcp && any src net 10.0.0.0/8] -> wan;
        lan [any ip && any tcp && any src net 192.168.0.0/16] -> wan;
        lan [any ip && !any src net 10.0.0.0/8 && !any src net 192.168.0.0/16] -> wan;
        lan [any ip && !any tcp && (any src net 10.0.0.0/8 || any src net 192.168.0.0/16)] -> Drop;
        lan [any ip6] -> Drop;
        lan [!(any ip || any ip6)] -> Drop; }";
    assert_eq!(render_warnings(&good(text).warnings, "test.weir", text), "");
    let apart = "Port<0> lan; Port<1> wan; default drop; pipelet {
        lan [any tcp] -> wan;
        lan [!(any ip || any ip6)] -> Drop; }";
    assert_eq!(render_warnings(&good(apart).warnings, "test.weir", apart), "");
}

#[test]
fn each_kind_of_surprise_is_told_once_with_the_number_of_other_terms() {
    let said = said("lan [tcp] -> wan;\nlan [udp || tcp] -> wan;\nlan [sctp] -> Drop;");
    assert_eq!(said.matches("VLAN tag").count(), 1, "{said}");
    assert!(said.contains("(and so do 2 other terms)"), "{said}");
    assert!(said.contains("test.weir:2:1:") && !said.contains("test.weir:3:1:"), "{said}");
}

#[test]
fn an_edge_behind_a_negated_tag_is_told_that_it_is_moved() {
    let said = said("lan [!vlan && ip] -> wan;");
    assert!(said.contains("`vlan` moves where `ip` looks"), "{said}");
}
