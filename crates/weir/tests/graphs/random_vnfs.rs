//! Random VNFs in random policies, hundreds a run: what consolidation makes of them does to generated packets what
//! they say, and counts what they count. All in this process, by the library's µNFs, in one plain thread.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::catalog::WithTemplates;
use crate::common_oracle::random::{Choices, seed, stamped};
use crate::common_oracle::traffic;
use crate::common_oracle::vnfs::{Vnf, vnfs};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use weir_nfs as _;
use weir_oracle::{Counts, Input, Oracle, Outcome};
use weir_plan::{Consolidated, Done, EdgeId, Isolate, Options, Tally, check, consolidate, render};

/// Policies a run.
const POLICIES: u64 = 600;
/// Packets of each.
const PACKETS: usize = 120;

/// µNFs with their outputs and a configuration; what VNFs repeat more often than others.
const KINDS: [(&str, &[&str], &str); 12] = [
    ("CheckIpHeader", &["ip", "non_ip"], "{}"),
    ("CheckIpHeader", &["ip", "non_ip"], "{}"),
    ("CheckIpHeader", &["ip", "non_ip"], "{}"),
    ("HttpClassifier", &["http", "other"], "{}"),
    ("HttpClassifier", &["http", "other"], "{}"),
    ("L3L4Filter", &["pass"], "{ rules: [ { action: drop, proto: tcp, dst_port: 23 } ] }"),
    ("CountUrl", &["out"], "{ max: 3 }"),
    ("ValidateUrl", &["out"], "{}"),
    ("PacketSizeHistogram", &["out"], "{ bounds: [64, 600] }"),
    ("CountSubnet", &["out"], "{ prefixes: [\"192.0.2.0/24\", \"2001:db8::/32\"] }"),
    ("TtlDecrement", &["out", "expired", "too_big", "other"], "{ mtu: 1300 }"),
    ("MacSwap", &["out"], "{}"),
];

/// A template of up to four µNFs; gives its text and its outputs.
fn template(choices: &mut Choices, name: &str) -> (String, Vec<&'static str>) {
    let kinds: Vec<_> = (0..1 + choices.below(4)).map(|_| choices.of(&KINDS)).collect();
    let mut text = format!("template: {name}\nnodes:\n");
    let (mut links, mut used) = (String::new(), BTreeSet::new());
    for (i, (kind, outputs, config)) in kinds.iter().enumerate() {
        writeln!(text, "  - {{ name: n{i}, type: {kind}, config: {config} }}").unwrap();
        for (k, output) in outputs.iter().enumerate() {
            let later = i + 1 + choices.below(2);
            // The first outputs make a row, so that something comes to each.
            let to = match choices.below(4) {
                _ if k == 0 && i + 1 < kinds.len() => format!("n{}", i + 1),
                0 | 1 if later < kinds.len() => format!("n{later}"),
                2 if k > 0 && !used.is_empty() => "Drop".to_owned(),
                n => {
                    let out = if n == 3 { "b" } else { "a" };
                    used.insert(out);
                    out.to_owned()
                }
            };
            writeln!(links, "  - {{ from: n{i}, label: {output}, to: {to} }}").unwrap();
        }
    }
    text += &format!("inputs: [ {{ name: in, to: n0 }} ]\nlinks:\n{links}outputs:\n");
    used.iter().for_each(|out| writeln!(text, "  - {{ name: {out} }}").unwrap());
    (text, used.into_iter().collect())
}

/// A policy of up to six VNFs of three templates, each output of which leads on.
fn policy(choices: &mut Choices) -> (String, Vec<String>) {
    let templates: Vec<_> = (0..3).map(|i| template(choices, &format!("T{i}"))).collect();
    let n = 2 + choices.below(5);
    let mut text = String::from("Port<0> lan; Port<1> wan; Port<2> dmz;\n");
    let mut edges = String::from("pipelet {\n  lan -> v0;\n");
    for i in 0..n {
        let which = choices.below(templates.len());
        writeln!(text, "T{which} v{i};").unwrap();
        let target = |choices: &mut Choices, first: bool| {
            let later = i + 1 + if first { 0 } else { choices.below(3) };
            match choices.below(8) {
                0 if !first => "Drop".to_owned(),
                _ if later < n => format!("v{later}"),
                k => if k % 2 == 0 { "wan" } else { "dmz" }.to_owned(),
            }
        };
        for (k, output) in templates[which].1.iter().enumerate() {
            let (to, other) = (target(choices, k == 0), target(choices, false));
            if choices.one_in(3) && to != other {
                let filter = choices.of(&["tcp", "ip", "dst port 80", "src net 10.0.0.0/8"]);
                writeln!(edges, "  v{i} [v{i}.{output} && ({filter})] -> {to};").unwrap();
                writeln!(edges, "  v{i} [v{i}.{output} && !({filter})] -> {other};").unwrap();
            } else {
                writeln!(edges, "  v{i} [v{i}.{output}] -> {to};").unwrap();
            }
        }
    }
    // Somebody sends to both ports.
    edges += "  lan [tcp && udp] -> wan;\n  lan [tcp && udp] -> dmz;\n}\n";
    let text = text + &edges.replacen("lan -> v0", "lan [!(tcp && udp)] -> v0", 1);
    (text, templates.into_iter().map(|template| template.0).collect())
}

