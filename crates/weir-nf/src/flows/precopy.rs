//! Copying a table into another while packets change it (pre-copy: Clark et al., "Live Migration of Virtual Machines",
//! NSDI 2005): each flow once, some at a time, and again what has changed since; in the end only that is left.
//!
//! The copy has numbers of its own. It may lag behind in any way until the rest has come: a flow may be in it that has ended, and
//! gives way to one that has its key now.

use super::form::{Reader, RestoreError, SaveError, read_versioned, read_versions, write_len};
use super::paged::Paged;
use super::state::FlowState;
use super::table::{FlowTable, Slot};
use std::collections::VecDeque;

/// In [`Slot::copy`]: the flow is noted, as its copy is out of date.
const NOTED: u8 = 1;
/// The copy has another flow of this number, or not all its keys.
const OTHER: u8 = 2;

/// Numbers of a walk that are looked at before it is asked again.
const LOOK: usize = 256;
/// The walk is over.
const ALL: u32 = u32::MAX;

/// What stands of a flow in a copy: there is none of this number any more; all; how its connection stands, its last packet's time, and its state.
const GONE: u8 = 0;
const WHOLE: u8 = 1;
const STATE: u8 = 2;

/// How a copy goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Flows that were copied now, or said to have ended.
    pub copied: usize,
    /// Flows that are left: that were not copied yet, or have changed since.
    pub left: usize,
}

/// How far a table is copied, at the side that has it.
#[derive(Default)]
pub(super) struct Copying {
    /// Flows of lower numbers have been copied.
    upto: u32,
    /// Those of them that have changed since, each once.
    changed: VecDeque<u32>,
}

impl Copying {
    /// A flow has changed, begun, or ended.
    #[inline]
    pub(super) fn note<F>(&mut self, flow: u32, slot: &mut Slot<F>) {
        if slot.copy & NOTED == 0 && flow < self.upto {
            slot.copy |= NOTED;
            self.changed.push_back(flow);
        }
    }
}

/// Which flow is whose copy, at the side that gets it; numbers are one too high, and 0 is none.
#[derive(Default)]
pub(super) struct Copied {
    /// By the number that it has there.
    own: Paged<u32>,
    /// By the number that it has here.
    of: Paged<u32>,
}

impl<F: FlowState> FlowTable<F> {
    /// From now on the table is being copied, from its beginning: [`FlowTable::precopy`].
    pub fn begin_precopy(&mut self) {
        self.end_precopy();
        self.notes.copying = Some(Copying::default());
        self.notes.on = true;
    }

