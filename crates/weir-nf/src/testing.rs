//! A bench for one µNF: packets in, packets and verdicts out, without processes or rings; and whether it is what its
//! descriptor says ([`conform`]).

mod conform;

pub use conform::{Captured, ConformError, Conformance, conform, frames};

use crate::ctx::Env;
use crate::flows::{BatchKeys, RestoreError};
use crate::instance::{BuildError, Instance, Running, Site};
use crate::nf::Nf;
use crate::pool::Pool;
use serde_json::Value;
use std::cell::Cell;
use weir_mem::arena::HEADROOM;
use weir_mem::meta::{Arrival, Arrived, TAG_SLOTS};
use weir_mem::{Arena, ArenaShape, Entry, RegionError, Seq};
use weir_packet::{BATCH, DropReason, Packet, Verdict, tag_word_of};

/// Why a test bench could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The µNF refused its configuration.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] RegionError),
}

/// What a µNF did to one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Output by name, or the drop reason.
    pub verdict: Result<&'static str, DropReason>,
    /// The packet's bytes afterwards.
    pub bytes: Vec<u8>,
    /// What stands in its tag slots afterwards.
    pub tags: [u64; TAG_SLOTS],
}

impl Seen {
    /// The output's name; panics (it is for tests) when the packet was dropped.
    pub fn output(&self) -> &'static str {
        self.verdict.unwrap_or("(dropped)")
    }
}

/// One µNF on a test bench.
pub struct Bench {
    instance: Box<dyn Instance>,
    arena: Arena,
    pool: Pool,
    keys: Cell<BatchKeys>,
    /// Buffers for packets in, and those for packets that the µNF makes.
    free: Vec<u32>,
    for_nf: Vec<u32>,
    next: u64,
    made: Vec<Seen>,
}

/// Buffers of a bench: as many packets can be held.
const BUFFERS: u32 = 2048;

impl Bench {
    /// A µNF of type `N` with `config`.
    pub fn new<N: Nf>(config: Value) -> Result<Self, BenchError> {
        Self::with_env::<N>(config, &Env::default())
    }

    /// As [`Bench::new`], with tags and seed.
    pub fn with_env<N: Nf>(config: Value, env: &Env) -> Result<Self, BenchError> {
        Ok(Bench {
            instance: Box::new(Running::<N>::new(&config, env)?),
            arena: Arena::private(ArenaShape::new(BUFFERS, ArenaShape::MAX_PACKET))?,
            pool: Pool::default(),
            keys: Cell::default(),
            free: (256..BUFFERS).collect(),
            for_nf: (0..256).collect(),
            next: 0,
            made: Vec::new(),
        })
    }

    /// From now on there are only so many buffers for packets that the µNF makes.
    pub fn set_buffers(&mut self, buffers: u32) {
        self.for_nf = (0..buffers.min(256)).collect();
    }

    /// Sends packets through in batches and says what became of each.
    pub fn run<P: AsRef<[u8]>>(&mut self, packets: &[P]) -> Vec<Seen> {
        let wire: Vec<_> = packets.iter().map(|p| (p.as_ref(), p.as_ref().len(), 0)).collect();
        self.run_cut(&wire)
    }

    /// As [`Bench::run`], with each packet's length on the wire and time stamp.
    pub fn run_cut(&mut self, packets: &[(&[u8], usize, u64)]) -> Vec<Seen> {
        self.run_by(0, packets)
    }

    /// As [`Bench::run_cut`], by an input other than the first.
    pub fn run_by(&mut self, input: u8, packets: &[(&[u8], usize, u64)]) -> Vec<Seen> {
        packets.chunks(BATCH).flat_map(|chunk| self.batch(input, chunk)).collect()
    }

