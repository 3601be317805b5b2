//! A figure as it is shown: as a table and as a chart, each with where, how and of what the samples were taken.

use super::data::{Held, Place, Record, Series, Taken};
use super::{catalog, held};
use crate::bench::files::{remove, write_whole};
use crate::bench::sample::{BenchError, spread};
use std::fmt::Write;
use std::path::Path;
use weir_draw::chart::{Axis, Chart, Level, Point};

/// What a hollow point of a chart is.
const HOLLOW: &str = "Hollow points are bounds by half of their samples or more: nothing arrived, and what one packet would have been is shown, \
                      or the search for the rate (of latencies: for their load) ended while its bounds were apart.";

/// So many samples, in words.
pub fn samples(count: usize) -> String {
    format!("{count} sample{}", if count == 1 { "" } else { "s" })
}

/// Writes tables and chart of what was measured.
pub fn write(folder: &Path, record: &Record) -> Result<(), BenchError> {
    let at = |name: String| folder.join(name);
    write_whole(&at(format!("{}.csv", record.name)), &record.csv())?;
    let histograms = at(record.histogram_name());
    match record.histogram_csv() {
        Some(table) => write_whole(&histograms, &table)?,
        // One of an earlier time would be a lie.
        None => remove(&histograms)?,
    }
    let chart = at(format!("{}.svg", record.name));
    if record.series.is_empty() {
        return remove(&chart);
    }
    let drawn = record.chart().to_svg();
    match drawn {
        Ok(svg) => write_whole(&chart, &svg),
        Err(why) => remove(&chart).and(Err(why.into())),
    }
}

/// A line's name as a cell.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

impl Place {
    /// Whether its median is one of bounds.
    fn is_bound(&self) -> bool {
        let bounds = self.samples.iter().filter(|s| s.open || s.none).count();
        bounds > 0 && bounds * 2 >= self.samples.len()
    }
}

/// What the columns of a table of samples are that do not say it themselves.
const COLUMNS: &str = "# sample: from 0 at each place; round: from 1, samples of one round were taken after each other
# none: nothing arrived, the value stands for one packet; open: a search for the value ended with its bounds further apart than they should be
# load, lost: packets a second that were offered, and the part of them missing at the end; p99, p99.9: of the same packets as a median, in its unit
# round_trip: of a word between the cores, 0 where one core was used; pace: a step of work that is none of Weir's; each before and after the sample
# not_granted: no worker was in the real-time class although it was wanted; cpu_ns_per_packet: processor time of all threads that take part
# sustained: the rate that was searched for beside the value, in its unit; sustained_open: that search ended with its bounds further apart than they should be; sustained_width: how far that is, as a part of the upper one
";

