//! `weir bench evidence`: writes what figures found into the table of a page. A row is of a figure when one of its cells is the
//! figure's command; the cell before that one is what was found, and the one before that the claim, if there is one.

use super::data::{self, Record};
use super::shown::{self, samples};
use super::{catalog, make};
use crate::bench::files::{read_whole, write_whole};
use crate::bench::sample::{BenchError, end_when_interrupted, finish};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes what was found into a page.
#[derive(clap::Args)]
pub struct EvidenceArgs {
    /// The folder that figures were written to.
    data: PathBuf,
    /// A page with tables: where a row has `weir bench figure NAME`, the cell before it becomes what was found.
    #[arg(long, default_value = "docs/evidence.md")]
    page: PathBuf,
    /// Writes the page anew, instead of printing it.
    #[arg(long)]
    write: bool,
    /// Makes the figures' charts, tables and findings anew, from the samples that the folder has, into another (NAME.svg, NAME.csv,
    /// NAME.json), and leaves the page alone.
    #[arg(long, value_name = "FOLDER", conflicts_with = "write")]
    charts: Option<PathBuf>,
}

pub fn main(args: &EvidenceArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &EvidenceArgs) -> Result<(), BenchError> {
    // What is being written is whole before the program ends.
    end_when_interrupted();
    let data::Figures { records, damaged } = data::read_all(&args.data)?;
    damaged.iter().for_each(|why| crate::complain!("weir bench: {why}"));
    let records: Vec<Record> = records.into_iter().map(retold).collect();
    if let Some(folder) = &args.charts {
        return draw(&records, damaged, &args.data, folder);
    }
    let path = || args.page.clone();
    let text = String::from_utf8(read_whole(&args.page, MOST_BYTES)?)
        .map_err(|e| BenchError::Read { path: path(), source: std::io::Error::other(e) })?;
    let (filled, rows) = fill(&text, &records);
    let old = not_filled(&text, &records);
    if !old.is_empty() {
        let (folder, old) = (args.data.display(), old.join(", "));
        crate::complain!("weir bench: {folder} has nothing of {old}: their rows are as they were");
    }
    if !args.write {
        return match crate::say::tell(&filled) {
            // Who reads no further has what he wanted.
            Err(source) if source.kind() != ErrorKind::BrokenPipe => {
                Err(BenchError::Write { path: "standard output".into(), source })
            }
            _ => Ok(()),
        };
    }
    if !old.is_empty() {
        // The page would say of old rows that they are of this run.
        return Err(BenchError::Partial { page: path(), folder: args.data.clone() });
    }
    if rows == 0 {
        return Err(BenchError::NoRows(path()));
    }
    write_whole(&args.page, &filled)?;
    crate::say::print_line!("{}: {rows} rows of {} figures", args.page.display(), records.len());
    Ok(())
}

/// As this program judges samples, whichever took them.
fn retold(record: Record) -> Record {
    let Some(figure) = catalog::named(&record.name) else { return record };
    let (verdict, finding) = make::told(figure, &record);
    Record { verdict, finding, ..record }
}

/// The most bytes of a page.
const MOST_BYTES: u64 = 16 << 20;

/// Draws what there are samples of, and writes down what there is; `failed`: what there is no more to be had of. Nobody measures into the folder
/// meanwhile, and what others have measured stays.
fn draw(
    records: &[Record],
    mut failed: Vec<String>,
    from: &Path,
    folder: &Path,
) -> Result<(), BenchError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| BenchError::Write { path: folder.to_owned(), source })?;
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if real(from).is_some_and(|from| real(folder) == Some(from)) {
        return Err(BenchError::Onto);
    }
    let _alone = make::alone_in(folder)?;
    let path = |record: &Record| folder.join(format!("{}.json", record.name));
    for record in records {
        if data::read(&path(record)).is_ok_and(|there| !there.is_of_same_samples(record)) {
            return Err(BenchError::Held(path(record)));
        }
    }
    for record in records {
        if let Err(e) = shown::write(folder, record).and_then(|()| record.write(&path(record))) {
            failed.push(format!("{}: {e}", record.name));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(BenchError::Failed(failed.join("; "))) }
}

/// The line that says on what the figures were taken begins like this.
const TAKEN: &str = "*Taken on* ";

/// What begins like this stands in a line of its own.
const PARTS: [&str; 4] =
    ["The paper's trend", "Sustained of a source", "Left out: ", "Samples that failed: "];

/// The page with what was found in it, and how many rows were filled.
fn fill(text: &str, records: &[Record]) -> (String, usize) {
    let (mut out, mut rows) = (String::new(), 0);
    // Lines end as they did.
    for whole in text.split_inclusive('\n') {
        let line = whole.trim_end_matches(['\n', '\r']);
        match filled(line, records) {
            Some(line) => {
                rows += 1;
                out += &line;
            }
            None if line.starts_with(TAKEN) => out += &taken(records),
            None => out += line,
        }
        out += whole.strip_prefix(line).unwrap_or_default();
    }
    (out, rows)
}

