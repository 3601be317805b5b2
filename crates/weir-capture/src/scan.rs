//! A quick pass over a capture, to size buffers and to show progress.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use crate::error::{ScanError, Warning};
use crate::record::{FileKind, Payload};
use crate::{LinkType, OpenError, Reader, TimeFormat};

/// What a capture holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The format.
    pub kind: FileKind,
    /// Length of the file in bytes; with [`crate::Position::next`] it gives the progress.
    pub file_bytes: u64,
    /// Number of whole records.
    pub records: u64,
    /// Captured bytes of all records together.
    pub captured_bytes: u64,
    /// Captured bytes of the largest record.
    pub largest: u32,
    /// Records of each link type.
    pub link_types: BTreeMap<LinkType, u64>,
    /// Records of each time format; more than one only in pcapng.
    pub time_formats: BTreeMap<TimeFormat, u64>,
    /// Why the file ends early, if it does.
    pub warning: Option<Warning>,
}

/// Summarises a capture file from its headers; packet bytes are passed over.
///
/// # Errors
/// [`ScanError`] when it cannot be opened or the system fails; a damaged file is no error, see [`Summary::warning`].
pub fn scan(path: impl AsRef<Path>) -> Result<Summary, ScanError> {
    scan_from(File::open(path).map_err(OpenError::Io)?)
}

/// As [`scan`], from anything that can seek.
///
/// # Errors
/// As [`scan`].
pub fn scan_from<R: Read + Seek>(mut inner: R) -> Result<Summary, ScanError> {
    let file_bytes = inner.seek(std::io::SeekFrom::End(0)).map_err(OpenError::Io)?;
    inner.rewind().map_err(OpenError::Io)?;
    let mut reader = Reader::new(inner)?;
    let mut summary = Summary {
        kind: reader.kind(),
        file_bytes,
        records: 0,
        captured_bytes: 0,
        largest: 0,
        link_types: BTreeMap::new(),
        time_formats: BTreeMap::new(),
        warning: None,
    };
    while let Some(frame) = reader.advance(Payload::Skip)? {
        summary.captured_bytes = summary.captured_bytes.saturating_add(u64::from(frame.captured));
        summary.largest = summary.largest.max(frame.captured);
        let count = summary.link_types.entry(frame.interface.link).or_default();
        *count = count.saturating_add(1);
        let count = summary.time_formats.entry(frame.interface.time).or_default();
        *count = count.saturating_add(1);
    }
    summary.records = reader.position().records;
    summary.warning = reader.warning().cloned();
    Ok(summary)
}
