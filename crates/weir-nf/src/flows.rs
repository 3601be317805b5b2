//! Per-flow state: a bounded table, looked up by flow key.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::hash::RandomState;
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
/// choose packets that collide. When it is full, a flow that has been idle for 120 s makes
/// room; when none is found among the oldest the new flow is refused and counted.
pub struct FlowTable<F> {
    flows: HashMap<FlowKey, Record<F>, RandomState>,
    capacity: usize,
    refused: u64,
    /// All keys, in the order in which they will be looked at when room is needed.
    order: VecDeque<FlowKey>,
    /// Flows that made room, until somebody takes them.
    ended: Vec<(FlowKey, F)>,
}

impl<F: FlowState> FlowTable<F> {
    /// A table for at most `capacity` flows; memory grows with use.
    pub fn new(capacity: usize) -> Self {
        FlowTable {
            flows: HashMap::with_hasher(RandomState::new()),
            capacity,
            refused: 0,
            order: VecDeque::new(),
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
            Entry::Vacant(free) => {
                self.order.push_back(key);
                free.insert(Record { last_ns: now_ns, state: F::default() })
            }
        };
        record.last_ns = record.last_ns.max(now_ns);
        Some(&mut record.state)
    }

    /// Looks at the flows that were made (or looked at) longest ago, at most 32 of them, and
    /// ends the first that has been idle for long enough.
    #[cold]
    fn make_room(&mut self, now_ns: u64) {
        for _ in 0..PROBE {
            let Some(key) = self.order.pop_front() else { return };
            let idle = |r: &Record<F>| now_ns.saturating_sub(r.last_ns) >= IDLE_NS;
            if self.flows.get(&key).is_some_and(idle) {
                if let Some(record) = self.flows.remove(&key) {
                    self.ended.push((key, record.state));
                }
                return;
            }
            self.order.push_back(key);
        }
    }

    /// Flows that have ended since the last call, with their states.
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
        assert_eq!(table.take_ended().map(|(_, c)| c.0).collect::<Vec<_>>(), [7]);
        assert_eq!(table.len(), 2);
    }
}
