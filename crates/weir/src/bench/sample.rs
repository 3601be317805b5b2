//! One measurement of a graph: generator and sink on one core, the rest on another.

use super::asked;
use super::files::write_json;
use super::machine::Machine;
use super::mood::Around;
use super::own;
use super::running::{Running, STARTS};
use super::search::{Found, Start};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weir_control::wiring::{RunOptions, WiringError};
use weir_control::{Agent, AgentError, Event};
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::{Isolate, Plan};
use weir_runtime::layout::NodeCounts;

/// Samples count as taken in the fast regime up to this round trip, in nanoseconds.
const FAST_NS: f64 = 130.0;

/// Longest wait for packets that must come before a sample begins.
pub const WARM_UP: Duration = Duration::from_secs(30);

/// Until workers have to be ready.
pub const READY: Duration = Duration::from_secs(60);

pub const RING: u32 = 4096;
pub const POOL: u32 = 16384;

/// How samples are taken.
#[derive(Debug, Clone, clap::Args)]
pub struct SampleArgs {
    /// Samples of each kind, 1 to 10,000.
    #[arg(long, default_value_t = 5, value_parser = asked::times)]
    pub samples: usize,
    /// Seconds per sample (0.05 to 60), after a warm-up of a quarter of it.
    #[arg(long, default_value_t = 0.4, value_parser = asked::seconds)]
    pub seconds: f64,
    /// Entries of each ring, 16 to 65,536; rounded up to a power of two.
    #[arg(long, default_value_t = RING, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub ring: u32,
    /// Buffers of the pool, 64 to 1,048,576; rounded up to a power of two.
    #[arg(long, default_value_t = POOL, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pub pool: u32,
    /// Core of generator and sink.
    #[arg(long, default_value_t = 0)]
    pub device_core: usize,
    /// Core of the chain.
    #[arg(long, default_value_t = 1)]
    pub chain_core: usize,
    /// Leaves the real-time class out.
    #[arg(long)]
    pub no_real_time: bool,
    /// Besides what arrives of as much as is taken the rate is searched for that is sustained: figures of throughput say so.
    #[arg(skip)]
    pub searches: bool,
    /// How patient a search may be, one half to 1: the rest of a run that is to end in time is short.
    #[arg(skip = 1.0)]
    pub patience: f64,
    /// Where the next search begins, as a part of what arrives at full load; `None`: a little below it. Set from point to point of a figure.
    #[arg(skip)]
    pub begins: Cell<Option<Start>>,
}

/// What benchmarks of a generator's packets are asked.
#[derive(Debug, Clone, clap::Args)]
pub struct TrafficArgs {
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Bytes per packet, 60 to 9,000.
    #[arg(long, default_value_t = 64, value_parser = asked::size)]
    pub size: u16,
    #[command(flatten)]
    pub sampling: SampleArgs,
}

impl TrafficArgs {
    /// Packets of the size that is asked for, as many as are taken.
    pub fn generator(&self) -> GeneratorSpec {
        GeneratorSpec { size: self.size, ..GeneratorSpec::default() }
    }

