//! Packet buffers: their bytes, their metadata, their owners.
//!
//! One contiguous buffer per packet. Bytes, metadata and owner words are three separate memories,
//! so that a segment whose µNFs only read can be given the bytes read-only.
//!
//! The distance between buffers is an *odd* number of cache lines: with a power of two, the first
//! lines of all buffers would fall into a handful of cache sets, and a batch of 64 packets would
//! not fit the first-level cache.

use crate::bytes::{SharedBytes, SharedBytesMut};
use crate::entry::{Entry, MAX_BUFFERS};
use crate::meta::Meta;
use crate::owner::Owners;
use crate::prefetch;
use crate::region::{Mapping, Region, RegionError};
#[cfg(not(loom))]
use crate::sync::{AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::witness::Witness;
use std::marker::PhantomData;
#[cfg(not(loom))]
use std::ptr::NonNull;

/// Bytes kept free before a packet's first byte when it is received, for headers added later.
pub const HEADROOM: u16 = 128;

const LINE: usize = 64;

/// Number and size of an arena's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaShape {
    buffers: u32,
    stride: u32,
}

impl ArenaShape {
    /// `buffers` (1 to 2²⁴) buffers that each hold a packet of `packet` bytes (at most 65,344)
    /// besides the headroom.
    pub fn new(buffers: u32, packet: u32) -> Self {
        let bytes = packet.clamp(64, Self::MAX_PACKET) + u32::from(HEADROOM);
        let lines = bytes.div_ceil(LINE as u32);
        ArenaShape { buffers: buffers.clamp(1, MAX_BUFFERS), stride: (lines | 1) * LINE as u32 }
    }

    /// From the numbers that a worker was sent.
    pub fn from_raw(buffers: u32, stride: u32) -> Option<Self> {
        let fits = (1..=MAX_BUFFERS).contains(&buffers)
            && (1..=1 << 16).contains(&stride)
            && stride.is_multiple_of(LINE as u32);
        fits.then_some(ArenaShape { buffers, stride })
    }

    /// Longest packet that a buffer can hold: offsets and lengths are 16 bits.
    pub const MAX_PACKET: u32 = 65_536 - LINE as u32 - HEADROOM as u32;

    /// Number of buffers.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Bytes from one buffer to the next: the size of a buffer.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// Bytes of the packet memory.
    pub fn data_len(&self) -> usize {
        self.buffers as usize * self.stride as usize
    }

    /// Bytes of the metadata memory.
    pub fn meta_len(&self) -> usize {
        self.buffers as usize * size_of::<Meta>()
    }

    /// Bytes of the owner words' memory.
    pub fn owners_len(&self) -> usize {
        Owners::len_for(self.buffers)
    }
}

/// May this process write packet bytes?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Bytes are mapped read-only; a write faults.
    ReadOnly,
    /// Bytes are mapped for reading and writing.
    ReadWrite,
}

/// An arena mapped into this process.
pub struct Arena {
    shape: ArenaShape,
    data: Mapping,
    meta: Mapping,
    owners: Owners,
    #[cfg(not(loom))]
    witness: Witness,
    /// Others look at the packets at the same time.
    shared: bool,
    /// Of how many packets of a batch the first lines are asked for.
    ahead: u32,
}

impl Arena {
    /// Maps an arena from its three memories.
    pub fn attach(
        shape: ArenaShape,
        access: Access,
        data: &Region,
        meta: &Region,
        owners: &Region,
    ) -> Result<Self, RegionError> {
        let data = match access {
            Access::ReadOnly => data.map_read_only()?,
            Access::ReadWrite => data.map_writable()?,
        };
        let meta = meta.map_writable()?;
        for (mapping, needs) in [(&data, shape.data_len()), (&meta, shape.meta_len())] {
            if mapping.len() < needs {
                return Err(RegionError::TooSmall { has: mapping.len() as u64, needs });
            }
        }
        let owners = Owners::attach(owners, shape.buffers)?;
        Ok(Arena {
            shape,
            data,
            meta,
            owners,
            #[cfg(not(loom))]
            witness: Witness::nobody(),
            shared: false,
            ahead: u32::MAX,
        })
    }

    /// An arena of this process alone: for the oracle, tests and tools.
    pub fn private(shape: ArenaShape) -> Result<Self, RegionError> {
        Self::attach(
            shape,
            Access::ReadWrite,
            &Region::create("weir-private", shape.data_len())?,
            &Region::create("weir-private", shape.meta_len())?,
            &Region::create("weir-private", shape.owners_len())?,
        )
    }

