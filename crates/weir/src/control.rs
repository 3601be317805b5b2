//! What is said over the control socket of a running `weir run`: one line of JSON asks, one line answers.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_control::{FlowCount, LoadRow, Relinked, Renewed};

/// Longest question, in bytes.
pub const LONGEST: u64 = 64 << 10;
/// Longest answer.
const LONGEST_ANSWER: u64 = 256 << 20;
/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "ask")]
pub enum Ask {
    /// Which flows there are.
    Flows {
        /// Of one NF only.
        nf: Option<String>,
        /// Only those that it matches, in either direction.
        filter: Option<String>,
        /// How many are listed of each worker, at most.
        most: u32,
    },
    /// Move flows to an instance.
    Move {
        /// The NF.
        nf: String,
        /// Those that a filter matches;
        filter: Option<String>,
        /// or so many hundredths of what each other instance has,
        share: Option<u8>,
        /// or so many.
        #[serde(default)]
        count: Option<u32>,
        /// Only of this instance, from 1.
        #[serde(default)]
        from: Option<u32>,
        /// The instance, from 1.
        to: u32,
    },
    /// How much each instance has to do.
    Load {
        /// Of one NF only.
        nf: Option<String>,
    },
    /// Plan with these options in place of those that stand elsewhere, and change the graph.
    Set {
        /// As they would stand in the command, a word each.
        options: Vec<String>,
        /// Forget those that were set before.
        #[serde(default)]
        reset: bool,
    },
    /// Start an instance of an NF anew, from what is replicated.
    Renew {
        /// The NF.
        nf: String,
        /// The instance, from 1, of several.
        #[serde(default)]
        instance: Option<u32>,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What was asked for cannot be, and why.
    Error(String),
    /// The flows.
    Flows(Flows),
    /// How much each instance has to do.
    Load(Vec<LoadRow>),
    /// What was moved.
    Moved {
        /// How many flows.
        flows: u64,
        /// Milliseconds that it took.
        ms: f64,
        /// What was not moved, and why.
        failures: Vec<String>,
    },
    /// How the graph was changed.
    Relinked(Relinked),
    /// What was started anew.
    Renewed(Renewed),
}

/// The flows that there are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// By NF and instance.
    pub counts: Vec<FlowCount>,
    /// The first of those that were asked for.
    pub flows: Vec<Flow>,
    /// Workers that did not answer, and why.
    pub failures: Vec<String>,
}

/// A flow of an NF.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The NF.
    pub nf: String,
    /// Its type.
    pub kind: String,
    /// Its instance, from 1, where it has several.
    pub instance: Option<u32>,
    /// IP protocol number.
    pub proto: u8,
    /// The two ends of each of its keys, the first key first.
    pub keys: Vec<[String; 2]>,
    /// Seconds since its first packet, by the NF's time.
    pub age: f64,
    /// Seconds since its last.
    pub idle: f64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("there is no running graph to ask: no socket in {}; name one with --control", .0.display())]
    None(PathBuf),
    #[error("several graphs run ({0}); name the socket of one with --control")]
    Several(String),
    #[error("{}: {source}; does `weir run` run with this --control?", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Talk { path: PathBuf, source: io::Error },
    #[error("{}: what it answers is no answer: {source}", path.display())]
    Form { path: PathBuf, source: serde_json::Error },
    #[error("{}: it has not answered; its graph has ended", .0.display())]
    Ended(PathBuf),
    #[error("{0}")]
    Refused(String),
}

/// The directory where runs have their sockets unless they are told another place.
pub fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) if !rustix::process::geteuid().is_root() => PathBuf::from(dir).join("weir"),
        _ => PathBuf::from("/run/weir"),
    }
}

/// The socket to ask: that which was named, or the only one there is.
fn socket(named: Option<&Path>) -> Result<PathBuf, ControlError> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let directory = directory();
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    // Of a run that was killed the socket is left over.
    let answers = |path: &PathBuf| UnixStream::connect(path).is_ok();
    let mut all: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(is_socket).filter(answers).collect();
    all.sort();
    match all.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(ControlError::None(directory)),
        several => {
            let names: Vec<String> = several.iter().map(|p| p.display().to_string()).collect();
            Err(ControlError::Several(names.join(", ")))
        }
    }
}

/// Asks a running graph.
pub fn ask(named: Option<&Path>, question: &Ask) -> Result<Answer, ControlError> {
    let path = socket(named)?;
    let connected = UnixStream::connect(&path);
    let mut stream =
        connected.map_err(|source| ControlError::Connect { path: path.clone(), source })?;
    let talk = |source| ControlError::Talk { path: path.clone(), source };
    let mut line = serde_json::to_string(question)
        .map_err(|source| ControlError::Form { path: path.clone(), source })?;
    line.push('\n');
    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(5))).map_err(talk)?;
    stream.write_all(line.as_bytes()).map_err(talk)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut answer).map_err(talk)?;
    if answer.is_empty() {
        return Err(ControlError::Ended(path));
    }
    match serde_json::from_str(&answer) {
        Ok(Answer::Error(why)) => Err(ControlError::Refused(why)),
        Ok(answer) => Ok(answer),
        Err(source) => Err(ControlError::Form { path, source }),
    }
}
