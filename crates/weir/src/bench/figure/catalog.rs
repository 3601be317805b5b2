//! Which figures there are: where each is from, what is claimed, how it is measured and judged.

mod beyond;
mod nfactor;
mod unf;

use super::Effort;
use super::data::{Series, Verdict};
use crate::bench::sample::BenchError;
use weir_draw::chart::Axis;

/// An axis as it stands in the catalogue.
pub struct Scale {
    label: &'static str,
    log: bool,
    /// Of an axis of kinds: what is at 0, 1, 2 and so on.
    names: &'static [&'static str],
}

impl Scale {
    const fn of(label: &'static str) -> Self {
        Scale { label, log: false, names: &[] }
    }

    const fn log(label: &'static str) -> Self {
        Scale { label, log: true, names: &[] }
    }

    const fn named(label: &'static str, names: &'static [&'static str]) -> Self {
        Scale { label, log: false, names }
    }

    pub fn axis(&self) -> Axis {
        Axis {
            label: self.label.to_owned(),
            log: self.log,
            names: self.names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

type Taking = fn(&Effort<'_>) -> Result<Vec<Series>, BenchError>;

/// Where a figure's samples are from.
#[derive(Clone, Copy)]
pub enum Measure {
    /// They are taken.
    Own(Taking),
    /// The same, of what arrives of as much as is taken, and for each the rate is searched for that is sustained.
    Throughput(Taking),
    /// Those of another figure, told otherwise. `anew`: its values are in no other figure, though they were taken with another's.
    Of { name: &'static str, told: fn(&[Series]) -> Vec<Series>, anew: bool },
}

impl Measure {
    /// Whether its samples are its own.
    pub fn is_taken(&self) -> bool {
        matches!(self, Measure::Own(_) | Measure::Throughput(_))
    }
}

/// One figure.
pub struct Figure {
    pub name: &'static str,
    /// The paper's figure or table.
    pub source: &'static str,
    pub title: &'static str,
    /// What the paper, or the project, says.
    pub claim: &'static str,
    pub set_up: &'static str,
    pub x: Scale,
    pub y: Scale,
    /// How long it takes, about, with the usual samples on two cores.
    pub seconds: u32,
    pub measure: Measure,
    pub judge: fn(&[Series]) -> (Verdict, String),
}

impl Figure {
    /// Whether nobody says what it should show.
    pub fn claims_nothing(&self) -> bool {
        self.claim.starts_with("none")
    }
}

const LENGTH: Scale = Scale::of("µNFs in the chain");
const MPPS: Scale = Scale::of("million packets a second");
/// The same where what is looked at is far below the limit that is drawn with it.
const FAR_BELOW: Scale = Scale::log("million packets a second");
const MICROSECONDS: Scale = Scale::of("median latency, µs");

/// All of them, in the order in which they are made.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    unf::ALL.iter().chain(nfactor::ALL).chain(beyond::ALL)
}

/// Values that a figure is drawn with, in the unit of its axis: what a paper says, or what the project aims at, where that is a number.
pub fn levels(name: &str) -> &'static [(f64, &'static str)] {
    match name {
        "unf-6" => &[(10.0, "the paper, of a 10G card: 10")],
        "unf-sfc" => &[(2.08, "the paper, with one: 2.08"), (4.1, "the paper, with two: 4.1")],
        "unf-yielding" => &[(1_000.0, "the paper: three orders of magnitude")],
        "nfactor-5b" => &[(2.4, "the paper, with four runtimes: 2.4")],
        "nfactor-6b" => &[(636.0, "the paper, of 100 flows: 636")],
        "nfactor-9a" => &[(0.85, "the paper, with four runtimes: 0.85")],
        "nfactor-9b" => &[(3_300.0, "the paper: 3.3 s")],
        "grow-table" => &[(200.0, "aim: at most 200")],
        "flows-move" => &[(50.0, "aim, one flow: 50"), (2.0, "aim, many: 2")],
        "flows-replicas" => {
            &[(85.0, "aim at 128 flows, every packet: 85"), (95.0, "every 10th: 95")]
        }
        "flows-recovery" => {
            &[(10.0, "aim, 10k flows, first packet: 10"), (100.0, "10k flows, all: 100")]
        }
        _ => &[],
    }
}

/// The figure of this name.
pub fn named(name: &str) -> Option<&'static Figure> {
    all().find(|figure| figure.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_figure_has_its_row_in_the_page_of_evidence() {
        let page = include_str!("../../../../../docs/evidence.md");
        for figure in all() {
            let cell = format!("| `weir bench figure {}` |", figure.name);
            assert!(page.contains(&cell), "{}", figure.name);
        }
    }

    #[test]
    fn values_to_compare_with_are_of_figures_that_there_are() {
        let with = all().filter(|figure| !levels(figure.name).is_empty()).count();
        assert_eq!(with, 11);
    }

    #[test]
    fn of_nothing_no_figure_says_that_it_is_reached_or_that_a_trend_holds() {
        for figure in all() {
            let (verdict, text) = (figure.judge)(&[]);
            assert_ne!(verdict, Verdict::Reached, "{}: {text}", figure.name);
            assert!(!text.contains(") holds here"), "{}: {text}", figure.name);
        }
    }

    #[test]
    fn each_papers_figure_says_whether_its_trend_holds() {
        let papers = unf::ALL.iter().chain(nfactor::ALL);
        // What it says of nothing is that it does not; tables have nothing to compare then, and latencies no samples.
        let silent = ["unf-tables", "unf-9b"];
        for figure in papers.filter(|figure| !silent.contains(&figure.name)) {
            let (_, text) = (figure.judge)(&[]);
            assert!(text.contains("The paper's trend ("), "{}: {text}", figure.name);
        }
    }

    #[test]
    fn all_figures_take_less_than_half_an_hour() {
        let seconds: u32 = all().map(|figure| figure.seconds).sum();
        assert!(seconds < 30 * 60, "{seconds} s");
    }

    #[test]
    fn names_are_unique_and_what_is_told_otherwise_is_measured_before() {
        let mut before = BTreeSet::new();
        for figure in all() {
            if let Measure::Of { name, .. } = figure.measure {
                assert!(before.contains(name), "{} before {name}", figure.name);
            }
            assert!(before.insert(figure.name), "{} twice", figure.name);
        }
    }
}
