//! Devices: where packets come from and where they go.
//!
//! A device service is a worker like any other: it can be killed at any time and goes on where it
//! was. What it needs for that, its [`Place`], is part of the worker's ledger.

mod capture;
mod dropped;
mod error;
mod generator;
mod listed;
mod live;
mod null;
pub mod offload;
mod replay;
mod room;
mod segments;
mod spec;
mod sys;
mod time;

pub use capture::{CaptureRx, CaptureTx};
pub use dropped::DropFile;
pub use error::DeviceError;
pub use generator::Generator;
pub use listed::{Listed, ListedFlow, ListedSpec};
pub use live::{PacketRx, PacketTx, TapRx, TapTx, at_new_socket, check, create_tap, leaves_socket};
pub use live::{lend_packet_socket, longest_packet, retake_packets, retake_tap, unread_packets};
pub use null::Null;
pub use replay::{Replay, ReplaySpec};
pub use room::Room;
pub use segments::http_request;
pub use spec::{DeviceSpec, GeneratorSpec, Rate, SpecError};

#[cfg(feature = "attacks")]
pub use sys::{Reach, reach};

use rustix::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use weir_capture::TimeFormat;
use weir_mem::Arena;
use weir_packet::{Packet, REASONS};

/// Where a device service is in its input or output, as the ledger keeps it: what the words mean is
/// the device's business. All zero is the beginning.
pub type Place = [u64; 6];

/// Packets that a device did not send, by reason.
pub type Dropped = [u64; REASONS];

/// What a call of [`Receive::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There may be more at once.
    More,
    /// Nothing now; look again in so many nanoseconds.
    Later(u64),
    /// There will be nothing more.
    End,
}

/// The receiving half of a device.
pub trait Receive {
    /// Puts packets into `room` until it is full or nothing is there.
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError>;

    /// Packets that the kernel has dropped before they could be received, since this was asked last. The kernel forgets
    /// them with the answer: to be asked directly before the commit.
    fn missed(&mut self) -> u64 {
        0
    }

    /// Where it is after what was received last.
    fn place(&self) -> Place;

    /// The place after what was received last is in the ledger: it can be given up where it came from.
    fn committed(&mut self) {}

    /// Something odd about the input that the operator should know, once at the end.
    fn warning(&self) -> Option<String> {
        None
    }

    /// The next thing that has happened to the device and that the operator should know now.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// The input ends here: no packets are taken any more, but what was missed is counted.
    fn finish(&mut self, _room: &mut Room<'_>) {}

    /// What becomes readable when a packet comes; `None`: nothing does.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waiting for [`Receive::wake_fd`] ended with an error: the next call looks what it is.
    fn trouble(&mut self) {}
}

/// The sending half of a device.
pub trait Send {
    /// Takes in packets, and counts those that it cannot send. Their buffers may be re-used
    /// afterwards.
    fn send(
        &mut self,
        packets: &[Packet],
        arena: &Arena,
        dropped: &mut Dropped,
    ) -> Result<(), DeviceError>;

    /// The next thing that has happened to the device and that the operator should know now.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// Whether it looks at packet bytes at all.
    fn touches(&self) -> bool {
        true
    }

    /// Makes sure that what was sent stays sent should this process die; the place goes into the
    /// ledger.
    fn commit(&mut self) -> Result<Place, DeviceError>;
}

/// Opens the receiving half of `spec`, going on from `place`; `None` when it has none. `lent` is the
/// descriptor of a live device, from [`create_tap`] or [`lend_packet_socket`].
pub fn open_rx(
    spec: &DeviceSpec,
    place: Place,
    lent: Option<OwnedFd>,
) -> Result<Option<Box<dyn Receive>>, DeviceError> {
    Ok(match spec {
        DeviceSpec::Pcap { rx: Some(path), .. } => Some(Box::new(CaptureRx::open(path, place)?)),
        DeviceSpec::Generator(spec) => Some(Box::new(Generator::new(spec, place))),
        DeviceSpec::Listed(spec) => Some(Box::new(Listed::new(spec, place))),
        DeviceSpec::Replay(spec) => Some(Box::new(Replay::new(spec, place))),
        DeviceSpec::Afp(name) => Some(Box::new(PacketRx::open(name, place, lent)?)),
        DeviceSpec::Tap(name) => Some(Box::new(TapRx::new(name, place, lent)?)),
        DeviceSpec::Pcap { rx: None, .. } | DeviceSpec::Null => None,
    })
}

/// How a sending half is to be opened.
#[derive(Debug)]
pub struct TxOptions {
    /// Time stamps of a capture that is begun (place all zero).
    pub time: TimeFormat,
    /// Descriptor of a live device, from [`create_tap`] or [`lend_packet_socket`].
    pub lent: Option<OwnedFd>,
    /// Longest packet that it will be given, in bytes.
    pub longest: u32,
    /// Whether it tells the operator what happens to the interface: not when a receiving half does.
    pub tells: bool,
}

/// Opens the sending half of `spec`, going on from `place`; `None` when it has none.
pub fn open_tx(
    spec: &DeviceSpec,
    place: Place,
    options: TxOptions,
) -> Result<Option<Box<dyn Send>>, DeviceError> {
    let TxOptions { time, lent, longest, tells } = options;
    Ok(match spec {
        DeviceSpec::Pcap { tx: Some(path), .. } => {
            Some(Box::new(CaptureTx::open(Path::new(path), place, time)?))
        }
        DeviceSpec::Null => Some(Box::new(Null)),
        DeviceSpec::Afp(name) => Some(Box::new(PacketTx::open(name, place, lent, longest, tells)?)),
        DeviceSpec::Tap(name) => Some(Box::new(TapTx::new(name, place, lent, tells)?)),
        DeviceSpec::Pcap { tx: None, .. }
        | DeviceSpec::Generator(_)
        | DeviceSpec::Listed(_)
        | DeviceSpec::Replay(_) => None,
    })
}
