//! The µNF paper's Tables I and II: what each type of µNF costs in three VNFs that know nothing of each other, and what is left of it
//! when they are merged. Measured by `weir bench consolidation`, which goes into a network namespace for it.

use super::Effort;
use super::data::{Sample, Series, Verdict};
use super::values::{median, trend};
use crate::bench::mood::Around;
use crate::bench::own::{self, ENDS_WITH_US, Folder, OutputError};
use crate::bench::sample::{BenchError, READY};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What measures.
const COMMAND: &str = "weir bench consolidation";
/// HTTP as it was recorded.
pub(super) const CAPTURE: &str = "demo/http.pcap";
const OVERALL: &str = "overall";
/// What is on the horizontal axis: the tables' rows. Rings, which the tables do not have, are in the last only.
pub const TYPES: &[&str] = &[
    "FromDevice",
    "ToDevice",
    "CheckIpHeader",
    "HttpClassifier",
    "L3L4Filter",
    "CountUrl",
    "ValidateUrl",
    OVERALL,
];
const APART: &str = "veth: each VNF apart (i)";
/// Fused is what the paper did by hand, isolated are its µNFs.
const MERGED: [&str; 2] = ["veth: merged, fused", "veth: merged, isolated"];

/// The parts of that command's file that are needed.
#[derive(Deserialize)]
struct Results {
    mhz: f64,
    captures: Vec<Captured>,
}

#[derive(Deserialize)]
struct Captured {
    samples: Vec<Costs>,
}

#[derive(Deserialize)]
struct Costs {
    kind: String,
    ns: BTreeMap<String, f64>,
}

pub fn measure(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    if !Path::new(CAPTURE).exists() {
        effort.leave_out("demo/http.pcap is not here: run it in the project's folder");
        return Ok(Vec::new());
    }
    let folder = Folder::new("weir-tables").map_err(|e| failed(e.to_string()))?;
    let file = folder.path().join("costs.json");
    let series =
        effort.round_of(&[()], |()| taken(effort, effort.around(|| costs(effort, &file))))?;
    if !series.is_empty() && series.iter().all(|line| line.name != APART) {
        effort.leave_out(
            "VNFs apart, joined by veth pairs: no network namespace is granted (weir bench consolidation says why)",
        );
    }
    Ok(series)
}

/// What a round gave. One that did not end in its time is a sample that failed; whatever else goes wrong would go wrong again.
fn taken(
    effort: &Effort<'_>,
    costs: Result<(Results, Around), BenchError>,
) -> Result<Vec<(String, f64, Sample)>, BenchError> {
    match costs {
        Ok((results, trips)) => Ok(samples(&results, trips)),
        Err(BenchError::Output(late @ OutputError::Late(_))) => {
            effort.fail(COMMAND, 0.0, &late.to_string());
            Ok(Vec::new())
        }
        Err(e) => Err(e),
    }
}

fn failed(why: String) -> BenchError {
    BenchError::Option { given: COMMAND.to_owned(), why }
}

/// One round of all configurations.
fn costs(effort: &Effort<'_>, file: &Path) -> Result<Results, BenchError> {
    let output = own::output(&mut command(effort, file)?, patience(effort.sampling.seconds))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.lines().last().unwrap_or("it said nothing").to_owned()));
    }
    let text =
        std::fs::read(file).map_err(|source| BenchError::Read { path: file.to_owned(), source })?;
    serde_json::from_slice(&text)
        .map_err(|source| BenchError::Figure { path: file.to_owned(), source })
}

/// Until it has to have measured three configurations, each once its graphs are ready, for one and a half times so many seconds.
fn patience(seconds: f64) -> Duration {
    READY * 2 + Duration::from_secs_f64((seconds * 9.0).clamp(1.0, 600.0))
}

fn command(effort: &Effort<'_>, file: &Path) -> Result<Command, BenchError> {
    let sampling = effort.sampling;
    let own = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let [first, ends_with_us @ ..] = ENDS_WITH_US;
    let mut command = Command::new(first);
    command
        .args(ends_with_us)
        .arg(own)
        .args(["bench", "consolidation", "--tables", "--rounds", "1", "--capture", CAPTURE])
        .args(["--seconds", &sampling.seconds.to_string()])
        .args(["--core", &sampling.chain_core.to_string()])
        .args(["--feeder-core", &sampling.device_core.to_string()])
        .arg("--json")
        .arg(file);
    if effort.is_backwards() {
        command.arg("--backwards");
    }
    Ok(command)
}

/// Cycles a packet by configuration and type.
fn samples(results: &Results, trips: Around) -> Vec<(String, f64, Sample)> {
    let mut all = Vec::new();
    for costs in results.captures.iter().flat_map(|captured| &captured.samples) {
        for (at, &kind) in TYPES.iter().enumerate() {
            let ns = match kind {
                OVERALL => Some(costs.ns.values().sum()),
                kind => costs.ns.get(kind).copied(),
            };
            // What the clock did not strike in any batch has no place on the axis.
            let Some(ns) = ns.filter(|ns| *ns > 0.0) else { continue };
            let cycles = Sample::of(ns * results.mhz / 1e3, trips);
            all.push((costs.kind.clone(), at as f64, cycles));
        }
    }
    all
}

