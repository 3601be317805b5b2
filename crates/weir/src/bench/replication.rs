//! `weir bench replication`: what a replica costs a chain that keeps flows, and how long a killed worker's flows are away.

mod delay;

use super::asked;
use super::flows::moves::MovingError;
use super::sample::{
    BenchError, Measured, SampleArgs, TrafficArgs, finish, prepare, print_regime, progress, spread,
    wait_until_ready, watch,
};
use crate::policy::{self, Consolidate};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::crews;
use weir_control::setup::{Setup, WorkerSetup};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, Event, FlowCount, Recovered, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::{Isolate, Plan};
use weir_runtime::layout::NodeCounts;
use weir_runtime::spec::ReplicateSpec;

/// Three NFs that remember flows, in one worker.
const POLICY: &str = "Port<0> lan; Port<1> wan;\n\
                      FlowMonitor mon; ConnTrack fw { pickup: true }; HttpParser http;\n\
                      pipelet { lan -> mon -> fw -> http -> wan; }\n";
const NFS: [&str; 3] = ["mon", "fw", "http"];

/// How long flows may take to be there, and a worker to come back.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long until a process is in reserve, at most.
const WAITS: Duration = Duration::from_secs(2);

/// How often is looked whether it is back.
const LOOK: Duration = Duration::from_micros(100);

/// Why a death gave no times.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotBack {
    #[error("before the kill {there} of {wanted} flows were there within {PATIENCE:?}")]
    NotThere { there: u64, wanted: u64 },
    #[error("the killed worker had no flow")]
    Idle,
    #[error("it was not back within {PATIENCE:?}")]
    Never,
    #[error("{flows} of {before} flows came back")]
    Fewer { flows: u64, before: u64 },
    #[error("it passed nothing on within {PATIENCE:?}")]
    Silent,
}

/// Measures what replication costs, and recovery.
#[derive(clap::Args)]
pub struct ReplicationArgs {
    /// Flows that packets are of, in turn, 1 to 1,048,576.
    #[arg(long, value_delimiter = ',', value_parser = asked::flows::<u32>, default_value = "128")]
    flows: Vec<u32>,
    /// Ways to replicate, each compared with none.
    #[arg(long, value_delimiter = ',', default_value = "batch,every:10")]
    modes: Vec<String>,
    /// Flows of the worker that is killed, 1 to 1,048,576.
    #[arg(long, default_value_t = 10_000, value_parser = asked::flows::<u32>)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Recovery {
    /// Flows that came back, of all three NFs.
    pub flows: u64,
    /// Milliseconds that reading the replica took.
    pub reading_ms: f64,
    /// From the kill until the agent heard that all flows were back.
    pub rejoined_ms: f64,
    /// From the kill until the successor had passed on its first packets, whoever had heard of its flows.
    pub first_packet_ms: f64,
}

/// All that was measured.
#[derive(Serialize)]
struct All {
    samples: Vec<Sample>,
    delays: Vec<delay::Delay>,
    recoveries: Vec<Recovery>,
    /// Deaths after which not all came back, and why.
    not_back: Vec<String>,
}

pub fn main(args: &ReplicationArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &ReplicationArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.traffic.sampling.device_core, args.traffic.sampling.chain_core])?;
    let (own, shared) = (args.traffic.sampling.chain_core, args.traffic.sampling.device_core);
    crate::say::print_line!(
        "FlowMonitor, ConnTrack and HttpParser in one worker on core {own}, generator and sink on core {shared}; {}-byte \
         TCP segments, each an HTTP request, ring {}, pool {}",
        generator(args, 1).longest(),
        args.traffic.sampling.ring,
        args.traffic.sampling.pool
    );
    let plan = plan(&args.traffic.sampling)?;
    let mut modes = vec![("none".to_owned(), None)];
    for mode in &args.modes {
        let (_, spec) = policy::parse_replicate(&format!("nf={mode}"))
            .map_err(|why| BenchError::Option { given: mode.clone(), why })?;
        modes.push((mode.clone(), spec.map(|own| own.spec)));
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
    let sampling = &args.traffic.sampling;
    let delays = delay::measure(sampling, &plan, &modes, sampling.samples)?;
    delay::print_table(&modes, &delays);
    let flows = args.recover;
    let source = source(args, flows);
    let died = recover(sampling, &plan, source, flows.into(), sampling.samples)?;
    let (mut recoveries, mut not_back) = (Vec::new(), Vec::new());
    for death in died.all {
        match death {
            Ok(recovery) => recoveries.push(recovery),
            Err(why) => not_back.push(why.to_string()),
        }
    }
    print_recoveries(&recoveries);
    not_back.iter().for_each(|why| crate::say::print_line!("and one death without times: {why}"));
    args.traffic.write(&machine, &[All { samples, delays, recoveries, not_back }])
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
    DeviceSpec::Generator(generator(args, flows))
}

