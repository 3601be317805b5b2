//! Runs that are the same agree, and what differs is told.

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
    assert_eq!([0, 1, 2, 5].map(covers), [0.0, 0.0, 0.5, 0.9375]);
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
                s.sustained =
                    Some(super::super::data::Held { value: held * s.value, open, width: 0.05 });
            });
        }
        record
    };
    let same = all(&[with(0.9)], &[with(0.9)]).figures.remove(0);
    assert!(same.outcome == Outcome::Agrees && same.text.contains("0 of 40"), "{same}");
    let slower = all(&[with(0.9)], &[with(0.5)]).figures.remove(0);
    assert_eq!(slower.outcome, Outcome::Differs, "{slower}");
    assert!(
        slower.text.starts_with("+0.0 % at the median place (-44.4 % sustained), ")
            && slower.text.contains("20 of 40 places"),
        "{slower}"
    );
    assert!(slower.text.contains("fused, sustained at 3 -44 %"), "{slower}");
    // What searches did not find both bounds of says more of them than of what was searched for.
    let mut bound = with(0.5);
    for (at, place) in bound.series[0].places.iter_mut().enumerate() {
        let part = if at == 0 { 1 } else { 3 };
        place.samples[..part].iter_mut().for_each(|s| s.sustained.as_mut().unwrap().open = true);
    }
    for (one, other) in [(with(0.9), bound.clone()), (bound, with(0.9))] {
        let compared = all(&[one], &[other]).figures.remove(0);
        assert!(compared.text.contains("1 of 21 places beyond"), "{compared}");
        assert!(compared.text.contains("19 places not counted: of what is sust"), "{compared}");
    }
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
            s.around.round_trip_ns = [400.0; 2];
            s.value = 20.0;
        });
    }
    let now = against(now);
    assert_eq!(now.outcome, Outcome::Agrees, "{now}");
    assert!(now.text.contains("of 15 places"), "{now}");
}

#[test]
fn bars_may_lie_apart_by_as_much_as_the_machine_became_slower_and_no_more() {
    // A seventh slower, of which the bars are four hundredths wide.
    let now = |pace: f64| {
        let mut now = of(|_| 88.0, 80.0);
        let samples = now.series[0].places.iter_mut().flat_map(|place| &mut place.samples);
        samples.for_each(|s| s.around.pace_ns = [5.0 * pace; 2]);
        against(now)
    };
    let own = now(1.0);
    assert!(own.outcome == Outcome::Differs && own.text.contains("+0.0 % for the same"), "{own}");
    assert_eq!(now(1.05).outcome, Outcome::Differs, "not all of it is the machine's");
    let machine = now(1.1);
    assert_eq!(machine.outcome, Outcome::Agrees, "{machine}");
    assert!(machine.text.contains("the cores took +10.0 % for the same work"), "{machine}");
    assert_eq!(now(0.91).outcome, Outcome::Agrees, "nobody knows which way a value goes");
    let another = now(1.3);
    assert_eq!(another.outcome, Outcome::Open, "{another}");
    // Of a run of an earlier time it is not known: nothing is explained by it.
    assert_eq!(now(0.0).outcome, Outcome::Differs);
}

#[test]
fn of_few_places_one_may_differ_and_most_have_to_be_comparable() {
    // The first `moody` of twenty in another mood, and the next `apart` of the others far off.
    let taken = |moody: usize, apart: usize| {
        let mut now = of(|_| 100.0, 80.0);
        for (at, place) in now.series[0].places.iter_mut().enumerate() {
            place.samples.iter_mut().for_each(|s| match at {
                at if at < moody => s.around.round_trip_ns = [400.0; 2],
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
    assert!(some.text.ends_with("3 places not counted: only the earlier run has them"), "{some}");
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
    assert!(!same.text.contains("of the paper's"), "{same}");
    let turned = all(&[holds], &[fails]).figures.remove(0);
    assert!(
        turned.outcome == Outcome::Agrees
            && turned
                .text
                .ends_with("; a trend of the paper's held before, and now it is the other way"),
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
