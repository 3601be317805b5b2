//! Makes figures: in rounds, of which each gives every point of all figures one sample. So the samples of a point lie minutes apart, and
//! an error bar has in it what the machine does in such times; a figure whose samples follow each other closely would show one mood of it,
//! and the next run another. What each round gave is kept at once: an interrupted run is taken up where it was.

use super::budget::Budget;
use super::catalog::{self, Figure, Measure};
use super::data::{self, Failed, Record, Verdict};
use super::{Effort, OutArgs, compare, held, page, rivals, shown};
use crate::bench::files::{may_write, may_write_in, write_whole};
use crate::bench::machine::Machine;
use crate::bench::sample::{BenchError, KEPT, SampleArgs, prepare, progress};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Samples of a point from which on a claim is said to be reached or missed.
const ENOUGH: usize = 3;

/// Samples for which the catalogue says how long a figure takes.
const USUAL: u32 = 5;

/// At an interruption; and of what was to be measured anew.
const GOES_ON: &str =
    "; what each figure's finished rounds gave is kept, and the same command goes on from there";
const GOES_ON_WITHOUT: &str = "; what each figure's finished rounds gave is kept, and the same command without --fresh goes on from there; figures that were not begun are as they were before";

/// A run, as far as it is.
struct Run<'a> {
    machine: Machine,
    to: &'a OutArgs,
    /// Samples of each point.
    rounds: usize,
    /// Figures that this run has measured: with `--fresh` nothing else counts.
    begun: BTreeSet<&'static str>,
    budget: Budget,
    /// How patient searches may be now.
    patience: f64,
}

