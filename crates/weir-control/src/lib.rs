//! The agent: brings a planned graph to life as worker processes, watches over it, mends it after
//! crashes, and says in the end what happened.
//!
//! | module | what it holds |
//! |---|---|
//! | [`setup`] | what is to run, free of file descriptors |
//! | [`library`] | the µNFs linked in, as the plan's catalogue |
//! | [`devices`] | the operator's devices against plan and file system |
//! | [`wiring`] | from a plan and the operator's devices to a setup |
//! | [`crews`] | which NFs' flows can go from one instance to another |
//! | [`inline`] | the same graph in one thread, for measurements |
//! | [`jail`] | the first layer of a worker's sandbox |
//! | `launch` | which program a worker is |
//! | [`outside`] | programs that bring µNFs of their own |
//! | `memory` | all shared memory, whose descriptors the agent keeps |
//! | `process` | one worker process |
//! | `voice` | what workers say to the operator |
//! | `audit` | where each buffer of a trust domain is, after a hostile worker |
//! | `dumps` | workers that write down what others drop |
//! | `recover` | what is done when a worker has died |
//! | [`agent`] | the loop |
//! | [`census`] | where every buffer is |
//! | `generations` | the reports of a graph's generations as one |
//! | `instances` | several instances of an NF as one in the report |
//! | [`scale`] | when an NF gets one more of its instances, and when one less |
//! | [`report`] | counters of a run, its balance, as tables and as JSON |

pub mod agent;
mod audit;
pub mod census;
pub mod crews;
pub mod devices;
mod dumps;
mod early;
mod generations;
pub mod inline;
mod instances;
pub mod jail;
mod launch;
pub mod library;
mod memory;
pub mod outside;
mod places;
mod process;
mod reaper;
mod recover;
pub mod report;
pub mod scale;
pub mod setup;
mod spare;
mod voice;
mod watchdog;
pub mod wiring;

pub use agent::{
    Agent, AgentError, Crash, Event, FlowCount, FlowRow, Levelled, Listed, LoadRow, MoveError,
    MoveFlows, Moved, Recovered, RelinkError, Relinked, RenewError, Renewed, Renewing,
    RestartPolicy, Retired,
};
pub use instances::InstanceReport;
pub use report::{Report, Scaling};
