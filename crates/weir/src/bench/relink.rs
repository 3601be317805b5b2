//! `weir bench relink`: the pause that a change of a running graph takes. A chain of four, of which one remembers flows, becomes isolated and
//! fused in turns, or gets more and fewer instances of that one, while packets come; what is remembered goes over each time.

use super::asked;
use super::instances;
use super::mood::round_trip;
use super::sample::{
    BenchError, SampleArgs, delivered, finish, prepare, progress, spread, wait_until_ready, watch,
};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};
use weir_control::setup::Setup;
use weir_control::wiring;
use weir_control::{Agent, Event, RelinkError, Relinked, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec, Rate};
use weir_plan::{Asked, Isolate};

/// ConnTrack remembers a million flows at most.
const CHAIN: &str = "Port<0> lan; Port<1> wan; CheckIpHeader check; ConnTrack fw; MacSwap swap; PacketSizeHistogram sizes;\n\
                     pipelet { lan -> check -> fw -> swap -> sizes -> wan; }\n";
/// How long a change may take, or flows may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two changes.
const REST: Duration = Duration::from_millis(200);

/// Measures changes of a running graph.
#[derive(clap::Args)]
pub struct RelinkArgs {
    /// Numbers of flows that are remembered, 1 to 1,048,576.
    #[arg(long, value_delimiter = ',', value_parser = asked::flows::<u32>, default_value = "1,1000,30000")]
    flows: Vec<u32>,
    /// Packets a second; 0: as many as are taken.
    #[arg(long, value_delimiter = ',', default_value = "500000,0")]
    rates: Vec<u64>,
    /// What the chain becomes, one after the other and again from the first: `isolated`, `fused`, or so many instances of
    /// the NF that remembers, 1 to 16, each µNF isolated.
    #[arg(long, value_delimiter = ',', default_value = "isolated,fused")]
    becomes: Vec<Form>,
    /// Changes of each case in each round, 1 to 10,000.
    #[arg(long, default_value_t = 6, value_parser = asked::times)]
    changes: usize,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    sampling: SampleArgs,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Refused(RelinkError),
    #[error("no change within {PATIENCE:?}")]
    Late,
    #[error("{0} of {1} flows came within {PATIENCE:?}")]
    Few(u64, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Case {
    flows: u32,
    /// Packets a second; 0: as many as are taken.
    rate: u64,
}

/// What the chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    Isolated,
    Fused,
    /// Isolated, with so many instances of the NF that remembers.
    Instances(u32),
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "isolated" => Ok(Form::Isolated),
            "fused" => Ok(Form::Fused),
            number => asked::within(1, 16)(number)
                .map(Form::Instances)
                .map_err(|e| format!("{e}; write isolated, fused, or a number of instances")),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Isolated => f.pad("isolated"),
            Form::Fused => f.pad("fused"),
            Form::Instances(n) => f.pad(&n.to_string()),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    #[serde(flatten)]
    case: Case,
    /// What the graph was, and what it became.
    was: Form,
    becomes: Form,
    #[serde(flatten)]
    relinked: Relinked,
    round_trip_ns: [f64; 2],
}

pub fn main(args: &RelinkArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &RelinkArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.sampling.device_core, args.sampling.chain_core])?;
    crate::say::print_line!(
        "CheckIpHeader, ConnTrack, MacSwap, PacketSizeHistogram on core {}, generator and sink on core {}; {}, and again",
        args.sampling.chain_core,
        args.sampling.device_core,
        args.becomes.iter().map(Form::to_string).collect::<Vec<_>>().join(", ")
    );
    let cases: Vec<Case> = (args.flows.iter())
        .flat_map(|&flows| args.rates.iter().map(move |&rate| Case { flows, rate }))
        .collect();
    let mut samples = Vec::new();
    for i in 1..=args.sampling.samples {
        for &case in &cases {
            progress(&format!(
                "round {i} of {}: {} flows at {} packets a second",
                args.sampling.samples, case.flows, case.rate
            ));
            samples.append(&mut changes(args, case)?);
        }
    }
    progress("");
    print_table(&cases, &samples);
    args.sampling.write(args.json.as_deref(), &machine, 64, &samples)
}

