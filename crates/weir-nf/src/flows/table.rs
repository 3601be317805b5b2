//! The states of a µNF's flows: a bounded table, looked up by flow key.

use super::batch::Found;
use super::index::{AliasError, FlowIndex};
use super::notes::Notes;
use super::paged::Paged;
use super::precopy::Copied;
use super::state::{FlowState, WhenFull};
use super::tcp::{Tcp, TcpTimes};
use super::unread::{Unread, Unreadable};
use super::wheel::Wheel;
use super::wishes::Wish;
use crate::ctx::FlowOf;
use weir_packet::{
    Access, BATCH, Bytes, Depth, Direction, FlowKey, Fragment, FragmentTable, Layers, Pkt,
};

/// Datagrams whose first fragment is remembered, so that later ones find their flow.
const FRAGMENTED: usize = 1024;
/// Flows that are looked at, at most, per batch (or to find room) to see whether they have ended.
const PROBE: usize = 32;

const SECOND: u64 = 1_000_000_000;

/// So many flows are half a MiB, which a processor's own cache holds.
const CACHED: usize = 1 << 12;

/// What is remembered of a flow: as few cache lines as it takes, of no other flow's.
#[repr(align(64))]
pub(super) struct Slot<F> {
    pub(super) state: F,
    /// Packet time of the last packet.
    pub(super) last_ns: u64,
    /// Packet time of the first packet.
    pub(super) born_ns: u64,
    /// Direction of the first packet, in that of the first key.
    pub(super) started: Direction,
    /// Whether that packet came from outside ([`FlowTable::comes_from`]).
    pub(super) outside: bool,
    pub(super) tcp: Tcp,
    /// For how many seconds it may be idle, if the µNF has said so; 0 otherwise.
    pub(super) idle_s: u16,
    /// How often it was looked up since it was noted last, for a replica.
    pub(super) unnoted: u16,
    /// Whether it is noted.
    pub(super) noted: bool,
    /// How its copy stands, while the table is copied.
    pub(super) copy: u8,
}

impl<F> Slot<F> {
    /// Direction of what comes from where the first packet came from, or would have come from were that inside, by a key that is
    /// `turned` against the first one or not.
    pub(super) fn start_by(&self, turned: bool) -> Direction {
        if turned != self.outside { self.started.reverse() } else { self.started }
    }
}

impl<F: Default> Default for Slot<F> {
    fn default() -> Self {
        let (state, tcp) = (F::default(), Tcp::default());
        let (started, outside, idle_s) = (Direction::Up, false, 0);
        let (unnoted, noted, copy) = (0, false, 0);
        Slot { state, last_ns: 0, born_ns: 0, started, outside, tcp, idle_s, unnoted, noted, copy }
    }
}

/// For how long flows may be idle.
#[derive(Clone, Copy)]
struct Times {
    idle_ns: u64,
    tcp: Option<TcpTimes>,
}

impl Times {
    #[inline]
    fn of<F>(&self, slot: &Slot<F>) -> u64 {
        match slot.idle_s {
            0 => self.of_tcp(slot.tcp),
            idle_s => u64::from(idle_s) * SECOND,
        }
    }

    #[inline]
    fn of_tcp(&self, tcp: Tcp) -> u64 {
        self.tcp.as_ref().and_then(|times| tcp.idle(times)).unwrap_or(self.idle_ns)
    }

    #[inline]
    fn is_alive<F>(&self, slot: &Slot<F>, now_ns: u64) -> bool {
        now_ns.saturating_sub(slot.last_ns) < self.of(slot)
    }
}

