//! Packet metadata: one fixed, versioned struct per buffer, in a mapping of its own.
//!
//! What the next stage always needs (buffer, offset, captured length, sequence)
//! travels in the ring entry instead; see [`crate::entry`].

use crate::shared::Shared;

/// Version of [`Meta`], the ring entry and the ring header. Workers of another version are refused.
pub const LAYOUT_VERSION: u32 = 5;

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
    /// How `raw_time` is to be read (a code of the device crate).
    pub time_format: Shared<u16>,
    /// Policy port number that the packet came in by.
    pub source_port: Shared<u16>,
    /// Parsed header positions, packed by the packet crate; valid to the depth it records. In a packet that was
    /// dropped the first word says where: see [`Meta::dropped_at`].
    pub layers: [Shared<u64>; 3],
    /// Drop reason, 0 while the packet lives.
    pub drop_reason: Shared<u8>,
    _free: [Shared<u8>; 7],
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

/// How a packet arrived, as the first line of its metadata: made once for packets that arrive alike.
#[derive(Clone, Copy, Debug)]
pub struct Arrived([u64; 8]);

impl Arrived {
    /// `arrival` at the policy's port `source_port`; everything else is as in a packet that nobody
    /// has looked at yet.
    #[inline]
    pub fn new(arrival: &Arrival, source_port: u16) -> Self {
        // As `Meta`'s fields lie: four bytes, two, two.
        let mut fourth = [0; 8];
        fourth[..4].copy_from_slice(&arrival.wire_len.to_ne_bytes());
        fourth[4..6].copy_from_slice(&arrival.time_format.to_ne_bytes());
        fourth[6..].copy_from_slice(&source_port.to_ne_bytes());
        let fourth = u64::from_ne_bytes(fourth);
        Arrived([arrival.time_ns, arrival.raw_time, 0, fourth, 0, 0, 0, 0])
    }
}

impl Meta {
    /// Starts a packet's life in this buffer: forgets what the earlier one left (parse results,
    /// hash, states; tags when some µNF uses them) and writes down how the new one arrived.
    #[inline]
    pub fn arrive(&self, arrived: &Arrived, clear_tags: bool) {
        let line = std::ptr::from_ref(self).cast_mut().cast::<u64>();
        for (i, word) in arrived.0.into_iter().enumerate() {
            // SAFETY: the first 64 of the struct's 128 bytes, all of them cells without padding
            // between (asserted below), so that writing through a shared reference is right.
            unsafe { line.add(i).write_volatile(word) };
        }
        if clear_tags {
            self.tags.iter().for_each(|t| t.set(0));
        }
    }

    /// Writes down why the packet was dropped and at which of its worker's nodes. Where its headers
    /// are nobody asks any more.
    pub fn drop_at(&self, reason: u8, node: u32) {
        self.drop_reason.set(reason);
        self.layers[0].set(node.into());
    }

    /// What [`Meta::drop_at`] wrote: reason and node.
    pub fn dropped_at(&self) -> (u8, u64) {
        (self.drop_reason.get(), self.layers[0].get())
    }
}

const _: () = assert!(std::mem::offset_of!(Meta, tags) == 64);
const _: () = assert!(
    std::mem::offset_of!(Meta, wire_len) == 24
        && std::mem::offset_of!(Meta, time_format) == 28
        && std::mem::offset_of!(Meta, source_port) == 30
        && std::mem::offset_of!(Meta, drop_reason) == 56
);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Arena, ArenaShape, Entry, Seq};

    #[test]
    fn an_arriving_packet_finds_nothing_of_the_one_before_in_its_buffer() {
        let arena = Arena::private(ArenaShape::new(1, 64)).unwrap();
        let meta = arena.meta(&Entry::packet(0, 0, 0, Seq::new(0), 0)).unwrap();
        meta.flow_hash.set(1);
        meta.layers.iter().for_each(|w| w.set(2));
        meta.drop_reason.set(3);
        meta.tags[7].set(8);
        let arrival = Arrival { time_ns: 10, raw_time: 11, wire_len: 12, time_format: 13 };
        meta.arrive(&Arrived::new(&arrival, 14), false);
        assert_eq!((meta.time_ns.get(), meta.raw_time.get()), (10, 11));
        assert_eq!((meta.wire_len.get(), meta.time_format.get()), (12, 13));
        assert_eq!((meta.source_port.get(), meta.flow_hash.get()), (14, 0));
        assert!(meta.layers.iter().all(|w| w.get() == 0));
        assert_eq!((meta.drop_reason.get(), meta.tags[7].get()), (0, 8));
        meta.arrive(&Arrived::new(&arrival, 14), true);
        assert_eq!(meta.tags[7].get(), 0);
    }
}
