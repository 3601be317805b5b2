//! Where a device puts what it received.

use weir_mem::arena::HEADROOM;
use weir_mem::meta::{Arrival, Arrived};
use weir_mem::{Arena, Entry, Seq, SharedBytesMut};
use weir_packet::{DropReason, Packet, REASONS};
use weir_port::HomePool;

/// How many buffers ahead memory is asked for: its first line was last written by another core, and
/// a store to it waits for it to come.
const AHEAD: usize = 12;

/// Room for the packets of one call: buffers from the worker's home pool, sequence numbers, and
/// counters of what could not be taken in.
pub struct Room<'r> {
    /// Packet memory.
    pub arena: &'r Arena,
    /// Free buffers.
    pub pool: &'r mut HomePool,
    /// Where finished packets go.
    pub packets: &'r mut Vec<Packet>,
    /// How many packets may still be received.
    pub left: usize,
    /// Position of the next packet in the source's stream.
    pub seq: &'r mut u64,
    /// Policy port number of this device.
    pub source_port: u16,
    /// Packets and bytes received, those refused among them.
    pub received: (u64, u64),
    /// Packets refused, by reason.
    pub refused: [u64; REASONS],
    /// Whether buffers' tags must be cleared: some µNF of the graph uses tags.
    pub clear_tags: bool,
}

impl Room<'_> {
    /// True when no packet can be taken in now.
    pub fn is_full(&self) -> bool {
        self.left == 0 || self.pool.free() == 0
    }

    /// Longest packet that a buffer holds, in bytes.
    pub fn longest(&self) -> usize {
        (self.arena.shape().stride() as usize - HEADROOM as usize).min(u16::MAX as usize)
    }

    /// Takes in one packet of `len` bytes, which `fill` writes. False when there was no room for
    /// it, and nothing happened.
    #[inline]
    pub fn take(
        &mut self,
        len: usize,
        arrival: &Arrival,
        fill: impl FnOnce(&mut SharedBytesMut<'_>),
    ) -> bool {
        if self.left == 0 {
            return false;
        }
        if len > self.longest() {
            self.refuse(DropReason::Oversize, len);
            return true;
        }
        let Some(buffer) = self.pool.take() else {
            return false;
        };
        let view = self.arena.view();
        if let Some(ahead) = self.pool.ahead(AHEAD) {
            view.prefetch::<true>(&Entry::packet(ahead, HEADROOM, 0, Seq::new(0), 0));
        }
        let mut entry = Entry::packet(buffer, HEADROOM, len as u16, Seq::new(*self.seq), 0);
        if let Some(mut bytes) = view.bytes_mut(&mut entry) {
            fill(&mut bytes);
        }
        if let Some(meta) = view.meta(&entry) {
            meta.arrive(&Arrived::new(arrival, self.source_port), self.clear_tags);
        }
        match Packet::admit(entry, view) {
            Some(packet) => self.packets.push(packet),
            None => self.pool.put(buffer),
        }
        self.count(len);
        true
    }

    /// Takes in packets that arrived alike, at most `most`, whose bytes `frame` gives one after the
    /// other; says how many. It stops where there is no room, and before a packet that is too long
    /// for a buffer: give that to [`Room::take`].
    #[inline]
    pub fn take_all<'f>(
        &mut self,
        most: u64,
        arrival: &Arrival,
        mut frame: impl FnMut(usize) -> Option<&'f [u8]>,
    ) -> usize {
        let free = self.pool.stack();
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.left).min(free.len());
        let (view, longest) = (self.arena.view(), self.longest());
        let arrived = Arrived::new(arrival, self.source_port);
        let first = Seq::new(*self.seq);
        let (mut taken, mut bytes) = (0, 0);
        let mut ahead = free.iter().rev().skip(AHEAD);
        self.packets.reserve(most);
        for &buffer in free.iter().rev().take(most) {
            let Some(frame) = frame(taken).filter(|f| f.len() <= longest) else { break };
            if let Some(&ahead) = ahead.next() {
                view.prefetch::<true>(&Entry::packet(ahead, HEADROOM, 0, first, 0));
            }
            let seq = first.plus(taken as u64);
            let mut entry = Entry::packet(buffer, HEADROOM, frame.len() as u16, seq, 0);
            if let Some(mut bytes) = view.bytes_mut(&mut entry) {
                bytes.write(0, frame);
            }
            if let Some(meta) = view.meta(&entry) {
                meta.arrive(&arrived, self.clear_tags);
            }
            let Some(packet) = Packet::admit(entry, view) else { break };
            self.packets.push(packet);
            taken += 1;
            bytes += frame.len();
        }
        self.pool.take_many(taken);
        *self.seq += taken as u64;
        self.left -= taken;
        self.received.0 += taken as u64;
        self.received.1 += bytes as u64;
        taken
    }

    /// Counts a packet that cannot be taken in. It has its place in the stream all the same.
    pub fn refuse(&mut self, reason: DropReason, len: usize) {
        if let Some(count) = self.refused.get_mut(reason as usize) {
            *count += 1;
        }
        self.count(len);
    }

    /// Counts packets that were never there to be taken in: the kernel had dropped them.
    pub fn missed(&mut self, reason: DropReason, packets: u64) {
        if let Some(count) = self.refused.get_mut(reason as usize) {
            *count += packets;
        }
        *self.seq += packets;
        self.received.0 += packets;
    }

    #[inline]
    fn count(&mut self, len: usize) {
        *self.seq += 1;
        self.left = self.left.saturating_sub(1);
        self.received.0 += 1;
        self.received.1 += len as u64;
    }
}