/// The figure whose command a cell is.
fn figure_of(cell: &str) -> Option<&str> {
    cell.trim().strip_prefix("`weir bench figure ")?.strip_suffix('`')
}

/// Figures that have a row and of which there is nothing.
fn not_filled<'p>(text: &'p str, records: &[Record]) -> Vec<&'p str> {
    let named = text.lines().filter(|line| line.starts_with('|')).flat_map(cells);
    named.filter_map(figure_of).filter(|name| !records.iter().any(|r| r.name == *name)).collect()
}

/// What is between the bars of a row; one after a backslash is none.
fn cells(row: &str) -> Vec<&str> {
    let (mut cells, mut begins) = (Vec::new(), 0);
    for (at, _) in row.match_indices('|') {
        if !row.get(..at).is_some_and(|before| before.ends_with('\\')) {
            cells.extend(row.get(begins..at));
            begins = at + 1;
        }
    }
    cells.extend(row.get(begins..));
    cells
}

fn filled(line: &str, records: &[Record]) -> Option<String> {
    let cells = cells(line.strip_prefix('|')?.strip_suffix('|')?);
    let of = |cell: &str| {
        let name = figure_of(cell)?;
        records.iter().find(|record| record.name == name)
    };
    let (at, record) = cells.iter().enumerate().find_map(|(i, cell)| Some((i, of(cell)?)))?;
    let (found, claim) = (at.checked_sub(1)?, at.checked_sub(2));
    let claimed = catalog::named(&record.name).is_none_or(|figure| !figure.claims_nothing());
    let claim = claim.filter(|_| claimed && !record.claim.is_empty());
    let told = format!(" {} ", self::cell(&record.claim));
    let mut finding = cell(&record.finding);
    for begin in PARTS {
        finding = finding.replace(&format!(". {begin}"), &format!("<br>{begin}"));
    }
    let cell = format!(" **{}**: {finding} ", record.verdict);
    let cells: Vec<&str> = cells
        .iter()
        .enumerate()
        .map(|(i, old)| match i {
            _ if i == found => cell.as_str(),
            _ if Some(i) == claim => told.as_str(),
            _ => *old,
        })
        .collect();
    Some(format!("|{}|", cells.join("|")))
}

/// A text in a cell of Markdown: in one line, without what would end the cell or begin HTML.
fn cell(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.replace('|', "/").replace('<', "&lt;")
}