    /// Writes all samples to the file that is asked for, if one is.
    pub fn write<S: Serialize>(&self, machine: &Machine, samples: &[S]) -> Result<(), BenchError> {
        self.sampling.write(self.json.as_deref(), machine, self.size, samples)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Policy(#[from] policy::PolicyFailure),
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("this machine has one core; the measurement needs two")]
    OneCore,
    #[error("the source could not be told its rate")]
    NoPace,
    #[error("workers that keep their core did not let all start, {STARTS} times")]
    NotStarted,
    #[error("not all workers were ready within {READY:?}")]
    NotReady,
    #[error("what the sink has counted could not be read")]
    Unread,
    #[error("of {wanted} packets that were to come before it {came} did within {WARM_UP:?}")]
    Few { came: u64, wanted: u64 },
    #[error("the graph did not run undisturbed: {0}")]
    Disturbed(String),
    #[error("what was measured is no number")]
    NoNumber,
    #[error(
        "cores {0}: what is measured and what feeds it need a core each of those that this process may use"
    )]
    Cores(String),
    #[error("{} is being written to by another measurement", .0.display())]
    Busy(PathBuf),
    #[error("--against is the folder that is written to: a run agrees with itself")]
    Itself,
    #[error("{0}: {others}; --fresh measures anew, --out chooses another folder", others = super::figure::OTHERS)]
    Others(String),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is no ordinary file, and is not written over", .0.display())]
    NotOrdinary(PathBuf),
    #[error("{} was removed, or changed by somebody else, while its figure was measured", .0.display())]
    Lost(PathBuf),
    #[error("{} has no row of a figure: a cell `weir bench figure NAME` after the one that is written", .0.display())]
    NoRows(PathBuf),
    #[error("{0}; --fresh measures it anew, --out chooses another folder")]
    Damaged(Box<BenchError>),
    #[error("{} is no figure's file: {source}", path.display())]
    Figure { path: PathBuf, source: serde_json::Error },
    #[error("{} is not read: it is no ordinary file, or of more than {} MiB", path.display(), most >> 20)]
    NoFile { path: PathBuf, most: u64 },
    #[error("--charts is the folder that the samples are in: choose another")]
    Onto,
    #[error("{} has other samples, which would be lost: choose another folder, or remove it", .0.display())]
    Held(PathBuf),
    #[error("{} is no figure's file: {why}", path.display())]
    Unsound { path: PathBuf, why: &'static str },
    #[error("{} is no such figure's file: it says that it is of {name:?}", path.display())]
    OtherFigure { path: PathBuf, name: String },
    #[error("there is no figure '{0}'; weir bench figure --list says which there are")]
    NoFigure(String),
    #[error(
        "{} would have rows of another run beside those of {}, which has not all of its figures; without --write it is printed",
        page.display(), folder.display()
    )]
    Partial { page: PathBuf, folder: PathBuf },
    #[error("{} has no figure's file", .0.display())]
    NoFigures(PathBuf),
    #[error("some figures could not be made: {0}")]
    Failed(String),
    #[error(transparent)]
    Rival(#[from] super::figure::rivals::RivalError),
    #[error(transparent)]
    Output(#[from] own::OutputError),
    #[error(transparent)]
    Chart(#[from] weir_draw::chart::ChartError),
    #[error("{given}: {why}")]
    Option { given: String, why: String },
    #[error(transparent)]
    Latency(#[from] super::latency::LatencyError),
    #[error(transparent)]
    Payloads(#[from] super::firewall::PayloadError),
    #[error(transparent)]
    Consolidation(#[from] super::consolidation::ConsolidationError),
    #[error(transparent)]
    Moving(#[from] super::flows::moves::MovingError),
    #[error(transparent)]
    Change(#[from] super::relink::ChangeError),
    #[error(transparent)]
    Controlled(#[from] super::flows::controlled::ControlledError),
    #[error(transparent)]
    Rules(#[from] weir_classify::BuildError),
}

/// What one sample gave.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Million packets a second that reached the sink.
    pub mpps: f64,
    /// The machine before and after.
    #[serde(flatten)]
    pub around: Around,
    /// Whether the chain's workers were in the real-time class.
    pub real_time: bool,
    /// It was wanted, and none was in it.
    pub withheld: bool,
    /// Processor time a packet of all workers, source and sink included, in nanoseconds; `None` where the kernel keeps no account or no packet
    /// came.
    pub cpu_ns: Option<f64>,
    /// The rate of a source that does not wait that is sustained, where it was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sustained: Option<Found>,
}

impl Measured {
    /// Taken while words crossed cores fast.
    pub fn is_fast(&self) -> bool {
        self.around.round_trip_ns.iter().all(|r| *r <= FAST_NS)
    }
}

/// What a benchmark's end is to the shell.
pub fn finish(result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            crate::complain!("weir bench: {e}");
            ExitCode::from(crate::FAILED)
        }
    }
}

/// What is said beside that a measurement was interrupted: what is kept of it, and how it goes on.
pub static KEPT: OnceLock<&str> = OnceLock::new();

/// At Ctrl-C what would outlive this process is gone before it; workers end with it.
pub fn end_when_interrupted() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // Without it only that is missing.
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]) else {
        return;
    };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            own::clear();
            progress("");
            crate::complain!("weir bench: interrupted{}", KEPT.get().unwrap_or(&""));
            std::process::exit(128 + signal);
        }
    });
}

