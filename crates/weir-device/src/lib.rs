//! Devices: where packets come from and where they go.
//!
//! A device service is a worker like any other: it can be killed at any time and goes on where it
//! was. What it needs for that, its [`Place`], is part of the worker's ledger.

mod capture;
mod error;
mod generator;
mod null;
mod room;
mod spec;
mod time;

pub use capture::{CaptureRx, CaptureTx};
pub use error::DeviceError;
pub use generator::Generator;
pub use null::Null;
pub use room::Room;
pub use spec::{DeviceSpec, GeneratorSpec, Rate, SpecError};

use std::path::Path;
use weir_capture::TimeFormat;
use weir_mem::Arena;
use weir_packet::Packet;

/// Where a device service is in its input or output, as the ledger keeps it: what the words mean is
/// the device's business. All zero is the beginning.
pub type Place = [u64; 6];

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

    /// Where it is after what was received last.
    fn place(&self) -> Place;

    /// Something odd about the input that the operator should know, once at the end.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// The sending half of a device.
pub trait Send {
    /// Takes in packets. Their buffers may be re-used afterwards.
    fn send(&mut self, packets: &[Packet], arena: &Arena) -> Result<(), DeviceError>;

    /// Whether it looks at packet bytes at all.
    fn touches(&self) -> bool {
        true
    }

    /// Makes sure that what was sent stays sent should this process die; the place goes into the
    /// ledger.
    fn commit(&mut self) -> Result<Place, DeviceError>;
}

/// Opens the receiving half of `spec`, going on from `place`; `None` when it has none.
pub fn open_rx(spec: &DeviceSpec, place: Place) -> Result<Option<Box<dyn Receive>>, DeviceError> {
    Ok(match spec {
        DeviceSpec::Pcap { rx: Some(path), .. } => Some(Box::new(CaptureRx::open(path, place)?)),
        DeviceSpec::Generator(spec) => Some(Box::new(Generator::new(spec, place))),
        DeviceSpec::Pcap { rx: None, .. } | DeviceSpec::Null => None,
    })
}

/// Opens the sending half of `spec`, going on from `place`; `None` when it has none. A capture
/// that is begun (place all zero) is written with time stamps of `time`.
pub fn open_tx(
    spec: &DeviceSpec,
    place: Place,
    time: TimeFormat,
) -> Result<Option<Box<dyn Send>>, DeviceError> {
    Ok(match spec {
        DeviceSpec::Pcap { tx: Some(path), .. } => {
            Some(Box::new(CaptureTx::open(Path::new(path), place, time)?))
        }
        DeviceSpec::Null => Some(Box::new(Null)),
        DeviceSpec::Pcap { tx: None, .. } | DeviceSpec::Generator(_) => None,
    })
}