/// A bounded table of flow states.
///
/// Hashing (SipHash) is by a secret of the worker's, so that nobody can choose packets that collide. A flow
/// that has been idle for as long as the µNF says has ended: its next packet begins a new one. Ended
/// flows are found by a wheel of time slots, a few per batch, without ever going through the
/// table. When the table is full of busy flows a new one is refused and counted: those
/// that are there keep their state, whoever floods. Or one of them gives way ([`WhenFull`]).
pub struct FlowTable<F> {
    pub(super) index: FlowIndex,
    pub(super) slots: Paged<Slot<F>>,
    pub(super) fragments: Option<FragmentTable>,
    times: Times,
    refused: u64,
    pub(super) doubled: u64,
    unnamed: u64,
    when_full: WhenFull,
    gave_way: u64,
    /// Where the search for a flow that gives way goes on.
    hand: u32,
    pub(super) wheel: Wheel,
    /// The flow that was looked up last, and the packet's direction in it.
    pub(super) current: Option<(u32, Direction)>,
    /// Whether packets come from outside.
    outside: bool,
    /// Flows that have ended, until somebody takes them.
    ended: Vec<(FlowKey, F)>,
    /// Numbers of flows that began, came, or got a key since that was asked last, while anybody asks.
    pub(super) news: Option<Vec<u32>>,
    pub(super) notes: Notes,
    /// While it becomes a copy of another.
    pub(super) copied: Option<Copied>,
    /// Flows that came from elsewhere, or went there.
    pub(super) moved: u64,
    /// Where some are to be.
    pub(super) wishes: Vec<Wish>,
    /// Those of a replica that have not been read yet.
    pub(super) unread: Option<Box<Unread>>,
    pub(super) unreadable: Option<Box<Unreadable>>,
}

impl<F: FlowState> FlowTable<F> {
    /// A table for at most `capacity` flows, which end after `idle_ns` nanoseconds without packets;
    /// memory grows with use.
    #[must_use]
    pub fn new(capacity: u32, idle_ns: u64) -> Self {
        FlowTable {
            index: FlowIndex::new(capacity),
            slots: Paged::default(),
            fragments: None,
            times: Times { idle_ns, tcp: None },
            refused: 0,
            doubled: 0,
            unnamed: 0,
            when_full: WhenFull::Refuse,
            gave_way: 0,
            hand: 0,
            wheel: Wheel::new(idle_ns),
            current: None,
            outside: false,
            ended: Vec::new(),
            news: None,
            notes: Notes::default(),
            copied: None,
            moved: 0,
            wishes: Vec::new(),
            unread: None,
            unreadable: None,
        }
    }

    /// The same for flows of TCP that end after other times; to be said before there are any.
    #[must_use]
    pub fn with_tcp(mut self, times: Option<TcpTimes>) -> Self {
        let idle_ns = self.times.idle_ns;
        let shortest = times.map_or(idle_ns, |t| t.shortest().min(idle_ns));
        (self.times.tcp, self.wheel) = (times, Wheel::new(shortest));
        self
    }

    /// The same with another answer to a new flow when the table is full.
    #[must_use]
    pub fn with_answer(self, when_full: WhenFull) -> Self {
        FlowTable { when_full, ..self }
    }

