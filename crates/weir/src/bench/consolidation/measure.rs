//! One sample: graphs run on one core, and what their workers cost there.

use super::ConsolidationArgs;
use super::chain;
use super::net;
use crate::bench::latency::LatencyError;
use crate::bench::latency::proc::spent;
use crate::bench::machine::{Pinned, pin};
use crate::bench::sample::{BenchError, wait_until_ready, watch};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_control::setup::Setup;
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::{DeviceSpec, ReplaySpec};
use weir_plan::Isolate;
use weir_runtime::Stepper;
use weir_runtime::layout::NodeCounts;
use weir_runtime::spec::EndSpec;

/// Frames under way between the feeder and the chain's end at most. Less than any queue on the way holds.
const WINDOW: u64 = 512;
/// Frames that are fed at a time.
const BURST: u64 = 64;
/// When so long none comes out, those that are under way are taken for lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two turns of the agents.
const TURN: Duration = Duration::from_millis(5);

pub const FROM_DEVICE: &str = "FromDevice";
pub const TO_DEVICE: &str = "ToDevice";
/// What workers of µNFs cost beside their µNFs: rings, hand-over, and changing places on the core.
pub const RINGS: &str = "rings";

/// The graph that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Three graphs, one for each VNF.
    Apart,
    /// The chain as written.
    Written,
    /// The chain, consolidated.
    Merged,
    /// The least by hand.
    Minimal,
}

/// A configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub what: What,
    pub isolate: Isolate,
    /// Packets come in and leave by veth pairs, not from and into memory.
    pub veth: bool,
}

/// What one sample gave.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    pub kind: &'static str,
    pub round: usize,
    /// Packets that came into the chain.
    pub packets: u64,
    /// Packets that did not come out although nothing dropped them.
    pub lost: u64,
    /// Nanoseconds of processor time per packet that came in, by type of µNF and what else there is.
    pub ns: BTreeMap<String, f64>,
}

impl Sample {
    /// Nanoseconds per packet of everything but these.
    pub fn without(&self, what: &[&str]) -> f64 {
        self.ns.iter().filter(|(name, _)| !what.contains(&name.as_str())).map(|(_, ns)| ns).sum()
    }
}

/// Numbers of one moment.
#[derive(Default)]
struct Moment {
    /// Processor time so far by what workers are, in nanoseconds.
    cost: BTreeMap<String, f64>,
    /// By node of all workers: type and counts.
    nodes: Vec<(String, NodeCounts)>,
    entered: u64,
}

struct Graphs {
    agents: Vec<Agent>,
    core: usize,
}

/// Measures one configuration.
pub fn sample(
    args: &ConsolidationArgs,
    kind: Kind,
    round: usize,
    frames: &[Vec<u8>],
) -> Result<Sample, BenchError> {
    let source = |burst| DeviceSpec::Replay(ReplaySpec { frames: frames.to_vec(), burst });
    let texts = match kind.what {
        What::Apart => chain::apart(),
        What::Written | What::Merged => vec![chain::whole()],
        What::Minimal => vec![chain::minimal()],
    };
    let mut agents = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let ends = if kind.veth {
            [DeviceSpec::Afp(net::end(at, true)), DeviceSpec::Afp(net::end(at + 1, false))]
        } else {
            [source(None), DeviceSpec::Null]
        };
        let consolidate =
            if kind.what == What::Merged { Consolidate::On } else { Consolidate::Off };
        let setup = setup(args, text, kind.isolate, consolidate, args.core, ends)?;
        let workers = setup.workers.len();
        let mut agent = Agent::start(setup, RestartPolicy::default())?;
        wait_until_ready(&mut agent, workers)?;
        agents.push(agent);
    }
    let mut graphs = Graphs { agents, core: args.core };
    let mut feeder = match kind.veth {
        true => Some(Feeder::new(args, source(Some(BURST)))?),
        false => None,
    };
    let span = Duration::from_secs_f64(args.seconds.clamp(0.05, 60.0));
    graphs.run(&mut feeder, span / 2)?;
    let lost_before = feeder.as_ref().map_or(0, |feeder| feeder.lost);
    let before = graphs.moment();
    graphs.run(&mut feeder, span)?;
    let after = graphs.moment();
    let lost = feeder.as_ref().map_or(0, |feeder| feeder.lost).saturating_sub(lost_before);
    let packets = after.entered.saturating_sub(before.entered);
    Ok(Sample { kind: kind.name, round, packets, lost, ns: per_packet(&before, &after, packets) })
}