fn generator(args: &ReplicationArgs, flows: u32) -> GeneratorSpec {
    GeneratorSpec { flows, http: true, ..args.traffic.generator() }
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
    crate::say::print_line!(
        "Mpps, min / median / max of all samples; part of what there is without a replica"
    );
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
            crate::say::print_line!(
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
    crate::say::print_line!(
        "kill -9 with {} flows in three NFs: {} ms until the first packet (min / median / max), {} ms until all flows are back, {} ms of \
         it for reading",
        show(|r| r.flows as f64 / NFS.len() as f64),
        show(|r| r.first_packet_ms),
        show(|r| r.rejoined_ms),
        show(|r| r.reading_ms)
    );
}

/// Deaths, one after the other.
pub struct Recoveries {
    pub all: Vec<Result<Recovery, NotBack>>,
    /// The real-time class was wanted, and no worker was in it.
    pub withheld: bool,
}

/// Kills the worker `times` times, each time when all of `flows` are there, or until it does not come back with all that it had.
pub fn recover(
    sampling: &SampleArgs,
    plan: &Plan,
    source: DeviceSpec,
    flows: u64,
    times: usize,
) -> Result<Recoveries, BenchError> {
    let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
    let replicate = all(Some(ReplicateSpec::Batch));
    let options = RunOptions { replicate, ..sampling.options() };
    let setup = wiring::wire(plan, &binds, &BTreeMap::new(), &options)?;
    let policy =
        RestartPolicy { delay: Duration::ZERO, longest: Duration::ZERO, ..Default::default() };
    let mut agent = Agent::start(setup, policy)?;
    let count = agent.setup().workers.len();
    let real_time = wait_until_ready(&mut agent, count)?;
    let mut all = Vec::new();
    for i in 0..times {
        progress(&format!("recovery {} of {times}", i + 1));
        let back = die(&mut agent, flows)?;
        let is_back = back.is_ok();
        all.push(back);
        if !is_back {
            break;
        }
    }
    progress("");
    Ok(Recoveries { all, withheld: options.real_time && !real_time })
}

/// Of several replicas the first: its worker, and its number among them.
fn victim(setup: &Setup) -> (usize, Option<u32>) {
    let at = |worker: &WorkerSetup| worker.nodes.iter().position(|node| node.name == NFS[0]);
    let found = setup.workers.iter().enumerate().find_map(|(w, worker)| Some((w, at(worker)?)));
    let (w, node) = found.unwrap_or_default();
    let node = u16::try_from(node).unwrap_or(u16::MAX);
    let crews = crews::of(setup).into_iter().flatten();
    let replica = crews.filter_map(|crew| crew.replica_at(w, node)).next();
    (w, replica.and_then(|replica| u32::try_from(replica + 1).ok()))
}

/// Waits until all three NFs remember all flows; how many the victim does.
fn remembered(
    agent: &mut Agent,
    instance: Option<u32>,
    flows: u64,
) -> Result<Result<u64, NotBack>, BenchError> {
    let (end, wanted) = (Instant::now() + PATIENCE, flows * NFS.len() as u64);
    loop {
        let listed = list(agent, end)?;
        let of = |instance: Option<u32>| {
            let counts =
                listed.iter().filter(|count| instance.is_none() || count.instance == instance);
            counts.map(|count| count.flows).sum::<u64>()
        };
        let there = of(None);
        if there >= wanted {
            return Ok(Ok(of(instance)));
        }
        if Instant::now() > end {
            return Ok(Err(NotBack::NotThere { there, wanted }));
        }
        watch(agent, Duration::from_millis(50))?;
    }
}

/// How many flows each NF has, by instance.
fn list(agent: &mut Agent, end: Instant) -> Result<Vec<FlowCount>, BenchError> {
    let asked = agent.list_flows(None, None, 0).map_err(MovingError::from)?;
    while Instant::now() < end {
        agent.turn(Duration::from_millis(10))?;
        while let Some(event) = agent.event() {
            if let Event::FlowsListed { ticket, listed } = event
                && ticket == asked
            {
                return Ok(listed.counts);
            }
        }
    }
    Ok(Vec::new())
}

/// Kills the victim once.
fn die(agent: &mut Agent, flows: u64) -> Result<Result<Recovery, NotBack>, BenchError> {
    let (w, instance) = victim(agent.setup());
    let before = match remembered(agent, instance, flows)? {
        Ok(before) => before,
        Err(why) => return Ok(Err(why)),
    };
    // What the question has held up is over, and the agent has a successor waiting, as it mostly has.
    watch(agent, Duration::from_millis(50))?;
    let end = Instant::now() + WAITS;
    while !agent.has_reserve(w) && Instant::now() < end {
        watch(agent, Duration::from_millis(10))?;
    }
    let pid = agent.pid(w).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let Some(pid) = pid else { return Ok(Err(NotBack::Never)) };
    while agent.event().is_some() {}
    let killed = Instant::now();
    let _ = kill_process(pid, Signal::KILL);
    // From here on it passes nothing on. To wait until it is gone would hide what the agent knows before.
    while !agent.has_rung(w) && killed.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    // Its own count: what came out at the end may have been another's, or have waited in the rings.
    let passed = |agent: &Agent| match (agent.words(w), agent.layout(w)) {
        (Some(words), Some(layout)) => NodeCounts::read(&words, &layout, 0).packets,
        _ => 0,
    };
    let last = passed(agent);
    let (mut back, mut first) = (None, None);
    while (back.is_none() || first.is_none()) && killed.elapsed() < PATIENCE {
        agent.turn(LOOK)?;
        if first.is_none() && passed(agent) > last {
            first = Some(killed.elapsed());
        }
        while let Some(event) = agent.event() {
            match event {
                Event::Recovered { worker, recovered } if worker == w => {
                    back = Some((recovered, killed.elapsed()));
                }
                _ => {}
            }
        }
    }
    Ok(judge(before, back, first))
}

/// What a death has shown.
fn judge(
    before: u64,
    back: Option<(Recovered, Duration)>,
    first: Option<Duration>,
) -> Result<Recovery, NotBack> {
    if before == 0 {
        return Err(NotBack::Idle);
    }
    let (recovered, rejoined) = back.ok_or(NotBack::Never)?;
    let flows = recovered.flows;
    if flows < before {
        return Err(NotBack::Fewer { flows, before });
    }
    let first = first.ok_or(NotBack::Silent)?;
    Ok(Recovery {
        flows,
        reading_ms: recovered.reading_us as f64 / 1e3,
        rejoined_ms: rejoined.as_secs_f64() * 1e3,
        first_packet_ms: first.as_secs_f64() * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_a_sample_only_when_all_flows_and_packets_are_back() {
        let ms = Duration::from_millis;
        let back = |flows| Some((Recovered { flows, ..Recovered::default() }, ms(9)));
        let whole = judge(30, back(30), Some(ms(7))).unwrap();
        // Each by itself: the first packet may be through before the agent has heard of the flows.
        assert_eq!((whole.rejoined_ms, whole.first_packet_ms), (9.0, 7.0));
        assert_eq!(judge(30, back(29), Some(ms(7))), Err(NotBack::Fewer { flows: 29, before: 30 }));
        assert_eq!(judge(30, None, Some(ms(7))), Err(NotBack::Never));
        assert_eq!(judge(0, back(0), Some(ms(7))), Err(NotBack::Idle), "of nothing all is back");
        assert_eq!(judge(30, back(30), None), Err(NotBack::Silent));
    }
}
