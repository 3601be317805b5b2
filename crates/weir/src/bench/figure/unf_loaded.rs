//! The µNF paper's figures of latency as it took them, at 90 % of the rate that each chain sustains, and these rates.

use super::data::{Place, Sample, Series, Verdict, add};
use super::delay::{LOAD, UnderLoad, above};
use super::unf::{FUSED, LENGTHS, chain_of, isolate, plan};
use super::unf_latency::{COSTED, IN_SEQUENCE, LINEAR, SIDE_BY_SIDE, judge_linear_at, worst};
use super::values::{self, across, median, no_trend, ratio, trend};
use super::{ECHO, Effort};
use crate::bench::chain_policy;
use crate::bench::parallel;
use crate::bench::sample::{BenchError, spread};
use crate::bench::search::LOSS;
use std::collections::BTreeMap;
use weir_plan::Isolate;

const PARTS: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
const ISOLATED: &str = "isolated";
const KINDS: [(&str, bool); 2] = [(ISOLATED, true), (FUSED, false)];
/// Cycles a packet of each µNF: those of the paper but one, for the time that searches take.
const COSTS: [u32; 3] = [100, 300, 700];
/// The lengths that the findings tell.
const TOLD: [usize; 3] = [1, 4, 8];
/// The length whose histograms are drawn.
const DRAWN: f64 = 4.0;
/// Where a histogram's steps end as it is drawn, in tenths of a power of ten.
const COARSE: [u64; 3] = [10, 20, 50];

/// Fig. 9a, with percentiles as lines of their own.
pub fn by_length(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    // No µNF, and one, which is one process either way, once.
    let longer = LENGTHS.iter().filter(|n| **n > 1).flat_map(|n| KINDS.map(|(_, i)| (*n, i)));
    let points: Vec<_> = [(0, true), (1, true)].into_iter().chain(longer).collect();
    let points = effort.in_order(&points);
    effort.round_of(&points, |(n, isolated)| {
        let names: &[&str] = match (n, isolated) {
            (0, _) => &[ECHO],
            (1, _) => &[ISOLATED, FUSED],
            (_, true) => &[ISOLATED],
            (_, false) => &[FUSED],
        };
        let places: &[usize] = if n == 0 { &[1, 8] } else { &[n] };
        let plan = plan(effort, &chain_policy(n), isolate(isolated))?;
        let line = format!("{}, {}", names[0], PARTS[0].0);
        let Some(loaded) = UnderLoad::of(effort, &plan, (&line, places[0] as f64), false)? else {
            names.iter().for_each(|name| effort.fail(name, places[0] as f64, NOTHING_HELD));
            return Ok(Vec::new());
        };
        let samples = PARTS.map(|(part, at)| match at {
            0.5 => (part, Sample { tail: None, ..loaded.median() }),
            _ => (part, loaded.percentile(at)),
        });
        let parts = if n == 0 { &samples[..1] } else { &samples[..] };
        let lines = names.iter().flat_map(|name| parts.iter().map(move |part| (name, part)));
        let all = lines.flat_map(|(name, (part, sample))| {
            places.iter().map(move |x| (format!("{name}, {part}"), *x as f64, sample.clone()))
        });
        Ok(all.collect())
    })
}

const NOTHING_HELD: &str = "no rate was held, or nothing came at it";

/// Fig. 9b.
pub fn by_cost(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> = COSTS.iter().flat_map(|&c| COSTED.map(|(name, n)| (name, n, c))).collect();
    let points = effort.in_order(&points);
    effort.round_of(&points, |(name, n, cycles)| {
        let text = chain_of(n, &format!("Busy {{ cycles: {cycles} }}"));
        let plan = plan(effort, &text, Isolate::Each)?;
        one(
            effort,
            name,
            f64::from(cycles),
            UnderLoad::of(effort, &plan, (name, f64::from(cycles)), false)?,
        )
    })
}

/// Fig. 8.
pub fn side_by_side(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let kinds = [(IN_SEQUENCE, false), (SIDE_BY_SIDE, true)];
    let points: Vec<_> =
        COSTS.iter().flat_map(|&c| kinds.map(|(name, side)| (name, c, side))).collect();
    let points = effort.in_order(&points);
    effort.round_of(&points, |(name, cycles, side)| {
        let sampling = effort.sampling;
        let cores = [sampling.chain_core, sampling.device_core];
        let plan = parallel::plan(sampling.device_core, &cores, cycles, side)?;
        one(
            effort,
            name,
            f64::from(cycles),
            UnderLoad::of(effort, &plan, (name, f64::from(cycles)), true)?,
        )
    })
}

