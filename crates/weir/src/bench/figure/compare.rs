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
//! where they are more than the others, nothing is compared. Nor is it true of rates that are sustained where searches had to end early: their bars are
//! those of the searches, and such places are left out. By as much as a step of work that is none of Weir's took longer or shorter
//! around the figure's samples (the median of all), bars may lie apart: so far the machine, not the program, has become another.

use super::catalog::{self, Figure, Measure};
use super::data::{ALIKE, Place, Record, Series};
use super::held;

/// How often a figure may be said to differ of which both runs are the same.
const WRONGLY: f64 = 0.01;

/// So many figures that are missing are named.
const NAMED: usize = 5;

/// The rule, for who reads what came of it.
pub const RULE: &str = "A place differs when the error bars of both runs do not touch; those of sustained rates reach up to the upper bound. Of five samples, bars of the same do not touch once in 126 times by chance; a figure agrees when no more \
                        places differ than chance gives 99 of 100 figures (how many that are is said); what arrives at full load and what is sustained are judged apart, as they are of the same graphs. The whole run agrees when no more figures differ than chance gives 99 of 100 runs and none plainly. Places of the same measurements count as one. Places at which words crossed cores at \
                        another speed (the middle halves of all times more than a fifth apart), of which samples failed or that only one run has are not counted; where they are more than the others (but for what only this run has), nothing is compared. Of rates that are sustained places are compared where most searches found both bounds and none held nothing: bars of others are made by where searches ended. Bars may lie apart by as much as the cores took longer or shorter, at the median of a figure's samples, for work that is always the same and none of Weir's; where that is more than a fifth, nothing is compared.";

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
        let text = "other samples: of another number or length, taken in another way, or with other rings, pool, class or cores";
        return (Outcome::Open, text.to_owned(), Vec::new());
    }
    let machine = Drift::between(before, now);
    if machine.is_another() {
        return (Outcome::Open, format!("the cores {machine}"), Vec::new());
    }
    let (mut groups, mut apart): (Vec<Group<'_>>, _) = (Vec::new(), Vec::new());
    let (mut moods, mut fewer, mut bounds) = (0, 0, 0);
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
        if is_held && (held::bounds(place) || held::bounds(old)) {
            bounds += 1;
            continue;
        }
        // Between its bounds a rate may be anywhere.
        let (high, most) = match is_held {
            true => (held::most(place), held::most(old)),
            false => (high, most),
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
        let differs = low > most * machine.most() || high * machine.most() < least;
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
    let builds = match (before.version == now.version, before.effort.program == now.effort.program)
    {
        (false, _) => format!("{} against {}; ", now.version, before.version),
        (true, false) => format!("another build of {}; ", now.version),
        (true, true) => String::new(),
    };
    let counted: usize = groups.iter().map(|g| g.places.len()).sum();
    let (gone, new) = (only(&before.series, &now.series), only(&now.series, &before.series));
    let too_few = counted < moods + fewer + gone;
    let mut not = String::new();
    for (places, why) in [
        (moods, "words crossed cores at another speed"),
        (fewer, "samples of them failed"),
        (bounds, "of what is sustained only a bound was found in time"),
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
    let turned = turned(before, now);
    let text = format!(
        "{builds}{full:+.1} % at the median place{held}, the cores {machine}; {differ} of {count} places beyond the error bars, {may} may be{which}{moods}{turned}"
    );
    (outcome, text, beyond)
}

/// How the machine changed from one run to the other, by work that is none of Weir's: the median of all times around a figure's samples, now as a
/// part of before. `None`: not measured in both.
#[derive(Debug, Clone, Copy)]
struct Drift(Option<f64>);

impl Drift {
    fn between(before: &Record, now: &Record) -> Self {
        let pace = |record: &Record| record.pace().map(|[_, median, _]| median);
        Drift(pace(now).zip(pace(before)).map(|(now, before)| now / before))
    }

    /// By which factor values may differ for it, whichever way.
    fn most(self) -> f64 {
        self.0.map_or(1.0, |part| part.max(1.0 / part))
    }

    fn is_another(self) -> bool {
        self.most() > ALIKE
    }
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(part) => write!(f, "took {:+.1} % for the same work", (part - 1.0) * 100.0),
            None => f.write_str("not timed in both runs"),
        }
    }
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
    let trips =
        |place: &Place| place.samples.iter().map(|s| s.around.round_trip_ns).collect::<Vec<_>>();
    let known = a.samples.iter().flat_map(|s| s.around.round_trip_ns).any(|ns| ns > 0.0);
    known && trips(a) == trips(b) && (a.x == b.x || a.samples == b.samples)
}

/// How often bars of so many samples each of the same do not touch: of 2n values each way to rank them is as likely; in two of them all of one
/// run are before all of the other.
pub fn once(samples: usize) -> f64 {
    let rankings: f64 = (1..=samples).map(|i| (samples + i) as f64 / i as f64).product();
    2.0 / rankings
}

/// How often bars of so many samples have the true median in them: unless all samples are on one side of it.
pub fn covers(samples: usize) -> f64 {
    (1.0 - 2.0 * 0.5_f64.powf(samples as f64)).max(0.0)
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
        let mut all: Vec<f64> = place.samples.iter().flat_map(|s| s.around.round_trip_ns).collect();
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

/// What a figure says of its claim otherwise than before.
fn turned(before: &Record, now: &Record) -> String {
    let mut text = String::new();
    if before.verdict != now.verdict {
        text += &format!("; verdict before: {}, now: {}", before.verdict, now.verdict);
    }
    let (were, are) = (trends(before), trends(now));
    if were.len() != are.len() {
        text += "; it tells other trends of the paper's than before";
    } else {
        let told = |holds: bool| if holds { "held" } else { "did not hold" };
        let which = if are.len() > 1 { "a" } else { "the" };
        for (was, is) in were.into_iter().zip(are) {
            // What could not be judged has not turned.
            if let (Some(was), Some(is)) = (was, is)
                && was != is
            {
                text += &format!(
                    "; {which} trend of the paper's {} before, and now it is the other way",
                    told(was)
                );
            }
        }
    }
    text
}

/// Which of the paper's trends hold, as a finding tells them in their order; `None`: it could not be judged.
fn trends(record: &Record) -> Vec<Option<bool>> {
    let after = record.finding.split("The paper's trend (").skip(1);
    // What comes next, if anything, is another trend's.
    let holds = |told: &str| match told.contains(") does not hold here") {
        true => Some(false),
        false => told.contains(") holds here").then_some(true),
    };
    after.map(holds).collect()
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
mod tests;
