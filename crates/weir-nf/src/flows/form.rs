//! Flows as bytes: all of a table, to hand it over, or one at a time, to move them.
//!
//! Little-endian; a state is what postcard makes of it. What is read may be anything: it is checked
//! before it is believed, and needs memory in proportion to its own length.

use super::index::MOST_KEYS;
use super::seen::Walk;
use super::state::FlowState;
use super::table::{FlowTable, Slot};
use super::tcp::Tcp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use weir_packet::{Direction, FlowKey};

/// Version of the form that surrounds states.
const FORM: u32 = 4;

/// In a record: the flow's first packet went downward.
const STARTED_DOWN: u8 = 1;
/// In a record: it came from outside.
const OUTSIDE: u8 = 2;

/// Why state that was written down was not taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It is of another version of the µNF.
    #[error(
        "it is of version {found}; this is version {wanted}, which does not read it (`from_version`)"
    )]
    Version {
        /// Its version.
        found: u32,
        /// The version that this µNF reads.
        wanted: u32,
    },
    /// The form around the states is another.
    #[error(
        "it is written in form {0}, this reads form {FORM}; both sides must be of one version of Weir"
    )]
    OtherForm(u32),
    /// A state cannot be read.
    #[error("{0}")]
    Form(#[from] postcard::Error),
    /// It ends before it is complete.
    #[error("it is cut off")]
    Cut,
    /// It goes on behind its end, or has what cannot be.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// A flow is known already, or another flow with one of its keys.
    #[error("there is a flow {0} already; it must end, or be moved away, first")]
    Exists(FlowKey),
    /// No room for the flows.
    #[error(
        "at most {0} flows have room (`--flows`, or `flows` of the NF's descriptor); allow more, or move some elsewhere"
    )]
    Full(usize),
    /// No room for the timers.
    #[error("more than {} timers would be outstanding", crate::timers::MOST_TIMERS)]
    Timers,
}

/// Why flows could not be written down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// A state has no serialised form.
    #[error("the state of flow {flow} cannot be written down: {why}")]
    State {
        /// The flow; it stays where it is.
        flow: FlowKey,
        /// What the serialiser says.
        why: postcard::Error,
    },
    /// Packets that the µNF holds may belong to the flows, and do not move.
    #[error(
        "it holds {0} packets, which cannot move with their flows; try again when it holds none"
    )]
    Holds(usize),
}

impl<F: FlowState> FlowTable<F> {
    /// Writes all flows down, the fragments that are remembered with them: nothing changes.
    ///
    /// # Errors
    /// When a state has no serialised form; `out` is then as it was.
    pub fn save(&self, out: &mut Vec<u8>) -> Result<(), SaveError> {
        debug_assert_eq!(self.unread(), 0, "some would be left out");
        let start = out.len();
        write_versions::<F>(out);
        self.save_fragments(out);
        write_len(self.len(), out);
        let mut from = Some(0);
        while let Some(at) = from {
            let (flow, next) = self.index.next(at, usize::MAX);
            if let Err(e) = flow.map_or(Ok(()), |flow| self.write(flow, out)) {
                out.truncate(start);
                return Err(e);
            }
            from = next;
        }
        Ok(())
    }

    /// Adds the flows that [`FlowTable::save`] wrote to those that are there. How many there were in it. Of a flow that is
    /// in both, as two instances have seen packets of it, that stays which has the later packet
    /// ([`FlowTable::doubled`] counts them).
    ///
    /// # Errors
    /// When it cannot be read, a flow is twice in it, or there is no room. All flows are as before then;
    /// fragments may have been added.
    pub fn restore(&mut self, now_ns: u64, saved: &[u8]) -> Result<usize, RestoreError> {
        self.read_rest(now_ns);
        let mut from = Reader(saved);
        let (mut merge, doubled) = (Merge::default(), self.doubled);
        let result = self.read_all(now_ns, &mut from, &mut merge);
        if result.is_err() {
            self.doubled = doubled;
            for flow in merge.added {
                self.remove(flow);
            }
            // They were here a moment ago: they have room, and can be read.
            for record in merge.replaced {
                let _ = self.put(now_ns, &record);
            }
        }
        result
    }

