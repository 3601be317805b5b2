//! What can go wrong with a device.

use std::path::PathBuf;
use weir_capture::{OpenError, ReadError, ScanError, WriteError};

/// Why a device cannot be opened or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The capture cannot be opened or is not one.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// The capture cannot be looked through.
    #[error("{}: {source}", path.display())]
    Scan {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ScanError,
    },
    /// Reading failed.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// Writing failed.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WriteError,
    },
    /// No packet of the capture is Ethernet.
    #[error(
        "{}: its packets are {found}, and Weir reads Ethernet; \
         convert the capture, or capture on an Ethernet interface", path.display()
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// Link types that it has.
        found: String,
    },
}
