//! The file of dropped packets.

use crate::capture::{to_place, to_position};
use crate::{DeviceError, Place, time};
use std::path::{Path, PathBuf};
use weir_capture::{Format, LinkType, Record, Resolution, WriteError, Writer};
use weir_mem::Arena;
use weir_packet::Packet;

/// Dropped packets as pcapng: an interface for each port of the policy, by its name, and a comment on
/// each packet. Time stamps are in nanoseconds, whatever the inputs' unit is.
///
/// As with [`crate::CaptureTx`], what a killed worker had written beyond the last commit is cut off
/// when the next one opens the file.
pub struct DropFile {
    writer: Writer,
    path: PathBuf,
    /// Port numbers; their places are the interfaces' numbers.
    ports: Vec<u16>,
    scratch: Vec<u8>,
}

impl DropFile {
    /// Begins `path` (place all zero), or goes on behind `place`. `ports` are the policy's: number and
    /// name.
    ///
    /// # Errors
    /// [`DeviceError::Write`].
    pub fn open(path: &Path, place: Place, ports: &[(u16, String)]) -> Result<Self, DeviceError> {
        let writer = if place != Place::default() {
            Writer::reopen(path, to_position(place))
        } else {
            begin(path, ports)
        };
        let writer =
            writer.map_err(|source| DeviceError::Write { path: path.to_owned(), source })?;
        let ports = ports.iter().map(|(number, _)| *number).collect();
        Ok(DropFile { writer, path: path.to_owned(), ports, scratch: vec![0; 1 << 16] })
    }

    /// Adds a packet to the next commit.
    ///
    /// # Errors
    /// [`DeviceError::Write`].
    pub fn append(
        &mut self,
        packet: &Packet,
        arena: &Arena,
        comment: &str,
    ) -> Result<(), DeviceError> {
        let entry = packet.entry();
        let n = arena.bytes(entry).copy_to(0, &mut self.scratch);
        let Some(meta) = arena.meta(entry) else { return Ok(()) };
        let port = meta.source_port.get();
        // A packet that a µNF made may name no port; it is nobody's more than the first's.
        let interface = self.ports.iter().position(|p| *p == port).unwrap_or(0);
        let record = Record {
            bytes: self.scratch.get(..n).unwrap_or_default(),
            wire_len: meta.wire_len.get(),
            time: time::decode(meta.raw_time.get(), meta.time_format.get(), meta.time_ns.get()),
            link: LinkType(1),
            interface: interface as u32,
            comment: Some(comment.as_bytes()),
        };
        let added = self.writer.append_to(record.interface, &record);
        added.map_err(|source| self.failed(source))
    }

    /// Writes what was added; the place goes into the ledger.
    ///
    /// # Errors
    /// [`DeviceError::Write`].
    pub fn commit(&mut self) -> Result<Place, DeviceError> {
        let position = self.writer.commit().map_err(|source| self.failed(source))?;
        Ok(to_place(position, 0))
    }

    fn failed(&self, source: WriteError) -> DeviceError {
        DeviceError::Write { path: self.path.clone(), source }
    }
}

fn begin(path: &Path, ports: &[(u16, String)]) -> Result<Writer, WriteError> {
    let mut writer = Writer::create(path, Format::Pcapng)?;
    for (_, name) in ports {
        writer.describe(LinkType(1), Resolution::NANOS, name)?;
    }
    // They are there before the first packet, and even when none is dropped.
    writer.commit()?;
    Ok(writer)
}