/// Looks at the machine and prints what it is. The cores that are measured with have to be as many, which this process may use: words are sent from
/// one to the other.
pub fn prepare(cores: &[usize]) -> Result<Machine, BenchError> {
    if crate::cores::online() < cores.len() {
        return Err(BenchError::OneCore);
    }
    let others: BTreeSet<usize> = cores.iter().copied().collect();
    if others.len() < cores.len() || !cores.iter().all(|core| crate::cores::is_ours(*core)) {
        let all: Vec<String> = cores.iter().map(usize::to_string).collect();
        return Err(BenchError::Cores(all.join(" and ")));
    }
    end_when_interrupted();
    let machine = Machine::look();
    crate::say::print_line!(
        "{}, {} cores, kernel {}",
        machine.processor,
        machine.cores,
        machine.kernel
    );
    Ok(machine)
}

impl SampleArgs {
    /// Runs a policy with ports 0 (bound to `source`) and 1 (to a null sink) for a while.
    pub fn take(
        &self,
        text: &str,
        isolate: Isolate,
        source: DeviceSpec,
    ) -> Result<Measured, BenchError> {
        let cores = vec![self.device_core, self.chain_core];
        let loaded = policy::from_text(text, "(bench)")?;
        let plan = policy::plan(
            &loaded.graph,
            Path::new("(bench)"),
            isolate,
            Some(cores),
            &[],
            Consolidate::Off,
        )?;
        self.run(&plan, source)
    }

    /// How long a sample takes.
    pub fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 60.0))
    }

    /// How graphs run for these samples.
    pub fn options(&self) -> RunOptions {
        RunOptions {
            ring: self.ring,
            pool: Some(self.pool),
            real_time: !self.no_real_time,
            ..RunOptions::default()
        }
    }

    /// The same for a plan, whose last worker is the sink.
    pub fn run(&self, plan: &Plan, source: DeviceSpec) -> Result<Measured, BenchError> {
        self.run_with(plan, source, &self.options())
    }

    /// The same, run otherwise.
    pub fn run_with(
        &self,
        plan: &Plan,
        source: DeviceSpec,
        options: &RunOptions,
    ) -> Result<Measured, BenchError> {
        self.run_after(plan, source, options, 0)
    }

    /// The same, beginning to count when `packets` have been delivered (or do not come: after a while).
    pub fn run_after(
        &self,
        plan: &Plan,
        source: DeviceSpec,
        options: &RunOptions,
        packets: u64,
    ) -> Result<Measured, BenchError> {
        Running::start(self, plan, source, options, packets)?.measure()
    }
}

/// Waits until `waiting` workers are ready; true when one is in the real-time class.
pub fn wait_until_ready(agent: &mut Agent, waiting: usize) -> Result<bool, BenchError> {
    ready_by(agent, waiting, Instant::now() + READY)?.ok_or(BenchError::NotReady)
}

