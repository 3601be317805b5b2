//! What a worker's µNFs remember, record by record, as of its last commit: a replica that its death does not
//! take away.
//!
//! A table of slots, one for each flow and some more, each with two versions. A version carries the number of the
//! batch that it was written in, and counts once that batch is committed. Committed it is by whoever has the table:
//! the number stands among the words of the worker's [ledger](crate::ledger), so one store commits counters, rings and
//! records, and packets are published behind it (output commit: Pico Replication, SoCC 2013, §3; NFActor §4.2).
//! A record is written over the older version of its slot, never over the one that counts.
//!
//! ```text
//! words 0..        one bit for each page of slots that has ever been written
//! …                slots, 8 words each: version 0, version 1, each
//!                    the batch (0: none), place and length, checksum, tag
//! …                room for records, in units of 64 bytes
//! ```
//!
//! The memory is sparse: what is never written takes none. One process writes; its successor reads when it has
//! ended, and believes nothing.

mod room;

use self::room::{Claims, Room};
use crate::broken;
use crate::fault::{self, Step};
use crate::prefetch::prefetch;
use crate::region::{Mapping, Region, RegionError};
use crate::sync::{AtomicU64, Ordering, fence};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most bytes of a record.
pub const RECORD_BYTES: usize = room::UNIT << (room::CLASSES - 1);

const WORD: usize = size_of::<u64>();
const SLOT_WORDS: usize = 8;
const VERSION_WORDS: usize = SLOT_WORDS / 2;
const UNIT_WORDS: usize = room::UNIT / WORD;
/// Slots whose memory is made clean together, when the first of them is used: a page of memory.
const PAGE: u32 = if cfg!(loom) { 2 } else { 64 };
/// Units of a record that are fetched: most have fewer.
const MOST_FETCHED: usize = 4;
/// How far [`Found::ahead`] looks: memory has come by then.
const AHEAD: u32 = 8;

/// How large a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    slots: u32,
    units: u32,
}

impl Shape {
    const fn map_words(self) -> usize {
        self.slots.div_ceil(PAGE).div_ceil(u64::BITS) as usize
    }

    const fn first_record(self) -> usize {
        self.map_words() + self.slots as usize * SLOT_WORDS
    }

    const fn words(self) -> usize {
        self.first_record() + self.units as usize * UNIT_WORDS
    }
}

/// Why a record was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// There is no such slot.
    #[error("slot {0} of a replica of {slots}: it has no more", slots = ReplicaTable::SLOTS)]
    NoSlot(u32),
    /// The record is longer than [`RECORD_BYTES`].
    #[error("a record of {0} bytes; a replica takes {RECORD_BYTES} at most")]
    TooLong(usize),
    /// There is no room left.
    #[error("the replica's memory is full; allow fewer flows")]
    Full,
}

/// What stood in a table that was taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reopened {
    /// Records that were taken.
    pub taken: u64,
    /// Records that were refused, by whoever was given them or as another one lies there.
    pub refused: u64,
}

/// What a look at a slot has found.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// Nothing committed, or that its record is gone.
    Empty,
    /// A record, in the buffer, in this version.
    Record(usize),
    /// What cannot have been written so.
    Damaged,
}

/// One end of a replica. One process writes at a time.
pub struct ReplicaTable {
    words: NonNull<AtomicU64>,
    shape: Shape,
    /// The last word: worked out once.
    last: usize,
    room: Room,
    /// The last batch that a predecessor committed.
    before: u64,
    _backing: Option<Arc<Mapping>>,
}

/// A look at a [replica](ReplicaTable) from the process that writes it.
pub struct ReplicaView(ReplicaTable);

/// A record in a table that is taken over.
pub struct Found<'t> {
    table: &'t ReplicaTable,
    slot: u32,
    committed: u64,
    tag: u64,
    buffer: &'t mut Vec<u8>,
}

