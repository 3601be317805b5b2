//! Whether a run agrees with an earlier one.
//!
//! The rule: two runs of the same differ at a place when their error bars, which reach from the least to the most of all samples, do
//! not touch. Of five samples each that is so by chance once in 126 times; so a figure agrees as long as no more than one place
//! in ten differs, and one in any case. Places at which words crossed cores at another speed (medians more than a fifth apart) show
//! the machine's mood and count for neither; where they are more than the others, nothing is compared.

use super::data::{Place, Record, Series};
use crate::bench::sample::spread;

/// A difference of the time that words take from core to core beyond which places are not compared.
const ALIKE: f64 = 1.2;
/// Of so many places one may differ.
const ONE_IN: usize = 10;

/// The rule, for who reads what came of it.
pub const RULE: &str = "A place differs when the error bars of both runs do not touch; a figure agrees when no more than one of ten places differs, and one in any case. Places at which \
                        words crossed cores at another speed (by more than a fifth) are not counted; where they are more than the others, nothing is compared.";

/// What came of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Agrees,
    Differs,
    /// Nothing in common, or nothing that may be compared.
    Open,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Outcome::Agrees => "agrees",
            Outcome::Differs => "differs",
            Outcome::Open => "not compared",
        })
    }
}

/// One figure, compared.
#[derive(Debug, Clone)]
pub struct Compared {
    pub name: String,
    pub outcome: Outcome,
    pub text: String,
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.name, self.outcome, self.text)
    }
}

/// Each figure that both runs have.
pub fn all(before: &[Record], now: &[Record]) -> Vec<Compared> {
    let pairs = now.iter().filter_map(|n| Some((before.iter().find(|b| b.name == n.name)?, n)));
    let compared = pairs.map(|(before, now)| {
        let (outcome, text) = one(before, now);
        Compared { name: now.name.clone(), outcome, text }
    });
    compared.collect()
}

/// How many figures agree, and which do not.
pub fn sum(compared: &[Compared]) -> String {
    let of = |outcome| compared.iter().filter(move |c| c.outcome == outcome);
    let names: Vec<&str> = of(Outcome::Differs).map(|c| c.name.as_str()).collect();
    let differ = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (agree, open) = (of(Outcome::Agrees).count(), of(Outcome::Open).count());
    format!(
        "against the earlier run: {agree} figures agree, {open} cannot be compared; that differ: {differ}"
    )
}

fn one(before: &Record, now: &Record) -> (Outcome, String) {
    if before.machine != now.machine {
        return (Outcome::Open, "another machine".to_owned());
    }
    if (before.effort.samples, before.effort.seconds) != (now.effort.samples, now.effort.seconds) {
        return (Outcome::Open, "other samples: of another number, or another length".to_owned());
    }
    let (mut changes, mut apart, mut moods) = (Vec::new(), Vec::new(), 0);
    for (series, place) in places(now) {
        let same = |(s, p): &(&Series, &Place)| s.name == series.name && p.x == place.x;
        let Some((_, old)) = places(before).find(same) else { continue };
        let (Some([low, middle, high]), Some([least, was, most])) = (place.spread(), old.spread())
        else {
            continue;
        };
        if !alike(old, place) {
            moods += 1;
            continue;
        }
        let change = (middle / was - 1.0) * 100.0;
        changes.push(change);
        if low > most || high < least {
            apart.push(format!("{} at {} {change:+.0} %", series.name, place.x));
        }
    }
    let builds = match before.version == now.version {
        true => String::new(),
        false => format!("{} against {}; ", now.version, before.version),
    };
    let (count, differ) = (changes.len(), apart.len());
    let too_few = count < moods;
    let moods = match moods {
        0 => String::new(),
        places => format!("; {places} places not counted: words crossed cores at another speed"),
    };
    changes.sort_by(f64::total_cmp);
    let Some(middle) = changes.get(count / 2) else {
        return (Outcome::Open, format!("{builds}no place in common{moods}"));
    };
    if too_few {
        return (Outcome::Open, format!("{builds}{count} places in common{moods}"));
    }
    let outcome =
        if differ <= (count / ONE_IN).max(1) { Outcome::Agrees } else { Outcome::Differs };
    let which = if apart.is_empty() { String::new() } else { format!(" ({})", apart.join(", ")) };
    let text = format!(
        "{builds}{middle:+.1} % at the median place, {differ} of {count} places beyond the error bars{which}{moods}"
    );
    (outcome, text)
}

