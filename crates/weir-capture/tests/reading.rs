//! What a reader makes of every variant of both formats.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests count as code to clippy.

mod common;

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use common::{Build, Owned, read_bytes, rich_pcap, rich_pcapng};
use weir_capture::{
    Fault, FileKind, LinkType, MAX_BLOCK, OpenError, RawTime, Reader, Resolution, TimeFormat,
    Warning, scan_from,
};

const BOTH_ORDERS: [bool; 2] = [false, true];

fn records(data: &[u8]) -> Vec<Owned> {
    let (all, warning) = read_bytes(data);
    assert_eq!(warning, None);
    all.into_iter().map(|(record, _)| record).collect()
}

#[test]
fn pcap_of_both_byte_orders_and_precisions_keeps_every_field() {
    for big in BOTH_ORDERS {
        for (nanos, format, ns) in [
            (false, TimeFormat::PcapMicros, 1_000_002_000),
            (true, TimeFormat::PcapNanos, 1_000_000_002),
        ] {
            let all = records(&rich_pcap(big, nanos));
            assert_eq!(all.len(), 3);
            assert_eq!((all[0].bytes.as_slice(), all[0].wire_len), (&b"abc"[..], 3));
            assert_eq!((all[0].time.raw, all[0].time.format), (RawTime::from_fields(1, 2), format));
            assert_eq!(all[0].time.to_ns(), ns);
            assert_eq!(
                all[1].time.raw,
                RawTime(u64::MAX),
                "an odd sub-second field is not rejected"
            );
            assert_eq!((all[2].bytes.len(), all[2].wire_len), (61, 1500));
            assert!(all.iter().all(|r| r.link.is_ethernet()));
        }
    }
}

#[test]
fn pcapng_takes_link_type_and_time_unit_from_each_packets_interface() {
    for big in BOTH_ORDERS {
        let all = records(&rich_pcapng(big));
        let units = |tsresol, offset| TimeFormat::Units(Resolution { tsresol, offset });
        let seen: Vec<_> = all
            .iter()
            .map(|r| (r.bytes.as_slice(), r.link.0, r.time.format, r.time.raw.0))
            .collect();
        assert_eq!(
            seen,
            [
                (&b"first packet"[..], 1, units(6, 0), 1_700_000_000_000_000),
                (b"longer than the wire", 113, units(9, 3), u64::MAX),
                (b"obsolete!", 101, units(0x80 | 20, 0), 1 << 20),
                (b"simple", 1, units(6, 0), 0),
                (b"four", 1, units(3, 0), 0),
                (b"", 1, units(3, 0), 7),
            ]
        );
        assert_eq!(all[0].time.to_ns(), 1_700_000_000_000_000_000);
        assert_eq!(all[2].time.to_ns(), 1_000_000_000);
        assert_eq!(all[4].wire_len, 100, "a simple packet is cut to the interface's snap length");
        assert_eq!(all[1].comment.as_deref(), Some(&b"dropped: too long"[..]));
        assert_eq!(all[0].comment, None);
    }
}

#[test]
fn a_scan_counts_without_reading_the_packets() {
    for data in common::samples() {
        let summary = scan_from(Cursor::new(&data)).unwrap();
        let all = records(&data);
        assert_eq!(summary.file_bytes, data.len() as u64);
        assert_eq!(summary.records, all.len() as u64);
        assert_eq!(summary.captured_bytes, all.iter().map(|r| r.bytes.len() as u64).sum::<u64>());
        assert_eq!(summary.largest as usize, all.iter().map(|r| r.bytes.len()).max().unwrap());
        assert_eq!(summary.link_types.values().sum::<u64>(), summary.records);
        assert_eq!(summary.time_formats.values().sum::<u64>(), summary.records);
    }
    let mixed = scan_from(Cursor::new(rich_pcapng(false))).unwrap();
    assert_eq!(mixed.kind, FileKind::Pcapng);
    assert_eq!(
        mixed.link_types.into_iter().collect::<Vec<_>>(),
        [(LinkType::ETHERNET, 4), (LinkType::RAW, 1), (LinkType::LINUX_SLL, 1)]
    );
}

#[test]
fn a_capture_without_packets_ends_cleanly() {
    let mut pcap = Build::new(false);
    pcap.pcap_header(false, 1);
    let mut pcapng = Build::new(true);
    pcapng.section();
    for data in [pcap.bytes, pcapng.bytes] {
        assert!(records(&data).is_empty());
    }
}

