//! The packet as the µNF sees it, and as the runtime moves it.

use crate::reason::DropReason;
use crate::{Bytes, Depth, Layers, parse};
use std::marker::PhantomData;
use weir_mem::{Arena, ArenaView, Entry, Meta, Packet, SharedBytes, SharedBytesMut};

/// Most packets that are processed together.
pub const BATCH: usize = 256;

impl Bytes for SharedBytes<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        SharedBytes::len(self)
    }
    #[inline(always)]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        SharedBytes::array(self, at)
    }
    #[inline(always)]
    fn copy_to(&self, at: usize, out: &mut [u8]) -> usize {
        SharedBytes::copy_to(self, at, out)
    }
    #[inline(always)]
    fn u8(&self, at: usize) -> Option<u8> {
        self.ne8(at)
    }
    #[inline(always)]
    fn be16(&self, at: usize) -> Option<u16> {
        self.ne16(at).map(u16::from_be)
    }
    #[inline(always)]
    fn be32(&self, at: usize) -> Option<u32> {
        self.ne32(at).map(u32::from_be)
    }
}

/// What is to become of a packet: an output of the µNF, or a drop with its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Verdict(u8);

impl Verdict {
    /// Leaves by the first output: what happens when a µNF says nothing.
    pub const FIRST: Verdict = Verdict(0);
    /// The µNF keeps the packet for later. Only the SDK's runtime gives and takes this verdict.
    #[doc(hidden)]
    pub const HELD: Verdict = Verdict(Self::DROP);
    const DROP: u8 = 0x80;

    /// Leaves by `output`, counted from 0 in the order of the descriptor.
    #[inline(always)]
    pub const fn output(output: u8) -> Self {
        Verdict(output & !Self::DROP)
    }

    /// Dropped.
    #[inline(always)]
    pub const fn drop(reason: DropReason) -> Self {
        Verdict(Self::DROP | reason as u8)
    }

    /// As the number that a branch of a parallel stage sends to the sync port.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn number(self) -> u16 {
        self.0 as u16
    }

    /// The verdict with this number; another worker's word, which may be anything.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn from_number(number: u16) -> Self {
        Verdict(number as u8)
    }

    /// The output, unless dropped.
    #[inline(always)]
    pub const fn as_output(self) -> Option<u8> {
        if self.0 & Self::DROP == 0 { Some(self.0) } else { None }
    }

    /// The reason, when dropped.
    pub const fn as_drop(self) -> Option<DropReason> {
        match DropReason::from_number(self.0 & !Self::DROP) {
            Some(reason) if self.0 & Self::DROP != 0 => Some(reason),
            _ => None,
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What a µNF may do to packet bytes; chosen in its declaration, enforced by which methods exist.
pub trait Access: sealed::Sealed + 'static {
    /// True when packets may be changed.
    const WRITES: bool;
}

/// Looks at packets only: there is no method that writes, and a segment of such µNFs alone has the
/// packet memory mapped read-only.
pub enum ReadOnly {}
/// May change packets.
pub enum ReadWrite {}

impl sealed::Sealed for ReadOnly {}
impl sealed::Sealed for ReadWrite {}
impl Access for ReadOnly {
    const WRITES: bool = false;
}
impl Access for ReadWrite {
    const WRITES: bool = true;
}

/// The packets of a batch, as a µNF with access `A` gets them.
pub struct Packets<'b, A: Access> {
    entries: &'b mut [Packet],
    verdicts: &'b mut [Verdict],
    arena: ArenaView<'b>,
    judged: bool,
    access: PhantomData<A>,
}

impl<'b, A: Access> Packets<'b, A> {
    /// The runtime's way in; `verdicts` is at least as long as `entries`.
    #[inline]
    pub fn new(entries: &'b mut [Packet], verdicts: &'b mut [Verdict], arena: &'b Arena) -> Self {
        Packets { entries, verdicts, arena: arena.view(), judged: false, access: PhantomData }
    }

