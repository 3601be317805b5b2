//! `weir bench consolidation`: what it costs that VNFs which know nothing of each other repeat each other's work
//! (Tables I and II of the µNF paper), and what the plan saves of it.

pub mod chain;
mod measure;
pub mod net;

use super::asked;
use super::files::write_json;
use super::machine::{Machine, mhz};
use super::sample::{BenchError, finish, prepare, progress, spread};
use measure::{FROM_DEVICE, Kind, RINGS, Sample, TO_DEVICE, What, sample};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_plan::Isolate;

/// Measures the µNF paper's service chain, with its repetitions and without.
#[derive(clap::Args)]
pub struct ConsolidationArgs {
    /// Recorded traffic; may be given several times.
    #[arg(long, value_name = "FILE", default_value = "demo/http.pcap")]
    capture: Vec<PathBuf>,
    /// Rounds: in each, every configuration is measured once.
    #[arg(long, default_value_t = 7, value_parser = asked::times)]
    rounds: usize,
    /// Seconds per sample (0.05 to 60), after a warm-up of half of it.
    #[arg(long, default_value_t = 0.6, value_parser = asked::seconds)]
    seconds: f64,
    /// Core of all workers.
    #[arg(long, default_value_t = 1)]
    core: usize,
    /// Core of whoever sends into the veth pair.
    #[arg(long, default_value_t = 0)]
    feeder_core: usize,
    /// Microseconds that a worker polls after the last packet.
    #[arg(long, default_value_t = 200)]
    spin: u32,
    /// Leaves out what needs veth pairs, and so a network namespace.
    #[arg(long)]
    no_veth: bool,
    /// Measures only what the paper's tables compare: VNFs apart, and merged, isolated and fused.
    #[arg(long)]
    tables: bool,
    /// Begins with the last configuration: the first round goes backwards, the second forwards, and so on.
    #[arg(long)]
    backwards: bool,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// This process is in the network namespace.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum ConsolidationError {
    #[error("{}: {source}", path.display())]
    Open { path: PathBuf, source: weir_capture::OpenError },
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: weir_capture::ReadError },
    #[error("{}: no whole Ethernet frame of up to 9,014 bytes in it; give a capture of an Ethernet interface", .0.display())]
    None(PathBuf),
    #[error("no veth pairs: {0}; `--no-veth` leaves out what needs them")]
    Pairs(String),
}

const fn kind(name: &'static str, what: What, isolate: Isolate, veth: bool) -> Kind {
    Kind { name, what, isolate, veth }
}

impl Kind {
    /// Whether it is one of those that the paper's tables compare: nothing merged, or what the plan makes of it.
    fn is_in_tables(&self) -> bool {
        match self.what {
            What::Apart | What::Merged => true,
            What::Written => self.isolate == Isolate::Each,
            What::Minimal => false,
        }
    }
}

/// The configurations, those with veth pairs first.
const KINDS: [Kind; 9] = [
    kind("veth: each VNF apart (i)", What::Apart, Isolate::None, true),
    kind("veth: merged, isolated", What::Merged, Isolate::Each, true),
    kind("veth: merged, fused", What::Merged, Isolate::None, true),
    kind("unmerged, isolated (ii)", What::Written, Isolate::Each, false),
    kind("merged, isolated (iii)", What::Merged, Isolate::Each, false),
    kind("by hand, isolated", What::Minimal, Isolate::Each, false),
    kind("unmerged, fused", What::Written, Isolate::None, false),
    kind("merged, fused (iv)", What::Merged, Isolate::None, false),
    kind("by hand, fused", What::Minimal, Isolate::None, false),
];

/// What is compared: a configuration and the one that it is to be cheaper than, or as cheap as.
const COMPARED: [(usize, usize); 7] = [(1, 0), (2, 0), (4, 3), (7, 3), (7, 6), (4, 5), (7, 8)];

#[derive(Serialize)]
struct Results<'r> {
    machine: &'r Machine,
    /// Cycles of the time stamp counter per microsecond, as the kernel states them.
    mhz: f64,
    captures: Vec<Captured>,
}

