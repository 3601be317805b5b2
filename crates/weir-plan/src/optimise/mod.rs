//! Consolidation: work that is done already is not done again, and equal work shares a worker.
//!
//! VNFs that know nothing of each other repeat each other's work: each checks headers, each looks for
//! HTTP (the µNF paper, §II; the graph construction of §IV-D). Two things are done about it, both from
//! what µNFs say of themselves ([`crate::Work`]), never from their names:
//!
//! - **Known answers** ([`known`]). Where every packet on a way has passed an equal µNF, and nothing
//!   since wrote what that one reads, the way goes straight on to where the answer leads. A µNF that
//!   no packet comes to any more is left out.
//! - **Merging** ([`merging`]). Equal µNFs on different ways share one worker, and one instance when
//!   they remember nothing. Each keeps inputs, outputs and counters of its own, so every packet leaves
//!   on the branch that it came by.
//!
//! What the operator sees of a run stays as if nothing had been done: [`Tally`] says which counters of
//! the plan's graph are which of the policy's.

mod change;
mod facts;
mod known;
mod merging;
mod rebuild;

use crate::graph::{Graph, NodeId};
use crate::plan::Options;

pub use change::{Change, Done, Kept, Layer};
pub use rebuild::{PassedOver, Tallied, Tally, VnfTally};

pub(crate) use merging::in_order;

/// A policy graph without what is done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consolidated {
    /// The graph to run. Its names are the policy's, but for edges past a µNF that was left out, which
    /// carry the names of all edges that they stand for.
    pub graph: Graph,
    /// NFs of that graph that share a worker: each list has at least two, none of which leads to
    /// another.
    pub merged: Vec<Vec<NodeId>>,
    /// Which of its counters make the policy's.
    pub tally: Tally,
    /// What was done and what was not, in the order of the graph.
    pub changes: Vec<Change>,
}

/// Consolidates a graph for a plan with these options. Pure: equal arguments, equal result.
///
/// Packets leave by the same ports, in the same order within each source, changed in the same way,
/// and are dropped by the same µNFs for the same reasons as in `graph`. What is not known to be so from
/// descriptions stays as it is.
#[must_use]
pub fn consolidate(graph: &Graph, options: &Options) -> Consolidated {
    consolidate_but(graph, options, |_| Vec::new())
}

/// The same, but those of what is left that `apart` names share no worker with others.
pub(crate) fn consolidate_but(
    graph: &Graph,
    options: &Options,
    apart: impl FnOnce(&Graph) -> Vec<NodeId>,
) -> Consolidated {
    let known::Threaded { courses, left_out, mut changes } = known::thread(graph, options);
    let (graph, tally) = rebuild::rebuild(graph, &courses, &left_out);
    let apart = apart(&graph);
    let merged = merging::merge(&graph, options, &apart, &mut changes);
    Consolidated { graph, merged, tally, changes }
}
