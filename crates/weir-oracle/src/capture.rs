//! Captures as inputs.

use std::path::Path;

use weir_capture::{OpenError, Reader, Warning};

use crate::Input;

/// All whole records of a capture, as received by `port`, and why there are no more if the file is
/// not whole.
///
/// # Errors
/// [`OpenError`] when the file cannot be read or is no capture.
pub fn read_capture(path: &Path, port: u16) -> Result<(Vec<Input>, Option<Warning>), OpenError> {
    let mut reader = Reader::open(path)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next().map_err(|e| OpenError::Io(e.source))? {
        records.push(Input {
            port,
            bytes: record.bytes.to_vec(),
            wire_len: record.wire_len,
            time: record.time,
            link: record.link,
        });
    }
    Ok((records, reader.warning().cloned()))
}
