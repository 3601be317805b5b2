//! `weir bench figure` and `weir bench all`: the papers' figures anew, and what goes beyond them. Each figure gives its samples (JSON
//! and CSV), a chart, and the paper's claim beside what was seen.

mod catalog;
mod compare;
mod cores;
mod data;
mod delay;
mod evidence;
mod growth;
mod nfactor;
mod page;
pub mod rivals;
mod search;
mod stateful;
mod tables;
mod unf;

pub use evidence::{EvidenceArgs, main as evidence};
pub use rivals::kernel::{LiveArgs, main as live};

use super::chain_policy;
use super::machine::{Machine, round_trip};
use super::sample::{BenchError, SampleArgs, finish, prepare, progress};
use catalog::{Figure, Measure};
use data::{Record, Sample, Series, Verdict};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
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
struct OutArgs {
    /// Where to: FIGURE.json, .csv and .svg, and report.html.
    #[arg(long, default_value = "weir-figures")]
    out: PathBuf,
    /// An earlier run's folder, to compare with.
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Measures figures again that the folder has already; without it an interrupted run is taken up.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    sampling: SampleArgs,
}

/// What figures are made with.
pub(super) struct Effort<'a> {
    pub(super) sampling: &'a SampleArgs,
    /// The figure being made, for the line that says how far it is.
    name: &'static str,
    began: Instant,
    /// What could not be had, and why: it is said with what was found.
    left_out: RefCell<Vec<String>>,
}

