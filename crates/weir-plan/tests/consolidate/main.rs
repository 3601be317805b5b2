//! Consolidation: what it does to small policies, and that it never shows.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod executor;
mod random;
mod types;

use std::collections::BTreeMap;

use types::Types;
use weir_plan::{Isolate, Options, Plan, check, render};

fn options(isolate: Isolate, online: usize) -> Options {
    Options { isolate, cores: None, online, domains: BTreeMap::new(), ..Options::default() }
}

/// The plan of a policy of which only what it says matters here: the rest is dropped.
fn plan(text: &str, options: &Options) -> Plan {
    let text = &format!("{text}\nfirst match; default drop;");
    let checked = check(text, &Types).unwrap_or_else(|e| panic!("{}", render(&e, "p", text)));
    Plan::consolidated(&checked.graph, options).unwrap()
}

/// With more cores than NFs, so that nothing is merged.
fn thread(text: &str) -> Plan {
    plan(text, &options(Isolate::Each, 100))
}

/// The NFs that are left, in order.
fn nfs(plan: &Plan) -> Vec<&str> {
    plan.graph.order().iter().map(|id| plan.graph.node(*id).unwrap().name.as_str()).collect()
}

fn changes(plan: &Plan) -> Vec<String> {
    plan.changes.iter().map(ToString::to_string).collect()
}

/// A chain between two ports that ends at the first output of each: `what` lists NFs as `Type name`.
fn chain(what: &[&str]) -> Plan {
    let declared = what.join("; ");
    let names: Vec<_> = what.iter().map(|nf| nf.split(' ').nth(1).unwrap()).collect();
    thread(&format!(
        "Port<0> a; Port<1> b; {declared}; pipelet {{ a -> {} -> b; }}",
        names.join(" -> ")
    ))
}

/// Fig. 2(a) of the µNF paper: each VNF checks headers and looks for HTTP by itself.
const VNFS: &str = "Port<0> lan; Port<1> wan;
    CheckIpHeader fw_ip; L3L4Filter fw_rules;
    CheckIpHeader mon_ip; HttpClassifier mon_http; CountUrl mon_urls;
    CheckIpHeader app_ip; HttpClassifier app_http; ValidateUrl app_urls;
    pipelet firewall { lan -> fw_ip; fw_ip [fw_ip.ip] -> fw_rules -> mon_ip; fw_ip [fw_ip.non_ip] -> mon_ip; }
    pipelet monitor {
        mon_ip [mon_ip.ip] -> mon_http; mon_ip [mon_ip.non_ip] -> app_ip;
        mon_http [mon_http.http] -> mon_urls -> app_ip; mon_http [mon_http.other] -> app_ip;
    }
    pipelet application_firewall {
        app_ip [app_ip.ip] -> app_http; app_ip [app_ip.non_ip] -> wan;
        app_http [app_http.http] -> app_urls -> wan; app_http [app_http.other] -> wan;
    }";

#[test]
fn the_papers_chain_of_vnfs_becomes_its_figure_11() {
    for isolate in [Isolate::Each, Isolate::None] {
        let plan = plan(VNFS, &options(isolate, 2));
        assert_eq!(nfs(&plan), ["fw_ip", "fw_rules", "mon_http", "mon_urls", "app_urls"]);
        assert_eq!(
            changes(&plan),
            [
                "mon_ip (CheckIpHeader): left out: every packet passed fw_ip, and nothing wrote headers up to IP since",
                "app_ip (CheckIpHeader): left out: every packet passed fw_ip, and nothing wrote headers up to IP since",
                "app_http (HttpClassifier): left out: every packet passed mon_http, and nothing wrote the packet since",
            ]
        );
        let text = plan.graph.to_text();
        let ways = "mon_http (HttpClassifier)\n  http:\n    -> mon_urls\n  other:\n    -> wan\n";
        assert!(text.contains(ways), "{text}");
    }
}

#[test]
fn a_check_is_made_again_only_if_something_wrote_what_it_reads() {
    let left = |between| {
        let text = "Port<0> a; Port<1> b; CheckIpHeader x; TYPE w; CheckIpHeader y;
            pipelet { a -> x; x [x.ip] -> w -> y -> b; }";
        nfs(&thread(&text.replace("TYPE", between))) == ["x", "w"]
    };
    assert!(left("WritePayload"));
    assert!(!left("WriteIp"));
    assert!(!left("WriteLink"));
    // Other offsets, another length.
    assert!(!left("Grow"));
    // A packet that it makes has passed nothing.
    assert!(!left("Copy"));
}

#[test]
fn where_a_layer_begins_depends_on_those_below() {
    for (below, is_left) in
        [("WriteLink", false), ("WriteIp", false), ("SetPort", false), ("Nothing", true)]
    {
        let text = "Port<0> a; Port<1> b; HttpClassifier x; TYPE w; HttpClassifier y;
            pipelet { a -> x; x [x.http] -> w -> y -> b; }";
        let plan = thread(&text.replace("TYPE", below));
        assert_eq!(nfs(&plan) == ["x", "w"], is_left, "{below}");
    }
}