/// Makes figures, in such a time if there is one.
pub(super) fn make(
    figures: &[&'static Figure],
    to: &OutArgs,
    within: Option<Duration>,
) -> Result<(), BenchError> {
    let out = &to.out;
    if to.install {
        rivals::install();
    }
    let (rounds, begun, budget) =
        (to.sampling.samples.max(1), BTreeSet::new(), Budget::new(within));
    let machine = prepare(&[to.sampling.device_core, to.sampling.chain_core])?;
    let mut run = Run { machine, to, rounds, begun, budget, patience: 1.0 };
    // Before anything is measured: half an hour later it would be late.
    std::fs::create_dir_all(out)
        .map_err(|source| BenchError::Write { path: out.clone(), source })?;
    let _ours = alone_in(out)?;
    may_write_in(out)?;
    may_write(&out.join(REPORT))?;
    let _ = KEPT.set(if to.fresh { GOES_ON_WITHOUT } else { GOES_ON });
    let before = to.against.as_deref().map(|folder| earlier(folder, out)).transpose()?;
    run.must_not_lose(figures)?;
    let mut failed: Vec<(&str, String)> = Vec::new();
    // What is to be measured, and how many samples of it there are.
    let mut open: Vec<(&'static Figure, usize)> = Vec::new();
    for &figure in figures {
        let there = run.kept(figure).map_or(0, |record| record.effort.samples);
        if there >= run.rounds {
            crate::say::print_line!("{}: there already (--fresh measures it again)", figure.name);
            continue;
        }
        if there > 0 {
            crate::say::print_line!(
                "{}: {there} of {} samples there already",
                figure.name,
                run.rounds
            );
        }
        open.push((figure, there));
    }
    let begun = Instant::now();
    for round in 1..=run.rounds {
        for at in 0..open.len() {
            let Some(&(figure, there)) = open.get(at) else { continue };
            if there >= round || failed.iter().any(|(name, _)| *name == figure.name) {
                continue;
            }
            let (began, rest) = (Instant::now(), left(&open, run.rounds));
            let (elapsed, usually) = (begun.elapsed(), Duration::from_secs(u64::from(rest)));
            run.patience = run.budget.patience(elapsed, usually);
            crate::say::print_line!(
                "{} (round {round} of {}, {} of {}; some {} s, {} min for all that follow{})",
                figure.name,
                run.rounds,
                at + 1,
                open.len(),
                figure.seconds.div_ceil(USUAL),
                rest.div_ceil(60),
                in_haste(run.patience)
            );
            if let Measure::Of { name, .. } = figure.measure
                && failed.iter().any(|(other, _)| *other == name)
            {
                failed.push((figure.name, format!("{}: of the samples of {name}", figure.name)));
                continue;
            }
            // The others are worth having without it.
            match run.advance(figure, round) {
                Ok(record) => {
                    let usual = Duration::from_secs(figure.seconds.into()) / USUAL;
                    run.budget.note(usual, began.elapsed(), run.patience);
                    if let Some(figure) = open.get_mut(at) {
                        figure.1 = record.effort.samples;
                    }
                    if record.effort.samples >= run.rounds {
                        crate::say::print_line!(
                            "    {}\n    claim: {}\n    seen:  {} ({})",
                            figure.title,
                            figure.claim,
                            record.finding,
                            record.verdict
                        );
                    }
                }
                Err(e) => {
                    progress("");
                    crate::say::print_line!("    failed: {e}");
                    failed.push((figure.name, format!("{}: {e}", figure.name)));
                }
            }
        }
    }
    crate::say::print_line!("took {:.1} minutes", begun.elapsed().as_secs_f64() / 60.0);
    let failed = failed.into_iter().map(|(_, why)| why).collect();
    run.report(before.as_deref(), failed)
}

/// The page of all figures of a folder.
const REPORT: &str = "report.html";

/// What is said when searches have to be short.
fn in_haste(patience: f64) -> String {
    match patience < 1.0 {
        true => format!(
            "; to end in time searches' bounds may be {:.1} times as far apart as usual",
            1.0 / patience
        ),
        false => String::new(),
    }
}

/// Seconds, about, that the samples take which there are not yet.
fn left(open: &[(&'static Figure, usize)], rounds: usize) -> u32 {
    let samples = |there: usize| u32::try_from(rounds.saturating_sub(there)).unwrap_or(u32::MAX);
    let of =
        |(figure, there): &(&Figure, usize)| figure.seconds.saturating_mul(samples(*there)) / USUAL;
    open.iter().map(of).fold(0, u32::saturating_add)
}

impl Run<'_> {
    /// What the folder has of a figure, if it is what would be measured now, with however many of the samples.
    fn kept(&self, figure: &Figure) -> Option<Record> {
        if self.to.fresh && !self.begun.contains(figure.name) {
            return None;
        }
        let there = data::read(&self.path(figure)).ok()?;
        there.is_of(&self.machine, &self.to.sampling).then_some(there)
    }

    /// What another run has left in the folder stays, unless it is asked for anew; and what cannot be written over is told before anything is measured.
    fn must_not_lose(&self, figures: &[&'static Figure]) -> Result<(), BenchError> {
        let bases = figures.iter().filter_map(|figure| match figure.measure {
            Measure::Of { name, .. } => catalog::named(name),
            _ => None,
        });
        let all = figures.iter().copied().chain(bases);
        for figure in all.clone() {
            let at = |kind: &str| self.to.out.join(format!("{}.{kind}", figure.name));
            ["json", "csv", "svg"].iter().try_for_each(|kind| may_write(&at(kind)))?;
        }
        for figure in all.clone().filter(|figure| !self.to.fresh && self.path(figure).exists()) {
            data::read(&self.path(figure)).map_err(|e| BenchError::Damaged(Box::new(e)))?;
        }
        let is_others = |figure: &&Figure| {
            self.path(figure).exists() && !self.to.fresh && self.kept(figure).is_none()
        };
        let others: BTreeSet<&str> = all.filter(is_others).map(|figure| figure.name).collect();
        match others.is_empty() {
            true => Ok(()),
            false => Err(BenchError::Others(others.into_iter().collect::<Vec<_>>().join(", "))),
        }
    }

    fn path(&self, figure: &Figure) -> PathBuf {
        self.to.out.join(format!("{}.json", figure.name))
    }

    /// Brings a figure to `round` samples of each point, and leaves it in the folder.
    fn advance(&mut self, figure: &'static Figure, round: usize) -> Result<Record, BenchError> {
        let there = self.kept(figure);
        let mut record = there.unwrap_or_else(|| empty(figure, &self.machine, self.to));
        if record.effort.samples >= round {
            return Ok(record);
        }
        if record.effort.samples + 1 < round {
            // Its next round would pass for its last.
            return Err(BenchError::Lost(self.path(figure)));
        }
        let began = Instant::now();
        match figure.measure {
            Measure::Own(measure) | Measure::Throughput(measure) => {
                let left_out = RefCell::new(record.left_out.clone());
                let searches = matches!(figure.measure, Measure::Throughput(_));
                let sampling =
                    &SampleArgs { searches, patience: self.patience, ..self.to.sampling.clone() };
                let name = figure.name;
                let failed = RefCell::new(record.failed.clone());
                let earlier = &record.series;
                let effort = Effort { sampling, name, round, began, left_out, failed, earlier };
                let series = measure(&effort)?;
                record.failed = effort.failed.into_inner();
                record.take_in(series, effort.left_out.into_inner());
            }
            Measure::Of { name, told, .. } => {
                let base =
                    catalog::named(name).ok_or_else(|| BenchError::NoFigure(name.to_owned()))?;
                let base = self.advance(base, round)?;
                record.series = told(&base.series);
                (record.left_out, record.failed) = (base.left_out, base.failed);
                record.effort.samples = base.effort.samples;
            }
        }
        progress("");
        record.took_seconds += began.elapsed().as_secs_f64();
        (record.verdict, record.finding) = self::told(figure, &record);
        record.write(&self.path(figure))?;
        self.begun.insert(figure.name);
        // What cannot be shown costs no further rounds; a run that is interrupted has no end to tell it at.
        if let Err(e) = shown::write(&self.to.out, &record) {
            crate::complain!("weir bench: {}: {e}", record.name);
        }
        Ok(record)
    }

    /// Charts, tables and the report of what the folder has of this run.
    fn report(&self, before: Option<&[Record]>, mut failed: Vec<String>) -> Result<(), BenchError> {
        let out = &self.to.out;
        let records = match data::read_all(out) {
            Err(BenchError::NoFigures(_)) if !failed.is_empty() => {
                return Err(BenchError::Failed(failed.join("; ")));
            }
            records => records?,
        };
        let data::Figures { records, damaged } = records;
        failed.extend(damaged);
        let (records, others) = of_this_run(records, &self.machine, &self.to.sampling);
        for record in &records {
            if let Err(e) = shown::write(out, record) {
                failed.push(format!("{}: {e}", record.name));
            }
        }
        let compared = before.map(|before| compare::all(before, &records));
        if let Some(compared) = &compared {
            compared.figures.iter().for_each(|figure| crate::say::print_line!("{figure}"));
            crate::say::print_line!("{}", compare::sum(compared));
        }
        others.iter().for_each(|name| crate::say::print_line!("{name}: {OTHERS}"));
        let path = out.join(REPORT);
        let page = page::page(&records, compared.as_ref(), &failed, &others);
        write_whole(&path, &page)?;
        crate::say::print_line!("{}", path.display());
        match failed.is_empty() {
            true => Ok(()),
            false => Err(BenchError::Failed(failed.join("; "))),
        }
    }
}

/// Nobody else measures into the folder as long as what is returned is there: their samples would be one run's.
pub fn alone_in(folder: &Path) -> Result<File, BenchError> {
    let failed = |source| BenchError::Write { path: folder.to_owned(), source };
    let directory = File::open(folder).map_err(failed)?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(BenchError::Busy(folder.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// An earlier run's figures, to compare with.
fn earlier(folder: &Path, out: &Path) -> Result<Vec<Record>, BenchError> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if real(folder).is_some_and(|folder| real(out) == Some(folder)) {
        return Err(BenchError::Itself);
    }
    let data::Figures { records, damaged } = data::read_all(folder)?;
    damaged.iter().for_each(|why| crate::complain!("weir bench: not compared: {why}"));
    Ok(records)
}

/// Why a figure that the folder has is not in the report.
pub const OTHERS: &str = "what the folder has of it was taken by another program, on another machine, with other samples or where there were other rivals or recordings; it is not shown";

/// What a folder has of this run, and the names of what it has of others: points of both in one report would pass for one run's.
fn of_this_run(
    records: Vec<Record>,
    machine: &Machine,
    sampling: &SampleArgs,
) -> (Vec<Record>, Vec<String>) {
    let (own, others): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.is_of(machine, sampling));
    (own, others.into_iter().map(|record| record.name).collect())
}

/// A figure of which nothing is measured yet.
fn empty(figure: &Figure, machine: &Machine, to: &OutArgs) -> Record {
    Record {
        name: figure.name.to_owned(),
        source: figure.source.to_owned(),
        title: figure.title.to_owned(),
        claim: figure.claim.to_owned(),
        set_up: figure.set_up.to_owned(),
        finding: String::new(),
        verdict: Verdict::DifferentSetUp,
        x: figure.x.axis(),
        y: figure.y.axis(),
        machine: machine.clone(),
        version: data::VERSION.to_owned(),
        effort: data::Taken { samples: 0, ..(&to.sampling).into() },
        took_seconds: 0.0,
        series: Vec::new(),
        left_out: Vec::new(),
        failed: Vec::new(),
    }
}

/// What the samples say, which of them failed, and what there are none of.
pub fn told(figure: &Figure, record: &Record) -> (Verdict, String) {
    let left_out = record.left_out.join("; ");
    let failed = Failed::told(&record.failed, record.effort.samples);
    if record.series.is_empty() {
        let why = [left_out, failed].into_iter().filter(|why| !why.is_empty());
        let why = why.collect::<Vec<_>>().join("; ");
        return (Verdict::DifferentSetUp, format!("not measured: {why}"));
    }
    let (mut verdict, mut finding) = (figure.judge)(&record.series);
    // A judge that finds no samples where it looks has no number.
    if finding.contains("NaN") && matches!(verdict, Verdict::Reached | Verdict::Missed) {
        finding = format!("some of what is judged is not there: {finding}");
        verdict = Verdict::TooFew;
    }
    if figure.claims_nothing() {
        verdict = Verdict::NoClaim;
    }
    let places = record.series.iter().flat_map(|line| &line.places);
    let fewest = places.map(|place| place.samples.len()).min().unwrap_or(0);
    // A place all of whose samples failed is not there.
    let fewest = fewest.min(Failed::left(&record.failed, record.effort.samples));
    let verdict = match verdict {
        Verdict::Reached | Verdict::Missed if fewest < ENOUGH => Verdict::TooFew,
        verdict => verdict,
    };
    if let Some(text) = held::told(&record.series) {
        finding = format!("{finding}. {text}");
    }
    for (what, text) in [("Left out", left_out), ("Samples that failed", failed)] {
        if !text.is_empty() {
            finding = format!("{finding}. {what}: {text}");
        }
    }
    (verdict, finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::tests::{record, sampling};
    use crate::bench::figure::data::{Sample, Taken, add};
    use crate::bench::figure::stateful::LOOKUP;

    #[test]
    fn what_another_program_left_in_the_folder_is_no_part_of_this_runs_report() {
        let args = sampling();
        let of = |name: &str, program: u64| {
            let mut record = record(name);
            record.version = data::VERSION.to_owned();
            record.effort = Taken { samples: 1, ..(&args).into() };
            record.effort.program ^= program;
            record
        };
        let machine = record("a").machine;
        let (own, others) = of_this_run(vec![of("now", 0), of("ghost", 1)], &machine, &args);
        assert_eq!(own.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["now"]);
        assert_eq!(others, ["ghost"]);
        let mut elsewhere = machine.clone();
        elsewhere.cores += 1;
        assert_eq!(of_this_run(vec![of("now", 0)], &elsewhere, &args).1, ["now"]);
    }

    #[test]
    fn a_verdict_needs_three_samples_of_each_point() {
        let figure = catalog::named("grow-table").unwrap();
        let mut record = record("grow-table");
        let mut verdict = |count: usize| {
            record.series.clear();
            for (flows, count) in [(1e3, 5), (1e6, 5), (1e7, count)] {
                (0..count).for_each(|_| {
                    add(&mut record.series, LOOKUP, flows, Sample::of(90.0, [80.0; 2]));
                });
            }
            record.failed.clear();
            for nth in count..5 {
                let why = if nth % 2 == 0 { "it hung" } else { "it died" };
                Failed::count(&mut record.failed, LOOKUP, 1e7, why);
            }
            told(figure, &record).0
        };
        let few = Verdict::TooFew;
        assert_eq!([2, 3, 5].map(&mut verdict), [few, Verdict::Reached, Verdict::Reached]);
        // Lines of other names are not judged.
        let mut other = record.clone();
        other.series[0].name = "another".to_owned();
        let (verdict_of_none, text) = told(catalog::named("grow-lookup").unwrap(), &other);
        assert_eq!(verdict_of_none, few);
        assert!(text.starts_with("some of what is judged is not there"), "{text}");
        // Of a place that is not judged, too: all of its samples failed.
        let mut verdict = |times: usize| {
            record.failed.clear();
            (0..times).for_each(|_| Failed::count(&mut record.failed, "b", 1.0, "it hung"));
            told(figure, &record).0
        };
        assert_eq!([2, 3, 5].map(&mut verdict), [Verdict::Reached, few, few]);
    }

    #[test]
    fn failed_samples_and_what_is_left_out_are_told_with_the_finding() {
        let figure = catalog::named("unf-sfc").unwrap();
        let mut record = record("unf-sfc");
        record.left_out = vec!["a rival (not installed)".to_owned()];
        Failed::count(&mut record.failed, "in turn", 2.0, "it hung");
        let (_, text) = told(figure, &record);
        let why = "not measured: a rival (not installed); in turn at 2: 1 of 5 (it hung)";
        assert_eq!(text, why);
        for (instances, mpps) in [(1.0, 2.0), (2.0, 3.9)] {
            add(&mut record.series, "in turn", instances, Sample::of(mpps, [80.0; 2]));
        }
        let (_, text) = told(figure, &record);
        assert!(
            text.starts_with("2.00 Mpps with one, 3.90 with two, in turn (1.95 times)"),
            "{text}"
        );
        assert!(
            text.contains(
                "holds here. Left out: a rival (not installed). Samples that failed: in turn at 2"
            ),
            "{text}"
        );
    }
}
