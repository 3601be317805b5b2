//! What is written reads back the same, and what is committed stays.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests count as code to clippy.

mod common;

use std::io;

use common::{Owned, read_all, read_bytes, rich_pcap, temporary};
use proptest::prelude::*;
use weir_capture::{
    Format, LinkType, MAX_CAPTURED, Position, Precision, RawTime, Reader, Record, Resolution,
    Storage, TimeFormat, Timestamp, WriteError, Writer, check_writable,
};

/// A file in memory that has a limited size.
#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    limit: usize,
}

impl Storage for Disk {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = offset as usize;
        self.bytes.resize(self.bytes.len().max(offset), 0);
        let fits = bytes.len().min(self.limit - offset);
        let end = self.bytes.len().min(offset + fits);
        self.bytes.splice(offset..end, bytes[..fits].iter().copied());
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.bytes.resize(len as usize, 0);
        Ok(())
    }
}

fn disk() -> Disk {
    Disk { bytes: Vec::new(), limit: usize::MAX }
}

fn micros(raw: u64) -> Timestamp {
    Timestamp { raw: RawTime(raw), format: TimeFormat::PcapMicros }
}

fn ethernet(bytes: &[u8], time: Timestamp) -> Record<'_> {
    Record {
        bytes,
        wire_len: bytes.len() as u32,
        time,
        link: LinkType::ETHERNET,
        interface: 0,
        comment: None,
    }
}

const PCAP: Format = Format::Pcap { precision: Precision::Micros, link: LinkType::ETHERNET };

fn write(format: Format, records: &[Owned]) -> Vec<u8> {
    let mut writer = Writer::new(disk(), format).unwrap();
    for record in records {
        writer.append(&record.as_record()).unwrap();
    }
    writer.commit().unwrap();
    writer.into_storage().bytes
}

#[test]
fn interfaces_that_were_described_keep_their_names_and_numbers_over_a_reopening() {
    let path = temporary("described.pcapng");
    let mut writer = Writer::create(&path, Format::Pcapng).unwrap();
    for (i, name) in (0..).zip(["lan", "a longer name", ""]) {
        let id = writer.describe(LinkType::ETHERNET, Resolution::NANOS, name).unwrap();
        assert_eq!(id, i);
    }
    let record = |comment| Record { comment: Some(comment), ..ethernet(b"bytes", micros(7)) };
    // Lengths of comments with each padding.
    writer.append_to(1, &record(b"filtered")).unwrap();
    writer.append_to(0, &record(b"policy by x")).unwrap();
    let committed = writer.commit().unwrap();
    writer.append_to(2, &record(b"not committed")).unwrap();
    drop(writer);
    let mut writer = Writer::reopen(&path, committed).unwrap();
    writer.append_to(2, &record(b"x")).unwrap();
    assert!(matches!(writer.append_to(3, &record(b"")), Err(WriteError::NoInterface(3))));
    writer.commit().unwrap();

    let mut reader = Reader::open(&path).unwrap();
    let mut seen = Vec::new();
    while let Some(r) = reader.next().unwrap() {
        seen.push((r.interface, r.comment.unwrap().to_vec(), r.time.to_ns()));
    }
    assert!(reader.warning().is_none());
    let want: [(u32, &[u8]); 3] = [(1, b"filtered"), (0, b"policy by x"), (2, b"x")];
    assert_eq!(seen, want.map(|(i, c)| (i, c.to_vec(), micros(7).to_ns())));
    // Option 2 (if_name), its length, the name padded to four bytes: draft-ietf-opsawg-pcapng, 4.2.
    let bytes = std::fs::read(&path).unwrap();
    let has = |what: &[u8]| bytes.windows(what.len()).any(|w| w == what);
    assert!(has(b"\x02\0\x03\0lan\0") && has(b"\x02\0\x0d\0a longer name\0\0\0"));
    let mut pcap = Writer::new(disk(), PCAP).unwrap();
    let refused = pcap.describe(LinkType::ETHERNET, Resolution::NANOS, "lan");
    assert!(matches!(refused, Err(WriteError::NoInterface(_))));
}

