//! What samples say: medians, and ratios of lines.

use super::ECHO;
use super::data::{Place, Sample, Series};
use crate::bench::sample::spread;

/// Whether a line has samples of which the real-time class was withheld.
pub fn not_granted(series: &[Series], name: &str) -> bool {
    let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
    places.flat_map(|p| &p.samples).any(|s| s.not_granted)
}

/// The median of a line at one place; NaN where there is none.
pub fn median(series: &[Series], name: &str, x: f64) -> f64 {
    let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
    places.filter(|p| p.x == x).find_map(Place::spread).map_or(f64::NAN, |[_, median, _]| median)
}

/// Samples of two lines at a place that were taken in the same round, and so after each other.
fn pairs<'s>(series: &'s [Series], name: &str, to: &str, x: f64) -> Vec<(&'s Sample, &'s Sample)> {
    let at = |name: &str| series.iter().find(|s| s.name == name)?.places.iter().find(|p| p.x == x);
    let (Some(mine), Some(others)) = (at(name), at(to)) else { return Vec::new() };
    // One of them may have failed in some round.
    let pair = |(at, a): (usize, &'s Sample)| match a.round {
        0 => Some((a, others.samples.get(at)?)),
        round => Some((a, others.samples.iter().find(|b| b.round == round)?)),
    };
    mine.samples.iter().enumerate().filter_map(pair).collect()
}

/// How much of `to`'s value `name` has at a place: the median of the ratios within rounds. Pairs between which words began to cross cores
/// at another speed tell of the machine and do not count, unless all pairs are such ([`across`] says so). NaN where there are none.
pub fn ratio(series: &[Series], name: &str, to: &str, x: f64) -> f64 {
    let mut pairs = pairs(series, name, to, x);
    if pairs.iter().any(|(a, b)| a.is_alike(b)) {
        pairs.retain(|(a, b)| a.is_alike(b));
    }
    let ratios = pairs.iter().map(|(a, b)| a.value / b.value).collect();
    spread(ratios).map_or(f64::NAN, |[_, median, _]| median)
}

/// At how many places [`ratio`] to a line had only pairs of which words crossed cores at two speeds, for the finding.
pub fn across(series: &[Series], to: &str) -> String {
    let others = series.iter().filter(|s| s.name != to && !s.name.starts_with(ECHO));
    let places = others.flat_map(|s| s.places.iter().map(|p| (s.name.as_str(), p.x)));
    let all: Vec<_> = places.map(|(name, x)| pairs(series, name, to, x)).collect();
    match all.iter().filter(|p| !p.is_empty() && !p.iter().any(|(a, b)| a.is_alike(b))).count() {
        0 => String::new(),
        some => format!(
            "; at {some} of {} places words crossed cores at two speeds within every round: these compare the machine, too",
            all.len()
        ),
    }
}

/// A finding, and whether the paper's trend shows in it: a number may be far from the paper's for the machine's sake, and grow as it says.
pub fn trend(finding: String, what: &str, holds: bool) -> String {
    format!(
        "{finding}. The paper's trend ({what}) {}",
        if holds { "holds here" } else { "does not hold here" }
    )
}

/// The median processor time a packet of a line at one place, in nanoseconds; NaN where none was taken.
pub fn cpu_ns(series: &[Series], name: &str, x: f64) -> f64 {
    let places = series.iter().filter(|s| s.name == name).flat_map(|s| &s.places);
    let samples = places.filter(|p| p.x == x).flat_map(|p| &p.samples);
    spread(samples.filter_map(|s| s.cpu_ns).collect()).map_or(f64::NAN, |[_, median, _]| median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    #[test]
    fn a_ratio_is_of_one_round_also_where_a_sample_of_another_failed() {
        let mut series = Vec::new();
        let at = |value, round| Sample { round, ..Sample::of(value, [80.0; 2]) };
        for (round, a, b) in [(1, 1.0, Some(2.0)), (2, 50.0, None), (3, 30.0, Some(60.0))] {
            add(&mut series, "a", 1.0, at(a, round));
            b.into_iter().for_each(|b| add(&mut series, "b", 1.0, at(b, round)));
        }
        assert_eq!(ratio(&series, "a", "b", 1.0), 0.5);
    }

    #[test]
    fn a_ratio_is_of_neighbours_and_not_across_the_machines_moods() {
        let mut series = Vec::new();
        // The machine is thrice as fast in the third round, and in the fourth it changes between the two.
        for (a, b, trips) in [(2.0, 4.0, [80.0; 2]), (2.2, 4.0, [80.0; 2]), (6.0, 12.0, [30.0; 2])]
        {
            add(&mut series, "a", 1.0, Sample::of(a, trips));
            add(&mut series, "b", 1.0, Sample::of(b, trips));
        }
        add(&mut series, "a", 1.0, Sample::of(12.0, [80.0; 2]));
        add(&mut series, "b", 1.0, Sample::of(1.0, [400.0; 2]));
        assert_eq!(ratio(&series, "a", "b", 1.0), 0.5);
        assert_eq!(across(&series, "b"), "");
        assert!(ratio(&series, "a", "c", 1.0).is_nan());
        let mut moody = Vec::new();
        add(&mut moody, "a", 1.0, Sample::of(3.0, [80.0; 2]));
        add(&mut moody, "b", 1.0, Sample::of(1.0, [400.0; 2]));
        assert_eq!(ratio(&moody, "a", "b", 1.0), 3.0, "there is no other pair");
        assert!(across(&moody, "b").starts_with("; at 1 of 1 places"), "{}", across(&moody, "b"));
    }
}
