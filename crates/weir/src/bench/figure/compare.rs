//! What changed since an earlier run: places whose ranges do not touch.

use super::data::{Place, Record, Series};

/// A line for each figure: how its medians changed, and where both runs' samples lie apart.
pub fn all(before: &[Record], now: &[Record]) -> Vec<String> {
    let pairs = now.iter().filter_map(|n| Some((before.iter().find(|b| b.name == n.name)?, n)));
    pairs.map(|(before, now)| one(before, now)).collect()
}

fn one(before: &Record, now: &Record) -> String {
    let name = &now.name;
    if before.machine != now.machine {
        return format!("{name}: another machine, not compared");
    }
    let mut changes = Vec::new();
    let mut apart = Vec::new();
    for (series, place) in places(now) {
        let same = |(s, p): &(&Series, &Place)| s.name == series.name && p.x == place.x;
        let Some((_, old)) = places(before).find(same) else { continue };
        let (Some([low, middle, high]), Some([least, was, most])) = (place.spread(), old.spread())
        else {
            continue;
        };
        let change = (middle / was - 1.0) * 100.0;
        changes.push(change);
        if low > most || high < least {
            apart.push(format!("{} at {} {change:+.0} %", series.name, place.x));
        }
    }
    changes.sort_by(f64::total_cmp);
    let Some(middle) = changes.get(changes.len() / 2) else {
        return format!("{name}: nothing in common");
    };
    if apart.is_empty() {
        return format!("{name}: {middle:+.1} % at the median place, all within the error bars");
    }
    format!(
        "{name}: {middle:+.1} % at the median place; {} of {} beyond the error bars: {}",
        apart.len(),
        changes.len(),
        apart.join(", ")
    )
}

fn places(record: &Record) -> impl Iterator<Item = (&Series, &Place)> {
    record.series.iter().flat_map(|s| s.places.iter().map(move |p| (s, p)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;
    use crate::bench::figure::data::tests::{record, sample};

    /// A figure with one line of two places.
    fn of(values: [[f64; 3]; 2]) -> Record {
        let mut record = record("a");
        for (x, values) in [1.0, 4.0].into_iter().zip(values) {
            for value in values {
                add(&mut record.series, "fused", x, sample(value));
            }
        }
        record
    }

    #[test]
    fn a_build_that_is_slower_than_any_sample_before_shows_where_and_by_how_much() {
        let before = [of([[99.0, 100.0, 101.0], [50.0, 51.0, 52.0]])];
        let same = all(&before, &[of([[98.0, 100.5, 103.0], [49.0, 51.0, 52.5]])]);
        assert!(same[0].contains("all within the error bars"), "{same:?}");
        let slow = all(&before, &[of([[99.0, 100.0, 101.0], [25.0, 25.5, 26.0]])]);
        assert!(
            slow[0].contains("1 of 2 beyond") && slow[0].contains("fused at 4 -50 %"),
            "{slow:?}"
        );
    }

    #[test]
    fn another_machine_is_not_compared() {
        let (before, mut now) = ([of([[1.0; 3]; 2])], of([[9.0; 3]; 2]));
        now.machine.cores = 4;
        assert!(all(&before, &[now])[0].contains("not compared"));
    }
}
