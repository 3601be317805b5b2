//! The streaming reader.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use crate::endian::{Endian, Fields};
use crate::error::{Fault, OpenError, ReadError, Stop, Warning};
use crate::input::Input;
use crate::pcapng::Block;
use crate::record::{FileKind, Frame, Interface, Payload, Position, Record};
use crate::{Timestamp, pcap, pcapng};

/// Reads a capture of either format, record by record, through one bounded buffer (256 KiB; more only for longer
/// records). Nothing is allocated per record.
///
/// A fuzz target or a test can read from memory: `Reader::new(std::io::Cursor::new(bytes))`.
#[derive(Debug)]
pub struct Reader<R = File> {
    input: Input<R>,
    kind: FileKind,
    endian: Endian,
    /// Those of the current section.
    interfaces: Vec<Interface>,
    position: Position,
    ended: bool,
    warning: Option<Warning>,
}

impl Reader<File> {
    /// Opens a capture file, whatever its name says.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be read or is no capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::new(File::open(path)?)
    }

    /// Opens a capture file and goes on at a position that a reader of the same file gave.
    ///
    /// # Errors
    /// As [`Self::open`], and [`OpenError::BadPosition`].
    pub fn resume(path: impl AsRef<Path>, position: Position) -> Result<Self, OpenError> {
        Self::resume_from(File::open(path)?, position)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads from anything that can seek, beginning where it stands, which must be its beginning.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn new(inner: R) -> Result<Self, OpenError> {
        Self::begin(Input::new(inner), 0)
    }

    /// As [`Self::resume`], from anything that can seek.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub fn resume_from(inner: R, position: Position) -> Result<Self, OpenError> {
        let bad = OpenError::BadPosition { section: position.section, next: position.next };
        let mut input = Input::new(inner);
        let ordered =
            position.section <= position.interfaces_end && position.interfaces_end <= position.next;
        if !ordered || position.next > input.file_len()? {
            return Err(bad);
        }
        input.seek_to(position.section)?;
        let mut reader = Self::begin(input, position.section)?;
        if position == Position::default() {
            return Ok(reader);
        }
        // Read again what describes the section's interfaces; usually they stand right behind its header.
        while reader.position.next < position.interfaces_end {
            if reader.step(Payload::Skip).is_err() {
                return Err(bad);
            }
        }
        let found = reader.position;
        let same_section =
            found.section == position.section && found.interfaces_end == position.interfaces_end;
        let whole_kind = reader.kind == FileKind::Pcapng || position.section == 0;
        if !same_section || !whole_kind {
            return Err(bad);
        }
        reader.input.seek_to(position.next)?;
        reader.position = position;
        Ok(reader)
    }

    /// Reads the file or section header at the input's place.
    fn begin(mut input: Input<R>, offset: u64) -> Result<Self, OpenError> {
        let Some(head) = input.peek(4)? else {
            return Err(if input.buffered() == 0 {
                OpenError::Empty
            } else {
                OpenError::HeaderCut
            });
        };
        let magic = Fields::new(head, Endian::Big).u32().ok_or(OpenError::HeaderCut)?;
        let position =
            Position { section: offset, interfaces_end: offset, next: offset, records: 0 };
        let empty = |kind, endian, input| Self {
            input,
            kind,
            endian,
            interfaces: Vec::new(),
            position,
            ended: false,
            warning: None,
        };
        if magic == pcapng::SECTION {
            let mut reader = empty(FileKind::Pcapng, Endian::Little, input);
            return match reader.step(Payload::Skip) {
                Ok(_) => Ok(reader),
                Err(Stop::Io(error)) => Err(error.into()),
                Err(Stop::End | Stop::Fault(Fault::Cut)) => Err(OpenError::HeaderCut),
                Err(Stop::Fault(Fault::Version(major, minor))) => {
                    Err(OpenError::Version { major, minor })
                }
                Err(Stop::Fault(fault)) => Err(OpenError::Header(fault)),
            };
        }
        let Some((endian, precision)) = pcap::recognise(magic) else {
            return Err(unsupported(magic));
        };
        let header = input.peek(pcap::FILE_HEADER)?.ok_or(OpenError::HeaderCut)?;
        let interface = pcap::file_header(header, endian, precision)?;
        input.consume(pcap::FILE_HEADER);
        let mut reader = empty(FileKind::Pcap, endian, input);
        reader.interfaces.push(interface);
        reader.position.next = offset.saturating_add(pcap::FILE_HEADER as u64);
        reader.position.interfaces_end = reader.position.next;
        Ok(reader)
    }

    /// The next record, or `None` after the last whole one, for ever; then ask for [`Self::warning`].
    ///
    /// # Errors
    /// [`ReadError`] when the system fails. It comes once: the reader has ended then.
    #[allow(clippy::should_implement_trait)] // A record borrows the reader, which `Iterator` cannot say.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let Some(frame) = self.advance(Payload::Keep)? else {
            return Ok(None);
        };
        Ok(Some(Record {
            bytes: self.input.bytes(frame.data),
            wire_len: frame.wire_len,
            time: Timestamp { raw: frame.raw, format: frame.interface.time },
            link: frame.interface.link,
            interface: frame.interface_id,
            comment: frame.comment.map(|range| self.input.bytes(range)),
        }))
    }

    /// Why the file ended early: `None` before the end and after a clean one.
    #[must_use]
    pub fn warning(&self) -> Option<&Warning> {
        self.warning.as_ref()
    }

    /// The place behind the last record given. After a warning: in front of what is not whole.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Which of the two formats this is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The interfaces of the current section that were described so far; one for pcap.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(crate) fn is_little_endian(&self) -> bool {
        self.endian == Endian::Little
    }

    /// Goes to the next packet and past it.
    pub(crate) fn advance(&mut self, payload: Payload) -> Result<Option<Frame>, ReadError> {
        while !self.ended {
            match self.step(payload) {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(stop) => self.end(stop)?,
            }
        }
        Ok(None)
    }

    fn end(&mut self, stop: Stop) -> Result<(), ReadError> {
        self.ended = true;
        let Position { next: offset, records, .. } = self.position;
        match stop {
            Stop::End => Ok(()),
            Stop::Fault(fault) => {
                self.warning = Some(Warning { offset, records, fault });
                Ok(())
            }
            Stop::Io(source) => Err(ReadError { offset, source }),
        }
    }

    /// One record or block; the position moves only when it is whole.
    #[inline]
    fn step(&mut self, payload: Payload) -> Result<Option<Frame>, Stop> {
        let block = match (self.kind, self.interfaces.first()) {
            (FileKind::Pcap, Some(interface)) => {
                Block::Packet(pcap::record(&mut self.input, self.endian, *interface, payload)?)
            }
            _ => pcapng::block(&mut self.input, self.endian, &self.interfaces, payload)?,
        };
        let at = self.position.next;
        match block {
            Block::Section { endian, length } => {
                self.endian = endian;
                self.interfaces.clear();
                self.position.section = at;
                self.position.next = at.saturating_add(length);
                self.position.interfaces_end = self.position.next;
                Ok(None)
            }
            Block::Interface { interface, length } => {
                self.interfaces.push(interface);
                self.position.next = at.saturating_add(length);
                self.position.interfaces_end = self.position.next;
                Ok(None)
            }
            Block::Other { length } => {
                self.position.next = at.saturating_add(length);
                Ok(None)
            }
            Block::Packet(frame) => {
                self.position.next = at.saturating_add(frame.length);
                self.position.records = self.position.records.saturating_add(1);
                Ok(Some(frame))
            }
        }
    }
}

/// Names what is no pcap but well known, so that the operator learns what to do.
fn unsupported(magic: u32) -> OpenError {
    const UNPACK: &str = "unpack it first";
    const CONVERT: &str = "convert it with 'editcap IN OUT.pcapng'";
    let (name, cure) = match magic {
        _ if magic == pcap::MAGIC_MODIFIED || magic.swap_bytes() == pcap::MAGIC_MODIFIED => {
            ("Kuznetzov's modified pcap", CONVERT)
        }
        0x736e_6f6f => ("a snoop capture", CONVERT),
        0x474d_4255 | 0x5254_5353 => ("a Microsoft Network Monitor capture", CONVERT),
        0x28b5_2ffd => ("a zstd archive", UNPACK),
        0x0422_4d18 => ("an lz4 archive", UNPACK),
        0xfd37_7a58 => ("an xz archive", UNPACK),
        0x504b_0304 => ("a zip archive", UNPACK),
        _ if magic >> 16 == 0x1f8b => ("a gzip archive", "unpack it first: 'gunzip FILE'"),
        _ if magic >> 8 == 0x42_5a68 => ("a bzip2 archive", UNPACK),
        _ => return OpenError::NotACapture(magic),
    };
    OpenError::Unsupported { name, cure }
}
