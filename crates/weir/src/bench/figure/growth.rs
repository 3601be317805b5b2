//! How cost grows: what no paper shows.

use super::data::{Sample, Series, Verdict};
use super::unf::{isolate, plan};
use super::values::median;
use super::{ECHO, Effort};
use crate::bench::chain_policy;
use crate::bench::firewall::{self, RuleKind};
use crate::bench::sample::BenchError;
use crate::policy::{self, Consolidate};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::Isolate;

/// Numbers of µNFs.
const LENGTHS: [usize; 6] = [1, 4, 16, 50, 100, 200];
/// Numbers of NFs; each has three filtered edges.
const NFS: [usize; 6] = [3, 33, 100, 333, 1_000, 3_333];
/// Numbers of rules: a policy of 4 MiB has room for no more.
const RULES: [usize; 5] = [10, 100, 1_000, 10_000, 20_000];
/// Numbers of rules for the classifier alone.
const LOOKED_UP: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
const LOOKUP: &str = "classifier alone";

const FIREWALL: &str = "firewall";

pub fn chain(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let kinds = [("fused", false), ("isolated", true)];
    let points: Vec<_> = kinds
        .iter()
        .flat_map(|&(name, isolated)| LENGTHS.map(|n| (name, n as f64, (n, isolated))))
        .collect();
    let source = || DeviceSpec::Generator(GeneratorSpec::default());
    effort.round_below(
        || effort.echo(source()),
        &points,
        |(n, isolated)| {
            Ok(effort.sampling.take(&chain_policy(n), isolate(isolated), source())?.into())
        },
    )
}

/// Nanoseconds that each further µNF costs, from 16 to 50 and from 100 to 200: the second may be as much as the first, fused and isolated.
pub fn judge_chain(series: &[Series]) -> (Verdict, String) {
    let each = |name: &str, from: usize, to: usize| {
        let ns = |n: usize| 1e3 / median(series, name, n as f64);
        (ns(to) - ns(from)) / (to - from) as f64
    };
    let told = ["fused", "isolated"].map(|name| {
        let [few, many] = [(16, 50), (100, 200)].map(|(from, to)| each(name, from, to));
        let text = format!("{name} {few:.1} from 16 to 50 and {many:.1} from 100 to 200");
        (many <= few * 1.25, text)
    });
    let reached = told.iter().all(|(reached, _)| *reached);
    let text = told.map(|(_, text)| text).join(", ");
    let text = format!(
        "a further µNF costs, in ns a packet, {text}; up to a quarter more passes as noise"
    );
    (Verdict::of(reached), text)
}

/// The firewall's throughput by rules that flows hit evenly.
pub fn rules(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    // Made once a round: to generate, write and read thousands of rules takes longer than a sample.
    let mut made = Vec::new();
    for n in RULES {
        let (policy, source) = firewall::counted(n, RuleKind::Acl, None);
        made.push((plan(effort, &policy, Isolate::None)?, source));
    }
    let echo = plan(effort, &chain_policy(0), Isolate::None)?;
    let points: Vec<_> = [(FIREWALL, true), (ECHO, false)]
        .iter()
        .flat_map(|&(name, real)| {
            let places = RULES.into_iter().zip(&made);
            places.map(move |(n, made)| (name, n as f64, (real, made)))
        })
        .collect();
    effort.round(&points, |(real, (plan, source))| {
        let plan = if real { plan } else { &echo };
        Ok(effort.sampling.run(plan, source.clone())?.into())
    })
}

pub fn judge_rules(series: &[Series]) -> (Verdict, String) {
    let [few, thousand, many] = [10.0, 1e3, 2e4].map(|n| median(series, FIREWALL, n));
    let text =
        format!("{few:.1} Mpps with 10 rules, {thousand:.1} with 1,000, {many:.1} with 20,000");
    (Verdict::of(many >= few / 4.0), text)
}

/// Nanoseconds a packet that rules cost, without packets.
pub fn lookup(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points = LOOKED_UP.map(|n| (LOOKUP, n as f64, n));
    effort.round(&points, |n| {
        let core = effort.sampling.chain_core;
        let (ns, trips) = effort.around(|| firewall::lookup_ns(n, RuleKind::Acl, core))?;
        Ok(Sample { no_workers: true, ..Sample::of(ns, trips) })
    })
}