    /// As [`Arena::private`], with owner words that the model checker follows.
    #[cfg(loom)]
    pub fn modelled(shape: ArenaShape) -> Result<Self, RegionError> {
        let owners = Owners::in_process(shape.buffers);
        Ok(Arena { owners, ..Self::private(shape)? })
    }

    /// Its shape.
    pub fn shape(&self) -> ArenaShape {
        self.shape
    }

    /// The owner words.
    #[inline(always)]
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// True when the entry is a packet that lies within a buffer of this arena. Entries come from
    /// other processes: check before use.
    #[inline(always)]
    pub fn admits(&self, entry: &Entry) -> bool {
        self.view().admits(entry)
    }

    /// A view to pass by value into loops: its numbers stay in registers, where those of the arena
    /// itself would be read again after each write to shared memory.
    #[inline(always)]
    pub fn view(&self) -> ArenaView<'_> {
        ArenaView {
            data: self.data.base().as_ptr(),
            meta: self.meta.base().as_ptr().cast(),
            buffers: self.shape.buffers,
            stride: self.shape.stride,
            len: self.shape.data_len(),
            writable_len: if self.data.is_writable() { self.shape.data_len() } else { 0 },
            shared: self.shared,
            #[cfg(not(loom))]
            witness: self.witness.entry(),
            arena: PhantomData,
        }
    }

    /// Says that other workers look at the same packets at the same time: see [`ArenaView::is_shared`].
    pub fn set_shared(&mut self) {
        self.shared = true;
    }

    /// Of how many packets of each batch that is taken the first lines are asked for; all, unless this is called.
    pub fn set_ahead(&mut self, packets: u32) {
        self.ahead = packets;
    }

    /// See [`Arena::set_ahead`].
    #[inline(always)]
    pub(crate) fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Who is told of the packets that are looked at.
    #[cfg(not(loom))]
    pub fn set_witness(&mut self, witness: Witness) {
        self.witness = witness;
    }

    /// See [`Arena::set_witness`].
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// The packet's bytes; none when the entry reaches beyond the arena. That they are the packet's
    /// *own* bytes is checked where entries come in ([`Arena::admits`], [`crate::packet::take`]); the
    /// one comparison here is what memory safety needs.
    #[inline(always)]
    pub fn bytes(&self, entry: &Entry) -> SharedBytes<'_> {
        self.view().bytes(entry)
    }

    /// The packet's bytes for writing; `None` when the entry reaches beyond the arena or the bytes
    /// are mapped read-only.
    #[inline(always)]
    pub fn bytes_mut(&self, entry: &mut Entry) -> Option<SharedBytesMut<'_>> {
        self.view().bytes_mut(entry)
    }

    /// The packet's metadata; `None` when the buffer does not exist.
    #[inline(always)]
    pub fn meta(&self, entry: &Entry) -> Option<&Meta> {
        self.view().meta(entry)
    }

    /// See [`ArenaView::prefetch`].
    #[inline(always)]
    pub fn prefetch(&self, entry: &Entry) {
        if self.data.is_writable() {
            self.view().prefetch::<true>(entry);
        } else {
            self.view().prefetch::<false>(entry);
        }
    }
}

/// Where an arena's packets and metadata are. Borrowed from the arena, so the mappings outlive it.
#[derive(Clone, Copy)]
pub struct ArenaView<'a> {
    data: *mut u8,
    meta: *mut Meta,
    buffers: u32,
    stride: u32,
    /// Bytes of packet memory that may be read, and written.
    len: usize,
    writable_len: usize,
    shared: bool,
    #[cfg(not(loom))]
    witness: NonNull<AtomicU64>,
    arena: PhantomData<&'a Arena>,
}

