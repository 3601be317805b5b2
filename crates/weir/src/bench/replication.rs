//! `weir bench replication`: what a replica costs a chain that keeps flows, and how long a killed worker's flows are away.

use super::sample::{
    BenchError, Measured, SampleArgs, TrafficArgs, finish, prepare, print_regime, progress, spread,
    wait_until_ready, watch,
};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, Event, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::{Isolate, Plan};
use weir_runtime::layout::NodeCounts;
use weir_runtime::spec::ReplicateSpec;

/// Three NFs that remember flows, in one worker.
const POLICY: &str = "Port<0> lan; Port<1> wan; FlowMonitor mon; ConnTrack fw; HttpParser http;\n\
                      pipelet { lan -> mon -> fw -> http -> wan; }\n";
const NFS: [&str; 3] = ["mon", "fw", "http"];

/// How long a worker may take to come back.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures what replication costs, and recovery.
#[derive(clap::Args)]
pub struct ReplicationArgs {
    /// Flows that packets are of, in turn.
    #[arg(long, value_delimiter = ',', default_value = "128")]
    flows: Vec<u32>,
    /// Ways to replicate, each compared with none.
    #[arg(long, value_delimiter = ',', default_value = "batch,every:10")]
    modes: Vec<String>,
    /// Flows of the worker that is killed.
    #[arg(long, default_value_t = 10_000)]
    recover: u32,
    #[command(flatten)]
    traffic: TrafficArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    flows: u32,
    mode: String,
    #[serde(flatten)]
    measured: Measured,
}

/// One death.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Recovery {
    /// Flows that came back.
    pub flows: u64,
    /// Milliseconds that reading the replica took.
    pub reading_ms: f64,
    /// From the kill until all flows were back.
    pub rejoined_ms: f64,
    /// From the kill until the successor had passed on its first packets.
    pub first_packet_ms: f64,
}

impl Recovery {
    const NEVER: Recovery = {
        let ms = PATIENCE.as_millis() as f64;
        Recovery { flows: 0, reading_ms: ms, rejoined_ms: ms, first_packet_ms: ms }
    };
}

/// All that was measured.
#[derive(Serialize)]
struct All {
    samples: Vec<Sample>,
    recoveries: Vec<Recovery>,
}

pub fn main(args: &ReplicationArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &ReplicationArgs) -> Result<(), BenchError> {
    let machine = prepare()?;
    let (own, shared) = (args.traffic.sampling.chain_core, args.traffic.sampling.device_core);
    println!(
        "FlowMonitor, ConnTrack and HttpParser in one worker on core {own}, generator and sink on core {shared}; {}-byte \
         packets, ring {}, pool {}",
        args.traffic.size, args.traffic.sampling.ring, args.traffic.sampling.pool
    );
    let plan = plan(&args.traffic.sampling)?;
    let mut modes = vec![("none".to_owned(), None)];
    for mode in &args.modes {
        let (_, spec) = policy::parse_replicate(&format!("nf={mode}"))
            .map_err(|why| BenchError::Option { given: mode.clone(), why })?;
        modes.push((mode.clone(), spec));
    }
    let mut samples = Vec::new();
    for i in 0..args.traffic.sampling.samples {
        for &flows in &args.flows {
            for (mode, spec) in &modes {
                progress(&format!("round {} of {}: {mode}", i + 1, args.traffic.sampling.samples));
                let options =
                    RunOptions { replicate: all(*spec), ..args.traffic.sampling.options() };
                let measured =
                    args.traffic.sampling.run_with(&plan, source(args, flows), &options)?;
                samples.push(Sample { flows, mode: mode.clone(), measured });
            }
        }
    }
    progress("");
    print_table(args, &modes, &samples);
    let recoveries = recover(
        &args.traffic.sampling,
        &plan,
        source(args, args.recover),
        args.traffic.sampling.samples,
    )?;
    print_recoveries(&recoveries);
    args.traffic.write(&machine, &[All { samples, recoveries }])
}

/// The three NFs in one worker.
pub fn plan(sampling: &SampleArgs) -> Result<Plan, BenchError> {
    let loaded = policy::from_text(POLICY, "(bench)")?;
    let cores = vec![sampling.device_core, sampling.chain_core];
    let path = Path::new("(bench)");
    let (isolate, consolidate) = (Isolate::None, Consolidate::Off);
    Ok(policy::plan(&loaded.graph, path, isolate, Some(cores), &[], consolidate)?)
}

fn source(args: &ReplicationArgs, flows: u32) -> DeviceSpec {
    DeviceSpec::Generator(GeneratorSpec { flows, ..args.traffic.generator() })
}

/// Replicates all three NFs.
pub fn all(spec: Option<ReplicateSpec>) -> BTreeMap<String, ReplicateSpec> {
    NFS.iter().filter_map(|nf| Some(((*nf).to_owned(), spec?))).collect()
}