pub fn judge_lookup(series: &[Series]) -> (Verdict, String) {
    let [few, many, most] = [10.0, 1e4, 1e5].map(|n| median(series, LOOKUP, n));
    let text = format!(
        "{few:.0} ns a packet with 10 rules, {many:.0} with 10,000, {most:.0} with 100,000"
    );
    (Verdict::of(most <= many * 10.0), text)
}

pub fn policy(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points = NFS.map(|n| ("check, merge, consolidate, plan", (n * 3) as f64, n));
    effort.round(&points, |n| {
        let text = filtered(n);
        let (took, trips) = effort.around(|| {
            let (start, path) = (Instant::now(), Path::new("(bench)"));
            let loaded = policy::from_text(&text, "(bench)")?;
            let (isolate, on) = (Isolate::Each, Consolidate::On);
            let plan = policy::plan(&loaded.graph, path, isolate, None, &[], on)?;
            std::hint::black_box(&plan);
            Ok(start.elapsed())
        })?;
        Ok(Sample { no_workers: true, ..Sample::of(took.as_secs_f64(), trips) })
    })
}

pub fn judge_policy(series: &[Series]) -> (Verdict, String) {
    let of = |nfs: usize| median(series, "check, merge, consolidate, plan", (nfs * 3) as f64);
    let (hundred, thousand, most) = (of(100), of(1_000), of(3_333));
    let power = (most / hundred).ln() / (3_333_f64 / 100.0).ln();
    let text = format!(
        "300 edges {:.1} ms, 3,000 edges {:.0} ms, 10,000 edges {most:.1} s: grows as edges to the power of {power:.1}",
        hundred * 1e3,
        thousand * 1e3
    );
    (Verdict::of(thousand < 1.0 && power <= 2.0), text)
}

/// Chains of ten NFs; each NF's three edges are disjoint and take everything, and hardly a filter occurs twice.
fn filtered(nfs: usize) -> String {
    let mut nodes = String::from("Port<0> lan; Port<1> wan;\n");
    let (mut edges, mut heads) = (String::new(), Vec::new());
    for n in 0..nfs {
        let last = n % 10 == 9 || n + 1 == nfs;
        let next = if last { "wan".to_owned() } else { format!("n{}", n + 1) };
        let (a, b) = (
            format!("src net 10.{}.{}.0/24", n / 256, n % 256),
            format!("tcp dst port {}", 1024 + n * 7),
        );
        // Writing to a string cannot fail: here and below.
        let _ = writeln!(nodes, "MacSwap n{n};");
        let _ = writeln!(
            edges,
            "n{n} [{a}] -> {next}; n{n} [!({a}) && {b}] -> lan; n{n} [!({a}) && !({b})] -> Drop;"
        );
        if n % 10 == 0 {
            let chain = n / 10;
            let head = format!("dst net 172.{}.{}.0/24", 16 + chain / 256, chain % 256);
            let _ = writeln!(edges, "lan [{head}] -> n{n};");
            heads.push(head);
        }
    }
    format!("{nodes}pipelet {{\n{edges}lan [!({})] -> Drop;\n}}\n", heads.join(" || "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    #[test]
    fn what_a_further_nf_costs_may_grow_neither_fused_nor_isolated() {
        // Nanoseconds that each of the first hundred costs, and each behind them.
        let judged = |fused: [f64; 2], isolated: [f64; 2]| {
            let mut series = Vec::new();
            for (name, [near, far]) in [("fused", fused), ("isolated", isolated)] {
                for n in LENGTHS.map(|n| n as f64) {
                    let ns = 10.0 + n.min(100.0) * near + (n - 100.0).max(0.0) * far;
                    add(&mut series, name, n, Sample::of(1e3 / ns, [80.0; 2]));
                }
            }
            judge_chain(&series)
        };
        assert_eq!(judged([4.0, 4.5], [15.0, 18.0]).0, Verdict::Reached);
        assert_eq!(judged([4.0, 5.5], [15.0, 15.0]).0, Verdict::Missed);
        let (verdict, text) = judged([4.0, 4.0], [15.0, 19.0]);
        assert_eq!(verdict, Verdict::Missed);
        assert!(text.contains("isolated 15.0 from 16 to 50 and 19.0 from 100 to 200"), "{text}");
    }

    #[test]
    fn the_policy_is_right_and_has_the_edges_it_says() {
        for nfs in [3, 33] {
            let loaded = policy::from_text(&filtered(nfs), "(test)").unwrap();
            let filtered = loaded.graph.edges().len();
            assert!(filtered >= nfs * 3, "{filtered} edges for {nfs} NFs");
        }
    }
}