fn setup(
    args: &ConsolidationArgs,
    text: &str,
    isolate: Isolate,
    consolidate: Consolidate,
    core: usize,
    [from, to]: [DeviceSpec; 2],
) -> Result<Setup, BenchError> {
    let loaded = policy::from_text(text, "(bench)")?;
    let cores = Some(vec![core]);
    let plan = policy::plan(&loaded.graph, Path::new("(bench)"), isolate, cores, &[], consolidate)?;
    let binds = BTreeMap::from([(0, from), (1, to)]);
    let options = RunOptions { spin_us: args.spin, ..RunOptions::default() };
    Ok(wiring::wire(&plan, &binds, &BTreeMap::new(), &options)?)
}

/// What the time between two moments went into, in nanoseconds per packet.
fn per_packet(before: &Moment, after: &Moment, packets: u64) -> BTreeMap<String, f64> {
    let mut ns: BTreeMap<String, f64> = BTreeMap::new();
    for (what, cost) in &after.cost {
        *ns.entry(what.clone()).or_default() += cost - before.cost.get(what).unwrap_or(&0.0);
    }
    let mut inside = 0.0;
    for ((kind, from), (_, to)) in before.nodes.iter().zip(&after.nodes) {
        let timed = to.timed_packets.saturating_sub(from.timed_packets);
        let took = to.timed_ns.saturating_sub(from.timed_ns);
        let all = to.packets.saturating_sub(from.packets);
        // Each sixteenth batch is timed.
        let cost = if timed > 0 { took as f64 * all as f64 / timed as f64 } else { 0.0 };
        *ns.entry(kind.clone()).or_default() += cost;
        inside += cost;
    }
    *ns.entry(RINGS.to_owned()).or_default() -= inside;
    ns.values_mut().for_each(|cost| *cost /= packets.max(1) as f64);
    ns
}

impl Graphs {
    /// Runs for a while.
    fn run(&mut self, feeder: &mut Option<Feeder>, span: Duration) -> Result<(), BenchError> {
        let Some(feeder) = feeder else {
            for agent in &mut self.agents {
                watch(agent, span)?;
            }
            return Ok(());
        };
        let end = Instant::now() + span;
        while Instant::now() < end {
            for agent in &mut self.agents {
                agent.turn(Duration::ZERO)?;
            }
            let turn = Instant::now() + TURN;
            while Instant::now() < turn {
                feeder.feed(self.gone())?;
            }
        }
        Ok(())
    }

    /// Packets that have left the last graph, or were dropped and counted in any.
    fn gone(&self) -> u64 {
        let mut gone = 0_u64;
        for (at, agent) in self.agents.iter().enumerate() {
            for (w, worker) in agent.setup().workers.iter().enumerate() {
                let last = at + 1 == self.agents.len();
                let is_tx = matches!(worker.end, EndSpec::Tx { .. });
                let (Some(words), Some(layout)) = (agent.words(w), agent.layout(w)) else {
                    continue;
                };
                for n in 0..worker.nodes.len() {
                    let counts = NodeCounts::read(&words, &layout, n);
                    let here = if last && is_tx { counts.packets } else { counts.dropped() };
                    gone = gone.saturating_add(here);
                }
            }
        }
        gone
    }

