//! Latency under load: how long each packet takes at 90 % of the rate that the chain sustains. This process plays source and sink, as
//! for one packet at a time. Packets leave in the order in which they came and none is dropped, so the n-th that comes out is the n-th
//! that was due, and no packet has to carry its time.

use super::Effort;
use super::data::Sample;
use crate::bench::latency::LatencyError;
use crate::bench::machine::pin;
use crate::bench::mood::Around;
use crate::bench::sample::{BenchError, wait_until_ready};
use crate::bench::search::{Found, Goal, MOST, sustainable};
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
/// Between two turns of the agent, in which source and sink wait: none in runs that are shorter. Its watchdog waits twice as long.
const TURN: Duration = Duration::from_secs(1);
/// Packets that leave together are told apart by so much of the time that they were due in.
const APART_NS: f64 = 1000.0;
/// Steps of the sink for which there is room at first.
const ROOM: usize = 1 << 18;

/// Steps of a histogram, as it is kept: where they end, in tenths of a power of ten.
const FINE: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];

/// What a rate gave.
struct Run {
    /// Of the packets that were due while it was measured, the part by which fewer came out: what a search for the sustained rate judges, too.
    lost: f64,
    /// Nanoseconds from when packets were due until they came out, and how many: in order of nanoseconds. Empty in a search's trials.
    delays: Vec<(u64, u64)>,
    /// The real-time class was wanted, and no worker was in it.
    withheld: bool,
    /// There is nothing between source and sink, which are this process.
    no_workers: bool,
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
    /// Before and after the run, not the search.
    around: Around,
}

impl UnderLoad {
    /// Searches for the rate that a plan sustains and offers 90 % of it. Each trial has a graph of its own: one that polls in the real-time class for
    /// longer than a second would be kept from its core by the kernel for a twentieth of it, and words are timed when no graph runs. It begins where
    /// those of earlier rounds ended at this place, if one did. `shares`: source and sink leave their core to workers in each turn.
    /// `None`: no rate was held, so there is no load of which this would be the latency, or nothing came at it.
    pub fn of(
        effort: &Effort<'_>,
        plan: &Plan,
        (line, x): (&str, f64),
        shares: bool,
    ) -> Result<Option<Self>, BenchError> {
        let span = effort.sampling.span();
        let offered = |rate, span| Offered { rate, span, shares };
        let before = effort.rate_before(line, x);
        let (goal, begins) = Goal::usual(span).from(before, 1.0);
        let found = sustainable(&goal, MOST, begins, |rate, span| {
            Ok::<_, BenchError>(offered(rate, span).to(effort, plan, false)?.lost)
        })?;
        if found.rate <= 0.0 {
            return Ok(None);
        }
        let (run, around) =
            effort.around(|| offered(found.rate * LOAD, span).to(effort, plan, true))?;
        Ok((!run.delays.is_empty()).then_some(UnderLoad { found, run, around }))
    }

    /// A percentile (0 to 1) in microseconds, with the load that it is of.
    pub fn percentile(&self, part: f64) -> Sample {
        let us = self.run.percentile(part) as f64 / 1e3;
        let mut sample = Sample::of(us, self.around);
        sample.load = Some((self.found.rate * LOAD, self.run.lost));
        sample.open = !self.found.is_closed;
        (sample.not_granted, sample.no_workers) = (self.run.withheld, self.run.no_workers);
        sample
    }

    /// The median, with the 99th and the 99.9th percentile and the histogram of the same packets.
    pub fn median(&self) -> Sample {
        let tail = [0.99, 0.999].map(|part| self.percentile(part).value);
        let histogram = self.run.histogram();
        Sample { tail: Some(tail), histogram, ..self.percentile(0.5) }
    }
}

/// A step of the sink that had packets: when it was over, nanoseconds from the start, and how many there had been then.
type Steps = Vec<(u64, u64)>;

/// A load, and for how long.
struct Offered {
    rate: f64,
    span: Duration,
    shares: bool,
}

impl Offered {
    /// Offers it to a plan. `timed`: it is looked at how long each packet takes, too.
    fn to(&self, effort: &Effort<'_>, plan: &Plan, timed: bool) -> Result<Run, BenchError> {
        let sampling = effort.sampling;
        let _pinned = pin(sampling.device_core);
        let rate = self.rate.max(1.0) as u64;
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
        let mut agent =
            Agent::start_hosting(setup, RestartPolicy::default(), |w| of_device(&w.end))?;
        let real_time = wait_until_ready(&mut agent, chain)?;
        let mut sink = agent.stepper(last).map_err(LatencyError::from)?;
        let mut source = agent.stepper(0).map_err(LatencyError::from)?;
        let gap = 1e9 / rate as f64;
        let mut out: Steps = Vec::with_capacity(ROOM);
        let start = Instant::now();
        let now = || start.elapsed().as_nanos() as u64;
        let mut began = f64::INFINITY;
        let (mut turned, end) = (Instant::now(), SETTLE + self.span);
        while start.elapsed() < end {
            if turned.elapsed() > TURN {
                agent.turn(Duration::ZERO)?;
                turned = Instant::now();
            }
            if self.shares {
                std::thread::yield_now();
            }
            source.step().map_err(LatencyError::from)?;
            // Packet n is due n gaps after the source began, which is no later than any of its steps says.
            began = began.min(now() as f64 - source.packets() as f64 * gap);
            sink.step().map_err(LatencyError::from)?;
            note(&mut out, now(), sink.packets());
        }
        let settled = SETTLE.as_nanos() as u64;
        Ok(Run {
            lost: lost(gap, settled, now(), &out),
            delays: if timed { delays(gap, settled, began, &out) } else { Vec::new() },
            withheld: !sampling.no_real_time && chain > 0 && !real_time,
            no_workers: chain == 0,
        })
    }
}

