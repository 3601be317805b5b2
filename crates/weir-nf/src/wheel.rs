//! Which flows may have been idle for too long: a wheel of time slots (Varghese & Lauck, "Hashed and
//! hierarchical timing wheels", SOSP 1987). Each flow stands in one slot. One that was busy meanwhile
//! is found in its old slot and put into a new one, so a packet does not touch the wheel.

use std::collections::VecDeque;
use weir_packet::FlowKey;

/// Slots per idle time: a flow ends at most a sixteenth of its idle time late.
const SLOTS: u64 = 16;

pub(crate) struct Wheel {
    slots: VecDeque<Vec<FlowKey>>,
    /// Nanoseconds per slot.
    slot_ns: u64,
    /// Number of the first slot, counted from 1970.
    first: u64,
    len: usize,
}

impl Wheel {
    pub(crate) fn new(idle_ns: u64) -> Self {
        let slots = (0..SLOTS + 2).map(|_| Vec::new()).collect();
        Wheel { slots, slot_ns: (idle_ns / SLOTS).max(1), first: 0, len: 0 }
    }

    /// Puts a flow where it is looked at not before `due_ns`.
    pub(crate) fn put(&mut self, key: FlowKey, due_ns: u64, now_ns: u64) {
        if self.len == 0 {
            self.first = now_ns / self.slot_ns;
        }
        let slot = (due_ns / self.slot_ns).saturating_sub(self.first) as usize + 1;
        let slot = slot.min(self.slots.len() - 1);
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.push(key);
            self.len += 1;
        }
    }

    /// True when the first slot's time is over.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.first < now_ns / self.slot_ns
    }

    /// Takes a flow whose time may be over.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<FlowKey> {
        let now = now_ns / self.slot_ns;
        while self.len > 0 && self.first <= now {
            if let Some(key) = self.slots.front_mut()?.pop() {
                self.len -= 1;
                return Some(key);
            }
            if self.first == now {
                return None;
            }
            self.slots.rotate_left(1);
            self.first += 1;
        }
        None
    }
}