    /// Number of packets, 1 to [`BATCH`].
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none (the runtime never calls with none).
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True when some packet got a verdict other than [`Verdict::FIRST`].
    #[inline]
    pub fn judged(&self) -> bool {
        self.judged
    }

    /// One packet after the other.
    #[inline]
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = Pkt<'_, A>> {
        let arena = self.arena;
        let judged = std::cell::Cell::from_mut(&mut self.judged);
        let packets = self.entries.iter_mut().zip(self.verdicts.iter_mut());
        packets.enumerate().map(move |(at, (packet, verdict))| {
            arena.note(packet.entry());
            Pkt { packet, verdict, at, arena, judged, access: PhantomData }
        })
    }
}

/// One packet while a µNF looks at it.
pub struct Pkt<'p, A: Access> {
    packet: &'p mut Packet,
    verdict: &'p mut Verdict,
    at: usize,
    arena: ArenaView<'p>,
    judged: &'p std::cell::Cell<bool>,
    access: PhantomData<A>,
}

impl<'p, A: Access> Pkt<'p, A> {
    /// Its bytes, from the Ethernet header on, as far as captured.
    #[inline(always)]
    pub fn bytes(&self) -> SharedBytes<'p> {
        self.arena.bytes(self.packet.entry())
    }

    /// Captured length in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.packet.entry().len() as usize
    }

    /// True for a packet without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn meta(&self) -> Option<&'p Meta> {
        self.arena.meta(self.packet.entry())
    }

    /// Length on the wire in bytes, never less than the captured length.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.meta().map_or(0, |m| m.wire_len.get() as usize).max(self.len())
    }

    /// When it was received or captured, in nanoseconds since 1970.
    #[inline]
    pub fn time_ns(&self) -> u64 {
        self.meta().map_or(0, |m| m.time_ns.get())
    }

    /// Policy port number that it came in by.
    #[inline]
    pub fn source_port(&self) -> u16 {
        self.meta().map_or(0, |m| m.source_port.get())
    }

    /// Where its headers are, parsed to `depth`: at once when somebody parsed it before.
    #[inline(always)]
    pub fn layers(&self, depth: Depth) -> Layers {
        layers_of(self.arena, self.packet.entry(), depth)
    }

    /// Writes those of `word`'s bits that a tag has; the others stay.
    #[inline]
    pub fn set_tag(&self, at: TagBits, word: u64) {
        set_tag_of(self.arena, self.packet.entry(), at, word);
    }

    /// Its place in its batch: the SDK's way to what it found out of all packets of one.
    #[doc(hidden)]
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Its ring entry: the SDK's way to know which packet caused another.
    #[doc(hidden)]
    #[inline]
    pub fn entry(&self) -> &Entry {
        self.packet.entry()
    }

    /// Marks it as kept by the µNF: the SDK's half of `ctx.hold`, useless alone.
    #[doc(hidden)]
    pub fn mark_held(self) {
        *self.verdict = Verdict::HELD;
        self.judged.set(true);
    }

    /// It leaves by `output`, counted from 0 in the order of the descriptor.
    #[inline(always)]
    pub fn send(&mut self, output: u8) {
        *self.verdict = Verdict::output(output);
        if output != 0 {
            self.judged.set(true);
        }
    }

    /// It is dropped and counted under `reason`.
    #[inline(always)]
    pub fn drop(&mut self, reason: DropReason) {
        *self.verdict = Verdict::drop(reason);
        self.judged.set(true);
    }
}

