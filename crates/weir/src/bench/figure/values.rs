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

/// So many pairs of which words crossed cores at one speed are enough to leave the others out of a ratio.
const ENOUGH: usize = 3;

/// How much of `to`'s value `name` has at a place: the median of the ratios within rounds. Pairs between which words began to cross cores
/// at another speed tell of the machine and do not count, unless too few were left; [`across`] says how many. NaN where there are none.
pub fn ratio(series: &[Series], name: &str, to: &str, x: f64) -> f64 {
    ratios(series, name, to, x)[1]
}

/// The same with the least and the most of the pairs that count: least, median, most.
pub fn ratios(series: &[Series], name: &str, to: &str, x: f64) -> [f64; 3] {
    let pairs = counted(pairs(series, name, to, x));
    spread(pairs.iter().map(|(a, b)| a.value / b.value).collect()).unwrap_or([f64::NAN; 3])
}

/// Between which others a value lies, behind it; nothing where they are the same.
pub fn between(least: &str, most: &str) -> String {
    if least == most { String::new() } else { format!(" ({least} to {most})") }
}

/// By how many percent less `name` has than `to` at a place, and between which values that lies over the pairs that count.
pub fn saved(series: &[Series], name: &str, to: &str, x: f64) -> String {
    let [most, median, least] =
        ratios(series, name, to, x).map(|ratio| format!("{:.0}", (1.0 - ratio) * 100.0));
    format!("{median} %{}", between(&least, &most))
}

/// The pairs that count.
fn counted<'s>(mut pairs: Vec<(&'s Sample, &'s Sample)>) -> Vec<(&'s Sample, &'s Sample)> {
    if pairs.iter().filter(|(a, b)| a.is_alike(b)).count() >= ENOUGH {
        pairs.retain(|(a, b)| a.is_alike(b));
    }
    pairs
}

/// Of which pairs [`ratio`]s to a line are, for the finding: how many do not count, and how many do although words crossed cores at two speeds.
pub fn across(series: &[Series], to: &str) -> String {
    let others = series.iter().filter(|s| s.name != to && !s.name.starts_with(ECHO));
    let places = others.flat_map(|s| s.places.iter().map(|p| (s.name.as_str(), p.x)));
    let (mut all, mut out, mut moody) = (0, 0, 0);
    for (name, x) in places {
        let pairs = pairs(series, name, to, x);
        let those = counted(pairs.clone());
        all += pairs.len();
        out += pairs.len() - those.len();
        moody += those.iter().filter(|(a, b)| !a.is_alike(b)).count();
    }
    let mut text = String::new();
    for (some, what) in
        [(out, "are left out of these ratios"), (moody, "are in them, as too few others are left")]
    {
        if some > 0 {
            text += &format!(
                "; {some} of {all} pairs of samples between which words began to cross cores at another speed {what}"
            );
        }
    }
    text
}

/// A finding, and whether the paper's trend shows in it: a number may be far from the paper's for the machine's sake, and grow as it says.
pub fn trend(finding: String, what: &str, holds: bool) -> String {
    format!(
        "{finding}. The paper's trend ({what}) {}",
        if holds { "holds here" } else { "does not hold here" }
    )
}

/// The same where what was measured decides nothing, and why.
pub fn no_trend(finding: String, what: &str, why: &str) -> String {
    format!("{finding}. The paper's trend ({what}) cannot be judged here: {why}")
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
    fn a_ratio_is_of_neighbours_and_says_which_it_leaves_out_for_the_machines_moods() {
        let mut series = Vec::new();
        // The machine is thrice as fast in the third round, and in the fourth it changes between the two.
        for (a, b, trips) in [(2.0, 4.0, [80.0; 2]), (2.2, 4.0, [80.0; 2]), (6.0, 12.0, [30.0; 2])]
        {
            add(&mut series, "a", 1.0, Sample::of(a, trips));
            add(&mut series, "b", 1.0, Sample::of(b, trips));
        }
        assert_eq!(across(&series, "b"), "");
        add(&mut series, "a", 1.0, Sample::of(12.0, [80.0; 2]));
        add(&mut series, "b", 1.0, Sample::of(1.0, [400.0; 2]));
        assert_eq!(ratio(&series, "a", "b", 1.0), 0.5);
        let told = across(&series, "b");
        assert!(told.starts_with("; 1 of 4 pairs") && told.ends_with("left out of these ratios"));
        assert!(ratio(&series, "a", "c", 1.0).is_nan());
        // Two that are alike are too few to leave the others out.
        let mut moody = Vec::new();
        for (a, other) in [(3.0, 400.0), (4.0, 80.0), (9.0, 80.0), (6.0, 400.0)] {
            add(&mut moody, "a", 1.0, Sample::of(a, [80.0; 2]));
            add(&mut moody, "b", 1.0, Sample::of(1.0, [other; 2]));
        }
        assert_eq!(ratio(&moody, "a", "b", 1.0), 5.0);
        let told = across(&moody, "b");
        assert!(told.starts_with("; 2 of 4 pairs") && told.contains("are in them"), "{told}");
    }
}