/// What the consolidated graph counted, as the policy's counters.
fn as_in_policy(mut outcome: Outcome, graph: &weir_plan::Graph, tally: &Tally) -> Outcome {
    let counted = std::mem::take(&mut outcome.edges);
    let sum = |edges: &[EdgeId]| {
        edges.iter().fold(Counts::default(), |mut sum, edge| {
            let one = &counted[&graph.edge(*edge).unwrap().name];
            sum.packets += one.packets;
            sum.bytes += one.bytes;
            sum
        })
    };
    for edge in &tally.edges {
        outcome.edges.insert(edge.name.clone(), sum(&edge.sum));
    }
    for nf in &tally.nodes {
        let more = sum(&nf.sum);
        let counts = outcome.nodes.entry(nf.name.clone()).or_default();
        counts.packets += more.packets;
        counts.bytes += more.bytes;
    }
    outcome
}

/// The lines of VNFs as the report makes them.
fn tallied_vnfs(outcome: &Outcome, tally: &Tally) -> BTreeMap<String, Vnf> {
    let packets = |edges: &[usize]| {
        edges.iter().map(|at| outcome.edges[&tally.edges[*at].name].packets).sum::<u64>()
    };
    let of = |vnf: &weir_plan::VnfTally| {
        let mut drops = BTreeMap::new();
        for name in &vnf.nodes {
            for (reason, count) in &outcome.nodes[name].drops {
                *drops.entry((*reason).to_owned()).or_default() += count;
            }
        }
        (vnf.instance.clone(), (packets(&vnf.ins), packets(&vnf.outs), drops))
    };
    tally.vnfs.iter().map(of).collect()
}

/// Consolidates a random policy and compares it with itself; says what was done.
fn one(seed: u64) -> Vec<Done> {
    let choices = &mut Choices(seed);
    let (text, templates) = policy(choices);
    let what = format!("seed {seed}\n{}\n{text}", templates.join("\n"));
    let catalog = WithTemplates::of(templates);
    let checked = check(&text, &catalog);
    let graph = checked.unwrap_or_else(|e| panic!("{what}{}", render(&e, "p", &text))).graph;
    let input: Vec<Input> = stamped(&traffic::packets(choices, PACKETS), 0);
    let (isolate, online) = (choices.of(&[Isolate::Each, Isolate::None]), 1 + choices.below(6));
    let options =
        Options { isolate, cores: None, online, domains: BTreeMap::new(), ..Options::default() };
    let Consolidated { graph: less, tally, changes, .. } = consolidate(&graph, &options);

    let expected = Oracle::new(&graph, &[0, 1, 2]).unwrap().run(&input).unwrap();
    let got = Oracle::new(&less, &[0, 1, 2]).unwrap().run(&input).unwrap();
    let mut got = as_in_policy(got, &less, &tally);
    for (port, sent) in &expected.sent {
        // A port may have lost all edges that no packet can take.
        let other = got.sent.get(port).map_or(&[][..], Vec::as_slice);
        assert!(other == sent.as_slice(), "port {port}: {what}");
    }
    assert!(got.discarded == expected.discarded, "drops: {what}");
    for name in expected.nodes.keys().filter(|name| name.starts_with("tx:")) {
        got.nodes.entry(name.clone()).or_default();
    }
    assert_eq!(got.nodes, expected.nodes, "{what}");
    assert_eq!(got.edges, expected.edges, "{what}");
    for (name, report) in &got.reports {
        assert_eq!(report, &expected.reports[name], "{name}: {what}");
    }
    for name in expected.reports.keys().filter(|name| !got.reports.contains_key(*name)) {
        assert!(expected.reports[name].is_null(), "{name} had a report: {what}");
    }
    assert_eq!(tallied_vnfs(&got, &tally), vnfs(&graph, &expected), "{what}");
    changes.into_iter().map(|change| change.done).collect()
}

#[test]
fn consolidated_vnfs_do_what_they_say_and_count_what_they_count() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same {POLICIES} policies");
    for i in 0..POLICIES {
        one(seed.wrapping_add(i));
    }
}

/// Else the test above would show nothing.
#[test]
fn the_random_vnfs_repeat_each_others_work() {
    let done: Vec<Done> = (0..60).flat_map(one).collect();
    let left_out = done.iter().filter(|d| matches!(d, Done::Known { .. })).count();
    let over = done.iter().filter(|d| matches!(d, Done::PassedOver { .. })).count();
    let merged = done.iter().filter(|d| matches!(d, Done::Merged { .. })).count();
    assert!(left_out >= 20 && over >= 5 && merged >= 1, "{left_out} {over} {merged}");
}
