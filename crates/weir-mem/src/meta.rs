//! Packet metadata: one fixed, versioned struct per buffer, in a mapping of its own.
//!
//! What the next stage always needs (buffer, offset, captured length, sequence, hash bucket)
//! travels in the ring entry instead; see [`crate::entry`].

use crate::shared::Shared;

/// Version of [`Meta`], the ring entry and the ring header. Workers of another version are refused.
pub const LAYOUT_VERSION: u32 = 1;

/// Number of planner-assigned tag slots.
pub const TAG_SLOTS: usize = 8;

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
    /// Interface index within the source (pcapng), 0 otherwise.
    pub source_if: Shared<u16>,
    /// Policy port number that the packet came in by.
    pub source_port: Shared<u16>,
    /// Parsed header positions, packed by the packet crate; valid to the depth it records.
    pub layers: [Shared<u64>; 2],
    /// Drop reason, 0 while the packet lives.
    pub drop_reason: Shared<u8>,
    /// Checksum state: 0 unknown, 1 good, 2 partial (start and offset follow).
    pub checksum_state: Shared<u8>,
    /// Where a partial checksum starts.
    pub checksum_start: Shared<u16>,
    /// Where, from its start, a partial checksum is to be stored.
    pub checksum_offset: Shared<u16>,
    /// VLAN tag stripped by the device (TCI), valid when `vlan_state` is 1.
    pub vlan_tci: Shared<u16>,
    /// 0: tags, if any, are in the bytes; 1: one tag was stripped.
    pub vlan_state: Shared<u8>,
    _reserved: [Shared<u8>; 7],
    /// Tags that µNFs attach and policies match. Which slot is which tag is the planner's choice.
    pub tags: [Shared<u64>; TAG_SLOTS],
}

const _: () = assert!(size_of::<Meta>() == 128 && align_of::<Meta>() == 64);

impl Meta {
    /// Forgets what an earlier packet in this buffer left: parse results, hash, states and tags.
    #[inline]
    pub fn reset(&self, clear_tags: bool) {
        self.flow_hash.set(0);
        self.layers[0].set(0);
        self.layers[1].set(0);
        self.drop_reason.set(0);
        self.checksum_state.set(0);
        self.vlan_state.set(0);
        if clear_tags {
            self.tags.iter().for_each(|t| t.set(0));
        }
    }
}
