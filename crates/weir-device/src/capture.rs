//! Capture files as devices.

use crate::{DeviceError, Dropped, Place, Receive, Room, Send, Status, time};
use std::path::{Path, PathBuf};
use weir_capture::{Format, LinkType, Position, Reader, Record, TimeFormat, Writer};
use weir_mem::Arena;
use weir_mem::meta::Arrival;
use weir_packet::{DropReason, Packet};

pub(crate) fn to_place(p: Position, extra: u64) -> Place {
    [p.section, p.interfaces_end, p.next, p.records, extra, 1]
}

pub(crate) fn to_position(place: Place) -> Position {
    let [section, interfaces_end, next, records, ..] = place;
    Position { section, interfaces_end, next, records }
}

/// Packets from a capture, as fast as they are taken. Records of other link types than Ethernet
/// are counted as refused.
pub struct CaptureRx {
    reader: Reader,
    path: PathBuf,
    /// Place of the last record taken: the reader itself may be one ahead.
    place: Position,
}

impl CaptureRx {
    /// Opens `path` at `place`.
    pub fn open(path: &Path, place: Place) -> Result<Self, DeviceError> {
        let position = to_position(place);
        let reader = Reader::resume(path, position)
            .map_err(|source| DeviceError::Open { path: path.to_owned(), source })?;
        Ok(CaptureRx { place: reader.position(), reader, path: path.to_owned() })
    }
}

impl Receive for CaptureRx {
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError> {
        while !room.is_full() {
            let read = self.reader.next();
            let Some(record) =
                read.map_err(|source| DeviceError::Read { path: self.path.clone(), source })?
            else {
                return Ok(Status::End);
            };
            if record.link.is_ethernet() {
                let (raw_time, time_format) = time::encode(record.time);
                let arrival = Arrival {
                    time_ns: record.time.to_ns(),
                    raw_time,
                    wire_len: record.wire_len,
                    time_format,
                };
                let bytes = record.bytes;
                room.take(bytes.len(), &arrival, |b| {
                    b.write(0, bytes);
                });
            } else {
                room.refuse(DropReason::LinkType, record.bytes.len());
            }
            self.place = self.reader.position();
        }
        Ok(Status::More)
    }

    fn place(&self) -> Place {
        to_place(self.place, 0)
    }

    fn warning(&self) -> Option<String> {
        self.reader.warning().map(|w| format!("{}: {w}", self.path.display()))
    }
}

/// Packets into a capture. A record counts when its batch is committed; what a killed service had
/// written beyond that is cut off when the next one opens the file.
pub struct CaptureTx {
    writer: Writer,
    path: PathBuf,
    scratch: Vec<u8>,
}

impl CaptureTx {
    /// Begins `path` (place all zero), or goes on behind `place`.
    pub fn open(path: &Path, place: Place, time: TimeFormat) -> Result<Self, DeviceError> {
        let begun = place != Place::default();
        let writer = if begun {
            Writer::reopen(path, to_position(place))
        } else {
            Writer::create(path, Format::for_path(path, time, LinkType(1)))
        };
        let writer =
            writer.map_err(|source| DeviceError::Write { path: path.to_owned(), source })?;
        Ok(CaptureTx { writer, path: path.to_owned(), scratch: vec![0; 1 << 16] })
    }
}

impl Send for CaptureTx {
    fn send(
        &mut self,
        packets: &[Packet],
        arena: &Arena,
        _dropped: &mut Dropped,
    ) -> Result<(), DeviceError> {
        for packet in packets {
            let entry = packet.entry();
            let n = arena.bytes(entry).copy_to(0, &mut self.scratch);
            let Some(meta) = arena.meta(entry) else {
                continue;
            };
            let record = Record {
                bytes: self.scratch.get(..n).unwrap_or_default(),
                wire_len: meta.wire_len.get(),
                time: time::decode(meta.raw_time.get(), meta.time_format.get(), meta.time_ns.get()),
                link: LinkType(1),
                interface: 0,
                comment: None,
            };
            self.writer
                .append(&record)
                .map_err(|source| DeviceError::Write { path: self.path.clone(), source })?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<Place, DeviceError> {
        let position = self
            .writer
            .commit()
            .map_err(|source| DeviceError::Write { path: self.path.clone(), source })?;
        Ok(to_place(position, 0))
    }
}
