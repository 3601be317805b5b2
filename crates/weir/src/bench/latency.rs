//! `weir bench latency`: one packet at a time through n MacSwaps on one core, isolated and fused
//! alternating. This process plays the source and the sink on the other core, stepping the very
//! services that workers run; everything between them is workers as `weir run` starts them.

mod bare;
pub mod proc;

use super::asked;
use super::chain_policy;
use super::files::write_json;
use super::machine::{Machine, pin};
use super::mood::round_trip;
use super::sample::{
    BenchError, delivered, finish, prepare, progress, show, spread, wait_until_ready, watch,
};
use crate::policy::{self, Consolidate};
use bare::{Wake, wakes};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::inline::InlineError;
use weir_control::setup::Setup;
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::{DeviceSpec, ListedFlow, ListedSpec};
use weir_plan::{Isolate, Plan};
use weir_runtime::spec::EndSpec;
use weir_runtime::worker::WorkerError;

/// Packets before those that count, at least.
const WARM_UP: usize = 200;
/// How long packets run before those that count: workers come to rest in an order
/// meanwhile (polling only).
const SETTLE: Duration = Duration::from_millis(300);
/// Between two turns of the agent, which asks workers for signs of life: so many packets, or so long.
const TURN: (usize, Duration) = (64, Duration::from_millis(100));
/// A packet that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(10);
/// From the last packet to the window in which an idle graph's processor time is counted.
const QUIET: Duration = Duration::from_secs(1);
/// That window.
const WINDOW: Duration = Duration::from_secs(2);