impl<'p> Pkt<'p, ReadWrite> {
    /// Its bytes for writing. After changing what a header's position depends on, call
    /// [`Pkt::stale`]. `None` only for a packet that cannot be written (a corrupt entry).
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> Option<SharedBytesMut<'_>> {
        self.arena.bytes_mut(self.packet.entry_mut())
    }

    /// Adds `n` bytes before the first, from the packet's headroom; what they hold is to be written. False,
    /// and nothing changed, when there is no room. The descriptor must say that the µNF resizes.
    pub fn grow_front(&mut self, n: u16) -> bool {
        let entry = *self.packet.entry();
        let (Some(offset), Some(len)) = (entry.offset().checked_sub(n), entry.len().checked_add(n))
        else {
            return false;
        };
        self.set_span(offset, len);
        true
    }

    /// Takes the first `n` bytes away. False, and nothing changed, when there are not so many. The
    /// descriptor must say that the µNF resizes.
    pub fn shrink_front(&mut self, n: u16) -> bool {
        let entry = *self.packet.entry();
        let Some(len) = entry.len().checked_sub(n) else { return false };
        self.set_span(entry.offset() + n, len);
        true
    }

    /// The length on the wire changes as the captured one does; headers have moved.
    fn set_span(&mut self, offset: u16, len: u16) {
        let old = self.packet.entry().len();
        *self.packet.entry_mut() = self.packet.entry().with_span(offset, len);
        if let Some(meta) = self.meta() {
            let wire = meta.wire_len.get().saturating_add(len.into()).saturating_sub(old.into());
            meta.wire_len.set(wire);
        }
        self.stale();
    }

    /// Forgets where the headers are: they have moved.
    #[inline]
    pub fn stale(&mut self) {
        if let Some(meta) = self.meta() {
            meta.layers.iter().for_each(|w| w.set(0));
        }
    }
}

/// Header positions of the packet in `entry`.
///
/// A plain packet is parsed anew each time: that is a few loads from a line that is at hand, while its metadata
/// are a line that another core wrote last. Others are taken from the metadata as far as they are there, parsed on
/// and remembered otherwise (but where other workers look at it at the same time, which would see half of it).
/// What the metadata says is not trusted further than a fresh parse would be: all
/// accessors check bounds again.
#[inline(always)]
pub fn layers_of(arena: ArenaView<'_>, entry: &Entry, depth: Depth) -> Layers {
    let bytes = arena.bytes(entry);
    match Layers::plain(&bytes, depth) {
        Some(layers) => layers,
        None => remembered(arena, entry, depth),
    }
}

#[inline(never)]
fn remembered(arena: ArenaView<'_>, entry: &Entry, depth: Depth) -> Layers {
    let bytes = arena.bytes(entry);
    let Some(meta) = arena.meta(entry) else {
        return parse(&bytes, depth);
    };
    let words = [meta.layers[0].get(), meta.layers[1].get(), meta.layers[2].get()];
    let mut layers = Layers::from_words(words).unwrap_or_default();
    if layers.depth < depth {
        layers.extend(&bytes, depth);
        if arena.is_shared() {
            return layers;
        }
        for (cell, word) in meta.layers.iter().zip(layers.to_words()) {
            cell.set(word);
        }
    }
    layers
}

/// The bits of a packet's tag slots that a tag has; the planner assigns them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagBits {
    /// The slot.
    pub slot: u8,
    /// Its bits.
    pub mask: u64,
}

/// What stands in a tag slot of the packet in `entry`; 0 when nobody has set it.
#[inline]
pub fn tag_word_of(arena: ArenaView<'_>, entry: &Entry, slot: u8) -> u64 {
    arena.meta(entry).and_then(|m| m.tags.get(usize::from(slot))).map_or(0, |t| t.get())
}

/// Writes those of `word`'s bits that a tag of the packet in `entry` has; the others stay.
#[inline]
pub fn set_tag_of(arena: ArenaView<'_>, entry: &Entry, at: TagBits, word: u64) {
    if let Some(tag) = arena.meta(entry).and_then(|m| m.tags.get(usize::from(at.slot))) {
        tag.set(tag.get() & !at.mask | word & at.mask);
    }
}
