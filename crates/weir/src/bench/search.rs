//! The sustainable rate: the most that can be offered so that hardly anything is lost, after RFC 2544 §26.1, in the manner of MLRsearch
//! (IETF BMWG, draft-ietf-bmwg-mlrsearch): short trials find about where it is, long ones decide; a load is held when no more than half of its trials
//! lose too much (MLRsearch's goal exceed ratio of one half), as the machine's own pauses spoil single ones. Of three trials two decide; of two the first
//! that holds is enough, and one that does not is tried again. (A load that holds in half of all trials is so held in three of four searches, which makes up for what a
//! lower bound is too low.) Each phase finds both of its bounds itself, so that an unlucky trial of an earlier one decides nothing.

use serde::Serialize;
use std::hash::BuildHasher;
use std::time::Duration;
use weir_packet::BATCH;

/// Part of the packets of a trial's time that may be missing at its end for a rate to count as sustained.
pub const LOSS: f64 = 0.005;
/// The most that is offered, packets a second.
pub const MOST: f64 = 150e6;

/// What counts as sustained, and when the search ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// The largest part of the packets that may be lost.
    pub loss: f64,
    /// The search ends when upper and lower bound are so close: their difference as a part of the upper one.
    pub width: f64,
    /// The first step by which a load is looked for that is held, or is not, as a part of the one before; each further one is twice as long.
    pub step: f64,
    /// The longest such step.
    pub stride: f64,
    /// How long trials take, and how many a load is given at most, by phase. It is held when half of them hold.
    pub phases: Vec<(Duration, usize)>,
    /// No more trials than this in all, of which each phase may take the same part, and what those before it have left.
    pub most: usize,
}

impl Goal {
    /// The goal where nothing is known, of samples that take so long: at most half a percent may be missing in two of three trials. Latencies are
    /// taken at 90 % of what it finds: of what had held once of two times that was overload in half of the samples.
    pub fn usual(span: Duration) -> Self {
        let phases = vec![(span / 4, 1), (span / 2, 3)];
        Goal { loss: LOSS, width: 0.1, step: 0.1, stride: 0.5, phases, most: 16 }
    }

    /// The same where it is known how many packets a second arrive of as much as is taken: one phase is enough, and a narrower width. Trials
    /// are long enough for two batches to be half a percent of their packets, as far as a sample's time reaches.
    pub fn from_full_load(span: Duration, full: f64) -> Self {
        let batches =
            Duration::from_secs_f64((2.0 * BATCH as f64 / LOSS / full.max(1.0)).min(60.0));
        let trial = (span / 8).max(batches).min(span);
        let phases = vec![(trial, 2)];
        Goal { loss: LOSS, width: 0.05, step: 0.05, stride: 0.4, phases, most: 14 }
    }

    /// The same where it begins somewhere, if it is known: and at which rate, or part.
    pub fn from(self, start: Option<Start>, patience: f64) -> (Self, Option<f64>) {
        let goal = if start.is_some_and(|start| start.known) { self.again() } else { self };
        let goal = goal.with(patience);
        let at = start.map(|start| start.at * (1.0 - goal.step).powf(start.aside));
        (goal, at)
    }

    /// The same where an earlier search has found about where it is: long trials alone.
    fn again(mut self) -> Self {
        let phases = self.phases.len().max(1);
        self.phases.drain(..phases - 1);
        self.most = (self.most / phases).max(1);
        self
    }

    /// The same with such a part of the patience, one half to 1: bounds that are further apart by as much are enough, for
    /// which it takes fewer trials. Not fewer may be taken: most searches end before theirs run out, and those that do not are worth little.
    pub fn with(self, patience: f64) -> Self {
        let wider = 1.0 / patience.clamp(0.5, 1.0);
        Goal { width: self.width * wider, step: self.step * wider, ..self }
    }
}

/// Where a search begins that is not the first of its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Start {
    /// The rate, or its part of what arrives at full load.
    pub at: f64,
    /// Earlier searches held a rate about there; `false`: it is a guess below what they did not hold.
    pub known: bool,
    /// By which part of a step it begins beside it, −0.5 to 0.5 ([`aside`]).
    pub aside: f64,
}

