//! What a figure is made of: samples, where they were taken, and what they say.

use crate::bench::files::{read_whole, write_whole};
use crate::bench::machine::Machine;
use crate::bench::mood::Around;
use crate::bench::sample::{BenchError, Measured, SampleArgs, spread};
use crate::bench::search::Found;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use weir_draw::chart::Axis;

/// What has measured: a build that is slower on purpose says so.
pub const VERSION: &str = if cfg!(feature = "slowed") {
    concat!(env!("CARGO_PKG_VERSION"), ", slowed on purpose")
} else {
    env!("CARGO_PKG_VERSION")
};

/// A difference of the time that words take from core to core beyond which samples are not compared.
pub const ALIKE: f64 = 1.2;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub value: f64,
    /// The machine before and after.
    #[serde(flatten)]
    pub around: Around,
    /// The real-time class was wanted, and no worker was in it: it is a sample of the default class. So it is where graphs take all cores, which
    /// are left to others then, where there are devices only, in rivals, and where it is not granted.
    #[serde(default)]
    pub not_granted: bool,
    /// No graph ran for it, and so there were no workers of any class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_workers: bool,
    /// Processor time a packet, of all cores that worked for it, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: Option<f64>,
    /// Of a latency under load, how long all packets took: steps by their upper limits in nanoseconds, and how many packets each has. Of flows
    /// that moved, how long each took: nanoseconds, and how many flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(u64, u64)>,
    /// Of a latency under load: the load, packets a second, and the part of what was due that had not come out at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<(f64, f64)>,
    /// Of a median latency: the 99th and the 99.9th percentile of the same packets, in the unit of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<[f64; 2]>,
    /// Nothing arrived: the value is what one packet would have been, and a bound.
    #[serde(default)]
    pub none: bool,
    /// The search for it had to end before its bounds were as close as they should be.
    #[serde(default)]
    pub open: bool,
    /// The rate that is sustained, in the unit of the value, where it was searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained: Option<Held>,
    /// In which round it was taken, from 1: samples of one round were taken after each other. 0: not told.
    #[serde(default)]
    pub round: usize,
}

/// What a search has found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// 0.0: none was held.
    pub value: f64,
    /// The search had to end before its bounds were as close as they should be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// How close that is: their difference as a part of the upper one.
    #[serde(default = "usual_width")]
    pub width: f64,
}

fn usual_width() -> f64 {
    0.05
}

impl Sample {
    /// A value, and in which mood the machine was before and after.
    pub fn of(value: f64, around: impl Into<Around>) -> Self {
        let (not_granted, no_workers, none, open) = (false, false, false, false);
        let (cpu_ns, load, histogram) = (None, None, Vec::new());
        Sample {
            value,
            around: around.into(),
            not_granted,
            no_workers,
            cpu_ns,
            histogram,
            load,
            tail: None,
            none,
            open,
            sustained: None,
            round: 0,
        }
    }

    /// Whether all that was measured is a number.
    pub fn is_finite(&self) -> bool {
        let tail = self.tail.unwrap_or_default();
        let load = self.load.map_or([0.0; 2], |(rate, lost)| [rate, lost]);
        let others = [
            self.value,
            self.cpu_ns.unwrap_or(0.0),
            self.sustained.map_or(0.0, |s| s.value + s.width),
        ];
        let Around { round_trip_ns, pace_ns } = &self.around;
        [&tail[..], &load, &others, round_trip_ns, pace_ns].concat().iter().all(|v| v.is_finite())
    }

    /// Whether words crossed cores about as fast around both (a fifth more at most), or no second core took part.
    pub fn is_alike(&self, other: &Sample) -> bool {
        let sum = |s: &Sample| s.around.round_trip_ns.iter().sum::<f64>();
        let (a, b) = (sum(self), sum(other));
        a.max(b) <= ALIKE * a.min(b)
    }
}

impl From<Measured> for Sample {
    /// The packets that arrived, in millions a second.
    fn from(measured: Measured) -> Self {
        let Measured { mpps, around, withheld, cpu_ns, sustained, real_time: _ } = measured;
        let held = |Found { rate, is_closed, width }: Found| Held {
            value: rate / 1e6,
            open: !is_closed,
            width,
        };
        let sustained = sustained.map(held);
        Sample { not_granted: withheld, cpu_ns, sustained, ..Sample::of(mpps, around) }
    }
}

/// All measurements at one place of the horizontal axis. Outliers stay.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    pub x: f64,
    pub samples: Vec<Sample>,
}

