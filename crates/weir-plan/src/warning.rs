//! What is allowed in a policy but probably not meant.

use thiserror::Error;
use weir_filter::Surprise;

use crate::error::MAX_WARNINGS;
use crate::span::Line;

/// What is odd.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A declaration that nothing uses.
    #[error("`{name}` is never used and left out")]
    Unused {
        /// Its name.
        name: String,
    },
    /// Addresses of one included file that nothing uses.
    #[error("of this file's addresses {} never used", unused(names))]
    UnusedAddresses {
        /// Their names, in the order of the text.
        names: Vec<String>,
    },
    /// An NF that gets no packets.
    #[error("no edge leads to `{name}`, so it gets no packets")]
    NoWayIn {
        /// The instance.
        name: String,
        /// It stands in a service request, not in a policy.
        in_request: bool,
    },
    /// An edge behind one that takes everything.
    #[error("no packet reaches this edge: the edge in line {line} takes all")]
    Unreachable {
        /// The line of the edge that takes all, from 1.
        line: Line,
    },
    /// An edge whose filter contradicts itself.
    #[error("no packet matches this edge's filter")]
    NeverMatches,
    /// A Tee that copies nothing.
    #[error("`{name}` is a Tee with one edge: it copies nothing")]
    OneWay {
        /// The Tee.
        name: String,
    },
    /// NFs that lead to each other.
    #[error("packets may go in a circle: {path}; what finds the way back full is dropped")]
    Cycle {
        /// The NFs along it, the first one last again.
        path: String,
    },
    /// The same, and by which port packets came in keeps each of them from going round.
    #[error(
        "{path} is a circle, though no packet goes round: in workers of their own, what finds the way back full is dropped"
    )]
    NoRound {
        /// The NFs along it, the first one last again.
        path: String,
        /// The NFs joined by `+`.
        together: String,
    },
    /// An edge that was restricted, so that packets have one way.
    #[error(
        "added `{class}` to this edge: the traffic of its pipelet. Else it and the edge in line {line} took the same packets"
    )]
    ClassAdded {
        /// The filter that was added.
        class: String,
        /// The line of the other edge, from 1.
        line: Line,
    },
    /// An edge that was restricted to packets that entered by certain edges.
    #[error(
        "added to this edge that packets entered by {}: the traffic of its pipelet. Else it and the edge in line {line} took the same packets, and behind `{writer}`, which may write packets, a tag must tell",
        entered(entries)
    )]
    EntryAdded {
        /// The lines of the edges from ports.
        entries: Vec<Line>,
        /// The line of the other edge.
        line: Line,
        /// The NF behind which packets need not look as they came in.
        writer: String,
    },
    /// A test of a tag that packets need not have.
    #[error(
        "{}, so this test of `{tag}` is false", if *never { "no packet here has passed an NF that says it" } else { "packets come here that have not passed an NF that says it" }
    )]
    TagUnset {
        /// The tag.
        tag: String,
        /// True when no way leads here from who sets it.
        never: bool,
    },
    /// A filter that means, as libpcap's do, less or other than it seems to.
    #[error("{surprise}{}", also(*more))]
    Surprise {
        /// What it is.
        surprise: Surprise,
        /// How many other terms of the policy surprise in the same way.
        more: usize,
    },
    /// Stands at the first that is not shown.
    #[error("more than {MAX_WARNINGS} warnings: {left} are not shown")]
    TooMany {
        /// How many that are.
        left: usize,
    },
}

/// The first few, and how many there are.
fn unused(names: &[String]) -> String {
    let first: Vec<String> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
    let first = first.join(", ");
    match names.len() {
        1 => format!("{first} is"),
        n if n <= 3 => format!("{first} are"),
        n => format!("{n} are ({first}, ...)"),
    }
}

/// `the edge in line 3`, `the edges in lines 3 and 5`.
fn entered(lines: &[Line]) -> String {
    let all: Vec<String> = lines.iter().map(ToString::to_string).collect();
    match all.as_slice() {
        [one] => format!("the edge in line {one}"),
        all => format!("the edges in lines {}", all.join(", ")),
    }
}

fn also(more: usize) -> String {
    match more {
        0 => String::new(),
        1 => " (and so does one other term)".to_owned(),
        _ => format!(" (and so do {more} other terms)"),
    }
}

impl Warning {
    /// What stands before it: `note` for what was done without being asked, else `warning`.
    #[must_use]
    pub fn severity(&self) -> &'static str {
        match self {
            Warning::ClassAdded { .. } | Warning::EntryAdded { .. } => "note",
            _ => "warning",
        }
    }

    /// What to do about it, as a clause like "write `;`".
    #[must_use]
    pub fn instead(&self) -> String {
        match self {
            Warning::Unused { .. } => "leave its declaration out".to_owned(),
            Warning::UnusedAddresses { .. } => {
                "nothing to write if other policies use them, else leave them out".to_owned()
            }
            Warning::NoWayIn { name, in_request: false } => {
                format!("write an edge to it, as in `lan -> {name};`")
            }
            Warning::NoWayIn { name, .. } => {
                format!("add a link to it, as in `{{ from: lan, to: {name} }}`")
            }
            Warning::Unreachable { .. } => "write it before that one, or leave it out".to_owned(),
            Warning::NeverMatches => "leave it out, or correct the filter".to_owned(),
            Warning::OneWay { .. } => {
                "write an edge for each copy, or leave the Tee out".to_owned()
            }
            Warning::Cycle { .. } => {
                "declare a second instance for the way back, if nothing may be dropped there"
                    .to_owned()
            }
            Warning::NoRound { together, .. } => format!(
                "have them share a worker, if nothing may be dropped there: `--isolate none`, or `--instances {together}=N`"
            ),
            Warning::ClassAdded { class, .. } => {
                format!(
                    "write `{class}` into its filter yourself if it is right, else correct the filters"
                )
            }
            Warning::EntryAdded { .. } => {
                "nothing to write if it is right, else let the filters exclude each other"
                    .to_owned()
            }
            Warning::TagUnset { tag, never: true } => {
                format!("lead the packets through that NF first, or leave `{tag}` out")
            }
            Warning::TagUnset { .. } => {
                "nothing to write if it is right, else lead all packets through that NF first"
                    .to_owned()
            }
            Warning::Surprise { surprise, .. } => match surprise.instead() {
                Some(instead) => format!("write `{instead}` if those shall match, too"),
                None => "docs/filters.md, \"Where libpcap surprises\", says more".to_owned(),
            },
            Warning::TooMany { .. } => "correct these first".to_owned(),
        }
    }
}