/// Measures the latency of chains of MacSwap.
#[derive(clap::Args)]
pub struct LatencyArgs {
    /// Chain length, 1 to 300.
    #[arg(long, default_value_t = 4, value_parser = asked::length)]
    length: usize,
    /// Packets per kind and round, 1 to 1,000,000.
    #[arg(long, default_value_t = 2000, value_parser = asked::within(1_usize, 1_000_000))]
    samples: usize,
    /// Rounds, 1 to 10,000; workers are started anew in each.
    #[arg(long, default_value_t = 5, value_parser = asked::times)]
    rounds: usize,
    /// Writes the figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Core of source and sink.
    #[arg(long, default_value_t = 0)]
    device_core: usize,
    /// Core of the chain.
    #[arg(long, default_value_t = 1)]
    chain_core: usize,
    /// Leaves the real-time class out.
    #[arg(long)]
    no_real_time: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    #[error(transparent)]
    Host(#[from] InlineError),
    #[error(transparent)]
    Step(#[from] WorkerError),
    #[error(transparent)]
    Doorbell(#[from] weir_port::DoorbellError),
    #[error("{0} did not answer within {PATIENCE:?}")]
    Stuck(&'static str),
    #[error("a worker without packets does not go to sleep")]
    Awake,
}

/// What was measured of one kind.
#[derive(Serialize)]
struct Kind {
    name: &'static str,
    /// Nanoseconds of each packet or wake-up, by round.
    #[serde(skip)]
    rounds: Vec<Vec<u64>>,
    /// Minimum, median, 99th percentile and maximum of all rounds, in nanoseconds.
    ns: [u64; 4],
    /// The median of each round, in nanoseconds.
    medians_ns: Vec<u64>,
}

#[derive(Serialize)]
struct Results<'r> {
    machine: &'r Machine,
    length: usize,
    samples: usize,
    kinds: &'r [Kind],
    round_trip_ns: &'r [f64],
    /// Processor time of the idle graph and its agent, isolated and fused, as a part of one core.
    idle_share: [f64; 2],
}

pub fn main(args: &LatencyArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &LatencyArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.device_core, args.chain_core])?;
    crate::say::print_line!(
        "one packet at a time through MacSwap x {} on core {}, source and sink on core {}",
        args.length,
        args.chain_core,
        args.device_core
    );
    let names = [
        "isolated, polling",
        "fused, polling",
        "isolated, from sleep",
        "fused, from sleep",
        "futex wake",
        "eventfd wake",
    ];
    let mut kinds =
        names.map(|name| Kind { name, rounds: Vec::new(), ns: [0; 4], medians_ns: Vec::new() });
    let mut trips = Vec::new();
    let real_time = !args.no_real_time;
    for round in 1..=args.rounds.max(1) {
        trips.push(round_trip(args.device_core, args.chain_core));
        for (i, kind) in kinds.iter_mut().enumerate() {
            progress(&format!("round {round} of {}: {}", args.rounds.max(1), kind.name));
            let _pinned = pin(args.device_core);
            kind.rounds.push(match i {
                4 => wakes(Wake::Futex, args.chain_core, args.samples, real_time)?,
                5 => wakes(Wake::Doorbell, args.chain_core, args.samples, real_time)?,
                _ => packets(args, i % 2 == 0, i >= 2)?,
            });
        }
        trips.push(round_trip(args.device_core, args.chain_core));
    }
    progress("the idle graph");
    let idle_share = [idle(args, true)?, idle(args, false)?];
    progress("");
    for kind in &mut kinds {
        kind.medians_ns = kind.rounds.iter().map(|r| percentiles(r.clone())[1]).collect();
        kind.ns = percentiles(kind.rounds.concat());
    }
    print_table(&kinds, &trips, idle_share);
    if let Some(path) = &args.json {
        let (length, samples) = (args.length, args.samples);
        let (kinds, round_trip_ns) = (&kinds, &trips);
        let machine = &machine;
        write_json(path, &Results { machine, length, samples, kinds, round_trip_ns, idle_share })?;
    }
    Ok(())
}

/// What is to run: a chain behind a source that gives one packet at a time, `packets` in all, and is
/// quiet afterwards.
fn setup(
    args: &LatencyArgs,
    isolated: bool,
    busy: bool,
    packets: Option<u64>,
) -> Result<Setup, BenchError> {
    let isolate = if isolated { Isolate::Each } else { Isolate::None };
    let cores = vec![args.device_core, args.chain_core];
    let loaded = policy::from_text(&chain_policy(args.length), "(bench)")?;
    let plan = policy::plan(
        &loaded.graph,
        Path::new("(bench)"),
        isolate,
        Some(cores),
        &[],
        Consolidate::Off,
    )?;
    let options = RunOptions { busy, real_time: !args.no_real_time, ..RunOptions::default() };
    one_by_one(&plan, &options, packets, 1)
}

/// What is to run of a plan behind a source that gives `burst` packets at a time.
pub fn one_by_one(
    plan: &Plan,
    options: &RunOptions,
    packets: Option<u64>,
    burst: u64,
) -> Result<Setup, BenchError> {
    let flow = ListedFlow {
        source: [192, 0, 2, 1].into(),
        destination: [198, 51, 100, 1].into(),
        proto: 17,
        ports: (1024, 53),
    };
    let source = ListedSpec {
        flows: vec![flow],
        payloads: Vec::new(),
        size: 60,
        packets,
        burst: Some(burst),
        stays: true,
        shuffled: false,
    };
    let binds = BTreeMap::from([(0, DeviceSpec::Listed(source)), (1, DeviceSpec::Null)]);
    Ok(wiring::wire(plan, &binds, &BTreeMap::new(), options)?)
}

/// Nanoseconds from just before the source takes its step until the sink has the packet; the next
/// packet is sent when the last has come out. `from_sleep`: and when all workers sleep.
fn packets(args: &LatencyArgs, isolated: bool, from_sleep: bool) -> Result<Vec<u64>, BenchError> {
    let setup = setup(args, isolated, !from_sleep, None)?;
    Ok(each_burst(setup, args.samples, from_sleep, false, 1)?.ns)
}

/// How long bursts took.
pub struct Bursts {
    /// Nanoseconds of each.
    pub ns: Vec<u64>,
    /// Whether a worker was in the real-time class.
    pub real_time: bool,
}

/// The same for whatever is to run, and for `burst` packets at a time: until the last of them has come
/// out. `shares`: source and sink leave their core to workers while they wait.
pub fn each_burst(
    setup: Setup,
    samples: usize,
    from_sleep: bool,
    shares: bool,
    burst: u64,
) -> Result<Bursts, BenchError> {
    let of_device = |end: &EndSpec| matches!(end, EndSpec::Rx { .. } | EndSpec::Tx { .. });
    let chain: Vec<_> = (0..setup.workers.len())
        .filter(|&w| setup.workers.get(w).is_some_and(|w| !of_device(&w.end)))
        .collect();
    let last = setup.workers.len() - 1;
    let mut agent = Agent::start_hosting(setup, RestartPolicy::default(), |w| of_device(&w.end))?;
    let real_time = wait_until_ready(&mut agent, chain.len())?;
    let mut source = agent.stepper(0).map_err(LatencyError::from)?;
    let mut sink = agent.stepper(last).map_err(LatencyError::from)?;
    let stat = |pid| PathBuf::from(format!("/proc/{pid}/stat"));
    let stats: Vec<_> = chain.iter().filter_map(|w| agent.pid(*w)).map(stat).collect();
    let mut took = Vec::with_capacity(samples);
    let begun = Instant::now();
    let mut turned = begun;
    let mut i = 0;
    while took.len() < samples {
        i += 1;
        if i % TURN.0 == 0 || turned.elapsed() > TURN.1 {
            agent.turn(Duration::ZERO)?;
            turned = Instant::now();
        }
        if from_sleep {
            stats.iter().try_for_each(|stat| proc::wait_asleep(stat))?;
        }
        let before = sink.packets();
        let start = Instant::now();
        source.step().map_err(LatencyError::from)?;
        let mut elapsed = start.elapsed();
        while sink.packets() < before + burst {
            if shares {
                std::thread::yield_now();
            }
            sink.step().map_err(LatencyError::from)?;
            elapsed = start.elapsed();
            if elapsed > PATIENCE {
                return Err(LatencyError::Stuck("the chain").into());
            }
        }
        if i > WARM_UP && (from_sleep || begun.elapsed() > SETTLE) {
            took.push(elapsed.as_nanos() as u64);
        }
    }
    Ok(Bursts { ns: took, real_time })
}

/// Processor time of all workers and of the agent in a window that begins a second after the last
/// packet, as a part of one core.
fn idle(args: &LatencyArgs, isolated: bool) -> Result<f64, BenchError> {
    const PACKETS: u64 = 1000;
    let setup = setup(args, isolated, false, Some(PACKETS))?;
    let workers = setup.workers.len();
    let mut agent = Agent::start(setup, RestartPolicy::default())?;
    wait_until_ready(&mut agent, workers)?;
    let end = Instant::now() + PATIENCE;
    while delivered(&agent, workers - 1)? < PACKETS {
        agent.turn(Duration::from_millis(1))?;
        if Instant::now() > end {
            return Err(LatencyError::Stuck("the chain").into());
        }
    }
    watch(&mut agent, QUIET)?;
    let spent = |agent: &Agent| {
        let of_workers = (0..workers).filter_map(|w| proc::spent(agent.pid(w)?));
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
        of_workers.sum::<Duration>() + own
    };
    let (start, before) = (Instant::now(), spent(&agent));
    watch(&mut agent, WINDOW)?;
    let cost = spent(&agent).saturating_sub(before);
    Ok(cost.as_secs_f64() / start.elapsed().as_secs_f64())
}

/// Minimum, median, 99th percentile and maximum.
pub fn percentiles(mut values: Vec<u64>) -> [u64; 4] {
    values.sort_unstable();
    let at = |percent: usize| {
        values.get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
    };
    [0, 50, 99, 100].map(|percent| at(percent).copied().unwrap_or(0))
}

fn print_table(kinds: &[Kind], trips: &[f64], [isolated, fused]: [f64; 2]) {
    crate::say::print_line!(
        "core-to-core round trip, ns: {} (min / median / max)",
        show(spread(trips.to_vec()))
    );
    crate::say::print_line!(
        "µs                        min     p50     p99      max   medians of the rounds"
    );
    for kind in kinds {
        let us = |ns: u64| ns as f64 / 1e3;
        let [min, median, p99, max] = kind.ns.map(us);
        let medians = show(spread(kind.medians_ns.iter().map(|ns| us(*ns)).collect()));
        crate::say::print_line!(
            "{:<22}{min:>7.1} {median:>7.1} {p99:>7.1} {max:>8.1}   {medians}",
            kind.name
        );
    }
    crate::say::print_line!(
        "processor time 1 s after the last packet, agent included, of one core: isolated {:.2} %, fused {:.2} %",
        isolated * 100.0,
        fused * 100.0
    );
}

#[cfg(test)]
mod tests {
    use super::percentiles;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(percentiles((1..=200).rev().collect()), [1, 101, 199, 200]);
        assert_eq!(percentiles(vec![7]), [7; 4]);
        assert_eq!(percentiles(vec![]), [0; 4]);
    }
}