fn print_table(
    args: &ReplicationArgs,
    modes: &[(String, Option<ReplicateSpec>)],
    samples: &[Sample],
) {
    print_regime(samples.iter().map(|s| &s.measured));
    println!("Mpps, min / median / max of all samples; part of what there is without a replica");
    let show = |spread: Option<[f64; 3]>, digits: usize| match spread {
        Some([a, b, c]) => format!("{a:.digits$} / {b:.digits$} / {c:.digits$}"),
        None => "-".into(),
    };
    for &flows in &args.flows {
        for (at, (mode, _)) in modes.iter().enumerate() {
            // Rounds, so that what the machine does meanwhile strikes all of one alike.
            let rounds = samples.chunks_exact(modes.len());
            let rounds = rounds.filter(|round| round.iter().all(|s| s.flows == flows));
            let mpps = rounds.clone().filter_map(|r| Some(r.get(at)?.measured.mpps));
            let parts =
                rounds.filter_map(|r| Some(r.get(at)?.measured.mpps / r.first()?.measured.mpps));
            println!(
                "{flows:>9} flows  {mode:>10}  {:^24}  {}",
                show(spread(mpps.collect()), 3),
                show(spread(parts.collect()), 3)
            );
        }
    }
}

fn print_recoveries(recoveries: &[Recovery]) {
    let show = |of: fn(&Recovery) -> f64| match spread(recoveries.iter().map(of).collect()) {
        Some([a, b, c]) => format!("{a:.2} / {b:.2} / {c:.2}"),
        None => "-".into(),
    };
    println!(
        "kill -9 with {} flows in three NFs: {} ms until the first packet (min / median / max), {} ms until all flows are back, {} ms of \
         it for reading",
        show(|r| r.flows as f64 / NFS.len() as f64),
        show(|r| r.first_packet_ms),
        show(|r| r.rejoined_ms),
        show(|r| r.reading_ms)
    );
}

/// Kills the worker `times` times, when it has had time to see all flows.
pub fn recover(
    sampling: &SampleArgs,
    plan: &Plan,
    source: DeviceSpec,
    times: usize,
) -> Result<Vec<Recovery>, BenchError> {
    let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
    let replicate = all(Some(ReplicateSpec::Batch));
    let options = RunOptions { replicate, ..sampling.options() };
    let setup = wiring::wire(plan, &binds, &BTreeMap::new(), &options)?;
    let policy =
        RestartPolicy { delay: Duration::ZERO, longest: Duration::ZERO, ..Default::default() };
    let mut agent = Agent::start(setup, policy)?;
    let workers = &agent.setup().workers;
    // Of several replicas the first.
    let victim = workers.iter().position(|w| w.nodes.iter().any(|node| node.name == NFS[0]));
    let (count, w) = (workers.len(), victim.unwrap_or(0));
    wait_until_ready(&mut agent, count)?;
    let mut all = Vec::new();
    for i in 0..times {
        progress(&format!("recovery {} of {times}", i + 1));
        watch(&mut agent, Duration::from_millis(300))?;
        // One that does not come back counts as one that took as long as it was waited for.
        all.push(kill(&mut agent, w)?.unwrap_or(Recovery::NEVER));
    }
    progress("");
    Ok(all)
}

/// Kills worker `w` once; `None` when it does not come back in time.
fn kill(agent: &mut Agent, w: usize) -> Result<Option<Recovery>, BenchError> {
    let pid = agent.pid(w).and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
    let Some(pid) = pid else { return Ok(None) };
    while agent.event().is_some() {}
    let killed = Instant::now();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    let mut found = None;
    while found.is_none() && killed.elapsed() < PATIENCE {
        agent.turn(Duration::from_millis(1))?;
        while let Some(event) = agent.event() {
            if let Event::Recovered { recovered, .. } = event {
                found = Some((recovered, killed.elapsed()));
            }
        }
    }
    let Some((found, rejoined)) = found else { return Ok(None) };
    let seen = |agent: &Agent| match (agent.words(w), agent.layout(w)) {
        (Some(words), Some(layout)) => NodeCounts::read(&words, &layout, 0).packets,
        _ => 0,
    };
    // It was ready a moment ago: its first batch may be through already, so this is no less than it took.
    let before = seen(agent);
    while seen(agent) == before && killed.elapsed() < PATIENCE {
        agent.turn(Duration::from_micros(50))?;
    }
    Ok(Some(Recovery {
        flows: found.flows,
        reading_ms: found.reading_us as f64 / 1e3,
        rejoined_ms: rejoined.as_secs_f64() * 1e3,
        first_packet_ms: killed.elapsed().as_secs_f64() * 1e3,
    }))
}
