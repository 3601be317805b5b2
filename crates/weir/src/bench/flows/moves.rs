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
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
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

    /// As orders name it.
    pub(super) fn name(self) -> String {
        self.nfs().0.join("+")
    }

    /// What it is sent: UDP, and requests where somebody parses them.
    pub(super) fn packets(self) -> GeneratorSpec {
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
    /// Flows that go together in one, or buckets, at most.
    pub together: Option<u16>,
}

impl Case {
    /// How workers are to run.
    pub(super) fn trial(&self) -> Trial {
        let of_buckets = self.how == How::Buckets;
        let flows = self.together.filter(|_| !of_buckets);
        let buckets = self.together.filter(|_| of_buckets);
        Trial { migrations: self.at_once, flows, buckets, ..Trial::default() }
    }
}

/// Ways to cut an order into migrations, each with all others; without any as instances do it of themselves.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct CutArgs {
    /// Migrations under way at a time, at most, 1 to 128: one number or several. One of buckets goes alone.
    #[arg(long, value_delimiter = ',', value_parser = asked::within(1_u16, 128))]
    at_once: Vec<u16>,
    /// Flows that go together, about, 1 to 8,192: one number or several.
    #[arg(long, value_delimiter = ',', value_parser = asked::within(1_u16, 8_192))]
    together: Vec<u16>,
    /// Buckets that go together, at most, 1 to 16,384: one number or several.
    #[arg(long, value_delimiter = ',', value_parser = asked::within(1_u16, 16_384))]
    buckets: Vec<u16>,
}

impl CutArgs {
    /// The case with each way that is asked for.
    pub(super) fn cases(&self, case: Case) -> Vec<Case> {
        fn tried(asked: &[u16]) -> Vec<Option<u16>> {
            if asked.is_empty() { vec![None] } else { asked.iter().copied().map(Some).collect() }
        }
        let (at_once, together) = match case.how {
            // One flow is one migration.
            How::One | How::Again => return vec![case],
            How::Each => (tried(&self.at_once), tried(&self.together)),
            How::Buckets => (vec![None], tried(&self.buckets)),
        };
        let with = |at_once| {
            together.iter().map(move |together| Case { at_once, together: *together, ..case })
        };
        at_once.into_iter().flat_map(with).collect()
    }
}

/// Measures flows that move.
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
    pub(super) each: u32,
    #[command(flatten)]
    cut: CutArgs,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    pub(super) json: Option<PathBuf>,
    #[command(flatten)]
    pub(super) sampling: SampleArgs,
}

impl MoveArgs {
    /// What is asked for, in each of these ways; one flow alone moves once, whatever numbers of flows there are.
    pub(super) fn cases(&self, ways: &[How]) -> Vec<Case> {
        let mut cases = Vec::new();
        for (at, &flows) in self.flows.iter().enumerate() {
            for &how in ways {
                if at > 0 && matches!(how, How::One | How::Again) {
                    continue;
                }
                let (nf, each_pps) = (self.nf, self.each);
                let case = Case { nf, how, flows, each_pps, at_once: None, together: None };
                cases.extend(self.cut.cases(case));
            }
        }
        cases
    }
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
    let cases = args.cases(&[How::One, How::Again, How::Each, How::Buckets]);
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
            "{:>8} flows  {what:<12}{}{} {:^30} ms  {:^30} µs each",
            case.flows,
            case.together.map_or(String::new(), |n| format!(" {n:>4} together")),
            case.at_once.map_or(String::new(), |n| format!(" {n:>3} at once")),
            show(of().map(|s| s.milliseconds).collect()),
            show(each)
        );
    }
}

/// Two instances; `cores`: of the devices, of the first and of the second.
pub(super) fn plan(nf: Nf, cores: Vec<usize>) -> Result<Plan, BenchError> {
    let (names, declared) = nf.nfs();
    let way = names.join(" -> ");
    let text = format!("Port<0> lan; Port<1> wan; {declared} pipelet {{ lan -> {way} -> wan; }}\n");
    let loaded = policy::from_text(&text, "(bench)")?;
    let server = Server { name: "bench".to_owned(), cores: 3, ghz: 1.0, nic_bps: None };
    let asked = policy::each(&nf.name(), Asked::equal(2)).into_iter().collect();
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
    // The second instance on the devices' core.
    let cores = vec![sampling.device_core, sampling.chain_core, sampling.device_core];
    let plan = plan(case.nf, cores)?;
    let flows = u64::from(case.flows);
    let rate = Rate::PerSecond(flows * u64::from(case.each_pps));
    let generator = GeneratorSpec { flows: case.flows, rate, ..case.nf.packets() };
    let source = DeviceSpec::Generator(generator);
    let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
    let options = RunOptions { trial: case.trial(), ..sampling.options() };
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
    let order = MoveFlows { from: None, nf: nf.name(), what, to };
    let ticket = agent.move_flows(&order).map_err(MovingError::from)?;
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        // The answer ends the wait.
        agent.turn(Duration::from_millis(100))?;
        while let Some(event) = agent.event() {
            if let Some(moved) = moved_by(ticket, event) {
                return Ok(moved?);
            }
        }
    }
    Err(MovingError::Late.into())
}

/// How an order went, if the event says so.
pub(super) fn moved_by(ticket: u64, event: Event) -> Option<Result<Moved, MovingError>> {
    match event {
        Event::FlowsMoved { ticket: of, moved } if of == ticket => {
            let failed = !moved.failures.is_empty();
            Some(if failed {
                Err(MovingError::Failed(moved.failures.join("; ")))
            } else {
                Ok(moved)
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_cut_an_order_are_tried_each_with_all_others_where_they_change_anything() {
        let cut = CutArgs { at_once: vec![1, 2], together: vec![250, 500], buckets: vec![64] };
        let of = |how| {
            let (nf, flows, each_pps) = (Nf::Firewall, 10, 10);
            let case = Case { nf, how, flows, each_pps, at_once: None, together: None };
            let cases = cut.cases(case).into_iter();
            cases.map(|case| (case.at_once, case.together)).collect::<Vec<_>>()
        };
        let all = [(1, 250), (1, 500), (2, 250), (2, 500)];
        assert_eq!(of(How::Each), all.map(|(n, flows)| (Some(n), Some(flows))));
        assert_eq!(of(How::Buckets), [(None, Some(64))]);
        assert_eq!((of(How::One), of(How::Again)), (vec![(None, None)], vec![(None, None)]));
    }
}
