//! What consolidation did, in words for the operator.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was done with one or several µNFs, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Names of the instances.
    pub nodes: Vec<String>,
    /// Their type.
    pub kind: String,
    /// What was done.
    pub done: Done,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// Left out: of every packet it is known what it would say.
    Known {
        /// A µNF that said it.
        by: String,
        /// True when on other ways others did.
        others: bool,
        /// The highest layer that it reads, which nothing wrote since; `None` when it reads none.
        reads: Option<Layer>,
    },
    /// Still there, but packets of some edges pass it over.
    PassedOver {
        /// The edges, by name.
        edges: Vec<String>,
        /// A µNF that knows the answer.
        by: String,
    },
    /// Left out: no packet can come to it.
    Unreached,
    /// One worker for all of them.
    Merged {
        /// True when they are one instance; false when each remembers something of its own.
        one_instance: bool,
        /// NF workers without any merging.
        workers: usize,
        /// Cores that there are for them.
        cores: usize,
    },
    /// Nothing, though its answer is known.
    Kept {
        /// A µNF that knows it.
        by: String,
        /// What stands against it.
        why: Kept,
    },
}

/// Why a µNF whose answer is known is not left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Its report could not be given without it.
    Remembers,
    /// Filters ask for what it says of packets by tags.
    Asked,
    /// Packets of the output divide, or are dropped there.
    Divides,
}

/// A layer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Layer {
    L2,
    L3,
    L4,
    Payload,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::L2 => "the link header",
            Layer::L3 => "headers up to IP",
            Layer::L4 => "headers up to the transport's",
            Layer::Payload => "the packet",
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.nodes.join(", "), self.kind, self.done)
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Done::Known { by, others, reads } => {
                let others = if *others { " or another of its kind" } else { "" };
                write!(f, "left out: every packet passed {by}{others}")?;
                match reads {
                    Some(layer) => write!(f, ", and nothing wrote {layer} since"),
                    None => f.write_str(", and it reads no packet"),
                }
            }
            Done::PassedOver { edges, by } => {
                let edges = edges.join("`, `");
                write!(f, "passed over by the packets of `{edges}`: {by} has its answer")
            }
            Done::Unreached => f.write_str("left out: no packet can come to it"),
            Done::Merged { one_instance, workers, cores } => {
                let what = if *one_instance { "one µNF" } else { "one worker, counters apart" };
                let cores =
                    if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
                write!(
                    f,
                    "merged into {what}: the same work on different ways, and {workers} workers would share {cores}"
                )
            }
            Done::Kept { by, why } => {
                let why = match why {
                    Kept::Remembers => "it keeps counters of its own",
                    Kept::Asked => "filters ask for its tags",
                    Kept::Divides => "what leaves it by that output divides or is dropped",
                };
                write!(f, "stays, though {by} has its answer: {why}")
            }
        }
    }
}
