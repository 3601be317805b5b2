//! Buffers for packets that a µNF makes, and the packets while they are being made.

use std::cell::RefCell;
use weir_mem::arena::HEADROOM;
use weir_mem::meta::{Arrival, Arrived};
use weir_mem::{Arena, ArenaView, Entry, Seq, SharedBytes, SharedBytesMut};
use weir_packet::Packet;

/// Free buffers that a segment's µNFs may take. The runtime fills it from the worker's home pool
/// before µNFs run and takes back afterwards what is left, so that its records stay true.
#[derive(Debug, Default)]
pub struct Pool(RefCell<Vec<u32>>);

impl Pool {
    /// Lends the pool these buffers, which must be nobody else's.
    pub fn fill(&mut self, buffers: Vec<u32>) {
        *self.0.get_mut() = buffers;
    }

    /// Takes back what is left.
    pub fn drain(&mut self) -> Vec<u32> {
        std::mem::take(self.0.get_mut())
    }

    /// Free buffers.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of a packet: bytes, metadata, place in its source's stream. For who sends one packet by several ways;
    /// `None` when no buffer is free.
    pub fn copy_of(&self, arena: &Arena, packet: &Packet) -> Option<Packet> {
        let of = packet.entry();
        let copy = Fresh::copy(arena, self, of)?.into_packet()?;
        let entry = copy.into_entry().with_seq(of.seq());
        if let (Some(from), Some(to)) = (arena.meta(of), arena.meta(&entry)) {
            to.time_ns.set(from.time_ns.get());
            to.raw_time.set(from.raw_time.get());
            to.time_format.set(from.time_format.get());
            to.source_port.set(from.source_port.get());
        }
        Packet::admit(entry, arena.view())
    }

    fn take(&self) -> Option<u32> {
        self.0.borrow_mut().pop()
    }

    fn put(&self, buffer: u32) {
        self.0.borrow_mut().push(buffer);
    }
}

/// Whether a packet is new or another's copy: the balance counts them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Created,
    Copied,
}

/// A packet that a µNF has made and not sent yet. Its bytes are the µNF's to write, whatever access
/// it declared to the packets it is given. To be sent by [`Ctx::emit`](crate::Ctx::emit); dropped,
/// its buffer goes back to where it came from.
#[must_use = "a packet that is not emitted is given back"]
pub struct Fresh<'c> {
    packet: Option<Packet>,
    pub(crate) origin: Origin,
    view: ArenaView<'c>,
    pool: &'c Pool,
}

impl<'c> Fresh<'c> {
    /// A packet of `len` zero bytes; `None` when no buffer is free or it would not fit one.
    pub(crate) fn new(arena: &'c Arena, pool: &'c Pool, len: usize) -> Option<Self> {
        let room = (arena.shape().stride() as usize).checked_sub(HEADROOM.into())?;
        let len = u16::try_from(len).ok().filter(|&len| usize::from(len) <= room)?;
        let buffer = pool.take()?;
        let view = arena.view();
        let mut entry = Entry::packet(buffer, HEADROOM, len, Seq::new(0), 0);
        let writable = match view.bytes_mut(&mut entry) {
            Some(mut bytes) => {
                const ZEROS: [u8; 256] = [0; 256];
                let starts = (0..usize::from(len)).step_by(ZEROS.len());
                starts.for_each(|at| {
                    let n = ZEROS.len().min(usize::from(len) - at);
                    bytes.write(at, &ZEROS[..n]);
                });
                true
            }
            None => false,
        };
        if let Some(meta) = view.meta(&entry) {
            let arrival = Arrival { wire_len: len.into(), ..Arrival::default() };
            meta.arrive(&Arrived::new(&arrival, 0), true);
        }
        match Packet::admit(entry, view).filter(|_| writable) {
            Some(packet) => {
                Some(Fresh { packet: Some(packet), origin: Origin::Created, view, pool })
            }
            None => {
                pool.put(buffer);
                None
            }
        }
    }

    /// A copy of the packet in `of`: bytes and metadata, tags among them.
    pub(crate) fn copy(arena: &'c Arena, pool: &'c Pool, of: &Entry) -> Option<Self> {
        let mut copy = Self::new(arena, pool, of.len().into())?;
        copy.origin = Origin::Copied;
        let from = arena.bytes(of);
        if let Some(mut to) = copy.bytes_mut() {
            let mut piece = [0; 256];
            let mut at = 0;
            while at < from.len() {
                let n = from.copy_to(at, &mut piece);
                to.write(at, piece.get(..n).unwrap_or_default());
                at += n.max(1);
            }
        }
        let entry = copy.packet.as_ref().map(|p| *p.entry());
        if let (Some(from), Some(to)) = (arena.meta(of), entry.and_then(|e| arena.meta(&e))) {
            to.wire_len.set(from.wire_len.get());
            to.flow_hash.set(from.flow_hash.get());
            to.layers.iter().zip(&from.layers).for_each(|(to, from)| to.set(from.get()));
            to.tags.iter().zip(&from.tags).for_each(|(to, from)| to.set(from.get()));
        }
        Some(copy)
    }

    /// Its bytes, from the Ethernet header on.
    pub fn bytes(&self) -> SharedBytes<'_> {
        self.packet.as_ref().map_or(SharedBytes::EMPTY, |p| self.view.bytes(p.entry()))
    }

    /// Its bytes for writing; always there for a packet that was made.
    pub fn bytes_mut(&mut self) -> Option<SharedBytesMut<'_>> {
        self.view.bytes_mut(self.packet.as_mut()?.entry_mut())
    }

    pub(crate) fn into_packet(mut self) -> Option<Packet> {
        self.packet.take()
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if let Some(packet) = self.packet.take() {
            self.pool.put(packet.into_entry().index());
        }
    }
}