impl Found<'_> {
    /// What was written with it ([`ReplicaTable::put_tagged`]; 0 else). That is not checked, and stands beside it: it is not looked at for that.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The slot that is looked at so many slots later, if there may be a record, and what was written with that one; as little checked. For who wants to have near
    /// what it will be led to.
    #[must_use]
    pub fn ahead(&self) -> Option<(u32, u64)> {
        let (table, slot) = (self.table, self.slot.checked_add(AHEAD)?);
        if slot >= table.shape.slots || !table.is_used(slot / PAGE) {
            return None;
        }
        let (version, batch) = table.newest(slot, self.committed);
        (batch != 0).then(|| (slot, table.load(table.version(slot, version) + 3)))
    }

    /// It; `None` if it is damaged.
    pub fn record(&mut self) -> Option<&[u8]> {
        match self.table.look(self.slot, self.committed, self.buffer) {
            Look::Record(_) => Some(self.buffer),
            Look::Empty | Look::Damaged => None,
        }
    }
}

impl ReplicaView {
    /// As [`ReplicaTable::record`], into memory that the caller has; false when there is none.
    pub fn read(&self, slot: u32, committed: u64, record: &mut Vec<u8>) -> bool {
        let Self(table) = self;
        slot < table.shape.slots
            && table.is_used(slot / PAGE)
            && matches!(table.look(slot, committed, record), Look::Record(_))
    }
}

// SAFETY: only atomics behind the pointer, alive with the mapping.
unsafe impl Send for ReplicaTable {}

impl ReplicaTable {
    /// Slots of a table.
    pub const SLOTS: u32 = 1 << 24;
    const SHAPE: Shape = Shape { slots: Self::SLOTS, units: 1 << 27 };
    /// Bytes of the memory, nearly none of which exist before they are written.
    pub const LEN: usize = Self::SHAPE.words() * WORD;

    /// Attaches to a region of [`ReplicaTable::LEN`] bytes. A successor has to [reopen](ReplicaTable::reopen) it before
    /// it writes.
    ///
    /// # Errors
    /// When it cannot be mapped, or is smaller.
    pub fn attach(region: &Region) -> Result<Self, RegionError> {
        let mapping = region.map_writable()?;
        if mapping.len() < Self::LEN {
            return Err(RegionError::TooSmall { has: mapping.len() as u64, needs: Self::LEN });
        }
        let (words, shape) = (mapping.base().cast(), Self::SHAPE);
        let (room, last) = (Room::new(shape.units), shape.words().saturating_sub(1));
        let _backing = Some(Arc::new(mapping));
        Ok(ReplicaTable { words, shape, last, room, before: 0, _backing })
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        let at = at.min(self.last);
        // SAFETY: within the memory, which holds `shape.words()` aligned words (checked by `attach`) and lives as long as
        // `self`; an atomic may be shared with whoever writes it.
        unsafe { self.words.add(at).as_ref() }
    }