/// On what the figures were taken; where not all were taken alike, which on what.
fn taken(records: &[Record]) -> String {
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let alike = |group: &&mut Vec<&Record>| {
            group.first().is_some_and(|first| {
                (&first.machine, &first.version, &first.effort)
                    == (&record.machine, &record.version, &record.effort)
            })
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    let several = groups.len() > 1;
    let told = groups.iter().map(|group| {
        let names: Vec<&str> = group.iter().map(|r| r.name.as_str()).collect();
        let which = if several { format!(" ({})", names.join(", ")) } else { String::new() };
        format!("{}{which}", of_group(group))
    });
    let told: Vec<String> = told.collect();
    let mixed =
        if several { "not one, but several machines, builds or numbers of samples: " } else { "" };
    format!("{TAKEN}{mixed}{}.", cell(&told.join("; and ")))
}

fn of_group(records: &[&Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let minutes = records.iter().map(|r| r.took_seconds).sum::<f64>() / 60.0;
    let trips = records.iter().filter_map(|record| record.regime());
    let reach = trips.map(|[least, _, most]| [least, most]);
    let words = match reach.reduce(|[low, high], [least, most]| [low.min(least), high.max(most)]) {
        None => String::new(),
        Some([low, high]) => format!(
            "; words crossed cores in {low:.0} to {high:.0} ns meanwhile, from the least to the most of all samples"
        ),
    };
    let paces: Vec<[f64; 3]> = records.iter().filter_map(|record| record.pace()).collect();
    let [fast, slow] = paces.iter().fold([f64::INFINITY, 0.0_f64], |[low, high], [_, pace, _]| {
        [low.min(*pace), high.max(*pace)]
    });
    let pace = match paces.is_empty() {
        true => String::new(),
        false => format!(
            ", and a step of the same work took {fast:.1} to {slow:.1} ns, from the least to the most of the figures' medians"
        ),
    };
    format!(
        "{}, {} cores, kernel {}; Weir {}, {} of {} s of each point, {minutes:.0} min for {} figures{words}{pace}",
        first.machine.processor,
        first.machine.cores,
        first.machine.kernel,
        first.version,
        samples(first.effort.samples),
        first.effort.seconds,
        records.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::tests::{record, sample};

    #[test]
    fn the_cell_before_a_figures_command_becomes_what_was_found_and_nothing_else_changes() {
        let page = "# E\n\n*Taken on* nothing yet.\n\n| Fig. 1 | big | *not taken yet* | `weir bench figure a` |\n\
                    | Fig. 2 | big | by hand | `weir bench chain` |\n| Fig. 3 | big | old | `weir bench figure b` |\n";
        let mut found = record("a");
        found.finding = "3 |\n4 Mpps. Sustained of a source that does not wait: 2".to_owned();
        let (text, rows) = fill(page, &[found]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(rows, 1);
        assert_eq!(not_filled(page, &[record("a")]), ["b"]);
        assert_eq!(
            lines[4],
            "| Fig. 1 | a claim | **missed**: 3 / 4 Mpps<br>Sustained of a source that does not wait: 2 | `weir bench figure a` |"
        );
        assert_eq!(lines[5..], page.lines().collect::<Vec<_>>()[5..]);
        assert!(lines[2].starts_with("*Taken on* a processor, 2 cores"), "{}", lines[2]);
        // Again: the same.
        let mut found = record("a");
        found.finding = "5".to_owned();
        let (text, _) = fill(&text, &[found]);
        assert_eq!(
            text.lines().nth(4),
            Some("| Fig. 1 | a claim | **missed**: 5 | `weir bench figure a` |")
        );
    }

    #[test]
    fn lines_end_as_they_did_and_a_bar_that_is_escaped_ends_no_cell() {
        let page =
            "# E\r\n| Fig. 1 | a \\| b | big | old \\| older | `weir bench figure a` |\r\nthe end";
        let mut found = record("a");
        found.finding = "5".to_owned();
        let (text, rows) = fill(page, &[found]);
        let new = "# E\r\n| Fig. 1 | a \\| b | a claim | **missed**: 5 | `weir bench figure a` |\r\nthe end";
        assert_eq!((text.as_str(), rows), (new, 1));
    }

    #[test]
    fn charts_and_tables_are_made_anew_of_what_has_samples() {
        let folder = crate::bench::own::Folder::new("weir-charts").unwrap();
        let mut with = record("unf-7");
        crate::bench::figure::data::add(&mut with.series, "a", 1.0, sample(3.0));
        let to = folder.path().join("charts");
        let from = folder.path();
        let draws = |records: &[Record], to: &Path| draw(records, Vec::new(), from, to);
        let all = [with.clone(), Record { left_out: vec!["all".to_owned()], ..record("unf-8") }];
        draws(&all, &to).unwrap();
        let there = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
        let mut there: Vec<_> = there.collect();
        there.sort();
        let wanted = ["unf-7.csv", "unf-7.json", "unf-7.svg", "unf-8.csv", "unf-8.json"];
        assert_eq!(there, wanted, "without samples there is no chart");
        // The same again; not what is of other samples, nor what is measured into or read from; and what is damaged is told.
        draws(&all, &to).unwrap();
        let mut others = all.clone();
        crate::bench::figure::data::add(&mut others[0].series, "a", 1.0, sample(4.0));
        assert!(matches!(draws(&others, &to), Err(BenchError::Held(_))));
        assert!(matches!(draws(&all, from), Err(BenchError::Onto)));
        let told = draw(&all, vec!["damaged".to_owned()], from, &to);
        assert!(matches!(told, Err(BenchError::Failed(why)) if why == "damaged"));
        let alone = make::alone_in(&to).unwrap();
        assert!(matches!(draws(&all, &to), Err(BenchError::Busy(_))));
        drop(alone);
        // A chart that cannot be drawn leaves none of an earlier time.
        others[0].series[0].places[0].samples[0].value = f64::NAN;
        std::fs::remove_file(to.join("unf-7.json")).unwrap();
        assert!(draws(&others, &to).is_err() && !to.join("unf-7.svg").exists());
    }

    #[test]
    fn findings_are_what_this_program_says_of_the_samples() {
        let mut old = record("grow-lookup");
        for rules in [10.0, 1e4, 1e5] {
            for _ in 0..5 {
                crate::bench::figure::data::add(
                    &mut old.series,
                    "classifier alone",
                    rules,
                    sample(7.0),
                );
            }
        }
        let told = retold(old.clone());
        assert_eq!(told.verdict, crate::bench::figure::data::Verdict::Reached);
        assert!(told.finding.starts_with("7 ns a packet with 10 rules"), "{}", told.finding);
        assert_eq!(told.series, old.series);
        // Of none that it does not know.
        let unknown = retold(record("a"));
        assert_eq!((unknown.finding, unknown.verdict), (record("a").finding, record("a").verdict));
    }

    #[test]
    fn figures_of_several_machines_or_builds_are_told_apart() {
        let (one, mut other, mut rebuilt) = (record("a"), record("b"), record("c"));
        other.machine.processor = "another processor".to_owned();
        rebuilt.effort.program = 8;
        let line = taken(&[one.clone(), one.clone()]);
        assert!(line.starts_with("*Taken on* a processor") && !line.contains("several"), "{line}");
        let line = taken(&[one, other, rebuilt]);
        assert!(line.contains("several") && line.contains("(a); and another processor"), "{line}");
        assert!(line.contains("(c)."), "{line}");
    }
}