#[test]
fn another_configuration_or_program_is_another_question() {
    assert_eq!(nfs(&chain(&["CheckIpHeader x", "CheckIpHeader y { k: 1 }"])), ["x", "y"]);
    assert_eq!(nfs(&chain(&["CheckIpHeader x { k: 1 }", "CheckIpHeader y { k: 1 }"])), ["x"]);
    assert_eq!(nfs(&chain(&["Theirs x", "Theirs y"])), ["x"]);
}

#[test]
fn each_way_goes_on_by_its_own_answer() {
    let plan = thread(
        "Port<0> a; Port<1> b; Port<2> c; CheckLink x; CheckLink y; WriteIp w;
        pipelet { a -> x; x [x.a] -> w -> y; x [x.b] -> y; y [y.a] -> b; y [y.b] -> c; }",
    );
    assert_eq!(plan.graph.to_text().lines().filter(|l| l.contains("-> b")).count(), 1);
    assert_eq!(nfs(&plan), ["x", "w"]);
}

#[test]
fn who_does_not_come_by_a_checked_way_is_checked() {
    let plan = thread(
        "Port<0> a; Port<1> b; CheckLink x; CheckLink y;
        pipelet { a [tcp] -> x; a [!tcp] -> y; x [x.a] -> y; y [y.a] -> b; }",
    );
    assert_eq!(nfs(&plan), ["x", "y"]);
    assert_eq!(
        changes(&plan),
        ["y (CheckLink): passed over by the packets of `x -> y`: x has its answer"]
    );
}

#[test]
fn what_writes_the_same_again_is_left_out_if_it_has_one_way_out() {
    assert_eq!(nfs(&chain(&["SetPort x", "SetPort y"])), ["x"]);
    assert_eq!(nfs(&chain(&["SetPort x", "WriteIp w", "SetPort y"])), ["x", "w", "y"]);
    assert_eq!(nfs(&chain(&["SetOnce x", "SetOnce y"])), ["x", "y"]);
    assert_eq!(nfs(&chain(&["WriteLink x", "WriteLink y"])), ["x", "y"]);
}

#[test]
fn what_filters_ask_for_by_its_tags_stays() {
    let text = "Port<0> a; Port<1> b; HttpClassifier x; HttpClassifier y; CheckLink c;
        pipelet { a -> x -> y -> c; c [ASKS] -> b; c [!ASKS] -> a; }";
    assert_eq!(nfs(&thread(&text.replace("ASKS", "tcp"))), ["x", "c"]);
    assert_eq!(nfs(&thread(&text.replace("ASKS", "x.url ~ \"z\""))), ["x", "c"]);
    for scope in ["y", "HttpClassifier"] {
        let text = text.replace("ASKS", &format!("{scope}.url ~ \"z\""));
        assert_eq!(nfs(&thread(&text)), ["x", "y", "c"], "{scope}");
    }
}

#[test]
fn a_tag_that_another_may_have_set_since_is_set_again() {
    let text = "Port<0> a; Port<1> b; HttpClassifier x; Mark w; HttpClassifier y;
        pipelet { a -> x; x [x.http] -> w; w -> y; y [y.http] -> b; }";
    assert_eq!(nfs(&thread(text)), ["x", "w", "y"]);
    assert_eq!(nfs(&thread(&text.replace("Mark", "CheckLink"))), ["x", "w"]);
}

#[test]
fn an_answer_is_of_one_input() {
    let text = "Port<0> a; Port<1> b; Fork x; Fork y;
        pipelet { a -> [p] x; x [x.a] -> [p] y; y [y.a] -> b; }";
    assert_eq!(nfs(&thread(text)), ["x"]);
    assert_eq!(nfs(&thread(&text.replace("[p] y", "[q] y"))), ["x", "y"]);
}

#[test]
fn what_has_a_report_of_its_own_stays_and_so_does_what_divides_packets() {
    let plan = chain(&["L3L4Filter x", "L3L4Filter y"]);
    assert_eq!(
        changes(&plan),
        ["y (L3L4Filter): stays, though x has its answer: it keeps counters of its own"]
    );
    assert_eq!(nfs(&plan), ["x", "y"]);
    for divides in ["y [y.a && tcp] -> b", "y [y.a] -> Drop; y [y.b] -> b", "y [y.b] -> b"] {
        let plan = thread(&format!(
            "Port<0> a; Port<1> b; CheckLink x; CheckLink y;
            pipelet {{ a -> x; x [x.a] -> y; {divides}; }}"
        ));
        assert_eq!(nfs(&plan), ["x", "y"], "{divides}");
        assert_eq!(
            changes(&plan),
            [
                "y (CheckLink): stays, though x has its answer: what leaves it by that output divides or is dropped"
            ],
            "{divides}"
        );
    }
}

#[test]
fn another_trust_domains_word_is_none() {
    let text = "Port<0> a; Port<1> b; CheckLink x; CheckLink y;
        pipelet { a -> x; x [x.a] -> y; y [y.a] -> b; }";
    let in_domains = |list: &[&str]| {
        let domains = list.iter().map(|name| ((*name).to_owned(), "guest".to_owned())).collect();
        let options = Options { domains, ..options(Isolate::Each, 100) };
        nfs(&plan(text, &options)).len()
    };
    assert_eq!(in_domains(&["x"]), 2);
    assert_eq!(in_domains(&["y"]), 2);
    // Also where it is one that is left out that was given a domain.
    assert_eq!(in_domains(&["x", "y"]), 1);
}

