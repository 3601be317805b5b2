//! `check`, and with merging and optimising, on a generated policy: NFs in chains of ten, each with three filtered edges that are
//! disjoint and take everything. `cargo bench -p weir-plan`.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of benches count as code to clippy.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write;

use common::good;
use criterion::{Criterion, criterion_group, criterion_main};
use weir_plan::{Isolate, Options, Plan};

/// Prefixes and ports differ from NF to NF, so hardly a filter is asked for twice.
fn policy(nfs: usize) -> String {
    let mut text = String::from("Port<0> lan; Port<1> wan;\n");
    let (mut edges, mut heads) = (String::new(), Vec::new());
    for n in 0..nfs {
        let last = n % 10 == 9 || n + 1 == nfs;
        let next = if last { "wan".to_owned() } else { format!("n{}", n + 1) };
        let net = format!("10.{}.{}.0/24", n / 256, n % 256);
        let port = 1024 + n * 7 % 60_000;
        let (a, b) = match n % 3 {
            0 => (format!("src net {net}"), format!("tcp dst port {port}")),
            1 => (format!("tcp dst portrange {port}-{}", port + 100), format!("dst net {net}")),
            _ => (format!("vlan {}", n % 4096), format!("src net {net} && udp dst port {port}")),
        };
        writeln!(text, "Theirs n{n};").unwrap();
        // What follows `vlan` looks behind the tag, so it stands last.
        let (own, rest) = match n % 3 {
            2 => (format!("{b} && !({a})"), format!("!({b}) && !({a})")),
            _ => (format!("!({a}) && ({b})"), format!("!({a} || {b})")),
        };
        writeln!(edges, "n{n} [{a}] -> {next}; n{n} [{own}] -> lan; n{n} [{rest}] -> Drop;")
            .unwrap();
        if n % 10 == 0 {
            writeln!(edges, "lan [ip proto {}] -> n{n};", n / 10).unwrap();
            heads.push(format!("ip proto {}", n / 10));
        }
    }
    format!("{text}pipelet {{\n{edges}lan [!({})] -> Drop;\n}}\n", heads.join(" || "))
}

fn checks(c: &mut Criterion) {
    for nfs in [100, 1_000] {
        let text = policy(nfs);
        let edges = good(&text).graph.edges().len();
        println!("{nfs} NFs, {edges} edges, {} bytes", text.len());
        c.bench_function(&format!("{nfs} NFs"), |b| b.iter(|| good(&text)));
        let options = Options {
            isolate: Isolate::Each,
            cores: None,
            online: 2,
            domains: BTreeMap::new(),
            ..Options::default()
        };
        c.bench_function(&format!("{nfs} NFs, checked, merged and optimised"), |b| {
            b.iter(|| Plan::consolidated(&good(&text).graph, &options));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = checks
}
criterion_main!(benches);
