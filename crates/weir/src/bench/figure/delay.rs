//! Latency under load: how long each packet takes at 90 % of the rate that the chain sustains. This process plays source and sink, as
//! for one packet at a time. Packets leave in the order in which they came and none is dropped, so the n-th that comes out is the n-th
//! that was due, and no packet has to carry its time.

use super::Effort;
use super::data::Sample;
use super::search::{Found, Goal, MOST, sustainable};
use crate::bench::latency::LatencyError;
use crate::bench::machine::pin;
use crate::bench::sample::{BenchError, wait_until_ready};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec, Rate};
use weir_plan::Plan;
use weir_runtime::spec::EndSpec;

/// The part of the sustained rate at which latency is taken.
pub const LOAD: f64 = 0.9;
/// How long packets run before those that count.
const SETTLE: Duration = Duration::from_millis(100);
/// Between two turns of the agent.
const TURN: Duration = Duration::from_millis(50);

/// Steps of a histogram, as it is kept: where they end, in tenths of a power of ten.
const FINE: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];

/// What a rate gave.
struct Run {
    /// Of the packets that were due while it was measured, the part by which fewer came out: what a search for the sustained rate judges, too.
    lost: f64,
    /// Nanoseconds from when packets were due until they came out, and how many: by steps of the sink, in order of nanoseconds.
    delays: Vec<(u64, u64)>,
}

impl Run {
    /// The delay that this part of the packets did not exceed.
    fn percentile(&self, part: f64) -> u64 {
        let all: u64 = self.delays.iter().map(|(_, packets)| packets).sum();
        let mut left = (all as f64 * part) as u64;
        for &(ns, packets) in &self.delays {
            if packets > left {
                return ns;
            }
            left -= packets;
        }
        self.delays.last().map_or(0, |(ns, _)| *ns)
    }

    /// How many packets took how long, by steps' upper limits.
    fn histogram(&self) -> Vec<(u64, u64)> {
        let mut steps: Vec<(u64, u64)> = Vec::new();
        for &(ns, packets) in &self.delays {
            let limit = above(ns, &FINE);
            match steps.last_mut() {
                Some((last, sum)) if *last == limit => *sum += packets,
                _ => steps.push((limit, packets)),
            }
        }
        steps
    }
}

/// Where the step ends that has `ns`: the least limit above it.
pub fn above(ns: u64, tenths: &[u64]) -> u64 {
    // No packet is under way for so long.
    let ns = ns.min(1_000_000_000_000_000);
    let mut ten = 10;
    loop {
        if let Some(limit) = tenths.iter().map(|part| part * ten / 10).find(|limit| *limit > ns) {
            return limit;
        }
        ten *= 10;
    }
}

/// What a search found, and how long packets took at 90 % of it.
pub struct UnderLoad {
    found: Found,
    run: Run,
    round_trip_ns: [f64; 2],
}

impl UnderLoad {
    /// Searches for the rate that a plan sustains and offers 90 % of it. `shares`: source and sink leave their core to workers in each turn.
    /// `None`: no rate was held, so there is no load of which this would be the latency.
    pub fn of(effort: &Effort<'_>, plan: &Plan, shares: bool) -> Result<Option<Self>, BenchError> {
        let span = Duration::from_secs_f64(effort.sampling.seconds.clamp(0.05, 60.0));
        let ((found, run), round_trip_ns) = effort.around(|| {
            let found = sustainable(&Goal::usual(span), MOST, |rate, span| {
                Ok::<_, BenchError>(offer(effort, plan, rate, span, shares)?.lost)
            })?;
            let is_held = found.rate > 0.0;
            let run = || offer(effort, plan, found.rate * LOAD, span, shares);
            Ok((found, is_held.then(run).transpose()?))
        })?;
        Ok(run.map(|run| UnderLoad { found, run, round_trip_ns }))
    }

    /// A percentile (0 to 1) in microseconds, with the load that it is of.
    pub fn percentile(&self, part: f64) -> Sample {
        let us = self.run.percentile(part) as f64 / 1e3;
        let mut sample = Sample::of(us, self.round_trip_ns);
        sample.load = Some((self.found.rate * LOAD, self.run.lost));
        sample.open = !self.found.is_closed;
        sample
    }

    /// The median, with the 99th and the 99.9th percentile and the histogram of the same packets.
    pub fn median(&self) -> Sample {
        let tail = [0.99, 0.999].map(|part| self.percentile(part).value);
        let histogram = self.run.histogram();
        Sample { tail: Some(tail), histogram, ..self.percentile(0.5) }
    }
}

/// A step of source or sink: when it was over, nanoseconds from the start, and how many packets there had been then.
type Steps = Vec<(u64, u64)>;

