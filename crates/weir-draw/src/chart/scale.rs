//! What a chart's axes can show, from where to where they reach, and what is marked on them.

/// Width that a label below the horizontal axis takes.
const LABEL: i32 = 34;
/// No measured value is further from 0, and none that is not 0 as close to it: what is, the axes' arithmetic is not made for.
const FURTHEST: f64 = 1e30;
/// The most marks of the vertical axis.
const TICKS: f64 = 9.0;

/// Whether a value has a place on an axis.
pub fn fits(value: f64, log: bool) -> bool {
    let is_apart = (1.0 / FURTHEST..=FURTHEST).contains(&value.abs());
    if log { is_apart && value > 0.0 } else { is_apart || value == 0.0 }
}

/// Values that are marked on an axis: round ones, at least two in any reach that measurements have.
pub fn ticks(reach: &std::ops::Range<f64>, log: bool) -> Vec<f64> {
    let within = |v: &f64| *v >= reach.start * (1.0 - 1e-9) && *v <= reach.end * (1.0 + 1e-9);
    let power = |v: f64| v.log10().floor() as i32;
    if !log {
        let least = (reach.end - reach.start) / TICKS;
        let of_ten = 10_f64.powi(power(least));
        let steps = [1.0, 2.0, 5.0, 10.0].map(|part| part * of_ten);
        let step = steps.into_iter().find(|step| *step >= least).unwrap_or(of_ten * 10.0);
        let (first, last) = ((reach.start / step).ceil() as i64, (reach.end / step).floor() as i64);
        return (first..=last).map(|n| n as f64 * step).collect();
    }
    let decades = power(reach.start)..=power(reach.end);
    let all = |parts: &[f64]| -> Vec<f64> {
        let marks = decades.clone().flat_map(|ten| parts.iter().map(move |p| p * 10_f64.powi(ten)));
        marks.filter(within).collect()
    };
    // As fine as there is room for.
    let fine = [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    let mut marks = fine.into_iter().map(all);
    let fits = marks.clone().find(|m| m.len() as f64 <= TICKS);
    fits.or_else(|| marks.next_back()).unwrap_or_default()
}

/// Of places, with their pixels, those that are labelled: all, where labels have room beside each other; the first and the last in any case.
pub fn labelled(mut places: Vec<(f64, i32)>) -> Vec<(f64, i32)> {
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places.dedup_by(|a, b| a.0 == b.0);
    let Some(last) = places.pop() else { return places };
    let mut kept: Vec<(f64, i32)> = Vec::new();
    for place in places {
        let has_room = kept.last().is_none_or(|before| place.1 - before.1 >= LABEL);
        if has_room && (kept.is_empty() || last.1 - place.1 >= LABEL) {
            kept.push(place);
        }
    }
    kept.push(last);
    kept
}

/// From the least to the most, with a little room; `None` without values.
pub fn reach(values: impl Iterator<Item = f64>, log: bool) -> Option<std::ops::Range<f64>> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return None;
    }
    Some(if log {
        low / 1.2..high * 1.2
    } else {
        let room = if high > low { (high - low) * 0.05 } else { high.abs().max(1.0) * 0.1 };
        low - room..high + room
    })
}

/// A number in few characters: powers of thousand by letter.
pub fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 {
        // What is not exact, as powers of ten that a logarithmic axis reckons are, would have all its digits.
        let text = format!("{value:.2e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'));
    }
    let (scaled, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_labelled_where_labels_have_room() {
        let places = vec![(8.0, 500), (1.0, 10), (1.0, 10), (2.0, 30), (4.0, 480), (3.0, 60)];
        assert_eq!(labelled(places), [(1.0, 10), (3.0, 60), (8.0, 500)]);
        assert_eq!(labelled(vec![(5.0, 7)]), [(5.0, 7)]);
        assert_eq!(labelled(vec![]), []);
    }

    #[test]
    fn marks_are_round_and_few_and_never_alone() {
        assert_eq!(ticks(&(0.0..105.0), false), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(&(-0.5..1.6), false), [-0.5, 0.0, 0.5, 1.0, 1.5]);
        assert_eq!(ticks(&(6.0..29.0), true), [7.0, 10.0, 15.0, 20.0]);
        assert_eq!(ticks(&(4.0..900.0), true), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        for end in [1.5, 2.0, 8.0, 70.0, 1e5, 1e9] {
            for log in [false, true] {
                let marks = ticks(&(1.0..end), log);
                assert!((2..=10).contains(&marks.len()), "1 to {end}: {marks:?}");
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 1e-6, 9.999_999_999e-5, 0.25, 12.5, 9_999.0, 20_000.0, 1.5e6].map(short);
        assert_eq!(all, ["0", "1e-6", "1e-4", "0.25", "12.5", "9999", "20k", "1.5M"]);
    }
}
