//! The µNF paper's figures of latency, one packet or one burst at a time.

use super::Effort;
use super::data::{Sample, Series, Verdict};
use super::unf::{FUSED, LENGTHS, chain_of, isolate, plan};
use super::values::{self, across, median, ratio, trend};
use crate::bench::chain_policy;
use crate::bench::latency::{Bursts, each_burst, one_by_one};
use crate::bench::machine::pin;
use crate::bench::parallel;
use crate::bench::sample::{BenchError, spread};
use weir_control::wiring::RunOptions;
use weir_plan::{Isolate, Plan};

/// Packets of a latency's sample.
const TIMES: usize = 1000;
/// Cycles a packet of each µNF of Figs. 8 and 9b.
const COSTS: [u32; 4] = [100, 300, 500, 700];
/// Lengths of Fig. 9b.
pub(super) const COSTED: [(&str, usize); 3] = [("4 µNFs", 4), ("5 µNFs", 5), ("6 µNFs", 6)];
/// Coefficient of determination from which on medians count as a straight line.
pub(super) const LINEAR: f64 = 0.9;
pub(super) const IN_SEQUENCE: &str = "in sequence";
pub(super) const SIDE_BY_SIDE: &str = "side by side";

/// Fig. 8.
pub fn side_by_side(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let kinds = [(IN_SEQUENCE, false), (SIDE_BY_SIDE, true)];
    let points: Vec<_> = COSTS
        .iter()
        .flat_map(|&c| kinds.map(|(name, side)| (name, f64::from(c), (c, side))))
        .collect();
    effort.round(&points, |(cycles, side)| {
        let sampling = effort.sampling;
        let cores = [sampling.chain_core, sampling.device_core];
        let plan = parallel::plan(sampling.device_core, &cores, cycles, side)?;
        latency(effort, &plan, 128, true)
    })
}

pub fn judge_side_by_side(series: &[Series]) -> (Verdict, String) {
    let saved = |cycles| (1.0 - ratio(series, SIDE_BY_SIDE, IN_SEQUENCE, cycles)) * 100.0;
    let told = |cycles: u32| values::saved(series, SIDE_BY_SIDE, IN_SEQUENCE, f64::from(cycles));
    let each = COSTS.map(|cycles| format!("{} at {cycles}", told(cycles)));
    let text =
        format!("saves {} cycles, on two cores{}", each.join(", "), across(series, IN_SEQUENCE));
    let holds = saved(100.0) < 10.0 && saved(700.0) > 20.0;
    let what = "under 10 % at 100 cycles, over 20 % at 700";
    (Verdict::DifferentSetUp, trend(text, what, holds))
}

