//! The µNF paper's figures.

use super::data::{Held, Place, Sample, Series, Verdict};
use super::values::{across, between, median, not_granted, ratios, trend};
use super::{ECHO, Effort};
use crate::bench::chain_policy;
use crate::bench::consolidation::chain;
use crate::bench::flows::rates;
use crate::bench::instances;
use crate::bench::sample::BenchError;
use crate::policy::{self, Consolidate};
use std::path::Path;
use weir_control::wiring::RunOptions;
use weir_device::{DeviceSpec, GeneratorSpec, ListedFlow, ListedSpec, Rate};
use weir_plan::{Asked, Isolate, Plan};

/// 64-byte packets a second on a wire of 10 Gbit/s, with preamble, check sequence and gap (RFC 2544).
pub(super) const LINE_RATE: u64 = 14_880_952;
/// Bytes on the wire that are in no buffer: check sequence, preamble and gap.
const ON_WIRE: f64 = 24.0;
/// How many µNFs the figures by length have.
pub(super) const LENGTHS: [usize; 5] = [1, 2, 4, 6, 8];
/// The line of chains that are one process.
pub(super) const FUSED: &str = "fused";

pub(super) fn plan(effort: &Effort<'_>, text: &str, isolate: Isolate) -> Result<Plan, BenchError> {
    plan_on(text, isolate, vec![effort.sampling.device_core, effort.sampling.chain_core])
}

/// The first of the cores is the devices'.
pub(super) fn plan_on(text: &str, isolate: Isolate, cores: Vec<usize>) -> Result<Plan, BenchError> {
    let loaded = policy::from_text(text, "(bench)")?;
    Ok(policy::plan(
        &loaded.graph,
        Path::new("(bench)"),
        isolate,
        Some(cores),
        &[],
        Consolidate::Off,
    )?)
}

pub(super) fn isolate(isolated: bool) -> Isolate {
    if isolated { Isolate::Each } else { Isolate::None }
}

pub(super) fn generator(size: u16, rate: Rate) -> DeviceSpec {
    let drops = rate != Rate::Max;
    DeviceSpec::Generator(GeneratorSpec { size, rate, drops, ..GeneratorSpec::default() })
}

/// A value that a sample's throughput gives.
pub(super) fn with_value(sample: Sample, value: impl Fn(f64) -> f64) -> Sample {
    let held = |held: Held| Held { value: value(held.value), ..held };
    Sample { value: value(sample.value), sustained: sample.sustained.map(held), ..sample }
}

/// Percent of the packets of 10 Gbit/s.
pub(super) fn of_line_rate(sample: Sample) -> Sample {
    with_value(sample, |mpps| mpps * 1e8 / LINE_RATE as f64)
}

/// Fig. 6.
pub fn sizes(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    const SIZES: [u16; 6] = [64, 128, 256, 512, 1024, 1500];
    let kinds = [(ECHO, 0), ("one MacSwap", 1)];
    let points: Vec<_> =
        kinds.iter().flat_map(|&(name, n)| SIZES.map(|s| (name, f64::from(s), (n, s)))).collect();
    effort.round(&points, |(n, size)| {
        // Sizes are with the check sequence, which no buffer has.
        let source = generator(size - 4, Rate::Max);
        let sample: Sample = effort.sampling.take(&chain_policy(n), Isolate::Each, source)?.into();
        Ok(with_value(sample, |mpps| mpps * (f64::from(size) - 4.0 + ON_WIRE) * 8.0 / 1e3))
    })
}

pub fn judge_sizes(series: &[Series]) -> (Verdict, String) {
    let one: Vec<f64> = series
        .iter()
        .filter(|s| s.name == "one MacSwap")
        .flat_map(|s| s.places.iter().filter_map(Place::spread).map(|[_, median, _]| median))
        .collect();
    let least = one.iter().copied().fold(f64::INFINITY, f64::min);
    let text = format!("least of the medians: {least:.0} Gbit/s, without a network card");
    (
        Verdict::DifferentSetUp,
        trend(text, "10 Gbit/s at every size", least.is_finite() && least >= 10.0),
    )
}

/// Fig. 7.
pub fn prefetch(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    /// Packets of a batch (256); the last is all.
    const AHEAD: [u32; 6] = [0, 8, 32, 64, 128, 256];
    let kinds = [("two MacSwaps, isolated", true), ("two MacSwaps, fused", false)];
    let points: Vec<_> =
        kinds.iter().flat_map(|&(name, i)| AHEAD.map(|a| (name, f64::from(a), (a, i)))).collect();
    let limit = || effort.echo(generator(60, Rate::Max));
    effort.round_below(limit, &points, |(ahead, isolated)| {
        let plan = plan(effort, &chain_policy(2), isolate(isolated))?;
        let options = RunOptions { prefetch: Some(ahead), ..effort.sampling.options() };
        Ok(effort.sampling.run_with(&plan, generator(60, Rate::Max), &options)?.into())
    })
}