fn setup(args: &RelinkArgs, case: Case, form: Form) -> Result<Setup, BenchError> {
    let cores = vec![args.sampling.device_core, args.sampling.chain_core];
    let loaded = policy::from_text(CHAIN, "(bench)")?;
    let path = Path::new("(bench)");
    let whole =
        |isolate| policy::plan(&loaded.graph, path, isolate, Some(cores), &[], Consolidate::Off);
    let plan = match form {
        Form::Isolated => whole(Isolate::Each)?,
        Form::Fused => whole(Isolate::None)?,
        Form::Instances(n) => instances::plan(&args.sampling, CHAIN, "fw", Asked::equal(n))?,
    };
    let rate = if case.rate == 0 { Rate::Max } else { Rate::PerSecond(case.rate) };
    let source = GeneratorSpec { flows: case.flows, rate, ..GeneratorSpec::default() };
    let binds = BTreeMap::from([(0, DeviceSpec::Generator(source)), (1, DeviceSpec::Null)]);
    Ok(wiring::wire(&plan, &binds, &BTreeMap::new(), &args.sampling.options())?)
}

/// Changes a running graph so many times.
fn changes(args: &RelinkArgs, case: Case) -> Result<Vec<Sample>, BenchError> {
    let trip = || round_trip(args.sampling.device_core, args.sampling.chain_core);
    let before = trip();
    let form = |n: usize| args.becomes.get(n % args.becomes.len().max(1)).copied();
    let form = |n: usize| form(n).unwrap_or(Form::Isolated);
    let first = setup(args, case, form(0))?;
    let mut agent = Agent::start(first, RestartPolicy::default())?;
    let sink = agent.setup().workers.len() - 1;
    wait_until_ready(&mut agent, sink + 1)?;
    // Each flow has been seen.
    let end = Instant::now() + PATIENCE;
    while delivered(&agent, sink)? < u64::from(case.flows) {
        watch(&mut agent, Duration::from_millis(5))?;
        if Instant::now() > end {
            return Err(ChangeError::Few(delivered(&agent, sink)?, case.flows).into());
        }
    }
    let mut all = Vec::new();
    for n in 0..args.changes {
        watch(&mut agent, REST)?;
        agent.relink(setup(args, case, form(n + 1))?).map_err(ChangeError::Refused)?;
        all.push((form(n), form(n + 1), over(&mut agent)?));
    }
    drop(agent);
    let round_trip_ns = [before, trip()];
    let of = |(was, becomes, relinked)| Sample { case, was, becomes, relinked, round_trip_ns };
    Ok(all.into_iter().map(of).collect())
}

/// Waits until a change is over.
fn over(agent: &mut Agent) -> Result<Relinked, BenchError> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        agent.turn(Duration::from_millis(100))?;
        agent.retired();
        while let Some(event) = agent.event() {
            match event {
                Event::Relinked(relinked) => return Ok(relinked),
                Event::NotRelinked { why } => return Err(ChangeError::Refused(why).into()),
                _ => {}
            }
        }
    }
    Err(ChangeError::Late.into())
}

fn print_table(cases: &[Case], samples: &[Sample]) {
    crate::say::print_line!(
        "{:>7}  {:>12}  {:>8}  {:>8}  {:^24}  {:^24}  min / median / max of all changes",
        "flows",
        "packets/s",
        "was",
        "becomes",
        "pause, ms",
        "preparation, ms"
    );
    let show = |values: Vec<f64>| match spread(values) {
        Some([a, b, c]) => format!("{a:.1} / {b:.1} / {c:.1}"),
        None => "-".into(),
    };
    for case in cases {
        let own = || samples.iter().filter(|s| s.case == *case);
        let changes: BTreeSet<(Form, Form)> = own().map(|s| (s.was, s.becomes)).collect();
        for (was, becomes) in changes {
            let of = || own().filter(|s| (s.was, s.becomes) == (was, becomes));
            let rate = if case.rate == 0 { "all".to_owned() } else { case.rate.to_string() };
            crate::say::print_line!(
                "{:>7}  {rate:>12}  {was:>8}  {becomes:>8}  {:^24}  {:^24}",
                case.flows,
                show(of().map(|s| s.relinked.pause_ms).collect()),
                show(of().map(|s| s.relinked.prepared_ms).collect())
            );
        }
    }
}
