//! A graph that runs to be measured: what arrives of as much as is taken, and the rate that it sustains.

use super::machine::cpu_time_ns;
use super::mood::{Around, Mood};
use super::sample::{
    BenchError, Measured, READY, SampleArgs, WARM_UP, delivered, ready_by, watch, watch_undisturbed,
};
use super::search::{Found, Goal, MOST, sustainable};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::DeviceSpec;
use weir_plan::Plan;

/// Time until workers that are to keep their core do so ([`weir_runtime::spec::Trial`]), counted from when all are ready.
const KEEPS: Duration = Duration::from_millis(400);

/// Such workers have started by then, or do not; and how often it is tried.
const STARTED: Duration = Duration::from_secs(5);
pub const STARTS: u32 = 5;

/// Part of a sample's time that a graph runs before it.
const WARM_UP_PART: u32 = 4;

/// A new rate runs for so long before what arrives of it counts.
const SETTLE: Duration = Duration::from_millis(10);

/// Workers rest for so long at least between two rates.
const REST: Duration = Duration::from_millis(4);

/// What arrived is read between two looks at the clock that are no further apart, or, where this process is not let in, as close as they came.
const AT_ONCE: Duration = Duration::from_micros(5);
const LOOKS: u32 = 50;

/// Part of what arrives at full load that is mostly sustained of a source that does not wait, or a little more.
const MOSTLY: f64 = 0.85;

/// The source is the first worker, the sink the last.
pub struct Running<'a> {
    args: &'a SampleArgs,
    agent: Agent,
    sink: usize,
    keeps_core: bool,
    real_time: bool,
    withheld: bool,
    before: Mood,
}

impl<'a> Running<'a> {
    /// Starts it with ports 0 (bound to `source`) and 1 (to a null sink), and lets it run until `packets` have been delivered; an error when they do
    /// not come.
    pub fn start(
        args: &'a SampleArgs,
        plan: &Plan,
        source: DeviceSpec,
        options: &RunOptions,
        packets: u64,
    ) -> Result<Self, BenchError> {
        let before = Mood::now(args.device_core, args.chain_core);
        let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
        let (mut agent, real_time) = start(plan, &binds, options)?;
        let keeps_core = options.trial.keeps_core;
        if keeps_core {
            watch(&mut agent, KEEPS)?;
        }
        let sink = agent.setup().workers.len() - 1;
        watch(&mut agent, args.span() / WARM_UP_PART)?;
        let patience = Instant::now() + WARM_UP;
        loop {
            let came = delivered(&agent, sink)?;
            match came >= packets {
                true => break,
                false if Instant::now() >= patience => {
                    return Err(BenchError::Few { came, wanted: packets });
                }
                false => watch(&mut agent, Duration::from_millis(20))?,
            }
        }
        let withheld = options.real_time && !real_time;
        Ok(Running { args, agent, sink, keeps_core, real_time, withheld, before })
    }

    /// Measures what arrives of as much as is taken and, where that is asked for, the rate that is sustained; and ends it.
    pub fn measure(mut self) -> Result<Measured, BenchError> {
        let busy =
            |agent: &Agent, sink| cpu_time_ns((0..=sink).filter_map(|worker| agent.pid(worker)));
        let before_ns = busy(&self.agent, self.sink);
        let (start, from) = (Instant::now(), delivered(&self.agent, self.sink)?);
        self.watch(self.args.span())?;
        let (took, to) = (start.elapsed(), delivered(&self.agent, self.sink)?);
        let spent = busy(&self.agent, self.sink).zip(before_ns);
        let spent = spent.and_then(|(to, from)| to.checked_sub(from));
        let packets = to.saturating_sub(from);
        let mpps = packets as f64 / took.as_secs_f64() / 1e6;
        let sustained = match self.args.searches && !self.keeps_core {
            true if packets > 0 => Some(self.search(mpps * 1e6)?),
            true => Some(Found { rate: 0.0, is_closed: true, width: 0.0 }),
            false => None,
        };
        let Running { args, agent, real_time, withheld, before, .. } = self;
        drop(agent);
        Ok(Measured {
            mpps,
            around: Around::of(before, Mood::now(args.device_core, args.chain_core)),
            real_time,
            withheld,
            cpu_ns: spent.filter(|_| packets > 0).map(|ns| ns as f64 / packets as f64),
            sustained,
        })
    }

