//! `weir bench figure` and `weir bench all`: the papers' figures anew, and what goes beyond them. Each figure gives its samples (JSON
//! and CSV), a chart, and the paper's claim beside what was seen.

mod budget;
mod catalog;
mod compare;
mod cores;
mod data;
mod delay;
mod evidence;
mod growth;
mod held;
mod make;
mod nfactor;
mod nfactor_moves;
mod page;
mod recovery;
pub mod rivals;
mod shown;
mod stateful;
mod tables;
mod unf;
mod unf_classes;
mod unf_latency;
mod unf_loaded;
mod values;

pub use evidence::{EvidenceArgs, main as evidence};
pub use rivals::kernel::{LiveArgs, main as live};

use super::asked;
use super::chain_policy;
use super::mood::{Around, Mood};
use super::sample::{BenchError, SampleArgs, finish, progress, spread};
use super::search::{Start, aside};
use catalog::{Figure, Measure};
use data::{Failed, Sample, Series};
use delay::LOAD;
pub use make::OTHERS;
use make::make;
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_device::DeviceSpec;
use weir_plan::Isolate;

/// The line of the limit: Rx to Tx, with nothing between them.
const ECHO: &str = "echo: no µNF";

/// Makes figures.
#[derive(clap::Args)]
pub struct FigureArgs {
    /// Which (see --list); all without any.
    #[arg(value_name = "FIGURE")]
    names: Vec<String>,
    /// Says which there are, with the papers' claims and how long they take, and measures nothing.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    to: OutArgs,
}

/// Makes all figures and the report.
#[derive(clap::Args)]
pub struct AllArgs {
    #[command(flatten)]
    to: OutArgs,
}

#[derive(clap::Args)]
// Half an hour is for all figures.
#[command(mut_arg("seconds", |arg| arg.default_value("0.25")))]
struct OutArgs {
    /// Where to: FIGURE.json, .csv and .svg, FIGURE-times.csv where samples have histograms, and report.html.
    #[arg(long, default_value = "weir-figures")]
    out: PathBuf,
    /// An earlier run's folder, to compare with.
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Measures figures again that the folder has already; without it an interrupted run is taken up.
    #[arg(long)]
    fresh: bool,
    /// Installs the rivals that are not there, as root, with apt-get (dpdk-dev, openvswitch-switch-dpdk, nftables).
    /// Without it a rival that is missing is said and left out. Debian starts Open vSwitch's service with it.
    #[arg(long)]
    install: bool,
    /// Minutes in which it is to end: on a slow machine the bounds of rates that are sustained may be up to twice as far apart. `all`
    /// has 30, in proportion to other --samples and --seconds.
    #[arg(long, value_name = "MINUTES", value_parser = asked::within(1.0, 100_000.0))]
    within: Option<f64>,
    #[command(flatten)]
    sampling: SampleArgs,
}

/// What all figures may take, with so many samples of so many seconds.
const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);
const USUAL_SAMPLES: f64 = 5.0;
const USUAL_SECONDS: f64 = 0.25;

/// Where no search of so many rounds has held a rate, the next one begins this much lower for each, of so many at most.
const MOST_LOWER: usize = 4;
const LOWER: f64 = 0.5;

/// What figures are made with.
pub(super) struct Effort<'a> {
    pub(super) sampling: &'a SampleArgs,
    /// The figure being made, and which sample of each point, for the line that says how far it is.
    name: &'static str,
    round: usize,
    began: Instant,
    /// What could not be had, in this round or an earlier one, and why: it is said with what was found.
    left_out: RefCell<Vec<String>>,
    /// Samples that failed, in this round or an earlier one. Those that did not stay.
    failed: RefCell<Vec<Failed>>,
    /// What earlier rounds gave.
    earlier: &'a [Series],
}

/// How low a search begins after so many that held none.
fn lower(searches: usize) -> f64 {
    LOWER.powi(searches.min(MOST_LOWER) as i32)
}

