//! NFActor's figures, on its workload as far as Weir has what they need.

use super::Effort;
use super::data::{Sample, Series, Verdict};
use super::values::{across, median, ratio, trend};
use crate::bench::flows::rates;
use crate::bench::replication;
use crate::bench::sample::{BenchError, SampleArgs};
use crate::policy::{self, Consolidate};
use std::collections::BTreeMap;
use std::path::Path;
use weir_control::wiring::RunOptions;
use weir_device::DeviceSpec;
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Plan, Sizing};
use weir_runtime::spec::ReplicateSpec;

/// How many replicas the figures by replicas have.
const REPLICAS: [u32; 4] = [1, 2, 3, 4];
/// The three NFs: name, and what declares it.
pub(super) static NFS: [(&str, &str); 3] = [
    ("mon", "FlowMonitor mon;"),
    ("fw", "ConnTrack fw { pickup: true };"),
    ("http", "HttpParser http;"),
];
const LINES: [&str; 4] = ["flow monitor", "firewall", "HTTP parser", "chain of the three"];

/// A chain of some of the NFs, so many replicas of it, each of one worker: one on the NFs' own core, the next on the devices', and so on.
pub(super) fn plan(
    sampling: &SampleArgs,
    nfs: &[(&str, &str)],
    replicas: u32,
) -> Result<Plan, BenchError> {
    let declare: String = nfs.iter().map(|(_, declare)| format!("{declare}\n")).collect();
    let path: String = nfs.iter().map(|(name, _)| format!(" -> {name}")).collect();
    let text = format!("Port<0> lan; Port<1> wan;\n{declare}pipelet {{ lan{path} -> wan; }}\n");
    let loaded = policy::from_text(&text, "(bench)")?;
    let (own, devices) = (sampling.chain_core, sampling.device_core);
    let turns = [own, devices].into_iter().cycle().take(replicas as usize);
    let cores: Vec<usize> = [devices].into_iter().chain(turns).collect();
    let server = Server { name: "bench".to_owned(), cores: replicas + 1, ghz: 1.0, nic_bps: None };
    let asked: BTreeMap<_, _> =
        nfs.iter().map(|(name, _)| ((*name).to_owned(), Asked::equal(replicas))).collect();
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    let isolate = if replicas == 1 { Isolate::None } else { Isolate::Auto };
    let options = policy::options(isolate, Some(cores), &[])?;
    let path = Path::new("(bench)");
    Ok(policy::plan_sized(&loaded.graph, path, &options, Consolidate::Off, sizing)?.0)
}

/// Million packets a second of so many flows.
fn capacity(
    sampling: &SampleArgs,
    plan: &Plan,
    flows: usize,
    options: &RunOptions,
) -> Result<Sample, BenchError> {
    let source = DeviceSpec::Listed(rates::requests(flows));
    Ok(sampling.run_after(plan, source, options, flows as u64)?.into())
}

/// Fig. 5a.
pub fn by_nf(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let sampling = effort.sampling;
    let chains = [&NFS[0..1], &NFS[1..2], &NFS[2..3], &NFS[..]];
    let points: Vec<_> = LINES
        .into_iter()
        .zip(chains)
        .flat_map(|(name, nfs)| REPLICAS.map(|n| (name, f64::from(n), (nfs, n))))
        .collect();
    let limit = || effort.echo(DeviceSpec::Listed(rates::requests(1_000)));
    effort.round_below(limit, &points, |(nfs, replicas)| {
        capacity(sampling, &plan(sampling, nfs, replicas)?, 1_000, &sampling.options())
    })
}

pub fn judge_by_nf(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, n: f64| median(series, name, n);
    let each = LINES.map(|line| {
        let all = REPLICAS.map(|n| format!("{:.1}", of(line, f64::from(n))));
        format!("{line} {}", all.join(", "))
    });
    let text = format!(
        "Mpps of requests with 1 to 4 replicas: {}, on two cores that source and sink share",
        each.join("; ")
    );
    let [single @ .., chain] = LINES;
    let longer = REPLICAS.map(f64::from).into_iter();
    let longer = longer.clone().all(|n| single.iter().all(|line| of(chain, n) < of(line, n)));
    let text = trend(text, "the chain does less than each NF alone", longer);
    let grows = LINES.iter().all(|line| of(line, 4.0) > of(line, 1.0));
    let linear = LINES.iter().any(|line| of(line, 4.0) > 3.6 * of(line, 1.0));
    let text =
        trend(text, "four do more than one, and less than four times as much", grows && !linear);
    (Verdict::DifferentSetUp, text)
}

/// Fig. 5b.
pub fn by_replicas(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let sampling = effort.sampling;
    let kinds = [("100 flows", 100), ("1,000 flows", 1_000), ("10,000 flows", 10_000)];
    let mut points: Vec<_> = kinds
        .iter()
        .flat_map(|&(name, flows)| REPLICAS.map(|n| (name, f64::from(n), (flows, Some(n)))))
        .collect();
    // To make packets of many flows costs the source more: a limit for the fewest and one for the most.
    let limits = [("echo: no µNF, 100 flows", 100), ("echo: no µNF, 10,000 flows", 10_000)];
    let ends = |(name, flows)| [1.0, 4.0].map(|x| (name, x, (flows, None)));
    points.extend(limits.into_iter().flat_map(ends));
    effort.round(&points, |(flows, replicas)| match replicas {
        Some(replicas) => {
            capacity(sampling, &plan(sampling, &NFS, replicas)?, flows, &sampling.options())
        }
        None => effort.echo(DeviceSpec::Listed(rates::requests(flows))),
    })
}

