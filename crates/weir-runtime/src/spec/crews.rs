//! Who moves flows.

use super::Fd;
use serde::{Deserialize, Serialize};
use weir_flow::Party;

/// A worker's part in a crew: those who move flows among the instances of an NF, or of several that are one segment's replicas.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrewSpec {
    /// The NFs that packets are divided for, by their places in [`WorkerSpec::groups`](super::WorkerSpec::groups), all by flows and alike: a flow's
    /// packets come to the replica of the same number. Orders name the first.
    pub groups: Vec<u16>,
    /// What the worker is: an instance, or one who divides packets over them, by its number among those.
    pub me: Party,
    /// How often it was started before in this crew.
    pub life: u32,
    /// Of an instance, its nodes in the worker that remember something of flows, in the order that all instances have.
    pub nodes: Vec<u16>,
    /// How many divide packets.
    pub directors: u16,
    /// Those of it that are gone for good.
    pub gone: Vec<Party>,
    /// Of an instance the lanes in by which packets come, each with who sends; of who divides the lanes out, each with the
    /// instance that it leads to. By their places among the worker's.
    pub lanes: Vec<(u16, u16)>,
    /// Letters to and from the others.
    pub mails: Vec<MailSpec>,
}

/// Letters to and from one of a crew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MailSpec {
    /// Who it is.
    pub with: Party,
    /// Sender's and reader's memory of the mail to it.
    pub to: (Fd, Fd),
    /// The same of the mail from it.
    pub from: (Fd, Fd),
    /// Its doorbell.
    pub bell: Fd,
}