impl Effort<'_> {
    /// Measures each of the points as many times as is asked for, one after the other and then again, so that what the
    /// machine does meanwhile strikes all alike.
    fn rounds<P: Copy>(
        &self,
        points: &[(&str, f64, P)],
        mut measure: impl FnMut(P) -> Result<Sample, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        self.rounds_of(points, |(name, x, point)| Ok(vec![(name.to_owned(), x, measure(point)?)]))
    }

    /// The same, and below which limit: what source and sink do with nothing between them, from one end of the axis to the other.
    fn rounds_below<P: Copy>(
        &self,
        mut limit: impl FnMut() -> Result<Sample, BenchError>,
        points: &[(&str, f64, P)],
        mut measure: impl FnMut(P) -> Result<Sample, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        let places = || points.iter().map(|(_, x, _)| *x);
        let ends =
            [places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max)];
        let all: Vec<_> = points.iter().copied().map(Some).chain([None]).collect();
        self.rounds_of(&all, |point| {
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
        progress("");
        println!("    left out: {what}");
        self.left_out.borrow_mut().push(what.to_owned());
    }

    /// The same where one measurement gives a sample of several lines, or of none.
    fn rounds_of<P: Copy>(
        &self,
        points: &[P],
        mut measure: impl FnMut(P) -> Result<Vec<(String, f64, Sample)>, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        let mut series: Vec<Series> = Vec::new();
        let rounds = self.sampling.samples.max(1);
        for round in 1..=rounds {
            for (i, &point) in points.iter().enumerate() {
                progress(&format!(
                    "{}: round {round} of {rounds}, {} of {} ({:.0} s)",
                    self.name,
                    i + 1,
                    points.len(),
                    self.began.elapsed().as_secs_f64()
                ));
                for (name, x, sample) in measure(point)? {
                    data::add(&mut series, &name, x, sample);
                }
            }
        }
        Ok(series)
    }

    /// Measures, and in which mood the machine was before and after.
    fn around<T>(
        &self,
        measure: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<(T, [f64; 2]), BenchError> {
        let trip = || round_trip(self.sampling.device_core, self.sampling.chain_core);
        let before = trip();
        let measured = measure()?;
        Ok((measured, [before, trip()]))
    }
}

pub fn main(args: &FigureArgs) -> ExitCode {
    if args.list {
        for figure in catalog::all() {
            println!(
                "{:<16} {} ({})\n{:>16} {}\n{:>16} about {} s",
                figure.name, figure.title, figure.source, "", figure.claim, "", figure.seconds
            );
        }
        let seconds: u32 = catalog::all().map(|figure| figure.seconds).sum();
        println!("all: about {} min with the usual samples", seconds.div_ceil(60));
        return ExitCode::SUCCESS;
    }
    finish(chosen(&args.names).and_then(|figures| make(&figures, &args.to)))
}

/// All of them.
pub fn all(args: &AllArgs) -> ExitCode {
    finish(chosen(&[]).and_then(|figures| make(&figures, &args.to)))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Figure>, BenchError> {
    if names.is_empty() {
        return Ok(catalog::all().collect());
    }
    let of = |name: &String| catalog::named(name).ok_or_else(|| BenchError::NoFigure(name.clone()));
    names.iter().map(of).collect()
}

fn make(figures: &[&'static Figure], to: &OutArgs) -> Result<(), BenchError> {
    let machine = prepare()?;
    let out = &to.out;
    std::fs::create_dir_all(out)
        .map_err(|source| BenchError::Write { path: out.clone(), source })?;
    // Before anything is measured: half an hour later it would be late.
    let before = to.against.as_deref().map(data::read_all).transpose()?;
    let mut failed = Vec::new();
    let mut made: Vec<&str> = Vec::new();
    for (i, figure) in figures.iter().enumerate() {
        let left: u32 = figures.iter().skip(i).map(|figure| figure.seconds).sum();
        if !to.fresh && kept(out, figure, &machine, &to.sampling).is_some() {
            println!("{}: there already (--fresh measures it again)", figure.name);
            continue;
        }
        println!(
            "{} ({} of {}; some {} s, {} min for all that follow)",
            figure.name,
            i + 1,
            figures.len(),
            figure.seconds,
            left.div_ceil(60)
        );
        // The others are worth having without it.
        match record(figure, &machine, to, &made) {
            Ok(record) => {
                println!(
                    "    {}\n    claim: {}\n    seen:  {} ({})",
                    figure.title, figure.claim, record.finding, record.verdict
                );
                made.push(figure.name);
            }
            Err(e) => {
                progress("");
                println!("    failed: {e}");
                failed.push(format!("{}: {e}", figure.name));
            }
        }
    }
    finish_report(out, before.as_deref(), failed)
}

/// Charts, tables and the report of all that a folder has.
fn finish_report(
    out: &Path,
    before: Option<&[Record]>,
    mut failed: Vec<String>,
) -> Result<(), BenchError> {
    let records = match data::read_all(out) {
        Err(BenchError::NoFigures(_)) if !failed.is_empty() => {
            return Err(BenchError::Failed(failed.join("; ")));
        }
        records => records?,
    };
    for record in &records {
        if let Err(e) = draw(out, record) {
            failed.push(format!("{}: {e}", record.name));
        }
    }
    let compared = before.map(|before| compare::all(before, &records));
    if let Some(compared) = &compared {
        compared.iter().for_each(|figure| println!("{figure}"));
        println!("{}", compare::sum(compared));
    }
    let path = out.join("report.html");
    std::fs::write(&path, page::page(&records, compared.as_deref(), &failed))
        .map_err(|source| BenchError::Write { path: path.clone(), source })?;
    println!("{}", path.display());
    match failed.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Failed(failed.join("; "))),
    }
}

/// What the folder has of a figure, if it is what would be measured now.
fn kept(out: &Path, figure: &Figure, machine: &Machine, sampling: &SampleArgs) -> Option<Record> {
    let there = data::read(&out.join(format!("{}.json", figure.name))).ok()?;
    there.is_of(machine, sampling).then_some(there)
}

/// Makes a figure and leaves it in the folder. `made`: those of this run, which need not be measured again to say something else.
fn record(
    figure: &'static Figure,
    machine: &Machine,
    to: &OutArgs,
    made: &[&str],
) -> Result<Record, BenchError> {
    let (began, sampling) = (Instant::now(), &to.sampling);
    let mut left_out_of_it = Vec::new();
    let series = match figure.measure {
        Measure::Own(measure) => {
            let (name, left_out) = (figure.name, RefCell::default());
            let effort = Effort { sampling, name, began, left_out };
            let series = measure(&effort)?;
            left_out_of_it = effort.left_out.into_inner();
            series
        }
        Measure::Of { name, told } => {
            let base = catalog::named(name).ok_or_else(|| BenchError::NoFigure(name.to_owned()))?;
            let usable = !to.fresh || made.contains(&name);
            let there = kept(&to.out, base, machine, sampling).filter(|_| usable);
            told(&match there {
                Some(there) => there.series,
                None => record(base, machine, to, made)?.series,
            })
        }
    };
    progress("");
    let (verdict, finding) = told(figure, &series, &left_out_of_it);
    let record = Record {
        name: figure.name.to_owned(),
        source: figure.source.to_owned(),
        title: figure.title.to_owned(),
        claim: figure.claim.to_owned(),
        set_up: figure.set_up.to_owned(),
        finding,
        verdict,
        x: figure.x.axis(),
        y: figure.y.axis(),
        machine: machine.clone(),
        version: data::VERSION.to_owned(),
        effort: sampling.into(),
        took_seconds: began.elapsed().as_secs_f64(),
        series,
    };
    record.write(&to.out.join(format!("{}.json", figure.name)))?;
    Ok(record)
}

/// What the samples say, and what there are none of.
fn told(figure: &Figure, series: &[Series], left_out: &[String]) -> (Verdict, String) {
    let left_out = left_out.join("; ");
    if series.is_empty() {
        return (Verdict::DifferentSetUp, format!("not measured: {left_out}"));
    }
    let (verdict, finding) = (figure.judge)(series);
    match left_out.is_empty() {
        true => (verdict, finding),
        false => (verdict, format!("{finding}. Left out: {left_out}")),
    }
}

/// Writes chart and table of what was measured.
fn draw(out: &Path, record: &Record) -> Result<(), BenchError> {
    let save = |ending: &str, text: String| {
        let path = out.join(format!("{}.{ending}", record.name));
        std::fs::write(&path, text).map_err(|source| BenchError::Write { path, source })
    };
    save("csv", record.csv())?;
    if record.series.is_empty() {
        // Nothing to be seen; a chart of an earlier time would be a lie.
        let _ = std::fs::remove_file(out.join(format!("{}.svg", record.name)));
        return Ok(());
    }
    save("svg", record.chart().to_svg()?)
}
