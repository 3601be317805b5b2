//! Cut and changed files: every whole record, one warning, never more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests count as code to clippy.

mod common;

use std::io::Cursor;

use common::{read_all, read_bytes, samples};
use proptest::prelude::*;
use weir_capture::{Fault, Reader, scan_from};

#[test]
fn a_file_cut_at_any_byte_gives_exactly_its_whole_records_and_one_warning() {
    for data in samples() {
        let (whole, _) = read_bytes(&data);
        for cut in 0..data.len() {
            let part = &data[..cut];
            let Ok(mut reader) = Reader::new(Cursor::new(part)) else {
                assert!(cut < 28, "a file with its whole header opens");
                continue;
            };
            let (got, warning) = read_all(&mut reader);
            let expected: Vec<_> =
                whole.iter().filter(|(_, at)| at.next <= cut as u64).cloned().collect();
            assert_eq!(got, expected, "cut at {cut}");
            let end = reader.position();
            match &warning {
                None => assert_eq!(end.next, cut as u64, "a clean end only between two blocks"),
                Some(warning) => {
                    assert_eq!(warning.fault, Fault::Cut, "cut at {cut}");
                    assert_eq!((warning.offset, warning.records), (end.next, got.len() as u64));
                    assert!(end.next < cut as u64);
                }
            }
            let summary = scan_from(Cursor::new(part)).unwrap();
            assert_eq!((summary.records, summary.warning), (got.len() as u64, warning));
        }
    }
}

#[test]
fn reading_on_at_the_place_of_a_warning_gives_the_same_warning() {
    for data in samples() {
        let part = &data[..data.len() - 1];
        let mut reader = Reader::new(Cursor::new(part)).unwrap();
        let (_, warning) = read_all(&mut reader);
        assert!(warning.is_some());
        let mut again = Reader::resume_from(Cursor::new(part), reader.position()).unwrap();
        let (none, same) = read_all(&mut again);
        assert!(none.is_empty());
        assert_eq!(same, warning);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn changed_bytes_never_harm_the_records_before_them(
        which in 0..6_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let data = samples().swap_remove(which);
        let (whole, _) = read_bytes(&data);
        let mut broken = data.clone();
        let mut first = data.len();
        for (index, flip) in changes {
            let at = index.index(broken.len());
            broken[at] ^= flip;
            first = first.min(at);
        }
        if let Some(cut) = cut {
            broken.truncate(cut.index(data.len()));
            first = first.min(broken.len());
        }
        let Ok(mut reader) = Reader::new(Cursor::new(&broken)) else {
            prop_assert!(first < 28);
            return Ok(());
        };
        // Every record before the first change; what follows is anything, but it ends.
        let (got, warning) = read_all(&mut reader);
        let safe = whole.iter().filter(|(_, at)| at.next <= first as u64).count();
        prop_assert!(got.len() >= safe);
        if first >= 28 {
            prop_assert_eq!(&got[..safe], &whole[..safe]);
        }
        // A scan sees the same, and so does going on from every place.
        let summary = scan_from(Cursor::new(&broken)).unwrap();
        prop_assert_eq!((summary.records, &summary.warning), (got.len() as u64, &warning));
        for (index, (_, position)) in got.iter().enumerate() {
            let mut again = Reader::resume_from(Cursor::new(&broken), *position).unwrap();
            prop_assert_eq!(read_all(&mut again), (got[index + 1..].to_vec(), warning.clone()));
        }
    }
}
