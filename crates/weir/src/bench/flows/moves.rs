//! `weir bench flows move`: flows that go from one instance of a NF to another, while packets of all of them come.

use super::super::asked;
use super::rates::REQUEST;
use crate::bench::mood::round_trip;
use crate::bench::sample::{
    BenchError, SampleArgs, delivered, finish, prepare, progress, spread, wait_until_ready, watch,
};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, Event, MoveError, MoveFlows, Moved, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec, Rate};
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Plan, Sizing};
use weir_runtime::moves::What;
use weir_runtime::spec::Trial;

/// How long an order may take, or flows may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the flow goes that has moved before.
const TIMES: usize = 40;
/// The flow that is moved alone: of the generator's second.
const ONE: &str = "src host 10.0.0.1";

/// Why nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum MovingError {
    #[error(transparent)]
    Refused(#[from] MoveError),
    #[error("some flows did not move: {0}")]
    Failed(String),
    #[error("no answer to the order within {PATIENCE:?}")]
    Late,
    #[error("{0} of {1} flows came within {PATIENCE:?}")]
    Few(u64, u64),
    #[error("the filter of one flow is none")]
    Filter,
}

/// The NF whose flows move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Nf {
    /// FlowMonitor: 65,536 flows at most.
    Monitor,
    /// ConnTrack: a million.
    Firewall,
    /// FlowMonitor, ConnTrack and HttpParser, each replica of the three in one worker: 65,536.
    Chain,
}

impl Nf {
    /// The NFs' names, and what declares them.
    fn nfs(self) -> (&'static [&'static str], &'static str) {
        match self {
            Nf::Monitor => (&["nf"], "FlowMonitor nf;"),
            Nf::Firewall => (&["nf"], "ConnTrack nf;"),
            Nf::Chain => {
                let declared = "FlowMonitor mon; ConnTrack fw { pickup: true }; HttpParser http;";
                (&["mon", "fw", "http"], declared)
            }
        }
    }

    /// What it is sent: UDP, and requests where somebody parses them.
    fn packets(self) -> GeneratorSpec {
        let spec = GeneratorSpec::default();
        if self == Nf::Chain { GeneratorSpec { size: REQUEST, http: true, ..spec } } else { spec }
    }
}

/// What is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// One flow alone, for the first time.
    One,
    /// The same flow once more, there and back [`TIMES`] times: the median.
    Again,
    /// All flows, one by one, as NFActor does.
    Each,
    /// All buckets, with the flows in them.
    Buckets,
}

/// One case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Case {
    pub nf: Nf,
    pub how: How,
    pub flows: u32,
    /// Packets a second of each flow.
    pub each_pps: u32,
    /// Migrations under way at a time, at most.
    pub at_once: Option<u16>,
}

/// Measures how long flows take to move.
#[derive(clap::Args)]
pub struct MoveArgs {
    /// Numbers of flows, 1 to 1,048,576.
    #[arg(long, value_delimiter = ',', value_parser = asked::flows::<u32>, default_value = "100,1000,10000,100000")]
    flows: Vec<u32>,
    /// The NF whose flows they are, or the chain of NFs, whose replicas they move among; monitor and chain have room for 65,536.
    #[arg(long, value_enum, default_value = "firewall")]
    nf: Nf,
    /// Packets a second of each flow, 1 to 10,000.
    #[arg(long, default_value_t = 10, value_parser = asked::within(1_u32, 10_000))]
    each: u32,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    sampling: SampleArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    #[serde(flatten)]
    case: Case,
    moved: u64,
    milliseconds: f64,
    round_trip_ns: [f64; 2],
    withheld: bool,
}

pub fn main(args: &MoveArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &MoveArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.sampling.device_core, args.sampling.chain_core])?;
    let (own, shared) = (args.sampling.chain_core, args.sampling.device_core);
    crate::say::print_line!(
        "two instances, on cores {own} and {shared}; generator and sink on core {shared}; {} packets a second of each flow",
        args.each
    );
    let mut cases = Vec::new();
    for (at, &flows) in args.flows.iter().enumerate() {
        for how in [How::One, How::Again, How::Each, How::Buckets] {
            let is_one = matches!(how, How::One | How::Again);
            if !is_one || at == 0 {
                let (nf, each_pps) = (args.nf, args.each);
                cases.push(Case { nf, how, flows, each_pps, at_once: None });
            }
        }
    }
    let mut samples = Vec::new();
    for i in 1..=args.sampling.samples {
        for &case in &cases {
            progress(&format!("round {i} of {}: {} flows", args.sampling.samples, case.flows));
            let before = round_trip(shared, own);
            let Measure { moved, withheld } = measure(&args.sampling, case)?;
            let round_trip_ns = [before, round_trip(shared, own)];
            let milliseconds = moved.took.as_secs_f64() * 1e3;
            let moved = moved.flows;
            samples.push(Sample { case, moved, milliseconds, round_trip_ns, withheld });
        }
    }
    progress("");
    print_table(&cases, &samples);
    args.sampling.write(args.json.as_deref(), &machine, 64, &samples)
}

