//! Giving later fragments the hash of the flow they belong to.

use super::{Direction, FlowHasher, FlowKey, PortKind, Side, Small, addresses, zone};
use crate::Bytes;
use crate::headers::{Fragment, L3, Layers};

/// How long a first fragment is remembered, in nanoseconds of packet time: 30 s, between the
/// 15 s that RFC 791 proposes for reassembly and the 60 s of RFC 8200 §4.5.
pub const LIFETIME_NS: u64 = 30_000_000_000;

/// Entries per bucket. A lookup looks at one bucket, so its cost is bounded.
const WAYS: usize = 8;

/// In a record: the datagram goes downward in its flow; it has come whole.
const DOWN: u8 = 1;
const WHOLE: u8 = 2;

/// Counts by which most flows without fragments are known at once.
const COUNTS: usize = 1 << 15;

/// What the fragments of one datagram share. In IPv6 the protocol does not count: the next header
/// of later fragments may differ (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramId {
    zone: u64,
    source: u128,
    destination: u128,
    id: u32,
    proto: u8,
    v6: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    datagram: DatagramId,
    /// The flow, and the datagram's direction in it.
    flow: (FlowKey, Direction),
    /// Packet time of the first fragment, in nanoseconds.
    born: u64,
    /// Table clock at the last use, for eviction.
    used: u64,
    came: Came,
}

/// How much of a datagram has come, as far as it was seen from its first fragment on. What came twice counts twice, so it is a guess.
#[derive(Clone, Copy, Debug, Default)]
struct Came {
    bytes: u32,
    /// Its length, when its last fragment has come; 0 before.
    of: u32,
}

impl Came {
    /// `extent`: as [`Layers::fragment_extent`] gives it.
    fn see(&mut self, extent: Option<(u32, u32, bool)>) {
        let Some((start, len, more)) = extent else { return };
        self.bytes = self.bytes.saturating_add(len);
        if !more {
            self.of = start.saturating_add(len);
        }
    }

    /// One of which nothing else is known.
    const WHOLE: Self = Came { bytes: 1, of: 1 };

    fn is_whole(self) -> bool {
        self.of > 0 && self.bytes >= self.of
    }
}

impl Entry {
    fn is_alive(&self, now: u64) -> bool {
        // A capture's time may jump: far in the future is as stale as far in the past.
        self.born.abs_diff(now) <= LIFETIME_NS
    }

    /// What comes first is given up, or left out, first.
    fn worth(&self) -> (bool, u64) {
        (!self.came.is_whole(), self.used)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let DatagramId { zone, source, destination, id, proto, v6 } = self.datagram;
        out.extend(zone.to_le_bytes());
        out.extend(source.to_le_bytes());
        out.extend(destination.to_le_bytes());
        out.extend(id.to_le_bytes());
        let down = if self.flow.1 == Direction::Down { DOWN } else { 0 };
        let whole = if self.came.is_whole() { WHOLE } else { 0 };
        out.extend([proto, u8::from(v6), down | whole]);
        out.extend(self.flow.0.to_bytes());
        out.extend(self.born.to_le_bytes());
    }
}

/// Which other gives room, where there is none.
#[derive(Clone, Copy)]
enum Room {
    /// One that has run out by this time, or that was used longest ago.
    RunOut(u64),
    /// That which was used longest ago.
    LeastUsed,
    /// That which began first, if it began before.
    Older,
}

/// Remembers the flow of first fragments, so that later fragments of the same datagram are known to
/// belong to it, hash alike and meet the same worker as the rest of their connection.
///
/// The capacity is fixed and all memory is taken at creation. A bucket of eight that is full gives up
/// one that is whole by now or expired, else the one used longest ago. A later fragment whose first fragment has not
/// been seen (it was reordered, lost, or forgotten) gets the hash of its addresses, protocol and a
/// marker: the same for all such fragments between two hosts, but not that of their connection.
#[derive(Debug)]
pub struct FragmentTable {
    hasher: FlowHasher,
    buckets: Vec<[Option<Entry>; WAYS]>,
    clock: u64,
    /// How many datagrams are remembered, by the hash of their flow and of each of its ends.
    counts: Vec<u16>,
    /// Places that have been written since they were asked for; `None`: nobody asks.
    changed: Option<Vec<u32>>,
}

impl FragmentTable {
    /// A table for at least `capacity` datagrams: rounded up to a power of two of buckets.
    pub fn new(capacity: usize, hasher: FlowHasher) -> Self {
        let count = capacity.div_ceil(WAYS).max(1).checked_next_power_of_two().unwrap_or(1 << 31);
        FragmentTable {
            hasher,
            buckets: vec![[None; WAYS]; count],
            clock: 0,
            counts: vec![0; COUNTS],
            changed: None,
        }
    }

