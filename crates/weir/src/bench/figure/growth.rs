//! How cost grows: what no paper shows.

use super::Effort;
use super::data::{Sample, Series, Verdict, median};
use crate::bench::chain_policy;
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
const NFS: [usize; 5] = [3, 33, 100, 333, 1_000];

pub fn chain(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points = LENGTHS.map(|n| ("fused", n as f64, n));
    effort.rounds(&points, |n| {
        let source = DeviceSpec::Generator(GeneratorSpec::default());
        Ok(effort.sampling.take(&chain_policy(n), Isolate::None, source)?.into())
    })
}

/// Nanoseconds that each further µNF costs, from 16 to 50 and from 100 to 200.
pub fn judge_chain(series: &[Series]) -> (Verdict, String) {
    let ns = |n: usize| 1e3 / median(series, "fused", n as f64);
    let each = |from: usize, to: usize| (ns(to) - ns(from)) / (to - from) as f64;
    let (few, many) = (each(16, 50), each(100, 200));
    let text = format!("{few:.2} ns a packet and µNF from 16 to 50, {many:.2} from 100 to 200");
    (Verdict::of(many <= few * 1.25), text)
}

pub fn policy(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points = NFS.map(|n| ("check, merge, consolidate, plan", (n * 3) as f64, n));
    effort.rounds(&points, |n| {
        let text = filtered(n);
        let start = Instant::now();
        let loaded = policy::from_text(&text, "(bench)")?;
        let plan = policy::plan(
            &loaded.graph,
            Path::new("(bench)"),
            Isolate::Each,
            None,
            &[],
            Consolidate::On,
        )?;
        std::hint::black_box(&plan);
        Ok(Sample {
            value: start.elapsed().as_secs_f64(),
            round_trip_ns: [0.0; 2],
            not_granted: false,
        })
    })
}

pub fn judge_policy(series: &[Series]) -> (Verdict, String) {
    let of = |nfs: usize| median(series, "check, merge, consolidate, plan", (nfs * 3) as f64);
    let (hundred, thousand) = (of(100), of(1_000));
    let power = (thousand / hundred).log10();
    let text = format!(
        "300 edges {:.1} ms, 3,000 edges {:.0} ms: grows as edges to the power of {power:.1}",
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
            let head = format!("ip proto {}", n / 10);
            let _ = writeln!(edges, "lan [{head}] -> n{n};");
            heads.push(head);
        }
    }
    format!("{nodes}pipelet {{\n{edges}lan [!({})] -> Drop;\n}}\n", heads.join(" || "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_right_and_has_the_edges_it_says() {
        for nfs in [3, 33] {
            let loaded = policy::from_text(&filtered(nfs), "(test)").unwrap();
            let filtered = loaded.graph.edges().len();
            assert!(filtered >= nfs * 3, "{filtered} edges for {nfs} NFs");
        }
    }
}
