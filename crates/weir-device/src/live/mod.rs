//! Live devices: interfaces of this machine.
//!
//! Everything is opened at the start, and it is the agent that makes and binds sockets, also to an
//! interface that was made again. What a running service does is reading, sending, and asking about the
//! interface by name, which needs no privileges: so the service can give its privileges away.

mod afp;
mod cutter;
mod open;
mod tap;
mod transmit;
mod watch;

pub use afp::{PacketRx, PacketTx, at_new_socket, leaves_socket, unread_packets};
pub use open::{check, create_tap, lend_packet_socket, longest_packet, retake_packets, retake_tap};
pub use tap::{TapRx, TapTx};