/// The sample of one place.
fn one(
    effort: &Effort<'_>,
    name: &str,
    x: f64,
    loaded: Option<UnderLoad>,
) -> Result<Vec<(String, f64, Sample)>, BenchError> {
    if loaded.is_none() {
        effort.fail(name, x, NOTHING_HELD);
    }
    Ok(loaded.iter().map(|loaded| (name.to_owned(), x, loaded.median())).collect())
}

/// The rates that were held, told from the samples of Fig. 9a: millions of packets a second.
pub fn sustained(series: &[Series]) -> Vec<Series> {
    let mut told = Vec::new();
    for line in series {
        let Some(name) = line.name.strip_suffix(", p50") else { continue };
        for place in &line.places {
            for sample in &place.samples {
                let Some((load, _)) = sample.load else { continue };
                let plain = Sample::of(load / LOAD / 1e6, sample.around);
                add(
                    &mut told,
                    name,
                    place.x,
                    Sample { open: sample.open, round: sample.round, ..plain },
                );
            }
        }
    }
    told
}

pub fn judge_sustained(series: &[Series]) -> (Verdict, String) {
    let of =
        |name: &str| TOLD.map(|n| format!("{:.1}", median(series, name, n as f64))).join(" / ");
    let text = format!(
        "{ISOLATED} {}, {FUSED} {} Mpps at 1, 4, 8 µNFs, {:.1} with none{}",
        of(ISOLATED),
        of(FUSED),
        median(series, ECHO, 1.0),
        unfinished(series)
    );
    (Verdict::DifferentSetUp, text)
}

/// Of how many samples of rates the search had to end before its bounds were close: they are lower bounds.
fn unfinished(series: &[Series]) -> String {
    match open(series) {
        (0, _) => String::new(),
        (open, searches) => {
            format!("; {open} of {searches} searches ended with bounds more than 10 % apart")
        }
    }
}

/// How many searches ended before their bounds were close, of how many.
fn open(series: &[Series]) -> (usize, usize) {
    // What one search found may stand at several places; words went round the cores before and after each.
    let samples = series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
    let searches: BTreeMap<[u64; 2], bool> =
        samples.map(|s| (s.around.round_trip_ns.map(f64::to_bits), s.open)).collect();
    (searches.values().filter(|open| **open).count(), searches.len())
}

/// Part of the runs that fell behind, and of the searches that were not finished, from which on latencies are of too many loads to tell a trend.
const OVERLOAD: f64 = 0.2;
const UNFINISHED: f64 = 1.0 / 3.0;

/// Whether the trend shows, where that can be said.
fn trend_of(series: &[Series], text: String, what: &str, holds: bool) -> String {
    let (late, runs) = late(series);
    let (open, searches) = open(series);
    let part = |of: usize, all: usize| of as f64 / all.max(1) as f64;
    if part(late, runs) >= OVERLOAD {
        return no_trend(text, what, &format!("{late} of {runs} runs were of overload"));
    }
    if part(open, searches) >= UNFINISHED {
        let why = format!("{open} of {searches} loads are 90 % of a lower bound");
        return no_trend(text, what, &why);
    }
    trend(text, what, holds)
}

/// How many runs fell behind at the load that was to be held, and which searches were not finished.
fn behind(series: &[Series]) -> String {
    let (late, runs) = late(series);
    format!(
        "{late} of {runs} runs at that load lost more than half a percent all the same{}",
        unfinished(series)
    )
}

/// How many runs fell behind at the load that was to be held, of how many.
fn late(series: &[Series]) -> (usize, usize) {
    let of_one = |s: &&Series| !PARTS[1..].iter().any(|(part, _)| s.name.ends_with(part));
    let samples = series.iter().filter(of_one).flat_map(|s| &s.places).flat_map(|p| &p.samples);
    let runs: BTreeMap<[u64; 2], f64> = samples
        .filter_map(|s| Some((s.around.round_trip_ns.map(f64::to_bits), s.load?.1)))
        .collect();
    (runs.values().filter(|lost| **lost > LOSS).count(), runs.len())
}

