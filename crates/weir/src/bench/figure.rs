//! `weir bench figure` and `weir bench all`: the papers' figures anew, and what goes beyond them. Each figure gives its samples (JSON
//! and CSV), a chart, and the paper's claim beside what was seen.

mod catalog;
mod compare;
mod data;
mod growth;
mod page;
pub mod rivals;
mod search;
mod unf;

use super::machine::Machine;
use super::sample::{BenchError, SampleArgs, finish, prepare, progress};
use data::{Record, Series};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Makes figures.
#[derive(clap::Args)]
pub struct FigureArgs {
    /// Which (see --list); all without any.
    #[arg(value_name = "FIGURE")]
    names: Vec<String>,
    /// Says which there are, with the papers' claims, and measures nothing.
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
        mut measure: impl FnMut(P) -> Result<data::Sample, BenchError>,
    ) -> Result<Vec<Series>, BenchError> {
        let mut series: Vec<Series> = Vec::new();
        let rounds = self.sampling.samples.max(1);
        for round in 1..=rounds {
            for (i, &(name, x, point)) in points.iter().enumerate() {
                progress(&format!(
                    "{}: round {round} of {rounds}, {} of {} ({:.0} s)",
                    self.name,
                    i + 1,
                    points.len(),
                    self.began.elapsed().as_secs_f64()
                ));
                data::add(&mut series, name, x, measure(point)?);
            }
        }
        Ok(series)
    }
}

pub fn main(args: &FigureArgs) -> ExitCode {
    if args.list {
        for figure in catalog::ALL {
            println!(
                "{:<14} {} ({})\n{:>16} {}",
                figure.name, figure.title, figure.source, "", figure.claim
            );
        }
        return ExitCode::SUCCESS;
    }
    finish(chosen(&args.names).and_then(|figures| make(&figures, &args.to)))
}

/// All of them.
pub fn all(args: &AllArgs) -> ExitCode {
    finish(chosen(&[]).and_then(|figures| make(&figures, &args.to)))
}

fn chosen(names: &[String]) -> Result<Vec<&'static catalog::Figure>, BenchError> {
    if names.is_empty() {
        return Ok(catalog::ALL.iter().collect());
    }
    let of = |name: &String| {
        let found = catalog::ALL.iter().find(|figure| figure.name == name);
        found.ok_or_else(|| BenchError::NoFigure(name.clone()))
    };
    names.iter().map(of).collect()
}

fn make(figures: &[&'static catalog::Figure], to: &OutArgs) -> Result<(), BenchError> {
    let machine = prepare()?;
    let out = &to.out;
    std::fs::create_dir_all(out)
        .map_err(|source| BenchError::Write { path: out.clone(), source })?;
    // Before anything is measured: half an hour later it would be late.
    let before = to.against.as_deref().map(data::read_all).transpose()?;
    let mut failed = Vec::new();
    for figure in figures {
        let path = out.join(format!("{}.json", figure.name));
        if !to.fresh && data::read(&path).is_ok_and(|there| there.is_of(&machine, &to.sampling)) {
            println!("{}: there already (--fresh measures it again)", figure.name);
            continue;
        }
        // The others are worth having without it.
        let record = match measure(figure, &machine, &to.sampling) {
            Ok(record) => record,
            Err(e) => {
                progress("");
                println!("{}: failed: {e}", figure.name);
                failed.push(format!("{}: {e}", figure.name));
                continue;
            }
        };
        record.write(&path)?;
        println!(
            "{}: {}\n    claim: {}\n    seen:  {} ({})",
            figure.name, figure.title, figure.claim, record.finding, record.verdict
        );
    }
    let records = data::read_all(out)?;
    for record in &records {
        if let Err(e) = draw(out, record) {
            failed.push(format!("{}: {e}", record.name));
        }
    }
    let compared = before.map(|before| compare::all(&before, &records));
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

fn measure(
    figure: &'static catalog::Figure,
    machine: &Machine,
    sampling: &SampleArgs,
) -> Result<Record, BenchError> {
    let began = Instant::now();
    let series = (figure.measure)(&Effort { sampling, name: figure.name, began })?;
    progress("");
    let (verdict, finding) = (figure.judge)(&series);
    Ok(Record {
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
    })
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