/// The median latency of so many packets at a time, in microseconds.
fn latency(
    effort: &Effort<'_>,
    plan: &Plan,
    burst: u64,
    shares: bool,
) -> Result<Sample, BenchError> {
    let sampling = effort.sampling;
    let (Bursts { ns: mut all, real_time }, trips) = effort.around(|| {
        let _pinned = pin(sampling.device_core);
        let setup =
            one_by_one(plan, &RunOptions { busy: true, ..sampling.options() }, None, burst)?;
        each_burst(setup, TIMES, false, shares, burst)
    })?;
    all.sort_unstable();
    let us = |part: f64| {
        let at = (all.len() as f64 * part) as usize;
        all.get(at.min(all.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    };
    let (tail, not_granted) = (Some([us(0.99), us(0.999)]), !sampling.no_real_time && !real_time);
    Ok(Sample { tail, not_granted, ..Sample::of(us(0.5), trips) })
}

/// Fig. 9a.
pub fn latency_by_length(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let kinds = [("isolated", true), (FUSED, false)];
    let points: Vec<_> =
        kinds.iter().flat_map(|&(name, i)| LENGTHS.map(|n| (name, n as f64, (n, i)))).collect();
    effort.round(&points, |(n, isolated)| {
        latency(effort, &plan(effort, &chain_policy(n), isolate(isolated))?, 1, false)
    })
}

/// Fig. 9b.
pub fn latency_by_cost(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> =
        COSTED.iter().flat_map(|&(name, n)| COSTS.map(|c| (name, f64::from(c), (n, c)))).collect();
    effort.round(&points, |(n, cycles)| {
        let text = chain_of(n, &format!("Busy {{ cycles: {cycles} }}"));
        // What a process takes for one packet is thousands of cycles, whatever the µNF does with it.
        latency(effort, &plan(effort, &text, Isolate::Each)?, 128, false)
    })
}

/// The medians of a line's 99th and 99.9th percentiles at a place.
fn tail(series: &[Series], name: &str, x: f64) -> [f64; 2] {
    let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
    let tails: Vec<[f64; 2]> =
        places.filter(|p| p.x == x).flat_map(|p| &p.samples).filter_map(|s| s.tail).collect();
    let middle = |of: fn(&[f64; 2]) -> f64| {
        spread(tails.iter().map(of).collect()).map_or(f64::NAN, |[_, middle, _]| middle)
    };
    [middle(|[p99, _]| *p99), middle(|[_, p999]| *p999)]
}

/// How well medians of chains of processes, which the paper's are, lie on a straight line: the worst line's coefficient of determination.
fn judge_linear(series: &[Series]) -> (f64, String) {
    let lines = series.iter().filter(|s| s.name != FUSED).map(|s| {
        let medians = s.places.iter().filter_map(|p| Some((p.x, p.spread()?[1])));
        (s.name.clone(), medians.collect())
    });
    let Some((name, r2)) = worst(lines) else { return (0.0, "no samples".to_owned()) };
    let text = format!("R² of a straight line that grows is {r2:.3} or better (worst: {name})");
    (r2, text)
}

/// Fig. 9a.
pub fn judge_by_length(series: &[Series]) -> (Verdict, String) {
    let (r2, text) = judge_linear(series);
    let [p99, p999] = tail(series, "isolated", 8.0);
    let text = format!(
        "{:.1} µs with one µNF, {:.1} with 8 isolated (p99 {p99:.1}, p99.9 {p999:.1}); {text}",
        median(series, "isolated", 1.0),
        median(series, "isolated", 8.0)
    );
    (Verdict::DifferentSetUp, trend(text, "linear in the length: R² of 0.9 at least", r2 >= LINEAR))
}

/// The same by cost, and by length at each cost: the paper claims both.
pub fn judge_linear_by_both(series: &[Series]) -> (Verdict, String) {
    let (r2, text) = judge_linear_at(series, &COSTS);
    let holds = r2 >= LINEAR;
    let what = "linear in cost, four places, and in length, three: R² of 0.9 at least";
    (Verdict::DifferentSetUp, trend(text, what, holds))
}

/// How straight the lines by cost are, and at each of these costs those by length: the least coefficient of determination, and both in words.
pub(super) fn judge_linear_at(series: &[Series], costs: &[u32]) -> (f64, String) {
    let by_cost = series.iter().map(|s| {
        let medians = s.places.iter().filter_map(|p| Some((p.x, p.spread()?[1])));
        (s.name.clone(), medians.collect())
    });
    let by_length = costs.iter().map(|cycles| {
        let of = |(name, n): &(&str, usize)| {
            Some((*n as f64, median(series, name, f64::from(*cycles)))).filter(|p| p.1.is_finite())
        };
        (format!("{cycles} cycles"), COSTED.iter().filter_map(of).collect())
    });
    let (Some((line, cost)), Some((at, length))) = (worst(by_cost), worst(by_length)) else {
        return (0.0, "no samples".to_owned());
    };
    let text = format!(
        "R² of a straight line that grows is {cost:.3} or better by cost (worst: {line}), {length:.3} or better by length (worst: {at})"
    );
    (cost.min(length), text)
}

/// The line that is the least straight one: its name and its coefficient of determination, 0 where it does not grow.
pub(super) fn worst(
    lines: impl Iterator<Item = (String, Vec<(f64, f64)>)>,
) -> Option<(String, f64)> {
    let fits = lines.map(|(name, medians)| {
        let grows = medians.first().zip(medians.last()).is_some_and(|(a, b)| b.1 > a.1);
        (name, if grows { determination(&medians) } else { 0.0 })
    });
    fits.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Coefficient of determination of the least-squares line.
fn determination(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mx, y - my)).sum::<f64>();
    let (xy, xx, yy) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    if xx * yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    #[test]
    fn a_line_is_told_from_what_is_none() {
        assert!(determination(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]) > 0.999);
        assert!(determination(&[(1.0, 1.0), (2.0, 9.0), (3.0, 1.0)]) < 0.1);
    }

    #[test]
    fn fig_8_holds_when_little_is_saved_of_little_work_and_much_of_much() {
        let of = |saved: [f64; 4]| {
            let mut series = Vec::new();
            for (cycles, saved) in COSTS.into_iter().zip(saved) {
                for (name, us) in [(IN_SEQUENCE, 100.0), (SIDE_BY_SIDE, 100.0 - saved)] {
                    add(&mut series, name, f64::from(cycles), Sample::of(us, [80.0; 2]));
                }
            }
            judge_side_by_side(&series).1
        };
        let like_the_paper = of([5.0, 12.0, 18.0, 25.0]);
        assert!(
            like_the_paper.starts_with("saves 5 % at 100, 12 % at 300, 18 % at 500, 25 % at 700"),
            "{like_the_paper}"
        );
        assert!(like_the_paper.ends_with(") holds here"));
        for other in [[15.0, 20.0, 22.0, 25.0], [5.0, 8.0, 10.0, 15.0]] {
            assert!(of(other).ends_with("does not hold here"), "{}", of(other));
        }
    }

    #[test]
    fn a_latencys_tail_is_the_median_of_its_samples_tails() {
        let mut series = Vec::new();
        for (p99, p999) in [(10.0, 90.0), (12.0, 50.0), (500.0, 70.0)] {
            let sample = Sample { tail: Some([p99, p999]), ..Sample::of(5.0, [80.0; 2]) };
            add(&mut series, "isolated", 8.0, sample);
        }
        assert_eq!(tail(&series, "isolated", 8.0), [12.0, 70.0]);
        assert!(judge_by_length(&series).1.contains("5.0 with 8 isolated (p99 12.0, p99.9 70.0)"));
    }

    #[test]
    fn latency_has_to_grow_with_cost_and_with_length() {
        let of = |slope: f64| {
            let mut series = Vec::new();
            for (name, n) in COSTED {
                for cycles in COSTS {
                    let us = 50.0 + f64::from(cycles) * 0.1 + n as f64 * slope;
                    add(&mut series, name, f64::from(cycles), Sample::of(us, [80.0; 2]));
                }
            }
            judge_linear_by_both(&series)
        };
        assert!(of(5.0).1.ends_with(" holds here"), "{}", of(5.0).1);
        assert!(of(-5.0).1.ends_with("does not hold here"), "{}", of(-5.0).1);
        assert!(of(-5.0).1.contains("0.000 or better by length"), "{}", of(-5.0).1);
    }
}