/// The median load of a place, in millions of packets a second.
fn load(series: &[Series], name: &str, x: f64) -> f64 {
    let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
    let samples = places.filter(|p| p.x == x).flat_map(|p| &p.samples);
    let mpps = samples.filter_map(|s| Some(s.load?.0 / 1e6)).collect();
    spread(mpps).map_or(f64::NAN, |[_, median, _]| median)
}

/// Fig. 9a.
pub fn judge_by_length(series: &[Series]) -> (Verdict, String) {
    let of_kind = |(kind, _): (&str, bool)| {
        let each = TOLD.map(|n| {
            let x = n as f64;
            let of = |part: &str| median(series, &format!("{kind}, {part}"), x);
            let [p50, p99, p999] = PARTS.map(|(part, _)| of(part));
            let mpps = load(series, &format!("{kind}, p50"), x);
            format!("{p50:.0} / {p99:.0} / {p999:.0} µs with {n} at {mpps:.1} Mpps")
        });
        format!("{kind} {}", each.join(", "))
    };
    let line = format!("{ISOLATED}, p50");
    let medians = LENGTHS.map(|n| (n as f64, median(series, &line, n as f64)));
    let medians = medians.into_iter().filter(|p| p.1.is_finite()).collect();
    let r2 = worst(std::iter::once((line, medians))).map_or(0.0, |(_, r2)| r2);
    let text = format!(
        "p50 / p99 / p99.9: {}; R² of a straight line through the medians, isolated, that grows: {r2:.3}; {}",
        KINDS.map(of_kind).join("; "),
        behind(series)
    );
    let what = "linear in the length: R² of 0.9 at least";
    (Verdict::DifferentSetUp, trend_of(series, text, what, r2 >= LINEAR))
}

/// Fig. 9b.
pub fn judge_by_cost(series: &[Series]) -> (Verdict, String) {
    let ends = [COSTED[0], COSTED[2]].map(|(name, _)| {
        let of = |cycles: u32| median(series, name, f64::from(cycles));
        format!(
            "{name} {:.0} µs at 100 cycles ({:.2} Mpps), {:.0} at 700 ({:.2})",
            of(100),
            load(series, name, 100.0),
            of(700),
            load(series, name, 700.0)
        )
    });
    let (r2, text) = judge_linear_at(series, &COSTS);
    let text = format!("{}; {text}; {}", ends.join(", "), behind(series));
    let what = "linear in cost and in length, three places each: R² of 0.9 at least";
    (Verdict::DifferentSetUp, trend_of(series, text, what, r2 >= LINEAR))
}

