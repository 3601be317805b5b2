//! A reader rebuilt from a position goes on exactly there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests count as code to clippy.

mod common;

use std::io::Cursor;

use common::{read_all, read_bytes, rich_pcap, rich_pcapng, samples};
use proptest::prelude::*;
use weir_capture::{OpenError, Position, Reader};

#[test]
fn reading_from_every_position_equals_reading_on() {
    for data in samples() {
        let (whole, warning) = read_bytes(&data);
        let start = Reader::new(Cursor::new(&data)).unwrap().position();
        let positions = std::iter::once(start).chain(whole.iter().map(|(_, at)| *at));
        for (index, position) in positions.enumerate() {
            assert_eq!(position.records, index as u64);
            let mut again = Reader::resume_from(Cursor::new(&data), position).unwrap();
            assert_eq!(again.position(), position);
            assert_eq!(read_all(&mut again), (whole[index..].to_vec(), warning.clone()));
        }
    }
}

#[test]
fn the_zero_position_is_the_beginning() {
    for data in samples() {
        let mut reader = Reader::resume_from(Cursor::new(&data), Position::default()).unwrap();
        assert_eq!(read_all(&mut reader), read_bytes(&data));
    }
}

#[test]
fn a_position_of_another_file_is_refused() {
    let pcapng = rich_pcapng(false);
    let (records, _) = read_bytes(&pcapng);
    let last = records.last().unwrap().1;
    let refused = |data: &[u8], position| {
        let result = Reader::resume_from(Cursor::new(data.to_vec()), position);
        assert!(result.is_err(), "{position:?} was accepted");
    };
    refused(&rich_pcap(false, false), last);
    refused(&pcapng[..pcapng.len() - 1], last);
    refused(&pcapng, Position { next: u64::MAX, ..last });
    refused(&pcapng, Position { section: 0, ..last });
    refused(&pcapng, Position { interfaces_end: last.interfaces_end - 4, ..last });
    refused(&pcapng, Position { next: last.section, ..last });
    let shorter = Reader::resume_from(
        Cursor::new(rich_pcap(false, false)),
        Position { next: 1 << 40, ..Position::default() },
    );
    assert!(matches!(shorter, Err(OpenError::BadPosition { next, .. }) if next == 1 << 40));
}

#[test]
fn a_capture_inside_a_packet_is_not_taken_for_the_file() {
    let inner = rich_pcap(false, false);
    let mut outer = common::Build::new(false);
    outer.pcap_header(false, 1).pcap_record(1, 2, 3, &inner);
    let header_end = 24 + 16 + 24;
    let position =
        Position { section: 24 + 16, interfaces_end: header_end, next: header_end, records: 0 };
    let result = Reader::resume_from(Cursor::new(&outer.bytes), position);
    assert!(matches!(result, Err(OpenError::BadPosition { .. })));
}

proptest! {
    #[test]
    fn any_position_is_refused_or_read_to_an_end(
        which in 0..6_usize, section in 0..400_u64, interfaces_end in 0..400_u64, next in 0..600_u64,
    ) {
        let position = Position { section, interfaces_end, next, records: 1 };
        if let Ok(mut reader) = Reader::resume_from(Cursor::new(samples().swap_remove(which)), position) {
            read_all(&mut reader);
        }
    }
}
