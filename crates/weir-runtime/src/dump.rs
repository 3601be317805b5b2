//! Dropped packets on their way to the file that the operator wants them in.
//!
//! A worker that drops a packet counts it, as always. Instead of giving its buffer back it writes down
//! reason and node in its metadata and sends it by a lane of its own to the dump worker of its trust
//! domain, which writes it and gives the buffer back. The lane is one of the worker's lanes out: it
//! pushes back when it is full, ends with its source, and is recovered like any other. What lies in it
//! has been counted already, so its loss is none of the balance's.

use crate::segment::{Segment, Way};
use crate::spec::DumpSpec;
use crate::station::Station;
use weir_device::{DeviceError, DropFile, Place};
use weir_mem::Arena;
use weir_packet::{DropReason, Packet};
use weir_port::Egress;

impl Segment {
    /// Sends a dropped packet to be written down.
    #[cold]
    pub(crate) fn dump(
        &mut self,
        lane: usize,
        packet: Packet,
        reason: DropReason,
        node: usize,
        way: &mut Way<'_>,
    ) {
        describe(&packet, way.arena, reason, node);
        let Err(packet) = way.egress.send(lane, packet) else { return };
        if self.more.any {
            // There may be more of them than came in.
            self.more.wait(way.source, lane, [packet]);
        } else {
            way.egress.give_back(packet);
        }
    }
}

/// Sends packets that were dropped at `node` to be written down, or where nobody wants them home.
/// All are of one source.
pub(crate) fn discard(
    packets: impl IntoIterator<Item = (Packet, DropReason)>,
    node: usize,
    source: usize,
    arena: &Arena,
    egress: &mut Egress,
) {
    let lane = egress.dump(source);
    for (packet, reason) in packets {
        let Some(lane) = lane else {
            egress.give_back(packet);
            continue;
        };
        describe(&packet, arena, reason, node);
        if let Err(packet) = egress.send(lane, packet) {
            egress.give_back(packet);
        }
    }
}

fn describe(packet: &Packet, arena: &Arena, reason: DropReason, node: usize) {
    if let Some(meta) = arena.meta(packet.entry()) {
        meta.drop_at(reason as u8, node as u32);
    }
}

/// The dump worker's part.
pub(crate) struct Dump {
    file: DropFile,
    /// By lane in: names of the nodes.
    droppers: Vec<Vec<String>>,
    comment: String,
}

impl Dump {
    /// Begins the file, or goes on behind `place`.
    pub(crate) fn open(spec: &DumpSpec, place: Place) -> Result<Self, DeviceError> {
        let file = DropFile::open(&spec.path, place, &spec.ports)?;
        Ok(Dump { file, droppers: spec.droppers.clone(), comment: String::new() })
    }

    /// Goes on with the same file for other workers.
    pub(crate) fn relink(&mut self, spec: &DumpSpec) {
        self.droppers.clone_from(&spec.droppers);
    }

    /// Writes packets that came by lane `lane`; gives the place for the ledger.
    pub(crate) fn write(
        &mut self,
        packets: &[Packet],
        lane: usize,
        station: &Station,
    ) -> Result<Place, DeviceError> {
        for packet in packets {
            let Some(meta) = station.arena.meta(packet.entry()) else { continue };
            // Another worker's word, which may be anything.
            let (reason, node) = meta.dropped_at();
            let reason = DropReason::from_number(reason).map_or("dropped", DropReason::name);
            let names = self.droppers.get(lane);
            let name = usize::try_from(node).ok().and_then(|n| names?.get(n));
            self.comment.clear();
            self.comment.push_str(reason);
            self.comment.push_str(" by ");
            self.comment.push_str(name.map_or("?", String::as_str));
            self.file.append(packet, &station.arena, &self.comment)?;
        }
        self.file.commit()
    }
}
