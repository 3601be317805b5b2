//! NFActor's figures of flows that move: how long all take, how long each takes, and beside a controller in OpenNF's manner.
//!
//! A flow's own time is that of its migration, from the source's first request to the target's last answer, as in the paper: flows of one
//! migration (500 at most) move together, and those that wait for their turn meanwhile are not under way.

use super::Effort;
use super::data::{Sample, Series, Verdict, add};
use super::stateful::ms;
use super::values::{median, trend};
use crate::bench::flows::controlled;
use crate::bench::flows::moves::{self, Case, How, Measure, Nf};
use crate::bench::sample::{BenchError, spread};

const RATES: [(&str, u32); 3] =
    [("10 pps a flow", 10), ("50 pps a flow", 50), ("100 pps a flow", 100)];
const COUNTS: [u32; 3] = [100, 1_000, 10_000];
/// Flows of a migration, and migrations at a time in Fig. 6: 1,000 flows, as in the paper.
const MIGRATION: u16 = 500;
const PAPERS: u16 = 2;

/// Fig. 6a: milliseconds until all flows have moved.
pub fn moved_by_flows(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> = RATES
        .iter()
        .flat_map(|&(name, each_pps)| {
            let case = move |flows| {
                let (nf, how) = (Nf::Chain, How::Each);
                let (at_once, together) = (Some(PAPERS), Some(MIGRATION));
                (name, f64::from(flows), Case { nf, how, flows, each_pps, at_once, together })
            };
            COUNTS.map(case)
        })
        .collect();
    effort.round(&points, |case| moved(effort, case))
}

/// Milliseconds that the move took, and each flow's own time.
fn moved(effort: &Effort<'_>, case: Case) -> Result<Sample, BenchError> {
    let (measure, trips) = effort.around(|| moves::measure(effort.sampling, case))?;
    let Measure { moved, withheld } = measure;
    let ns = |(own, flows): &(std::time::Duration, u64)| (own.as_nanos() as u64, *flows);
    let mut own: Vec<(u64, u64)> = moved.times.iter().map(ns).collect();
    own.sort_unstable();
    let not_granted = withheld;
    Ok(Sample { histogram: own, not_granted, ..Sample::of(ms(moved.took), trips) })
}

pub fn judge_moved_by_flows(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, flows: u32| median(series, name, f64::from(flows));
    // Of what grows as flows do, ten times the flows take ten times as long: the power is one.
    let power = |name: &str, at: usize| {
        let count = |at: usize| COUNTS.get(at).copied().unwrap_or(0);
        (of(name, count(at + 1)) / of(name, count(at))).log10()
    };
    let told = |(name, _): &(&str, u32)| {
        let all = COUNTS.map(|flows| format!("{:.2}", of(name, flows)));
        format!(
            "{} ms at {name} (power {:.2}, then {:.2})",
            all.join(", "),
            power(name, 0),
            power(name, 1)
        )
    };
    let text = format!(
        "100, 1,000 and 10,000 flows, at most 1,000 at a time: {}",
        RATES.iter().map(told).collect::<Vec<_>>().join("; ")
    );
    let linear = RATES.iter().all(|(name, _)| (0.8..=1.2).contains(&power(name, 1)));
    (
        Verdict::DifferentSetUp,
        trend(text, "from 1,000 to 10,000 flows almost linear, a power of 0.8 to 1.2", linear),
    )
}

const PARTS: [(&str, f64); 2] = [("median", 0.5), ("p99", 0.99)];

