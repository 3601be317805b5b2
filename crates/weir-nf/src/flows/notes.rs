//! Which flows have changed since they were written down last, for a replica of a table, and for a copy.

use super::form::RestoreError;
use super::precopy::Copying;
use super::state::FlowState;
use super::table::{FlowTable, Slot};

/// What [`FlowTable::take_changed`] gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed<'r> {
    /// This flow comes in a while: what says where it is written to may be fetched.
    Soon(u32),
    /// It comes in a moment: where it is written to may be fetched.
    Next(u32),
    /// A flow, by its number; its record for [`FlowTable::recover`], and the tag for [`FlowTable::recover_later`].
    Flow(u32, &'r [u8], u64),
    /// The flow of this number has ended (it may be another's by the next call), or has no serialised form.
    Ended(u32),
}

/// So many flows before it is written a flow is [`Changed::Soon`], and [`Changed::Next`]. Flows that have changed are in no order, so the table and its replica
/// are in no cache when there are many.
const SOON: usize = 8;
const NEXT: usize = 4;

/// The lists of these flows: each once, however many of a batch's packets are its.
#[derive(Default)]
pub(super) struct Notes {
    /// A flow is noted at every so many packets; 0: nothing is.
    pub(super) every: u16,
    /// What is read may lack a flow's last packets.
    pub(super) lags: bool,
    /// Somebody wants to know: the replica, or a copy.
    pub(super) on: bool,
    /// While the table is copied.
    pub(super) copying: Option<Copying>,
    changed: Vec<u32>,
    record: Vec<u8>,
}

impl Notes {
    /// A packet of a flow. `at_once`: it changed what must not be forgotten, or is the first.
    #[inline]
    pub(super) fn look<F>(&mut self, flow: u32, slot: &mut Slot<F>, at_once: bool) {
        if self.every > 0 {
            slot.unnoted = slot.unnoted.saturating_add(1);
            if at_once || slot.unnoted >= self.every {
                self.note_for_replica(flow, slot);
            }
        }
        self.note_for_copy(flow, slot);
    }

    /// A flow has changed, or ended.
    #[inline]
    pub(super) fn note<F>(&mut self, flow: u32, slot: &mut Slot<F>) {
        if self.every > 0 {
            self.note_for_replica(flow, slot);
        }
        self.note_for_copy(flow, slot);
    }

    /// A flow has changed in some way that its replica need not know.
    #[inline]
    pub(super) fn note_for_copy<F>(&mut self, flow: u32, slot: &mut Slot<F>) {
        if let Some(copying) = &mut self.copying {
            copying.note(flow, slot);
        }
    }

    #[inline]
    fn note_for_replica<F>(&mut self, flow: u32, slot: &mut Slot<F>) {
        if !slot.noted {
            slot.noted = true;
            self.changed.push(flow);
        }
    }
}

impl<F: FlowState> FlowTable<F> {
    /// From now on flows are noted when they change: at every `every`-th packet, and whenever they begin or end, get a key,
    /// their TCP connection comes further, or somebody says so ([`FlowTable::note`]); and after a pause of which a few more would
    /// end them. To be said before there are any. 0: not at all. `lags`: records of them may be older than what they
    /// are read into has to go on from, and their states are told ([`FlowState::recovered_late`]).
    pub fn follow(&mut self, every: u16, lags: bool) {
        (self.notes.every, self.notes.lags) = (every, lags);
        self.notes.on = every > 0 || self.notes.copying.is_some();
    }

    /// The flow that was looked up last has changed in a way that must not be forgotten: it is noted at this packet, however
    /// seldom flows are otherwise.
    #[inline]
    pub fn note(&mut self) {
        if self.notes.on
            && let Some((flow, _)) = self.current
            && let Some(slot) = self.slots.get_mut(flow)
        {
            self.notes.note(flow, slot);
        }
    }

    /// True when a flow that is noted at every n-th packet only has paused for so long that as many pauses, which its record
    /// would lack, are half of what it may be idle for.
    #[inline]
    pub(super) fn is_slow(&self, flow: u32, now_ns: u64) -> bool {
        if self.notes.every < 2 {
            return false;
        }
        self.slots.get(flow).is_some_and(|slot| {
            let pause = now_ns.saturating_sub(slot.last_ns);
            pause.saturating_mul(2 * u64::from(self.notes.every)) >= self.idle(slot)
        })
    }

    /// True when some flow is noted.
    pub fn has_changed(&self) -> bool {
        !self.notes.changed.is_empty()
    }

    /// Gives each flow that has changed since the last call.
    pub fn take_changed(&mut self, mut to: impl FnMut(Changed<'_>)) {
        let mut record = std::mem::take(&mut self.notes.record);
        let mut changed = std::mem::take(&mut self.notes.changed);
        for (at, flow) in changed.iter().copied().enumerate() {
            if let Some(soon) = changed.get(at + SOON) {
                self.index.prefetch(*soon);
                self.slots.get(*soon).into_iter().for_each(weir_mem::prefetch);
                to(Changed::Soon(*soon));
            }
            if let Some(next) = changed.get(at + NEXT) {
                to(Changed::Next(*next));
            }
            if let Some(slot) = self.slots.get_mut(flow) {
                (slot.noted, slot.unnoted) = (false, 0);
            }
            record.clear();
            let is_there = self.index.keys(flow).next().is_some();
            let written = is_there && self.write_record(flow, &mut record).is_ok();
            to(match written {
                true => Changed::Flow(flow, &record, self.tag(flow, &record)),
                false => Changed::Ended(flow),
            });
        }
        changed.clear();
        (self.notes.record, self.notes.changed) = (record, changed);
    }

    /// Puts in a flow from a replica, with the number that it had. To be called by ascending numbers, in a table that has
    /// had no flows.
    ///
    /// # Errors
    /// As [`FlowTable::put`]; nothing has changed then.
    pub fn recover(&mut self, number: u32, now_ns: u64, record: &[u8]) -> Result<(), RestoreError> {
        if !self.index.reserve(number) {
            return Err(RestoreError::Full(self.index.capacity()));
        }
        self.read_reserved(number, now_ns, record)
    }
}
