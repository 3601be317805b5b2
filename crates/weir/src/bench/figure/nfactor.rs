//! NFActor's figures, on its workload as far as Weir has what they need.

use super::Effort;
use super::data::{Place, Sample, Series, Verdict};
use super::stateful::ms;
use super::values::{across, median, ratio};
use crate::bench::flows::controlled;
use crate::bench::flows::moves::{self, Case, How, Nf};
use crate::bench::flows::rates;
use crate::bench::replication;
use crate::bench::sample::{BenchError, SampleArgs};
use crate::policy::{self, Consolidate};
use std::collections::BTreeMap;
use std::path::Path;
use weir_control::wiring::RunOptions;
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Plan, Sizing};
use weir_runtime::spec::ReplicateSpec;

/// How many replicas the figures by replicas have.
const REPLICAS: [u32; 4] = [1, 2, 3, 4];
/// The three NFs: name, and what declares it.
static NFS: [(&str, &str); 3] = [
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
    let source = DeviceSpec::Listed(rates::source(flows));
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
    let limit = || effort.echo(DeviceSpec::Listed(rates::source(1_000)));
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
    let grows = LINES.iter().filter(|line| of(line, 4.0) > of(line, 1.0)).count();
    let text = format!(
        "Mpps with 1 to 4 replicas: {}; four do more than one in {grows} of {} lines, on two cores that source and sink share",
        each.join("; "),
        LINES.len()
    );
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
        None => effort.echo(DeviceSpec::Listed(rates::source(flows))),
    })
}

pub fn judge_by_replicas(series: &[Series]) -> (Verdict, String) {
    let [one, two, three, four] = REPLICAS.map(|n| median(series, "10,000 flows", f64::from(n)));
    let text = format!(
        "with 10,000 flows {one:.1}, {two:.1}, {three:.1} and {four:.1} Mpps with 1 to 4 replicas, on two cores that source and sink share"
    );
    (Verdict::DifferentSetUp, text)
}

const RATES: [(&str, u32); 3] =
    [("10 pps a flow", 10), ("50 pps a flow", 50), ("100 pps a flow", 100)];
const COUNTS: [u32; 3] = [100, 1_000, 10_000];

/// Fig. 6a: milliseconds until all flows have moved.
pub fn moved_by_flows(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> = RATES
        .iter()
        .flat_map(|&(name, each_pps)| {
            let case = move |flows| {
                let (nf, how) = (Nf::Chain, How::Each);
                (name, f64::from(flows), Case { nf, how, flows, each_pps, at_once: None })
            };
            COUNTS.map(case)
        })
        .collect();
    effort.round(&points, |case| moved(effort, case))
}

fn moved(effort: &Effort<'_>, case: Case) -> Result<Sample, BenchError> {
    let (moved, trips) = effort.around(|| moves::measure(effort.sampling, case))?;
    Ok(Sample::of(ms(moved.took), trips))
}

pub fn judge_moved_by_flows(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, flows: f64| median(series, name, flows);
    let text = format!(
        "100 flows {:.2} ms, 10,000 flows {:.1} ms at 10 packets a second for each; {:.1} ms at 100",
        of(RATES[0].0, 100.0),
        of(RATES[0].0, 1e4),
        of(RATES[2].0, 1e4)
    );
    (Verdict::DifferentSetUp, text)
}

/// Every sample's milliseconds as microseconds for each flow.
fn for_each(series: &[Series], flows_at: impl Fn(f64) -> f64) -> Vec<Series> {
    let place = |place: &Place| {
        let each = |s: &Sample| Sample { value: s.value * 1e3 / flows_at(place.x), ..s.clone() };
        Place { x: place.x, samples: place.samples.iter().map(each).collect() }
    };
    let line =
        |s: &Series| Series { name: s.name.clone(), places: s.places.iter().map(place).collect() };
    series.iter().map(line).collect()
}

/// Fig. 6b: microseconds for each flow.
pub fn each_by_flows(series: &[Series]) -> Vec<Series> {
    for_each(series, |flows| flows)
}

pub fn judge_each_by_flows(series: &[Series]) -> (Verdict, String) {
    let of = |flows: f64| median(series, RATES[0].0, flows);
    let text = format!(
        "{:.1} µs a flow when 100 move, {:.1} when 10,000 do (total / flows; one flow alone: figure flows-move)",
        of(100.0),
        of(1e4)
    );
    (Verdict::DifferentSetUp, text)
}

/// Flows that Fig. 7 moves; its axis has up to so many at a time, in migrations of 500.
const SEVENTH: u32 = 6_000;
const MIGRATION: u32 = 500;
const AT_ONCE: [u16; 5] = [1, 2, 4, 8, 12];
const SEVEN: &str = "6,000 flows, 50 pps a flow";

/// Fig. 7a: milliseconds by how many flows migrate at a time.
pub fn moved_by_concurrency(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points = AT_ONCE.map(|n| {
        let (nf, how, each_pps) = (Nf::Chain, How::Each, 50);
        let case = Case { nf, how, flows: SEVENTH, each_pps, at_once: Some(n) };
        (SEVEN, f64::from(n) * f64::from(MIGRATION), case)
    });
    effort.round(&points, |case| moved(effort, case))
}

