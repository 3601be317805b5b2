//! Packet metadata: one fixed, versioned struct per buffer, in a mapping of its own.
//!
//! What the next stage always needs (buffer, offset, captured length, sequence, hash bucket)
//! travels in the ring entry instead; see [`crate::entry`].

use crate::shared::Shared;

/// Version of [`Meta`], the ring entry and the ring header. Workers of another version are refused.
pub const LAYOUT_VERSION: u32 = 1;

/// Number of planner-assigned tag slots.
pub const TAG_SLOTS: usize = 8;

/// The transport checksum was verified (by the device, or by a µNF).
pub const CHECKSUM_GOOD: u8 = 1;
/// The transport checksum is unfinished: the sender left it to the device.
pub const CHECKSUM_PARTIAL: u8 = 2;
/// The device took the outer VLAN tag out of the bytes.
pub const VLAN_STRIPPED: u8 = 4;

/// Metadata of one packet, 128 bytes: a line for the stack, a line for tags. Written by whoever
/// holds the packet. Numbers are in host order: the memory never leaves the machine.
#[repr(C, align(64))]
pub struct Meta {
    /// Capture time as nanoseconds since 1970.
    pub time_ns: Shared<u64>,
    /// Time stamp as the source gave it, so that a capture keeps it bit for bit.
    pub raw_time: Shared<u64>,
    /// Seeded symmetric flow hash; 0 when not computed.
    pub flow_hash: Shared<u64>,
    /// Length on the wire in bytes; more than the captured length when the capture cut the packet.
    pub wire_len: Shared<u32>,
    /// How `raw_time` is to be read (a code of the device crate).
    pub time_format: Shared<u16>,
    /// Policy port number that the packet came in by.
    pub source_port: Shared<u16>,
    /// Parsed header positions, packed by the packet crate; valid to the depth it records.
    pub layers: [Shared<u64>; 3],
    /// Drop reason, 0 while the packet lives.
    pub drop_reason: Shared<u8>,
    /// [`CHECKSUM_GOOD`], [`CHECKSUM_PARTIAL`], [`VLAN_STRIPPED`]; 0: checksums unknown, VLAN tags
    /// (if any) in the bytes.
    pub flags: Shared<u8>,
    /// Where a partial checksum starts, in bytes from the start of the packet.
    pub checksum_start: Shared<u16>,
    /// Where, from its start, a partial checksum is to be stored.
    pub checksum_offset: Shared<u16>,
    /// VLAN tag (TCI) that the device stripped.
    pub vlan_tci: Shared<u16>,
    /// Tags that µNFs attach and policies match. Which slot is which tag is the planner's choice.
    pub tags: [Shared<u64>; TAG_SLOTS],
}

const _: () = assert!(size_of::<Meta>() == 128 && align_of::<Meta>() == 64);

/// What a source knows of a packet when it hands it over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// As the source gave it.
    pub raw_time: u64,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// How `raw_time` is to be read.
    pub time_format: u16,
}

impl Meta {
    /// Starts a packet's life in this buffer: forgets what the earlier one left (parse results,
    /// hash, states; tags when some µNF uses them) and writes down how the new one arrived.
    #[inline]
    pub fn arrive(&self, arrival: &Arrival, source_port: u16, clear_tags: bool) {
        self.time_ns.set(arrival.time_ns);
        self.raw_time.set(arrival.raw_time);
        self.flow_hash.set(0);
        self.wire_len.set(arrival.wire_len);
        self.time_format.set(arrival.time_format);
        self.source_port.set(source_port);
        self.layers.iter().for_each(|w| w.set(0));
        self.drop_reason.set(0);
        self.flags.set(0);
        if clear_tags {
            self.tags.iter().for_each(|t| t.set(0));
        }
    }
}