    fn moment(&self) -> Moment {
        let mut moment = Moment::default();
        let mut add = |what: &str, cost: Option<Duration>| {
            let ns = cost.unwrap_or_default().as_nanos() as f64;
            *moment.cost.entry(what.to_owned()).or_default() += ns;
        };
        for agent in &self.agents {
            for (w, worker) in agent.setup().workers.iter().enumerate() {
                let what = match worker.end {
                    EndSpec::Rx { .. } => FROM_DEVICE,
                    EndSpec::Tx { .. } => TO_DEVICE,
                    _ => RINGS,
                };
                add(what, agent.pid(w).and_then(spent));
            }
        }
        // What the kernel puts off when it has too much to do with packets.
        if let Some(pid) = softirqd(self.core) {
            add(TO_DEVICE, spent(pid));
        }
        for (at, agent) in self.agents.iter().enumerate() {
            for (w, worker) in agent.setup().workers.iter().enumerate() {
                let (Some(words), Some(layout)) = (agent.words(w), agent.layout(w)) else {
                    continue;
                };
                for (n, node) in worker.nodes.iter().enumerate() {
                    let counts = NodeCounts::read(&words, &layout, n);
                    match &node.nf {
                        Some((kind, _)) => moment.nodes.push((kind.clone(), counts)),
                        None if at == 0 && matches!(worker.end, EndSpec::Rx { .. }) => {
                            moment.entered = moment.entered.saturating_add(counts.packets);
                        }
                        None => {}
                    }
                }
            }
        }
        moment
    }
}

/// The kernel's thread for interrupts that were put off on a core.
fn softirqd(core: usize) -> Option<u32> {
    let name = format!("ksoftirqd/{core}");
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim_end() == name
    })
}

/// Sends frames into the first veth pair, from this process on a core of its own, no more than may be under
/// way. It stands for whoever sends: its cost is nobody's.
struct Feeder {
    source: Stepper,
    sink: Stepper,
    /// Frames given up for lost.
    lost: u64,
    /// How many had gone when something last went, and when that was.
    progress: (u64, Instant),
    // The steppers' memory is its.
    _agent: Agent,
    _pinned: Pinned,
}

impl Feeder {
    fn new(args: &ConsolidationArgs, source: DeviceSpec) -> Result<Self, BenchError> {
        let pinned = pin(args.feeder_core);
        let ends = [source, DeviceSpec::Afp(net::end(0, false))];
        let text = "Port<0> a; Port<1> b;\npipelet { a -> b; }\n";
        let off = Consolidate::Off;
        let setup = setup(args, text, Isolate::None, off, args.feeder_core, ends)?;
        let last = setup.workers.len().saturating_sub(1);
        let agent = Agent::start_hosting(setup, RestartPolicy::default(), |_| true)?;
        let (source, sink) = (step_of(&agent, 0)?, step_of(&agent, last)?);
        Ok(Feeder {
            source,
            sink,
            lost: 0,
            progress: (0, Instant::now()),
            _agent: agent,
            _pinned: pinned,
        })
    }

    /// Sends a burst if there is room for one; `gone`: packets that have come to their end.
    fn feed(&mut self, gone: u64) -> Result<(), BenchError> {
        let sent = self.sink.packets();
        if gone != self.progress.0 {
            self.progress = (gone, Instant::now());
        }
        let under_way = sent.saturating_sub(gone.saturating_add(self.lost));
        if under_way > WINDOW - BURST {
            if self.progress.1.elapsed() > PATIENCE {
                self.lost = self.lost.saturating_add(under_way);
            }
            return Ok(());
        }
        let failed = |e| BenchError::from(LatencyError::from(e));
        self.source.step().map_err(failed)?;
        // It takes what the source gave, whatever else it has to do first.
        let target = self.source.packets();
        let start = Instant::now();
        while self.sink.packets() < target && start.elapsed() < PATIENCE {
            self.sink.step().map_err(failed)?;
        }
        Ok(())
    }
}

fn step_of(agent: &Agent, worker: usize) -> Result<Stepper, BenchError> {
    Ok(agent.stepper(worker).map_err(LatencyError::from)?)
}