    /// From now on it is noted which places change, for [`FragmentTable::take_changes`].
    pub fn follow(&mut self) {
        self.changed.get_or_insert_with(Vec::new);
    }

    /// Gives what has changed since the last call: each place, below [`FragmentTable::capacity`], and what stands there now,
    /// as [`FragmentTable::restore_at`] takes it. What is looked up again and again changes nothing.
    pub fn take_changes(&mut self, mut each: impl FnMut(u32, &[u8; Self::RECORD])) {
        let Some(changed) = &mut self.changed else { return };
        if changed.is_empty() {
            return;
        }
        changed.sort_unstable();
        changed.dedup();
        let mut record = Vec::with_capacity(Self::RECORD);
        for place in changed.drain(..) {
            let bucket = self.buckets.get(place as usize / WAYS);
            let entry = bucket.and_then(|bucket| bucket.get(place as usize % WAYS));
            record.clear();
            entry.iter().copied().flatten().for_each(|entry| entry.write(&mut record));
            if let Some(record) = record.first_chunk() {
                each(place, record);
            }
        }
    }

    /// Number of datagrams the table can remember.
    pub fn capacity(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// The flow hash of any packet; `layers` must have depth L3 and `now` is the packet's time in
    /// nanoseconds. `None` when the packet is not IP.
    #[inline]
    pub fn hash<B: Bytes + ?Sized>(&mut self, bytes: &B, layers: &Layers, now: u64) -> Option<u64> {
        let (key, _) = self.key(bytes, layers, now)?;
        Some(self.hasher.hash(&key))
    }

    /// The flow of any packet and its direction in it, as [`FlowKey::from_packet`] gives it, but for
    /// later fragments that of their first fragment. Arguments as for [`FragmentTable::hash`].
    #[inline]
    pub fn key<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        now: u64,
    ) -> Option<(FlowKey, Direction)> {
        let own = FlowKey::from_packet(bytes, layers)?;
        if layers.fragment() == Fragment::Whole {
            return Some(own);
        }
        let Some(datagram) = DatagramId::of(bytes, layers) else {
            return Some(own);
        };
        let extent = layers.fragment_extent(bytes);
        if layers.fragment() == Fragment::Later {
            return Some(self.recall(datagram, now, extent).unwrap_or(own));
        }
        self.remember(datagram, own, now, extent);
        Some(own)
    }

    /// Writes down what is remembered, those that have come whole first, and of both those that were used longest ago:
    /// [`FragmentTable::RECORD`] bytes for each datagram, little-endian. What has run out is among them, as it depends on whose clock that is:
    /// packets of several captures may have their own.
    pub fn save(&self, out: &mut Vec<u8>) {
        let mut all: Vec<&Entry> = self.buckets.iter().flatten().flatten().collect();
        all.sort_by_key(|entry| entry.worth());
        all.into_iter().for_each(|entry| entry.write(out));
    }