#[derive(Serialize)]
struct Captured {
    capture: String,
    frames: usize,
    samples: Vec<Sample>,
}

pub fn main(args: &ConsolidationArgs) -> ExitCode {
    if !args.no_veth && !args.inside {
        match net::enter() {
            Ok(code) => return code,
            Err(why) => crate::complain!(
                "weir bench: configuration (i) is left out: it needs veth pairs in a network namespace, and {why}"
            ),
        }
    }
    finish(run(args))
}

fn run(args: &ConsolidationArgs) -> Result<(), BenchError> {
    let mut recorded = Vec::new();
    for path in &args.capture {
        recorded.push((path, frames(path)?));
    }
    let cores = [args.core, args.feeder_core];
    // Without veth pairs nobody feeds.
    let machine = prepare(&cores[..if args.no_veth && !args.inside { 1 } else { 2 }])?;
    let mhz = mhz();
    if args.inside {
        net::must_be_new().map_err(ConsolidationError::Pairs)?;
        net::make_pairs().map_err(ConsolidationError::Pairs)?;
    }
    let mut kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| args.inside || !kind.veth).collect();
    if args.tables {
        kinds.retain(|kind| kind.veth == args.inside && kind.is_in_tables());
    }
    crate::say::print_line!(
        "Edge Firewall -> Monitor -> Application Firewall; all workers on core {}, whose time is counted",
        args.core
    );
    let mut captures = Vec::new();
    for (path, (frames, left_out)) in &recorded {
        if *left_out > 0 {
            crate::say::print_line!(
                "{}: {left_out} records left out: not Ethernet, cut, or longer than {LONGEST} bytes",
                path.display()
            );
        }
        let mut samples = Vec::new();
        for round in 1..=args.rounds.max(1) {
            for kind in in_order(&kinds, round, args.backwards) {
                progress(&format!(
                    "{}, round {round} of {}: {}",
                    path.display(),
                    args.rounds,
                    kind.name
                ));
                samples.push(sample(args, kind, round, frames)?);
            }
        }
        progress("");
        print(path, frames.len(), mhz, &kinds, &samples);
        let capture = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        captures.push(Captured { capture, frames: frames.len(), samples });
    }
    if let Some(path) = &args.json {
        write_json(path, &Results { machine: &machine, mhz, captures })?;
    }
    Ok(())
}

/// Back and forth, so that no configuration always comes behind the same one.
fn in_order(kinds: &[Kind], round: usize, backwards: bool) -> Vec<Kind> {
    let mut kinds = kinds.to_vec();
    if round.is_multiple_of(2) != backwards {
        kinds.reverse();
    }
    kinds
}

/// Longest frame that is replayed, in bytes: what a veth pair of this MTU carries.
const LONGEST: usize = 9_014;

/// The Ethernet frames of a capture that were captured whole, and how many records are none, or are too long.
fn frames(path: &Path) -> Result<(Vec<Vec<u8>>, usize), ConsolidationError> {
    let open = |source| ConsolidationError::Open { path: path.to_owned(), source };
    let read = |source| ConsolidationError::Read { path: path.to_owned(), source };
    let mut reader = weir_capture::Reader::open(path).map_err(open)?;
    let (mut frames, mut left_out) = (Vec::new(), 0);
    while let Some(record) = reader.next().map_err(read)? {
        let whole = record.bytes.len() == record.wire_len as usize;
        if record.link.is_ethernet() && whole && (14..=LONGEST).contains(&record.bytes.len()) {
            frames.push(record.bytes.to_vec());
        } else {
            left_out += 1;
        }
    }
    if frames.is_empty() {
        return Err(ConsolidationError::None(path.to_owned()));
    }
    Ok((frames, left_out))
}

/// A part of what a sample cost.
type Part = fn(&Sample) -> f64;

/// Overall, without devices, and µNFs alone: as the columns are printed.
const PARTS: [Part; 3] = [
    |s| s.without(&[]),
    |s| s.without(&[FROM_DEVICE, TO_DEVICE]),
    |s| s.without(&[FROM_DEVICE, TO_DEVICE, RINGS]),
];

