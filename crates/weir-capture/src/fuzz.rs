//! What must hold for any bytes at all; the fuzz target's body.

use std::io::Cursor;

use crate::{MAX_CAPTURED, Reader, scan_from};

/// Reads arbitrary bytes as a capture and checks what must always hold: it ends, stays ended, a scan sees the same, and
/// going on from any place gives the rest.
///
/// # Panics
/// When one of these does not hold.
pub fn fuzz_read(data: &[u8]) {
    let mut reader = match Reader::new(Cursor::new(data)) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(scan_from(Cursor::new(data)).is_err());
            return;
        }
    };
    let middle = data.len() as u64 / 2;
    let mut resume_at = reader.position();
    let (mut captured, mut largest) = (0_u64, 0_u32);
    while let Ok(Some(record)) = reader.next() {
        assert!(record.bytes.len() <= MAX_CAPTURED as usize);
        captured += record.bytes.len() as u64;
        largest = largest.max(record.bytes.len() as u32);
        let _ = record.time.to_ns();
        if resume_at.next < middle {
            resume_at = reader.position();
        }
    }
    assert!(matches!(reader.next(), Ok(None)), "an ended reader stays ended");
    let end = reader.position();
    assert!(end.next <= data.len() as u64);
    assert!(
        reader.warning().is_some() || end.next == data.len() as u64,
        "bytes were left without a warning"
    );

    let Ok(summary) = scan_from(Cursor::new(data)) else {
        unreachable!("a scan fails where reading does not");
    };
    assert_eq!(
        (summary.records, summary.captured_bytes, summary.largest),
        (end.records, captured, largest)
    );
    assert_eq!(summary.warning.as_ref(), reader.warning());

    let Ok(mut again) = Reader::resume_from(Cursor::new(data), resume_at) else {
        unreachable!("a position of this very file is refused");
    };
    while let Ok(Some(_)) = again.next() {}
    assert_eq!((again.position(), again.warning()), (end, reader.warning()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fuzz_read;

    /// Words that mean something in one of the formats, so that random files get past the first check.
    fn words() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            Just(0xa1b2_c3d4_u32),
            Just(0xa1b2_3c4d),
            Just(0x0a0d_0d0a),
            Just(0x1a2b_3c4d),
            Just(0x0004_0002),
            Just(1),
            Just(2),
            Just(3),
            Just(6),
            Just(12),
            Just(20),
            Just(28),
            Just(32),
            Just(36),
            Just(0),
            Just(u32::MAX),
            any::<u32>(),
        ];
        prop::collection::vec(word, 0..40)
            .prop_map(|words| words.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    /// A valid section header or file header, then words.
    fn plausible() -> impl Strategy<Value = Vec<u8>> {
        let head = prop_oneof![
            Just([0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]),
            Just([0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1, 0]),
        ];
        (head, words()).prop_map(|(head, words)| {
            head.iter().flat_map(|w| w.to_le_bytes()).chain(words).collect()
        })
    }

    proptest! {
        #[test]
        fn any_bytes_end_cleanly(data in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz_read(&data);
        }

        #[test]
        fn any_meaningful_words_end_cleanly(data in prop_oneof![words(), plausible()]) {
            fuzz_read(&data);
        }
    }
}
