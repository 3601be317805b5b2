//! Rates that are sustained, which figures of throughput have beside what arrives of as much as is taken.

use super::data::{Held, Place, Sample, Series};
use crate::bench::sample::spread;

/// What the marks of a chart are that stand for them.
pub const MARKS: &str = "Triangles, dotted: the rate that is sustained of a source that does not wait, searched for in each sample; points: what arrives of as much as is taken, as a full ring holds \
                         the source up.";

impl Place {
    /// The rates that were held: minimum, median and maximum, and whether half of them or more are of searches that were not finished.
    pub fn held(&self) -> Option<([f64; 3], bool)> {
        let held: Vec<Held> = self.samples.iter().filter_map(|s| s.sustained).collect();
        let some = held.iter().filter(|held| held.value > 0.0);
        let values = spread(some.map(|held| held.value).collect())?;
        let open = held.iter().filter(|held| held.open).count();
        Some((values, open > 0 && open * 2 >= held.len()))
    }
}

/// Lines of these rates, to be compared with an earlier run's as others are.
pub fn lines(series: &[Series]) -> Vec<Series> {
    let place = |place: &Place| {
        let held = |s: &Sample| {
            let Held { value, open } = s.sustained?;
            Some(Sample { value, open, sustained: None, ..s.clone() })
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
    let searches = || places().flat_map(|p| &p.samples).filter_map(|s| s.sustained);
    let (all, open) = (searches().count(), searches().filter(|held| held.open).count());
    let none = searches().filter(|held| held.value <= 0.0).count();
    let mut text = format!(
        "Sustained of a source that does not wait, searched for: {least:.2} to {most:.2} of what arrives at full load, {median:.2} at the median place"
    );
    for (some, what) in [
        (open, "searches ended with bounds more than 5 % apart"),
        (none, "of the searches held no rate"),
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
        Sample { sustained: Some(Held { value: held, open }), ..Sample::of(value, [80.0; 2]) }
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
        assert!(text.ends_with("; 1 of 9 searches ended with bounds more than 5 % apart"));
        add(&mut series, "a", 4.0, with(10.0, 0.0, false));
        assert!(told(&series).unwrap().ends_with("; 1 of 10 of the searches held no rate"));
    }

    #[test]
    fn rates_have_a_place_where_some_search_held_one_and_their_own_lines_for_comparisons() {
        let mut series = Vec::new();
        for (held, open) in [(0.0, true), (8.0, true), (9.0, false), (7.0, false)] {
            add(&mut series, "a", 1.0, with(10.0, held, open));
        }
        add(&mut series, "a", 2.0, Sample::of(10.0, [80.0; 2]));
        let place = &series[0].places[0];
        assert_eq!(place.held(), Some(([7.0, 8.0, 9.0], true)));
        assert_eq!(series[0].places[1].held(), None);
        let lines = lines(&series);
        assert_eq!((lines.len(), lines[0].name.as_str()), (1, "a, sustained"));
        let values: Vec<f64> = lines[0].places[0].samples.iter().map(|s| s.value).collect();
        assert_eq!(values, [0.0, 8.0, 9.0, 7.0], "of comparisons none is left out");
    }
}