    /// The flow that a packet belongs to, and its direction in it. `layers` must have depth L4.
    #[inline]
    pub fn key<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        now_ns: u64,
    ) -> Option<(FlowKey, Direction)> {
        if layers.fragment() == Fragment::Whole {
            return FlowKey::from_packet(bytes, layers);
        }
        self.fragments().key(bytes, layers, now_ns)
    }

    pub(super) fn fragments(&mut self) -> &mut FragmentTable {
        let hasher = self.index.hasher();
        self.fragments.get_or_insert_with(|| FragmentTable::new(FRAGMENTED, hasher))
    }

    /// True when [`FlowTable::find`] asks for a packet's TCP flags.
    #[inline]
    pub fn asks_flags(&self) -> bool {
        self.times.tcp.is_some()
    }

    /// The flow that `key` leads to, made when it is new; `None` when the table is full.
    #[inline]
    pub fn find(
        &mut self,
        key: FlowKey,
        direction: Direction,
        now_ns: u64,
    ) -> Option<FlowOf<'_, F>> {
        self.find_by(key, direction, now_ns, None)
    }

    /// As [`FlowTable::find`], with the packet's TCP flags, if it has any and they count
    /// ([`FlowTable::asks_flags`]).
    #[inline]
    pub fn find_by(
        &mut self,
        key: FlowKey,
        direction: Direction,
        now_ns: u64,
        flags: Option<u8>,
    ) -> Option<FlowOf<'_, F>> {
        let hash = self.index.hash(&key);
        self.find_hashed(Found { key: &key, direction, hash }, now_ns, flags)
    }

    /// As [`FlowTable::find_by`], with the hash of the key at hand.
    #[inline]
    pub(crate) fn find_hashed(
        &mut self,
        found: Found<'_>,
        now_ns: u64,
        flags: Option<u8>,
    ) -> Option<FlowOf<'_, F>> {
        let direction = found.direction;
        let known = self.look_up(found.key, found.hash, now_ns).filter(|(flow, _)| {
            let slot = self.slots.get(*flow);
            slot.is_some_and(|slot| self.times.is_alive(slot, now_ns))
        });
        let is_new = known.is_none();
        let (flow, turned) = match known {
            Some(known) => known,
            None => (self.begin(*found.key, found.hash, direction, now_ns)?, false),
        };
        let direction = if turned { direction.reverse() } else { direction };
        self.current = Some((flow, direction));
        let is_slow = self.is_slow(flow, now_ns);
        let slot = self.slots.get_mut(flow)?;
        slot.last_ns = slot.last_ns.max(now_ns);
        if !is_new {
            slot.tcp.come_again();
        }
        let from_starter = slot.started == direction;
        let before = slot.tcp;
        if self.times.tcp.is_some()
            && let Some(flags) = flags
        {
            slot.tcp.see(flags, from_starter);
            if slot.tcp != before || is_new {
                let idle = |tcp: Tcp| self.times.of_tcp(tcp);
                // It may end sooner now. What ends later is found in its old slot.
                if idle(slot.tcp) < idle(before) || is_new {
                    let due = slot.last_ns.saturating_add(idle(slot.tcp));
                    self.wheel.put(flow, due, now_ns);
                }
            }
        }
        if self.notes.on {
            self.notes.look(flow, slot, is_new || is_slow || slot.tcp != before);
        }
        Some(FlowOf { state: &mut slot.state, from_starter, is_new })
    }

    /// The flow that `key` leads to, if there is one: it is neither made nor kept alive.
    #[inline]
    pub fn known(
        &mut self,
        key: FlowKey,
        direction: Direction,
        now_ns: u64,
    ) -> Option<FlowOf<'_, F>> {
        let hash = self.index.hash(&key);
        self.known_hashed(Found { key: &key, direction, hash }, now_ns)
    }

    /// As [`FlowTable::known`] of a packet's key.
    #[inline(never)]
    pub(crate) fn known_of<A: Access>(
        &mut self,
        packet: &Pkt<'_, A>,
        now_ns: u64,
    ) -> Option<FlowOf<'_, F>> {
        let (key, direction) = self.key(&packet.bytes(), &packet.layers(Depth::L4), now_ns)?;
        self.known(key, direction, now_ns)
    }

    /// As [`FlowTable::known`], with the hash of the key at hand.
    #[inline]
    pub(crate) fn known_hashed(&mut self, found: Found<'_>, now_ns: u64) -> Option<FlowOf<'_, F>> {
        let (flow, turned) = self.look_up(found.key, found.hash, now_ns)?;
        let slot = self.slots.get_mut(flow)?;
        if !self.times.is_alive(slot, now_ns) {
            return None;
        }
        let direction = if turned { found.direction.reverse() } else { found.direction };
        self.current = Some((flow, direction));
        slot.tcp.come_again();
        let from_starter = slot.started == direction;
        if self.notes.on {
            self.notes.look(flow, slot, false);
        }
        Some(FlowOf { state: &mut slot.state, from_starter, is_new: false })
    }

    /// The flow that a key leads to, whether or not it has been read.
    #[inline(always)]
    fn look_up(&mut self, key: &FlowKey, hash: u32, now_ns: u64) -> Option<(u32, bool)> {
        match self.index.find(key, hash) {
            None if self.unread.is_some() => self.look_unread(key, hash, now_ns),
            found => found,
        }
    }

    /// The state of the flow that `key` leads to, if there is one; nothing is changed or noted by it.
    #[inline]
    pub fn peek(&mut self, key: &FlowKey, now_ns: u64) -> Option<&F> {
        let (flow, _) = self.look_up(key, self.index.hash(key), now_ns)?;
        let slot = self.slots.get(flow).filter(|_| self.is_alive(flow, now_ns))?;
        Some(&slot.state)
    }

    /// The state of the flow that was looked up last.
    #[inline]
    pub fn looked_up(&mut self) -> Option<&mut F> {
        let (flow, _) = self.current?;
        let slot = self.slots.get_mut(flow)?;
        self.notes.note_for_copy(flow, slot);
        Some(&mut slot.state)
    }

    /// Keeps the flow that was looked up last for `idle_ns` from now on, if no packets come, instead of for as long as
    /// the table is made for; also after later packets. In whole seconds, 18 h at most.
    #[inline]
    pub fn keep(&mut self, idle_ns: u64, now_ns: u64) {
        let Some((flow, _)) = self.current else { return };
        let idle_s = u16::try_from(idle_ns / SECOND).unwrap_or(u16::MAX).max(1);
        let is_slow = self.is_slow(flow, now_ns);
        let Some(slot) = self.slots.get_mut(flow) else { return };
        let last_ns = slot.last_ns.max(now_ns);
        if slot.idle_s == idle_s && !is_slow {
            // It cannot end sooner by that.
            slot.last_ns = last_ns;
            self.notes.note_for_copy(flow, slot);
            return;
        }
        let before = slot.last_ns.saturating_add(self.times.of(slot));
        (slot.idle_s, slot.last_ns) = (idle_s, last_ns);
        if self.notes.on {
            self.notes.note(flow, slot);
        }
        let due = last_ns.saturating_add(u64::from(idle_s) * SECOND);
        // What ends later is found in its old slot.
        if due < before {
            self.wheel.put(flow, due, now_ns);
        }
    }

    /// The same for as long as it is kept already.
    #[inline]
    pub fn keep_on(&mut self, now_ns: u64) {
        let Some((flow, _)) = self.current else { return };
        let is_slow = self.is_slow(flow, now_ns);
        let Some(slot) = self.slots.get_mut(flow) else { return };
        slot.last_ns = slot.last_ns.max(now_ns);
        match is_slow {
            true => self.notes.note(flow, slot),
            false => self.notes.note_for_copy(flow, slot),
        }
    }

    /// A key's hash.
    #[inline]
    pub(crate) fn hash(&self, key: &FlowKey) -> u32 {
        self.index.hash(key)
    }

    /// True when there are so many flows that caches do not hold them: then [`FlowTable::ready`] is worth its while.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.index.len() >= CACHED
    }

    /// Brings what is remembered of the flows of a batch's packets into the processor's caches, so that finding them one
    /// after the other does not wait for memory each time: hash all, then look at all.
    #[inline]
    pub fn ready(&self, keys: impl Iterator<Item = FlowKey>) {
        self.ready_hashed(keys.map(|key| self.index.hash(&key)));
    }

    /// As [`FlowTable::ready`], with the hashes of the keys at hand.
    #[inline]
    pub(crate) fn ready_hashed(&self, keys: impl Iterator<Item = u32>) {
        let mut hashes = [0; BATCH];
        let mut count = 0;
        for (hash, of_key) in hashes.iter_mut().zip(keys) {
            *hash = of_key;
            count += 1;
        }
        let hashes = hashes.get(..count).unwrap_or_default();
        // Loads that do not depend on each other: the processor has many under way at a time.
        let mut nodes = [0; BATCH];
        for (node, hash) in nodes.iter_mut().zip(hashes) {
            *node = self.index.head(*hash);
        }
        let mut flows = [0; BATCH];
        for (flow, node) in flows.iter_mut().zip(nodes).take(count) {
            *flow = self.index.flow_of(node);
        }
        let seen = flows.iter().take(count).map(|flow| self.slots.get(*flow).map(|s| s.last_ns));
        std::hint::black_box(seen.fold(0, |all, last| all ^ last.unwrap_or(0)));
    }

    #[inline]
    pub(super) fn is_alive(&self, flow: u32, now_ns: u64) -> bool {
        self.slots.get(flow).is_some_and(|slot| self.times.is_alive(slot, now_ns))
    }

    #[inline]
    pub(super) fn idle(&self, slot: &Slot<F>) -> u64 {
        self.times.of(slot)
    }

    /// A new flow, in place of the one that the key led to and that has ended, if there was one.
    fn begin(&mut self, key: FlowKey, hash: u32, started: Direction, now_ns: u64) -> Option<u32> {
        if self.index.is_full() {
            // Those that are over, or may give way, are to be found; not all at once, as packets wait.
            self.read_unread(PROBE, now_ns);
        }
        if let Some((old, _)) = self.index.find(&key, hash) {
            self.end(old);
        }
        if self.index.is_full() {
            self.expire(now_ns);
            if self.index.is_full() && self.when_full == WhenFull::GiveWay {
                self.give_way();
            }
        }
        let Some(flow) = self.index.insert(key, hash) else {
            self.refused += 1;
            return None;
        };
        if let Some(slot) = self.slots.reach(flow) {
            let (noted, copy) = (slot.noted, slot.copy);
            let outside = self.outside;
            let new =
                Slot { last_ns: now_ns, born_ns: now_ns, started, outside, ..Slot::default() };
            *slot = Slot { noted, copy, ..new };
        }
        self.wheel.put(flow, now_ns.saturating_add(self.times.idle_ns), now_ns);
        self.tell_of(flow);
        Some(flow)
    }

    /// From now on packets come from outside, or from inside, as in the beginning: of an address translator, or of a load balancer's
    /// servers, in the same segment. Which end of a flow counts depends on where its first packet came from.
    #[inline]
    pub fn comes_from(&mut self, outside: bool) {
        self.outside = outside;
    }

    /// Ends a flow to make room, as [`WhenFull::GiveWay`] says.
    #[cold]
    fn give_way(&mut self) {
        let mut oldest: Option<(u64, u32)> = None;
        for _ in 0..PROBE {
            let flow = self.hand;
            self.hand = if flow + 1 < self.index.numbers() { flow + 1 } else { 0 };
            let Some(slot) = self.slots.get(flow) else { continue };
            // Who was given numbers from elsewhere may have left some out.
            if self.index.keys(flow).next().is_none() {
                continue;
            }
            if !slot.tcp.came_again() {
                oldest = Some((0, flow));
                break;
            }
            if oldest.is_none_or(|(last_ns, _)| slot.last_ns < last_ns) {
                oldest = Some((slot.last_ns, flow));
            }
        }
        if let Some((_, flow)) = oldest {
            self.gave_way += 1;
            self.end(flow);
        }
    }

    /// How many flows have given way since the last call.
    #[inline]
    pub fn take_gave_way(&mut self) -> u64 {
        std::mem::take(&mut self.gave_way)
    }

    /// A flow that has come from elsewhere; its key leads to none yet. It gets this number, if one is given.
    pub(super) fn adopt(
        &mut self,
        number: Option<u32>,
        key: FlowKey,
        slot: Slot<F>,
        now_ns: u64,
    ) -> Option<u32> {
        let hash = self.index.hash(&key);
        let flow = match number {
            None => self.index.insert(key, hash)?,
            Some(number) => self.index.insert_reserved(number, key, hash).then_some(number)?,
        };
        let due = slot.last_ns.saturating_add(self.idle(&slot));
        // Who has seen no packet yet has no time of its own.
        let now = if now_ns == 0 { slot.last_ns } else { now_ns };
        let place = self.slots.reach(flow)?;
        *place = Slot { copy: place.copy, noted: place.noted, ..slot };
        // What has its number given is of the replica itself.
        if number.is_none() && self.notes.on {
            self.notes.note(flow, place);
        }
        self.wheel.put(flow, due, now);
        self.tell_of(flow);
        self.moved += 1;
        Some(flow)
    }

    /// Takes a flow out, with its first key.
    pub(super) fn remove(&mut self, flow: u32) -> Option<(FlowKey, Slot<F>)> {
        let key = self.index.remove(flow)?;
        self.wheel.remove(flow);
        if self.current.is_some_and(|(current, _)| current == flow) {
            self.current = None;
        }
        let slot = self.slots.get_mut(flow)?;
        if self.notes.on {
            self.notes.note(flow, slot);
        }
        let gone = std::mem::take(slot);
        // It stays noted: the next of this number need not be, too.
        (slot.noted, slot.copy) = (gone.noted, gone.copy);
        if let Some(copying) = &mut self.notes.copying {
            copying.end(flow, slot);
        }
        Some((key, gone))
    }

    pub(super) fn end(&mut self, flow: u32) {
        if let Some((key, slot)) = self.remove(flow) {
            self.ended.push((key, slot.state));
        }
    }

    /// Ends the flow that was looked up last.
    pub fn end_current(&mut self) {
        if let Some((flow, _)) = self.current {
            self.end(flow);
        }
    }

    /// Lets `key` lead to the flow that was looked up last too, until that ends. `direction`: that of a packet
    /// with that key which goes the way of the packet looked up.
    ///
    /// # Errors
    /// When the key leads to another flow that has not ended, or to this one the other way, no flow was looked up, or there are too many keys; counted, then.
    pub fn alias(
        &mut self,
        key: FlowKey,
        direction: Direction,
        now_ns: u64,
    ) -> Result<(), AliasError> {
        let added = self.try_alias(key, direction, now_ns);
        self.unnamed += u64::from(added.is_err());
        if added.is_ok() {
            self.note();
            if let Some((flow, _)) = self.current {
                self.tell_of(flow);
            }
        }
        added
    }

    fn try_alias(
        &mut self,
        key: FlowKey,
        direction: Direction,
        now_ns: u64,
    ) -> Result<(), AliasError> {
        let (flow, goes) = self.current.ok_or(AliasError::NoFlow)?;
        let old = self.look_up(&key, self.index.hash(&key), now_ns);
        if old == Some((flow, direction != goes)) {
            return Ok(());
        }
        if let Some((old, _)) = old.filter(|(old, _)| *old != flow && !self.is_alive(*old, now_ns))
        {
            self.end(old);
        }
        self.index.alias(flow, key, direction != goes)
    }

    /// Ends flows that have been idle for too long: looks at a few of those that may have.
    #[inline]
    pub fn expire(&mut self, now_ns: u64) {
        if self.wheel.is_due(now_ns) {
            self.look(now_ns);
        }
    }

    #[cold]
    fn look(&mut self, now_ns: u64) {
        self.wheel.turn(now_ns);
        for _ in 0..PROBE {
            let Some(flow) = self.wheel.take_due() else { return };
            let Some(slot) = self.slots.get(flow) else { continue };
            let due = slot.last_ns.saturating_add(self.idle(slot));
            if due <= now_ns {
                self.end(flow);
            } else {
                self.wheel.put(flow, due, now_ns);
            }
        }
    }

    /// Flows that have ended since the last call, with their states.
    #[inline]
    pub fn take_ended(&mut self) -> std::vec::Drain<'_, (FlowKey, F)> {
        self.ended.drain(..)
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Flows that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Flows that two instances had when they became one: the one with the later packet stayed.
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// Second keys that were refused ([`FlowTable::alias`]).
    pub fn refused_keys(&self) -> u64 {
        self.unnamed
    }

    /// Most flows that it may have.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.index.capacity() as u32
    }

    /// Memory taken, in bytes, without what states point to, and without fragments.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.slots.bytes() + self.wheel.bytes() + self.unread_bytes()
    }
}