/// Whether words crossed cores about as fast around both places' samples. Where no second core took part they did.
fn alike(a: &Place, b: &Place) -> bool {
    let trip = |place: &Place| {
        spread(place.samples.iter().flat_map(|s| s.round_trip_ns).collect()).map(|[_, m, _]| m)
    };
    match (trip(a), trip(b)) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => a.max(b) <= ALIKE * a.min(b),
        _ => true,
    }
}

fn places(record: &Record) -> impl Iterator<Item = (&Series, &Place)> {
    record.series.iter().flat_map(|s| s.places.iter().map(move |p| (s, p)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::tests::record;
    use crate::bench::figure::data::{Sample, add};

    /// A figure with one line of twenty places, each with samples around a value, taken when words took so long from core to core.
    fn of(value: impl Fn(usize) -> f64, trip: f64) -> Record {
        let mut record = record("a");
        for at in 0..20 {
            for part in [0.97, 1.0, 1.02] {
                let sample = Sample::of(value(at) * part, [trip; 2]);
                add(&mut record.series, "fused", at as f64, sample);
            }
        }
        record
    }

    fn against(now: Record) -> Compared {
        all(&[of(|_| 100.0, 80.0)], &[now]).remove(0)
    }

    #[test]
    fn a_second_run_of_the_same_agrees() {
        let same = against(of(|_| 101.5, 80.0));
        assert_eq!(same.outcome, Outcome::Agrees, "{same}");
        assert!(same.text.contains("0 of 20 places"), "{same}");
        // Two of twenty may lie apart by chance; a third is one too many.
        let lucky = against(of(|at| if at < 2 { 90.0 } else { 100.0 }, 80.0));
        assert_eq!(lucky.outcome, Outcome::Agrees, "{lucky}");
        let odd = against(of(|at| if at < 3 { 90.0 } else { 100.0 }, 80.0));
        assert_eq!(odd.outcome, Outcome::Differs, "{odd}");
    }

    #[test]
    fn a_build_that_is_slower_than_any_sample_before_differs_and_shows_where_and_by_how_much() {
        let mut slow = of(|at| if at < 10 { 100.0 } else { 50.0 }, 80.0);
        slow.version = "0, slowed on purpose".to_owned();
        let slow = against(slow);
        assert_eq!(slow.outcome, Outcome::Differs);
        assert!(slow.text.contains("10 of 20 places beyond"), "{slow}");
        assert!(slow.text.contains("fused at 19 -50 %"), "{slow}");
        assert!(slow.text.contains("slowed on purpose against 0;"), "{slow}");
        assert!(sum(&[slow]).ends_with("that differ: a"));
    }

    #[test]
    fn places_taken_in_another_mood_of_the_machine_count_for_neither() {
        let slow = against(of(|_| 50.0, 400.0));
        assert_eq!(slow.outcome, Outcome::Open, "{slow}");
        assert!(slow.text.contains("20 places not counted"), "{slow}");
        let mut now = of(|_| 100.0, 80.0);
        for place in now.series[0].places.iter_mut().take(5) {
            place.samples.iter_mut().for_each(|s| {
                s.round_trip_ns = [400.0; 2];
                s.value = 20.0;
            });
        }
        let now = against(now);
        assert_eq!(now.outcome, Outcome::Agrees, "{now}");
        assert!(now.text.contains("of 15 places"), "{now}");
    }

    #[test]
    fn of_few_places_one_may_differ_and_most_have_to_be_comparable() {
        // The first `moody` of twenty in another mood, and the next `apart` of the others far off.
        let taken = |moody: usize, apart: usize| {
            let mut now = of(|_| 100.0, 80.0);
            for (at, place) in now.series[0].places.iter_mut().enumerate() {
                place.samples.iter_mut().for_each(|s| match at {
                    at if at < moody => s.round_trip_ns = [400.0; 2],
                    at if at < moody + apart => s.value = 20.0,
                    _ => {}
                });
            }
            against(now).outcome
        };
        assert_eq!(taken(5, 1), Outcome::Agrees);
        assert_eq!(taken(5, 2), Outcome::Differs, "two of fifteen");
        assert_eq!(taken(10, 1), Outcome::Agrees);
        assert_eq!(taken(11, 0), Outcome::Open, "nine of twenty");
    }

    #[test]
    fn another_machine_and_other_samples_are_not_compared() {
        let mut now = of(|_| 9.0, 80.0);
        now.machine.cores = 4;
        assert_eq!(against(now).outcome, Outcome::Open);
        let mut now = of(|_| 9.0, 80.0);
        now.effort.seconds = 9.0;
        assert_eq!(against(now).outcome, Outcome::Open);
    }
}