/// By which part of a step, −0.5 to 0.5, a round's search at a place begins beside where it would: searches that always began at the same rate would
/// end at the same one, a step's width below the next, and seem certain. Over rounds it is evenly spread, and each run and place has another sequence:
/// else two runs would agree for having tried the same rates.
pub fn aside(place: &impl std::hash::Hash, round: usize) -> f64 {
    static RUN: std::sync::OnceLock<std::hash::RandomState> = std::sync::OnceLock::new();
    let begins = RUN.get_or_init(std::hash::RandomState::new).hash_one(place);
    // Multiples of the golden ratio are, of few rounds as of many.
    (begins as f64 / 2_f64.powi(64) + round as f64 * 0.618_034).fract() - 0.5
}

/// What a search has found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Found {
    /// The highest rate that was held in the last phase, packets a second; 0.0: none was.
    pub rate: f64,
    /// A rate within the goal's width above it was not; or it is the most that may be offered.
    pub is_closed: bool,
    /// That width.
    pub width: f64,
}

/// A search under way.
struct Search<'g, T> {
    goal: &'g Goal,
    most: f64,
    trial: T,
    left: usize,
}

/// Searches up to `most` packets a second, from a guess if there is one. `trial` offers a rate for a time and says which part of the packets was lost, 0 to 1.
pub fn sustainable<E>(
    goal: &Goal,
    most: f64,
    guess: Option<f64>,
    trial: impl FnMut(f64, Duration) -> Result<f64, E>,
) -> Result<Found, E> {
    let mut search = Search { goal, most, trial, left: 0 };
    let mut guess = guess.unwrap_or(most);
    let mut found = Found { rate: 0.0, is_closed: false, width: goal.width };
    for (phase, &(span, trials)) in goal.phases.iter().enumerate() {
        // Long trials decide: short ones must not have used them up.
        let parts = [phase, phase + 1].map(|n| goal.most * n / goal.phases.len());
        search.left += parts[1] - parts[0];
        if guess >= most {
            // What arrives of too much is the best guess.
            search.left = search.left.saturating_sub(1);
            let lost = (search.trial)(most, span)?;
            guess = most * (1.0 - lost).clamp(1e-6, 1.0);
        }
        found = search.phase(guess, span, trials)?;
        guess = if found.rate > 0.0 { found.rate } else { guess };
    }
    Ok(found)
}