pub fn judge_moved_by_concurrency(series: &[Series]) -> (Verdict, String) {
    let of = |n: f64| median(series, SEVEN, n);
    let text = format!(
        "all 6,000 in {:.1} ms with 500 at a time, {:.1} with 1,000, {:.1} with 6,000",
        of(500.0),
        of(1e3),
        of(6e3)
    );
    (Verdict::DifferentSetUp, text)
}

/// Fig. 7b.
pub fn each_by_concurrency(series: &[Series]) -> Vec<Series> {
    for_each(series, |_| f64::from(SEVENTH))
}

pub fn judge_each_by_concurrency(series: &[Series]) -> (Verdict, String) {
    let of = |n: f64| median(series, SEVEN, n);
    let text = format!(
        "{:.1} µs a flow with 500 at a time, {:.1} with 6,000 (total / flows)",
        of(500.0),
        of(6e3)
    );
    (Verdict::DifferentSetUp, text)
}

/// Fig. 8's lines: by whom flows are moved, and how many packets a second each has.
const EIGHTH: [(&str, bool, u32); 6] = [
    ("Weir, 10 pps a flow", true, 10),
    ("OpenNF's manner (ours), 10 pps", false, 10),
    ("Weir, 50 pps a flow", true, 50),
    ("OpenNF's manner (ours), 50 pps", false, 50),
    ("Weir, 100 pps a flow", true, 100),
    ("OpenNF's manner (ours), 100 pps", false, 100),
];

/// Fig. 8: milliseconds until all flows have moved, by Weir and by a controller.
pub fn moved_by_a_controller(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> = EIGHTH
        .iter()
        .flat_map(|&(name, weir, pps)| COUNTS.map(|n| (name, f64::from(n), (weir, n, pps))))
        .collect();
    effort.round(&points, |(weir, flows, each_pps)| {
        if weir {
            let (nf, how) = (Nf::Monitor, How::Each);
            return moved(effort, Case { nf, how, flows, each_pps, at_once: None });
        }
        let measure = || Ok(controlled::measure(effort.sampling, flows, each_pps)?);
        let (took, trips) = effort.around(measure)?;
        Ok(Sample::of(ms(took), trips))
    })
}

pub fn judge_moved_by_a_controller(series: &[Series]) -> (Verdict, String) {
    let of = |at: usize, flows: u32| {
        median(series, EIGHTH.get(at).map_or("", |(name, ..)| name), f64::from(flows))
    };
    // How much less time Weir takes, in percent.
    let faster = |flows| (1.0 - of(0, flows) / of(1, flows)) * 100.0;
    let told = |flows: u32| {
        format!(
            "{flows} flows {:.2} and {:.2} ms ({:+.0} %)",
            of(0, flows),
            of(1, flows),
            -faster(flows)
        )
    };
    let text = format!(
        "Weir and the controller, at 10 packets a second for each flow: {}; at 100 {:.1} and {:.1} ms for 10,000 flows. The controller is ours, on the same server, and moves \
         all flows at once",
        COUNTS.map(told).join(", "),
        of(4, 10_000),
        of(5, 10_000)
    );
    // One server, and the controller is ours: it is not claimed to be reached.
    let holds = COUNTS.into_iter().all(|flows| faster(flows) > 50.0);
    (if holds { Verdict::DifferentSetUp } else { Verdict::Missed }, text)
}

const WITHOUT: &str = "without a replica";
const TENTH: &str = "a replica of every 10th packet";

/// Fig. 9a.
pub fn replicated(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let sampling = effort.sampling;
    let tenth = policy::parse_replicate("nf=every:10").ok().and_then(|(_, spec)| spec);
    let points: Vec<_> = [(WITHOUT, None), (TENTH, tenth)]
        .iter()
        .flat_map(|&(name, spec)| REPLICAS.map(|n| (name, f64::from(n), (spec, n))))
        .collect();
    let limit = || effort.echo(DeviceSpec::Listed(rates::source(128)));
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
    (Verdict::DifferentSetUp, text)
}

const FIRST: &str = "until the first packet";
const BACK: &str = "until all flows are back";
const READING: &str = "of it: reading the replica";
const KILLED: [u32; 3] = [1_000, 10_000, 60_000];

/// Fig. 9b: milliseconds from `kill -9` by flows of the worker.
pub fn recovered(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let sampling = effort.sampling;
    let plan = replication::plan(sampling)?;
    effort.round_of(&KILLED, |flows| {
        let source = DeviceSpec::Generator(GeneratorSpec { flows, ..GeneratorSpec::default() });
        let (all, trips) = effort.around(|| replication::recover(sampling, &plan, source, 1))?;
        let lines = all.iter().flat_map(|recovery| {
            let of = |name: &str, ms| (name.to_owned(), f64::from(flows), Sample::of(ms, trips));
            [
                of(FIRST, recovery.first_packet_ms),
                of(BACK, recovery.rejoined_ms),
                of(READING, recovery.reading_ms),
            ]
        });
        Ok(lines.collect())
    })
}

pub fn judge_recovered(series: &[Series]) -> (Verdict, String) {
    let of = |flows: f64| median(series, FIRST, flows);
    let text = format!(
        "from kill -9 to the first packet {:.1} ms with 1,000 flows, {:.1} with 10,000, {:.1} with 60,000 (aim: 10,000 in 100 ms), on one server",
        of(1e3),
        of(1e4),
        of(6e4)
    );
    (Verdict::DifferentSetUp, text)
}
