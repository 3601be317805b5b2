//! Rates that are sustained, which figures of throughput have beside what arrives of as much as is taken.

use super::data::{Held, Place, Sample, Series};
use crate::bench::sample::spread;
use std::collections::BTreeMap;

/// What the marks of a chart are that stand for them.
pub const MARKS: &str = "Triangles, dotted: the rate that is sustained of a source that does not wait, searched for in each sample (hollow where some search held none, which stands at 0 or at the foot of a logarithmic axis, or where half of the searches or more ended early, at a lower bound); points: what arrives of as much as is taken, as a full ring holds \
                         the source up.";

impl Place {
    /// The rates that were held, of searches that held none 0: minimum, median and maximum, and whether that is a bound: half of the searches
    /// or more were not finished, or some held none.
    pub fn held(&self) -> Option<([f64; 3], bool)> {
        let held: Vec<Held> = self.samples.iter().filter_map(|s| s.sustained).collect();
        let values = spread(held.iter().map(|held| held.value).collect())?;
        Some((values, is_bound(&held)))
    }
}

fn is_bound(held: &[Held]) -> bool {
    let open = held.iter().filter(|held| held.open).count();
    held.iter().any(|held| held.value <= 0.0) || (open > 0 && open * 2 >= held.len())
}

/// Whether what a place of [`lines`] has is a bound: where searches ended their bars are made of, more than of what the machine does.
pub fn bounds(place: &Place) -> bool {
    is_bound(&place.samples.iter().filter_map(|s| s.sustained).collect::<Vec<_>>())
}

/// The most that may be sustained at a place of [`lines`]: of a search that ended the upper bound.
pub fn most(place: &Place) -> f64 {
    let upper = place.samples.iter().filter_map(|s| s.sustained);
    upper.map(|held| held.value / (1.0 - held.width.clamp(0.0, 0.9))).fold(0.0, f64::max)
}

/// Lines of these rates, to be compared with an earlier run's as others are.
pub fn lines(series: &[Series]) -> Vec<Series> {
    let place = |place: &Place| {
        let held = |s: &Sample| {
            let Held { value, open, .. } = s.sustained?;
            Some(Sample { value, open, ..s.clone() })
        };
        let samples: Vec<Sample> = place.samples.iter().filter_map(held).collect();
        (!samples.is_empty()).then_some(Place { x: place.x, samples })
    };
    let line = |line: &Series| {
        let places: Vec<Place> = line.places.iter().filter_map(place).collect();
        let name = format!("{}, sustained", line.name);
        (!places.is_empty()).then_some(Series { name, places })
    };
    series.iter().filter_map(line).collect()
}

/// What of as much as arrives at full load is sustained, and how the searches ended; `None`: none was searched for.
pub fn told(series: &[Series]) -> Option<String> {
    let places = || series.iter().flat_map(|line| &line.places);
    let parts = |place: &Place| {
        let part = |s: &Sample| Some(s.sustained?.value / s.value);
        spread(place.samples.iter().filter_map(part).collect()).map(|[_, median, _]| median)
    };
    let [least, median, most] = spread(places().filter_map(parts).collect())?;
    // A limit that is drawn at both ends was searched for once.
    let samples = places().flat_map(|p| &p.samples);
    let searches =
        samples.filter_map(|s| Some((s.around.round_trip_ns.map(f64::to_bits), s.sustained?)));
    // Where nothing arrived at full load nothing was searched for.
    let searches: BTreeMap<[u64; 2], Held> =
        searches.filter(|(_, held)| held.open || held.value > 0.0).collect();
    let count = |of: fn(&Held) -> bool| searches.values().filter(|held| of(held)).count();
    let all = searches.len();
    let (open, none) = (count(|h| h.open && h.value > 0.0), count(|h| h.value <= 0.0));
    let [least_width, most_width] = [f64::min as fn(f64, f64) -> f64, f64::max]
        .map(|of| searches.values().map(|h| h.width).reduce(of).unwrap_or_default() * 100.0);
    let width = match most_width - least_width < 0.5 {
        true => format!("{most_width:.0} %"),
        false => format!("{least_width:.0} to {most_width:.0} %"),
    };
    let mut text = format!(
        "Sustained of a source that does not wait, searched for: {least:.2} to {most:.2} of what arrives at full load, {median:.2} at the median place"
    );
    for (some, what) in [
        (
            open,
            format!(
                "searches ended before a rate within {width} above was seen not to be held: what they held is a lower bound"
            ),
        ),
        (none, "of the searches held no rate".to_owned()),
    ] {
        if some > 0 {
            text += &format!("; {some} of {all} {what}");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    fn with(value: f64, held: f64, open: bool) -> Sample {
        // Each around a time of its own, as they are.
        static TRIP: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let trip = f64::from(TRIP.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let sustained = Some(Held { value: held, open, width: 0.05 });
        Sample { sustained, ..Sample::of(value, [80.0, trip]) }
    }

    #[test]
    fn a_finding_tells_which_part_is_sustained_and_how_searches_ended() {
        let mut series = Vec::new();
        assert_eq!(told(&series), None);
        for (x, held) in [(1.0, 9.0), (2.0, 5.0), (4.0, 10.0)] {
            for open in [false, false, x == 2.0] {
                add(&mut series, "a", x, with(10.0, held, open));
            }
        }
        add(&mut series, "none", 1.0, Sample::of(10.0, [80.0; 2]));
        let text = told(&series).unwrap();
        assert!(text.contains("0.50 to 1.00 of what arrives at full load, 0.90 at the"), "{text}");
        assert!(text.contains("; 1 of 9 searches ended before a rate within 5 % above"), "{text}");
        // Some were to be less close.
        let mut hasty = series.clone();
        hasty[0].places[0].samples[0].sustained.as_mut().unwrap().width = 0.1;
        assert!(told(&hasty).unwrap().contains("a rate within 5 to 10 % above"));
        add(&mut series, "a", 4.0, with(10.0, 0.0, true));
        add(&mut series, "a", 4.0, with(0.0, 0.0, false));
        assert!(told(&series).unwrap().ends_with("; 1 of 10 of the searches held no rate"));
        // One search whose sample stands at both ends of the axis.
        let twice = with(10.0, 10.0, true);
        for x in [1.0, 8.0] {
            add(&mut series, "limit", x, twice.clone());
        }
        assert!(told(&series).unwrap().contains("; 2 of 11 searches ended"));
    }

    #[test]
    fn rates_have_a_place_where_they_were_searched_for_and_their_own_lines_for_comparisons() {
        let mut series = Vec::new();
        for (held, open) in [(0.0, true), (8.0, true), (9.0, false), (7.0, false)] {
            add(&mut series, "a", 1.0, with(10.0, held, open));
        }
        add(&mut series, "a", 2.0, Sample::of(10.0, [80.0; 2]));
        let place = &series[0].places[0];
        assert_eq!(place.held(), Some(([0.0, 7.5, 9.0], true)));
        assert_eq!(series[0].places[1].held(), None);
        let lines = lines(&series);
        assert_eq!((lines.len(), lines[0].name.as_str()), (1, "a, sustained"));
        let values: Vec<f64> = lines[0].places[0].samples.iter().map(|s| s.value).collect();
        assert_eq!(values, [0.0, 8.0, 9.0, 7.0]);
        assert!((most(&lines[0].places[0]) - 9.0 / 0.95).abs() < 1e-9);
        assert!(bounds(&lines[0].places[0]), "one held none");
    }
}