impl Place {
    /// Minimum, median and maximum.
    pub fn spread(&self) -> Option<[f64; 3]> {
        spread(self.samples.iter().map(|s| s.value).collect())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub places: Vec<Place>,
}

/// Puts a sample where it belongs.
pub fn add(series: &mut Vec<Series>, name: &str, x: f64, sample: Sample) {
    let at = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
        series.push(Series { name: name.to_owned(), places: Vec::new() });
        series.len() - 1
    });
    let Some(series) = series.get_mut(at) else { return };
    match series.places.iter_mut().find(|p| p.x == x) {
        Some(place) => place.samples.push(sample),
        None => series.places.push(Place { x, samples: vec![sample] }),
    }
}

/// A place in words; of 0, where none of the axis is known, the line alone.
pub fn place(line: &str, x: f64) -> String {
    if x == 0.0 { line.to_owned() } else { format!("{line} at {x}") }
}

/// Samples of one place that failed, for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    pub line: String,
    pub x: f64,
    pub why: String,
    pub times: usize,
}

impl Failed {
    pub fn count(all: &mut Vec<Failed>, line: &str, x: f64, why: &str) {
        match all.iter_mut().find(|f| f.line == line && f.x == x && f.why == why) {
            Some(failed) => failed.times += 1,
            None => {
                let (line, why, times) = (line.to_owned(), why.to_owned(), 1);
                all.push(Failed { line, x, why, times });
            }
        }
    }

    /// How many of so many samples the place has of which most failed, for whatever reasons.
    pub fn left(all: &[Failed], samples: usize) -> usize {
        let of = |at: &Failed| {
            let same = all.iter().filter(|f| f.line == at.line && f.x == at.x);
            samples.saturating_sub(same.map(|f| f.times).fold(0, usize::saturating_add))
        };
        all.iter().map(of).min().unwrap_or(samples)
    }

    /// All of them in words, of so many samples of each place.
    pub fn told(all: &[Failed], samples: usize) -> String {
        let each = all.iter().map(|Failed { line, x, why, times }| {
            format!("{}: {times} of {samples} ({why})", place(line, *x))
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

/// How a finding stands to its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Reached,
    Missed,
    /// There are fewer samples than a verdict needs.
    TooFew,
    /// The machine lacks what the paper's set-up had: nothing is claimed of it.
    DifferentSetUp,
    /// Nobody claims anything that it could reach.
    NoClaim,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "missed",
            Verdict::TooFew => "too few samples for a verdict",
            Verdict::DifferentSetUp => "different set-up",
            Verdict::NoClaim => "no claim",
        })
    }
}

impl Verdict {
    pub fn of(reached: bool) -> Self {
        if reached { Verdict::Reached } else { Verdict::Missed }
    }
}

/// Which way samples are taken and rates searched for; another number when that changes what they are.
const METHOD: u32 = 1;

fn first_method() -> u32 {
    1
}

/// How samples were taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    pub samples: usize,
    pub seconds: f64,
    pub ring: u32,
    pub pool: u32,
    pub real_time: bool,
    /// Cores of devices and of the chain.
    pub cores: [usize; 2],
    /// This program, by a hash of its file: a changed one measures again.
    pub program: u64,
    /// The way ([`METHOD`]); files without it are of the first.
    #[serde(default = "first_method")]
    pub method: u32,
    /// What else can be had here: rivals, and root's rights.
    #[serde(default)]
    pub had: Vec<String>,
}

impl Taken {
    /// Whether samples were taken in the same way, by whatever program, and whatever else was there.
    pub fn is_like(&self, other: &Taken) -> bool {
        // Programs differ, that is what is compared, and so may what else is there.
        let alike = Taken { program: other.program, had: other.had.clone(), ..self.clone() };
        alike == *other
    }
}

impl From<&SampleArgs> for Taken {
    fn from(args: &SampleArgs) -> Self {
        Taken {
            samples: args.samples,
            seconds: args.span().as_secs_f64(),
            ring: args.ring,
            pool: args.pool,
            real_time: !args.no_real_time,
            cores: [args.device_core, args.chain_core],
            program: program(),
            method: METHOD,
            had: super::rivals::had(),
        }
    }
}

/// A hash of the program's file, 0 where it cannot be read.
fn program() -> u64 {
    static ONCE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *ONCE.get_or_init(|| {
        let file = std::fs::read("/proc/self/exe").unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        hasher.finish()
    })
}

