//! `weir bench figure` and `weir bench all`: the papers' figures anew, and what goes beyond them. Each figure gives its samples (JSON
//! and CSV), a chart, and the paper's claim beside what was seen.

mod catalog;
mod compare;
mod data;
mod delay;
mod evidence;
mod growth;
mod nfactor;
mod page;
pub mod rivals;
mod search;
mod stateful;
mod unf;

pub use evidence::{EvidenceArgs, main as evidence};
pub use rivals::kernel::{LiveArgs, main as live};

use super::machine::{Machine, round_trip};
use super::sample::{BenchError, SampleArgs, finish, prepare, progress};
use catalog::{Figure, Measure};
use data::{Record, Sample, Series};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

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
        compared.iter().for_each(|line| println!("{line}"));
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
    let series = match figure.measure {
        Measure::Own(measure) => measure(&Effort { sampling, name: figure.name, began })?,
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
    let (verdict, finding) = (figure.judge)(&series);
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
        version: env!("CARGO_PKG_VERSION").to_owned(),
        effort: sampling.into(),
        took_seconds: began.elapsed().as_secs_f64(),
        series,
    };
    record.write(&to.out.join(format!("{}.json", figure.name)))?;
    Ok(record)
}

/// Writes chart and table of what was measured.
fn draw(out: &Path, record: &Record) -> Result<(), BenchError> {
    let save = |ending: &str, text: String| {
        let path = out.join(format!("{}.{ending}", record.name));
        std::fs::write(&path, text).map_err(|source| BenchError::Write { path, source })
    };
    save("csv", record.csv())?;
    save("svg", record.chart().to_svg()?)
}