#[test]
fn what_is_no_capture_is_refused_by_name() {
    let open = |data: &[u8]| Reader::new(Cursor::new(data.to_vec())).map(|_| ()).unwrap_err();
    assert!(matches!(open(b""), OpenError::Empty));
    assert!(matches!(open(b"\xd4\xc3"), OpenError::HeaderCut));
    assert!(matches!(open(b"\xd4\xc3\xb2\xa1\x02\x00"), OpenError::HeaderCut));
    assert!(matches!(open(b"\x0a\x0d\x0d\x0a\x1c\x00"), OpenError::HeaderCut));
    assert!(matches!(open(b"#!/bin/sh\n"), OpenError::NotACapture(0x2321_2f62)));
    assert!(open(&[0x34, 0xcd, 0xb2, 0xa1, 2, 0, 4, 0]).to_string().contains("Kuznetzov"));
    assert!(open(&[0xa1, 0xb2, 0xcd, 0x34, 0, 2, 0, 4]).to_string().contains("Kuznetzov"));
    assert!(open(&[0x1f, 0x8b, 8, 0]).to_string().contains("gunzip"));
    let mut old = Build::new(false);
    old.u32(0xa1b2_c3d4).u16(2).u16(2).raw(&[0; 16]);
    assert!(matches!(open(&old.bytes), OpenError::Version { major: 2, minor: 2 }));
    let mut newer = Build::new(true);
    newer.block(0x0a0d_0d0a, |b| {
        b.u32(0x1a2b_3c4d).u16(2).u16(0).u64(0);
    });
    assert!(matches!(open(&newer.bytes), OpenError::Version { major: 2, minor: 0 }));
    let mut markless = Build::new(true);
    markless.block(0x0a0d_0d0a, |b| {
        b.u32(0x1a2b_3c4e).u16(1).u16(0).u64(0);
    });
    assert!(matches!(open(&markless.bytes), OpenError::Header(Fault::ByteOrder(0x1a2b_3c4e))));
}

/// The fault behind one good packet, and that the good one was given.
fn fault_behind(build: impl FnOnce(&mut Build)) -> Fault {
    let mut b = Build::new(false);
    b.section().interface(1, 0, None, None).enhanced(0, 1, 4, b"good", None);
    let offset = b.bytes.len() as u64;
    build(&mut b);
    b.enhanced(0, 2, 5, b"never", None);
    let (all, warning) = read_bytes(&b.bytes);
    assert_eq!(all.len(), 1);
    assert_eq!(scan_from(Cursor::new(&b.bytes)).unwrap().warning, warning);
    let Warning { offset: at, records, fault } = warning.expect("a warning");
    assert_eq!((at, records), (offset, 1));
    fault
}

#[test]
fn each_kind_of_damage_gives_its_own_warning_at_its_offset() {
    let word = |kind: u32, length: u32| {
        move |b: &mut Build| {
            b.u32(kind).u32(length).u32(0).u32(0).u32(0).u32(0).u32(0);
        }
    };
    assert_eq!(fault_behind(word(6, 8)), Fault::BlockLength(8));
    assert_eq!(fault_behind(word(6, 33)), Fault::BlockLength(33));
    assert_eq!(fault_behind(word(99, 0x7fff_fffc)), Fault::BlockTooLong(0x7fff_fffc));
    assert_eq!(
        fault_behind(word(99, MAX_BLOCK)),
        Fault::Cut,
        "the longest allowed block is only cut"
    );
    assert_eq!(fault_behind(word(99, 16)), Fault::Trailer { before: 16, after: 0 });
    assert_eq!(fault_behind(word(6, 28)), Fault::BlockTooShort(6));
    assert_eq!(fault_behind(word(1, 16)), Fault::Trailer { before: 16, after: 0 });
    assert_eq!(
        fault_behind(|b| {
            b.block(6, |b| {
                b.u32(0).u32(0).u32(0).u32(9).u32(9).raw(&[0; 8]);
            });
        }),
        Fault::BlockTooShort(6)
    );
    assert_eq!(
        fault_behind(|b| {
            b.block(6, |b| {
                b.u32(0).u32(0).u32(0).u32(262_145).u32(9).raw(&[0; 8]);
            });
        }),
        Fault::CapturedTooLong(262_145)
    );
    assert_eq!(
        fault_behind(|b| {
            b.enhanced(1, 0, 1, b"x", None);
        }),
        Fault::NoInterface(1)
    );
}

