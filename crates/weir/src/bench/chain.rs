//! `weir bench chain`: n MacSwaps on one core, generator and sink on the other, isolated and fused
//! alternating.

use super::chain_policy;
use super::machine::{Machine, round_trip};
use crate::{FAILED, policy};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions, WiringError};
use weir_control::{Agent, AgentError, Event, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::Isolate;
use weir_runtime::layout::NodeCounts;

/// Samples count as taken in the fast regime up to this round trip, in nanoseconds.
const FAST_NS: f64 = 130.0;

/// Measures chains of MacSwap.
#[derive(clap::Args)]
pub struct ChainArgs {
    /// Chain lengths.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,6,8")]
    length: Vec<usize>,
    /// Samples of each kind and length.
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Seconds per sample, after a warm-up of half of it.
    #[arg(long, default_value_t = 0.6)]
    seconds: f64,
    /// Bytes per packet.
    #[arg(long, default_value_t = 64)]
    size: u16,
    /// Entries of each ring.
    #[arg(long, default_value_t = 2048)]
    ring: u32,
    /// Buffers of the pool.
    #[arg(long, default_value_t = 8192)]
    pool: u32,
    /// Core of generator and sink.
    #[arg(long, default_value_t = 0)]
    device_core: usize,
    /// Core of the chain.
    #[arg(long, default_value_t = 1)]
    chain_core: usize,
    /// Leaves the real-time class out.
    #[arg(long)]
    no_real_time: bool,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Policy(#[from] policy::PolicyFailure),
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("this machine has one core; the measurement needs two")]
    OneCore,
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    length: usize,
    isolated: bool,
    mpps: f64,
    /// Round trips before and after, in nanoseconds.
    round_trip_ns: [f64; 2],
    real_time: bool,
}

impl Sample {
    fn is_fast(&self) -> bool {
        self.round_trip_ns.iter().all(|r| *r <= FAST_NS)
    }
}

#[derive(Serialize)]
struct Results<'r> {
    machine: &'r Machine,
    size: u16,
    ring: u32,
    pool: u32,
    samples: &'r [Sample],
}

pub fn main(args: &ChainArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            crate::complain!("weir bench: {e}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(args: &ChainArgs) -> Result<(), BenchError> {
    let machine = Machine::prepare();
    if machine.cores < 2 {
        return Err(BenchError::OneCore);
    }
    println!(
        "{}, {} cores, kernel {}{}",
        machine.processor,
        machine.cores,
        machine.kernel,
        if machine.favoured {
            ""
        } else {
            "; not permitted to go before other sessions: expect noise"
        }
    );
    println!(
        "MacSwap x n on core {}, generator and sink on core {}; {}-byte packets, buffers from the pool \
         and back, ring {}, pool {}",
        args.chain_core, args.device_core, args.size, args.ring, args.pool
    );
    let mut samples = Vec::new();
    for i in 0..args.samples {
        for &length in &args.length {
            // Alternating, so that what the machine does meanwhile strikes both alike.
            for isolated in [true, false] {
                progress(&format!("round {} of {}: n = {length}", i + 1, args.samples));
                samples.push(sample(args, length, isolated)?);
            }
        }
    }
    progress("");
    print_table(args, &samples);
    if let Some(path) = &args.json {
        let (size, ring, pool) = (args.size, args.ring, args.pool);
        let results = Results { machine: &machine, size, ring, pool, samples: &samples };
        let text = serde_json::to_string_pretty(&results).unwrap_or_default();
        std::fs::write(path, text)
            .map_err(|source| BenchError::Write { path: path.clone(), source })?;
    }
    Ok(())
}

fn sample(args: &ChainArgs, length: usize, isolated: bool) -> Result<Sample, BenchError> {
    let cores = vec![args.device_core, args.chain_core];
    let before = round_trip(args.device_core, args.chain_core);
    let loaded = policy::from_text(&chain_policy(length), "(bench)")?;
    let isolate = if isolated { Isolate::Each } else { Isolate::None };
    let plan = policy::plan(&loaded.graph, Path::new("(bench)"), isolate, Some(cores))?;
    let generator = GeneratorSpec { size: args.size, ..GeneratorSpec::default() };
    let binds = BTreeMap::from([(0, DeviceSpec::Generator(generator)), (1, DeviceSpec::Null)]);
    let options = RunOptions {
        ring: args.ring,
        pool: Some(args.pool),
        real_time: !args.no_real_time,
        ..RunOptions::default()
    };
    let setup = wiring::wire(&plan, &binds, &BTreeMap::new(), &options)?;
    let sink = setup.workers.len() - 1;
    let mut agent = Agent::start(setup, RestartPolicy::default())?;
    let mut real_time = false;
    let mut waiting = agent.setup().workers.len();
    while waiting > 0 {
        agent.turn(Duration::from_millis(100))?;
        while let Some(event) = agent.event() {
            if let Event::Ready { real_time: granted, .. } = event {
                real_time |= granted;
                waiting -= 1;
            }
        }
    }
    let span = Duration::from_secs_f64(args.seconds.clamp(0.05, 60.0));
    watch(&mut agent, span / 2)?;
    let (start, from) = (Instant::now(), delivered(&agent, sink));
    watch(&mut agent, span)?;
    let (took, to) = (start.elapsed(), delivered(&agent, sink));
    drop(agent);
    let after = round_trip(args.device_core, args.chain_core);
    let mpps = to.saturating_sub(from) as f64 / took.as_secs_f64() / 1e6;
    Ok(Sample { length, isolated, mpps, round_trip_ns: [before, after], real_time })
}

fn watch(agent: &mut Agent, span: Duration) -> Result<(), AgentError> {
    let end = Instant::now() + span;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        agent.turn(left)?;
    }
}

