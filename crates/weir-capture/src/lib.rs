//! Reading and writing capture files: pcap and pcapng.
//!
//! Three properties decide the design, and why no library does it (see
//! `docs/decisions/0002-captures.md`):
//!
//! * a record keeps its bytes, its wire length and its *raw* time stamp, odd ones included, so that a
//!   capture that passes through unchanged is written back bit for bit;
//! * a cut or damaged file gives every whole record, then one [`Warning`], then nothing: never an error
//!   without end, never a panic;
//! * a reader and a writer can be rebuilt at any record boundary from a [`Position`], four numbers that fit in
//!   shared memory, so that a killed Rx or Tx service goes on where it stopped.
//!
//! Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reader = weir_capture::Reader::open("in.pcap")?;
//! while let Some(record) = reader.next()? {
//!     println!("{} ns: {} bytes, {}", record.time.to_ns(), record.bytes.len(), record.link);
//! }
//! if let Some(warning) = reader.warning() {
//!     eprintln!("{warning}");
//! }
//! # Ok(())
//! # }
//! ```

mod endian;
mod error;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod input;
mod link;
mod pcap;
mod pcapng;
mod reader;
mod record;
mod scan;
mod time;
mod writer;

pub use error::{Fault, OpenError, ReadError, ScanError, Warning, WriteError};
#[cfg(feature = "fuzz")]
pub use fuzz::fuzz_read;
pub use link::LinkType;
pub use reader::Reader;
pub use record::{FileKind, Interface, Position, Record};
pub use scan::{Summary, scan, scan_from};
pub use time::{Precision, RawTime, Resolution, TimeFormat, Timestamp};
pub use writer::{Format, Storage, Writer, check_writable};

/// The longest captured packet that is read or written, in bytes: libpcap's `MAXIMUM_SNAPLEN`.
///
/// A longer one means that the file is damaged; writing one would make a file that libpcap refuses.
pub const MAX_CAPTURED: u32 = 262_144;

/// The longest pcapng block that is read or skipped, in bytes (16 MiB, libpcap's limit too).
pub const MAX_BLOCK: u32 = 16 * 1024 * 1024;

/// The most interfaces one pcapng section may describe; bounds the memory a hostile file can take.
pub const MAX_INTERFACES: usize = 65_536;
