//! Memory for the packets that are under way or held, in which µNFs are run on one at a time.

use std::cell::Cell;
use weir_mem::arena::HEADROOM;
use weir_mem::meta::{Arrival, Arrived};
use weir_mem::{Arena, ArenaShape, Entry, RegionError, Seq};
use weir_nf::{Instance, Kind, Leaving, Pool, Site};
use weir_packet::{Packet, TagBits, Verdict, set_tag_of, tag_word_of};

use crate::Input;

/// Longest packet that Weir takes in, in bytes.
pub(crate) const LONGEST: usize = ArenaShape::MAX_PACKET as usize;

/// Packets that may be held at a time, by all µNFs together.
const BUFFERS: u32 = 8192;

/// Room for packets.
pub(crate) struct Bench {
    arena: Arena,
    pool: Pool,
    free: Vec<u32>,
}

/// What a µNF did: packets in the order in which they leave it.
pub(crate) type Done = Vec<(Packet, Verdict, Option<Kind>)>;

impl Bench {
    pub(crate) fn new() -> Result<Self, RegionError> {
        let arena = Arena::private(ArenaShape::new(BUFFERS, ArenaShape::MAX_PACKET))?;
        Ok(Bench { arena, pool: Pool::default(), free: (0..BUFFERS).collect() })
    }

    /// Takes in a packet at `place` of its source's stream. Its time stamp is kept under the number
    /// `time`. `None` when no memory is left.
    pub(crate) fn arrive(&mut self, input: &Input, place: usize, time: usize) -> Option<Packet> {
        let len = u16::try_from(input.bytes.len()).unwrap_or(u16::MAX);
        let buffer = self.free.pop()?;
        let mut entry = Entry::packet(buffer, HEADROOM, len, Seq::new(place as u64), 0);
        if let Some(mut memory) = self.arena.bytes_mut(&mut entry) {
            memory.write(0, &input.bytes);
        }
        if let Some(meta) = self.arena.meta(&entry) {
            let arrival = Arrival {
                time_ns: input.time.to_ns(),
                raw_time: time as u64,
                wire_len: input.wire_len,
                ..Arrival::default()
            };
            meta.arrive(&Arrived::new(&arrival, input.port), true);
        }
        Packet::admit(entry, self.arena.view())
    }

    /// A packet's bytes.
    pub(crate) fn bytes(&self, packet: &Packet) -> Vec<u8> {
        let from = self.arena.bytes(packet.entry());
        let mut bytes = vec![0; from.len()];
        from.copy_to(0, &mut bytes);
        bytes
    }

    /// The port that a packet came in by, its place in that source's stream, its wire length, and
    /// the number of its time stamp.
    pub(crate) fn origin(&self, packet: &Packet) -> (u16, usize, u32, usize) {
        let meta = self.arena.meta(packet.entry());
        let (port, wire, time) = meta.map_or((0, 0, 0), |m| {
            (m.source_port.get(), m.wire_len.get(), m.raw_time.get() as usize)
        });
        (port, packet.entry().seq().get() as usize, wire, time)
    }

    /// When a packet came, in nanoseconds since 1970.
    pub(crate) fn time_ns(&self, packet: &Packet) -> u64 {
        self.arena.meta(packet.entry()).map_or(0, |meta| meta.time_ns.get())
    }

    /// What stands in a packet's tag slot.
    pub(crate) fn tag_word(&self, packet: &Packet, slot: u8) -> u64 {
        tag_word_of(self.arena.view(), packet.entry(), slot)
    }

    /// Writes into a packet's tags.
    pub(crate) fn mark(&self, packet: &Packet, bits: TagBits, word: u64) {
        set_tag_of(self.arena.view(), packet.entry(), bits, word);
    }

    /// A packet has left, or was dropped.
    pub(crate) fn forget(&mut self, packet: Packet) {
        self.free.push(packet.into_entry().index());
    }

    /// Runs `nf` on one packet. What another µNF found out about its headers is forgotten before.
    pub(crate) fn process(&mut self, nf: &mut dyn Instance, nf_input: u8, packet: Packet) -> Done {
        if let Some(meta) = self.arena.meta(packet.entry()) {
            meta.layers.iter().for_each(|word| word.set(0));
        }
        let mut packets = [packet];
        let mut verdicts = [Verdict::FIRST];
        self.pool.fill(std::mem::take(&mut self.free));
        let site = Site { arena: &self.arena, pool: &self.pool, keys: &Cell::default() };
        nf.process(&mut packets, &mut verdicts, nf_input, site);
        self.free = self.pool.drain();
        let ([packet], [verdict]) = (packets, verdicts);
        let mut done = Vec::new();
        let mut own = Some(packet);
        for Leaving { packet, verdict: other, kind, at } in std::mem::take(nf.leaving()) {
            if at > 0
                && let Some(own) = own.take()
            {
                done.push((own, verdict, None));
            }
            done.push((packet, other, Some(kind)));
        }
        done.extend(own.map(|own| (own, verdict, None)));
        // One that the µNF holds has gone to it.
        done.retain(|(_, verdict, kind)| kind.is_some() || *verdict != Verdict::HELD);
        done
    }

    /// Tells `nf` that its input has ended, behind `place`.
    pub(crate) fn end(&mut self, nf: &mut dyn Instance, place: usize) -> Done {
        self.pool.fill(std::mem::take(&mut self.free));
        let site = Site { arena: &self.arena, pool: &self.pool, keys: &Cell::default() };
        nf.end(Seq::new(place as u64), site);
        self.free = self.pool.drain();
        let leaving = std::mem::take(nf.leaving()).into_iter();
        leaving.map(|l| (l.packet, l.verdict, Some(l.kind))).collect()
    }
}