pub fn judge(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, kind: &str| {
        let at = TYPES.iter().position(|t| *t == kind).unwrap_or(0);
        median(series, name, at as f64)
    };
    let saved = |name: &str, kind: &str| (1.0 - of(name, kind) / of(APART, kind)) * 100.0;
    let [fused, isolated] = MERGED.map(|name| saved(name, OVERALL));
    if fused.is_nan() {
        return (Verdict::DifferentSetUp, "no VNFs apart to compare with".to_owned());
    }
    let devices = |name: &str| of(name, "FromDevice") + of(name, "ToDevice");
    let by_devices =
        (devices(APART) - devices(MERGED[0])) / (of(APART, OVERALL) - of(MERGED[0], OVERALL));
    let lines = [APART, MERGED[0], MERGED[1]];
    let timed = |name: &str, kind: &str| of(name, kind).is_finite();
    let missing = lines.iter().flat_map(|name| {
        let kinds = TYPES.iter().filter(|kind| !timed(name, kind));
        kinds.map(move |kind| format!("{kind} ({name})"))
    });
    let missing: Vec<String> = missing.collect();
    let told = |kind: &str| match MERGED.map(|name| saved(name, kind)) {
        [fused, isolated] if fused.is_finite() && isolated.is_finite() => {
            format!("{kind} {fused:.0} and {isolated:.0} %")
        }
        _ => format!("{kind} was not timed"),
    };
    let text = format!(
        "merged saves {fused:.0} % of all cycles fused (Table I) and {isolated:.0} % as µNFs (Table II), {:.0} % of the former by the devices between VNFs, which weigh half a percent in \
         the paper; {}, {}",
        by_devices * 100.0,
        told("CheckIpHeader"),
        told("HttpClassifier")
    );
    // Each sixteenth batch is timed: in short samples perhaps none of a type's.
    let text = match missing.is_empty() {
        true => text,
        false => format!("{text}; not timed in any batch: {}", missing.join(", ")),
    };
    // Most of it is devices here, and next to nothing there.
    let holds = isolated > 0.0 && fused > isolated;
    let what = "merging saves, more by hand than as µNFs";
    (Verdict::DifferentSetUp, trend(text, what, holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;
    use crate::bench::figure::data::tests::sampling;
    use crate::bench::sample::SampleArgs;
    use std::cell::RefCell;
    use std::time::Instant;

    fn effort(sampling: &SampleArgs, round: usize) -> Effort<'_> {
        let (left_out, failed) = (RefCell::default(), RefCell::default());
        let (name, began) = ("unf-tables", Instant::now());
        Effort { sampling, name, round, began, left_out, failed, earlier: &[] }
    }

    #[test]
    fn every_other_round_goes_backwards() {
        let sampling = sampling();
        let is_backwards = |round| {
            let command = command(&effort(&sampling, round), Path::new("to")).unwrap();
            command.get_args().any(|arg| arg == "--backwards")
        };
        assert_eq!([1, 2, 3, 4].map(is_backwards), [false, true, false, true]);
    }

    #[test]
    fn a_round_that_does_not_end_is_a_sample_that_failed_and_any_other_error_the_figures_own() {
        let sampling = sampling();
        let effort = effort(&sampling, 1);
        let of = |error: OutputError| taken(&effort, Err(error.into())).map(|all| all.len());
        assert!(of(std::io::Error::from(std::io::ErrorKind::NotFound).into()).is_err());
        assert_eq!(effort.failures(COMMAND), 0);
        assert_eq!(of(OutputError::Late(Duration::from_secs(9))).ok(), Some(0));
        assert_eq!(effort.failures(COMMAND), 1);
    }

    #[test]
    fn what_is_saved_is_told_overall_and_by_type() {
        let text = r#"{"mhz": 2000, "captures": [{"samples": [
            {"kind": "veth: each VNF apart (i)", "ns": {"FromDevice": 50, "CheckIpHeader": 30, "rings": 20}},
            {"kind": "veth: merged, fused", "ns": {"FromDevice": 20, "CheckIpHeader": 10, "rings": 0}},
            {"kind": "veth: merged, isolated", "ns": {"FromDevice": 40, "CheckIpHeader": 15, "rings": 25}}]}]}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        let mut series = Vec::new();
        for (name, x, sample) in samples(&results, [0.0; 2].into()) {
            add(&mut series, &name, x, sample);
        }
        assert_eq!(median(&series, APART, 7.0), 200.0, "cycles, rings with them");
        let (verdict, text) = judge(&series);
        assert!(
            text.starts_with("merged saves 70 % of all cycles fused (Table I) and 20 %"),
            "{text}"
        );
        assert!(text.contains("CheckIpHeader 67 and 50 %"), "{text}");
        assert_eq!(verdict, Verdict::DifferentSetUp);
        assert_eq!(judge(&[]).0, Verdict::DifferentSetUp);
    }
}
