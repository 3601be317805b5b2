//! Per-flow state: a bounded table, looked up by flow key.

use crate::ctx::FlowOf;
use crate::wheel::Wheel;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hash::{BuildHasher, RandomState};
use weir_packet::{Bytes, Direction, FlowHasher, FlowKey, Fragment, FragmentTable, Layers};

/// What a µNF remembers of one flow: a plain value that can be written down and read back, so that
/// a flow can move.
pub trait FlowState: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Version of the serialised form.
    const VERSION: u32 = 1;
}

impl FlowState for () {}

/// Datagrams whose first fragment is remembered, so that later ones find their flow.
const FRAGMENTED: usize = 1024;
/// Flows that are looked at, at most, per batch (or to find room) to see whether they have ended.
const PROBE: usize = 32;

struct Record<F> {
    key: FlowKey,
    /// Direction of its first packet.
    started: Direction,
    last_ns: u64,
    state: F,
}

/// A bounded table of flow states.
///
/// Hashing (SipHash) is seeded at random per table, so that nobody can choose packets that collide. A flow
/// that has been idle for as long as the µNF says has ended: its next packet begins a new one. Ended
/// flows are found by a wheel of time slots, a few per batch, without ever going through the
/// table. When the table is full of busy flows a new one is refused and counted: those
/// that are there keep their state, whoever floods.
pub struct FlowTable<F> {
    flows: HashTable<Record<F>>,
    hasher: FlowHasher,
    fragments: Option<FragmentTable>,
    capacity: usize,
    idle_ns: u64,
    refused: u64,
    wheel: Wheel,
    /// Flows that have ended, until somebody takes them.
    ended: Vec<(FlowKey, F)>,
}

impl<F: FlowState> FlowTable<F> {
    /// A table for at most `capacity` flows, which end after `idle_ns` nanoseconds without packets;
    /// memory grows with use.
    pub fn new(capacity: u32, idle_ns: u64) -> Self {
        let random = RandomState::new();
        let seed = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
        FlowTable {
            flows: HashTable::new(),
            hasher: FlowHasher::new(seed),
            fragments: None,
            capacity: capacity as usize,
            idle_ns,
            refused: 0,
            wheel: Wheel::new(idle_ns),
            ended: Vec::new(),
        }
    }

    /// The flow that a packet belongs to, and its direction in it. `layers` must have depth L4.
    #[inline]
    pub fn key<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        now_ns: u64,
    ) -> Option<(FlowKey, Direction)> {
        if layers.fragment() == Fragment::Whole {
            return FlowKey::from_packet(bytes, layers);
        }
        let table = || FragmentTable::new(FRAGMENTED, self.hasher);
        self.fragments.get_or_insert_with(table).key(bytes, layers, now_ns)
    }

    /// The flow `key`, made when it is new; `None` when the table is full.
    #[inline]
    pub fn find(
        &mut self,
        key: FlowKey,
        direction: Direction,
        now_ns: u64,
    ) -> Option<FlowOf<'_, F>> {
        let hash = self.hasher.hash(&key);
        if self.flows.len() >= self.capacity && self.flows.find(hash, |r| r.key == key).is_none() {
            self.expire(now_ns);
            if self.flows.len() >= self.capacity {
                self.refused += 1;
                return None;
            }
        }
        let hasher = self.hasher;
        let rehash = |r: &Record<F>| hasher.hash(&r.key);
        let mut is_new = false;
        let record = match self.flows.entry(hash, |r| r.key == key, rehash) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => {
                is_new = true;
                self.wheel.put(key, now_ns.saturating_add(self.idle_ns), now_ns);
                let state = F::default();
                free.insert(Record { key, started: direction, last_ns: now_ns, state }).into_mut()
            }
        };
        if now_ns.saturating_sub(record.last_ns) >= self.idle_ns && !is_new {
            // It stands in the wheel already.
            self.ended.push((key, std::mem::take(&mut record.state)));
            (is_new, record.started) = (true, direction);
        }
        record.last_ns = record.last_ns.max(now_ns);
        let from_starter = record.started == direction;
        Some(FlowOf { state: &mut record.state, from_starter, is_new })
    }

    /// Ends flows that have been idle for too long: looks at a few of those that may have.
    #[inline]
    pub fn expire(&mut self, now_ns: u64) {
        if !self.flows.is_empty() && self.wheel.is_due(now_ns) {
            self.look(now_ns);
        }
    }

    #[cold]
    fn look(&mut self, now_ns: u64) {
        for _ in 0..PROBE {
            let Some(key) = self.wheel.take_due(now_ns) else { return };
            let hash = self.hasher.hash(&key);
            let Ok(found) = self.flows.find_entry(hash, |r| r.key == key) else { continue };
            let due = found.get().last_ns.saturating_add(self.idle_ns);
            if due <= now_ns {
                let (record, _) = found.remove();
                self.ended.push((key, record.state));
            } else {
                self.wheel.put(key, due, now_ns);
            }
        }
    }

    /// Flows that have ended since the last call, with their states.
    #[inline]
    pub fn take_ended(&mut self) -> std::vec::Drain<'_, (FlowKey, F)> {
        self.ended.drain(..)
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Flows that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