/// Fig. 8.
pub fn judge_side_by_side(series: &[Series]) -> (Verdict, String) {
    let saved =
        |cycles: u32| (1.0 - ratio(series, SIDE_BY_SIDE, IN_SEQUENCE, f64::from(cycles))) * 100.0;
    let told = |cycles: u32| values::saved(series, SIDE_BY_SIDE, IN_SEQUENCE, f64::from(cycles));
    let each = COSTS.map(|cycles| format!("{} at {cycles}", told(cycles)));
    let loads = [IN_SEQUENCE, SIDE_BY_SIDE].map(|name| {
        let of = COSTS.map(|cycles| format!("{:.2}", load(series, name, f64::from(cycles))));
        format!("{name} {}", of.join(" / "))
    });
    let text = format!(
        "saves {} cycles, on two cores, at loads of {} Mpps{}; {}",
        each.join(", "),
        loads.join(", "),
        across(series, IN_SEQUENCE),
        behind(series)
    );
    let holds = saved(100) < 10.0 && saved(700) > 20.0;
    let what = "under 10 % at 100 cycles, over 20 % at 700";
    (Verdict::DifferentSetUp, trend_of(series, text, what, holds))
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
                let sample = Sample::of(value, sample.around);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finding_has_percentiles_and_load_at_each_length_and_how_many_runs_fell_behind() {
        let mut series = Vec::new();
        for (at, (part, _)) in PARTS.into_iter().enumerate() {
            for (lost, us) in [(0.0, 10.0), (0.02, 30.0), (0.001, 20.0)] {
                let us = us * 10_f64.powi(at as i32);
                let trips = [80.0, us / 10_f64.powi(at as i32)];
                let sample = Sample { load: Some((9e6, lost)), ..Sample::of(us, trips) };
                add(&mut series, &format!("isolated, {part}"), 8.0, sample);
            }
        }
        let (_, text) = judge_by_length(&series);
        assert!(text.contains("20 / 200 / 2000 µs with 8 at 9.0 Mpps"), "{text}");
        assert!(text.contains("1 of 3 runs at that load lost more"), "{text}");
        // A third of them: what shows of it is no trend.
        assert!(text.contains("cannot be judged here: 1 of 3 runs were of overload"), "{text}");
        // None, and then none that is 90 % of what is held.
        for sample in series.iter_mut().flat_map(|s| &mut s.places).flat_map(|p| &mut p.samples) {
            sample.load = Some((9e6, 0.0));
        }
        assert!(judge_by_length(&series).1.contains(") does not hold here"));
        for sample in series.iter_mut().flat_map(|s| &mut s.places).flat_map(|p| &mut p.samples) {
            sample.open = true;
        }
        let (_, text) = judge_by_length(&series);
        assert!(text.contains("cannot be judged here: 3 of 3 loads"), "{text}");
    }

    #[test]
    fn a_histogram_is_drawn_in_coarse_steps_and_of_one_length() {
        assert_eq!([49, 50, 100].map(|ns| above(ns, &COARSE)), [50, 100, 200]);
        let mut series = Vec::new();
        let histogram_of = vec![(2000, 3), (150_000, 1)];
        let sample = Sample { histogram: histogram_of, ..Sample::of(1.6, [80.0; 2]) };
        add(&mut series, "fused, p50", DRAWN, sample);
        let told = histogram(&series);
        let of = |step| median(&told, "fused, 4 µNFs", step);
        assert_eq!([2.0, 5.0, 100.0, 200.0].map(of), [75.0, 0.0, 0.0, 25.0]);
        assert!(of(1.0).is_nan() && of(500.0).is_nan(), "nothing beyond the packets");
        assert!(histogram(&[]).is_empty());
    }

    #[test]
    fn what_is_sustained_is_the_rate_of_which_the_load_is_nine_tenths() {
        let mut series = Vec::new();
        let sample =
            Sample { load: Some((9e6, 0.0)), round: 3, open: true, ..Sample::of(20.0, [80.0; 2]) };
        add(&mut series, "isolated, p50", 4.0, sample.clone());
        add(&mut series, "isolated, p99", 4.0, sample);
        let told = sustained(&series);
        assert_eq!(told.len(), 1, "once for all percentiles");
        let (line, place) = (&told[0], &told[0].places[0]);
        assert!((place.samples[0].value - 10.0).abs() < 1e-9 && line.name == "isolated");
        assert!(place.samples[0].open && place.samples[0].round == 3);
        assert!(
            judge_sustained(&told).1.contains("; 1 of 1 searches"),
            "{}",
            judge_sustained(&told).1
        );
    }

    #[test]
    fn under_load_side_by_side_is_judged_within_rounds_as_without() {
        let of = |saved: [f64; 3]| {
            let mut series = Vec::new();
            for (cycles, saved) in COSTS.into_iter().zip(saved) {
                for (name, us) in [(IN_SEQUENCE, 100.0), (SIDE_BY_SIDE, 100.0 - saved)] {
                    let sample = Sample { load: Some((1e6, 0.0)), ..Sample::of(us, [80.0; 2]) };
                    add(&mut series, name, f64::from(cycles), sample);
                }
            }
            judge_side_by_side(&series).1
        };
        let like_the_paper = of([5.0, 12.0, 25.0]);
        assert!(
            like_the_paper.starts_with("saves 5 % at 100, 12 % at 300, 25 % at 700"),
            "{like_the_paper}"
        );
        assert!(like_the_paper.ends_with(") holds here"), "{like_the_paper}");
        assert!(of([15.0, 20.0, 25.0]).ends_with("does not hold here"));
    }

    #[test]
    fn under_load_latency_is_to_grow_in_a_straight_line_by_cost_and_by_length() {
        let of = |slope: f64| {
            let mut series = Vec::new();
            for (name, n) in COSTED {
                for cycles in COSTS {
                    let us = 50.0 + f64::from(cycles) * 0.1 + n as f64 * slope;
                    let sample = Sample { load: Some((1e6, 0.0)), ..Sample::of(us, [80.0; 2]) };
                    add(&mut series, name, f64::from(cycles), sample);
                }
            }
            judge_by_cost(&series).1
        };
        assert!(of(5.0).ends_with(") holds here"), "{}", of(5.0));
        assert!(of(-5.0).ends_with("does not hold here"), "{}", of(-5.0));
    }
}