fn note(steps: &mut Steps, at: u64, packets: u64) {
    if steps.last().is_none_or(|(_, before)| *before < packets) {
        steps.push((at, packets));
    }
}

/// Of what was due from `settled` to `end`, the part by which fewer came out.
fn lost(gap: f64, settled: u64, end: u64, out: &[(u64, u64)]) -> f64 {
    let due = ((end as f64 - settled as f64) / gap).max(1.0);
    let out_before = out.iter().take_while(|(at, _)| *at <= settled).last().map_or(0, |(_, n)| *n);
    let arrived = (out.last().map_or(0, |(_, n)| *n) - out_before) as f64;
    (1.0 - arrived / due).max(0.0)
}

/// How long each packet took that came out after `settled`: from when it was due.
fn delays(gap: f64, settled: u64, began: f64, out: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut delays: Vec<(u64, u64)> = Vec::new();
    let together = ((APART_NS / gap) as u64).max(1);
    let mut before = 0;
    for &(at, n) in out {
        while at > settled && before < n {
            // Packets of one step leave together; each has waited since it was due.
            let packets = together.min(n - before);
            let middle = before as f64 + (packets as f64 + 1.0) / 2.0;
            let delay = (at as f64 - began - middle * gap).max(0.0);
            delays.push((delay as u64, packets));
            before += packets;
        }
        before = n;
    }
    delays.sort_unstable();
    delays
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::search::LOSS;

    /// Of a packet each microsecond, the first due after one.
    fn run(settled: u64, end: u64, out: &Steps) -> Run {
        let (lost, delays) = (lost(1e3, settled, end, out), delays(1e3, settled, 0.0, out));
        Run { lost, delays, withheld: false, no_workers: false }
    }

    #[test]
    fn the_nth_packet_out_is_the_nth_that_was_due() {
        // In steps of one; each comes out 3 µs after it was due.
        let out: Steps = (0..1000).map(|n| (n * 1000 + 4000, n + 1)).collect();
        let run = run(0, 1_004_000, &out);
        assert!(run.lost < LOSS, "{}", run.lost);
        assert_eq!([0.0, 0.5, 0.999].map(|part| run.percentile(part)), [3000; 3]);
    }

    #[test]
    fn packets_that_leave_together_have_waited_for_as_long_as_each_was_due() {
        // 200 at once, when the last was due: the first has waited for 199 µs, and none is told less than it waited.
        let run = run(0, 200_000, &vec![(200_000, 200)]);
        let all: Vec<u64> = run.delays.iter().map(|(ns, _)| *ns).collect();
        assert_eq!(all, (0..200).map(|n| n * 1000).collect::<Vec<_>>());
        // At 40 Mpps those of a microsecond are told as one, at their middle.
        let delays = delays(25.0, 0, 0.0, &[(2000, 80)]);
        assert_eq!(delays, [(487, 40), (1487, 40)]);
    }

    #[test]
    fn what_waits_longer_and_longer_is_behind_and_late() {
        let out: Steps = (1..=500).map(|n| (n * 2000, n)).collect();
        let behind = run(0, 1_000_000, &out);
        assert!((0.49..0.51).contains(&behind.lost), "{}", behind.lost);
        // What was so before it was measured does not count.
        let out: Steps = (1..=500).map(|n| (500_000 + n * 1000, n)).collect();
        let late = run(500_000, 1_000_000, &out);
        assert!(late.lost < LOSS, "{}", late.lost);
        assert!(late.percentile(0.99) > 400_000, "{}", late.percentile(0.99));
    }

    #[test]
    fn a_histogram_has_every_packet_in_the_step_that_ends_above_it() {
        assert_eq!([0, 9, 10, 99].map(|ns| above(ns, &FINE)), [10, 10, 12, 100]);
        let delays = vec![(1500, 1), (1600, 2), (120_000, 1)];
        let run = Run { lost: 0.0, delays, withheld: false, no_workers: false };
        assert_eq!(run.histogram(), [(2000, 3), (150_000, 1)]);
    }
}
