//! A figure as it is shown: as a table and as a chart, each with where, how and of what the samples were taken.

use super::data::{Place, Record, Series, Taken};
use crate::bench::sample::spread;
use std::fmt::Write;
use weir_draw::chart::{Axis, Chart, Point};

impl Record {
    /// Where, how and of what the samples were taken, each line behind a `#`; then a line for each sample.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        for (name, text) in self.about() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# {name}: {}", text.replace(['\n', '\r'], " "));
        }
        out.push_str(
            "series,x,sample,value,round_trip_before_ns,round_trip_after_ns,not_granted,cpu_ns_per_packet,p99,p99.9\n",
        );
        for series in &self.series {
            for place in &series.places {
                for (i, sample) in place.samples.iter().enumerate() {
                    let [before, after] = sample.round_trip_ns;
                    let tail = sample.tail.map(|tail| tail.map(|value| value.to_string()));
                    let [p99, p999] = tail.unwrap_or_default();
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        out,
                        "\"{}\",{},{i},{},{before},{after},{},{},{p99},{p999}",
                        series.name.replace('"', "\"\""),
                        place.x,
                        sample.value,
                        sample.not_granted,
                        sample.cpu_ns.map(|ns| ns.to_string()).unwrap_or_default()
                    );
                }
            }
        }
        out
    }

    /// What is to be known of the samples besides their values.
    fn about(&self) -> Vec<(&'static str, String)> {
        let Taken { samples, seconds, ring, pool, cores: [devices, chain], .. } = &self.effort;
        let class = self.class();
        let effort = format!(
            "{samples} of {seconds} s each; rings of {ring}, pool of {pool}; devices on core {devices}, chain on {chain}; {class}"
        );
        vec![
            ("figure", format!("{}, {}: {}", self.name, self.source, self.title)),
            ("claim", self.claim.clone()),
            ("seen", format!("{} ({})", self.finding, self.verdict)),
            ("set-up", self.set_up.clone()),
            ("machine", self.machine.line()),
            ("weir", self.version.clone()),
            ("samples", effort),
            ("x", self.x.label.clone()),
            ("value", self.y.label.clone()),
        ]
    }

    /// In which scheduling class workers were, where the figure does not say another.
    pub fn class(&self) -> String {
        let samples = || self.series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
        let all = samples().count();
        let without = samples().filter(|s| s.not_granted || s.no_workers).count();
        match (self.effort.real_time, without) {
            _ if all > 0 && samples().all(|s| s.no_workers) => "no workers".to_owned(),
            (false, _) => "default class".to_owned(),
            (true, 0) => "real-time class".to_owned(),
            (true, without) => format!(
                "real-time class in {} of {all} samples (in the others Weir has all cores or devices only, or a rival ran, or it was not granted)",
                all - without
            ),
        }
    }

    /// In which mood the machine was: least, median and most of the round trips around all samples; `None` where no second core took
    /// part.
    pub fn regime(&self) -> Option<[f64; 3]> {
        let samples = self.series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
        let trips = samples.flat_map(|s| s.round_trip_ns).filter(|ns| *ns > 0.0);
        spread(trips.collect())
    }

    pub fn chart(&self) -> Chart {
        let points = |series: &Series| {
            let point = |p: &Place| {
                p.spread().map(|[low, middle, high]| Point { x: p.x, low, middle, high })
            };
            let mut points: Vec<Point> = series.places.iter().filter_map(point).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        let line =
            |s: &Series| weir_draw::chart::Series { name: s.name.clone(), points: points(s) };
        let lines: Vec<_> = self.series.iter().map(line).collect();
        let is_above_zero =
            |line: &weir_draw::chart::Series| line.points.iter().all(|point| point.low > 0.0);
        Chart {
            title: format!("{}: {}", self.source, self.title),
            notes: vec![
                format!("Claim: {}", self.claim),
                format!("Seen: {} ({})", self.finding, self.verdict),
                format!(
                    "Points are medians of {} samples{}, bars reach from the least to the most; those of one place stand side by side. {}; {}; Weir {}.",
                    self.effort.samples,
                    if self.failed.is_empty() { "" } else { ", of fewer where some failed" },
                    self.machine.line(),
                    self.class(),
                    self.version
                ),
            ],
            x: self.x.clone(),
            // A search may have found nothing: zero is on no logarithmic axis.
            y: Axis { log: self.y.log && lines.iter().all(is_above_zero), ..self.y.clone() },
            series: lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::figure::data::add;
    use crate::bench::figure::data::tests::{record, sample};

    #[test]
    fn a_figure_says_in_which_class_workers_were_and_that_there_were_none() {
        let mut figure = record("a");
        for _ in 0..2 {
            add(&mut figure.series, "a", 4.0, sample(3.0));
        }
        assert_eq!(figure.class(), "real-time class");
        figure.series[0].places[0].samples[0].not_granted = true;
        assert!(figure.class().starts_with("real-time class in 1 of 2 samples"));
        for sample in &mut figure.series[0].places[0].samples {
            sample.no_workers = true;
        }
        assert_eq!(figure.class(), "no workers");
    }

    #[test]
    fn a_search_that_found_nothing_has_a_place_on_its_chart() {
        let mut figure = record("a");
        figure.y.log = true;
        for value in [3.0, 5.0] {
            add(&mut figure.series, "a", 4.0, sample(value));
        }
        assert!(figure.chart().y.log);
        add(&mut figure.series, "a", 5.0, sample(0.0));
        assert!(figure.chart().to_svg().is_ok());
    }

    #[test]
    fn a_table_has_each_samples_tail_and_processor_time_and_begins_with_what_it_shows() {
        let mut figure = record("a");
        let mut with = sample(3.0);
        (with.tail, with.cpu_ns) = (Some([7.5, 9.25]), Some(40.0));
        add(&mut figure.series, "a \"b\"", 4.0, with);
        add(&mut figure.series, "a \"b\"", 4.0, sample(5.0));
        let csv = figure.csv();
        let (about, table) = csv.split_once("series,").unwrap();
        assert!(about.lines().all(|line| line.starts_with("# ")), "{about}");
        assert!(about.contains("# machine: a processor, 2 cores, 2000 MHz"), "{about}");
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(
            rows,
            [
                "x,sample,value,round_trip_before_ns,round_trip_after_ns,not_granted,cpu_ns_per_packet,p99,p99.9",
                "\"a \"\"b\"\"\",4,0,3,1,2,false,40,7.5,9.25",
                "\"a \"\"b\"\"\",4,1,5,1,2,false,,,",
            ]
        );
    }
}