pub fn judge_prefetch(series: &[Series]) -> (Verdict, String) {
    // Other places of a line are no neighbours.
    let gain = |name: &str, ahead: f64| median(series, name, ahead) / median(series, name, 0.0);
    let told = |name: &str| format!("{:.2} and {:.2} times", gain(name, 32.0), gain(name, 256.0));
    let [isolated, fused] = ["two MacSwaps, isolated", "two MacSwaps, fused"];
    let text = format!(
        "asking for 32 of 256 (as 8 of 64) and for all, instead of none: {} isolated, {} fused, on one NUMA node",
        told(isolated),
        told(fused)
    );
    let holds = gain(isolated, 32.0) >= 1.1;
    (
        Verdict::DifferentSetUp,
        trend(
            text,
            "an eighth of a batch gives back what is lost without: a tenth more at least",
            holds,
        ),
    )
}

const COMPLETED: &str = "run to completion (fused)";
const PIPELINED: &str = "pipelined (isolated)";

/// Fig. 10.
pub fn completion(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let kinds = [(COMPLETED, false), (PIPELINED, true)];
    let points: Vec<_> = kinds
        .iter()
        .flat_map(|&(name, isolated)| LENGTHS.map(|n| (name, n as f64, (n, isolated))))
        .collect();
    let limit = || effort.echo(generator(60, Rate::Max));
    effort.round_below(limit, &points, |(n, isolated)| {
        let text = chain_of(n, "TtlDecrement");
        Ok(effort.sampling.take(&text, isolate(isolated), generator(60, Rate::Max))?.into())
    })
}

pub fn judge_completion(series: &[Series]) -> (Verdict, String) {
    let ratios = |n: usize| ratios(series, PIPELINED, COMPLETED, n as f64);
    let each = LENGTHS.map(|n| {
        let [least, median, most] = ratios(n).map(|ratio| format!("{ratio:.2}"));
        format!("{median}{} at {n}", between(&least, &most))
    });
    let at = |is: &dyn Fn([f64; 3]) -> bool| {
        let there = LENGTHS.iter().filter(|n| is(ratios(**n))).map(ToString::to_string);
        there.collect::<Vec<_>>().join(", ")
    };
    let wins = match at(&|[least, ..]| least > 1.0).as_str() {
        "" => "nowhere".to_owned(),
        lengths => format!("at {lengths}"),
    };
    let undecided = match at(&|[least, _, most]| least <= 1.0 && most > 1.0).as_str() {
        "" => String::new(),
        lengths => format!(", in some pairs and not in others at {lengths}"),
    };
    let text = format!(
        "pipelined / run to completion: {} µNFs; the pipeline wins {wins}{undecided}{}",
        each.join(", "),
        across(series, COMPLETED)
    );
    let [_, at_most, _] = ratios(8);
    let holds = at_most > 1.0;
    let what = "the pipeline wins as the chain grows: at 8 µNFs";
    let text = trend(text, what, holds);
    if [PIPELINED, COMPLETED].iter().any(|name| not_granted(series, name)) {
        let why = "the real-time class was not granted to all";
        return (Verdict::DifferentSetUp, format!("{why}; {text}"));
    }
    (Verdict::of(holds), text)
}

/// §VII-C2: the service chain of Fig. 11 at 200-byte packets, with one and with two HttpClassifiers.
pub fn service_chain(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let kinds = [("in turn", false), ("to the least loaded", true)];
    let points: Vec<_> =
        kinds.iter().flat_map(|&(name, l)| [1, 2].map(|n| (name, f64::from(n), (n, l)))).collect();
    let limit = || effort.echo(DeviceSpec::Listed(requests()));
    effort.round_below(limit, &points, |(instances, least_loaded)| {
        let asked = Asked { least_loaded, ..Asked::equal(instances) };
        let plan = instances::plan(effort.sampling, &chain::minimal(), "http", asked)?;
        Ok(effort.sampling.run(&plan, DeviceSpec::Listed(requests()))?.into())
    })
}