/// A figure that was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// The paper's figure or table, or that it goes beyond them.
    pub source: String,
    pub title: String,
    pub claim: String,
    pub set_up: String,
    pub finding: String,
    pub verdict: Verdict,
    pub x: Axis,
    pub y: Axis,
    pub machine: Machine,
    pub version: String,
    pub effort: Taken,
    pub took_seconds: f64,
    pub series: Vec<Series>,
    /// What could not be had.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Samples that there are not, as they failed.
    #[serde(default)]
    pub failed: Vec<Failed>,
}

impl Record {
    /// Whether it is what would be measured now, or its beginning: same machine, version and effort, and no more samples.
    pub fn is_of(&self, machine: &Machine, args: &SampleArgs) -> bool {
        let mut wanted = Taken::from(args);
        wanted.samples = self.effort.samples.min(wanted.samples.max(1));
        self.machine == *machine && self.version == VERSION && self.effort == wanted
    }

    /// Why it cannot be what a run left: who judges and draws it relies on that.
    fn unsound(&self) -> Option<&'static str> {
        let samples = self.effort.samples;
        let places = || self.series.iter().flat_map(|line| &line.places);
        let is_hollow = self.series.iter().any(|line| line.places.is_empty())
            || places().any(|place| place.samples.is_empty());
        let says = !(self.series.is_empty() && self.left_out.is_empty() && self.failed.is_empty());
        let is_negative = || places().flat_map(|place| &place.samples).any(|s| s.value < 0.0);
        if !says {
            Some("it has no samples, and does not say why")
        } else if is_hollow {
            Some("it has lines or places without samples")
        } else if samples > MOST_SAMPLES || places().any(|place| place.samples.len() > samples) {
            Some("it has more samples of a place than it says")
        } else if self.failed.len() > MOST_FAILED || self.failed.iter().any(|f| f.times > samples) {
            Some("more of its samples failed than were taken")
        } else if is_negative() {
            Some("it has values below zero")
        } else {
            None
        }
    }

    /// Whether another tells the same samples, whatever it says of them.
    pub fn is_of_same_samples(&self, other: &Record) -> bool {
        let all = |record: &Record| serde_json::to_string(&record.series).unwrap_or_default();
        (&self.machine, &self.effort) == (&other.machine, &other.effort) && all(self) == all(other)
    }

    /// Takes in what one more round gave; `left_out`: what could not be had, in it or before. What there is stays, whatever failed in
    /// another round: how many did is told ([`Failed`]).
    pub fn take_in(&mut self, round: Vec<Series>, left_out: Vec<String>) {
        self.effort.samples += 1;
        for line in round {
            for place in line.places {
                for sample in place.samples {
                    let sample = Sample { round: self.effort.samples, ..sample };
                    add(&mut self.series, &line.name, place.x, sample);
                }
            }
        }
        self.left_out = left_out;
    }

    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        // An interrupted run is taken up by what is there.
        write_whole(path, &serde_json::to_string_pretty(self).unwrap_or_default())
    }
}

/// The most samples of a place, which is what can be asked for, and the most places at which some failed.
const MOST_SAMPLES: usize = 10_000;
const MOST_FAILED: usize = 10_000;

/// The most bytes that a figure's file has; they have a tenth of a megabyte.
const MOST_BYTES: u64 = 100 << 20;

/// Reads a figure's file, which has the figure's name.
pub fn read(path: &Path) -> Result<Record, BenchError> {
    let text = read_whole(path, MOST_BYTES)?;
    let record: Record = serde_json::from_slice(&text)
        .map_err(|source| BenchError::Figure { path: path.to_owned(), source })?;
    if let Some(why) = record.unsound() {
        return Err(BenchError::Unsound { path: path.to_owned(), why });
    }
    match path.file_stem().is_some_and(|stem| stem == record.name.as_str()) {
        true => Ok(record),
        false => Err(BenchError::OtherFigure { path: path.to_owned(), name: record.name }),
    }
}

/// What a folder has.
pub struct Figures {
    /// In the catalogue's order.
    pub records: Vec<Record>,
    /// What cannot be read, and why.
    pub damaged: Vec<String>,
}