/// Microseconds that this part of the flows did not exceed.
fn percentile(own: &[(u64, u64)], part: f64) -> Option<f64> {
    let all: u64 = own.iter().map(|(_, flows)| flows).sum();
    let rank = ((all as f64 * part).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = own.iter().find(|(_, flows)| {
        seen += flows;
        seen >= rank
    });
    reached.map(|(ns, _)| *ns as f64 / 1e3)
}

/// The mean of all flows' own times, in microseconds: the median of the samples'. The paper's "average".
fn mean(series: &[Series], name: &str, x: f64) -> f64 {
    let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
    let samples = places.filter(|p| p.x == x).flat_map(|p| &p.samples);
    let means = samples.map(|sample| {
        let (sum, flows) = sample.histogram.iter().fold((0.0, 0.0), |(sum, all), (ns, n)| {
            (sum + *ns as f64 * *n as f64, all + *n as f64)
        });
        sum / flows / 1e3
    });
    spread(means.collect()).map_or(f64::NAN, |[_, median, _]| median)
}

/// Figs. 6b and 7b: of each line the flows' own times, microseconds: half of all flows, and 99 of 100, took no longer.
pub fn own_times(series: &[Series]) -> Vec<Series> {
    let mut told = Vec::new();
    for line in series {
        for place in &line.places {
            for sample in &place.samples {
                for (name, part) in PARTS {
                    let Some(us) = percentile(&sample.histogram, part) else { continue };
                    let of = Sample { value: us, ..sample.clone() };
                    add(&mut told, &format!("{}, {name}", line.name), place.x, of);
                }
            }
        }
    }
    told
}

fn told(series: &[Series], line: &str, x: f64) -> String {
    let [median, p99] = PARTS.map(|(name, _)| median(series, &format!("{line}, {name}"), x));
    let mean = mean(series, &format!("{line}, {}", PARTS[0].0), x);
    format!("{mean:.0} / {median:.0} / {p99:.0}")
}

pub fn judge_own_by_flows(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, flows: u32| median(series, &format!("{name}, median"), f64::from(flows));
    let each = RATES.map(|(name, _)| {
        let all = COUNTS.map(|flows| told(series, name, f64::from(flows)));
        format!("{} at {name}", all.join(", "))
    });
    let apart = RATES.map(|(name, _)| of(name, 10_000) / of(name, 1_000));
    let text = format!(
        "each flow's own time, mean / median / p99 in µs, when 100, 1,000 and 10,000 move: {}; medians with 10,000 are {} times those with 1,000. Flows of one migration (500 at \
         most) move together, and with 100 there is one of 100",
        each.join("; "),
        apart.map(|times| format!("{times:.2}")).join(", ")
    );
    let constant = apart.iter().all(|times| (0.5..=2.0).contains(times));
    (
        Verdict::DifferentSetUp,
        trend(text, "nearly constant, within a factor of two, once 1,000 move at a time", constant),
    )
}

/// Flows that Fig. 7 moves; its axis has up to so many at a time, in migrations of 500.
const SEVENTH: u32 = 6_000;
const AT_ONCE: [u16; 5] = [1, 2, 4, 8, 12];
const SEVEN: &str = "6,000 flows, 50 pps a flow";

fn at_a_time(migrations: u16) -> f64 {
    f64::from(migrations) * f64::from(MIGRATION)
}

/// Fig. 7a: milliseconds by how many flows migrate at a time.
pub fn moved_by_concurrency(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points = AT_ONCE.map(|n| {
        let (nf, how, each_pps) = (Nf::Chain, How::Each, 50);
        let case =
            Case { nf, how, flows: SEVENTH, each_pps, at_once: Some(n), together: Some(MIGRATION) };
        (SEVEN, at_a_time(n), case)
    });
    effort.round(&points, |case| moved(effort, case))
}

pub fn judge_moved_by_concurrency(series: &[Series]) -> (Verdict, String) {
    let all = AT_ONCE.map(|n| (at_a_time(n), median(series, SEVEN, at_a_time(n))));
    let best = all.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(f64::NAN, |best| best.0);
    let each = all.map(|(n, ms)| format!("{ms:.1} ms with {n}"));
    let text = format!("all 6,000 in {} at a time; {best} at a time are best", each.join(", "));
    (Verdict::DifferentSetUp, trend(text, "1,000 at a time are best", best == 1_000.0))
}

pub fn judge_own_by_concurrency(series: &[Series]) -> (Verdict, String) {
    let line = format!("{SEVEN}, median");
    let medians = AT_ONCE.map(|n| median(series, &line, at_a_time(n)));
    let each =
        AT_ONCE.map(|n| format!("{} with {}", told(series, SEVEN, at_a_time(n)), at_a_time(n)));
    let text =
        format!("each flow's own time, mean / median / p99 in µs: {} at a time", each.join(", "));
    let grows = medians.windows(2).all(|pair| matches!(pair, [less, more] if more > less));
    (Verdict::DifferentSetUp, trend(text, "grows with how many migrate at a time", grows))
}

/// Fig. 8's lines: by whom flows are moved, and how many packets a second each has.
const EIGHTH: [(&str, bool, u32); 6] = [
    ("Weir, 10 pps a flow", true, 10),
    ("OpenNF's manner (ours), 10 pps", false, 10),
    ("Weir, 50 pps a flow", true, 50),
    ("OpenNF's manner (ours), 50 pps", false, 50),
    ("Weir, 100 pps a flow", true, 100),
    ("OpenNF's manner (ours), 100 pps", false, 100),
];

/// Fig. 8: milliseconds until all flows have moved, by Weir and by a controller.
pub fn moved_by_a_controller(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let points: Vec<_> = EIGHTH
        .iter()
        .flat_map(|&(name, weir, pps)| COUNTS.map(|n| (name, f64::from(n), (weir, n, pps))))
        .collect();
    effort.round(&points, |(weir, flows, each_pps)| {
        if weir {
            let (nf, how) = (Nf::Monitor, How::Each);
            return moved(effort, Case { nf, how, flows, each_pps, at_once: None, together: None });
        }
        let measure = || Ok(controlled::measure(effort.sampling, flows, each_pps)?);
        let (took, trips) = effort.around(measure)?;
        // Its parts are never in the class.
        let not_granted = !effort.sampling.no_real_time;
        Ok(Sample { not_granted, ..Sample::of(ms(took), trips) })
    })
}

pub fn judge_moved_by_a_controller(series: &[Series]) -> (Verdict, String) {
    let of = |at: usize, flows: u32| {
        median(series, EIGHTH.get(at).map_or("", |(name, ..)| name), f64::from(flows))
    };
    // How much less time Weir takes, in percent; the controller's line stands behind Weir's.
    let faster = |at, flows| (1.0 - of(at, flows) / of(at + 1, flows)) * 100.0;
    let told = |at: usize| {
        let each = COUNTS.map(|flows| {
            let (weir, other) = (of(at, flows), of(at + 1, flows));
            format!("{flows} flows {weir:.2} and {other:.2} ms ({:+.0} %)", -faster(at, flows))
        });
        let pps = EIGHTH.get(at).map_or(0, |(.., pps)| *pps);
        format!("at {pps} packets a second for each flow {}", each.join(", "))
    };
    let rates = [0, 2, 4];
    let text = format!(
        "Weir and the controller, {}. The controller is ours, on the same server, and moves all flows at once",
        rates.map(told).join("; ")
    );
    // One server, and the controller is ours: it is not claimed to be reached.
    let holds = rates.into_iter().all(|at| COUNTS.into_iter().all(|n| faster(at, n) > 50.0));
    (Verdict::DifferentSetUp, trend(text, "more than 50 % faster in every case", holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample of a move: milliseconds for all, and each migration's own microseconds with its flows.
    fn sample(ms: f64, own: &[(u64, u64)]) -> Sample {
        let histogram = own.iter().map(|(us, flows)| (us * 1_000, *flows)).collect();
        Sample { histogram, ..Sample::of(ms, [80.0; 2]) }
    }

    #[test]
    fn a_flows_own_time_is_that_of_its_migration_and_not_a_part_of_the_whole() {
        // 1,000 flows in 9 ms: 990 of them took 2 ms, ten waited for their turn and took 7.
        let mut series = Vec::new();
        add(&mut series, RATES[0].0, 1e3, sample(9.0, &[(2_000, 990), (7_000, 10)]));
        let own = own_times(&series);
        assert_eq!(median(&own, "10 pps a flow, median", 1e3), 2_000.0);
        assert_eq!(median(&own, "10 pps a flow, p99", 1e3), 2_000.0, "990 of 1,000 are 99 of 100");
        assert_eq!(mean(&own, "10 pps a flow, median", 1e3), 2_050.0);
        assert_eq!(percentile(&[(2_000_000, 989), (7_000_000, 11)], 0.99), Some(7_000.0));
        assert!(own_times(&[]).is_empty());
    }

    /// Figs. 6a and 6b of flows that take `total` and `own` microseconds by how many there are.
    fn sixth(total: impl Fn(u32) -> f64, own: impl Fn(u32) -> u64) -> Vec<Series> {
        let mut series = Vec::new();
        for (name, _) in RATES {
            for flows in COUNTS {
                let each = [(own(flows), u64::from(flows))];
                add(&mut series, name, f64::from(flows), sample(total(flows) / 1e3, &each));
            }
        }
        series
    }

    #[test]
    fn fig_6_holds_when_the_whole_grows_linearly_and_each_flows_time_stays() {
        let like_the_paper = sixth(|flows| f64::from(flows) * 5.0, |_| 636);
        assert!(judge_moved_by_flows(&like_the_paper).1.ends_with("holds here"));
        let (_, text) = judge_own_by_flows(&own_times(&like_the_paper));
        assert!(text.ends_with("holds here") && text.contains("636 / 636 / 636"), "{text}");
        let squared = sixth(|flows| f64::from(flows).powi(2), u64::from);
        for (_, text) in [judge_moved_by_flows(&squared), judge_own_by_flows(&own_times(&squared))]
        {
            assert!(text.ends_with("does not hold here"), "{text}");
        }
    }

    #[test]
    fn fig_7_names_how_many_at_a_time_are_best_and_whether_each_takes_longer() {
        let seventh = |ms: [f64; 5], own: [u64; 5]| {
            let mut series = Vec::new();
            for ((n, ms), own) in AT_ONCE.into_iter().zip(ms).zip(own) {
                add(&mut series, SEVEN, at_a_time(n), sample(ms, &[(own, 6_000)]));
            }
            series
        };
        let papers = seventh([9.0, 5.0, 6.0, 7.0, 8.0], [1, 2, 3, 4, 5]);
        let (_, text) = judge_moved_by_concurrency(&papers);
        assert!(
            text.contains("1000 at a time are best") && text.ends_with(" holds here"),
            "{text}"
        );
        assert!(judge_own_by_concurrency(&own_times(&papers)).1.ends_with(" holds here"));
        let other = seventh([9.0, 8.0, 7.0, 6.0, 5.0], [5, 4, 3, 2, 1]);
        let (_, text) = judge_moved_by_concurrency(&other);
        assert!(text.contains("6000 at a time are best"), "{text}");
        assert!(text.ends_with("does not hold here"), "{text}");
        assert!(judge_own_by_concurrency(&own_times(&other)).1.ends_with("does not hold here"));
    }

    #[test]
    fn fig_8_holds_only_when_every_rate_and_number_is_more_than_half_faster() {
        let eighth = |slow: f64| {
            let mut series = Vec::new();
            for (name, weir, pps) in EIGHTH {
                for flows in COUNTS {
                    let last = pps == 100 && flows == 10_000;
                    let ms = if weir { if last { slow } else { 1.0 } } else { 3.0 };
                    add(&mut series, name, f64::from(flows), sample(ms, &[]));
                }
            }
            judge_moved_by_a_controller(&series)
        };
        assert!(eighth(1.0).1.ends_with(" holds here"));
        let (verdict, text) = eighth(2.0);
        assert_eq!(verdict, Verdict::DifferentSetUp, "the controller is ours, on one server");
        assert!(text.ends_with("does not hold here"), "one of nine is slower: {text}");
        assert!(text.contains("10000 flows 2.00 and 3.00 ms (-33 %)"), "{text}");
    }
}