    // All accesses are Relaxed: what is written here is published by the ledger's Release store of the generation whose
    // words have the batch's number, and read by who has seen that by its Acquire (`Ledger::read`), or begins when the
    // writer's process has ended.
    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Relaxed);
    }

    fn version(&self, slot: u32, version: usize) -> usize {
        self.shape.map_words() + slot as usize * SLOT_WORDS + version * VERSION_WORDS
    }

    fn is_used(&self, page: u32) -> bool {
        self.load((page / u64::BITS) as usize) >> (page % u64::BITS) & 1 == 1
    }

    /// Makes a page clean that nobody has used yet: something older may stand there.
    #[cold]
    fn use_page(&self, page: u32) {
        let first = page * PAGE;
        for slot in first..(first + PAGE).min(self.shape.slots) {
            for word in 0..SLOT_WORDS {
                self.store(self.version(slot, 0) + word, 0);
            }
        }
        let at = (page / u64::BITS) as usize;
        self.store(at, self.load(at) | 1 << (page % u64::BITS));
    }

    /// The version of a slot to write in `batch`: the one of that batch if there is one already, else the older; where it is, and the
    /// room that it has.
    fn spare(&self, slot: u32, batch: u64) -> (usize, u32, usize) {
        let [first, second] = [0, 1].map(|v| self.load(self.version(slot, v)));
        // Of two of one batch the first counts, so the second is to be written over.
        let older =
            usize::from(if broken::is("replica") { first < second } else { first >= second });
        let version = match batch {
            _ if first == batch => 0,
            _ if second == batch => 1,
            _ => older,
        };
        let at = self.version(slot, version);
        // Both are a predecessor's: the older one's room was found to be free, and may be another's by now.
        let has_none = first <= self.before && second <= self.before;
        let (unit, len) = if has_none { (0, 0) } else { unpack(self.load(at + 1)) };
        (at, unit, len)
    }

    /// Something will be written into a slot soon: fetches what says where.
    #[inline]
    pub fn fetch(&self, slot: u32) {
        if slot < self.shape.slots {
            prefetch(self.word(self.version(slot, 0)));
        }
    }

    /// In a moment, in `batch`: fetches where. To be called when what was [fetched](ReplicaTable::fetch) before has come.
    #[inline]
    pub fn fetch_record(&self, slot: u32, batch: u64) {
        if slot >= self.shape.slots || !self.is_used(slot / PAGE) {
            return;
        }
        let (_, unit, len) = self.spare(slot, batch);
        let first = self.shape.first_record() + unit as usize * UNIT_WORDS;
        for unit in 0..len.div_ceil(room::UNIT).min(MOST_FETCHED) {
            prefetch(self.word(first + unit * UNIT_WORDS));
        }
    }

    /// Writes a record (one of no bytes is none) that counts from the commit of `batch` on, which must be later than every batch committed so
    /// far. In one batch the last record of a slot is the one. Only one batch may be uncommitted at a time: what another
    /// one writes into the same slot could be written over the version that counts.
    ///
    /// # Errors
    /// When it does not fit. The slot's record is the one before then, also after the commit: [clear](ReplicaTable::clear)
    /// it if it must not be believed.
    #[inline]
    pub fn put(&mut self, slot: u32, record: &[u8], batch: u64) -> Result<(), PutError> {
        self.put_tagged(slot, record, 0, batch)
    }

    /// The same with a word beside it, which who takes over finds without looking at the record ([`Found::tag`]).
    ///
    /// # Errors
    /// As [`ReplicaTable::put`].
    #[inline]
    pub fn put_tagged(
        &mut self,
        slot: u32,
        record: &[u8],
        tag: u64,
        batch: u64,
    ) -> Result<(), PutError> {
        if slot >= self.shape.slots {
            return Err(PutError::NoSlot(slot));
        }
        if record.len() > RECORD_BYTES {
            return Err(PutError::TooLong(record.len()));
        }
        if record.is_empty() {
            self.clear(slot, batch);
            return Ok(());
        }
        if !self.is_used(slot / PAGE) {
            self.use_page(slot / PAGE);
        }
        let (at, unit, len) = self.spare(slot, batch);
        let Some(unit) = self.room.again(unit, len, record.len()) else {
            // The room that it had is another's from now on.
            self.store(at, 0);
            self.store(at + 1, 0);
            return Err(PutError::Full);
        };
        // Not to be taken for anything while it is written.
        self.store(at, 0);
        self.store(at + 1, pack(unit, record.len()));
        let mut sum = Sum::new(slot, batch, record.len());
        let mut to = self.shape.first_record() + unit as usize * UNIT_WORDS;
        let (blocks, rest) = record.as_chunks::<{ WORD * LANES }>();
        for block in blocks {
            let words = block.as_chunks::<WORD>().0;
            for (lane, word) in words.iter().map(|word| u64::from_le_bytes(*word)).enumerate() {
                self.store(to + lane, word);
                sum.add(lane, word);
            }
            to += LANES;
        }
        for (lane, word) in rest.chunks(WORD).map(last_word).enumerate() {
            self.store(to + lane, word);
            sum.add(lane, word);
        }
        self.store(at + 2, sum.end());
        self.store(at + 3, tag);
        self.store(at, batch);
        fault::step(Step::HalfReplicated);
        Ok(())
    }

    /// From the commit of `batch` on the slot has no record.
    #[inline]
    pub fn clear(&mut self, slot: u32, batch: u64) {
        if slot >= self.shape.slots || !self.is_used(slot / PAGE) {
            return;
        }
        let (at, unit, len) = self.spare(slot, batch);
        self.room.free(unit, len);
        self.store(at, 0);
        self.store(at + 1, 0);
        self.store(at + 2, 0);
        self.store(at, batch);
        fault::step(Step::HalfReplicated);
    }

    /// The version of a slot that counts as of the commit of batch `committed`, and its batch; 0 if none does.
    fn newest(&self, slot: u32, committed: u64) -> (usize, u64) {
        let batch = |v: usize| {
            let batch = self.load(self.version(slot, v));
            if batch <= committed { batch } else { 0 }
        };
        let version = usize::from(batch(1) > batch(0));
        (version, batch(version))
    }

    /// Looks for the record of a slot as of the commit of batch `committed`; puts it into `record`.
    fn look(&self, slot: u32, committed: u64, record: &mut Vec<u8>) -> Look {
        let (version, newest) = self.newest(slot, committed);
        let at = self.version(slot, version);
        if newest == 0 {
            return Look::Empty;
        }
        let place = self.load(at + 1);
        if place == 0 {
            return Look::Empty;
        }
        // Copied out, then checked, then used: another process may have written anything.
        let (unit, len) = unpack(place);
        if !room::fits(unit, len, self.shape.units) {
            return Look::Damaged;
        }
        record.clear();
        let from = self.shape.first_record() + unit as usize * UNIT_WORDS;
        let mut sum = Sum::new(slot, newest, len);
        let words = len.div_ceil(WORD);
        let mut take = |first: usize, lane: usize| {
            let word = self.load(from + first + lane);
            sum.add(lane, word);
            record.extend(word.to_le_bytes());
        };
        let whole = words - words % LANES;
        for first in (0..whole).step_by(LANES) {
            (0..LANES).for_each(|lane| take(first, lane));
        }
        (0..words - whole).for_each(|lane| take(whole, lane));
        record.truncate(len);
        let found = self.load(at + 2);
        // Acquire fence: pairs with the Release fence in `LedgerWriter::commit`: who has read a word of the batch after
        // next, which may be written over this version, will see that a later batch is committed.
        fence(Ordering::Acquire);
        if sum.end() == found { Look::Record(version) } else { Look::Damaged }
    }

    /// The record of a slot as of the commit of batch `committed`; `None` when there is none, or none that is whole.
    /// Read while another process writes it counts if `committed` is still the last batch that was committed, afterwards.
    #[must_use]
    pub fn record(&self, slot: u32, committed: u64) -> Option<Vec<u8>> {
        let mut record = Vec::new();
        if slot >= self.shape.slots || !self.is_used(slot / PAGE) {
            return None;
        }
        match self.look(slot, committed, &mut record) {
            Look::Record(_) => Some(record),
            Look::Empty | Look::Damaged => None,
        }
    }

    /// Takes over what a dead worker left, as of its last commit: calls `take` for each record by ascending slot, and
    /// forgets those for which it is false, and what was not committed. (What is damaged shows when it is [looked at](Found::record).) All of that changes no record
    /// that counts, so dying meanwhile, and beginning again, does no harm. Afterwards this end can write, in batches
    /// behind `committed`.
    ///
    /// Of records that lie in one place all but the first are refused without being read: so no more is read than the memory holds,
    /// whatever the dead one has written.
    pub fn reopen(
        &mut self,
        committed: u64,
        mut take: impl FnMut(u32, &mut Found<'_>) -> bool,
    ) -> Reopened {
        let mut found = Reopened::default();
        let mut claims = Claims::new(self.shape.units);
        let (mut record, mut free) = (Vec::new(), Vec::new());
        for slot in self.used_slots() {
            let (version, batch) = self.newest(slot, committed);
            let (unit, len) = match batch {
                0 => (0, 0),
                _ => unpack(self.load(self.version(slot, version) + 1)),
            };
            // Whoever writes into one of two that lie in one place must not write over the other.
            self.forget_behind(slot, committed);
            if (unit, len) == (0, 0) {
                continue;
            }
            if !claims.claim(unit, len) {
                found.refused += 1;
                self.erase(slot);
                continue;
            }
            let tag = self.load(self.version(slot, version) + 3);
            let (table, buffer) = (&*self, &mut record);
            if take(slot, &mut Found { table, slot, committed, tag, buffer }) {
                found.taken += 1;
                fault::step(Step::Recovering);
            } else {
                found.refused += 1;
                // Not before all are read: another one may say that it lies there as well.
                free.push((unit, len));
                self.erase(slot);
            }
        }
        (self.room, self.before) = (claims.room(), committed);
        free.into_iter().for_each(|(unit, len)| self.room.free(unit, len));
        found
    }

    /// How many of these slots may have a record, at most.
    #[must_use]
    pub fn used(&self, slots: Range<u32>) -> u32 {
        let pages = slots.start / PAGE..slots.end.min(self.shape.slots).div_ceil(PAGE);
        pages.filter(|page| self.is_used(*page)).count() as u32 * PAGE
    }

    /// The slots that may have a record, in their order.
    fn used_slots(&self) -> impl Iterator<Item = u32> + use<> {
        let mut pages = Vec::new();
        for word in 0..self.shape.map_words() {
            let mut bits = self.load(word);
            while bits != 0 {
                pages.push(word as u32 * u64::BITS + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        let slots = self.shape.slots;
        // A page beyond the last nobody sound has used.
        let pages = pages.into_iter().filter(move |page| *page < slots.div_ceil(PAGE));
        pages.flat_map(move |page| page * PAGE..(page * PAGE + PAGE).min(slots))
    }

    /// Forgets what was written into a slot behind batch `committed`, or half written. What is older stays: to write to each slot's page takes
    /// longer than to look at it.
    fn forget_behind(&self, slot: u32, committed: u64) {
        for at in [0, 1].map(|version| self.version(slot, version)) {
            let batch = self.load(at);
            if batch > committed || (batch == 0 && self.load(at + 1) != 0) {
                self.store(at, 0);
                self.store(at + 1, 0);
            }
        }
    }

    /// Forgets both versions of a slot.
    fn erase(&self, slot: u32) {
        for at in [0, 1].map(|version| self.version(slot, version)) {
            self.store(at, 0);
            self.store(at + 1, 0);
        }
    }

    /// Another look at it, for this process.
    #[must_use]
    pub fn view(&self) -> ReplicaView {
        let (words, shape, last) = (self.words, self.shape, self.last);
        let (room, _backing) = (Room::new(shape.units), self._backing.clone());
        ReplicaView(ReplicaTable { words, shape, last, room, before: self.before, _backing })
    }

    /// Forgets everything, for the successor of a worker that has ended; true when there was anything.
    pub fn forget(&self) -> bool {
        let mut any = false;
        for at in 0..self.shape.map_words() {
            any |= self.load(at) != 0;
            self.store(at, 0);
        }
        any
    }

    /// Bytes that records take, rounded up as they are stored, and those that are free again.
    pub fn bytes(&self) -> u64 {
        self.room.used()
    }
}

fn pack(unit: u32, len: usize) -> u64 {
    // No record is longer than RECORD_BYTES. One of no bytes is none: 0 stands for nothing.
    u64::from(unit) << 32 | len as u64
}

fn unpack(place: u64) -> (u32, usize) {
    ((place >> 32) as u32, (place & u64::from(u32::MAX)) as usize)
}

fn last_word(rest: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}

/// A record's checksum: against accidents, not against anybody. Multiply and rotate, a word at a time; each word depends only on what was
/// [`LANES`] before it, as a multiplication takes as long as storing several.
struct Sum([u64; LANES]);

/// How many words are summed up side by side.
const LANES: usize = 4;

impl Sum {
    #[inline(always)]
    fn new(slot: u32, batch: u64, len: usize) -> Self {
        let seed = mix(mix(0x243f_6a88_85a3_08d3, batch), u64::from(slot) << 32 | len as u64);
        Sum([seed; LANES])
    }

    #[inline(always)]
    fn add(&mut self, lane: usize, word: u64) {
        self.0.iter_mut().skip(lane).take(1).for_each(|sum| *sum = mix(*sum, word));
    }

    #[inline(always)]
    fn end(self) -> u64 {
        self.0.into_iter().fold(0, mix)
    }
}

#[inline(always)]
fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
fn heap(shape: Shape) -> impl Fn() -> ReplicaTable {
    let all: Vec<AtomicU64> = (0..shape.words()).map(|_| AtomicU64::new(0)).collect();
    let words: NonNull<AtomicU64> = NonNull::from(Box::leak(all.into_boxed_slice())).cast();
    let last = shape.words() - 1;
    move || {
        let room = Room::new(shape.units);
        ReplicaTable { words, shape, last, room, before: 0, _backing: None }
    }
}

/// Two ends of a table of two slots inside this process, for models; leaked.
#[cfg(all(test, loom))]
pub(crate) fn heap_replica() -> (ReplicaTable, ReplicaTable) {
    let end = heap(Shape { slots: 2, units: 5 });
    (end(), end())
}

#[cfg(all(test, not(loom)))]
mod tests;
