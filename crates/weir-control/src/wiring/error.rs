//! Why nothing can run.

use super::Unleavable;
use crate::crews::Unscalable;
use std::path::PathBuf;
use weir_capture::{ScanError, WriteError};
use weir_plan::TagsError;

/// Why a plan cannot run with these devices.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// A device is bound to a port that the policy does not have.
    #[error("--bind {port}=...: the policy has no port {port}; it has {has}")]
    NoSuchPort {
        /// The number.
        port: u16,
        /// Those it has.
        has: String,
    },
    /// Packets leave by a port that has no device to send.
    #[error(
        "packets leave by port {port} (`{name}`), which nothing is bound to: add --bind {port}=afp:INTERFACE, --bind {port}=null or --bind {port}=pcap:tx=FILE"
    )]
    Unbound {
        /// The number.
        port: u16,
        /// The policy's name for it.
        name: String,
    },
    /// The same, of a port that has another device.
    #[error(
        "packets leave by port {port} (`{name}`), bound to a device that sends nothing: bind an interface (afp:, tap:), or a capture to read and one to write \
         (--bind {port}=pcap:rx=FILE,tx=FILE), or let them leave by a port of their own"
    )]
    SendsNothing {
        /// The number.
        port: u16,
        /// The policy's name for it.
        name: String,
    },
    /// No port has a device that receives.
    #[error(
        "no packets come in: bind a port that the policy receives by ({ports}) to afp:INTERFACE, pcap:rx=FILE or gen:..."
    )]
    NoInput {
        /// Ports that could receive.
        ports: String,
    },
    /// A capture is read that no edge leads away from, or the other way round.
    #[error("--bind {port}: the policy {what} port {port}")]
    Direction {
        /// The number.
        port: u16,
        /// What is missing in the policy.
        what: &'static str,
    },
    /// Input and output are the same file, or two outputs are.
    #[error("{}: used as output and as something else too; name another file", .0.display())]
    SameFile(PathBuf),
    /// One interface at two ports.
    #[error("--bind {port}: the interface `{name}` is bound to another port already")]
    InterfaceTwice {
        /// The number.
        port: u16,
        /// The interface.
        name: String,
    },
    /// An interface that cannot be used.
    #[error(transparent)]
    Device(#[from] weir_device::DeviceError),
    /// A file that cannot be a capture.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the cure.
        what: &'static str,
    },
    /// An output that cannot be written.
    #[error("{}: it cannot be written: {source}; name a file that this user may write", path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// An output that cannot be written for another reason.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// Why, and the cure.
        source: WriteError,
    },
    /// A capture cannot be looked through.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ScanError,
    },
    /// A capture has no packet that Weir could read.
    #[error("{}: all of its packets are {found}, not Ethernet; capture on an Ethernet interface, or convert it", path.display())]
    LinkType {
        /// The file.
        path: PathBuf,
        /// Its link types.
        found: String,
    },
    /// Filters ask for more of tags than packets can carry.
    #[error(transparent)]
    Tags(#[from] TagsError),
    /// Early drop where nothing is dropped early.
    #[error(
        "--early-drop: nothing that packets come in by is live (afp:INTERFACE, tap:NAME, gen:...,full=drop), so \
         nothing need be dropped: leave it out"
    )]
    NothingLive,
    /// Buffers are divided among the ports that packets come by, and a share is too small.
    #[error(
        "--pool {pool}: worker {worker} copies or makes packets of {shares} ports, each of which needs buffers of its own, lest they \
         wait for each other for ever: {least} buffers at least; --pool {least}, or leave --pool out"
    )]
    FewBuffers {
        /// Buffers of a pool.
        pool: u32,
        /// The worker.
        worker: String,
        /// How many ports.
        shares: u32,
        /// How many buffers would do.
        least: u32,
    },
    /// An NF whose instances cannot become more and fewer.
    #[error("--scale {nf}=...: {why}")]
    Scale {
        /// Its name.
        nf: String,
        /// Why.
        why: Unscalable,
    },
    /// An NF whose flows cannot go on at another instance.
    #[error("--replicate {nf}=...,leave: {why}")]
    Leave {
        /// Its name.
        nf: String,
        /// Why.
        why: Unleavable,
    },
    /// More than the layout can number.
    #[error("{what}: {n} are more than {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        n: usize,
        /// How many there may be.
        most: usize,
    },
}
