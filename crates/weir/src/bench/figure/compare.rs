//! Whether a run agrees with an earlier one.
//!
//! The rule: two runs of the same differ at a place when their error bars, which reach from the least to the most of all samples, do
//! not touch. Of five samples, whatever their distribution, such a bar has the true median in it in 94 of 100 cases (all five are on
//! one side of it once in 16 times), and two such bars of the same do not touch once in 126 times (2 of the 252 ways in which ten
//! values can be ranked). So some places of a figure differ by chance: it agrees as long as no more do than chance gives 99 of 100
//! figures. Places whose samples are of the same measurements, as percentiles of the same packets are, count as one.
//!
//! That holds for samples that are independent. They are taken minutes apart for it (see `make.rs`), and places where words crossed
//! cores at another speed (the middle halves of all times more than a fifth apart) show the machine's mood and count for neither;
//! where they are more than the others, nothing is compared.

use super::catalog::{self, Figure, Measure};
use super::data::{ALIKE, Place, Record, Series};
use super::held;

/// How often a figure may be said to differ of which both runs are the same.
const WRONGLY: f64 = 0.01;

/// So many figures that are missing are named.
const NAMED: usize = 5;

/// The rule, for who reads what came of it.
pub const RULE: &str = "A place differs when the error bars of both runs do not touch. Of five samples, bars of the same do not touch once in 126 times by chance; a figure agrees when no more \
                        places differ than chance gives 99 of 100 figures (of two to about 19 places one, of more two); what arrives at full load and what is sustained are judged apart, as they are of the same graphs. The whole run agrees when no more figures differ than chance gives 99 of 100 runs and none plainly. Places of the same measurements count as one. Places at which words crossed cores at \
                        another speed (the middle halves of all times more than a fifth apart) are not counted; where they are more than the others, nothing is compared.";

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
    /// Of what arrives at full load and of what is sustained, how many places differ: of one measurement each, they are judged apart.
    pub beyond: Vec<Beyond>,
}

/// How many places of how many differ, each of which does so often by chance, and in which part of figures more may than chance gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beyond {
    differ: usize,
    places: usize,
    once: f64,
    level: f64,
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.name, self.outcome, self.text)
    }
}

/// A run, compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Each figure that both runs have, but those that tell another's samples otherwise: they would count twice.
    pub figures: Vec<Compared>,
    /// Those that only the earlier run has: not asked for now, or they could not be made.
    pub gone: Vec<String>,
}

/// Compares a run with an earlier one.
pub fn all(before: &[Record], now: &[Record]) -> Comparison {
    let own = |record: &&Record| {
        let counts = |f: &Figure| {
            f.measure.is_taken() || matches!(f.measure, Measure::Of { anew: true, .. })
        };
        catalog::named(&record.name).is_none_or(counts)
    };
    let pairs =
        now.iter().filter(own).filter_map(|n| Some((before.iter().find(|b| b.name == n.name)?, n)));
    let compared = pairs.map(|(before, now)| {
        let (outcome, text, beyond) = one(before, now);
        Compared { name: now.name.clone(), outcome, text, beyond }
    });
    let is_gone = |b: &&Record| own(b) && !now.iter().any(|n| n.name == b.name);
    let gone = before.iter().filter(is_gone).map(|b| b.name.clone()).collect();
    Comparison { figures: compared.collect(), gone }
}

/// Whether the whole run agrees: no more of its figures differ than chance gives 99 of 100 runs, none by so many places that chance would give
/// that to less than one of 100 runs in any figure, and more were compared than not.
pub fn whole(compared: &[Compared]) -> Outcome {
    let of = |outcome| compared.iter().filter(move |c| c.outcome == outcome);
    let (agree, differ) = (of(Outcome::Agrees).count(), of(Outcome::Differs).count());
    let all = agree + differ;
    if all == 0 || of(Outcome::Open).count() > all {
        return Outcome::Open;
    }
    let plainly = |c: &Compared| {
        c.beyond.iter().any(|b| b.differ > by_chance(b.places, b.once, b.level / all as f64))
    };
    match of(Outcome::Differs).any(plainly) || differ > by_chance(all, WRONGLY, WRONGLY) {
        true => Outcome::Differs,
        false => Outcome::Agrees,
    }
}

