//! The µNF paper's Fig. 10, its second part: how many cores a chain takes to sustain a wire's rate.

use super::data::{Series, Verdict, add};
use super::nfactor;
use super::unf::{LINE_RATE, chain_of, generator, of_line_rate, plan_on};
use super::values::{median, trend};
use super::{ECHO, Effort};
use crate::bench::sample::BenchError;
use weir_device::Rate;
use weir_plan::{Isolate, Plan};

const LENGTHS: [usize; 4] = [1, 2, 4, 8];
/// The lines: run to completion or not, and on how many cores.
const KINDS: [(&str, bool, u32); 4] = [
    ("run to completion, one core", true, 1),
    ("run to completion, two cores", true, 2),
    ("pipelined, one core", false, 1),
    ("pipelined, two cores", false, 2),
];
/// The part of what arrives with nothing between source and sink that has to arrive for the rate to count as sustained: the source itself
/// does not keep it up on every machine.
const SUSTAINED: f64 = 0.99;

fn plan(
    effort: &Effort<'_>,
    length: usize,
    to_completion: bool,
    cores: u32,
) -> Result<Plan, BenchError> {
    let sampling = effort.sampling;
    if to_completion {
        let names: Vec<String> = (0..length).map(|n| format!("x{n}")).collect();
        let declared: Vec<String> = names.iter().map(|x| format!("TtlDecrement {x};")).collect();
        let nfs: Vec<_> =
            names.iter().zip(&declared).map(|(x, d)| (x.as_str(), d.as_str())).collect();
        return nfactor::plan(sampling, &nfs, cores);
    }
    let (own, devices) = (sampling.chain_core, sampling.device_core);
    let turns = [own, devices].into_iter().take(cores as usize);
    let cores = [devices].into_iter().chain(turns).collect();
    plan_on(&chain_of(length, "TtlDecrement"), Isolate::Each, cores)
}

pub fn fewest(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let source = || generator(60, Rate::PerSecond(LINE_RATE));
    let limit = || Ok(of_line_rate(effort.echo(source())?));
    // One µNF on one core is one process either way, and measured once.
    let (one, same) = (LENGTHS[0] as f64, |name: &str| name == KINDS[2].0);
    let points: Vec<_> = KINDS
        .iter()
        .flat_map(|&(name, whole, cores)| LENGTHS.map(|n| (name, n as f64, (n, whole, cores))))
        .filter(|(name, n, _)| *n != one || !same(name))
        .collect();
    let mut series = effort.round_below(limit, &points, |(length, whole, cores)| {
        let plan = plan(effort, length, whole, cores)?;
        Ok(of_line_rate(effort.sampling.run(&plan, source())?.into()))
    })?;
    let whole = series.iter().find(|line| line.name == KINDS[0].0);
    let place = whole.and_then(|line| line.places.iter().find(|place| place.x == one)).cloned();
    for sample in place.into_iter().flat_map(|place| place.samples) {
        add(&mut series, KINDS[2].0, one, sample);
    }
    Ok(series)
}

pub fn judge(series: &[Series]) -> (Verdict, String) {
    let fewest = |to_completion: bool, length: usize| {
        let kinds = KINDS.iter().filter(|(_, whole, _)| *whole == to_completion);
        let least = median(series, ECHO, LENGTHS[0] as f64) * SUSTAINED;
        let holds = |name: &str| median(series, name, length as f64) >= least;
        kinds.filter(|(name, ..)| holds(name)).map(|(_, _, cores)| *cores).min()
    };
    let told = |to_completion: bool| {
        let of = |n| fewest(to_completion, n).map_or("more".to_owned(), |cores| cores.to_string());
        LENGTHS.map(of).join(", ")
    };
    let lengths = LENGTHS.map(|n| n.to_string()).join(", ");
    let text = format!(
        "cores that sustain 14.88 Mpps (99 % of what arrives with no µNF) at {lengths} µNFs, of the two there are: run to completion {}; pipelined {} (the second core is the devices', too)",
        told(true),
        told(false)
    );
    // More than there are count as one more than there are.
    let each = LENGTHS.map(|n| [true, false].map(|whole| fewest(whole, n).unwrap_or(3)));
    let holds = each.iter().all(|[whole, piped]| piped <= whole)
        && each.iter().any(|[whole, piped]| piped < whole);
    let what = "pipelined on fewer cores at some length and on more at none";
    (Verdict::DifferentSetUp, trend(text, what, holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::tests::sample;

    #[test]
    fn the_fewest_cores_that_sustain_the_rate_are_told_by_length() {
        let mut series = Vec::new();
        add(&mut series, ECHO, 1.0, sample(98.4));
        for (name, percent) in KINDS.iter().map(|(name, ..)| name).zip([98.0, 97.6, 60.0, 97.5]) {
            for length in LENGTHS {
                let percent = if length == 8 { percent / 2.0 } else { percent };
                add(&mut series, name, length as f64, sample(percent));
            }
        }
        let (_, text) = judge(&series);
        assert!(
            text.contains("run to completion 1, 1, 1, more; pipelined 2, 2, 2, more"),
            "{text}"
        );
        assert!(text.ends_with("does not hold here"), "{text}");
    }
}
