//! The µNF paper's Fig. 5 and the gain from yielding: chains on one core by scheduling class.

use super::data::{Sample, Series, Verdict, add};
use super::unf::{LINE_RATE, generator, of_line_rate, plan};
use super::values::{across, median, not_granted, ratio, trend};
use super::{ECHO, Effort};
use crate::bench::chain_policy;
use crate::bench::sample::BenchError;
use weir_control::wiring::RunOptions;
use weir_device::Rate;
use weir_plan::Isolate;
use weir_runtime::spec::Trial;

/// How many µNFs these chains have.
const LENGTHS: [usize; 4] = [1, 2, 4, 8];
/// Percent of what is offered, or of what arrives with no µNF, that counts as all of it.
const ALL_OF_IT: f64 = 99.0;

/// A scheduling class, and whether workers leave their core by themselves.
#[derive(Clone, Copy)]
struct Class {
    real_time: bool,
    round_robin: bool,
    yields: bool,
}

const CLASSES: [(&str, Class); 6] = [
    ("FIFO, yielding", Class { real_time: true, round_robin: false, yields: true }),
    ("RR, yielding", Class { real_time: true, round_robin: true, yields: true }),
    ("default (CFS/EEVDF), yielding", Class { real_time: false, round_robin: false, yields: true }),
    ("FIFO, not yielding", Class { real_time: true, round_robin: false, yields: false }),
    ("RR, not yielding", Class { real_time: true, round_robin: true, yields: false }),
    ("default, not yielding", Class { real_time: false, round_robin: false, yields: false }),
];

fn of_class(
    effort: &Effort<'_>,
    (length, class): (usize, Class),
    rate: Rate,
) -> Result<Sample, BenchError> {
    let plan = plan(effort, &chain_policy(length), Isolate::Each)?;
    let options = RunOptions {
        real_time: class.real_time,
        busy: !class.yields,
        trial: Trial {
            round_robin: class.round_robin,
            keeps_core: !class.yields,
            ..Trial::default()
        },
        ..effort.sampling.options()
    };
    let measured = effort.sampling.run_with(&plan, generator(60, rate), &options)?;
    let not_granted = class.real_time && !measured.real_time;
    Ok(Sample { not_granted, ..measured.into() })
}