impl Effort<'_> {
    /// Measures each of the points once. Rounds of all figures follow each other, so that what the machine does meanwhile strikes all alike,
    /// and the samples of a point lie as far apart as the run allows.
    fn round<P: Copy>(
        &self,
        points: &[(&str, f64, P)],
        mut measure: impl FnMut(P) -> Result<Sample, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        let points = self.in_turn(points);
        self.round_of_named(
            &points,
            |(name, x, _)| ((*name).to_owned(), *x),
            |(name, x, point)| Ok(vec![(name.to_owned(), x, measure(point)?)]),
        )
    }

    /// Points as they stand, in every other round backwards.
    fn in_order<P: Copy>(&self, points: &[P]) -> Vec<P> {
        let mut points = points.to_vec();
        if self.is_backwards() {
            points.reverse();
        }
        points
    }

    fn is_backwards(&self) -> bool {
        self.round.is_multiple_of(2)
    }

    /// What is compared with each other follows each other, as the machine's moods last for seconds; and in every other round it comes in the
    /// opposite order, so that nothing is always the first.
    fn in_turn<'p, P: Copy>(&self, points: &[(&'p str, f64, P)]) -> Vec<(&'p str, f64, P)> {
        let mut points = points.to_vec();
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        self.in_order(&points)
    }

    /// The same, and below which limit: what source and sink do with nothing between them, from one end of the axis to the other.
    fn round_below<P: Copy>(
        &self,
        mut limit: impl FnMut() -> Result<Sample, BenchError>,
        points: &[(&str, f64, P)],
        mut measure: impl FnMut(P) -> Result<Sample, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        let places = || points.iter().map(|(_, x, _)| *x);
        let ends =
            [places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max)];
        let all: Vec<_> = self.in_turn(points).into_iter().map(Some).chain([None]).collect();
        let named = |point: &Option<(&str, f64, P)>| {
            point
                .as_ref()
                .map_or((ECHO.to_owned(), ends[0]), |(name, x, _)| ((*name).to_owned(), *x))
        };
        self.round_of_named(&all, named, |point| {
            let Some((name, x, point)) = point else {
                let sample = limit()?;
                return Ok(ends.map(|x| (ECHO.to_owned(), x, sample.clone())).to_vec());
            };
            Ok(vec![(name.to_owned(), x, measure(point)?)])
        })
    }

    /// What arrives of a source when there is nothing between it and the sink.
    fn echo(&self, source: DeviceSpec) -> Result<Sample, BenchError> {
        Ok(self.sampling.take(&chain_policy(0), Isolate::Each, source)?.into())
    }

    /// Says that something is not measured, for once where it is seen and again with what was found.
    fn leave_out(&self, what: &str) {
        let mut left_out = self.left_out.borrow_mut();
        if left_out.iter().any(|said| said == what) {
            return;
        }
        progress("");
        crate::say::print_line!("    left out: {what}");
        left_out.push(what.to_owned());
    }

    /// Says that a sample failed: its place has one less, and the finding tells it.
    fn fail(&self, line: &str, x: f64, why: &str) {
        progress("");
        crate::say::print_line!("    failed: {}: {why}", data::place(line, x));
        Failed::count(&mut self.failed.borrow_mut(), line, x, why);
    }

    /// What earlier rounds gave at a place.
    fn samples_before(&self, line: &str, x: f64) -> impl Iterator<Item = &Sample> {
        let line = self.earlier.iter().filter(move |series| series.name == line);
        let places = line.flat_map(|series| &series.places).filter(move |place| place.x == x);
        places.flat_map(|place| &place.samples)
    }

    /// Where a search for a sustained rate begins, as a part of what arrives at full load: about where those of earlier rounds ended, and lower by
    /// those that held none since the last that held one, as what one had by luck the next would not get down from.
    fn begins(&self, line: &str, x: f64) -> Option<Start> {
        let part = |sample: &Sample| Some(sample.sustained?.value / sample.value);
        let parts: Vec<f64> = self.samples_before(line, x).filter_map(part).collect();
        let holds = |part: &f64| *part > 0.0 && part.is_finite();
        let none = parts.iter().rev().take_while(|part| !holds(part)).count();
        match spread(parts.iter().copied().filter(holds).collect()) {
            Some([_, median, _]) => Some(self.start(median * lower(none), none == 0, line, x)),
            None if parts.is_empty() => None,
            None => Some(self.start(lower(none), false, line, x)),
        }
    }

    fn start(&self, at: f64, known: bool, line: &str, x: f64) -> Start {
        Start { at, known, aside: aside(&(self.name, line, x.to_bits()), self.round) }
    }

    /// The same for a latency under load, packets a second. A search that held none there is a sample that failed: after such it is lower, as from
    /// what one had by luck the next would not get down.
    fn rate_before(&self, line: &str, x: f64) -> Option<Start> {
        let rate = |sample: &Sample| sample.load.map(|(load, _)| load / LOAD);
        let [_, median, _] = spread(self.samples_before(line, x).filter_map(rate).collect())?;
        let last = self.samples_before(line, x).map(|sample| sample.round).max()?;
        let failed = self.round.saturating_sub(last + 1);
        Some(self.start(median * lower(failed), failed == 0, line, x))
    }

    /// How often samples of a line failed.
    fn failures(&self, line: &str) -> usize {
        self.failed.borrow().iter().filter(|f| f.line == line).map(|f| f.times).sum()
    }

    /// The same where one measurement gives a sample of several lines, or of none.
    fn round_of<P: Copy + std::fmt::Debug>(
        &self,
        points: &[P],
        measure: impl FnMut(P) -> Result<Vec<(String, f64, Sample)>, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        self.round_of_named(points, |point| (format!("{point:?}"), 0.0), measure)
    }

    /// The same for points whose lines and places are told. One that fails is counted, and the others are worth having without it; an error
    /// when all do.
    fn round_of_named<P: Copy>(
        &self,
        points: &[P],
        named: impl Fn(&P) -> (String, f64),
        mut measure: impl FnMut(P) -> Result<Vec<(String, f64, Sample)>, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        let mut series: Vec<Series> = Vec::new();
        let mut failed = None;
        for (i, &point) in points.iter().enumerate() {
            progress(&format!(
                "{}: round {} of {}, {} of {} ({:.0} s)",
                self.name,
                self.round,
                self.sampling.samples,
                i + 1,
                points.len(),
                self.began.elapsed().as_secs_f64()
            ));
            let (line, x) = named(&point);
            self.sampling.begins.set(self.begins(&line, x));
            match measure(point) {
                Ok(samples) => {
                    for (name, x, sample) in samples {
                        match sample.is_finite() {
                            true => data::add(&mut series, &name, x, sample),
                            // Kept, it could not be read again.
                            false => self.fail(&name, x, &BenchError::NoNumber.to_string()),
                        }
                    }
                }
                Err(e) => {
                    self.fail(&line, x, &e.to_string());
                    failed = Some(e);
                }
            }
        }
        match failed {
            Some(e) if series.is_empty() => Err(e),
            _ => Ok(series),
        }
    }

    /// Measures, and in which mood the machine was before and after.
    fn around<T>(
        &self,
        measure: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<(T, Around), BenchError> {
        let look = || Mood::now(self.sampling.device_core, self.sampling.chain_core);
        let before = look();
        let measured = measure()?;
        Ok((measured, Around::of(before, look())))
    }
}

