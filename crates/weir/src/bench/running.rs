//! A graph that runs to be measured: what arrives of as much as is taken, and the rate that it sustains.

use super::machine::{cpu_time_ns, round_trip};
use super::sample::{
    BenchError, Measured, READY, SampleArgs, SearchedRate, WARM_UP, delivered, ready_by, watch,
};
use super::search::{Goal, MOST, sustainable};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::DeviceSpec;
use weir_packet::BATCH;
use weir_plan::Plan;

/// Time until workers that are to keep their core do so ([`weir_runtime::spec::Trial`]), counted from when all are ready.
const KEEPS: Duration = Duration::from_millis(400);

/// Such workers have started by then, or do not; and how often it is tried.
const STARTED: Duration = Duration::from_secs(5);
pub const STARTS: u32 = 5;

/// A new rate runs for so long before what arrives of it counts.
const SETTLE: Duration = Duration::from_millis(10);

/// What arrived is read between two looks at the clock that are no further apart, or, where this process is not let in, as close as they came.
const AT_ONCE: Duration = Duration::from_micros(5);
const LOOKS: u32 = 50;

/// The source is the first worker, the sink the last.
pub struct Running<'a> {
    args: &'a SampleArgs,
    agent: Agent,
    sink: usize,
    keeps_core: bool,
    real_time: bool,
    withheld: bool,
    before: f64,
}

impl<'a> Running<'a> {
    /// Starts it with ports 0 (bound to `source`) and 1 (to a null sink), and lets it run until `packets` have been delivered (or do not come:
    /// for a while).
    pub fn start(
        args: &'a SampleArgs,
        plan: &Plan,
        source: DeviceSpec,
        options: &RunOptions,
        packets: u64,
    ) -> Result<Self, BenchError> {
        let before = round_trip(args.device_core, args.chain_core);
        let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
        let (mut agent, real_time) = start(plan, &binds, options)?;
        let keeps_core = options.trial.keeps_core;
        if keeps_core {
            watch(&mut agent, KEEPS)?;
        }
        let sink = agent.setup().workers.len() - 1;
        watch(&mut agent, args.span() / 2)?;
        let patience = Instant::now() + WARM_UP;
        while delivered(&agent, sink) < packets && Instant::now() < patience {
            watch(&mut agent, Duration::from_millis(20))?;
        }
        let withheld = options.real_time && !real_time;
        Ok(Running { args, agent, sink, keeps_core, real_time, withheld, before })
    }

    /// Measures what arrives of as much as is taken and, where that is asked for, the rate that is sustained; and ends it.
    pub fn measure(mut self) -> Result<Measured, BenchError> {
        let busy =
            |agent: &Agent, sink| cpu_time_ns((0..=sink).filter_map(|worker| agent.pid(worker)));
        let before_ns = busy(&self.agent, self.sink);
        let (start, from) = (Instant::now(), delivered(&self.agent, self.sink));
        watch(&mut self.agent, self.args.span())?;
        let (took, to) = (start.elapsed(), delivered(&self.agent, self.sink));
        let spent = busy(&self.agent, self.sink).zip(before_ns);
        let spent = spent.and_then(|(to, from)| to.checked_sub(from));
        let packets = to.saturating_sub(from);
        let mpps = packets as f64 / took.as_secs_f64() / 1e6;
        let sustained = match self.args.searches && !self.keeps_core && packets > 0 {
            true => Some(self.search(mpps * 1e6)?),
            false => None,
        };
        let Running { args, agent, real_time, withheld, before, .. } = self;
        drop(agent);
        Ok(Measured {
            mpps,
            round_trip_ns: [before, round_trip(args.device_core, args.chain_core)],
            real_time,
            withheld,
            cpu_ns: spent.filter(|_| packets > 0).map(|ns| ns as f64 / packets as f64),
            sustained,
        })
    }

    /// The rate that is sustained of a source that does not wait, from what arrives of as much as is taken.
    fn search(&mut self, full: f64) -> Result<SearchedRate, BenchError> {
        let goal = Goal::from_full_load(self.args.span(), full);
        // What another rate has left on its way, which is no more than all buffers, is not this one's.
        let left = Duration::from_secs_f64((f64::from(self.args.pool) / full.max(1.0)).min(0.2));
        let found = sustainable(&goal, MOST, Some(full), |rate, span| {
            self.offer(rate, SETTLE + left, span)
        })?;
        Ok(SearchedRate { mpps: found.rate / 1e6, is_closed: found.is_closed })
    }

    /// Offers a rate for `settle` and `span`, and says which part of what was due in the latter has not arrived but for a batch, which is on
    /// its way at the end.
    fn offer(&mut self, rate: f64, settle: Duration, span: Duration) -> Result<f64, BenchError> {
        let rate = rate.max(1.0) as u64;
        if !self.agent.pace(0, Some(rate)) {
            return Err(BenchError::NoPace);
        }
        watch(&mut self.agent, settle)?;
        let (start, from) = self.now();
        watch(&mut self.agent, span)?;
        let (end, to) = self.now();
        let due = rate as f64 * end.duration_since(start).as_secs_f64();
        let arrived = (to.saturating_sub(from) + BATCH as u64) as f64;
        Ok((1.0 - arrived / due.max(1.0)).max(0.0))
    }

    /// What has arrived, and when: others may have this process's core between looking at the one and at the other.
    fn now(&self) -> (Instant, u64) {
        let mut best: Option<(Duration, Instant, u64)> = None;
        for _ in 0..LOOKS {
            let before = Instant::now();
            let arrived = delivered(&self.agent, self.sink);
            let took = before.elapsed();
            if best.is_none_or(|(least, ..)| took < least) {
                best = Some((took, before, arrived));
            }
            if took <= AT_ONCE {
                break;
            }
        }
        best.map_or_else(|| (Instant::now(), 0), |(_, at, arrived)| (at, arrived))
    }
}

/// Starts a graph and waits until all are ready; true when one is in the real-time class. Of workers that are to keep their core one may do so
/// before those behind it have started, and leaves them none to start on: then all are started anew.
fn start(
    plan: &Plan,
    binds: &BTreeMap<u16, DeviceSpec>,
    options: &RunOptions,
) -> Result<(Agent, bool), BenchError> {
    let keeps_core = options.trial.keeps_core;
    let mut policy = RestartPolicy::default();
    if keeps_core {
        // Who never gets the core does not hang: that is what is measured.
        policy.patience = None;
    }
    for _ in 0..STARTS {
        let setup = wiring::wire(plan, binds, &BTreeMap::new(), options)?;
        let mut agent = Agent::start(setup, policy)?;
        let workers = agent.setup().workers.len();
        let patience = if keeps_core { STARTED } else { READY };
        match ready_by(&mut agent, workers, Instant::now() + patience)? {
            Some(real_time) => return Ok((agent, real_time)),
            None if keeps_core => {}
            None => return Err(BenchError::NotReady),
        }
    }
    Err(BenchError::NotStarted)
}