#[test]
fn what_no_packet_reaches_is_left_out_but_a_ports_output_stays() {
    let plan = thread(
        "Port<0> a; Port<1> b; Port<2> c; CheckLink x; CheckLink y; Nothing z;
        pipelet { a -> x; x [x.a] -> y; y [y.a] -> b; y [y.b] -> z; z -> c; }",
    );
    assert_eq!(nfs(&plan), ["x"]);
    assert_eq!(changes(&plan)[1], "z (Nothing): left out: no packet can come to it");
    let segments: Vec<_> = plan.segments.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(segments, ["rx:a", "x", "tx:b", "tx:c"]);
    assert!(plan.lanes.iter().all(|lane| Some(lane.to) != plan.find("tx:c")));
}

/// Two ways with the same work on each.
const WAYS: &str = "Port<0> a; Port<1> b; CheckLink x; CheckLink y; L3L4Filter f; L3L4Filter g;
    pipelet { a [tcp] -> x; a -> y; x [x.a] -> f -> b; y [y.a] -> g -> b; }";

fn workers(plan: &Plan) -> Vec<&str> {
    let names = plan.segments.iter().map(|s| s.name.as_str());
    names.filter(|name| !name.contains(':')).collect()
}

#[test]
fn equal_work_on_different_ways_shares_a_worker_while_workers_share_cores() {
    let on = |cores| plan(WAYS, &options(Isolate::Each, cores));
    assert_eq!(workers(&on(2)), ["x+y", "f+g"]);
    assert_eq!(
        changes(&on(2)),
        [
            "x, y (CheckLink): merged into one µNF: the same work on different ways, and 4 workers would share 1 core",
            "f, g (L3L4Filter): merged into one worker, counters apart: the same work on different ways, and 4 workers would share 1 core",
        ]
    );
    // One for the services, three for four NFs.
    assert_eq!(workers(&on(4)), ["x+y", "f", "g"]);
    assert_eq!(workers(&on(5)), ["x", "f", "y", "g"]);
    assert_eq!(workers(&plan(WAYS, &options(Isolate::None, 2))), ["x+f+y+g"]);
    assert!(plan(WAYS, &options(Isolate::None, 2)).merged.is_empty());
}

#[test]
fn what_leads_to_another_is_not_merged_with_it_not_even_through_other_merged_ones() {
    let text = "Port<0> a; Port<1> b; L3L4Filter x; L3L4Filter y; ValidateUrl v;
        pipelet { a -> x -> v -> y -> b; }";
    assert_eq!(workers(&plan(text, &options(Isolate::Each, 2))), ["x", "v", "y"]);
    // x with y leads, then, from s to t.
    let text = "Port<0> a; Port<1> b; CheckLink x; CheckLink y; L3L4Filter s; L3L4Filter t;
        pipelet { a [tcp] -> x; a -> s; x [x.a] -> t -> b; s -> y -> b; }";
    assert_eq!(workers(&plan(text, &options(Isolate::Each, 2))), ["s", "x+y", "t"]);
    // The same with a third one that was merged after s was known to lead to the second.
    let text =
        "Port<0> a; Port<1> b; CheckLink x; L3L4Filter s; CheckLink y; CheckLink z; L3L4Filter t;
        pipelet { a [tcp] -> x; a [udp] -> s; a -> z; x -> b; s -> y -> b; z [z.a] -> t -> b; }";
    assert_eq!(workers(&plan(text, &options(Isolate::Each, 2))), ["s", "x+y+z", "t"]);
}

#[test]
fn without_consolidation_nothing_is_left_out_or_merged() {
    let checked = check(VNFS, &Types).unwrap();
    let plan = Plan::build(&checked.graph, &options(Isolate::Each, 2)).unwrap();
    assert_eq!(plan.graph, checked.graph);
    assert!(plan.merged.is_empty() && plan.changes.is_empty() && plan.tally.nodes.is_empty());
}

#[test]
fn behind_an_nf_that_packets_come_back_to_nothing_is_known_and_it_stays() {
    let plan = thread(
        "Port<0> a; Port<1> b; CheckIpHeader k1; CheckIpHeader k2; CheckIpHeader k3; WriteIp m;
         pipelet { a -> k1; k1 [k1.ip] -> k2; k2 [k2.ip] -> k3; k3 [k3.ip] -> m; m [tcp] -> k2; m -> b; }",
    );
    // What `m` sends back has been written since `k1` checked it.
    assert_eq!(nfs(&plan), ["k1", "m", "k2", "k3"]);
    let names: Vec<&str> = plan.graph.edges().iter().map(|edge| edge.name.as_str()).collect();
    assert_eq!(
        names,
        ["a -> k1", "k1 -> k2, k2 -> k3, k3 -> m", "k2 -> k3", "k3 -> m", "m -> k2", "m -> b"]
    );
}