#[test]
fn a_little_endian_pcap_is_written_back_byte_for_byte_behind_its_header() {
    for nanos in [false, true] {
        let source = rich_pcap(false, nanos);
        let (records, _) = read_bytes(&source);
        let records: Vec<_> = records.into_iter().map(|(record, _)| record).collect();
        let precision = if nanos { Precision::Nanos } else { Precision::Micros };
        let written = write(Format::Pcap { precision, link: LinkType::ETHERNET }, &records);
        assert_eq!(written[24..], source[24..]);
        assert_eq!(
            written[16..20],
            MAX_CAPTURED.to_le_bytes(),
            "the snap length holds the largest record"
        );
    }
}

fn owned(formats: impl Strategy<Value = TimeFormat>) -> impl Strategy<Value = Owned> {
    let bytes = prop::collection::vec(any::<u8>(), 0..100);
    let comment = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    (bytes, any::<u32>(), any::<u64>(), formats, 0..4_u32, comment).prop_map(
        |(bytes, wire_len, raw, format, link, comment)| Owned {
            bytes,
            wire_len,
            time: Timestamp { raw: RawTime(raw), format },
            link: LinkType(link),
            comment,
        },
    )
}

fn units() -> impl Strategy<Value = TimeFormat> {
    let resolution = prop_oneof![Just((6, 0)), Just((9, 0)), (any::<u8>(), any::<i64>())];
    resolution.prop_map(|(tsresol, offset)| TimeFormat::Units(Resolution { tsresol, offset }))
}

proptest! {
    #[test]
    fn pcapng_gives_back_any_record_of_any_unit_and_link_type(records in prop::collection::vec(owned(units()), 0..30)) {
        let (read, warning) = read_bytes(&write(Format::Pcapng, &records));
        prop_assert_eq!(warning, None);
        prop_assert_eq!(read.into_iter().map(|(record, _)| record).collect::<Vec<_>>(), records);
    }

    #[test]
    fn pcap_gives_back_any_record_of_its_precision(
        records in prop::collection::vec(owned(Just(TimeFormat::PcapNanos)), 0..30),
    ) {
        let link = LinkType::RAW;
        let records: Vec<_> = records.into_iter().map(|r| Owned { link, comment: None, ..r }).collect();
        let (read, warning) = read_bytes(&write(Format::Pcap { precision: Precision::Nanos, link }, &records));
        prop_assert_eq!(warning, None);
        prop_assert_eq!(read.into_iter().map(|(record, _)| record).collect::<Vec<_>>(), records);
    }

    #[test]
    fn commits_and_reopenings_at_any_place_change_no_byte(
        records in prop::collection::vec(owned(units()), 1..20),
        actions in prop::collection::vec(0..4_u8, 20),
    ) {
        let path = temporary("reopen.pcapng");
        let mut writer = Writer::create(&path, Format::Pcapng).unwrap();
        let mut next = 0;
        let mut actions = actions.into_iter();
        while next < records.len() {
            writer.append(&records[next].as_record()).unwrap();
            next += 1;
            match actions.next() {
                Some(0) => { writer.commit().unwrap(); }
                Some(1) => {
                    // Killed: what was pending is lost, and half a record may stand in the file.
                    let committed = writer.committed();
                    drop(writer);
                    use std::io::Write;
                    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&[6, 0, 0, 0, 99]).unwrap();
                    writer = Writer::reopen(&path, committed).unwrap();
                    next = committed.records as usize;
                }
                _ => {}
            }
        }
        let end = writer.commit().unwrap();
        prop_assert_eq!(end.records, records.len() as u64);
        let file = std::fs::read(&path).unwrap();
        prop_assert_eq!(end.next, file.len() as u64);
        prop_assert_eq!(file, write(Format::Pcapng, &records));
    }
}

#[test]
fn pcap_time_stamps_become_units_of_the_same_size_in_pcapng() {
    let record = Owned::of(&ethernet(b"x", micros(RawTime::from_fields(10, 2_500_000).0)));
    let (read, _) = read_bytes(&write(Format::Pcapng, &[record]));
    let time = read[0].0.time;
    assert_eq!(
        (time.raw, time.format),
        (RawTime(12_500_000), TimeFormat::Units(Resolution::MICROS))
    );
}