fn by_class() -> Vec<(&'static str, f64, (usize, Class))> {
    let of =
        |&(name, class): &(&'static str, Class)| LENGTHS.map(move |n| (name, n as f64, (n, class)));
    CLASSES.iter().flat_map(of).collect()
}

/// Fig. 5a.
pub fn classes(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    // One packet in the sample's time: where none arrived it was less.
    let one = 1e-6 / effort.sampling.seconds.clamp(0.05, 60.0);
    let limit = || effort.echo(generator(60, Rate::Max));
    effort.round_below(limit, &by_class(), |point| {
        Ok(or_less_than(one, of_class(effort, point, Rate::Max)?))
    })
}

/// Nothing has no place on a logarithmic axis: it is shown as less than one packet, and said to be.
fn or_less_than(one: f64, sample: Sample) -> Sample {
    let none = sample.value <= 0.0;
    Sample { value: sample.value.max(one), none, ..sample }
}

pub fn judge_classes(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, n: f64| ratio(series, name, CLASSES[0].0, n);
    // Not a number, where nothing was measured, is no more.
    let is_there = |n: f64| of(CLASSES[0].0, n) == 1.0;
    let best = |n: &&usize| {
        let n = **n as f64;
        is_there(n) && !CLASSES.iter().any(|(name, _)| of(name, n) > 1.05)
    };
    let at: Vec<String> = LENGTHS.iter().filter(best).map(ToString::to_string).collect();
    let holds = at.len() == LENGTHS.len();
    let at = if at.is_empty() { "no length".to_owned() } else { at.join(", ") };
    let each = |name: &str| LENGTHS.map(|n| format!("{:.2}", of(name, n as f64))).join(", ");
    let text = format!(
        "FIFO with yielding is best (within 5 %) at {at} of 1, 2, 4, 8 µNFs; of what it does, in the same round, RR does {} and the default class {} at 1, 2, 4, 8{}",
        each(CLASSES[1].0),
        each(CLASSES[2].0),
        across(series, CLASSES[0].0)
    );
    let samples = || series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
    let text = match samples().filter(|sample| sample.none).count() {
        0 => text,
        none => format!(
            "{text}. In {none} of {} samples no packet arrived: they stand where one would",
            samples().count()
        ),
    };
    let text = trend(text, "FIFO with yielding is best at every length", holds);
    if let Some(why) = withheld(series) {
        return (Verdict::DifferentSetUp, format!("{why}; {text}"));
    }
    (Verdict::of(holds), text)
}

/// Of which lines the real-time class was withheld, if of any.
fn withheld(series: &[Series]) -> Option<String> {
    let lines = CLASSES.iter().map(|(name, _)| *name).filter(|name| not_granted(series, name));
    let lines: Vec<_> = lines.collect();
    (!lines.is_empty())
        .then(|| format!("the real-time class was not granted to: {}", lines.join(", ")))
}

/// The gain from yielding: how many times as much as without. Where nothing arrived without, it is a lower bound: more than it is with one
/// packet.
pub fn yielding(series: &[Series]) -> Vec<Series> {
    let mut told = Vec::new();
    for ((with, _), (without, _)) in CLASSES.iter().zip(&CLASSES[3..]) {
        let line = |name: &str| series.iter().find(|s| s.name == name);
        let (Some(with), Some(without)) = (line(with), line(without)) else { continue };
        let class = with.name.split(',').next().unwrap_or(&with.name);
        for place in &with.places {
            let other = without.places.iter().find(|p| p.x == place.x);
            for a in &place.samples {
                // Of one round: one of the two may have failed in another.
                let others = other.map_or(&[][..], |p| &p.samples);
                let Some(b) = others.iter().find(|b| b.round == a.round) else { continue };
                let not_granted = a.not_granted || b.not_granted;
                let (value, none) = (a.value / b.value, b.none);
                let gain = Sample { value, none, not_granted, sustained: None, ..a.clone() };
                add(&mut told, class, place.x, gain);
            }
        }
    }
    told
}

/// A large number with two digits that count, the rest 0; what it is not more than is rounded down.
fn rough(value: f64, is_bound: bool) -> String {
    if value < 100.0 || !value.is_finite() {
        let down = if is_bound { (value * 10.0).floor() / 10.0 } else { value };
        return format!("{down:.1}");
    }
    let unit = 10_f64.powi(value.log10().floor() as i32 - 1);
    let units = if is_bound { (value / unit).floor() } else { (value / unit).round() };
    let digits = format!("{:.0}", units * unit);
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub fn judge_yielding(series: &[Series]) -> (Verdict, String) {
    // Whether a median rests on a sample that is a lower bound: one above it may be as high as it likes.
    let is_bound = |name: &str, n: usize| {
        let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
        let mut samples = places.filter(|p| p.x == n as f64).flat_map(|p| &p.samples);
        samples.any(|sample| sample.none && sample.value <= median(series, name, n as f64))
    };
    let lines = series.iter().map(|s| s.name.as_str());
    let each = lines.map(|name| {
        let gains = LENGTHS.map(|n| {
            let gain = median(series, name, n as f64);
            let is_bound = is_bound(name, n);
            let more = if is_bound { "more than " } else { "" };
            format!("{more}{} at {n}", rough(gain, is_bound))
        });
        format!("{name} {}", gains.join(", "))
    });
    let text = format!("times as much: {}", each.collect::<Vec<_>>().join("; "));
    let samples = || series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
    let text = match samples().filter(|sample| sample.none).count() {
        0 => text,
        none => format!(
            "{text}. In {none} of {} samples no packet arrived without yielding: there it is reckoned with one in the time of a sample, and is a lower bound, the higher the longer samples are",
            samples().count()
        ),
    };
    // A lower bound above it is enough.
    let gained = |n: &usize| median(series, "FIFO", *n as f64) >= 1000.0;
    let holds = LENGTHS.iter().filter(|n| **n > 1).all(gained);
    let what = "a thousand times with FIFO wherever µNFs share the core";
    let text = trend(text, what, holds);
    if not_granted(series, "FIFO") {
        let why = "the real-time class was not granted to FIFO";
        return (Verdict::DifferentSetUp, format!("{why}; {text}"));
    }
    (Verdict::of(holds), text)
}

/// Fig. 5b.
pub fn line_rate(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let limit = || Ok(of_line_rate(effort.echo(generator(60, Rate::PerSecond(LINE_RATE)))?));
    effort.round_below(limit, &by_class(), |point| {
        Ok(of_line_rate(of_class(effort, point, Rate::PerSecond(LINE_RATE))?))
    })
}

pub fn judge_line_rate(series: &[Series]) -> (Verdict, String) {
    let echo = median(series, ECHO, LENGTHS[0] as f64);
    let longest = |name: &str, least: f64| {
        let holds = |n: &&usize| median(series, name, **n as f64) >= least;
        LENGTHS.iter().rev().find(holds).copied().unwrap_or(0)
    };
    let of = |least: f64| [0, 1, 2].map(|i| longest(CLASSES[i].0, least));
    let told = |[fifo, rr, default]: [usize; 3]| format!("FIFO {fifo}, RR {rr}, default {default}");
    let (all, of_echo) = (of(ALL_OF_IT), of(echo * ALL_OF_IT / 100.0));
    let text = format!(
        "with no µNF {echo:.1} % of 14.88 Mpps arrive, which is the limit here; longest chain with 99 % of 14.88 Mpps: {}; with 99 % of what arrives with no µNF: {} (of up to 8)",
        told(all),
        told(of_echo)
    );
    let [fifo, rr, default] = of_echo;
    let holds = fifo > 0 && fifo >= rr && fifo >= default;
    let what = "with FIFO and yielding the longest chain, by the limit here";
    let text = trend(text, what, holds);
    if let Some(why) = withheld(series) {
        return (Verdict::DifferentSetUp, format!("{why}; {text}"));
    }
    // There is no network card.
    (Verdict::DifferentSetUp, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample for each class and length.
    fn classes(value: impl Fn(usize, usize) -> f64) -> Vec<Series> {
        let mut series = Vec::new();
        for (at, (name, _)) in CLASSES.iter().enumerate() {
            for n in LENGTHS {
                let sample = or_less_than(2e-6, Sample::of(value(at, n), [80.0; 2]));
                add(&mut series, name, n as f64, sample);
            }
        }
        series
    }

    #[test]
    fn fig_5a_names_the_lengths_at_which_fifo_is_best() {
        let (verdict, text) = judge_classes(&classes(|at, _| if at == 0 { 10.0 } else { 5.0 }));
        assert!(verdict == Verdict::Reached && text.ends_with(" holds here"), "{text}");
        let rr_longer = classes(|at, n| if at == 1 && n >= 4 { 20.0 } else { 10.0 });
        let (verdict, text) = judge_classes(&rr_longer);
        assert!(text.starts_with("FIFO with yielding is best (within 5 %) at 1, 2 of"), "{text}");
        assert!(verdict == Verdict::Missed && text.ends_with("does not hold here"), "{text}");
        let mut withheld = classes(|_, _| 5.0);
        withheld[0].places[0].samples[0].not_granted = true;
        assert_eq!(judge_classes(&withheld).0, Verdict::DifferentSetUp);
    }

    #[test]
    fn a_large_number_has_two_digits_that_count() {
        let values = [0.96, 60.06, 1_041_543.0, 646.2, 999.0, 5_960_000.0, f64::INFINITY];
        let told = |is_bound| values.map(|value| rough(value, is_bound));
        let usual = ["1.0", "60.1", "1,000,000", "650", "1,000", "6,000,000", "inf"];
        assert_eq!(told(false), usual);
        // Of a bound no more is said than was seen.
        let bounds = ["0.9", "60.0", "1,000,000", "640", "990", "5,900,000", "inf"];
        assert_eq!(told(true), bounds);
    }

    #[test]
    fn a_gain_over_nothing_is_a_lower_bound_and_said_to_be_one() {
        let mixed = classes(|at, n| match at {
            3 if n == 8 => 0.0,
            0..3 => 10.0,
            _ => 0.005,
        });
        let told = yielding(&mixed);
        assert_eq!(median(&told, "FIFO", 8.0), 10.0 / 2e-6);
        let (verdict, text) = judge_yielding(&told);
        assert!(
            text.contains("FIFO 2,000 at 1, 2,000 at 2, 2,000 at 4, more than 5,000,000 at 8"),
            "{text}"
        );
        assert!(text.contains("In 1 of 12 samples no packet arrived"), "{text}");
        assert!(verdict == Verdict::Reached && text.ends_with(" holds here"), "{text}");
        let (verdict, text) = judge_yielding(&yielding(&classes(|_, _| 10.0)));
        assert!(verdict == Verdict::Missed && !text.contains("no packet"), "{text}");
    }

    #[test]
    fn fig_5b_is_told_by_the_rate_and_by_what_arrives_with_no_unf() {
        let of = |fifo_8: f64| {
            let mut series = classes(|at, n| match (at, n) {
                (0, 8) => fifo_8,
                (0 | 1, _) => 97.5,
                (2, 1) => 97.5,
                _ => 40.0,
            });
            add(&mut series, ECHO, 1.0, Sample::of(98.0, [80.0; 2]));
            judge_line_rate(&series)
        };
        let (verdict, text) = of(97.5);
        assert!(text.starts_with("with no µNF 98.0 % of 14.88 Mpps arrive"), "{text}");
        assert!(text.contains("99 % of 14.88 Mpps: FIFO 0, RR 0, default 0"), "{text}");
        assert!(text.contains("with no µNF: FIFO 8, RR 8, default 1"), "{text}");
        assert!(verdict == Verdict::DifferentSetUp && text.ends_with(" holds here"), "{text}");
        let (verdict, text) = of(40.0);
        assert!(verdict == Verdict::DifferentSetUp && text.contains("FIFO 4, RR 8"), "{text}");
        assert!(text.ends_with("does not hold here"), "{text}");
    }
}