    fn read_all(
        &mut self,
        now_ns: u64,
        from: &mut Reader<'_>,
        merge: &mut Merge,
    ) -> Result<usize, RestoreError> {
        let version = read_versions(from)?;
        self.restore_fragments(from)?;
        let count = from.u32()?;
        for _ in 0..count {
            if let Some((flow, _)) = self.read(now_ns, from, version, None, Some(&mut *merge))? {
                merge.added.insert(flow);
            }
        }
        from.end()?;
        Ok(count as usize)
    }

    /// Takes flows out, for moving them, by going on with a walk: those of which `chosen` is true for a key
    /// (a flow may have several; with the direction that what comes from where its first packet came from has by it). Looks at `look` numbers at most and takes `take` flows at most, so that it can
    /// be done between batches. `moved` is given each with its first key, as a record for [`FlowTable::put`]. False
    /// when the walk is at its end.
    ///
    /// # Errors
    /// When a state has no serialised form; the flow stays, and the walk can go on behind it.
    pub fn take(
        &mut self,
        walk: &mut Walk,
        (look, take): (usize, usize),
        mut chosen: impl FnMut(&FlowKey, Direction) -> bool,
        mut moved: impl FnMut(&FlowKey, &[u8]),
    ) -> Result<bool, SaveError> {
        let mut record = Vec::new();
        debug_assert_eq!(self.unread(), 0, "some would be left out");
        let (mut looked, mut taken) = (0, 0);
        while looked < look && taken < take {
            let (flow, next) = self.index.next(walk.next, look - looked);
            let end = next.is_none();
            let on = next.unwrap_or(u32::MAX);
            looked += on.saturating_sub(walk.next).max(1) as usize;
            walk.next = on;
            let mut goes = |flow: u32| {
                let slot = self.slots.get(flow);
                let mut keys = self.index.keys(flow);
                slot.is_some_and(|slot| {
                    keys.any(|(key, turned)| chosen(key, slot.start_by(turned)))
                })
            };
            if let Some(flow) = flow.filter(|flow| goes(*flow)) {
                record.clear();
                self.write_record(flow, &mut record)?;
                if let Some((key, _)) = self.remove(flow) {
                    moved(&key, &record);
                    self.moved += 1;
                    taken += 1;
                }
            }
            if end {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes one flow out, by any of its keys: as a record for [`FlowTable::put`], to the end of `out`. False when there
    /// is no such flow.
    ///
    /// # Errors
    /// When its state has no serialised form; it stays then.
    pub fn take_one(&mut self, key: &FlowKey, out: &mut Vec<u8>) -> Result<bool, SaveError> {
        debug_assert_eq!(self.unread(), 0, "it may not have been read");
        let Some((flow, _)) = self.index.find(key, self.index.hash(key)) else { return Ok(false) };
        let start = out.len();
        if let Err(e) = self.write_record(flow, out) {
            out.truncate(start);
            return Err(e);
        }
        self.remove(flow);
        self.moved += 1;
        Ok(true)
    }

    /// Puts in a flow that was taken elsewhere: with its state, keys, and ages. Its first key.
    ///
    /// # Errors
    /// As [`FlowTable::restore`]; nothing has changed then.
    pub fn put(&mut self, now_ns: u64, record: &[u8]) -> Result<FlowKey, RestoreError> {
        self.read_rest(now_ns);
        self.put_as(None, now_ns, record)
    }

    /// The same from a replica: with this number, if one is given, which is kept for it.
    ///
    /// # Errors
    /// As [`FlowTable::put`].
    pub(super) fn put_as(
        &mut self,
        number: Option<u32>,
        now_ns: u64,
        record: &[u8],
    ) -> Result<FlowKey, RestoreError> {
        let mut from = Reader(record);
        let version = read_versions(&mut from)?;
        let read = self.read(now_ns, &mut from, version, number, None)?;
        let (flow, key) = read.ok_or(RestoreError::Damaged("it holds no flow"))?;
        if let Err(e) = self.read_fragments(&mut from, flow) {
            self.remove(flow);
            return Err(e);
        }
        Ok(key)
    }

    /// One flow by itself, as [`FlowTable::put`] reads it, with the datagrams of it that have not come whole.
    pub(super) fn write_record(&self, flow: u32, out: &mut Vec<u8>) -> Result<(), SaveError> {
        write_versions::<F>(out);
        self.write(flow, out)?;
        self.write_fragments(flow, out);
        Ok(())
    }

    /// One flow: how its connection stands, times, keys, state.
    pub(super) fn write(&self, flow: u32, out: &mut Vec<u8>) -> Result<(), SaveError> {
        let Some(slot) = self.slots.get(flow) else { return Ok(()) };
        let down = if slot.started == Direction::Down { STARTED_DOWN } else { 0 };
        let outside = if slot.outside { OUTSIDE } else { 0 };
        let keys = u32::try_from(self.index.keys(flow).count()).unwrap_or(u32::MAX);
        // In few pieces: for each of them there is a look whether it has room.
        let ([a, b], [c, d, e, f]) = (slot.idle_s.to_le_bytes(), keys.to_le_bytes());
        let times = [slot.born_ns.to_le_bytes(), slot.last_ns.to_le_bytes()];
        out.extend([down | outside, slot.tcp.bits(), a, b]);
        out.extend_from_slice(times.as_flattened());
        out.extend([c, d, e, f]);
        for (key, turned) in self.index.keys(flow) {
            out.extend(key.to_bytes());
            out.push(u8::from(turned));
        }
        self.write_state(flow, slot, out)
    }

    /// Its state, with its length.
    pub(super) fn write_state(
        &self,
        flow: u32,
        slot: &Slot<F>,
        out: &mut Vec<u8>,
    ) -> Result<(), SaveError> {
        let len = out.len();
        write_len(0, out);
        match write_value(&slot.state, out) {
            Ok(()) => {
                let written = u32::try_from(out.len() - len - 4).unwrap_or(u32::MAX);
                let place = out.get_mut(len..).and_then(|o| o.first_chunk_mut());
                place.into_iter().for_each(|place| *place = written.to_le_bytes());
                Ok(())
            }
            Err(why) => match self.index.keys(flow).next() {
                Some((key, _)) => Err(SaveError::State { flow: *key, why }),
                None => Ok(()),
            },
        }
    }

    /// Makes way for a flow whose last packet came at `last_ns`: ends those that one of its keys leads to if nobody has
    /// noticed yet that their time is over, and takes out those that go on and have no later packet, if
    /// there is somebody to `merge` with. False when another one stays in its place.
    ///
    /// # Errors
    /// When one goes on and nothing is merged, or it is of those that were just added.
    fn make_way(
        &mut self,
        keys: &[&FlowKey],
        last_ns: u64,
        now_ns: u64,
        merge: &mut Option<&mut Merge>,
    ) -> Result<bool, RestoreError> {
        let mut rivals = Vec::new();
        for key in keys {
            let Some((old, _)) = self.index.find(key, self.index.hash(key)) else { continue };
            let stays = merge.as_ref().is_none_or(|merge| merge.added.contains(&old));
            match self.is_alive(old, now_ns) {
                true if stays => return Err(RestoreError::Exists(**key)),
                true if !rivals.contains(&old) => rivals.push(old),
                true => {}
                false if merge.as_ref().is_some_and(|merge| merge.added.contains(&old)) => {
                    return Err(RestoreError::Exists(**key));
                }
                false => self.end(old),
            }
        }
        let later =
            |rival: &u32| self.slots.get(*rival).is_some_and(|slot| slot.last_ns >= last_ns);
        let loses = rivals.iter().any(later);
        self.doubled = self.doubled.saturating_add(u64::from(!rivals.is_empty()));
        let Some(merge) = merge.as_mut().filter(|_| !loses) else { return Ok(!loses) };
        let mut records = Vec::new();
        for rival in &rivals {
            let mut record = Vec::new();
            // One whose state cannot be written down cannot be put back either: it stays.
            if self.write_record(*rival, &mut record).is_err() {
                return Ok(false);
            }
            records.push(record);
        }
        merge.replaced.append(&mut records);
        self.moved += rivals.len() as u64;
        rivals.iter().for_each(|rival| drop(self.remove(*rival)));
        Ok(true)
    }

    /// Reads one flow, with its state of `version`, and adds it, as `number` if one is given; its number and first key, or nothing if it is here already and lost
    /// against it.
    fn read(
        &mut self,
        now_ns: u64,
        from: &mut Reader<'_>,
        version: u32,
        number: Option<u32>,
        mut merge: Option<&mut Merge>,
    ) -> Result<Option<(u32, FlowKey)>, RestoreError> {
        let mut read = self.parse(from, version)?;
        // What has its number given is of a replica.
        if number.is_some() && self.notes.lags {
            read.slot.state.recovered_late();
        }
        let keys: Vec<_> = read.keys().collect();
        if !self.make_way(&keys, read.slot.last_ns, now_ns, &mut merge)? {
            return Ok(None);
        }
        self.place(number, read, now_ns).map(Some)
    }

    /// What [`FlowTable::write`] wrote, with a state of this version.
    pub(super) fn parse(
        &self,
        from: &mut Reader<'_>,
        version: u32,
    ) -> Result<Parsed<F>, RestoreError> {
        let [started, tcp] = *from.array()?;
        let outside = started & OUTSIDE != 0;
        let started = match started & !OUTSIDE {
            0 => Direction::Up,
            STARTED_DOWN => Direction::Down,
            _ => return Err(RestoreError::Damaged("a flow's direction is none")),
        };
        let tcp = read_tcp([tcp])?;
        let idle_s = u16::from_le_bytes(*from.array()?);
        let (born_ns, last_ns) = (from.u64()?, from.u64()?);
        let keys = from.u32()?;
        let first = match (keys, read_key(from)?) {
            (1.., (first, false)) => first,
            _ => return Err(RestoreError::Damaged("a flow has no first key")),
        };
        if keys as usize > MOST_KEYS {
            return Err(RestoreError::Damaged("a flow has more keys than it may"));
        }
        let mut others = Vec::new();
        for _ in 1..keys {
            others.push(read_key(from)?);
        }
        let len = from.u32()?;
        let bytes = from.bytes(len as usize)?;
        let state = read_versioned(bytes, (version, F::VERSION), F::from_version)?;
        let slot =
            Slot { state, last_ns, born_ns, started, outside, tcp, idle_s, ..Slot::default() };
        Ok(Parsed { slot, first, others })
    }

    /// Adds a flow of whose keys none leads to another, as `number` if one is given; its number and first key.
    pub(super) fn place(
        &mut self,
        number: Option<u32>,
        Parsed { slot, first, others }: Parsed<F>,
        now_ns: u64,
    ) -> Result<(u32, FlowKey), RestoreError> {
        let full = RestoreError::Full(self.index.capacity());
        let flow = self.adopt(number, first, slot, now_ns).ok_or(full)?;
        for (key, turned) in others {
            if let Err(e) = self.index.alias(flow, key, turned) {
                self.remove(flow);
                return Err(match e {
                    super::AliasError::Taken => RestoreError::Exists(key),
                    _ => RestoreError::Full(self.index.capacity()),
                });
            }
        }
        Ok((flow, first))
    }
}

/// One flow, as it was read.
pub(super) struct Parsed<F> {
    pub(super) slot: Slot<F>,
    first: FlowKey,
    /// Its other keys, and whether packets go the other way in them.
    others: Vec<(FlowKey, bool)>,
}

impl<F> Parsed<F> {
    /// The first one first.
    pub(super) fn keys(&self) -> impl Iterator<Item = &FlowKey> {
        std::iter::once(&self.first).chain(self.others.iter().map(|other| &other.0))
    }
}

/// What became of flows that are being added to others.
#[derive(Default)]
struct Merge {
    added: HashSet<u32>,
    /// Records of those that had to go.
    replaced: Vec<Vec<u8>>,
}

/// Writes a value to the end of `out`, which is as it was, or longer, if it cannot be written.
fn write_value<T: Serialize>(value: &T, out: &mut Vec<u8>) -> postcard::Result<()> {
    // Nearly all are shorter. Into memory that is there postcard writes a byte with one comparison.
    const SHORT: usize = 192;
    let start = out.len();
    out.resize(start + SHORT, 0);
    let written = match out.get_mut(start..) {
        Some(room) => postcard::to_slice(value, room).map(|written| written.len()),
        None => Err(postcard::Error::SerializeBufferFull),
    };
    out.truncate(start + written.as_ref().map_or(0, |len| *len));
    match written {
        Ok(_) => Ok(()),
        // It is longer, or cannot be written at all: what is said then is not always that there was no room.
        Err(_) => postcard::serialize_with_flavor(value, Appended::at_most(out, usize::MAX)),
    }
}

/// Where postcard writes: to the end of a vector, which stays the caller's, with the memory that it has.
pub(crate) struct Appended<'o> {
    out: &'o mut Vec<u8>,
    most: usize,
}

impl<'o> Appended<'o> {
    /// Up to a length in all.
    pub(crate) fn at_most(out: &'o mut Vec<u8>, most: usize) -> Self {
        Appended { out, most }
    }
}

impl postcard::ser_flavors::Flavor for Appended<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.most.saturating_sub(self.out.len()) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// The versions of what follows: of its form, and of states.
pub(super) fn write_versions<F: FlowState>(out: &mut Vec<u8>) {
    out.extend(FORM.to_le_bytes());
    out.extend(F::VERSION.to_le_bytes());
}

pub(super) fn read_tcp([bits]: [u8; 1]) -> Result<Tcp, RestoreError> {
    Tcp::from_bits(bits).ok_or(RestoreError::Damaged("a connection's state is none"))
}

/// A key, and whether it is turned.
pub(super) fn read_key(from: &mut Reader<'_>) -> Result<(FlowKey, bool), RestoreError> {
    let key = FlowKey::from_bytes(from.array()?);
    let key = key.ok_or(RestoreError::Damaged("a flow's key is none"))?;
    match from.array()? {
        [turned @ (0 | 1)] => Ok((key, *turned == 1)),
        _ => Err(RestoreError::Damaged("a key's direction is none")),
    }
}

/// The version of the states that follow.
pub(super) fn read_versions(from: &mut Reader<'_>) -> Result<u32, RestoreError> {
    match from.u32()? {
        FORM => from.u32(),
        form => Err(RestoreError::OtherForm(form)),
    }
}

/// Reads a value of the version `found`, where `wanted` is the one that is written now.
pub(crate) fn read_versioned<T: DeserializeOwned>(
    bytes: &[u8],
    (found, wanted): (u32, u32),
    from_version: impl FnOnce(u32, &[u8]) -> Option<T>,
) -> Result<T, RestoreError> {
    if found != wanted {
        return from_version(found, bytes).ok_or(RestoreError::Version { found, wanted });
    }
    read_state(bytes)
}

/// Reads a value that a µNF of an earlier version wrote, for `from_version`: `T` is the type that it was.
///
/// # Errors
/// When it is not such a value, or goes on behind its end.
pub fn read_state<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RestoreError> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err(RestoreError::Damaged("a state is longer than what was read of it")),
    }
}

/// A count or length: everything of which there is so much has bounds far below.
pub(crate) fn write_len(len: usize, out: &mut Vec<u8>) {
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// Bytes that are read from the front.
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'b [u8; N], RestoreError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(RestoreError::Cut)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'b [u8], RestoreError> {
        let (first, rest) = self.0.split_at_checked(len).ok_or(RestoreError::Cut)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, RestoreError> {
        Ok(u32::from_le_bytes(*self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, RestoreError> {
        Ok(u64::from_le_bytes(*self.array()?))
    }

    /// What was to be read is read.
    pub(crate) fn end(&self) -> Result<(), RestoreError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(RestoreError::Damaged("it goes on behind its end")),
        }
    }
}
