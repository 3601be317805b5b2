//! Live devices: interfaces of this machine.
//!
//! Everything is opened at the start. What a running service does afterwards is reading, sending,
//! asking about the interface by name and binding to it again, which needs no privileges, so that
//! the service can give its privileges away.

mod afp;
mod cutter;
mod open;
mod tap;
mod transmit;
mod watch;

pub use afp::{PacketRx, PacketTx};
pub use open::{check, create_tap, longest_packet, retake_tap};
pub use tap::{TapRx, TapTx};