/// Offers `rate` packets a second for `span`.
fn offer(
    effort: &Effort<'_>,
    plan: &Plan,
    rate: f64,
    span: Duration,
    shares: bool,
) -> Result<Run, BenchError> {
    let sampling = effort.sampling;
    let _pinned = pin(sampling.device_core);
    let rate = rate.max(1.0) as u64;
    let generator = GeneratorSpec {
        size: 60,
        flows: 1,
        rate: Rate::PerSecond(rate),
        ..GeneratorSpec::default()
    };
    let binds = BTreeMap::from([(0, DeviceSpec::Generator(generator)), (1, DeviceSpec::Null)]);
    let options = RunOptions { busy: true, ..sampling.options() };
    let setup = wiring::wire(plan, &binds, &BTreeMap::new(), &options)?;
    let of_device = |end: &EndSpec| matches!(end, EndSpec::Rx { .. } | EndSpec::Tx { .. });
    let chain = setup.workers.iter().filter(|w| !of_device(&w.end)).count();
    let last = setup.workers.len() - 1;
    let mut agent = Agent::start_hosting(setup, RestartPolicy::default(), |w| of_device(&w.end))?;
    wait_until_ready(&mut agent, chain)?;
    let mut sink = agent.stepper(last).map_err(LatencyError::from)?;
    let mut source = agent.stepper(0).map_err(LatencyError::from)?;
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let (mut made, mut out): (Steps, Steps) = (Vec::new(), Vec::new());
    let (mut turned, end) = (Instant::now(), SETTLE + span);
    while start.elapsed() < end {
        if turned.elapsed() > TURN {
            agent.turn(Duration::ZERO)?;
            turned = Instant::now();
        }
        if shares {
            std::thread::yield_now();
        }
        source.step().map_err(LatencyError::from)?;
        note(&mut made, now(), source.packets());
        sink.step().map_err(LatencyError::from)?;
        note(&mut out, now(), sink.packets());
    }
    Ok(told(rate, SETTLE.as_nanos() as u64, now(), &made, &out))
}

fn note(steps: &mut Steps, at: u64, packets: u64) {
    if steps.last().is_none_or(|(_, before)| *before < packets) {
        steps.push((at, packets));
    }
}

/// What the steps say: packet n was due at n / rate from when the source began, which is no later than any of its steps says.
fn told(rate: u64, settled: u64, end: u64, made: &[(u64, u64)], out: &[(u64, u64)]) -> Run {
    let gap = 1e9 / rate as f64;
    let began = made.iter().map(|(at, n)| *at as f64 - *n as f64 * gap);
    let began = began.fold(f64::INFINITY, f64::min);
    let due = ((end as f64 - settled as f64) / gap).max(1.0);
    let out_before = out.iter().take_while(|(at, _)| *at <= settled).last().map_or(0, |(_, n)| *n);
    let arrived = (out.last().map_or(0, |(_, n)| *n) - out_before) as f64;
    let mut delays: Vec<(u64, u64)> = Vec::new();
    let mut before = 0;
    for &(at, n) in out {
        if at > settled {
            // Packets of one step leave together; each has waited since it was due. In two halves, which is near enough.
            for (first, packets) in
                [(before, (n - before).div_ceil(2)), ((before + n).div_ceil(2), (n - before) / 2)]
            {
                let middle = first as f64 + packets as f64 / 2.0;
                let delay = (at as f64 - began - middle * gap).max(0.0);
                delays.push((delay as u64, packets));
            }
        }
        before = n;
    }
    delays.sort_unstable();
    Run { lost: (1.0 - arrived / due).max(0.0), delays }
}

#[cfg(test)]
mod tests {
    use super::super::search::LOSS;
    use super::*;

    #[test]
    fn the_nth_packet_out_is_the_nth_that_was_due() {
        // A packet each microsecond from 500 ns on, in steps of one; each comes out 3 µs later.
        let made: Steps = (1..=1000).map(|n| (500 + n * 1000, n)).collect();
        let out: Steps = made.iter().map(|(at, n)| (at + 3000, *n)).collect();
        let run = told(1_000_000, 0, 1_003_500, &made, &out);
        assert!(run.lost < LOSS, "{}", run.lost);
        // Half a packet's time belongs to the middle of a step of one.
        let of = |part| (3000..=3600).contains(&run.percentile(part));
        assert!(of(0.5) && of(0.999), "{:?}", run.delays);
    }

    #[test]
    fn what_waits_longer_and_longer_is_behind_and_late() {
        let made: Steps = (1..=1000).map(|n| (n * 1000, n)).collect();
        let out: Steps = (1..=500).map(|n| (n * 2000, n)).collect();
        let run = told(1_000_000, 0, 1_000_000, &made, &out);
        assert!((0.49..0.51).contains(&run.lost), "{}", run.lost);
        // What was so before it was measured does not count.
        let made: Steps = (1..=1000).map(|n| (n * 1000, n)).collect();
        let out: Steps = (1..=500).map(|n| (500_000 + n * 1000, n)).collect();
        let run = told(1_000_000, 500_000, 1_000_000, &made, &out);
        assert!(run.lost < LOSS, "{}", run.lost);
        assert!(run.percentile(0.99) > 400_000, "{}", run.percentile(0.99));
    }

    #[test]
    fn a_histogram_has_every_packet_in_the_step_that_ends_above_it() {
        assert_eq!([0, 9, 10, 99].map(|ns| above(ns, &FINE)), [10, 10, 12, 100]);
        let run = Run { lost: 0.0, delays: vec![(1500, 1), (1600, 2), (120_000, 1)] };
        assert_eq!(run.histogram(), [(2000, 3), (150_000, 1)]);
    }
}
