//! NFActor's Fig. 9b and what goes beyond it: how long flows are away when who has them is killed.

use super::Effort;
use super::data::{Sample, Series, Verdict};
use super::nfactor;
use super::values::{median, trend};
use crate::bench::flows::rates::{self, REQUEST};
use crate::bench::replication::{self, Recovery};
use crate::bench::sample::BenchError;
use weir_device::{DeviceSpec, GeneratorSpec, Rate};
use weir_plan::Plan;

/// Packets a second in all that Fig. 9b has; each flow has 10 of them, as the paper's.
const OFFERED: [u32; 3] = [10_000, 100_000, 500_000];
const EACH_PPS: u32 = 10;
/// Its lines: how many runtimes there are, of which one is killed.
const RUNTIMES: [(&str, &str, u32); 3] = [
    ("1 runtime, rejoined", "1 runtime, first packet", 1),
    ("2 runtimes, rejoined", "2 runtimes, first packet", 2),
    ("4 runtimes, rejoined", "4 runtimes, first packet", 4),
];

/// Fig. 9b: milliseconds from `kill -9` until the runtime has rejoined with all its flows, by runtimes and by packets a second in all.
pub fn by_rate(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let sampling = effort.sampling;
    let points: Vec<_> = RUNTIMES
        .iter()
        .flat_map(|&(rejoined, first, runtimes)| {
            OFFERED.map(|rate| (rejoined, f64::from(rate) / 1e6, (first, runtimes, rate)))
        })
        .collect();
    effort.round_of(&effort.in_turn(&points), |(rejoined, mpps, (first, runtimes, rate))| {
        let plan = nfactor::plan(sampling, &nfactor::NFS, runtimes)?;
        let flows = rate / EACH_PPS;
        let source = DeviceSpec::Generator(GeneratorSpec {
            size: REQUEST,
            flows,
            rate: Rate::PerSecond(u64::from(rate)),
            drops: true,
            http: true,
            ..GeneratorSpec::default()
        });
        let lines: [Line; 2] = [(rejoined, |r| r.rejoined_ms), (first, |r| r.first_packet_ms)];
        killed(effort, &plan, source, flows, mpps, &lines)
    })
}

/// A line, and what of a recovery is its value.
type Line = (&'static str, fn(&Recovery) -> f64);

/// The samples that one death gives, at one place; none when not all flows came back.
fn killed(
    effort: &Effort<'_>,
    plan: &Plan,
    source: DeviceSpec,
    flows: u32,
    x: f64,
    lines: &[Line],
) -> Result<Vec<(String, f64, Sample)>, BenchError> {
    let recover = || replication::recover(effort.sampling, plan, source, flows.into(), 1);
    let (died, trips) = effort.around(recover)?;
    let mut samples = Vec::new();
    for death in died.all {
        for (name, value) in lines {
            match &death {
                Ok(recovery) => {
                    let not_granted = died.withheld;
                    let sample = Sample { not_granted, ..Sample::of(value(recovery), trips) };
                    samples.push(((*name).to_owned(), x, sample));
                }
                Err(why) => effort.fail(name, x, &why.to_string()),
            }
        }
    }
    Ok(samples)
}

pub fn judge_by_rate(series: &[Series]) -> (Verdict, String) {
    let rates = OFFERED.map(|rate| f64::from(rate) / 1e6);
    let all = RUNTIMES.map(|(name, ..)| rates.map(|rate| median(series, name, rate)));
    let each = RUNTIMES.iter().zip(&all).map(|((.., runtimes), ms)| {
        format!("{} ms of {runtimes}", ms.map(|ms| format!("{ms:.1}")).join(", "))
    });
    let each: Vec<String> = each.collect();
    let text = format!(
        "from kill -9 until the killed runtime has rejoined with all its flows (as many as it remembered before, which is checked), at {} Mpps (10 packets a second of each flow): {}; one process is started, and no container",
        rates.map(|rate| rate.to_string()).join(", "),
        each.join(", ")
    );
    let (least, most) = all
        .iter()
        .flatten()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), ms| (least.min(*ms), most.max(*ms)));
    let constant = all.iter().flatten().all(|ms| ms.is_finite()) && most <= 1.5 * least;
    let what = "the same whatever the rate and the runtimes, within half as much again";
    (Verdict::DifferentSetUp, trend(text, what, constant))
}

const FIRST: &str = "until the first packet";
const BACK: &str = "until all flows are back";
const READING: &str = "of it: reading the replica";
const KILLED: [u32; 3] = [1_000, 10_000, 60_000];

/// Beyond the paper: milliseconds from `kill -9` at full load by flows of the worker.
pub fn by_flows(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let plan = replication::plan(effort.sampling)?;
    effort.round_of(&effort.in_order(&KILLED), |flows| {
        let source = DeviceSpec::Listed(rates::requests(flows as usize));
        let lines: [Line; 3] = [
            (FIRST, |r| r.first_packet_ms),
            (BACK, |r| r.rejoined_ms),
            (READING, |r| r.reading_ms),
        ];
        killed(effort, &plan, source, flows, f64::from(flows), &lines)
    })
}

pub fn judge_by_flows(series: &[Series]) -> (Verdict, String) {
    let each = |name: &str| {
        KILLED.map(|flows| format!("{:.1}", median(series, name, f64::from(flows)))).join(", ")
    };
    let text = format!(
        "from kill -9 with 1,000, 10,000 and 60,000 flows: {} ms until the first packet, {} until all flows are back",
        each(FIRST),
        each(BACK)
    );
    let holds = median(series, FIRST, 1e4) <= 10.0 && median(series, BACK, 1e4) <= 100.0;
    (Verdict::of(holds), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    #[test]
    fn recovery_is_the_same_whatever_the_load_or_it_is_said_not_to_be() {
        let of = |ms: fn(f64) -> f64| {
            let mut series = Vec::new();
            for (rejoined, ..) in RUNTIMES {
                for rate in OFFERED {
                    let sample = Sample::of(ms(f64::from(rate)), [80.0; 2]);
                    add(&mut series, rejoined, f64::from(rate) / 1e6, sample);
                }
            }
            judge_by_rate(&series).1
        };
        assert!(of(|_| 3.3).ends_with("holds here"), "{}", of(|_| 3.3));
        let grows = of(|rate| rate / 1e4);
        assert!(grows.ends_with("does not hold here"), "{grows}");
        assert!(
            grows.contains("at 0.01, 0.1, 0.5 Mpps") && grows.contains("50.0 ms of 4"),
            "{grows}"
        );
        assert!(judge_by_rate(&[]).1.ends_with("does not hold here"), "nothing was seen");
    }
}