/// How many figures agree, which do not, and whether the run does.
pub fn sum(comparison: &Comparison) -> String {
    let compared = &comparison.figures;
    let of = |outcome| compared.iter().filter(move |c| c.outcome == outcome);
    let names: Vec<&str> = of(Outcome::Differs).map(|c| c.name.as_str()).collect();
    let differ = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let (agree, open) = (of(Outcome::Agrees).count(), of(Outcome::Open).count());
    let run = match whole(compared) {
        Outcome::Open => String::new(),
        run => format!(
            "; so the run as a whole {run} ({} of {} may differ by chance, and none may plainly)",
            by_chance(agree + names.len(), WRONGLY, WRONGLY),
            agree + names.len()
        ),
    };
    let gone = match comparison.gone.as_slice() {
        [] => String::new(),
        // A part of them was asked for.
        gone if gone.len() > NAMED => {
            format!("; {} figures more only the earlier run has", gone.len())
        }
        gone => format!("; only the earlier run has {}", gone.join(", ")),
    };
    format!(
        "against the earlier run: {agree} figures agree, {open} cannot be compared; that differ: {differ}{run}{gone}"
    )
}

fn one(before: &Record, now: &Record) -> (Outcome, String, Vec<Beyond>) {
    if before.machine != now.machine {
        return (Outcome::Open, "another machine".to_owned(), Vec::new());
    }
    if !before.effort.is_like(&now.effort) {
        let text =
            "other samples: of another number or length, or other rings, pool, class or cores";
        return (Outcome::Open, text.to_owned(), Vec::new());
    }
    let (mut groups, mut apart): (Vec<Group<'_>>, _) = (Vec::new(), Vec::new());
    let (mut moods, mut fewer) = (0, 0);
    // Rates that are sustained were searched for after what arrives at full load was measured: places of their own.
    let [held, of_old] = [now, before].map(|record| held::lines(&record.series));
    let full = places(&now.series).map(|place| (place, &before.series, false));
    let sustained = places(&held).map(|place| (place, &of_old, true));
    for ((series, place), of_old, is_held) in full.chain(sustained) {
        let same = |(s, p): &(&Series, &Place)| s.name == series.name && p.x == place.x;
        let Some((_, old)) = places(of_old).find(same) else { continue };
        let (Some([low, middle, high]), Some([least, was, most])) = (place.spread(), old.spread())
        else {
            continue;
        };
        // Their bars say less than the rule takes them to.
        let samples = place.samples.len().min(old.samples.len());
        if samples < now.effort.samples {
            fewer += 1;
            continue;
        }
        if !alike(old, place) {
            moods += 1;
            continue;
        }
        let change = if was > 0.0 { (middle / was - 1.0) * 100.0 } else { 0.0 };
        let differs = low > most || high < least;
        if differs {
            let change =
                if was > 0.0 { format!("{change:+.0} %") } else { "(0 before)".to_owned() };
            apart.push(format!("{} at {} {change}", series.name, place.x));
        }
        match groups.iter_mut().find(|g| g.is_held == is_held && of_one(g.first, place)) {
            Some(group) => group.places.push((change, differs)),
            None => groups.push(Group { first: place, is_held, places: vec![(change, differs)] }),
        }
    }
    let builds = match before.version == now.version {
        true => String::new(),
        false => format!("{} against {}; ", now.version, before.version),
    };
    let counted: usize = groups.iter().map(|g| g.places.len()).sum();
    let (gone, new) = (only(&before.series, &now.series), only(&now.series, &before.series));
    let too_few = counted < moods + fewer + gone;
    let mut not = String::new();
    for (places, why) in [
        (moods, "words crossed cores at another speed"),
        (fewer, "samples of them failed"),
        (gone, "only the earlier run has them"),
        (new, "only this run has them"),
    ] {
        if places > 0 {
            not += &format!("; {places} places not counted: {why}");
        }
    }
    let moods = not;
    let middle = |is_held: bool| {
        let of = groups.iter().filter(|g| g.is_held == is_held).flat_map(|g| &g.places);
        let mut changes: Vec<f64> = of.map(|(change, _)| *change).collect();
        changes.sort_by(f64::total_cmp);
        changes.get(changes.len() / 2).copied()
    };
    let Some(full) = middle(false) else {
        return (Outcome::Open, format!("{builds}no place in common{moods}"), Vec::new());
    };
    if too_few {
        let text = format!("{builds}{counted} places in common{moods}");
        return (Outcome::Open, text, Vec::new());
    }
    let families: Vec<Vec<&Group<'_>>> = [false, true]
        .map(|is_held| groups.iter().filter(|g| g.is_held == is_held).collect::<Vec<_>>())
        .into_iter()
        .filter(|family| !family.is_empty())
        .collect();
    let (once, level) = (once(now.effort.samples), WRONGLY / families.len().max(1) as f64);
    let of_family = |family: &Vec<&Group<'_>>| {
        let differ = family.iter().filter(|g| g.differs()).count();
        Beyond { differ, places: family.len(), once, level }
    };
    let beyond: Vec<Beyond> = families.iter().map(of_family).collect();
    let sum = |of: fn(&Beyond) -> usize| beyond.iter().map(of).sum::<usize>();
    let (count, differ, may) = (sum(|b| b.places), sum(|b| b.differ), sum(Beyond::may));
    let outcome = match differ {
        // So few samples that whatever they are is chance.
        _ if may >= count && differ > 0 => Outcome::Open,
        _ if beyond.iter().all(|b| b.differ <= b.may()) => Outcome::Agrees,
        _ => Outcome::Differs,
    };
    let which = if apart.is_empty() { String::new() } else { format!(" ({})", apart.join(", ")) };
    let held = middle(true).map_or(String::new(), |held| format!(" ({held:+.1} % sustained)"));
    let turned = if trends(before) == trends(now) && before.verdict == now.verdict {
        ""
    } else {
        "; what was seen stands otherwise to the claim: in one of both, or both, it hangs on less than the bars"
    };
    let text = format!(
        "{builds}{full:+.1} % at the median place{held}, {differ} of {count} places beyond the error bars, {may} may be{which}{moods}{turned}"
    );
    (outcome, text, beyond)
}