pub fn main(args: &FigureArgs) -> ExitCode {
    if args.list {
        for figure in catalog::all() {
            let takes = match figure.measure {
                Measure::Of { name, .. } => {
                    format!("with {name}, whose samples it tells otherwise")
                }
                _ => format!("about {} s", figure.seconds),
            };
            crate::say::print_line!(
                "{:<16} {} ({})\n{:>16} {}\n{:>16} {takes}",
                figure.name,
                figure.title,
                figure.source,
                "",
                figure.claim,
                ""
            );
        }
        let seconds: u32 = catalog::all().map(|figure| figure.seconds).sum();
        crate::say::print_line!(
            "all: about {} min with the usual samples (of each point one after the other, of all figures in turn)",
            seconds.div_ceil(60)
        );
        return ExitCode::SUCCESS;
    }
    finish(chosen(&args.names).and_then(|figures| made(&figures, &args.to, None)))
}

/// All of them.
pub fn all(args: &AllArgs) -> ExitCode {
    finish(chosen(&[]).and_then(|figures| made(&figures, &args.to, Some(HALF_AN_HOUR))))
}

/// Makes them.
fn made(
    figures: &[&'static Figure],
    to: &OutArgs,
    usual: Option<Duration>,
) -> Result<(), BenchError> {
    let sampling = &to.sampling;
    let scale = sampling.samples as f64 / USUAL_SAMPLES * sampling.seconds / USUAL_SECONDS;
    let asked = to.within.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let within = asked.or(usual.map(|time| time.mul_f64(scale.max(1.0))));
    make(figures, to, within)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Figure>, BenchError> {
    if names.is_empty() {
        return Ok(catalog::all().collect());
    }
    let of = |name: &String| catalog::named(name).ok_or_else(|| BenchError::NoFigure(name.clone()));
    names.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::data::{Held, add, tests::sampling};
    use super::*;

    #[test]
    fn a_search_begins_where_those_of_earlier_rounds_ended_and_lower_where_they_held_none() {
        let mut earlier = Vec::new();
        let with = |held: f64| {
            let sustained = Some(Held { value: held, open: false, width: 0.05 });
            Sample { sustained, ..Sample::of(10.0, [80.0; 2]) }
        };
        for (x, held) in [
            (1.0, 6.0),
            (1.0, 0.0),
            (1.0, 8.0),
            (2.0, 0.0),
            (4.0, 0.0),
            (4.0, 0.0),
            (16.0, 8.0),
            (16.0, 0.0),
            (16.0, 0.0),
        ] {
            add(&mut earlier, "a", x, with(held));
        }
        let load = Some((1_000.0 * LOAD, 0.0));
        for (x, round) in [(1.0, 3), (2.0, 1)] {
            add(&mut earlier, "b", x, Sample { load, round, ..Sample::of(3.0, [80.0; 2]) });
        }
        let sampling = sampling();
        let effort = Effort {
            sampling: &sampling,
            name: "unf-10",
            round: 4,
            began: Instant::now(),
            left_out: RefCell::default(),
            failed: RefCell::default(),
            earlier: &earlier,
        };
        let told = |start: Option<Start>| start.map(|start| (start.at, start.known));
        let begins = [1.0, 2.0, 4.0, 8.0, 16.0].map(|x| told(effort.begins("a", x)));
        let held = Some((0.7, true));
        let low = [Some((0.5, false)), Some((0.25, false)), None, Some((0.2, false))];
        assert_eq!(begins[0], held);
        assert_eq!(begins[1..], low);
        assert_eq!(effort.begins("b", 1.0), None);
        // At 2 the second and the third round have none.
        let rates = [1.0, 2.0, 4.0].map(|x| told(effort.rate_before("b", x)));
        assert_eq!(rates, [Some((1_000.0, true)), Some((250.0, false)), None]);
        assert_eq!(effort.rate_before("a", 1.0), None);
        // Each point of a round has its own.
        let mut seen = Vec::new();
        let points = [("a", 1.0, ()), ("a", 8.0, ())];
        let round = effort.round(&points, |()| {
            seen.push(sampling.begins.get());
            Ok(Sample::of(1.0, [80.0; 2]))
        });
        assert_eq!(round.unwrap().len(), 1);
        assert_eq!(
            seen.into_iter().map(told).collect::<Vec<_>>(),
            [None, held],
            "an even round goes backwards"
        );
    }
}