/// All figures of a folder. One that is damaged costs none of the others.
pub fn read_all(folder: &Path) -> Result<Figures, BenchError> {
    // Whether there is such a folder, and may be read.
    std::fs::read_dir(folder)
        .map_err(|source| BenchError::Read { path: folder.to_owned(), source })?;
    let there = super::catalog::all().map(|figure| folder.join(format!("{}.json", figure.name)));
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    // A link that leads nowhere is there, too.
    for path in there.filter(|path| path.symlink_metadata().is_ok()) {
        match read(&path) {
            Ok(record) => records.push(record),
            Err(e) => damaged.push(e.to_string()),
        }
    }
    match (records.is_empty(), damaged.first()) {
        (true, None) => Err(BenchError::NoFigures(folder.to_owned())),
        (true, Some(why)) => Err(BenchError::Failed(why.clone())),
        _ => Ok(Figures { records, damaged }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::figure::values::median;

    pub fn sample(value: f64) -> Sample {
        Sample::of(value, [1.0, 2.0])
    }

    /// Two samples of each point.
    pub fn sampling() -> SampleArgs {
        SampleArgs {
            samples: 2,
            seconds: 0.4,
            ring: 1,
            pool: 1,
            device_core: 0,
            chain_core: 1,
            no_real_time: false,
            searches: false,
            patience: 1.0,
            begins: std::cell::Cell::default(),
        }
    }

    /// A figure without samples.
    pub fn record(name: &str) -> Record {
        let axis = |label: &str| Axis { label: label.to_owned(), log: false, names: Vec::new() };
        let machine = Machine {
            processor: "a processor".to_owned(),
            cores: 2,
            kernel: "6.1".to_owned(),
            mhz: 2_000,
            memory_gib: 8,
            numa_nodes: 1,
            favoured: true,
        };
        let effort = Taken {
            samples: 5,
            seconds: 0.4,
            ring: 1,
            pool: 1,
            real_time: true,
            cores: [0, 1],
            program: 7,
            method: METHOD,
            had: Vec::new(),
        };
        Record {
            name: name.to_owned(),
            source: "a paper".to_owned(),
            title: "a title".to_owned(),
            claim: "a claim".to_owned(),
            set_up: "a set-up".to_owned(),
            finding: "a finding".to_owned(),
            verdict: Verdict::Missed,
            x: axis("x"),
            y: axis("y"),
            machine,
            version: "0".to_owned(),
            effort,
            took_seconds: 1.0,
            series: Vec::new(),
            left_out: Vec::new(),
            failed: Vec::new(),
        }
    }

    #[test]
    fn samples_of_one_place_stay_together_and_none_is_left_out() {
        let mut series = Vec::new();
        for value in [3.0, 900.0, 1.0] {
            add(&mut series, "a", 4.0, sample(value));
            add(&mut series, "b", 4.0, sample(value * 2.0));
        }
        add(&mut series, "a", 5.0, sample(7.0));
        assert_eq!((series.len(), series[0].places.len()), (2, 2));
        assert_eq!(series[0].places[0].spread(), Some([1.0, 3.0, 900.0]));
        assert_eq!(median(&series, "b", 4.0), 6.0);
        assert!(median(&series, "b", 5.0).is_nan());
    }

    #[test]
    fn a_file_that_is_damaged_costs_no_other_and_a_folder_without_any_is_an_error() {
        let folder = crate::bench::own::Folder::new("weir-data").unwrap();
        assert!(matches!(read_all(folder.path()), Err(BenchError::NoFigures(_))));
        let none = read_all(&folder.path().join("none"));
        assert!(matches!(none, Err(BenchError::Read { .. })), "no such folder");
        let sound = |name: &str| Record { series: round(&["a"]), ..record(name) };
        sound("unf-7").write(&folder.path().join("unf-7.json")).unwrap();
        std::fs::write(folder.path().join("unf-6.json"), "{").unwrap();
        let Figures { records, damaged } = read_all(folder.path()).unwrap();
        assert_eq!((records.len(), records[0].name.as_str()), (1, "unf-7"));
        assert!(damaged.len() == 1 && damaged[0].contains("unf-6.json"), "{damaged:?}");
        std::fs::remove_file(folder.path().join("unf-7.json")).unwrap();
        assert!(matches!(read_all(folder.path()), Err(BenchError::Failed(_))));
    }

    #[test]
    fn what_is_no_ordinary_file_or_of_another_figure_is_damaged_and_nothing_waits_for_it() {
        let folder = crate::bench::own::Folder::new("weir-strange").unwrap();
        let at = |name: &str| folder.path().join(format!("{name}.json"));
        std::os::unix::fs::symlink("/dev/zero", at("unf-5a")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("unf-5b"), rustix::fs::Mode::RWXU).unwrap();
        std::fs::create_dir(at("unf-6")).unwrap();
        let other = Record { series: round(&["a"]), ..record("../<b>") };
        other.write(&at("unf-7")).unwrap();
        for name in ["unf-5a", "unf-5b", "unf-6"] {
            assert!(matches!(read(&at(name)), Err(BenchError::NoFile { .. })), "{name}");
        }
        let why = read(&at("unf-7")).unwrap_err().to_string();
        assert!(why.contains("unf-7.json") && why.contains("\"../<b>\""), "{why}");
    }

    #[test]
    fn what_is_no_number_could_not_be_read_again() {
        let with = |value: f64| Sample { tail: Some([1.0, value]), ..sample(1.0) };
        assert!(sample(1.0).is_finite() && with(2.0).is_finite());
        for odd in [f64::NAN, f64::INFINITY] {
            assert!(!sample(odd).is_finite() && !with(odd).is_finite());
            let text = serde_json::to_string(&sample(odd)).unwrap();
            assert!(serde_json::from_str::<Sample>(&text).is_err());
        }
    }

    #[test]
    fn a_value_that_is_read_and_written_again_is_the_same_to_its_last_digit() {
        for value in [1.2338803808171699, 0.1 + 0.2, 4.35e-9, 1e22] {
            let text = serde_json::to_string(&sample(value)).unwrap();
            let read: Sample = serde_json::from_str(&text).unwrap();
            assert_eq!(read.value.to_bits(), value.to_bits());
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }

    /// Lines of one place with one sample each.
    fn round(lines: &[&str]) -> Vec<Series> {
        let mut series = Vec::new();
        lines.iter().for_each(|name| add(&mut series, name, 1.0, sample(1.0)));
        series
    }

    #[test]
    fn what_no_run_leaves_is_no_figure() {
        let of = |change: &dyn Fn(&mut Record)| {
            let mut figure = Record { series: round(&["a"]), ..record("a") };
            change(&mut figure);
            figure.unsound()
        };
        assert_eq!(of(&|_| ()), None);
        assert_eq!(of(&|f| f.series.clear()), Some("it has no samples, and does not say why"));
        let reason = || vec!["a rival (not installed)".to_owned()];
        assert_eq!(of(&|f| (f.series.clear(), f.left_out = reason()).1), None);
        let hung =
            |times| Failed { line: "b".to_owned(), x: 1.0, why: "it hung".to_owned(), times };
        assert_eq!(of(&|f| (f.series.clear(), f.failed = vec![hung(1)]).1), None);
        assert!(of(&|f| f.failed = vec![hung(6)]).is_some());
        assert!(of(&|f| f.failed = vec![hung(1); MOST_FAILED + 1]).is_some());
        assert!(of(&|f| f.series[0].places.clear()).is_some());
        assert!(of(&|f| f.series[0].places[0].samples.clear()).is_some());
        assert!(of(&|f| f.effort.samples = 0).is_some());
        assert!(of(&|f| f.series[0].places[0].samples[0].value = -1.0).is_some());
        // No sum wraps.
        let most = [usize::MAX, 1].map(hung);
        assert_eq!(Failed::left(&most, 5), 0);
    }

    #[test]
    fn a_figure_grows_by_rounds_and_a_beginning_counts_as_one() {
        let args = sampling();
        let mut figure = record("a");
        figure.version = VERSION.to_owned();
        figure.effort = Taken { samples: 0, ..(&args).into() };
        for samples in 1..=2 {
            figure.take_in(round(&["a", "b"]), Vec::new());
            assert_eq!(figure.series[1].places[0].samples.len(), samples);
            assert!(figure.is_of(&figure.machine, &args), "{samples} of two");
        }
        figure.take_in(round(&["a", "b"]), Vec::new());
        assert!(!figure.is_of(&figure.machine, &args), "more than asked for");
    }

    #[test]
    fn good_samples_stay_when_one_of_another_round_fails_and_it_is_counted() {
        let mut figure = record("a");
        figure.effort.samples = 0;
        figure.take_in(round(&["a", "b"]), Vec::new());
        // The second round has no b.
        Failed::count(&mut figure.failed, "b", 1.0, "it hung");
        figure.take_in(round(&["a"]), Vec::new());
        figure.take_in(round(&["a", "b"]), Vec::new());
        let rounds = |at: usize| -> Vec<usize> {
            figure.series[at].places[0].samples.iter().map(|s| s.round).collect()
        };
        assert_eq!((rounds(0), rounds(1)), (vec![1, 2, 3], vec![1, 3]));
        let mut failed = figure.failed.clone();
        Failed::count(&mut failed, "b", 1.0, "it hung");
        assert_eq!(Failed::told(&failed, 3), "b at 1: 2 of 3 (it hung)");
    }
}