impl Beyond {
    /// How many may.
    fn may(&self) -> usize {
        by_chance(self.places, self.once, self.level)
    }
}

/// Places whose samples are of the same measurements.
struct Group<'r> {
    first: &'r Place,
    /// Of rates that are sustained.
    is_held: bool,
    /// By how many percent each changed, and whether it is beyond the error bars.
    places: Vec<(f64, bool)>,
}

impl Group<'_> {
    /// Whether most of its places are.
    fn differs(&self) -> bool {
        self.places.iter().filter(|(_, differs)| *differs).count() * 2 > self.places.len()
    }
}

/// Whether two places' samples are of the same measurements: percentiles of the same packets, or a limit that is drawn at both ends.
fn of_one(a: &Place, b: &Place) -> bool {
    let trips = |place: &Place| place.samples.iter().map(|s| s.round_trip_ns).collect::<Vec<_>>();
    let known = a.samples.iter().flat_map(|s| s.round_trip_ns).any(|ns| ns > 0.0);
    known && trips(a) == trips(b) && (a.x == b.x || a.samples == b.samples)
}

/// How often bars of so many samples each of the same do not touch: of 2n values each way to rank them is as likely; in two of them all of one
/// run are before all of the other.
fn once(samples: usize) -> f64 {
    let rankings: f64 = (1..=samples).map(|i| (samples + i) as f64 / i as f64).product();
    2.0 / rankings
}

/// How many of so many places, of which each differs so often by chance, may differ: the fewest so that chance gives more in no larger a part
/// of cases than `level`.
fn by_chance(places: usize, once: f64, level: f64) -> usize {
    if once >= 1.0 {
        return places;
    }
    // Of the binomial distribution: none, one, two and so on.
    let (mut differ, mut exactly) = (0, (1.0 - once).powf(places as f64));
    let mut up_to = exactly;
    while 1.0 - up_to > level + 1e-9 && differ < places {
        exactly *= (places - differ) as f64 / (differ + 1) as f64 * once / (1.0 - once);
        up_to += exactly;
        differ += 1;
    }
    differ
}

/// Whether words crossed cores about as fast around both places' samples: the middle halves of all times touch, or nearly so. Where no
/// second core took part they did.
fn alike(a: &Place, b: &Place) -> bool {
    let trips = |place: &Place| {
        let mut all: Vec<f64> = place.samples.iter().flat_map(|s| s.round_trip_ns).collect();
        all.sort_by(f64::total_cmp);
        let outside = all.len() / 4;
        Some([*all.get(outside)?, *all.get(all.len() - 1 - outside)?])
    };
    match (trips(a), trips(b)) {
        (Some([low, high]), Some([least, most])) if low > 0.0 && least > 0.0 => {
            low <= ALIKE * most && least <= ALIKE * high
        }
        _ => true,
    }
}