impl<'a> ArenaView<'a> {
    /// True when other workers look at the same packets at the same time, as the branches of a parallel
    /// stage do: then nothing of a packet is remembered in its metadata, which are several words.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Tells the arena's witness that the packet is looked at.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn note(&self, entry: &Entry) {
        // SAFETY: the arena's witness, and with it this word, lives as long as the view. Relaxed: read
        // only after this process has ended.
        unsafe { self.witness.as_ref() }.store(entry.first_word(), Ordering::Relaxed);
    }

    /// Models have no witness.
    #[cfg(loom)]
    #[inline(always)]
    pub fn note(&self, _: &Entry) {}

    /// As [`Arena::admits`].
    #[inline(always)]
    pub fn admits(&self, entry: &Entry) -> bool {
        entry.index() < self.buffers
            && u32::from(entry.offset()) + u32::from(entry.len()) <= self.stride
    }

    /// Where the entry's first byte is, from the start of packet memory.
    #[inline(always)]
    fn start(&self, entry: &Entry) -> usize {
        // Below 2^32 * 2^16 + 2^16: no overflow.
        entry.index() as usize * self.stride as usize + entry.offset() as usize
    }

    /// As [`Arena::bytes`].
    #[inline(always)]
    pub fn bytes(self, entry: &Entry) -> SharedBytes<'a> {
        let (at, len) = (self.start(entry), entry.len() as usize);
        if at + len > self.len {
            return SharedBytes::EMPTY;
        }
        // SAFETY: `at + len` lies within the mapping, whose length `attach` checked.
        unsafe { SharedBytes::new(self.data.wrapping_add(at), len) }
    }

    /// As [`Arena::bytes_mut`].
    #[inline(always)]
    pub fn bytes_mut(self, entry: &mut Entry) -> Option<SharedBytesMut<'a>> {
        let (at, len) = (self.start(entry), entry.len() as usize);
        if at + len > self.writable_len {
            return None;
        }
        // SAFETY: as for `bytes`, and the mapping is writable (else its `writable_len` is 0 and the
        // view is empty at most). Two views of one packet could only come from one process holding
        // its entry twice; access is volatile either way.
        Some(unsafe { SharedBytesMut::new(self.data.wrapping_add(at), len) })
    }

    /// As [`Arena::meta`].
    #[inline(always)]
    pub fn meta(self, entry: &Entry) -> Option<&'a Meta> {
        if entry.index() >= self.buffers {
            return None;
        }
        // SAFETY: within the mapping (length checked by `attach`), aligned as the mapping is page
        // aligned and `Meta` is 128 bytes; all fields are cells of plain values.
        Some(unsafe { &*self.meta.add(entry.index() as usize) })
    }

    /// True when this process may write packet bytes.
    #[inline(always)]
    pub fn is_writable(&self) -> bool {
        self.writable_len != 0
    }

    /// Tells the processor that the packet's first line will be needed soon, `FOR_WRITING` when this
    /// process may write: a line that another core wrote comes faster when asked for so.
    #[inline(always)]
    pub fn prefetch<const FOR_WRITING: bool>(&self, entry: &Entry) {
        let at = self.data.wrapping_add(self.start(entry));
        prefetch::line::<FOR_WRITING>(at);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::entry::Seq;
    use proptest::prelude::*;

    fn packet(index: u32, offset: u16, len: u16) -> Entry {
        Entry::packet(index, offset, len, Seq::new(0), 0)
    }

    #[test]
    fn bytes_written_are_bytes_read() {
        let arena = Arena::private(ArenaShape::new(4, 1500)).unwrap();
        let mut p = packet(3, HEADROOM, 100);
        let data: Vec<u8> = (0..100).collect();
        assert!(arena.bytes_mut(&mut p).unwrap().write(0, &data));
        let mut out = [0; 120];
        assert_eq!(arena.bytes(&p).copy_to(0, &mut out), 100);
        assert_eq!(out[..100], data);
        assert_eq!(arena.bytes(&p).array::<13>(87), Some(std::array::from_fn(|i| 87 + i as u8)));
        assert_eq!(arena.bytes(&p).array::<14>(87), None);
    }

    #[test]
    fn buffers_are_an_odd_number_of_lines_apart_and_hold_the_packet() {
        for packet in [64, 1514, 2048, 9000, 65_344] {
            let shape = ArenaShape::new(8, packet);
            assert_eq!(shape.stride() / 64 % 2, 1, "{packet}");
            assert!(shape.stride() >= packet + u32::from(HEADROOM) && shape.stride() <= 65_536);
        }
    }

    proptest! {
        #[test]
        fn no_entry_reaches_outside_its_arena(a: u64, b: u64, at in 0usize..70_000, n in 0usize..300) {
            let arena = Arena::private(ArenaShape::new(4, 1500)).unwrap();
            let mut e = Entry::from_words(a, b);
            let len = arena.bytes(&e).len();
            let start = e.index() as usize * arena.shape().stride() as usize + e.offset() as usize;
            prop_assert!(len == 0 || start + len <= arena.shape().data_len());
            if arena.admits(&e) {
                prop_assert!(usize::from(e.offset()) + len <= arena.shape().stride() as usize);
                prop_assert_eq!(len, usize::from(e.len()));
            }
            let mut out = vec![0; n];
            prop_assert!(arena.bytes(&e).copy_to(at, &mut out) <= len.saturating_sub(at));
            if let Some(mut w) = arena.bytes_mut(&mut e) {
                prop_assert_eq!(w.write(at, &out), at + n <= len);
            }
            arena.prefetch(&e);
        }
    }
}