/// 1,000 flows whose packets are requests, of 200 bytes with the check sequence.
fn requests() -> ListedSpec {
    let flow = |i: u16| ListedFlow {
        source: [192, 0, 2, (i % 250) as u8 + 1].into(),
        destination: [198, 51, 100, 1].into(),
        proto: 6,
        ports: (20_000 + i, 80),
    };
    ListedSpec {
        flows: (0..1000).map(flow).collect(),
        payloads: rates::requests(0).payloads,
        size: 60,
        packets: None,
        burst: None,
        shuffled: false,
        stays: false,
    }
}

pub fn judge_service_chain(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, n: f64| median(series, name, n);
    let kinds = ["in turn", "to the least loaded"].map(|name| (name, of(name, 2.0)));
    let one = of("in turn", 1.0);
    let each =
        kinds.map(|(name, two)| format!("{two:.2} with two, {name} ({:.2} times)", two / one));
    let text = format!(
        "{one:.2} Mpps with one, {}, on two cores that all µNFs and the devices share",
        each.join(", ")
    );
    let holds = kinds.iter().any(|(_, two)| *two >= 1.5 * one);
    let what = "two do nearly twice as much, 1.5 times at least, one way or the other";
    (Verdict::DifferentSetUp, trend(text, what, holds))
}

/// A policy that leads through `n` NFs of a type, written with its configuration.
pub(super) fn chain_of(n: usize, nf: &str) -> String {
    let (kind, config) = nf.split_once(' ').unwrap_or((nf, ""));
    let declare: String = (0..n).map(|i| format!("{kind} x{i} {config};\n")).collect();
    let path: String = (0..n).map(|i| format!(" -> x{i}")).collect();
    format!("Port<0> lan; Port<1> wan;\n{declare}pipelet {{ lan{path} -> wan; }}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    #[test]
    fn fig_10_names_the_lengths_at_which_the_pipeline_wins() {
        let of = |pipelined: [f64; 5]| {
            let mut series = Vec::new();
            for (n, mpps) in LENGTHS.into_iter().zip(pipelined) {
                add(&mut series, COMPLETED, n as f64, Sample::of(10.0, [80.0; 2]));
                add(&mut series, PIPELINED, n as f64, Sample::of(mpps, [80.0; 2]));
            }
            judge_completion(&series)
        };
        let (verdict, text) = of([12.0, 11.0, 9.0, 8.0, 7.0]);
        assert_eq!(verdict, Verdict::Missed);
        assert!(text.contains("the pipeline wins at 1, 2."), "{text}");
        assert!(text.contains("1.20 at 1") && text.ends_with("does not hold here"), "{text}");
        let (verdict, text) = of([9.0, 9.0, 9.0, 11.0, 12.0]);
        assert!(verdict == Verdict::Reached && text.contains("wins at 6, 8."), "{text}");
        assert!(of([9.0; 5]).1.contains("wins nowhere"), "{}", of([9.0; 5]).1);
    }

    /// One line's medians by place.
    fn line(name: &str, points: &[(f64, f64)]) -> Vec<Series> {
        let mut series = Vec::new();
        points.iter().for_each(|(x, y)| add(&mut series, name, *x, Sample::of(*y, [80.0; 2])));
        series
    }

    #[test]
    fn figs_6_and_7_and_the_service_chain_say_whether_the_papers_trend_holds() {
        let holds = |(_, text): (Verdict, String)| {
            assert!(text.contains("The paper's trend ("), "{text}");
            !text.ends_with("does not hold here")
        };
        let sizes =
            |least: f64| judge_sizes(&line("one MacSwap", &[(64.0, least), (1500.0, 90.0)]));
        assert!(holds(sizes(10.1)) && !holds(sizes(9.9)));
        let prefetch = |eighth: f64| {
            let points = [(0.0, 10.0), (32.0, eighth), (256.0, 12.0)];
            judge_prefetch(&line("two MacSwaps, isolated", &points))
        };
        assert!(holds(prefetch(11.5)) && !holds(prefetch(10.5)));
        assert!(prefetch(11.5).1.contains("1.15 and 1.20 times isolated"), "{}", prefetch(11.5).1);
        let chain = |two: f64| judge_service_chain(&line("in turn", &[(1.0, 2.0), (2.0, two)]));
        assert!(holds(chain(3.9)) && !holds(chain(2.1)));
    }

    #[test]
    fn every_chain_is_a_policy() {
        for text in
            [chain_of(3, "Busy { cycles: 100 }"), chain_of(2, "TtlDecrement"), chain_policy(0)]
        {
            policy::from_text(&text, "(test)").unwrap();
        }
    }
}
