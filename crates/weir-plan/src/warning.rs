//! What is allowed in a policy but probably not meant.

use thiserror::Error;

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
    /// An NF that gets no packets.
    #[error("no edge leads to `{name}`, so it gets no packets")]
    NoWayIn {
        /// The instance.
        name: String,
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
    #[error("packets may go in a circle: {path}; `weir run` does not run that yet")]
    Cycle {
        /// The NFs along it, the first one last again.
        path: String,
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
    /// Stands at the first that is not shown.
    #[error("more than {MAX_WARNINGS} warnings: {left} are not shown")]
    TooMany {
        /// How many that are.
        left: usize,
    },
}

impl Warning {
    /// What stands before it: `note` for what was done without being asked, else `warning`.
    #[must_use]
    pub fn severity(&self) -> &'static str {
        match self {
            Warning::ClassAdded { .. } => "note",
            _ => "warning",
        }
    }

    /// What to do about it, as a clause like "write `;`".
    #[must_use]
    pub fn instead(&self) -> String {
        match self {
            Warning::Unused { .. } => "leave its declaration out".to_owned(),
            Warning::NoWayIn { name } => format!("write an edge to it, as in `lan -> {name};`"),
            Warning::Unreachable { .. } => "write it before that one, or leave it out".to_owned(),
            Warning::NeverMatches => "leave it out, or correct the filter".to_owned(),
            Warning::OneWay { .. } => {
                "write an edge for each copy, or leave the Tee out".to_owned()
            }
            Warning::Cycle { .. } => {
                "to run it, declare a second instance for the way back".to_owned()
            }
            Warning::ClassAdded { class, .. } => {
                format!(
                    "write `{class}` into its filter yourself if it is right, else correct the filters"
                )
            }
            Warning::TooMany { .. } => "correct these first".to_owned(),
        }
    }
}