fn delivered(agent: &Agent, sink: usize) -> u64 {
    match (agent.words(sink), agent.layout(sink)) {
        (Some(words), Some(layout)) => NodeCounts::read(&words, &layout, 0).packets,
        _ => 0,
    }
}

/// One line that is written over, on a terminal only.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }
}

/// Minimum, median and maximum.
fn spread(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, *values.get(values.len() / 2)?, *values.last()?])
}

fn print_table(args: &ChainArgs, samples: &[Sample]) {
    let fast: Vec<&Sample> = samples.iter().filter(|s| s.is_fast()).collect();
    let trips = spread(samples.iter().flat_map(|s| s.round_trip_ns).collect());
    if let Some([least, median, most]) = trips {
        println!(
            "core-to-core round trip {least:.0} / {median:.0} / {most:.0} ns (min/median/max); \
             {} of {} samples in the fast regime (≤ {FAST_NS:.0} ns)",
            fast.len(),
            samples.len()
        );
    }
    if samples.iter().any(|s| s.isolated && !s.real_time) {
        println!("without the real-time class (not permitted, or left out)");
    }
    println!("Mpps, min / median / max; only samples in the fast regime");
    println!("{:>3}  {:^24}  {:^24}  isolated / fused", "n", "isolated", "fused");
    for &length in &args.length {
        let of = |isolated: bool| {
            let these = fast.iter().filter(|s| s.length == length && s.isolated == isolated);
            spread(these.map(|s| s.mpps).collect())
        };
        let show = |s: Option<[f64; 3]>| match s {
            Some([a, b, c]) => format!("{a:.1} / {b:.1} / {c:.1}"),
            None => "-".into(),
        };
        let ratios = samples.chunks_exact(2).filter(|p| p[0].length == length);
        let alike = ratios.filter(|p| {
            let [a, b] = [p[0].round_trip_ns[1], p[1].round_trip_ns[1]];
            a.max(b) <= 1.2 * a.min(b)
        });
        let ratio = spread(alike.map(|p| p[0].mpps / p[1].mpps).collect());
        let ratio = match ratio {
            Some([a, b, c]) => format!("{a:.2} / {b:.2} / {c:.2}"),
            None => "-".into(),
        };
        println!("{length:>3}  {:^24}  {:^24}  {ratio}", show(of(true)), show(of(false)));
    }
}