#[test]
fn a_pcap_is_cut_to_the_last_commit_when_it_is_reopened() {
    let path = temporary("reopen.pcap");
    let mut writer = Writer::create(&path, PCAP).unwrap();
    writer.append(&ethernet(b"one", micros(1))).unwrap();
    let committed = writer.commit().unwrap();
    assert_eq!((committed.next, committed.records), (24 + 16 + 3, 1));
    writer.append(&ethernet(b"two", micros(2))).unwrap();
    writer.commit().unwrap();
    drop(writer);

    let mut writer = Writer::reopen(&path, committed).unwrap();
    assert_eq!((writer.format(), writer.committed()), (PCAP, committed));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), committed.next);
    writer.append(&ethernet(b"three", micros(3))).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().len(),
        committed.next,
        "nothing is written before the commit"
    );
    assert_eq!(writer.commit().unwrap().records, 2);
    let (read, warning) = read_all(&mut Reader::open(&path).unwrap());
    assert_eq!(warning, None);
    assert_eq!(
        read.iter().map(|(r, _)| r.bytes.as_slice()).collect::<Vec<_>>(),
        [&b"one"[..], b"three"]
    );
}

#[test]
fn a_writer_reopened_at_the_zero_position_keeps_only_the_header() {
    for (name, format) in [("zero.pcap", PCAP), ("zero.pcapng", Format::Pcapng)] {
        let path = temporary(name);
        let mut writer = Writer::create(&path, format).unwrap();
        let header = writer.committed();
        writer.append(&ethernet(b"gone", micros(1))).unwrap();
        writer.commit().unwrap();
        drop(writer);
        let writer = Writer::reopen(&path, Position::default()).unwrap();
        assert_eq!(writer.committed(), header);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), header.next);
    }
}

#[test]
fn a_file_has_one_writer_at_a_time_and_who_comes_second_changes_nothing() {
    let path = temporary("twice.pcap");
    let mut first = Writer::create(&path, PCAP).unwrap();
    first.append(&ethernet(b"first", micros(1))).unwrap();
    let committed = first.commit().unwrap();
    assert!(matches!(Writer::create(&path, PCAP), Err(WriteError::InUse)));
    assert!(matches!(Writer::reopen(&path, committed), Err(WriteError::InUse)));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), committed.next);
    drop(first);
    Writer::create(&path, PCAP).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 24);
    // Who throws packets away needs no turn.
    let both = ["/dev/null"; 2].map(|path| Writer::create(path, PCAP).unwrap());
    drop(both);
}