#[test]
fn a_new_section_forgets_the_interfaces_of_the_one_before() {
    let mut b = Build::new(false);
    b.section().interface(1, 0, None, None).simple(4, b"good").section();
    let offset = b.bytes.len() as u64;
    b.simple(1, b"x");
    let (all, warning) = read_bytes(&b.bytes);
    assert_eq!(all.len(), 1);
    assert_eq!(warning, Some(Warning { offset, records: 1, fault: Fault::NoInterface(0) }));
}

#[test]
fn a_warning_says_where_what_and_how_to_cure_it() {
    let mut b = Build::new(false);
    b.pcap_header(false, 1).pcap_record(1, 2, 3, b"abc").u32(0).u32(0).u32(0xffff_ffff).u32(0);
    let (_, warning) = read_bytes(&b.bytes);
    let text = warning.expect("a warning").to_string();
    assert!(
        text.contains("byte 43") && text.contains("4294967295") && text.contains("the 1 packets"),
        "{text}"
    );
    assert!(text.contains("pcapfix"), "{text}");
}

#[test]
fn a_block_of_sixteen_mebibytes_is_passed_over_and_a_packet_of_the_largest_size_is_read() {
    let mut b = Build::new(true);
    b.section().interface(1, 0, None, None);
    b.block(0x7777, |b| b.bytes.resize(MAX_BLOCK as usize - 12, 1));
    b.enhanced(0, 1, 262_144, &vec![5; 262_144], None).enhanced(0, 2, 3, b"end", None);
    let all = records(&b.bytes);
    assert_eq!(all.iter().map(|r| r.bytes.len()).collect::<Vec<_>>(), [262_144, 3]);
    assert!(all[0].bytes.iter().all(|&byte| byte == 5));
    assert_eq!(all[1].bytes, b"end");
}

#[test]
fn the_limit_of_captured_bytes_is_the_same_in_pcap() {
    let mut b = Build::new(false);
    b.pcap_header(false, 1);
    b.pcap_record(1, 0, 262_144, &vec![5; 262_144]);
    let offset = b.bytes.len() as u64;
    b.pcap_record(2, 0, 262_145, &vec![5; 262_145]);
    let (all, warning) = read_bytes(&b.bytes);
    assert_eq!(all.len(), 1);
    let fault = Fault::CapturedTooLong(262_145);
    assert_eq!(warning, Some(Warning { offset, records: 1, fault }));
}

#[test]
fn many_records_across_many_buffers_keep_their_order_and_bytes() {
    let mut b = Build::new(false);
    b.pcap_header(true, 1);
    for i in 0..3_000_u32 {
        b.pcap_record(i, i, i, &vec![i as u8; (i * 7 % 1_600) as usize]);
    }
    let all = records(&b.bytes);
    assert_eq!(all.len(), 3_000);
    for (i, record) in (0_u32..).zip(all) {
        assert_eq!(record.bytes, vec![i as u8; (i * 7 % 1_600) as usize]);
        assert_eq!(record.time.raw.fields(), (i, i));
    }
}

/// Gives a byte at a time, is interrupted before each, and fails for good at a place.
struct Awkward {
    inner: Cursor<Vec<u8>>,
    fails_at: u64,
    interrupted: bool,
}

impl Read for Awkward {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.inner.position() >= self.fails_at {
            return Err(io::Error::other("the disk broke"));
        }
        self.inner.read(buffer.get_mut(..1).unwrap_or_default())
    }
}

impl Seek for Awkward {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

#[test]
fn a_source_that_gives_single_bytes_and_is_interrupted_reads_the_same() {
    for data in common::samples() {
        let inner = Cursor::new(data.clone());
        let mut reader =
            Reader::new(Awkward { inner, fails_at: u64::MAX, interrupted: false }).unwrap();
        assert_eq!(common::read_all(&mut reader), read_bytes(&data));
    }
}

#[test]
fn an_error_of_the_system_comes_once_and_then_the_reader_has_ended() {
    let inner = Cursor::new(rich_pcap(false, false));
    let mut reader = Reader::new(Awkward { inner, fails_at: 50, interrupted: false }).unwrap();
    assert!(reader.next().unwrap().is_some());
    let error = reader.next().unwrap_err();
    assert_eq!(error.offset, 43);
    assert!(error.to_string().contains("the disk broke"));
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none());
}