    /// Writes down the same of the flow that has these `keys`, of the datagrams that would be last `most` at most; how many it
    /// is.
    pub fn save_of<'k>(
        &self,
        most: usize,
        keys: impl Iterator<Item = &'k FlowKey> + Clone,
        out: &mut Vec<u8>,
    ) -> usize {
        if !keys.clone().any(|key| self.may_know(key)) {
            return 0;
        }
        let all = self.buckets.iter().flatten().flatten();
        let is_own = |entry: &&Entry| keys.clone().any(|key| key.covers(&entry.flow.0));
        let mut own: Vec<&Entry> = all.filter(is_own).collect();
        own.sort_by_key(|entry| entry.worth());
        let last = own.get(own.len().saturating_sub(most)..).unwrap_or_default();
        last.iter().for_each(|entry| entry.write(out));
        last.len()
    }

    /// False for a flow of which no datagram is remembered; mostly, of no other.
    fn may_know(&self, key: &FlowKey) -> bool {
        let key = match key.port_kind() {
            // Ends are counted alike, whichever side they are on.
            PortKind::Outer => {
                let (ports, proto) = (key.small.ports(), key.proto());
                let small = Small::new(ports, proto, key.small.v6(), PortKind::Inner);
                FlowKey { small, ..*key }
            }
            _ => *key,
        };
        self.counts.get(self.count_of(&key)).is_some_and(|count| *count > 0)
    }

    fn count_of(&self, key: &FlowKey) -> usize {
        self.hasher.hash(key) as usize % COUNTS
    }

    /// By the flow's key, and by each of its ends by itself.
    fn count(&mut self, key: &FlowKey, entry: bool) {
        let end = |direction| key.end_at(direction, Side::Inside);
        let keys = [Some(*key), end(Direction::Up), end(Direction::Down)];
        for at in keys.map(|key| key.map(|key| self.count_of(&key))).into_iter().flatten() {
            if let Some(count) = self.counts.get_mut(at) {
                *count = if entry { count.saturating_add(1) } else { count.saturating_sub(1) };
            }
        }
    }

    /// Length of what [`FragmentTable::save`] writes for each datagram, in bytes.
    pub const RECORD: usize = 47 + FlowKey::BYTES + 8;

    /// Remembers one datagram that [`FragmentTable::save`] wrote, besides those that are remembered already; where there is no room, of those
    /// that began last. False for bytes that it does not write.
    #[must_use]
    pub fn restore(&mut self, record: &[u8; Self::RECORD]) -> bool {
        let Some(entry) = Self::read(record) else { return false };
        self.insert(entry, Room::Older);
        true
    }

    /// The same before others, which were there before: to be called by the order in which they were written.
    #[must_use]
    pub fn restore_own(&mut self, record: &[u8; Self::RECORD]) -> bool {
        let Some(entry) = Self::read(record) else { return false };
        self.insert(entry, Room::LeastUsed);
        true
    }

    /// Puts one datagram where a table of the same size and hasher had it ([`FragmentTable::take_changes`]); false, and nothing has
    /// changed, when it could not have stood there. When all are there: [`FragmentTable::end_restore`].
    #[must_use]
    pub fn restore_at(&mut self, place: u32, record: &[u8; Self::RECORD]) -> bool {
        let Some(entry) = Self::read(record) else { return false };
        if self.index(&entry.datagram) != place as usize / WAYS {
            return false;
        }
        self.clock = self.clock.wrapping_add(1);
        self.put(place as usize, Entry { used: self.clock, ..entry });
        true
    }

    /// All that there is was put in its place: it need not be told of as a change. Those that began first count as used longest ago, as nobody
    /// knows which were.
    pub fn end_restore(&mut self) {
        self.changed.iter_mut().for_each(Vec::clear);
        let mut all: Vec<&mut Entry> = self.buckets.iter_mut().flatten().flatten().collect();
        all.sort_by_key(|entry| entry.born);
        for (used, entry) in (1..).zip(all) {
            entry.used = used;
            self.clock = used;
        }
    }

    fn read(record: &[u8; Self::RECORD]) -> Option<Entry> {
        let (zone, rest) = record.split_first_chunk::<8>()?;
        let (source, rest) = rest.split_first_chunk::<16>()?;
        let (destination, rest) = rest.split_first_chunk::<16>()?;
        let (id, rest) = rest.split_first_chunk::<4>()?;
        let ([proto, v6 @ (0 | 1), how @ 0..=3], rest) = rest.split_first_chunk::<3>()? else {
            return None;
        };
        let (key, rest) = rest.split_first_chunk::<{ FlowKey::BYTES }>()?;
        let (born, _) = rest.split_first_chunk::<8>()?;
        let datagram = DatagramId {
            zone: u64::from_le_bytes(*zone),
            source: u128::from_le_bytes(*source),
            destination: u128::from_le_bytes(*destination),
            id: u32::from_le_bytes(*id),
            proto: *proto,
            v6: *v6 == 1,
        };
        let direction = if how & DOWN != 0 { Direction::Down } else { Direction::Up };
        let flow = (FlowKey::from_bytes(key)?, direction);
        let born = u64::from_le_bytes(*born);
        let came = if how & WHOLE != 0 { Came::WHOLE } else { Came::default() };
        Some(Entry { datagram, flow, born, used: 0, came })
    }

    /// Which datagram one that [`FragmentTable::save`] wrote is: as bytes, alike for the same.
    #[must_use]
    pub fn datagram_of(record: &[u8; Self::RECORD]) -> &[u8] {
        record.get(..46).unwrap_or_default()
    }

    /// Packet time, in nanoseconds, of the first fragment of one that [`FragmentTable::save`] wrote.
    #[must_use]
    pub fn born(record: &[u8; Self::RECORD]) -> u64 {
        record.last_chunk().map_or(0, |born| u64::from_le_bytes(*born))
    }

    /// Whose datagram one that [`FragmentTable::save`] wrote is, as far as it is any.
    #[must_use]
    pub fn flow_of(record: &[u8; Self::RECORD]) -> Option<FlowKey> {
        FlowKey::from_bytes(record.get(47..)?.first_chunk()?)
    }

    /// Which bucket a datagram is in.
    fn index(&self, datagram: &DatagramId) -> usize {
        let mut input = [0; 46];
        let fields: [&[u8]; 6] = [
            &datagram.source.to_le_bytes(),
            &datagram.destination.to_le_bytes(),
            &datagram.zone.to_le_bytes(),
            &datagram.id.to_le_bytes(),
            &[datagram.proto],
            &[u8::from(datagram.v6)],
        ];
        for (to, from) in input.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        // The number of buckets is a power of two.
        let mask = self.buckets.len().wrapping_sub(1);
        self.hasher.hash_bytes(&input) as usize & mask
    }

    fn remember(
        &mut self,
        datagram: DatagramId,
        flow: (FlowKey, Direction),
        now: u64,
        extent: Option<(u32, u32, bool)>,
    ) {
        let mut came = Came::default();
        came.see(extent);
        self.insert(Entry { datagram, flow, born: now, used: 0, came }, Room::RunOut(now));
    }

    fn insert(&mut self, entry: Entry, room: Room) {
        self.clock = self.clock.wrapping_add(1);
        let entry = Entry { used: self.clock, ..entry };
        let (datagram, index) = (entry.datagram, self.index(&entry.datagram));
        let Some(bucket) = self.buckets.get(index) else { return };
        let same = bucket.iter().position(|slot| slot.is_some_and(|old| old.datagram == datagram));
        let oldest = || {
            let worth = |slot: &Option<Entry>| match (slot, room) {
                (None, _) => (0, 0),
                (Some(old), Room::RunOut(now)) if !old.is_alive(now) => (1, old.used),
                (Some(old), _) if old.came.is_whole() => (2, old.used),
                (Some(old), Room::RunOut(_) | Room::LeastUsed) => (3, old.used),
                (Some(old), Room::Older) => (3, old.born),
            };
            bucket.iter().enumerate().min_by_key(|(_, slot)| worth(slot)).map(|(index, _)| index)
        };
        let Some(way) = same.or_else(oldest) else { return };
        let before = bucket.get(way).copied().flatten();
        // What is read back takes no room from what it is worth less than.
        let is_worth_more = |old: Entry| {
            !old.came.is_whole()
                && match room {
                    Room::RunOut(_) => false,
                    Room::LeastUsed => entry.came.is_whole(),
                    Room::Older => entry.came.is_whole() || old.born > entry.born,
                }
        };
        let is_other = |old: &Entry| old.datagram != datagram;
        if !before.filter(is_other).is_some_and(is_worth_more) {
            self.put(index * WAYS + way, entry);
        }
    }

    /// Writes an entry over what stands in a place.
    fn put(&mut self, place: usize, entry: Entry) {
        let bucket = self.buckets.get_mut(place / WAYS);
        let Some(slot) = bucket.and_then(|bucket| bucket.get_mut(place % WAYS)) else { return };
        let before = slot.replace(entry);
        self.count(&entry.flow.0, true);
        if let Some(before) = before {
            self.count(&before.flow.0, false);
        }
        self.note(place);
    }

    /// A place has changed.
    fn note(&mut self, place: usize) {
        if let Some(changed) = &mut self.changed {
            // Each place need be there but once, should nobody ask for long.
            if changed.len() >= 2 * WAYS * self.buckets.len() {
                changed.sort_unstable();
                changed.dedup();
            }
            changed.push(place as u32);
        }
    }

    fn recall(
        &mut self,
        datagram: DatagramId,
        now: u64,
        extent: Option<(u32, u32, bool)>,
    ) -> Option<(FlowKey, Direction)> {
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let index = self.index(&datagram);
        let bucket = self.buckets.get_mut(index)?;
        let is_same = |slot: &Option<Entry>| slot.is_some_and(|e| e.datagram == datagram);
        let way = bucket.iter().position(is_same)?;
        let entry = bucket.get_mut(way)?.as_mut()?;
        if !entry.is_alive(now) {
            return None;
        }
        entry.used = clock;
        let was_open = !entry.came.is_whole();
        entry.came.see(extent);
        let (flow, closes) = (entry.flow, was_open && entry.came.is_whole());
        if closes {
            self.note(index * WAYS + way);
        }
        Some(flow)
    }
}

impl DatagramId {
    /// That of a fragment; `None` for what is none, or is cut. `layers` must have depth L4.
    #[must_use]
    pub fn of<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> Option<Self> {
        let (source, destination) = addresses(bytes, layers)?;
        let v6 = layers.kind == L3::Ipv6;
        Some(DatagramId {
            zone: zone(bytes, layers),
            source,
            destination,
            id: layers.fragment_id(bytes)?,
            proto: if v6 { 0 } else { layers.proto },
            v6,
        })
    }
}
