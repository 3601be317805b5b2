//! What a reader gives and a writer takes.

use std::ops::Range;

use crate::{LinkType, RawTime, TimeFormat, Timestamp};

/// The two capture formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// pcap: one link type, one precision.
    Pcap,
    /// pcapng: sections, interfaces, blocks.
    Pcapng,
}

/// One captured packet. The bytes are borrowed from the reader's buffer until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The captured bytes; at most [`crate::MAX_CAPTURED`].
    pub bytes: &'a [u8],
    /// Length on the wire in bytes, as the file states it. Larger than `bytes` when the capture cut the packet; odd
    /// files also state less.
    pub wire_len: u32,
    /// The time stamp, bit for bit as in the file. Simple Packet Blocks have none: it is 0 then.
    pub time: Timestamp,
    /// What the first byte belongs to.
    pub link: LinkType,
    /// Index of the interface in its pcapng section; 0 in pcap. Writers ignore it: they number interfaces themselves.
    pub interface: u32,
    /// The packet's first comment (pcapng `opt_comment`), UTF-8 by the format but not checked. pcap has no place for it.
    pub comment: Option<&'a [u8]>,
}

/// A capture interface: what its packets have in common. A pcap file counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link type of its packets.
    pub link: LinkType,
    /// Longest captured length it promised, in bytes; 0 means no limit. Not enforced.
    pub snaplen: u32,
    /// How its time stamps are to be read.
    pub time: TimeFormat,
}

/// A place between two records, from which a [`crate::Reader`] or a [`crate::Writer`] can go on after its process was
/// killed. All zero means the beginning of the file. Valid only for the file it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Offset of the current section header (pcapng), 0 in pcap.
    pub section: u64,
    /// Offset just behind the section's last interface description so far: what must be read again to go on.
    pub interfaces_end: u64,
    /// Offset of the next record: the number of bytes read or committed.
    pub next: u64,
    /// Number of records before it.
    pub records: u64,
}

/// Whether the bytes of a packet are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Keep,
    Skip,
}

/// A packet whose bytes lie in the input's buffer (or were skipped: then the ranges are empty).
pub(crate) struct Frame {
    /// Length of the whole record or block, in bytes.
    pub(crate) length: u64,
    pub(crate) raw: RawTime,
    pub(crate) captured: u32,
    pub(crate) wire_len: u32,
    pub(crate) interface_id: u32,
    pub(crate) interface: Interface,
    pub(crate) data: Range<usize>,
    pub(crate) comment: Option<Range<usize>>,
}
