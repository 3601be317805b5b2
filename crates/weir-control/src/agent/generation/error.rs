//! Why a graph is not relinked.

use crate::agent::AgentError;
use std::time::Duration;

/// Why a graph was not relinked. It goes on as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelinkError {
    /// Another generation is being prepared.
    #[error("a relink is under way already")]
    Busy,
    /// The graph ends, or has.
    #[error("the graph ends")]
    Ending,
    /// What moves is to be at one place.
    #[error(
        "flows are being moved from one instance of an NF to another; try again when that is over"
    )]
    Moving,
    /// Another set of devices.
    #[error(
        "port {port} is {change}, and which ports packets come in and leave by cannot change while the \
         graph runs: stop it and start it with the new policy"
    )]
    Ports {
        /// The policy's number of the port.
        port: u16,
        /// What changes.
        change: &'static str,
    },
    /// A writer of drops in another trust domain.
    #[error(
        "the trust domains whose drops are written down change, which cannot be while the graph runs: stop \
         it and start it with the new policy"
    )]
    Dumps,
    /// The next generation cannot be made.
    #[error(transparent)]
    Start(Box<AgentError>),
    /// A worker of the next generation died before it was ready.
    #[error("the new worker {worker} died before it began: {how}")]
    Stillborn {
        /// Its name.
        worker: String,
        /// How it ended.
        how: String,
    },
    /// It was not all ready in time.
    #[error("the new worker {worker} was not ready within {patience:?}")]
    Unready {
        /// Its name.
        worker: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// A service cannot attach to the new memory.
    #[error("the service {worker} cannot take up the new memory: {why}")]
    NotAdopted {
        /// Its name.
        worker: String,
        /// Why.
        why: String,
    },
    /// A worker of the running generation died meanwhile.
    #[error("worker {worker} died meanwhile; try again")]
    Died {
        /// Its name.
        worker: String,
    },
    /// What was under way did not run out in time.
    #[error("what was under way did not run out within {patience:?}: {why}")]
    NotDrained {
        /// How long it was waited for.
        patience: Duration,
        /// Where it stands.
        why: String,
    },
    /// A worker did not come to rest.
    #[error("worker {worker} did not come to rest within {patience:?}")]
    NoRest {
        /// Its name.
        worker: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// A worker did not copy flows.
    #[error("worker {worker} did not copy what it remembers of flows within {patience:?}")]
    NotCopied {
        /// Its name.
        worker: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Packets are held.
    #[error(
        "NF {nf} holds {packets} packets, which cannot go over, and it held some whenever this was tried within \
         {patience:?}; try again when less traffic comes, or stop the graph and start it with the new policy"
    )]
    Held {
        /// Name of the NF.
        nf: String,
        /// How many, the last time.
        packets: u64,
        /// For how long it was tried.
        patience: Duration,
    },
    /// State that a new NF cannot read.
    #[error(
        "the new worker {worker} cannot take over {what}; to begin without it, give the NF another name"
    )]
    NotTaken {
        /// Its name.
        worker: String,
        /// What it cannot, and why.
        what: String,
    },
    /// What was apart would have to be together.
    #[error("{why}")]
    Parted {
        /// Of which NFs.
        why: String,
    },
    /// State that cannot be handed over.
    #[error("what the NFs of worker {worker} know cannot be handed over: {why}")]
    State {
        /// Its name.
        worker: String,
        /// Why.
        why: String,
    },
}
