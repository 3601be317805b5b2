//! Captures built byte by byte, independently of the crate's own writer, and owned records to compare.

#![allow(dead_code)] // Each test file uses its part.
#![allow(clippy::expect_used)] // Helpers of tests, which clippy does not know to be tests.

use std::io::{Cursor, Read, Seek};
use std::path::PathBuf;

use weir_capture::{LinkType, Position, Reader, Record, Timestamp, Warning};

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
    pub time: Timestamp,
    pub link: LinkType,
    pub comment: Option<Vec<u8>>,
}

impl Owned {
    pub fn of(record: &Record<'_>) -> Self {
        Self {
            bytes: record.bytes.to_vec(),
            wire_len: record.wire_len,
            time: record.time,
            link: record.link,
            comment: record.comment.map(<[u8]>::to_vec),
        }
    }

    pub fn as_record(&self) -> Record<'_> {
        Record {
            bytes: &self.bytes,
            wire_len: self.wire_len,
            time: self.time,
            link: self.link,
            interface: 0,
            comment: self.comment.as_deref(),
        }
    }
}

/// Everything a reader still gives, with the position behind each record, and its warning.
pub fn read_all<R: Read + Seek>(
    reader: &mut Reader<R>,
) -> (Vec<(Owned, Position)>, Option<Warning>) {
    let mut all = Vec::new();
    while let Some(record) = reader.next().expect("no error of the system") {
        let owned = Owned::of(&record);
        all.push((owned, reader.position()));
    }
    assert!(reader.next().expect("no error").is_none(), "the end is for ever");
    (all, reader.warning().cloned())
}

/// [`read_all`] of a capture in memory.
pub fn read_bytes(data: &[u8]) -> (Vec<(Owned, Position)>, Option<Warning>) {
    read_all(&mut Reader::new(Cursor::new(data)).expect("a capture"))
}

/// The folder of recorded captures beside the repository, if this machine has it.
pub fn traces() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no shared/traces folder beside the repository");
    None
}

/// A file of this test run's own.
pub fn temporary(name: &str) -> PathBuf {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("capture-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    folder.join(name)
}

/// Writes numbers in one byte order.
pub struct Build {
    pub bytes: Vec<u8>,
    pub big: bool,
}

impl Build {
    pub fn new(big: bool) -> Self {
        Self { bytes: Vec::new(), big }
    }

    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }

    pub fn raw(&mut self, v: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(v);
        self
    }

    pub fn pad(&mut self) -> &mut Self {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self
    }

    pub fn pcap_header(&mut self, nanos: bool, link: u32) -> &mut Self {
        self.u32(if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
        self.u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(link)
    }

    pub fn pcap_record(
        &mut self,
        seconds: u32,
        fraction: u32,
        wire_len: u32,
        bytes: &[u8],
    ) -> &mut Self {
        self.u32(seconds).u32(fraction).u32(bytes.len() as u32).u32(wire_len).raw(bytes)
    }

    /// A block whose body `inner` builds; pads it.
    pub fn block(&mut self, kind: u32, inner: impl FnOnce(&mut Build)) -> &mut Self {
        let mut body = Build::new(self.big);
        inner(&mut body);
        body.pad();
        let length = body.bytes.len() as u32 + 12;
        self.u32(kind).u32(length).raw(&body.bytes).u32(length)
    }

    pub fn section(&mut self) -> &mut Self {
        self.block(0x0a0d_0d0a, |b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        })
    }

    /// An interface, with the options `if_name`, `if_tsresol` and `if_tsoffset` where given.
    pub fn interface(
        &mut self,
        link: u16,
        snaplen: u32,
        tsresol: Option<u8>,
        tsoffset: Option<i64>,
    ) -> &mut Self {
        self.block(1, |b| {
            b.u16(link).u16(0).u32(snaplen);
            b.u16(2).u16(5).raw(b"eth-0").pad();
            if let Some(tsresol) = tsresol {
                b.u16(9).u16(1).raw(&[tsresol]).pad();
            }
            if let Some(offset) = tsoffset {
                b.u16(14).u16(8).u64(offset as u64);
            }
            b.u16(0).u16(0);
        })
    }

    /// An Enhanced Packet Block with a flags option and, where given, a comment.
    pub fn enhanced(
        &mut self,
        interface: u32,
        raw: u64,
        wire_len: u32,
        bytes: &[u8],
        comment: Option<&str>,
    ) -> &mut Self {
        self.block(6, |b| {
            b.u32(interface)
                .u32((raw >> 32) as u32)
                .u32(raw as u32)
                .u32(bytes.len() as u32)
                .u32(wire_len);
            b.raw(bytes).pad();
            b.u16(2).u16(4).u32(1);
            if let Some(comment) = comment {
                b.u16(1).u16(comment.len() as u16).raw(comment.as_bytes()).pad();
            }
            b.u16(0).u16(0);
        })
    }

    pub fn obsolete(&mut self, interface: u16, raw: u64, wire_len: u32, bytes: &[u8]) -> &mut Self {
        self.block(2, |b| {
            b.u16(interface)
                .u16(0)
                .u32((raw >> 32) as u32)
                .u32(raw as u32)
                .u32(bytes.len() as u32)
                .u32(wire_len);
            b.raw(bytes);
        })
    }

    pub fn simple(&mut self, wire_len: u32, bytes: &[u8]) -> &mut Self {
        self.block(3, |b| {
            b.u32(wire_len).raw(bytes);
        })
    }
}

/// A pcapng with all block kinds and two sections, the second in the other byte order.
pub fn rich_pcapng(big: bool) -> Vec<u8> {
    let mut first = Build::new(big);
    first.section().interface(1, 0, None, None).interface(113, 96, Some(9), Some(3));
    first.enhanced(0, 1_700_000_000_000_000, 60, b"first packet", None);
    first.block(0x0bad, |b| {
        b.raw(&[9; 33]);
    });
    first.enhanced(1, u64::MAX, 5, b"longer than the wire", Some("dropped: too long"));
    first.interface(101, 0, Some(0x80 | 20), None);
    first.obsolete(2, 1 << 20, 9, b"obsolete!").simple(6, b"simple");
    first.block(5, |b| {
        b.u32(0).u64(0);
    });
    let mut second = Build::new(!big);
    second
        .section()
        .interface(1, 4, Some(3), None)
        .simple(100, b"four")
        .enhanced(0, 7, 0, b"", None);
    [first.bytes, second.bytes].concat()
}

/// A pcap with an odd sub-second field, an empty packet and one cut by its snap length.
pub fn rich_pcap(big: bool, nanos: bool) -> Vec<u8> {
    let mut b = Build::new(big);
    b.pcap_header(nanos, 1);
    b.pcap_record(1, 2, 3, b"abc")
        .pcap_record(u32::MAX, u32::MAX, 0, b"")
        .pcap_record(5, 4_000_000, 1500, &[7; 61]);
    b.bytes
}

/// All small captures of this module.
pub fn samples() -> Vec<Vec<u8>> {
    let mut all = vec![rich_pcapng(false), rich_pcapng(true)];
    for (big, nanos) in [(false, false), (false, true), (true, false), (true, true)] {
        all.push(rich_pcap(big, nanos));
    }
    all
}
