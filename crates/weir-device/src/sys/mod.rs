//! The system calls and the shared memory of live devices: what rustix lacks.
//!
//! This is the one place of this crate where `unsafe` is allowed. Everything that it hands out is
//! safe to use: descriptors are owned, lengths are checked here, and what the kernel writes into a
//! shared ring is read only while the kernel has handed it over.
#![allow(unsafe_code, reason = "fenced: system calls and a ring that the kernel writes")]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod interface;
mod packet;
#[cfg(feature = "attacks")]
mod reach;
mod ring;
mod tun;
mod tx_ring;

pub(crate) use interface::{Link, link, set_up};
pub(crate) use packet::{PacketSocket, bind, bound};
#[cfg(feature = "attacks")]
pub use reach::{Reach, reach};
pub(crate) use ring::{Frame, Geometry, Ring};
pub(crate) use tun::{attach, create, is_attached};
pub(crate) use tx_ring::{TxGeometry, TxRing};