pub fn judge_by_replicas(series: &[Series]) -> (Verdict, String) {
    let [one, two, three, four] = REPLICAS.map(|n| median(series, "10,000 flows", f64::from(n)));
    let text = format!(
        "requests of 10,000 flows: {one:.1}, {two:.1}, {three:.1} and {four:.1} Mpps with 1 to 4 replicas, on two cores that source and sink share"
    );
    let holds = four > 3.2 * one && two > one && three > two;
    let what = "almost linear in runtimes: each does more, four more than 3.2 times one";
    (Verdict::DifferentSetUp, trend(text, what, holds))
}

const WITHOUT: &str = "without a replica";
const TENTH: &str = "a replica of every 10th packet";

/// Fig. 9a.
pub fn replicated(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let sampling = effort.sampling;
    let tenth =
        policy::parse_replicate("nf=every:10").ok().and_then(|(_, own)| own).map(|own| own.spec);
    let points: Vec<_> = [(WITHOUT, None), (TENTH, tenth)]
        .iter()
        .flat_map(|&(name, spec)| REPLICAS.map(|n| (name, f64::from(n), (spec, n))))
        .collect();
    let limit = || effort.echo(DeviceSpec::Listed(rates::requests(128)));
    effort.round_below(limit, &points, |(spec, replicas): (Option<ReplicateSpec>, u32)| {
        let options = RunOptions { replicate: replication::all(spec), ..sampling.options() };
        capacity(sampling, &plan(sampling, &NFS, replicas)?, 128, &options)
    })
}

pub fn judge_replicated(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, n: f64| median(series, name, n);
    let cost = |n: f64| (1.0 - ratio(series, TENTH, WITHOUT, n)) * 100.0;
    let text = format!(
        "costs {:.0} % with one replica of the chain, {:.0} % with four; {:.1} Mpps with four, on two cores{}",
        cost(1.0),
        cost(4.0),
        of(TENTH, 4.0),
        across(series, WITHOUT)
    );
    let costs = [1.0, 4.0].into_iter().all(|n| cost(n) > 5.0);
    let text = trend(text, "replication costs throughput at every number of runtimes", costs);
    let grows = of(TENTH, 4.0) > of(TENTH, 1.0);
    (Verdict::DifferentSetUp, trend(text, "with it four runtimes do more than one", grows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    /// Lines by number of replicas.
    fn by_replicas_of(lines: &[(&str, [f64; 4])]) -> Vec<Series> {
        let mut series = Vec::new();
        for (name, all) in lines {
            for (n, mpps) in REPLICAS.into_iter().zip(all) {
                add(&mut series, name, f64::from(n), Sample::of(*mpps, [80.0; 2]));
            }
        }
        series
    }

    #[test]
    fn fig_5a_tells_both_of_its_trends() {
        let [monitor, firewall, parser, chain] = LINES;
        let nfs = [3.0, 5.0, 6.0, 7.0];
        let of =
            |all| by_replicas_of(&[(monitor, nfs), (firewall, nfs), (parser, nfs), (chain, all)]);
        let (_, text) = judge_by_nf(&of([1.0, 1.5, 2.0, 2.5]));
        assert!(
            text.contains("alone) holds here") && text.ends_with("as much) holds here"),
            "{text}"
        );
        let (_, text) = judge_by_nf(&of([1.0, 0.9, 0.8, 0.7]));
        assert!(
            text.contains("alone) holds here") && text.ends_with("does not hold here"),
            "{text}"
        );
        let (_, text) = judge_by_nf(&of([4.0, 5.0, 6.0, 7.0]));
        assert!(text.contains("alone) does not hold here"), "{text}");
    }

    #[test]
    fn fig_5b_holds_when_four_do_almost_four_times_as_much() {
        let of = |all| judge_by_replicas(&by_replicas_of(&[("10,000 flows", all)])).1;
        assert!(of([0.6, 1.2, 1.8, 2.4]).ends_with(") holds here"));
        assert!(of([2.1, 1.4, 1.3, 1.1]).ends_with("does not hold here"));
        assert!(
            of([1.0, 1.8, 2.2, 2.5]).ends_with("does not hold here"),
            "it grows, far from linearly"
        );
    }

    #[test]
    fn fig_9a_tells_the_cost_and_whether_runtimes_help() {
        let of = |with| judge_replicated(&by_replicas_of(&[(WITHOUT, [2.0; 4]), (TENTH, with)])).1;
        let like_the_paper = of([0.8, 0.8, 0.8, 0.9]);
        assert!(
            like_the_paper.starts_with("costs 60 % with one replica of the chain, 55 % with four"),
            "{like_the_paper}"
        );
        assert!(!like_the_paper.contains("does not hold"), "{like_the_paper}");
        let free = of([2.0; 4]);
        assert!(free.matches("does not hold here").count() == 2, "{free}");
    }
}
