//! Flows of a replica that are read as they are needed.
//!
//! To make a flow of a record takes half a microsecond, and all packets would wait until that is done for tens of thousands. So of each record
//! only the hash of its key is looked at first, which stands beside it, in a tenth of that. Whoever looks for a flow that the table has not finds it here, and has it
//! read; the others are read between batches, some at a time. (Instant recovery in data bases goes on like that: Graefe,
//! Guy and Sauer, "Instant Recovery with Write-Ahead Logging", 2014.)
//!
//! A flow that has not been read has its number, and counts as one of the table; nobody else is given its place.

use super::form::{Reader, RestoreError, read_key, read_versions};
use super::state::FlowState;
use super::table::FlowTable;
use weir_packet::FlowKey;

/// Where the records of flows are that have not been read.
pub trait Records: Send {
    /// Puts the record of the flow with this number into `record`; false if it is damaged.
    fn read(&self, number: u32, record: &mut Vec<u8>) -> bool;
}

/// Flows that have not been read, and where keys lead.
pub(super) struct Unread {
    records: Box<dyn Records>,
    /// Their numbers; [`READ`] for one that has been read.
    numbers: Vec<u32>,
    /// By hash of the key, by open addressing: the hash, and below it the place of the flow among all, one too high; 0 for none.
    places: Vec<u64>,
    /// Those before it have been read.
    next: usize,
    left: usize,
    record: Vec<u8>,
}

/// No flow's number.
const READ: u32 = u32::MAX;

/// Places that are looked at for a hash, at most: whoever wrote the tags may have written any, and so one for all.
const PROBES: usize = 32;

/// Records that could not be read, and why the first could not.
#[derive(Debug)]
pub struct Unreadable {
    /// How many.
    pub records: u64,
    /// Why.
    pub why: RestoreError,
}

/// In a tag: the flow has one key, whose hash stands below, and no datagram goes with it that has not come whole.
const PLAIN: u64 = 1 << 32;

impl Unread {
    fn new(records: Box<dyn Records>, most: usize) -> Self {
        // Written from one end to the other: where a page is read first and written then, as hashes have it, the kernel comes in twice. (The
        // optimiser may not see that they are zeros already.)
        let mut places = std::hint::black_box(vec![0; (2 * most).next_power_of_two()]);
        places.fill(0);
        let numbers = Vec::with_capacity(most);
        Unread { records, numbers, places, next: 0, left: 0, record: Vec::new() }
    }

    /// The places that a hash may have, in their order.
    fn probes(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.places.len().wrapping_sub(1);
        (0..PROBES).map(move |step| (hash as usize).wrapping_add(step) & mask)
    }

    /// The first free place of a hash; `None` if there is none, or are too many flows for places.
    fn free(&self, hash: u32) -> Option<usize> {
        let has_room = 2 * self.numbers.len() < self.places.len();
        self.probes(hash).find(|at| self.places.get(*at) == Some(&0)).filter(|_| has_room)
    }
}

impl<F: FlowState> FlowTable<F> {
    /// What [`FlowTable::recover_later`] is told of is read from here; so many flows it will be at most.
    pub fn recover_from(&mut self, records: Box<dyn Records>, most: usize) {
        let most = most.min(self.index.capacity());
        self.unread = Some(Box::new(Unread::new(records, most)));
    }

    /// [`FlowTable::recover_later`] is told of a flow with this tag in a moment. Hashes lead anywhere, and to wait for the memory there was most of what looking at a replica took.
    pub fn recover_soon(&self, tag: u64) {
        if let Some(unread) = &self.unread {
            let first = unread.probes(tag as u32).next();
            first.and_then(|at| unread.places.get(at)).into_iter().for_each(weir_mem::prefetch);
        }
    }

    /// Puts in a flow from a replica, with the number that it had, as [`FlowTable::recover`] does; but it is read when somebody looks
    /// for it, or [`FlowTable::read_unread`] comes to it. Until all are, flows cannot be looked at, nor written down. `tag`: what
    /// [`FlowTable::take_changed`] gave with the record, in a process that hashes alike. False if the record has to be read at once, as more has to be known of it,
    /// or too many are to be found by the same hash.
    ///
    /// # Errors
    /// When there is no room. What is wrong with the record is found out later ([`FlowTable::take_unreadable`]).
    pub fn recover_later(&mut self, number: u32, tag: u64) -> Result<bool, RestoreError> {
        let hash = tag as u32;
        let place = self.unread.as_ref().filter(|_| tag & PLAIN != 0);
        let Some(at) = place.and_then(|unread| unread.free(hash)) else { return Ok(false) };
        if !self.index.reserve(number) {
            return Err(RestoreError::Full(self.index.capacity()));
        }
        if let Some(unread) = &mut self.unread
            && let Some(place) = unread.places.get_mut(at)
        {
            unread.numbers.push(number);
            unread.left += 1;
            *place = u64::from(hash) << 32 | unread.numbers.len() as u64;
        }
        Ok(true)
    }

