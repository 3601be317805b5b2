//! Random policies: what is consolidated does what the policy says, to every packet and counter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proptest::prelude::*;
use weir_plan::{
    Consolidated, Done, Graph, Isolate, NodeId, NodeKind, Options, Plan, check, consolidate, render,
};

use crate::executor::{as_in_policy, run};
use crate::types::{Packet, Types};

/// A seeded source of choices: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Types with their outputs; those that can be left out more often than others.
const KINDS: [(&str, &[&str]); 22] = [
    ("CheckIpHeader", &["ip", "non_ip"]),
    ("CheckIpHeader", &["ip", "non_ip"]),
    ("CheckIpHeader", &["ip", "non_ip"]),
    ("HttpClassifier", &["http", "other"]),
    ("HttpClassifier", &["http", "other"]),
    ("HttpClassifier", &["http", "other"]),
    ("CheckLink", &["a", "b"]),
    ("CheckLink", &["a", "b"]),
    ("Fork", &["a", "b"]),
    ("Fork", &["a", "b"]),
    ("SetPort", &["out"]),
    ("SetPort", &["out"]),
    ("SetOnce", &["new", "old"]),
    ("Theirs", &["out"]),
    ("L3L4Filter", &["out"]),
    ("ValidateUrl", &["out"]),
    ("WriteLink", &["out"]),
    ("WriteIp", &["out"]),
    ("WritePayload", &["out"]),
    ("Mark", &["out"]),
    ("Grow", &["out"]),
    ("Copy", &["out"]),
];

const FILTERS: [&str; 5] =
    ["src host 10.0.0.1", "src host 10.0.0.2", "src port 81", "!(src port 82)", "udp"];

fn policy(choices: &mut Choices) -> String {
    let n = 2 + choices.below(9);
    let mut text = String::from("Port<0> a; Port<1> b; Port<2> c;\n");
    // Few types, so that the same comes often.
    let some: [_; 4] = std::array::from_fn(|_| choices.of(&KINDS));
    let mut kinds: Vec<(&str, &[&str])> = Vec::new();
    for i in 0..n {
        let kind = choices.of(&some);
        let config = if choices.one_in(8) { "{ k: 1 }" } else { "" };
        writeln!(text, "{} n{i} {config};", kind.0).unwrap();
        kinds.push(kind);
    }
    text += "pipelet {\n";
    let mut seen = BTreeSet::new();
    let mut edge = |choices: &mut Choices, from: &str, filter: Vec<String>, after: usize| {
        let (to, input) = if after < n && !choices.one_in(8) {
            let to = after + choices.below((n - after).min(2));
            let input = if kinds[to].0 == "Fork" { choices.of(&["[p] ", "[q] "]) } else { "" };
            (format!("n{to}"), input)
        } else if choices.one_in(5) {
            ("Drop".to_owned(), "")
        } else {
            (choices.of(&["a", "b", "c"]).to_owned(), "")
        };
        let filter = filter.join(" && ");
        let filter = if filter.is_empty() { filter } else { format!("[{filter}] ") };
        let line = format!("  {from} {filter}-> {input}{to};\n");
        if seen.insert(line.clone()) { line } else { String::new() }
    };
    for port in ["a", "b"] {
        if choices.one_in(2) {
            let filter = vec![choices_filter(choices)];
            text += &edge(choices, port, filter, 0);
        }
        text += &edge(choices, port, Vec::new(), 0);
    }
    let mut holes = false;
    for (i, (_, outputs)) in kinds.iter().enumerate() {
        let name = format!("n{i}");
        // An edge for all outputs, or some for each.
        if choices.one_in(4) {
            text += &edge(choices, &name, Vec::new(), i + 1);
            continue;
        }
        for output in *outputs {
            let tag = (outputs.len() > 1).then(|| format!("{name}.{output}"));
            if choices.one_in(6) {
                let filter = tag.iter().cloned().chain([choices_filter(choices)]).collect();
                text += &edge(choices, &name, filter, i + 1);
            }
            if choices.one_in(8) {
                holes = true;
            } else {
                text += &edge(choices, &name, tag.into_iter().collect(), i + 1);
            }
        }
    }
    text += "}\nfirst match;\n";
    if choices.one_in(3) || holes {
        text += "default drop;\n";
    }
    text
}

fn choices_filter(choices: &mut Choices) -> String {
    choices.of(&FILTERS).to_owned()
}

fn options(choices: &mut Choices, graph: &Graph) -> Options {
    let mut domains = BTreeMap::new();
    if choices.one_in(3) {
        for node in graph.nodes().iter().filter(|node| node.is_nf()) {
            if choices.one_in(4) {
                domains.insert(node.name.clone(), "guest".to_owned());
            }
        }
    }
    let isolate = if choices.one_in(4) { Isolate::None } else { Isolate::Each };
    Options { isolate, cores: None, online: 1 + choices.below(6), domains, ..Options::default() }
}