/// Which of the paper's trends hold, as a finding tells them in their order.
fn trends(record: &Record) -> Vec<bool> {
    let after = record.finding.split("The paper's trend (").skip(1);
    // What comes next, if anything, is another trend's.
    after.map(|told| !told.contains(") does not hold here")).collect()
}

/// How many places one run has and the other has not.
fn only(these: &[Series], others: &[Series]) -> usize {
    let has = |(s, p): &(&Series, &Place)| {
        places(others).any(|(other, place)| other.name == s.name && place.x == p.x)
    };
    places(these).filter(|place| !has(place)).count()
}

fn places(series: &[Series]) -> impl Iterator<Item = (&Series, &Place)> {
    series.iter().flat_map(|s| s.places.iter().map(move |p| (s, p)))
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
            for part in [0.97, 0.98, 1.0, 1.01, 1.02] {
                let sample = Sample::of(value(at) * part, [trip, trip + at as f64 / 10.0]);
                add(&mut record.series, "fused", at as f64, sample);
            }
        }
        record
    }

    /// A run that has all that the earlier one has.
    fn alone(figures: Vec<Compared>) -> Comparison {
        Comparison { figures, gone: Vec::new() }
    }

    fn against(now: Record) -> Compared {
        all(&[of(|_| 100.0, 80.0)], &[now]).figures.remove(0)
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
    fn as_many_places_may_differ_as_chance_gives_99_of_100_figures() {
        let may = |samples| move |places| by_chance(places, once(samples), WRONGLY);
        assert_eq!([1, 2, 4, 19, 20, 30].map(may(5)), [0, 1, 1, 1, 2, 2]);
        assert_eq!(may(3)(20), 6, "one of ten differs by chance");
        assert_eq!(may(1)(20), 20, "one sample is always beyond the other");
        let one = |value: f64| {
            let mut record = of(|_| value, 80.0);
            record.effort.samples = 1;
            record.series[0].places.iter_mut().for_each(|place| place.samples.truncate(1));
            record
        };
        assert_eq!(all(&[one(100.0)], &[one(50.0)]).figures[0].outcome, Outcome::Open);
        assert_eq!(all(&[one(100.0)], &[one(100.0)]).figures[0].outcome, Outcome::Agrees);
    }

    #[test]
    fn a_run_agrees_when_no_more_of_its_figures_differ_than_chance_gives() {
        let run = |agree: usize, differ: usize| -> Vec<Compared> {
            let beyond = Beyond { differ: 2, places: 13, once: once(5), level: WRONGLY };
            let of = |outcome| {
                let (name, text, beyond) = ("a".to_owned(), String::new(), vec![beyond]);
                Compared { name, outcome, text, beyond }
            };
            let outcomes = [(Outcome::Agrees, agree), (Outcome::Differs, differ)];
            outcomes.into_iter().flat_map(|(o, n)| std::iter::repeat_n(of(o), n)).collect()
        };
        assert_eq!(whole(&run(34, 2)), Outcome::Agrees);
        assert_eq!(whole(&run(33, 3)), Outcome::Differs);
        assert_eq!(whole(&run(1, 1)), Outcome::Differs, "two of 13 places, in one of two figures");
        assert_eq!(whole(&run(0, 1)), Outcome::Differs, "one figure by its own rule");
        assert_eq!(whole(&run(0, 0)), Outcome::Open);
        // One that is plainly another is enough, whatever the others are.
        let mut plainly = run(34, 1);
        plainly[34].beyond[0].differ = 13;
        assert_eq!(whole(&plainly), Outcome::Differs);
        // Of what was not compared nothing is known.
        let open = (0..4).map(|_| Compared { outcome: Outcome::Open, ..run(1, 0).remove(0) });
        let some: Vec<Compared> = run(3, 0).into_iter().chain(open).collect();
        assert_eq!(whole(&some), Outcome::Open);
        let told = sum(&alone(run(34, 2)));
        assert!(
            told.ends_with(
                "the run as a whole agrees (2 of 36 may differ by chance, and none may plainly)"
            ),
            "{told}"
        );
    }

    #[test]
    fn sustained_rates_are_places_of_their_own() {
        let with = |held: f64| {
            let mut record = of(|_| 100.0, 80.0);
            for place in &mut record.series[0].places {
                let open = false;
                place.samples.iter_mut().for_each(|s| {
                    s.sustained = Some(super::super::data::Held { value: held * s.value, open });
                });
            }
            record
        };
        let same = all(&[with(0.9)], &[with(0.9)]).figures.remove(0);
        assert!(same.outcome == Outcome::Agrees && same.text.contains("0 of 40"), "{same}");
        let slower = all(&[with(0.9)], &[with(0.5)]).figures.remove(0);
        assert_eq!(slower.outcome, Outcome::Differs, "{slower}");
        assert!(
            slower
                .text
                .starts_with("+0.0 % at the median place (-44.4 % sustained), 20 of 40 places"),
            "{slower}"
        );
        assert!(slower.text.contains("fused, sustained at 3 -44 %"), "{slower}");
    }

    #[test]
    fn places_of_the_same_measurements_count_as_one() {
        // Two lines' percentiles of the same packets, and a limit that is drawn at both ends: each of them alone is one place.
        let twice = |value: f64, limit: f64| {
            let mut record = of(|_| 100.0, 80.0);
            for part in [0.97, 0.98, 1.0, 1.01, 1.02] {
                for name in ["p50", "p99"] {
                    add(&mut record.series, name, 1.0, Sample::of(value * part, [81.0, part]));
                }
                for x in [0.0, 20.0] {
                    add(&mut record.series, "limit", x, Sample::of(limit * part, [82.0, part]));
                }
            }
            record
        };
        let compared = all(&[twice(50.0, 300.0)], &[twice(40.0, 200.0)]).figures.remove(0);
        assert!(compared.text.contains("2 of 22 places"), "{compared}");
        assert_eq!(compared.outcome, Outcome::Agrees, "{compared}");
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
        assert!(
            sum(&alone(vec![slow]))
                .contains("that differ: a; so the run as a whole differs (0 of 1 may")
        );
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
    fn places_of_which_samples_failed_are_not_compared() {
        let mut now = of(|at| if at < 4 { 20.0 } else { 100.0 }, 80.0);
        now.series[0].places.iter_mut().take(4).for_each(|place| place.samples.truncate(3));
        let now = against(now);
        assert_eq!(now.outcome, Outcome::Agrees, "{now}");
        assert!(now.text.contains("of 16 places"), "{now}");
        assert!(now.text.ends_with("4 places not counted: samples of them failed"), "{now}");
    }

    #[test]
    fn what_only_one_run_has_is_told_and_where_most_is_gone_nothing_is_compared() {
        let without = |gone: usize| {
            let mut now = of(|_| 100.0, 80.0);
            now.series[0].places.truncate(20 - gone);
            now
        };
        let some = against(without(3));
        assert_eq!(some.outcome, Outcome::Agrees, "{some}");
        assert!(
            some.text.ends_with("3 places not counted: only the earlier run has them"),
            "{some}"
        );
        assert_eq!(against(without(11)).outcome, Outcome::Open);
        let more = all(&[without(2)], &[of(|_| 100.0, 80.0)]).figures.remove(0);
        assert!(more.text.ends_with("2 places not counted: only this run has them"), "{more}");
        let mut other = of(|_| 100.0, 80.0);
        other.name = "b".to_owned();
        let without = all(&[of(|_| 100.0, 80.0), other], &[of(|_| 100.0, 80.0)]);
        assert!(sum(&without).ends_with("; only the earlier run has b"), "{without:?}");
        let many = Comparison { figures: Vec::new(), gone: vec!["c".to_owned(); 6] };
        assert!(sum(&many).ends_with("; 6 figures more only the earlier run has"), "{many:?}");
    }

    #[test]
    fn a_trend_that_holds_in_one_run_only_is_told() {
        let told = |text: &str| {
            let mut record = of(|_| 100.0, 80.0);
            record.finding = text.to_owned();
            record
        };
        let [holds, fails] = ["holds", "does not hold"].map(|how| {
            told(&format!(
                "3. The paper's trend (more) holds here. The paper's trend (less) {how} here"
            ))
        });
        let same = std::slice::from_ref(&holds);
        let same = all(same, same).figures.remove(0);
        assert!(!same.text.contains("stands otherwise"), "{same}");
        let turned = all(&[holds], &[fails]).figures.remove(0);
        assert!(
            turned.outcome == Outcome::Agrees && turned.text.contains("stands otherwise"),
            "{turned}"
        );
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
