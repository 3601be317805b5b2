//! Milliseconds to consolidate and to plan large policies: `cargo bench -p weir-plan`.

#![allow(clippy::unwrap_used, clippy::panic)] // tests may: helper functions too

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use weir_plan::{
    Access, Affinity, Catalog, ConfigProblem, Effect, Graph, Isolate, NfInfo, Options, Plan, Touch,
    Work, check, consolidate,
};

const REPEATS: usize = 9;

/// Types `T0` to `T4`: pure, with two outputs. `W` writes the payload.
struct Types;

impl Catalog for Types {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let (touch, effect) = match type_name {
            "W" => (Touch::Write, Effect::Stateful),
            _ => (Touch::Nop, Effect::Pure),
        };
        Some(NfInfo {
            alone_by: Vec::new(),
            name: type_name.to_owned(),
            inputs: vec!["in".to_owned()],
            outputs: vec!["a".to_owned(), "b".to_owned()],
            writes_packets: type_name == "W",
            may_drop: false,
            domain: String::new(),
            resizes: false,
            creates: 0,
            holds: 0,
            tags: Vec::new(),
            program: None,
            work: Work {
                access: Access { l2: Touch::Read, l3: Touch::Read, l4: Touch::Nop, payload: touch },
                effect,
                affinity: Affinity::None,
                cost_cycles: 50,
                keeps: false,
                ..Work::default()
            },
        })
    }

    fn types(&self) -> Vec<String> {
        ["T0", "T1", "T2", "T3", "T4", "W"].map(str::to_owned).to_vec()
    }

    fn check_config(&self, _: &str, _: &serde_json::Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

/// `n` NFs and three times as many edges. Every output that others come by divides, so nothing is left
/// out and whatever is known is carried to the end: the dear case.
fn graph(n: usize, configurations: usize) -> Graph {
    let mut text = String::from("Port<0> lan; Port<1> wan;\n");
    for i in 0..n {
        let kind = if i % 6 == 5 { "W".to_owned() } else { format!("T{}", i % 6) };
        writeln!(text, "{kind} n{i} {{ k: {} }};", i * 7919 % configurations).unwrap();
    }
    text += "pipelet {\n  lan -> n0;\n";
    for i in 0..n {
        let to = |step: usize| match i + step {
            to if to < n => format!("n{to}"),
            _ => "wan".to_owned(),
        };
        let (near, far) = (to(1), to(2 + i % 11));
        writeln!(text, "  n{i} [n{i}.a && tcp] -> {far};\n  n{i} [n{i}.a] -> {near};").unwrap();
        writeln!(text, "  n{i} [n{i}.b] -> wan;").unwrap();
    }
    check(&(text + "}\nfirst match;\n"), &Types).unwrap().graph
}

fn main() {
    println!(
        "NFs edges configurations cores | left out merged | consolidate, plan: ms min/median/max"
    );
    for n in [10, 100, 1_000] {
        for (configurations, online) in [(2, 2), (n / 2, 2), (n / 2, 10_000)] {
            let graph = graph(n, configurations);
            let domains = BTreeMap::new();
            let options = Options {
                isolate: Isolate::Each,
                cores: None,
                online,
                domains,
                ..Options::default()
            };
            let done = consolidate(&graph, &options);
            let merged: usize = done.merged.iter().map(Vec::len).sum();
            println!(
                "{n} {} {configurations} {online} | {} {merged} | {}, {}",
                graph.edges().len(),
                graph.order().len() - done.graph.order().len(),
                repeat(|| drop(black_box(consolidate(&graph, &options)))),
                repeat(|| drop(black_box(Plan::consolidated(&graph, &options)))),
            );
        }
    }
}

fn repeat(work: impl Fn()) -> String {
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    format!("{:.2}/{:.2}/{:.2}", times[0], times[REPEATS / 2], times[REPEATS - 1])
}
