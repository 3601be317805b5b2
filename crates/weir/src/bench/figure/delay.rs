//! Latency under load: how long each packet takes at 90 % of the rate that the chain sustains. This process plays source and sink, as
//! for one packet at a time. Packets leave in the order in which they came and none is dropped, so the n-th that comes out is the n-th
//! that was due, and no packet has to carry its time.

use super::Effort;
use super::data::{Place, Sample, Series, Verdict, add};
use super::search::{Goal, LOSS, MOST, sustainable};
use super::unf::{isolate, plan, unfinished};
use super::values::median;
use crate::bench::chain_policy;
use crate::bench::latency::LatencyError;
use crate::bench::machine::pin;
use crate::bench::sample::{BenchError, spread, wait_until_ready};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec, Rate};
use weir_plan::Plan;
use weir_runtime::spec::EndSpec;

/// The part of the sustained rate at which latency is taken.
const LOAD: f64 = 0.9;
/// How long packets run before those that count.
const SETTLE: Duration = Duration::from_millis(100);
/// Between two turns of the agent.
const TURN: Duration = Duration::from_millis(50);

const LENGTHS: [usize; 3] = [1, 4, 8];
const PARTS: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
const KINDS: [(&str, bool); 2] = [("isolated", true), ("fused", false)];
/// The length whose histograms are drawn.
const DRAWN: f64 = 4.0;
/// Steps of a histogram, as it is kept and as it is drawn: where they end, in tenths of a power of ten.
const FINE: [u64; 10] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80];
const COARSE: [u64; 3] = [10, 20, 50];

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
fn above(ns: u64, tenths: &[u64]) -> u64 {
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

/// A step of source or sink: when it was over, nanoseconds from the start, and how many packets there had been then.
type Steps = Vec<(u64, u64)>;

pub fn latency(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> =
        LENGTHS.iter().flat_map(|&n| KINDS.map(|(name, i)| (name, n, i))).collect();
    let points = effort.in_order(&points);
    let span = Duration::from_secs_f64(effort.sampling.seconds.clamp(0.05, 60.0));
    effort.round_of(&points, |(name, n, isolated)| {
        let plan = plan(effort, &chain_policy(n), isolate(isolated))?;
        let ((found, run), trips) = effort.around(|| {
            let found = sustainable(&Goal::usual(span), MOST, |rate, span| {
                Ok::<_, BenchError>(offer(effort, &plan, rate, span)?.lost)
            })?;
            if found.rate <= 0.0 {
                return Ok((found, None));
            }
            Ok((found, Some(offer(effort, &plan, found.rate * LOAD, span)?)))
        })?;
        let Some(run) = run else {
            // There is no load of which it would be the latency.
            effort.fail(name, n as f64, "no rate was held");
            return Ok(Vec::new());
        };
        let x = n as f64;
        let of = |(part, at): (&str, f64)| {
            let mut sample = Sample::of(run.percentile(at) as f64 / 1e3, trips);
            (sample.load, sample.open) = (Some((found.rate * LOAD, run.lost)), !found.is_closed);
            if part == PARTS[0].0 {
                sample.histogram = run.histogram();
            }
            (format!("{name}, {part}"), x, sample)
        };
        Ok(PARTS.map(of).to_vec())
    })
}

pub fn judge(series: &[Series]) -> (Verdict, String) {
    let of_kind = |(kind, _): (&str, bool)| {
        let loads = |n: f64| {
            let line = series.iter().find(|s| s.name == format!("{kind}, {}", PARTS[0].0));
            let place = line.and_then(|s| s.places.iter().find(|p| p.x == n));
            let samples = place.into_iter().flat_map(|p| &p.samples);
            let mpps = samples.filter_map(|s| Some(s.load?.0 / 1e6));
            spread(mpps.collect()).map_or(f64::NAN, |[_, median, _]| median)
        };
        let each = LENGTHS.map(|n| {
            let n = n as f64;
            let of = |part: &str| median(series, &format!("{kind}, {part}"), n);
            let [p50, p99, p999] = PARTS.map(|(part, _)| of(part));
            format!("{p50:.0} / {p99:.0} / {p999:.0} µs with {n} at {:.1} Mpps", loads(n))
        });
        format!("{kind} {}", each.join(", "))
    };
    let samples = || series.iter().filter(|s| s.name.ends_with(PARTS[0].0)).flat_map(|s| &s.places);
    let loads = samples().flat_map(|p| &p.samples).filter_map(|s| s.load);
    let late = loads.clone().filter(|(_, lost)| *lost > LOSS).count();
    let text = format!(
        "p50 / p99 / p99.9: {}; {late} of {} runs at that load lost more than half a percent all the same{}",
        KINDS.map(of_kind).join("; "),
        loads.count(),
        unfinished(series)
    );
    (Verdict::DifferentSetUp, text)
}

/// The histograms of one length: percent of the packets by how long they took, in microseconds up to which a step reaches.
pub fn histogram(series: &[Series]) -> Vec<Series> {
    let place = |kind: &str| -> Option<&Place> {
        let line = series.iter().find(|s| s.name == format!("{kind}, {}", PARTS[0].0))?;
        line.places.iter().find(|place| place.x == DRAWN)
    };
    let samples = |kind: &str| place(kind).into_iter().flat_map(|place| &place.samples);
    // Each step that is kept lies within one that is drawn.
    let drawn = |limit: u64| above(limit - 1, &COARSE);
    let limits = KINDS.iter().flat_map(|(kind, _)| samples(kind)).flat_map(|s| &s.histogram);
    let (least, most) = limits.fold((u64::MAX, 0), |(least, most), (limit, _)| {
        (least.min(drawn(*limit)), most.max(drawn(*limit)))
    });
    let steps = || std::iter::successors(Some(least), |at| Some(above(*at, &COARSE)));
    let mut told = Vec::new();
    for (kind, _) in KINDS {
        for sample in samples(kind) {
            let all: u64 = sample.histogram.iter().map(|(_, packets)| packets).sum();
            for step in steps().take_while(|step| *step <= most) {
                let within = sample.histogram.iter().filter(|(limit, _)| drawn(*limit) == step);
                let within: u64 = within.map(|(_, packets)| packets).sum();
                let value = within as f64 * 100.0 / all.max(1) as f64;
                let sample = Sample::of(value, sample.round_trip_ns);
                add(&mut told, &format!("{kind}, {DRAWN} µNFs"), step as f64 / 1e3, sample);
            }
        }
    }
    told
}

/// In which step each line has most packets.
pub fn judge_histogram(series: &[Series]) -> (Verdict, String) {
    let most = |line: &Series| {
        let steps = line.places.iter().filter_map(|place| Some((place.x, place.spread()?[1])));
        let (step, percent) = steps.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!("{}: most, {percent:.0} %, in the step up to {step} µs", line.name))
    };
    let text: Vec<String> = series.iter().filter_map(most).collect();
    (Verdict::DifferentSetUp, text.join("; "))
}