/// `a / b / c` of some values.
fn three(values: impl Iterator<Item = f64>, digits: usize) -> String {
    match spread(values.collect()) {
        Some([a, b, c]) => format!("{a:.digits$} / {b:.digits$} / {c:.digits$}"),
        None => "-".into(),
    }
}

/// How much less, in percent.
fn saved(less: f64, more: f64) -> f64 {
    if more > 0.0 { (1.0 - less / more) * 100.0 } else { 0.0 }
}

fn print(path: &Path, frames: usize, mhz: f64, kinds: &[Kind], samples: &[Sample]) {
    let of = |name: &'static str| samples.iter().filter(move |s| s.kind == name);
    let cycles = |ns: f64| ns * mhz / 1e3;
    crate::say::print_line!("\n{}: {frames} frames, over and over", path.display());
    crate::say::print_line!("cycles per packet ({mhz:.0} MHz), min / median / max");
    crate::say::print_line!(
        "{:<26}{:^24}{:^24}{:^24}",
        "",
        "overall",
        "without devices",
        "µNFs alone"
    );
    for kind in kinds {
        let column = |part: Part| three(of(kind.name).map(|s| cycles(part(s))), 0);
        let lost: u64 = of(kind.name).map(|s| s.lost).sum();
        crate::say::print_line!(
            "{:<26}{:^24}{:^24}{:^24}{}",
            kind.name,
            column(PARTS[0]),
            column(PARTS[1]),
            column(PARTS[2]),
            if lost > 0 { format!("  {lost} packets lost") } else { String::new() }
        );
    }
    crate::say::print_line!("saved in %, in the same round");
    let ratio = |less: &Kind, more: &Kind, part: &dyn Fn(&Sample) -> f64| {
        let pairs: Vec<f64> =
            of(less.name).zip(of(more.name)).map(|(a, b)| saved(part(a), part(b))).collect();
        three(pairs.into_iter(), 1)
    };
    for (less, more) in COMPARED {
        let (Some(less), Some(more)) = (KINDS.get(less), KINDS.get(more)) else { continue };
        if kinds.contains(less) && kinds.contains(more) {
            let [overall, without, alone] = PARTS.map(|part| ratio(less, more, &part));
            let name = format!("{} against {}", less.name, more.name);
            crate::say::print_line!("{name:<54}{overall:^24}{without:^24}{alone:^24}");
        }
    }
    let [Some(base), Some(isolated), Some(fused)] = (match kinds.first().map(|kind| kind.veth) {
        Some(true) => [KINDS.first(), KINDS.get(1), KINDS.get(2)],
        _ => [KINDS.get(3), KINDS.get(4), KINDS.get(7)],
    }) else {
        return;
    };
    crate::say::print_line!(
        "by type, against `{}`: its cycles per packet and weight there; saved in % by `{}` (Table II) and `{}` (Table I)",
        base.name,
        isolated.name,
        fused.name
    );
    let types: BTreeSet<&String> = of(base.name).flat_map(|s| s.ns.keys()).collect();
    for what in types {
        let part = |s: &Sample| s.ns.get(what).copied().unwrap_or(0.0);
        crate::say::print_line!(
            "{what:<16}{:^24}{:>18} %{:^26}{:^26}",
            three(of(base.name).map(|s| cycles(part(s))), 0),
            three(of(base.name).map(|s| part(s) / s.without(&[]) * 100.0), 1),
            ratio(isolated, base, &part),
            ratio(fused, base, &part)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_goes_backwards_the_first_or_the_second() {
        let names = |round, backwards| -> Vec<&str> {
            in_order(&KINDS, round, backwards).iter().map(|kind| kind.name).collect()
        };
        let forwards: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let reversed: Vec<&str> = forwards.iter().rev().copied().collect();
        assert_eq!(
            [1, 2, 3].map(|n| names(n, false)),
            [&forwards, &reversed, &forwards].map(Vec::clone)
        );
        assert_eq!([1, 2].map(|n| names(n, true)), [&reversed, &forwards].map(Vec::clone));
    }
}