#[test]
fn whether_a_file_can_be_written_is_found_out_without_changing_it() {
    let path = temporary("could.pcap");
    let _ = std::fs::remove_file(&path);
    check_writable(&path).unwrap();
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    check_writable(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let writer = Writer::create(&path, PCAP).unwrap();
    assert!(matches!(check_writable(&path), Err(WriteError::InUse)));
    drop(writer);
    check_writable(&path).unwrap();
    // Nobody, not even root, makes files there; and no file has a name so long.
    for nowhere in ["/proc/none.pcap".to_owned(), format!("/tmp/{}", "n".repeat(300))] {
        assert!(matches!(check_writable(&nowhere), Err(WriteError::Io(_))), "{nowhere}");
    }
}

#[test]
fn a_file_that_is_shorter_or_foreign_is_not_reopened_and_not_changed() {
    let path = temporary("foreign.pcap");
    std::fs::write(&path, rich_pcap(true, false)).unwrap();
    assert!(matches!(Writer::reopen(&path, Position::default()), Err(WriteError::Foreign)));
    let beyond = Position { next: 4096, ..Position::default() };
    assert!(matches!(Writer::reopen(&path, beyond), Err(WriteError::Reopen(_))));
    assert_eq!(std::fs::read(&path).unwrap(), rich_pcap(true, false));
}

#[test]
fn a_full_disk_is_a_typed_error_that_loses_nothing_and_can_be_retried() {
    let mut writer = Writer::new(Disk { limit: 60, ..disk() }, PCAP).unwrap();
    writer.append(&ethernet(b"fits", micros(1))).unwrap();
    let good = writer.commit().unwrap();
    writer.append(&ethernet(b"does not fit", micros(2))).unwrap();
    for _ in 0..2 {
        match writer.commit() {
            Err(WriteError::DiskFull { committed }) => assert_eq!(committed, good.next),
            other => panic!("{other:?}"),
        }
        assert_eq!(writer.committed(), good);
    }
    let pending = writer.pending_bytes();
    assert_eq!(pending, 16 + 12);
    let file = writer.into_storage().bytes;
    let (read, warning) = read_bytes(&file);
    assert_eq!((read.len(), warning), (1, None), "the half written record was cut off");
}

/// A file that may not be longer than a header.
struct Short;

impl Storage for Short {
    fn write_all_at(&mut self, _: &[u8], offset: u64) -> io::Result<()> {
        if offset == 0 { Ok(()) } else { Err(io::ErrorKind::FileTooLarge.into()) }
    }

    fn set_len(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_limit_on_the_files_size_is_an_error_of_its_own() {
    let mut writer = Writer::new(Short, PCAP).unwrap();
    writer.append(&ethernet(b"too much", micros(1))).unwrap();
    let refused = writer.commit().unwrap_err();
    assert!(matches!(refused, WriteError::FileTooLarge { committed: 24 }), "{refused}");
    assert!(refused.to_string().contains("ulimit -f"), "{refused}");
}

#[test]
fn the_systems_own_full_device_is_recognised() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("skipped: no /dev/full");
        return;
    }
    assert!(matches!(
        Writer::create("/dev/full", PCAP),
        Err(WriteError::DiskFull { committed: 0 })
    ));
}

#[test]
fn records_that_do_not_fit_the_format_are_refused_and_nothing_is_added() {
    let mut pcap = Writer::new(disk(), PCAP).unwrap();
    let mut pcapng = Writer::new(disk(), Format::Pcapng).unwrap();
    let sll = Record { link: LinkType::LINUX_SLL, ..ethernet(b"x", micros(0)) };
    let long = vec![0; MAX_CAPTURED as usize + 1];
    let comment = vec![b'c'; 65_536];
    let noted = Record { comment: Some(&comment), ..sll };
    assert!(matches!(pcap.append(&sll), Err(WriteError::LinkType { .. })));
    assert!(matches!(pcap.append(&ethernet(&long, micros(0))), Err(WriteError::TooLong(262_145))));
    assert!(matches!(pcapng.append(&noted), Err(WriteError::CommentTooLong(65_536))));
    assert!(matches!(
        pcapng.append(&Record { link: LinkType(65_536), ..sll }),
        Err(WriteError::LinkTypeTooLarge(_))
    ));
    assert_eq!((pcap.pending_bytes(), pcapng.pending_bytes()), (0, 0));
    pcapng.append(&Record { comment: Some(&comment[1..]), bytes: &long[1..], ..sll }).unwrap();
    pcapng.commit().unwrap();
    let (read, warning) = read_bytes(&pcapng.into_storage().bytes);
    assert_eq!(warning, None);
    assert_eq!(read[0].0.bytes.len(), MAX_CAPTURED as usize);
    assert_eq!(read[0].0.comment.as_deref(), Some(&comment[1..]));
}

#[test]
fn the_format_follows_the_files_name_and_the_sources_precision() {
    let pick = |path, time| Format::for_path(path, time, LinkType::ETHERNET);
    let nanos = TimeFormat::Units(Resolution::NANOS);
    assert_eq!(pick("a.pcapng", nanos), Format::Pcapng);
    assert_eq!(pick("dir.pcapng/a.PCAPNG", nanos), Format::Pcapng);
    assert_eq!(pick("a.pcap", TimeFormat::PcapMicros), PCAP);
    assert_eq!(pick("a", TimeFormat::Units(Resolution::MICROS)), PCAP);
    assert_eq!(
        pick("a.pcap", nanos),
        Format::Pcap { precision: Precision::Nanos, link: LinkType::ETHERNET }
    );
}
