//! What the agent tells of a running graph.

use super::{Crash, Levelled, Listed, Moved, Recovered, RelinkError, Relinked};
use crate::scale::Decision;
use std::time::Duration;
use weir_runtime::moves::Owed;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A worker is running (again).
    Ready {
        /// Index of the worker.
        worker: usize,
        /// In the real-time class.
        real_time: bool,
        /// Time since its predecessor's death was noticed, when it had one.
        after: Option<Duration>,
    },
    /// A worker died and the graph was mended.
    Died {
        /// Index of the worker.
        worker: usize,
        /// How.
        how: String,
        /// Packets lost with it.
        lost: u64,
        /// Buffers swept.
        swept: u64,
        /// What mending took.
        mended: Duration,
    },
    /// A worker's successor has got back what was replicated.
    Recovered {
        /// Index of the worker.
        worker: usize,
        /// What.
        recovered: Recovered,
    },
    /// A worker wants the operator to know something.
    Warning {
        /// Index of the worker.
        worker: usize,
        /// What.
        text: String,
    },
    /// A worker wrote a line to its standard error.
    Said {
        /// Its name.
        worker: String,
        /// The line. It may hold anything.
        text: String,
    },
    /// A worker said more than anybody is to read.
    Omitted {
        /// Its name.
        worker: String,
        /// Bytes that were left out.
        bytes: u64,
    },
    /// Real-time workers kept the agent from running, and have left that class.
    Demoted,
    /// A worker did what no sound one does, and was ended.
    Offence {
        /// Index of the worker.
        worker: usize,
        /// What it did.
        what: String,
    },
    /// A µNF brought its worker's death about.
    Crashed(Crash),
    /// A worker neither took nor gave, and was ended.
    Hung {
        /// Index of the worker.
        worker: usize,
        /// What was wrong with it.
        what: &'static str,
    },
    /// A worker was named too often: what comes for it is dropped from now on.
    Quarantined {
        /// Index of the worker.
        worker: usize,
    },
    /// A worker waits no longer for what another of its crew owes it.
    WaitsNoLonger {
        /// Index of the worker.
        worker: usize,
        /// Of the other.
        by: usize,
        /// What.
        owed: Owed,
    },
    /// Where each buffer of a domain is was found out anew.
    Audited {
        /// Index of the domain.
        domain: usize,
        /// Ring entries that were voided.
        voided: u64,
    },
    /// Packets wait and nobody moves any.
    StandsStill {
        /// Whom they wait for.
        why: String,
    },
    /// The next generation has taken over.
    Relinked(Relinked),
    /// The graph could not be relinked; it goes on as it was.
    NotRelinked {
        /// Why.
        why: RelinkError,
    },
    /// What was ordered by [`Agent::move_flows`](super::Agent::move_flows) is done.
    FlowsMoved {
        /// The order's number.
        ticket: u64,
        /// How it went.
        moved: Moved,
    },
    /// An NF has got one more of its instances, or one less, or is about to.
    Scaled {
        /// Its name.
        nf: String,
        /// What and why.
        decision: Decision,
    },
    /// Instances had come or gone: what could go where it is to be has gone there; told once more when nothing is left.
    Levelled(Levelled),
    /// Flows of an instance whose worker had died go on at other instances of its NF.
    WentElsewhere {
        /// Index of the worker.
        worker: usize,
        /// How many.
        flows: u64,
        /// Time from the death until all had gone.
        took: Duration,
    },
    /// What was asked by [`Agent::list_flows`](super::Agent::list_flows).
    FlowsListed {
        /// The question's number.
        ticket: u64,
        /// The flows.
        listed: Listed,
    },
    /// All input has ended and everything has been passed on, or was given up ([`Agent::undrained`](super::Agent::undrained)).
    Finished,
}
