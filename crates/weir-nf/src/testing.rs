//! A bench for one µNF: packets in, packets and verdicts out, without processes or rings.

use crate::ctx::{Clock, Env};
use crate::instance::{BuildError, Instance, Running};
use crate::nf::Nf;
use serde_json::Value;
use weir_mem::arena::HEADROOM;
use weir_mem::meta::Arrival;
use weir_mem::{Arena, ArenaShape, Entry, RegionError, Seq};
use weir_packet::{BATCH, DropReason, Packet, Verdict};

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
    clock: Clock,
}

impl Bench {
    /// A µNF of type `N` with `config`.
    pub fn new<N: Nf>(config: Value) -> Result<Self, BenchError> {
        Self::with_env::<N>(config, &Env::default())
    }

    /// As [`Bench::new`], with tags and seed.
    pub fn with_env<N: Nf>(config: Value, env: &Env) -> Result<Self, BenchError> {
        let shape = ArenaShape::new(BATCH as u32, ArenaShape::MAX_PACKET);
        Ok(Bench {
            instance: Box::new(Running::<N>::new(&config, env)?),
            arena: Arena::private(shape)?,
            clock: Clock::default(),
        })
    }

    /// Sends packets through in batches and says what became of each.
    pub fn run<P: AsRef<[u8]>>(&mut self, packets: &[P]) -> Vec<Seen> {
        let wire: Vec<_> = packets.iter().map(|p| (p.as_ref(), p.as_ref().len(), 0)).collect();
        self.run_cut(&wire)
    }

    /// As [`Bench::run`], with each packet's length on the wire and time stamp.
    pub fn run_cut(&mut self, packets: &[(&[u8], usize, u64)]) -> Vec<Seen> {
        packets.chunks(BATCH).flat_map(|chunk| self.batch(chunk)).collect()
    }

    fn batch(&mut self, packets: &[(&[u8], usize, u64)]) -> Vec<Seen> {
        let mut batch = Vec::new();
        for (i, (bytes, wire, time)) in packets.iter().enumerate() {
            let len = bytes.len().min(ArenaShape::MAX_PACKET as usize);
            let mut entry = Entry::packet(i as u32, HEADROOM, len as u16, Seq::new(i as u64), 0);
            if let Some(mut b) = self.arena.bytes_mut(&mut entry) {
                b.write(0, &bytes[..len]);
            }
            if let Some(meta) = self.arena.meta(&entry) {
                let (wire_len, time_ns) = (*wire as u32, *time);
                meta.arrive(&Arrival { wire_len, time_ns, ..Arrival::default() }, 0, true);
            }
            batch.extend(Packet::admit(entry, self.arena.view()));
        }
        let mut verdicts = vec![Verdict::FIRST; batch.len()];
        self.instance.process(&mut batch, &mut verdicts, &self.arena, 0, &mut self.clock);
        let outputs = self.instance.descriptor().outputs;
        batch
            .iter()
            .zip(verdicts)
            .map(|(packet, verdict)| {
                let bytes = self.arena.bytes(packet.entry());
                let mut copy = vec![0; bytes.len()];
                bytes.copy_to(0, &mut copy);
                let verdict = match verdict.as_output() {
                    Some(k) => Ok(outputs.get(k as usize).copied().unwrap_or("(no such output)")),
                    None => Err(verdict.as_drop().unwrap_or(DropReason::BadEntry)),
                };
                Seen { verdict, bytes: copy }
            })
            .collect()
    }

    /// The µNF's shared state.
    pub fn report(&self) -> Value {
        self.instance.report()
    }
}
