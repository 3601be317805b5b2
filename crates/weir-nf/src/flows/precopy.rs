//! Copying a table into another while packets change it (pre-copy: Clark et al., "Live Migration of Virtual Machines",
//! NSDI 2005): each flow once, some at a time, and again what has changed since; in the end only that is left.
//!
//! The copy has numbers of its own, and lags behind until the rest has come.

use super::form::{
    Reader, RestoreError, SaveError, read_tcp, read_versioned, read_versions, write_len,
    write_versions,
};
use super::index::MOST_KEYS;
use super::paged::Paged;
use super::state::FlowState;
use super::table::{FlowTable, Slot};
use std::collections::VecDeque;
use weir_packet::FlowKey;

/// In [`Slot::copy`]: the flow is noted, as its copy is out of date.
const NOTED: u8 = 1;
/// The copy has another flow of this number, or not all its keys.
const OTHER: u8 = 2;
/// The flow that the copy has is noted as ended.
const ENDED: u8 = 4;

/// Numbers that are looked at for each call, at most: a table may have had many more flows than it has.
const LOOK: u32 = 1 << 14;
/// Numbers are below this, or below this table's own: what somebody writes costs no more memory.
const NUMBERS: usize = 1 << 24;
/// Numbers of flows per page. Few pages: they are dropped in the pause, and those of a million flows in small ones take it longer than all else there.
const PAGE: usize = 1 << 12;
/// Flows that are brought into the caches at a time.
const GROUP: usize = 32;
/// The walk is over.
const ALL: u32 = u32::MAX;

/// What stands of a flow in a copy: all; or how its connection stands, its last packet's time, and its state.
const WHOLE: u8 = 1;
const STATE: u8 = 2;

/// How a copy goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Flows that were copied now, or again.
    pub copied: usize,
    /// Flows that are left: that were not copied yet, or have changed since.
    pub left: usize,
    /// Some may not have been copied at all.
    pub walks: bool,
}

/// How far a table is copied, at the side that has it.
pub(super) struct Copying {
    /// Which copy this is, and how many letters of it there were.
    id: (u64, u32),
    /// Flows of lower numbers have been copied.
    upto: u32,
    /// Those of them that have changed since, each once.
    changed: VecDeque<u32>,
    /// Numbers of those that have ended since the last letter, each once. They are said first in each: so all that is copied has room in a copy as it
    /// has here, keys too.
    ended: Vec<u32>,
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

    /// A flow has ended, or gone.
    pub(super) fn end<F>(&mut self, flow: u32, slot: &mut Slot<F>) {
        slot.copy |= OTHER;
        if slot.copy & ENDED == 0 && flow < self.upto {
            slot.copy |= ENDED;
            self.ended.push(flow);
        }
    }
}

/// Which flow is whose copy, at the side that gets it; numbers are one too high, and 0 is none.
pub(super) struct Copied {
    /// Which copy this is, and how many letters of it have come.
    id: (u64, u32),
    /// Flows' numbers here by those that they have there.
    own: Paged<u32, PAGE>,
    /// The reverse.
    of: Paged<u32, PAGE>,
}

impl Copied {
    fn own(&self, number: u32) -> Option<u32> {
        self.own.get(number)?.checked_sub(1)
    }
}

impl<F: FlowState> FlowTable<F> {
    /// From now on the table is being copied, from its beginning: [`FlowTable::precopy`]. `id` is of no other copy that who
    /// takes it may be given.
    pub fn begin_precopy(&mut self, id: u64) {
        debug_assert_eq!(self.unread(), 0, "some would be left out");
        self.end_precopy();
        let (changed, ended) = (VecDeque::new(), Vec::new());
        self.notes.copying = Some(Copying { id: (id, 0), upto: 0, changed, ended });
        self.notes.on = true;
    }