fn packets(choices: &mut Choices) -> Vec<(String, Packet)> {
    let packet = |choices: &mut Choices| Packet {
        layers: std::array::from_fn(|_| choices.below(4) as u8),
        tag: 0,
        grown: 0,
    };
    (0..64).map(|_| (choices.of(&["a", "b"]).to_owned(), packet(choices))).collect()
}

/// The NFs behind a node.
fn behind(graph: &Graph, node: NodeId, found: &mut BTreeSet<NodeId>) {
    let is_nf = |id: NodeId| graph.node(id).unwrap().is_nf();
    for edge in graph.edges().iter().filter(|edge| edge.from == node && is_nf(edge.to)) {
        if found.insert(edge.to) {
            behind(graph, edge.to, found);
        }
    }
}

fn domain<'a>(options: &'a Options, node: &str) -> &'a str {
    options.domains.get(node).map_or("", String::as_str)
}

/// Consolidates a random policy and compares it with itself; gives what was done.
fn one(seed: u64) -> Vec<Done> {
    let choices = &mut Choices(seed);
    let text = policy(choices);
    let what = format!("seed {seed}\n{text}");
    let checked = check(&text, &Types);
    let graph = checked.unwrap_or_else(|e| panic!("{}", render(&e, "p", &text))).graph;
    let options = options(choices, &graph);
    let packets = packets(choices);
    let Consolidated { graph: less, merged, tally, changes } = consolidate(&graph, &options);
    let what = || {
        let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
        format!("{what}{options:?}\n{}\n{}", changes.join("\n"), less.to_text())
    };

    let expected = run(&graph, &packets);
    let got = as_in_policy(run(&less, &packets), &less, &tally);
    assert_eq!(got.ends, expected.ends, "{}", what());
    assert_eq!(got.nodes, expected.nodes, "{}", what());
    assert_eq!(got.edges, expected.edges, "{}", what());
    assert_eq!(got.remembered, expected.remembered, "{}", what());

    for change in &changes {
        if let Done::Known { by, .. } | Done::PassedOver { by, .. } = &change.done {
            assert_eq!(domain(&options, &change.nodes[0]), domain(&options, by), "{}", what());
        }
    }
    for group in &merged {
        let nodes: Vec<_> = group.iter().map(|id| less.node(*id).unwrap()).collect();
        for (id, node) in group.iter().zip(&nodes) {
            let mut after = BTreeSet::new();
            behind(&less, *id, &mut after);
            assert!(!group.iter().any(|other| after.contains(other)), "{}", what());
            let (NodeKind::Nf { info, config }, NodeKind::Nf { info: first, config: same }) =
                (&node.kind, &nodes[0].kind)
            else {
                panic!("{}", what());
            };
            assert_eq!((info, config), (first, same), "{}", what());
            assert_eq!(domain(&options, &node.name), domain(&options, &nodes[0].name));
        }
    }
    let plan = Plan::consolidated(&graph, &options).unwrap();
    assert_eq!(plan.graph, less, "{}", what());
    for lane in &plan.lanes {
        assert!(lane.from < lane.to, "{lane:?} in {}\n{}", plan.to_text(), what());
    }
    let ports = |graph: &Graph| -> Vec<String> {
        let tx = Plan::build(graph, &Options { domains: BTreeMap::new(), ..options.clone() });
        let names = tx.unwrap().segments.into_iter().map(|segment| segment.name);
        names.filter(|name| name.starts_with("tx:") || name.starts_with("rx:")).collect()
    };
    assert_eq!(ports(&less), ports(&graph), "{}", what());
    changes.into_iter().map(|change| change.done).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_consolidated_policy_does_what_the_policy_says_and_counts_what_it_counts(seed in any::<u64>()) {
        one(seed);
    }
}

#[test]
fn the_random_policies_are_such_that_everything_is_done_to_them() {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for done in (0..300).flat_map(one) {
        let name = match done {
            Done::Known { others: false, .. } => "left out",
            Done::Known { others: true, .. } => "left out, by several",
            Done::PassedOver { .. } => "passed over",
            Done::Unreached => "unreached",
            Done::Merged { one_instance: true, .. } => "merged",
            Done::Merged { one_instance: false, .. } => "merged, counters apart",
            Done::Kept { why: weir_plan::Kept::Remembers, .. } => "kept: remembers",
            Done::Kept { why: weir_plan::Kept::Divides, .. } => "kept: divides",
            Done::Kept { why: weir_plan::Kept::Asked, .. } => panic!("no policy here has tags"),
        };
        *count.entry(name).or_default() += 1;
    }
    assert!(count.len() == 8 && count.values().all(|n| *n >= 5), "{count:?}");
}