fn print_table(cases: &[Case], samples: &[Sample]) {
    crate::say::print_line!("min / median / max of all samples");
    let show = |values: Vec<f64>| match spread(values) {
        Some([a, b, c]) => format!("{a:.3} / {b:.3} / {c:.3}"),
        None => "-".into(),
    };
    for case in cases {
        let of = || samples.iter().filter(|s| s.case == *case);
        let what = match case.how {
            How::One => "one of them",
            How::Again => "once more",
            How::Each => "one by one",
            How::Buckets => "by buckets",
        };
        let each = of().map(|s| s.milliseconds * 1e3 / s.moved.max(1) as f64).collect();
        crate::say::print_line!(
            "{:>8} flows  {what:<12} {:^30} ms  {:^30} µs each",
            case.flows,
            show(of().map(|s| s.milliseconds).collect()),
            show(each)
        );
    }
}

/// Two instances, the first on the NF's own core, the second on the devices'.
fn plan(sampling: &SampleArgs, nf: Nf) -> Result<Plan, BenchError> {
    let (names, declared) = nf.nfs();
    let way = names.join(" -> ");
    let text = format!("Port<0> lan; Port<1> wan; {declared} pipelet {{ lan -> {way} -> wan; }}\n");
    let loaded = policy::from_text(&text, "(bench)")?;
    let cores = vec![sampling.device_core, sampling.chain_core, sampling.device_core];
    let server = Server { name: "bench".to_owned(), cores: 3, ghz: 1.0, nic_bps: None };
    let asked = policy::each(&names.join("+"), Asked::equal(2)).into_iter().collect();
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    let options = policy::options(Isolate::Each, Some(cores), &[])?;
    let path = Path::new("(bench)");
    Ok(policy::plan_sized(&loaded.graph, path, &options, Consolidate::Off, sizing)?.0)
}

/// A move, measured.
pub struct Measure {
    pub moved: Moved,
    /// The real-time class was wanted, and no worker was in it.
    pub withheld: bool,
}

/// All flows come to one instance, which then is to hand over what `case` says.
pub fn measure(sampling: &SampleArgs, case: Case) -> Result<Measure, BenchError> {
    let plan = plan(sampling, case.nf)?;
    let flows = u64::from(case.flows);
    let rate = Rate::PerSecond(flows * u64::from(case.each_pps));
    let generator = GeneratorSpec { flows: case.flows, rate, ..case.nf.packets() };
    let source = DeviceSpec::Generator(generator);
    let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
    let trial = Trial { migrations: case.at_once, ..Trial::default() };
    let options = RunOptions { trial, ..sampling.options() };
    let setup = wiring::wire(&plan, &binds, &BTreeMap::new(), &options)?;
    let sink = setup.workers.len() - 1;
    let mut agent = Agent::start(setup, RestartPolicy::default())?;
    let real_time = wait_until_ready(&mut agent, sink + 1)?;
    // All buckets to the first instance: hardly a flow is there yet.
    order(&mut agent, case.nf, What::Share(100), 1)?;
    // Each flow has been seen there.
    let (from, end) = (delivered(&agent, sink)?, Instant::now() + PATIENCE);
    while delivered(&agent, sink)? < from + flows {
        watch(&mut agent, Duration::from_millis(5))?;
        if Instant::now() > end {
            return Err(
                MovingError::Few(delivered(&agent, sink)?.saturating_sub(from), flows).into()
            );
        }
    }
    let what = match case.how {
        How::One | How::Again => {
            What::Flows(Some(weir_filter::parse(ONE).map_err(|_| MovingError::Filter)?))
        }
        How::Each => What::Flows(None),
        How::Buckets => What::Share(100),
    };
    let mut moved = order(&mut agent, case.nf, what.clone(), 2)?;
    if case.how == How::Again {
        let ways = [1, 2].into_iter().cycle().take(TIMES);
        let all = ways.map(|to| order(&mut agent, case.nf, what.clone(), to));
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|moved| moved.took);
        moved = all.swap_remove(TIMES / 2);
    }
    Ok(Measure { moved, withheld: options.real_time && !real_time })
}

/// Has flows moved, and waits until they are.
fn order(agent: &mut Agent, nf: Nf, what: What, to: u32) -> Result<Moved, BenchError> {
    let order = MoveFlows { from: None, nf: nf.nfs().0.join("+"), what, to };
    let ticket = agent.move_flows(&order).map_err(MovingError::from)?;
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        // The answer ends the wait.
        agent.turn(Duration::from_millis(100))?;
        while let Some(event) = agent.event() {
            let Event::FlowsMoved { ticket: of, moved } = event else { continue };
            if of == ticket && moved.failures.is_empty() {
                return Ok(moved);
            }
            if of == ticket {
                return Err(MovingError::Failed(moved.failures.join("; ")).into());
            }
        }
    }
    Err(MovingError::Late.into())
}
