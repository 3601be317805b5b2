//! Any bytes as a capture file: `weir_capture::fuzz_read` says what must hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use weir_capture::{Reader, fuzz_read};
use weir_fuzz::planted;

fuzz_target!(|data: &[u8]| {
    fuzz_read(data);
    if cfg!(feature = "planted")
        && let Ok(mut reader) = Reader::new(Cursor::new(data))
    {
        while let Ok(Some(record)) = reader.next() {
            planted(record.bytes.len() == 5);
        }
    }
});