/// The same; `None` when they are not by then.
pub fn ready_by(
    agent: &mut Agent,
    mut waiting: usize,
    latest: Instant,
) -> Result<Option<bool>, AgentError> {
    let mut real_time = false;
    while waiting > 0 {
        if Instant::now() >= latest {
            return Ok(None);
        }
        agent.turn(Duration::from_millis(100))?;
        while let Some(event) = agent.event() {
            match event {
                Event::Ready { real_time: granted, .. } => {
                    real_time |= granted;
                    waiting = waiting.saturating_sub(1);
                }
                // Why a worker cannot begin is said nowhere else.
                Event::Said { worker, text } => {
                    crate::complain!("weir bench: worker {worker} says: {text}");
                }
                _ => {}
            }
        }
    }
    Ok(Some(real_time))
}

/// Lets the agent do its work for `span`.
pub fn watch(agent: &mut Agent, span: Duration) -> Result<(), AgentError> {
    let end = Instant::now() + span;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        agent.turn(left)?;
    }
}

/// The same for a graph that is measured: an error when a worker did not come through it, or not in its class, as what was measured is then of
/// something else.
pub fn watch_undisturbed(agent: &mut Agent, span: Duration) -> Result<(), BenchError> {
    watch(agent, span)?;
    while let Some(event) = agent.event() {
        let of = |w: usize| agent.setup().workers.get(w).map_or("", |worker| worker.name.as_str());
        let what = match event {
            Event::Died { worker, how, .. } => format!("worker {} died ({how})", of(worker)),
            Event::Hung { worker, what } => format!("worker {} {what}", of(worker)),
            Event::Demoted => {
                "real-time workers kept others from running, and have left the class".to_owned()
            }
            Event::Offence { worker, what } => format!("worker {} {what}", of(worker)),
            Event::Quarantined { worker } => {
                format!("worker {} was replaced by a drain", of(worker))
            }
            _ => continue,
        };
        return Err(BenchError::Disturbed(what));
    }
    Ok(())
}

/// Packets that worker `sink` was given. What cannot be read is no 0: it would pass for a sample.
pub fn delivered(agent: &Agent, sink: usize) -> Result<u64, BenchError> {
    match (agent.words(sink), agent.layout(sink)) {
        (Some(words), Some(layout)) => Ok(NodeCounts::read(&words, &layout, 0).packets),
        _ => Err(BenchError::Unread),
    }
}

/// One line that is written over, on a terminal only.
pub fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
    }
}

/// Minimum, median (of two in the middle the mean) and maximum.
pub fn spread(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    let median = if lower == upper { upper } else { lower.midpoint(upper) };
    Some([*values.first()?, median, *values.last()?])
}

/// A spread as text.
pub fn show(spread: Option<[f64; 3]>) -> String {
    match spread {
        Some([a, b, c]) => format!("{a:.1} / {b:.1} / {c:.1}"),
        None => "-".into(),
    }
}

/// Prints in which mood the machine was.
pub fn print_regime<'m>(samples: impl Iterator<Item = &'m Measured> + Clone) {
    let fast = samples.clone().filter(|s| s.is_fast()).count();
    if let Some([least, median, most]) =
        spread(samples.clone().flat_map(|s| s.around.round_trip_ns).collect())
    {
        crate::say::print_line!(
            "core-to-core round trip {least:.0} / {median:.0} / {most:.0} ns (min/median/max); \
             {fast} of {} samples in the fast regime (≤ {FAST_NS:.0} ns)",
            samples.count()
        );
    }
}

/// What most benchmarks write.
#[derive(Serialize)]
struct Results<'r, S> {
    machine: &'r Machine,
    size: u16,
    ring: u32,
    pool: u32,
    samples: &'r [S],
}

impl SampleArgs {
    /// Writes all samples, of packets of `size` bytes, to the file that is asked for, if one is.
    pub fn write<S: Serialize>(
        &self,
        path: Option<&Path>,
        machine: &Machine,
        size: u16,
        samples: &[S],
    ) -> Result<(), BenchError> {
        let Some(path) = path else { return Ok(()) };
        let (ring, pool) = (self.ring, self.pool);
        write_json(path, &Results { machine, size, ring, pool, samples })
    }
}