/// Offers `rate` packets a second for `span`.
fn offer(effort: &Effort<'_>, plan: &Plan, rate: f64, span: Duration) -> Result<Run, BenchError> {
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
    fn the_finding_has_percentiles_and_load_at_each_length_and_how_many_runs_fell_behind() {
        let mut series = Vec::new();
        for (at, (part, _)) in PARTS.into_iter().enumerate() {
            for (lost, us) in [(0.0, 10.0), (0.02, 30.0), (0.001, 20.0)] {
                let us = us * 10_f64.powi(at as i32);
                let sample = Sample { load: Some((9e6, lost)), ..Sample::of(us, [80.0; 2]) };
                add(&mut series, &format!("isolated, {part}"), 8.0, sample);
            }
        }
        let (_, text) = judge(&series);
        assert!(text.contains("20 / 200 / 2000 µs with 8 at 9.0 Mpps"), "{text}");
        assert!(text.contains("1 of 3 runs at that load lost more"), "{text}");
    }

    #[test]
    fn a_histogram_has_every_packet_in_the_step_that_ends_above_it() {
        assert_eq!([0, 9, 10, 99].map(|ns| above(ns, &FINE)), [10, 10, 12, 100]);
        assert_eq!([49, 50, 100].map(|ns| above(ns, &COARSE)), [50, 100, 200]);
        let run = Run { lost: 0.0, delays: vec![(1500, 1), (1600, 2), (120_000, 1)] };
        assert_eq!(run.histogram(), [(2000, 3), (150_000, 1)]);
        let mut series = Vec::new();
        let sample = Sample { histogram: run.histogram(), ..Sample::of(1.6, [80.0; 2]) };
        add(&mut series, "fused, p50", DRAWN, sample);
        let told = histogram(&series);
        let of = |step| median(&told, "fused, 4 µNFs", step);
        assert_eq!([2.0, 5.0, 100.0, 200.0].map(of), [75.0, 0.0, 0.0, 25.0]);
        assert!(of(1.0).is_nan() && of(500.0).is_nan(), "nothing beyond the packets");
        assert!(histogram(&[]).is_empty());
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
}