    /// It is not copied any more.
    pub fn end_precopy(&mut self) {
        let noted = self.notes.copying.take().map(|copying| copying.changed);
        for flow in noted.into_iter().flatten() {
            self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy = 0);
        }
        self.notes.on = self.notes.every > 0;
    }

    /// True between the two.
    pub fn is_precopied(&self) -> bool {
        self.notes.copying.is_some()
    }

    /// Writes down some flows for [`FlowTable::take_precopied`], until that is `most` bytes or a little more: of those that were not copied
    /// yet, and, when there are no more of them, of those that have changed since, the longest ago first.
    ///
    /// # Errors
    /// When a state has no serialised form; `out` is then as it was, and the table has to be copied from the beginning.
    pub fn precopy(&mut self, most: usize, out: &mut Vec<u8>) -> Result<Progress, SaveError> {
        let Some(mut copying) = self.notes.copying.take() else { return Ok(Progress::default()) };
        let start = out.len();
        let written = self.copy_some(&mut copying, most, out).inspect_err(|_| out.truncate(start));
        let left = self.left(&copying);
        self.notes.copying = Some(copying);
        written.map(|copied| Progress { copied, left })
    }

    fn left(&self, copying: &Copying) -> usize {
        let ahead = match copying.upto {
            ALL => 0,
            upto => self.index.numbers().saturating_sub(upto) as usize,
        };
        ahead.min(self.len()) + copying.changed.len()
    }

    fn copy_some(
        &mut self,
        copying: &mut Copying,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, SaveError> {
        let count = write_head::<F>(out);
        let (mut written, end) = (0, out.len().saturating_add(most));
        while out.len() < end && copying.upto != ALL {
            let (flow, next) = self.index.next(copying.upto, LOOK);
            copying.upto = next.unwrap_or(ALL);
            if let Some(flow) = flow {
                self.write_whole(flow, out)?;
                self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy = 0);
                written += 1;
            }
        }
        while out.len() < end
            && let Some(flow) = copying.changed.pop_front()
        {
            self.write_change(flow, out)?;
            self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy = 0);
            written += 1;
        }
        put_count(out, count, written);
        Ok(written)
    }

    /// Writes down all that the copy lacks: nothing changes, so that it can be said again, after more has changed.
    ///
    /// # Errors
    /// As [`FlowTable::precopy`].
    pub fn save_rest(&self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), SaveError> {
        let start = out.len();
        self.write_rest(now_ns, out).inspect_err(|_| out.truncate(start))
    }

    fn write_rest(&self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), SaveError> {
        self.save_fragments(now_ns, out);
        let count = write_head::<F>(out);
        let mut written = 0;
        let Some(copying) = &self.notes.copying else { return Ok(()) };
        let mut from = Some(copying.upto).filter(|upto| *upto != ALL);
        while let Some(at) = from {
            let (flow, next) = self.index.next(at, usize::MAX);
            if let Some(flow) = flow {
                self.write_whole(flow, out)?;
                written += 1;
            }
            from = next;
        }
        for flow in &copying.changed {
            self.write_change(*flow, out)?;
            written += 1;
        }
        put_count(out, count, written);
        Ok(())
    }

    fn write_whole(&self, flow: u32, out: &mut Vec<u8>) -> Result<(), SaveError> {
        out.extend(flow.to_le_bytes());
        out.push(WHOLE);
        self.write(flow, out)
    }

    fn write_change(&self, flow: u32, out: &mut Vec<u8>) -> Result<(), SaveError> {
        let slot = self.slots.get(flow).filter(|_| self.index.keys(flow).next().is_some());
        let Some(slot) = slot else {
            out.extend(flow.to_le_bytes());
            out.push(GONE);
            return Ok(());
        };
        if slot.copy & OTHER != 0 {
            return self.write_whole(flow, out);
        }
        out.extend(flow.to_le_bytes());
        out.extend([STATE, slot.tcp.bits()]);
        out.extend(slot.idle_s.to_le_bytes());
        out.extend(slot.last_ns.to_le_bytes());
        self.write_state(flow, slot, out)
    }

    /// The flow of this number is not the one that a copy has, or has more keys.
    #[inline]
    pub(super) fn is_other(&mut self, flow: u32) {
        if self.notes.copying.is_some() {
            self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy |= OTHER);
        }
    }

    /// Makes a copy's flows what [`FlowTable::precopy`] has written: of one table, and in that order. How many it were.
    ///
    /// # Errors
    /// When it cannot be read, or there is no room: what of it is in the table then counts for nothing, and
    /// [`FlowTable::forget_precopied`] has to follow.
    pub fn take_precopied(&mut self, now_ns: u64, saved: &[u8]) -> Result<usize, RestoreError> {
        let mut copied = self.copied.take().unwrap_or_default();
        let taken = self.take_copies(&mut copied, now_ns, &mut Reader(saved));
        self.copied = Some(copied);
        taken
    }

    /// The same of what [`FlowTable::save_rest`] has written; from here on the table is no copy, but goes on by itself.
    ///
    /// # Errors
    /// The same.
    pub fn take_rest(&mut self, now_ns: u64, saved: &[u8]) -> Result<usize, RestoreError> {
        let mut from = Reader(saved);
        self.restore_fragments(&mut from)?;
        let taken = self.take_precopied(now_ns, from.0)?;
        self.copied = None;
        Ok(taken)
    }

    /// Takes out all flows that are copies.
    pub fn forget_precopied(&mut self) {
        let Some(copied) = self.copied.take() else { return };
        for flow in 0..self.index.numbers() {
            if copied.of.get(flow).is_some_and(|of| *of != 0) {
                self.remove(flow);
            }
        }
    }

    fn take_copies(
        &mut self,
        copied: &mut Copied,
        now_ns: u64,
        from: &mut Reader<'_>,
    ) -> Result<usize, RestoreError> {
        let version = read_versions(from)?;
        let count = from.u32()?;
        for _ in 0..count {
            let number = from.u32()?;
            if number as usize >= self.index.capacity() {
                return Err(RestoreError::Full(self.index.capacity()));
            }
            let own = copied.own.get(number).and_then(|own| own.checked_sub(1));
            match from.array()? {
                [GONE] => self.remove_copies(copied, own),
                [WHOLE] => {
                    self.remove_copies(copied, own);
                    self.take_whole(copied, number, (now_ns, version), from)?;
                }
                [STATE] => {
                    let own = own.ok_or(RestoreError::Damaged("a flow's state came before it"))?;
                    self.take_state(own, (now_ns, version), from)?;
                }
                _ => return Err(RestoreError::Damaged("what is said of a flow is nothing")),
            }
        }
        from.end()?;
        Ok(count as usize)
    }

    fn remove_copies(&mut self, copied: &mut Copied, flows: impl IntoIterator<Item = u32>) {
        for flow in flows {
            self.remove(flow);
            let of = copied.of.get_mut(flow).map(std::mem::take);
            if let Some(own) = of.and_then(|of| copied.own.get_mut(of.checked_sub(1)?)) {
                *own = 0;
            }
        }
    }

    fn take_whole(
        &mut self,
        copied: &mut Copied,
        number: u32,
        (now_ns, version): (u64, u32),
        from: &mut Reader<'_>,
    ) -> Result<(), RestoreError> {
        let read = self.parse(from, version)?;
        // Who has one of its keys here has ended there: that is only still to be said.
        let rivals =
            read.keys().filter_map(|key| Some(self.index.find(key, self.index.hash(key))?.0));
        let rivals: Vec<_> = rivals.collect();
        let is_copy = |flow: &u32| copied.of.get(*flow).is_some_and(|of| *of != 0);
        if let Some(key) = read.keys().next().filter(|_| !rivals.iter().all(is_copy)) {
            return Err(RestoreError::Exists(*key));
        }
        self.remove_copies(copied, rivals);
        let (flow, _) = self.place(None, read, now_ns)?;
        if let Some(own) = copied.own.reach(number) {
            *own = flow + 1;
        }
        if let Some(of) = copied.of.reach(flow) {
            *of = number + 1;
        }
        Ok(())
    }

    fn take_state(
        &mut self,
        flow: u32,
        (now_ns, version): (u64, u32),
        from: &mut Reader<'_>,
    ) -> Result<(), RestoreError> {
        let tcp = super::form::read_tcp(*from.array::<1>()?)?;
        let idle_s = u16::from_le_bytes(*from.array()?);
        let last_ns = from.u64()?;
        let len = from.u32()?;
        let bytes = from.bytes(len as usize)?;
        let state = read_versioned(bytes, (version, F::VERSION), F::from_version)?;
        let idle = |table: &Self| {
            table.slots.get(flow).map_or(0, |slot| slot.last_ns.saturating_add(table.idle(slot)))
        };
        let before = idle(self);
        let on = self.notes.on;
        if let Some(slot) = self.slots.get_mut(flow) {
            (slot.state, slot.tcp, slot.idle_s, slot.last_ns) = (state, tcp, idle_s, last_ns);
            if on {
                self.notes.note(flow, slot);
            }
        }
        let due = idle(self);
        // What ends later is found in its old slot.
        if due < before {
            self.wheel.put(flow, due, now_ns);
        }
        Ok(())
    }
}

/// The versions, and room for a count: where that is.
fn write_head<F: FlowState>(out: &mut Vec<u8>) -> usize {
    super::form::write_versions::<F>(out);
    write_len(0, out);
    out.len() - size_of::<u32>()
}

fn put_count(out: &mut [u8], at: usize, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
    let place = out.get_mut(at..).and_then(|out| out.first_chunk_mut());
    place.into_iter().for_each(|place| *place = count);
}