impl Record {
    /// Where, how and of what the samples were taken, each line behind a `#`; then a line for each sample.
    pub fn csv(&self) -> String {
        let mut out = self.commented();
        out.push_str(COLUMNS);
        out.push_str(
            "series,x,sample,round,value,none,open,load,lost,round_trip_before_ns,round_trip_after_ns,not_granted,cpu_ns_per_packet,p99,p99.9,sustained,sustained_open,sustained_width,pace_before_ns,pace_after_ns\n",
        );
        for series in &self.series {
            for place in &series.places {
                for (i, sample) in place.samples.iter().enumerate() {
                    let [before, after] = sample.around.round_trip_ns;
                    let [pace_before, pace_after] = sample.around.pace_ns;
                    let tail = sample.tail.map(|tail| tail.map(|value| value.to_string()));
                    let [p99, p999] = tail.unwrap_or_default();
                    let (load, lost) = sample.load.unzip();
                    let held = |of: fn(Held) -> String| sample.sustained.map(of);
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        out,
                        "{},{},{i},{},{},{},{},{},{},{before},{after},{},{},{p99},{p999},{},{},{},{pace_before},{pace_after}",
                        quoted(&series.name),
                        place.x,
                        sample.round,
                        sample.value,
                        sample.none,
                        sample.open,
                        or_empty(load),
                        or_empty(lost),
                        sample.not_granted,
                        or_empty(sample.cpu_ns),
                        or_empty(held(|held| held.value.to_string())),
                        or_empty(held(|held| held.open.to_string())),
                        or_empty(held(|held| held.width.to_string()))
                    );
                }
            }
        }
        out
    }

    /// The file of its histograms.
    pub fn histogram_name(&self) -> String {
        format!("{}-times.csv", self.name)
    }

    /// How often which time was seen in each sample, beneath the same lines; `None` where no sample tells that.
    pub fn histogram_csv(&self) -> Option<String> {
        let mut out = self.commented();
        out.push_str("series,x,sample,round,up_to_ns,count\n");
        let mut is_there = false;
        for series in &self.series {
            for place in &series.places {
                for (i, sample) in place.samples.iter().enumerate() {
                    for (up_to_ns, count) in &sample.histogram {
                        is_there = true;
                        let (name, x, round) = (quoted(&series.name), place.x, sample.round);
                        // Writing to a string cannot fail.
                        let _ = writeln!(out, "{name},{x},{i},{round},{up_to_ns},{count}");
                    }
                }
            }
        }
        is_there.then_some(out)
    }

    /// What is to be known of the samples, each line behind a `#`.
    fn commented(&self) -> String {
        let mut out = String::new();
        for (name, text) in self.about() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# {name}: {}", text.replace(['\n', '\r'], " "));
        }
        out
    }

    /// What is to be known of the samples besides their values.
    fn about(&self) -> Vec<(&'static str, String)> {
        let Taken { seconds, ring, pool, cores: [devices, chain], .. } = &self.effort;
        let (class, samples) = (self.class(), samples(self.effort.samples));
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
        let trips = samples.flat_map(|s| s.around.round_trip_ns).filter(|ns| *ns > 0.0);
        spread(trips.collect())
    }

    /// How fast the cores worked: least, median and most of the times for a step of work around all samples, in nanoseconds; `None` where
    /// it was not measured.
    pub fn pace(&self) -> Option<[f64; 3]> {
        let samples = self.series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
        spread(samples.flat_map(|s| s.around.pace_ns).filter(|ns| *ns > 0.0).collect())
    }

    /// The least of all values above 0.
    fn foot(&self) -> f64 {
        let samples = self.series.iter().flat_map(|s| &s.places).flat_map(|p| &p.samples);
        let values = samples.flat_map(|s| [Some(s.value), s.sustained.map(|held| held.value)]);
        values.flatten().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min).min(1e300)
    }

    pub fn chart(&self) -> Chart {
        let points = |series: &Series| {
            let point = |p: &Place| {
                let bound = p.is_bound();
                p.spread().map(|[low, middle, high]| Point { x: p.x, low, middle, high, bound })
            };
            let mut points: Vec<Point> = series.places.iter().filter_map(point).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        // Samples of an earlier program are shown as this one's are. On a logarithmic axis 0 has no place: it stands at its foot.
        let log = catalog::named(&self.name).map_or(self.y.log, |figure| figure.y.axis().log);
        let foot = if log { self.foot() } else { 0.0 };
        let below = |series: &Series| {
            let point = |p: &Place| {
                let (values, bound) = p.held()?;
                let [low, middle, high] = values.map(|value| value.max(foot));
                Some(Point { x: p.x, low, middle, high, bound })
            };
            let mut points: Vec<Point> = series.places.iter().filter_map(point).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        let line = |s: &Series| weir_draw::chart::Series {
            name: s.name.clone(),
            points: points(s),
            below: below(s),
        };
        let lines: Vec<_> = self.series.iter().map(line).collect();
        let is_above_zero =
            |line: &weir_draw::chart::Series| line.points.iter().all(|point| point.low > 0.0);
        let is_some_bound =
            lines.iter().flat_map(|l| l.points.iter().chain(&l.below)).any(|p| p.bound);
        let marks = match lines.iter().any(|line| !line.below.is_empty()) {
            true => format!(" {}", held::MARKS),
            false => String::new(),
        };
        let levels = catalog::levels(&self.name).iter();
        let hollow = if is_some_bound { format!(" {HOLLOW}") } else { String::new() };
        Chart {
            title: format!("{}: {}", self.source, self.title),
            notes: vec![
                format!("Claim: {}", self.claim),
                format!("Verdict: {}", self.verdict),
                format!("Seen: {}", self.finding),
            ],
            small: vec![format!(
                "Points are medians of {}{}, bars reach from the least to the most; those of one place stand side by side.{marks}{hollow} {}; {}; Weir {}.",
                samples(self.effort.samples),
                if self.failed.is_empty() { "" } else { ", of fewer where some failed" },
                self.machine.line(),
                self.class(),
                self.version
            )],
            x: self.x.clone(),
            // A search may have found nothing: zero is on no logarithmic axis.
            y: Axis { log: log && lines.iter().all(is_above_zero), ..self.y.clone() },
            series: lines,
            below: "sustained rate, searched for".to_owned(),
            levels: levels.map(|(at, name)| Level { at: *at, name: (*name).to_owned() }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::tests::{record, sample};
    use crate::bench::figure::data::{Held, Sample, add};
    use crate::bench::own::Folder;

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
    fn searches_that_held_none_stand_at_the_foot_of_a_logarithmic_axis_and_are_hollow() {
        let mut figure = record("a");
        figure.y.log = true;
        for (x, held) in [(4.0, 3.0), (5.0, 0.0)] {
            let sustained = Some(Held { value: held, open: false, width: 0.05 });
            add(&mut figure.series, "a", x, Sample { sustained, ..sample(6.0) });
        }
        let chart = figure.chart();
        let below: Vec<_> = chart.series[0].below.iter().map(|p| (p.middle, p.bound)).collect();
        assert_eq!(below, [(3.0, false), (3.0, true)]);
        assert!(chart.y.log && chart.to_svg().is_ok());
        figure.y.log = false;
        assert_eq!(figure.chart().series[0].below[1].middle, 0.0);
    }

    #[test]
    fn a_table_has_each_samples_tail_and_processor_time_and_begins_with_what_it_shows() {
        let mut figure = record("a");
        let mut with = sample(3.0);
        (with.tail, with.cpu_ns) = (Some([7.5, 9.25]), Some(40.0));
        with.sustained = Some(Held { value: 2.5, open: true, width: 0.05 });
        (with.round, with.open, with.load) = (3, true, Some((9e6, 0.25)));
        add(&mut figure.series, "a \"b\"", 4.0, with);
        add(&mut figure.series, "a \"b\"", 4.0, Sample { none: true, ..sample(5.0) });
        let csv = figure.csv();
        let (about, table) = csv.split_once("series,").unwrap();
        assert!(about.lines().all(|line| line.starts_with("# ")), "{about}");
        assert!(about.contains("# machine: a processor, 2 cores, 2000 MHz"), "{about}");
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(
            rows,
            [
                "x,sample,round,value,none,open,load,lost,round_trip_before_ns,round_trip_after_ns,not_granted,cpu_ns_per_packet,p99,p99.9,sustained,sustained_open,sustained_width,pace_before_ns,pace_after_ns",
                "\"a \"\"b\"\"\",4,0,3,3,false,true,9000000,0.25,1,2,false,40,7.5,9.25,2.5,true,0.05,5,5",
                "\"a \"\"b\"\"\",4,1,0,5,true,false,,,1,2,false,,,,,,,5,5",
            ]
        );
    }

    #[test]
    fn histograms_are_a_table_of_their_own_where_there_are_any() {
        let folder = Folder::new("weir-shown").unwrap();
        let mut figure = record("unf-7");
        add(&mut figure.series, "a", 4.0, sample(3.0));
        assert_eq!(figure.histogram_csv(), None);
        // One of an earlier time goes.
        let table = folder.path().join("unf-7-times.csv");
        std::fs::write(&table, "old").unwrap();
        write(folder.path(), &figure).unwrap();
        assert!(!table.exists());

        let histogram = vec![(1_500, 7), (2_000, 1)];
        add(&mut figure.series, "a", 4.0, Sample { histogram, round: 2, ..sample(3.0) });
        write(folder.path(), &figure).unwrap();
        let text = std::fs::read_to_string(&table).unwrap();
        let (about, rows): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("# "));
        assert!(about.contains(
            &"# machine: a processor, 2 cores, 2000 MHz, 8 GiB, 1 NUMA nodes, kernel 6.1"
        ));
        let head = "series,x,sample,round,up_to_ns,count";
        assert_eq!(rows, [head, "\"a\",4,1,2,1500,7", "\"a\",4,1,2,2000,1"]);
    }

    #[test]
    fn points_of_bounds_are_hollow_and_the_chart_says_what_that_means() {
        let open = || Sample { open: true, ..sample(3.0) };
        let none = || Sample { none: true, ..sample(3.0) };
        let of = |samples: Vec<Sample>| {
            let mut figure = record("a");
            samples.into_iter().for_each(|s| add(&mut figure.series, "a", 4.0, s));
            let chart = figure.chart();
            let is_told = chart.small.iter().any(|note| note.contains(HOLLOW));
            assert_eq!(chart.series[0].points[0].bound, is_told);
            is_told
        };
        assert!(!of(vec![sample(1.0), sample(2.0)]), "all are values");
        assert!(!of(vec![open(), sample(1.0), sample(2.0)]), "the median is a value");
        assert!(of(vec![open(), none(), sample(2.0)]) && of(vec![open(), sample(2.0)]));
    }

    #[test]
    fn one_sample_is_no_samples() {
        assert_eq!([0, 1, 5].map(samples), ["0 samples", "1 sample", "5 samples"]);
        let mut figure = record("a");
        figure.effort.samples = 1;
        assert!(figure.chart().small.iter().any(|note| note.contains("medians of 1 sample,")));
        assert!(figure.csv().contains("# samples: 1 sample of 0.4 s"), "{}", figure.csv());
    }
}