impl<E, T: FnMut(f64, Duration) -> Result<f64, E>> Search<'_, T> {
    /// Whether half of so many trials hold a rate, or more; `None` when there are not as many left.
    fn holds(&mut self, rate: f64, span: Duration, trials: usize) -> Result<Option<bool>, E> {
        let (mut held, mut lost) = (0, 0);
        while held * 2 < trials && lost * 2 <= trials {
            if self.left == 0 {
                return Ok(None);
            }
            self.left -= 1;
            match (self.trial)(rate, span)? <= self.goal.loss {
                true => held += 1,
                false => lost += 1,
            }
        }
        Ok(Some(held * 2 >= trials))
    }

    /// Finds a rate that is held and one that is not, from a guess outwards in growing steps, then between them.
    fn phase(&mut self, guess: f64, span: Duration, trials: usize) -> Result<Found, E> {
        let (mut low, mut high) = (0.0_f64, f64::INFINITY);
        let (mut rate, mut step) = (guess.min(self.most), self.goal.step);
        loop {
            let Some(held) = self.holds(rate, span, trials)? else {
                return Ok(Found { rate: low, is_closed: false, width: self.goal.width });
            };
            if held {
                low = low.max(rate);
            } else {
                high = high.min(rate);
            }
            // A step of the goal's width is close enough, however it is rounded.
            let close = self.goal.width * (1.0 + 1e-9);
            let is_close = high.is_finite() && high - low <= close * high;
            let is_closed = low >= self.most || is_close;
            if is_closed {
                return Ok(Found { rate: low, is_closed, width: self.goal.width });
            }
            rate = match (low > 0.0, high.is_finite()) {
                (true, true) => (low * high).sqrt(),
                (true, false) => (low / (1.0 - step)).min(self.most),
                (false, _) => high * (1.0 - step),
            };
            step = (step * 2.0).min(self.goal.stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn goal() -> Goal {
        let phases = vec![(Duration::from_millis(1), 1), (Duration::from_millis(5), 3)];
        Goal { loss: 0.001, width: 0.01, step: 0.01, stride: 0.5, phases, most: 200 }
    }

    #[test]
    fn with_less_patience_bounds_that_are_twice_as_far_apart_are_enough_and_found_sooner() {
        let full = Goal::from_full_load(Duration::from_millis(250), 1e6);
        let width = |patience| full.clone().with(patience).width;
        assert_eq!([1.0, 0.5, 0.0].map(width), [0.05, 0.1, 0.1]);
        // A source that does not wait gets two thirds through of what a full ring lets through.
        let search = |patience| {
            let (mut trials, mut device) = (0, device(0.66e6));
            let goal = full.clone().with(patience);
            let Ok(found) = sustainable(&goal, 1e8, Some(0.95e6), |rate, span| {
                trials += 1;
                device(rate, span)
            });
            assert!(found.is_closed && found.rate <= 0.664e6, "{found:?}");
            (found.rate, trials)
        };
        let (all, little) = (search(1.0), search(0.5));
        assert!(all.0 >= 0.62e6 && little.0 >= 0.59e6 && little.1 < all.1, "{all:?} {little:?}");
    }

    #[test]
    fn of_two_trials_the_first_that_holds_is_enough_and_one_that_does_not_is_tried_again() {
        for (trials, held, asked) in [
            ([true, true], true, 1),
            ([true, false], true, 1),
            ([false, true], true, 2),
            ([false, false], false, 2),
        ] {
            let goal = Goal { phases: vec![(Duration::ZERO, 2)], most: 2, ..goal() };
            let mut next = trials.into_iter();
            let trial =
                |_, _| Ok::<_, Infallible>(if next.next() == Some(true) { 0.0 } else { 1.0 });
            let mut search = Search { goal: &goal, most: 1e7, trial, left: 2 };
            let Ok(holds) = search.holds(1e6, Duration::ZERO, 2);
            assert_eq!((holds, 2 - search.left), (Some(held), asked), "{trials:?}");
        }
    }

    #[test]
    fn where_it_is_known_about_where_a_rate_lies_long_trials_find_it_with_half_as_many() {
        let span = Duration::from_millis(250);
        let usual = Goal::usual(span);
        let again = usual.clone().again();
        assert_eq!((again.phases.as_slice(), again.most), (&usual.phases[1..], usual.most / 2));
        let mut trials = 0;
        let mut device = device(0.66e6);
        let Ok(found) = sustainable(&again, 1e8, Some(0.6e6), |rate, span| {
            trials += 1;
            device(rate, span)
        });
        assert!(found.is_closed && (0.59e6..=0.664e6).contains(&found.rate), "{found:?}");
        assert!(trials <= again.most, "{trials}");
    }

    #[test]
    fn short_searches_after_each_other_do_not_all_end_at_one_place_below_the_rate() {
        for place in 0..100 {
            short_searches_at(place);
        }
    }

    fn short_searches_at(place: usize) {
        let span = Duration::from_millis(250);
        let mut found: Vec<f64> = Vec::new();
        for round in 1..=5 {
            let mut before = found.clone();
            before.sort_by(f64::total_cmp);
            let start = before.get(before.len() / 2);
            let start = start.map(|at| Start { at: *at, known: true, aside: aside(&place, round) });
            let (goal, at) = Goal::from_full_load(span, 1e6).from(start, 0.5);
            let Ok(search) = sustainable(&goal, 1e8, at.or(Some(0.85e6)), device(0.66e6));
            found.push(search.rate);
        }
        let [least, most] =
            [f64::min as fn(f64, f64) -> f64, f64::max].map(|of| found.iter().copied().reduce(of));
        let (least, most) = (least.unwrap(), most.unwrap());
        assert!(found.iter().all(|rate| (0.59e6..=0.664e6).contains(rate)), "{found:?}");
        assert!(least < most * 0.98, "{found:?}");
    }

    #[test]
    fn two_loads_that_are_a_step_of_the_width_apart_are_enough() {
        for guess in (0..1_000).map(|n| 0.66e6 - f64::from(n)) {
            let mut loads = 0;
            let goal = Goal::from_full_load(Duration::from_millis(250), 1e6);
            let Ok(found) = sustainable(&goal, 1e8, Some(guess), |rate, _| {
                loads += usize::from(rate <= 0.66e6) + 2 * usize::from(rate > 0.665e6);
                Ok::<_, Infallible>((1.0 - 0.66e6 / rate).max(0.0))
            });
            assert!(found.is_closed && loads == 5, "{guess}: {found:?}");
        }
    }

    #[test]
    fn who_guesses_has_the_same_phases_as_who_knows_nothing() {
        let goal = || Goal::usual(Duration::from_millis(250));
        let of = |known| goal().from(Some(Start { at: 8.0, known, aside: 0.0 }), 0.0);
        assert_eq!(of(false), (goal().with(0.0), Some(8.0)));
        assert_eq!(of(true).0, goal().again().with(0.0));
        assert_eq!(goal().from(None, 0.5), (goal().with(0.5), None));
        assert!((1..100).all(|round| (-0.5..=0.5).contains(&aside(&"a", round))));
    }

    /// What a device does that takes so many packets a second: the rest is lost.
    fn device(capacity: f64) -> impl FnMut(f64, Duration) -> Result<f64, Infallible> {
        move |rate, _| Ok((1.0 - capacity / rate).max(0.0))
    }

    #[test]
    fn it_is_found_within_the_width_wherever_it_lies() {
        for capacity in [1e3, 3.3e5, 1.4e7, 9.9e7] {
            let Ok(found) = sustainable(&goal(), 1e8, None, device(capacity));
            let off = found.rate / capacity - 1.0;
            assert!((-0.011..=0.002).contains(&off) && found.is_closed, "{capacity}: {found:?}");
        }
        // From a guess, whichever side of it it lies.
        for guess in [2e5, 1e6, 3e6] {
            let Ok(found) = sustainable(&goal(), 1e8, Some(guess), device(1e6));
            assert!((0.98e6..=1.002e6).contains(&found.rate), "{guess}: {found:?}");
        }
        let Ok(all) = sustainable(&goal(), 1e8, None, device(2e8));
        assert_eq!((all.rate, all.is_closed), (1e8, true));
    }

    #[test]
    fn what_short_trials_held_by_luck_is_given_up_in_longer_ones_and_what_they_lost_by_it_is_not() {
        // Short trials see the buffers, or the machine's pauses.
        for in_short in [2e6, 2e5] {
            let trial = |rate: f64, span: Duration| {
                let capacity = if span < Duration::from_millis(5) { in_short } else { 1e6 };
                Ok::<_, Infallible>((1.0 - capacity / rate).max(0.0))
            };
            let Ok(found) = sustainable(&goal(), 1e7, None, trial);
            assert!((0.98e6..=1.002e6).contains(&found.rate), "{found:?}");
        }
    }

    #[test]
    fn one_trial_of_three_that_the_machine_spoils_decides_nothing() {
        let mut count = 0;
        let trial = |rate: f64, _| {
            count += 1;
            let spoilt = if count % 3 == 0 { 0.02 } else { 0.0 };
            Ok::<_, Infallible>((1.0 - 1e6 / rate).max(spoilt))
        };
        let goal = Goal { phases: vec![(Duration::from_millis(5), 3)], ..goal() };
        let Ok(found) = sustainable(&goal, 1e7, None, trial);
        assert!((0.98e6..=1.002e6).contains(&found.rate), "{found:?}");
    }

    #[test]
    fn what_short_trials_held_and_long_ones_lost_is_not_what_is_found() {
        let few = Goal { most: 16, width: 0.1, step: 0.1, ..goal() };
        let trial = |rate: f64, span: Duration| {
            let long = span >= Duration::from_millis(5);
            Ok::<_, Infallible>(if long { 1.0 } else { (1.0 - 1e6 / rate).max(0.0) })
        };
        let Ok(found) = sustainable(&few, 1e7, None, trial);
        assert_eq!((found.rate, found.is_closed), (0.0, false));
    }

    #[test]
    fn short_trials_do_not_use_up_the_long_ones() {
        let (mut short, mut long) = (0, 0);
        // The short ones never end: what they hold is as often lost.
        let trial = |rate: f64, span: Duration| {
            let is_long = span >= Duration::from_millis(5);
            *if is_long { &mut long } else { &mut short } += 1;
            let capacity = if is_long || short % 2 == 0 { 1e6 } else { 1e3 };
            Ok::<_, Infallible>((1.0 - capacity / rate).max(0.0))
        };
        let goal = Goal { most: 40, width: 0.0, step: 0.0, ..goal() };
        let Ok(_) = sustainable(&goal, 1e7, None, trial);
        assert_eq!((short, long), (20, 20));
    }

    #[test]
    fn who_loses_always_sustains_nothing_and_the_search_ends() {
        let mut asked = 0;
        let Ok(found) = sustainable(&goal(), 1e7, None, |_, _| {
            asked += 1;
            Ok::<_, Infallible>(1.0)
        });
        assert!(
            found.rate == 0.0 && !found.is_closed && asked <= 200,
            "{found:?} after {asked} trials"
        );
    }
}