    /// What goes with a flow's record, so that it need not be looked at before the flow is.
    pub(super) fn tag(&self, flow: u32, record: &[u8]) -> u64 {
        // Of further keys nothing is said, nor where the rest of a datagram belongs, which may come before anything else.
        let is_whole = self.fragments.is_none() || has_no_fragments(record);
        let hash = self.index.only_hash(flow).filter(|_| is_whole);
        hash.map_or(0, |hash| PLAIN | u64::from(hash))
    }

    /// How many flows have not been read yet.
    pub fn unread(&self) -> usize {
        self.unread.as_ref().map_or(0, |unread| unread.left)
    }

    /// Reads some of them, `most` at most; how many are left.
    pub fn read_unread(&mut self, most: usize, now_ns: u64) -> usize {
        let Some(mut unread) = self.unread.take() else { return 0 };
        for _ in 0..most {
            let at = unread.next;
            if at >= unread.numbers.len() {
                break;
            }
            unread.next += 1;
            self.read_kept(&mut unread, at, now_ns);
        }
        let left = unread.left;
        self.unread = (left > 0).then_some(unread);
        left
    }

    /// Reads all that are left.
    #[inline]
    pub fn read_rest(&mut self, now_ns: u64) {
        if self.unread.is_some() {
            self.read_unread(usize::MAX, now_ns);
        }
    }

    /// The records that could not be read since this was asked last.
    pub fn take_unreadable(&mut self) -> Option<Unreadable> {
        self.unreadable.take().map(|unreadable| *unreadable)
    }

    /// Looks for a flow among those that have not been read.
    #[cold]
    pub(super) fn look_unread(
        &mut self,
        key: &FlowKey,
        hash: u32,
        now_ns: u64,
    ) -> Option<(u32, bool)> {
        let mut unread = self.unread.take()?;
        for at in unread.probes(hash) {
            let Some(place) = unread.places.get(at).copied().filter(|place| *place != 0) else {
                break;
            };
            if (place >> 32) as u32 == hash {
                self.read_kept(&mut unread, (place as u32).wrapping_sub(1) as usize, now_ns);
            }
        }
        self.unread = (unread.left > 0).then_some(unread);
        self.index.find(key, hash)
    }

    fn read_kept(&mut self, unread: &mut Unread, at: usize, now_ns: u64) {
        let Unread { records, numbers, left, record, .. } = unread;
        let Some(number) = numbers.get_mut(at).map(|number| std::mem::replace(number, READ)) else {
            return;
        };
        if number == READ {
            return;
        }
        *left -= 1;
        let read = match records.read(number, record) {
            true => self.read_reserved(number, now_ns, record),
            false => {
                self.index.release(number);
                Err(RestoreError::Damaged("its sum is another"))
            }
        };
        let Err(why) = read else { return };
        // The replica is to forget it, too.
        if self.notes.on
            && let Some(slot) = self.slots.reach(number)
        {
            self.notes.note(number, slot);
        }
        match &mut self.unreadable {
            Some(unreadable) => unreadable.records += 1,
            none => *none = Some(Box::new(Unreadable { records: 1, why })),
        }
    }

    /// Reads a record for which a number is kept; if it cannot be read, the number is free.
    pub(super) fn read_reserved(
        &mut self,
        number: u32,
        now_ns: u64,
        record: &[u8],
    ) -> Result<(), RestoreError> {
        let read = self.put_as(Some(number), now_ns, record);
        if read.is_err() {
            self.index.release(number);
        }
        read.map(drop)
    }

    /// Memory that is taken by what has not been read, in bytes.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread.as_ref().map_or(0, |unread| {
            unread.numbers.capacity() * size_of::<u32>() + size_of_val(&*unread.places)
        })
    }
}

/// Whether no datagram that has not come whole is written down in the record of a flow of one key.
fn has_no_fragments(record: &[u8]) -> bool {
    let mut from = Reader(record);
    let mut read = || {
        read_versions(&mut from)?;
        let _: &[u8; 24] = from.array()?;
        read_key(&mut from)?;
        let state = from.u32()?;
        from.bytes(state as usize)?;
        from.u32()
    };
    matches!(read(), Ok(0))
}