    fn batch(&mut self, input: u8, packets: &[(&[u8], usize, u64)]) -> Vec<Seen> {
        let mut batch = Vec::new();
        for (bytes, wire, time) in packets {
            let Some(buffer) = self.free.pop() else { break };
            let len = bytes.len().min(ArenaShape::MAX_PACKET as usize);
            let mut entry = Entry::packet(buffer, HEADROOM, len as u16, Seq::new(self.next), 0);
            self.next += 1;
            if let Some(mut b) = self.arena.bytes_mut(&mut entry) {
                b.write(0, &bytes[..len]);
            }
            if let Some(meta) = self.arena.meta(&entry) {
                let (wire_len, time_ns) = (*wire as u32, *time);
                let arrival = Arrival { wire_len, time_ns, ..Arrival::default() };
                meta.arrive(&Arrived::new(&arrival, 0), true);
            }
            batch.extend(Packet::admit(entry, self.arena.view()));
        }
        let mut verdicts = vec![Verdict::FIRST; batch.len()];
        self.pool.fill(std::mem::take(&mut self.for_nf));
        self.keys.get_mut().forget();
        let site = Site { arena: &self.arena, pool: &self.pool, keys: &self.keys };
        self.instance.process(&mut batch, &mut verdicts, input, site);
        self.collect();
        let pairs = batch.into_iter().zip(verdicts);
        pairs.map(|(packet, verdict)| self.seen(packet, verdict)).collect()
    }

    /// What became of a packet; its buffer is free again unless the µNF holds it.
    fn seen(&mut self, packet: Packet, verdict: Verdict) -> Seen {
        let outputs = self.instance.descriptor().outputs;
        let bytes = self.arena.bytes(packet.entry());
        let mut copy = vec![0; bytes.len()];
        bytes.copy_to(0, &mut copy);
        let tag = |slot: usize| u8::try_from(slot).unwrap_or(u8::MAX);
        let tags =
            std::array::from_fn(|slot| tag_word_of(self.arena.view(), packet.entry(), tag(slot)));
        let index = packet.into_entry().index();
        let verdict = match verdict.as_output() {
            _ if verdict == Verdict::HELD => Ok("(held)"),
            Some(k) => Ok(outputs.get(k as usize).copied().unwrap_or("(no such output)")),
            None => Err(verdict.as_drop().unwrap_or(DropReason::BadEntry)),
        };
        if verdict != Ok("(held)") {
            if index < 256 { self.for_nf.push(index) } else { self.free.push(index) }
        }
        Seen { verdict, bytes: copy, tags }
    }

    fn collect(&mut self) {
        self.for_nf = self.pool.drain();
        for leaving in std::mem::take(self.instance.leaving()) {
            let seen = self.seen(leaving.packet, leaving.verdict);
            self.made.push(seen);
        }
    }

    /// What the µNF sent or dropped, besides the packets that it was given, since the last call:
    /// packets that it made, and packets that it had held.
    pub fn made(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.made)
    }

    /// The input is still, and so many nanoseconds have gone by on the wall clock (counted from
    /// anywhere).
    pub fn tick(&mut self, wall_ns: u64) {
        self.pool.fill(std::mem::take(&mut self.for_nf));
        let site = Site { arena: &self.arena, pool: &self.pool, keys: &self.keys };
        self.instance.tick(wall_ns, Seq::new(self.next), site);
        self.collect();
    }

    /// The input has ended.
    pub fn end(&mut self) {
        self.pool.fill(std::mem::take(&mut self.for_nf));
        let site = Site { arena: &self.arena, pool: &self.pool, keys: &self.keys };
        self.instance.end(Seq::new(self.next), site);
        self.collect();
    }

    /// Packets that it holds.
    pub fn held(&self) -> usize {
        self.instance.held()
    }

    /// Buffers that are free for packets that it makes.
    pub fn buffers(&self) -> usize {
        self.for_nf.len()
    }

    /// Writes down its shared state, as before its worker dies.
    pub fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        self.instance.save(&mut saved);
        saved
    }

    /// Takes over what [`Bench::save`] wrote.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        self.instance.restore(saved)
    }

    /// Flows it remembers, and flows that found no room.
    pub fn flows(&self) -> (usize, u64) {
        self.instance.flows()
    }

    /// The µNF itself: for its flows as bytes.
    pub fn instance(&mut self) -> &mut dyn Instance {
        &mut *self.instance
    }

    /// The µNF's shared state.
    pub fn report(&self) -> Value {
        self.instance.report()
    }
}
