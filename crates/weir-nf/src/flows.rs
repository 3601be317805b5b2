//! Per-flow state: a bounded table, looked up by flow key.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hash::{BuildHasher, RandomState};
use weir_packet::FlowKey;

/// What a µNF remembers of one flow: a plain value that can be written down and read back, so that
/// a flow can move.
pub trait FlowState: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Version of the serialised form.
    const VERSION: u32 = 1;
}

impl FlowState for () {}

/// Flows in a table unless told otherwise.
pub const DEFAULT_FLOWS: usize = 1 << 16;
/// A flow without packets for so long may make room for another: 120 s, in nanoseconds.
pub const IDLE_NS: u64 = 120_000_000_000;
/// How many flows are looked at, at most, to find one that may make room.
const PROBE: usize = 32;

struct Record<F> {
    last_ns: u64,
    state: F,
}

/// A bounded table of flow states. Hashing is seeded at random per table, so that nobody can
/// choose packets that collide. When it is full, a flow that has been idle for [`IDLE_NS`] makes
/// room; when none is found quickly the new flow is refused and counted.
pub struct FlowTable<F> {
    flows: HashMap<FlowKey, Record<F>, RandomState>,
    capacity: usize,
    refused: u64,
    /// States of flows that made room, until somebody takes them.
    ended: Vec<F>,
}

impl<F: FlowState> FlowTable<F> {
    /// A table for at most `capacity` flows; memory grows with use.
    pub fn new(capacity: usize) -> Self {
        FlowTable {
            flows: HashMap::with_hasher(RandomState::new()),
            capacity,
            refused: 0,
            ended: Vec::new(),
        }
    }

    /// The state of the flow `key`, made when it is new; `None` when the table is full.
    #[inline]
    pub fn get_or_create(&mut self, key: FlowKey, now_ns: u64) -> Option<&mut F> {
        if self.flows.len() >= self.capacity && !self.flows.contains_key(&key) {
            self.make_room(now_ns);
            if self.flows.len() >= self.capacity {
                self.refused += 1;
                return None;
            }
        }
        let record = match self.flows.entry(key) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => free.insert(Record { last_ns: now_ns, state: F::default() }),
        };
        record.last_ns = record.last_ns.max(now_ns);
        Some(&mut record.state)
    }

    #[cold]
    fn make_room(&mut self, now_ns: u64) {
        // A fresh random start each time: always probing the same few would miss idle ones.
        let start = RandomState::new().hash_one(now_ns) as usize % self.flows.len().max(1);
        let idle = |r: &Record<F>| now_ns.saturating_sub(r.last_ns) >= IDLE_NS;
        let found = self
            .flows
            .iter()
            .skip(start)
            .chain(self.flows.iter())
            .take(PROBE)
            .find(|(_, r)| idle(r))
            .map(|(k, _)| *k);
        if let Some(record) = found.and_then(|key| self.flows.remove(&key)) {
            self.ended.push(record.state);
        }
    }

    /// States of flows that have ended since the last call.
    pub fn take_ended(&mut self) -> std::vec::Drain<'_, F> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::wire::Frame;
    use weir_packet::{Depth, parse};

    #[derive(Default, serde::Serialize, serde::Deserialize)]
    struct Count(u32);
    impl FlowState for Count {}

    fn key(flow: u16) -> FlowKey {
        let frame = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(flow, 53).build();
        let layers = parse(frame.as_slice(), Depth::L4);
        FlowKey::from_packet(&frame.as_slice(), &layers).unwrap().0
    }

    #[test]
    fn a_full_table_refuses_new_flows_while_all_are_busy() {
        let mut table = FlowTable::<Count>::new(3);
        for flow in 0..3 {
            table.get_or_create(key(flow), 1).unwrap().0 += 1;
        }
        assert!(table.get_or_create(key(3), 2).is_none());
        assert_eq!((table.len(), table.refused()), (3, 1));
        assert_eq!(table.get_or_create(key(0), 3).unwrap().0, 1);
    }

    #[test]
    fn an_idle_flow_makes_room_and_its_state_is_given_back() {
        let mut table = FlowTable::<Count>::new(2);
        table.get_or_create(key(0), 0).unwrap().0 = 7;
        table.get_or_create(key(1), IDLE_NS).unwrap().0 = 8;
        assert!(table.get_or_create(key(2), IDLE_NS).is_some());
        assert_eq!(table.take_ended().map(|c| c.0).collect::<Vec<_>>(), [7]);
        assert_eq!(table.len(), 2);
    }
}