    /// It is not copied any more.
    pub fn end_precopy(&mut self) {
        if let Some(Copying { changed, ended, .. }) = self.notes.copying.take() {
            for flow in changed.into_iter().chain(ended) {
                self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy = 0);
            }
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
    pub fn precopy(&mut self, most: usize, out: &mut Vec<u8>) -> Result<CopyProgress, SaveError> {
        let Some(mut copying) = self.notes.copying.take() else {
            return Ok(CopyProgress::default());
        };
        let start = out.len();
        let written = self.copy_some(&mut copying, most, out).inspect_err(|_| out.truncate(start));
        let (left, walks) = (self.left(&copying), copying.upto != ALL);
        self.notes.copying = Some(copying);
        written.map(|copied| CopyProgress { copied, left, walks })
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
        write_head::<F>(copying, out);
        for flow in copying.ended.drain(..) {
            self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy &= !ENDED);
        }
        copying.id.1 += 1;
        let count = out.len();
        write_len(0, out);
        let end = out.len().saturating_add(most);
        let (mut written, mut looks) = (0, LOOK);
        while out.len() < end && copying.upto != ALL && looks > 0 {
            let (flow, next) = self.index.next(copying.upto, looks as usize);
            looks = looks.saturating_sub(next.map_or(LOOK, |next| next - copying.upto));
            copying.upto = next.unwrap_or(ALL);
            if let Some(flow) = flow {
                self.write_whole(flow, out)?;
                self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy = 0);
                written += 1;
            }
        }
        let mut ready = 0;
        while out.len() < end
            && copying.upto == ALL
            && let Some(flow) = copying.changed.front()
        {
            if ready == 0 {
                ready = GROUP;
                self.touch(copying.changed.iter().take(GROUP).copied());
            }
            ready -= 1;
            written += usize::from(self.write_change(*flow, out)?);
            self.slots.get_mut(*flow).into_iter().for_each(|slot| slot.copy &= ENDED);
            copying.changed.pop_front();
        }
        put_count(out, count, written);
        Ok(written)
    }

    /// Writes down all that the copy lacks: nothing changes, so that it can be said again, after more has changed.
    ///
    /// # Errors
    /// As [`FlowTable::precopy`].
    pub fn save_rest(&self, out: &mut Vec<u8>) -> Result<(), SaveError> {
        let start = out.len();
        self.write_rest(out).inspect_err(|_| out.truncate(start))
    }

    fn write_rest(&self, out: &mut Vec<u8>) -> Result<(), SaveError> {
        let Some(copying) = &self.notes.copying else { return Ok(()) };
        self.save_fragments(out);
        write_head::<F>(copying, out);
        let count = out.len();
        write_len(0, out);
        let mut written = 0;
        let mut from = Some(copying.upto).filter(|upto| *upto != ALL);
        while let Some(at) = from {
            let (flow, next) = self.index.next(at, usize::MAX);
            if let Some(flow) = flow {
                self.write_whole(flow, out)?;
                written += 1;
            }
            from = next;
        }
        let mut ahead = copying.changed.iter().copied();
        for (at, flow) in copying.changed.iter().enumerate() {
            if at.is_multiple_of(GROUP) {
                self.touch(ahead.by_ref().take(GROUP));
            }
            written += usize::from(self.write_change(*flow, out)?);
        }
        put_count(out, count, written);
        Ok(())
    }

    /// Brings flows into the processor's caches, so that going through them one after the other does not wait for memory each time.
    fn touch(&self, flows: impl Iterator<Item = u32>) {
        for flow in flows {
            self.slots.get(flow).into_iter().for_each(weir_mem::prefetch);
            self.index.prefetch(flow);
        }
    }

    fn write_whole(&self, flow: u32, out: &mut Vec<u8>) -> Result<(), SaveError> {
        out.extend(flow.to_le_bytes());
        out.push(WHOLE);
        self.write(flow, out)
    }

    /// False when there is none of this number any more: that is said already.
    fn write_change(&self, flow: u32, out: &mut Vec<u8>) -> Result<bool, SaveError> {
        let slot = self.slots.get(flow).filter(|_| self.index.has(flow));
        let Some(slot) = slot else { return Ok(false) };
        if slot.copy & OTHER != 0 {
            self.write_whole(flow, out)?;
            return Ok(true);
        }
        out.extend(flow.to_le_bytes());
        out.extend([STATE, slot.tcp.bits()]);
        out.extend(slot.idle_s.to_le_bytes());
        out.extend(slot.last_ns.to_le_bytes());
        self.write_state(flow, slot, out)?;
        Ok(true)
    }

    /// The flow of this number is not the one that a copy has, or has more keys.
    #[inline]
    pub(super) fn is_other(&mut self, flow: u32) {
        if self.notes.copying.is_some() {
            self.slots.get_mut(flow).into_iter().for_each(|slot| slot.copy |= OTHER);
        }
    }

    /// Makes a copy's flows what [`FlowTable::precopy`] has written: of one table, and in that order. How many it were. The first of another
    /// copy begins anew.
    ///
    /// # Errors
    /// When it cannot be read, is not the next of its copy, or there is no room: what of it is in the table then counts for nothing, and
    /// [`FlowTable::forget_precopied`] has to follow.
    pub fn take_precopied(&mut self, now_ns: u64, saved: &[u8]) -> Result<usize, RestoreError> {
        let mut from = Reader(saved);
        let (version, id) = read_head(&mut from)?;
        if id.1 == 0 {
            self.forget_precopied();
            self.copied = Some(Copied { id, own: Paged::default(), of: Paged::default() });
        }
        self.take_copies(id, (now_ns, version), &mut from)
    }

    /// The same of what [`FlowTable::save_rest`] has written; from here on the table is no copy, but goes on by itself.
    ///
    /// # Errors
    /// The same.
    pub fn take_rest(&mut self, now_ns: u64, saved: &[u8]) -> Result<usize, RestoreError> {
        let mut from = Reader(saved);
        self.restore_fragments(&mut from)?;
        let (version, id) = read_head(&mut from)?;
        let taken = self.take_copies(id, (now_ns, version), &mut from)?;
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
        id: (u64, u32),
        (now_ns, version): (u64, u32),
        from: &mut Reader<'_>,
    ) -> Result<usize, RestoreError> {
        let mut copied = self.copied.take();
        let taken = match copied.as_mut().filter(|copied| copied.id == id) {
            Some(copied) => self.take_letter(copied, (now_ns, version), from),
            None => Err(RestoreError::Damaged("it is not what follows on what was copied")),
        };
        self.copied = copied;
        taken
    }

    fn take_letter(
        &mut self,
        copied: &mut Copied,
        (now_ns, version): (u64, u32),
        from: &mut Reader<'_>,
    ) -> Result<usize, RestoreError> {
        copied.id.1 += 1;
        for _ in 0..from.u32()? {
            let ended = copied.own(from.u32()?);
            self.remove_copies(copied, ended);
        }
        let count = from.u32()?;
        for at in 0..count as usize {
            if at.is_multiple_of(GROUP) {
                let ahead = Reader(from.0);
                self.touch(Ahead(ahead).take(GROUP).filter_map(|number| copied.own(number)));
            }
            let number = from.u32()?;
            let own = copied.own(number);
            match from.array()? {
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
            if let Some(of) = copied.of.get_mut(flow).map(std::mem::take) {
                let own = of.checked_sub(1).and_then(|number| copied.own.get_mut(number));
                own.into_iter().for_each(|own| *own = 0);
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
        if number as usize >= NUMBERS.max(self.index.capacity()) {
            return Err(RestoreError::Damaged("a flow's number is none"));
        }
        let read = self.parse(from, version)?;
        // Ended flows are out, and there a key leads to one: it cannot be here. Unless who wrote this is not to be believed.
        let taken = read.keys().find(|key| self.index.find(key, self.index.hash(key)).is_some());
        if let Some(key) = taken {
            return Err(RestoreError::Exists(*key));
        }
        let (flow, _) = self.place(None, read, now_ns)?;
        if let (Some(own), Some(of)) = (copied.own.reach(number), copied.of.reach(flow)) {
            (*own, *of) = (flow + 1, number + 1);
        }
        Ok(())
    }

    fn take_state(
        &mut self,
        flow: u32,
        (now_ns, version): (u64, u32),
        from: &mut Reader<'_>,
    ) -> Result<(), RestoreError> {
        let tcp = read_tcp(*from.array::<1>()?)?;
        let idle_s = u16::from_le_bytes(*from.array()?);
        let last_ns = from.u64()?;
        let len = from.u32()?;
        let bytes = from.bytes(len as usize)?;
        let state = read_versioned(bytes, (version, F::VERSION), F::from_version)?;
        let before = self.due(flow);
        let on = self.notes.on;
        if let Some(slot) = self.slots.get_mut(flow) {
            (slot.state, slot.tcp, slot.idle_s, slot.last_ns) = (state, tcp, idle_s, last_ns);
            if on {
                self.notes.note(flow, slot);
            }
        }
        let due = self.due(flow);
        // What ends later is found in its old slot.
        if due < before {
            self.wheel.put(flow, due, now_ns);
        }
        Ok(())
    }

    /// When it ends if no more packets come.
    fn due(&self, flow: u32) -> u64 {
        self.slots.get(flow).map_or(0, |slot| slot.last_ns.saturating_add(self.idle(slot)))
    }
}

/// Numbers of flows that a letter says something of, from some place of it on, as far as it can be read.
struct Ahead<'b>(Reader<'b>);

impl Iterator for Ahead<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let Ahead(from) = self;
        let number = from.u32().ok()?;
        let [tag] = from.array().ok()?;
        match *tag {
            // How its connection stands, for how long it may be idle, and its last packet's time.
            STATE => drop(from.array::<{ 1 + 2 + 8 }>().ok()?),
            WHOLE => {
                // Its direction and its first packet's time as well.
                from.array::<{ 1 + 1 + 2 + 8 + 8 }>().ok()?;
                let keys = (from.u32().ok()? as usize).min(MOST_KEYS);
                from.bytes(keys * (FlowKey::BYTES + 1)).ok()?;
            }
            _ => return None,
        }
        let len = from.u32().ok()?;
        from.bytes(len as usize).ok()?;
        Some(number)
    }
}

/// The versions, which letter of which copy it is, and what has ended.
fn write_head<F: FlowState>(copying: &Copying, out: &mut Vec<u8>) {
    write_versions::<F>(out);
    out.extend(copying.id.0.to_le_bytes());
    out.extend(copying.id.1.to_le_bytes());
    write_len(copying.ended.len(), out);
    copying.ended.iter().for_each(|flow| out.extend(flow.to_le_bytes()));
}

/// The version of states, and which letter of which copy it is.
fn read_head(from: &mut Reader<'_>) -> Result<(u32, (u64, u32)), RestoreError> {
    Ok((read_versions(from)?, (from.u64()?, from.u32()?)))
}

fn put_count(out: &mut [u8], at: usize, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
    let place = out.get_mut(at..).and_then(|out| out.first_chunk_mut());
    place.into_iter().for_each(|place| *place = count);
}