    /// The rate that is sustained of a source that does not wait, from what arrives of as much as is taken.
    fn search(&mut self, full: f64) -> Result<Found, BenchError> {
        let goal = Goal::from_full_load(self.args.span(), full);
        let (goal, part) = goal.from(self.args.begins.get(), self.args.patience);
        // All buffers may be under way.
        let drains = Duration::from_secs_f64((f64::from(self.args.pool) / full.max(1.0)).min(1.0));
        // What a ring that is full lets through is seldom held of a source that does not wait: a little less is a better guess, and what was
        // held before a better one.
        let begins = full * part.unwrap_or(MOSTLY);
        sustainable(&goal, MOST, Some(begins), |rate, span| {
            self.drain(drains)?;
            self.offer(rate, span)
        })
    }

    /// Lets what another rate has left on its way arrive, which takes so long at most, or twice that where others have the cores, and the workers
    /// rest: those of the real-time class are kept from their cores by the kernel, unless they leave a twentieth of each second to others.
    fn drain(&mut self, takes: Duration) -> Result<(), BenchError> {
        self.pace(0)?;
        let latest = Instant::now() + takes * 2 + REST;
        let mut before = None;
        while Instant::now() < latest {
            watch(&mut self.agent, REST)?;
            let arrived = delivered(&self.agent, self.sink)?;
            if before == Some(arrived) {
                break;
            }
            before = Some(arrived);
        }
        Ok(())
    }

    /// Lets it run. Workers that are to keep their core are what is tried, whatever comes of it.
    fn watch(&mut self, span: Duration) -> Result<(), BenchError> {
        match self.keeps_core {
            true => Ok(watch(&mut self.agent, span)?),
            false => watch_undisturbed(&mut self.agent, span),
        }
    }

    fn pace(&mut self, rate: u64) -> Result<(), BenchError> {
        self.agent.pace(0, Some(rate)).then_some(()).ok_or(BenchError::NoPace)
    }

    /// Offers a rate, and says which part of what was due in `span` has not arrived.
    fn offer(&mut self, rate: f64, span: Duration) -> Result<f64, BenchError> {
        let rate = rate.max(1.0) as u64;
        self.pace(rate)?;
        self.watch(SETTLE)?;
        let (start, from) = self.now()?;
        self.watch(span)?;
        let (end, to) = self.now()?;
        Ok(missing(rate, end.duration_since(start), to.saturating_sub(from)))
    }

    /// What has arrived, and when: others may have this process's core between looking at the one and at the other.
    fn now(&self) -> Result<(Instant, u64), BenchError> {
        let mut best: Option<(Duration, Instant, u64)> = None;
        for _ in 0..LOOKS {
            let before = Instant::now();
            let arrived = delivered(&self.agent, self.sink)?;
            let took = before.elapsed();
            if best.is_none_or(|(least, ..)| took < least) {
                best = Some((took, before, arrived));
            }
            if took <= AT_ONCE {
                break;
            }
        }
        best.map(|(_, at, arrived)| (at, arrived)).ok_or(BenchError::Unread)
    }
}

/// Which part has not arrived of what was due at this rate, packets a second, in so long a time.
fn missing(rate: u64, took: Duration, arrived: u64) -> f64 {
    let due = rate as f64 * took.as_secs_f64();
    (1.0 - arrived as f64 / due.max(1.0)).max(0.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_part_of_what_was_due_in_the_time_that_was_taken() {
        let [second, half] = [1000, 500].map(Duration::from_millis);
        assert_eq!(missing(1000, second, 1000), 0.0);
        assert_eq!(missing(1000, second, 750), 0.25);
        assert_eq!(missing(1000, half, 375), 0.25);
        assert_eq!(missing(1000, second, 0), 1.0);
        // What came besides is no gain, and where nothing was due nothing is missing but that.
        assert_eq!(missing(1000, second, 1100), 0.0);
        assert_eq!(missing(1, Duration::ZERO, 1), 0.0);
    }
}
