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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// Which way samples are taken and rates searched for; another number when that changes what they are. 2: after a warm-up of a quarter of a
/// sample's time and by trials of an eighth of it, which were a half and a sixth.
const METHOD: u32 = 2;

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
        (&self.machine, &self.effort, &self.series)
            == (&other.machine, &other.effort, &other.series)
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
pub(super) mod tests;
