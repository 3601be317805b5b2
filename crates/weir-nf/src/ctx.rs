//! What a µNF has at hand while it processes a batch.

use crate::clock::Clock;
use crate::desk::{Desk, What};
use crate::flows::{AliasError, BatchKeys, FlowTable, Found, Reader, RestoreError, Whither};
use crate::held::Held;
use crate::nf::Nf;
use crate::pool::{Fresh, Pool};
use crate::tags::{FlagTag, NumberTag, Ready, TagError, TagSpec, TextTag};
use weir_mem::{Arena, Seq, SharedBytes};
use weir_packet::{Access, Depth, Direction, DropReason, FlowKey, Pkt, Verdict};

/// What a µNF may ask while its configuration is compiled.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// The µNF's tags that some policy tests.
    tags: Ready,
    /// Seed of everything random: runs with equal seeds are equal.
    pub seed: u64,
    /// How many instances there are of the NF that the µNF is one of; 0: that is not said.
    instances: u32,
    /// How many flows it may remember, if not as many as its descriptor says.
    flows: Option<u32>,
}

impl Env {
    /// With the places of those tags that somebody asks for.
    ///
    /// # Errors
    /// When a place cannot be, or a pattern is none.
    pub fn new(tags: &[TagSpec], seed: u64) -> Result<Self, TagError> {
        Ok(Env { tags: Ready::new(tags)?, seed, instances: 0, flows: None })
    }

    /// The same for one of so many instances of an NF.
    #[must_use]
    pub fn of_several(self, instances: u32) -> Self {
        Env { instances, ..self }
    }

    /// The same for a µNF that may remember so many flows ([`Descriptor::flows`](crate::Descriptor::flows)), where that is said.
    #[must_use]
    pub fn with_flows(self, most: Option<u32>) -> Self {
        Env { flows: most, ..self }
    }

    /// How many flows a µNF may remember whose descriptor says `flows`: none if it remembers none.
    pub(crate) fn most_flows(&self, flows: u32) -> u32 {
        self.flows.filter(|_| flows > 0).unwrap_or(flows)
    }

    /// True when other instances of the NF have a part of its packets.
    pub fn is_one_of_several(&self) -> bool {
        self.instances > 1
    }

    /// The flag `name` of the descriptor's tags; `None` when nobody asks for it: then do not work it out.
    pub fn flag(&self, name: &str) -> Option<FlagTag> {
        self.tags.flag(name)
    }

    /// The number `name` of the descriptor's tags; `None` when nobody asks for it.
    pub fn number(&self, name: &str) -> Option<NumberTag> {
        self.tags.number(name)
    }

    /// The text `name` of the descriptor's tags; `None` when nobody asks for it.
    pub fn text(&self, name: &str) -> Option<TextTag> {
        self.tags.text(name)
    }
}

/// What a packet that a µNF sends of its own accord follows from: the packet that it is just
/// looking at, or the moment of a timer or of the end. It takes its place in the stream, directly
/// behind it, and (unless it was held) its time and the port that it came in by.
#[derive(Debug, Clone, Copy)]
pub struct Cause {
    pub(crate) place: Place,
    pub(crate) seq: Seq,
    pub(crate) time_ns: u64,
    pub(crate) raw_time: u64,
    pub(crate) time_format: u16,
    pub(crate) source_port: u16,
}

/// Where in its batch something is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Behind the packet in this buffer.
    Behind(u32),
    /// Before the packet at this position of the batch.
    Before(usize),
}

impl Cause {
    /// The moment before the packet at position `at` of a batch: `entry`'s, with its metadata.
    pub(crate) fn before(arena: &Arena, entry: &weir_mem::Entry, at: usize) -> Self {
        Self::at(arena, entry, Place::Before(at))
    }

    /// The place of `entry`, of which the metadata is asked for once.
    fn at(arena: &Arena, entry: &weir_mem::Entry, place: Place) -> Self {
        let meta = arena.meta(entry);
        Cause {
            place,
            seq: entry.seq(),
            time_ns: meta.map_or(0, |m| m.time_ns.get()),
            raw_time: meta.map_or(0, |m| m.raw_time.get()),
            time_format: meta.map_or(0, |m| m.time_format.get()),
            source_port: meta.map_or(0, |m| m.source_port.get()),
        }
    }

    /// Writes it down; where in its batch it was says nothing later.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.seq.get().to_le_bytes());
        out.extend(self.time_ns.to_le_bytes());
        out.extend(self.raw_time.to_le_bytes());
        out.extend(self.time_format.to_le_bytes());
        out.extend(self.source_port.to_le_bytes());
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        let (seq, time_ns, raw_time) = (Seq::new(from.u64()?), from.u64()?, from.u64()?);
        let time_format = u16::from_le_bytes(*from.array()?);
        let source_port = u16::from_le_bytes(*from.array()?);
        Ok(Cause { place: Place::Before(0), seq, time_ns, raw_time, time_format, source_port })
    }

    /// A moment without a packet: at `seq` of a source's stream, at `time_ns` by the clock.
    pub(crate) fn moment(self, seq: Seq, time_ns: u64) -> Self {
        // Code 0 of a time stamp: read `time_ns`.
        Cause { place: Place::Before(0), seq, time_ns, raw_time: 0, time_format: 0, ..self }
    }
}

/// A batch's surroundings: time, state, and which input the packets came by.
pub struct Ctx<'c, N: Nf> {
    pub(crate) clock: &'c mut Clock,
    pub(crate) input: u8,
    pub(crate) shared: &'c mut N::Shared,
    pub(crate) flows: &'c mut FlowTable<N::Flow>,
    pub(crate) desk: &'c mut Desk,
    pub(crate) arena: &'c Arena,
    pub(crate) pool: &'c Pool,
    /// What is known of the batch's packets.
    pub(crate) keys: &'c mut BatchKeys,
    /// The packet whose time the clock has seen last, by its place in the batch.
    pub(crate) timed: Option<usize>,
}

/// A packet's flow, as [`Ctx::flow_of`] finds it.
pub struct FlowOf<'f, F> {
    /// What the µNF remembers of it.
    pub state: &'f mut F,
    /// True for packets from the side that sent the flow's first packet.
    pub from_starter: bool,
    /// True when this is the flow's first packet.
    pub is_new: bool,
}

impl<'c, N: Nf> Ctx<'c, N> {
    /// Time in nanoseconds since 1970 when `packet` came: from packets' time stamps, never going
    /// back. When those of a source go back by more than a second (its clock was set), time goes on from
    /// where it was, and is ahead of them from then on. It depends on the packets alone that this µNF was given, not on how they are cut into
    /// batches, so a capture replays exactly, at any speed, isolated or fused. (Packets of several
    /// sources come in an order that depends on the moment; so does the time between them.)
    #[inline]
    pub fn now<A: Access>(&mut self, packet: &Pkt<'_, A>) -> u64 {
        if self.timed == Some(packet.at()) {
            return self.clock.now_ns;
        }
        self.timed = Some(packet.at());
        self.clock.see(packet.source_port(), packet.time_ns())
    }

    /// Which input the batch came by, counted from 0 in the order of the descriptor.
    #[inline]
    pub fn input(&self) -> u8 {
        self.input
    }

    /// What the µNF remembers in all.
    #[inline]
    pub fn shared(&mut self) -> &mut N::Shared {
        self.shared
    }

    /// What the µNF remembers of the packet's flow (both directions), new when this is its first
    /// packet. `None` for packets that belong to no flow (not IP), or when the table is full of
    /// busy flows: decide what that means for you.
    #[inline]
    pub fn flow<A: Access>(&mut self, packet: &Pkt<'_, A>) -> Option<&mut N::Flow> {
        self.flow_and_shared(packet).0
    }

    /// As [`Ctx::flow`], with the packet's direction. Later fragments belong to the flow of their
    /// first fragment when that came before, ICMP errors to the flow that they quote (their
    /// direction is that of who sends them).
    #[inline]
    pub fn flow_of<A: Access>(&mut self, packet: &Pkt<'_, A>) -> Option<FlowOf<'_, N::Flow>> {
        self.flow_of_and_shared(packet).0
    }

    /// The packet's flow if it is known: neither is it made, nor does it live longer by this. For who
    /// decides by what a packet is whether its flow shall be remembered: then [`Ctx::flow_of`] makes it, or
    /// [`Ctx::keep_flow`] keeps it.
    #[inline(always)]
    pub fn known_flow<A: Access>(&mut self, packet: &Pkt<'_, A>) -> Option<FlowOf<'_, N::Flow>> {
        self.known_flow_and_shared(packet).0
    }

    /// As [`Ctx::known_flow`], with the shared state.
    #[inline(always)]
    pub fn known_flow_and_shared<A: Access>(
        &mut self,
        packet: &Pkt<'_, A>,
    ) -> (Option<FlowOf<'_, N::Flow>>, &mut N::Shared) {
        let now = self.now(packet);
        self.keys.asked += 1;
        let known = match self.keys.of(packet.at(), packet.entry().first_word()) {
            Some(found) => self.flows.known_hashed(found, now),
            None => self.flows.known_of(packet, now),
        };
        (known, self.shared)
    }

    /// The key by which the packet's flow is looked up, and its direction in it; nothing is looked up. A later fragment whose first one has not
    /// come has a key of its own kind ([`PortKind::LaterFragment`](weir_packet::flow::PortKind::LaterFragment)).
    #[inline]
    pub fn key<A: Access>(&mut self, packet: &Pkt<'_, A>) -> Option<(FlowKey, Direction)> {
        let now = self.now(packet);
        self.flows.key(&packet.bytes(), &packet.layers(Depth::L4), now)
    }

    /// The flow that a key of the µNF's own making leads to, if there is one: neither is it made, nor does it live longer by this. For what
    /// remembers other things than connections, such as who has a port.
    #[inline]
    pub fn known_by(&mut self, key: FlowKey) -> Option<FlowOf<'_, N::Flow>> {
        self.flows.known(key, Direction::Up, self.clock.now_ns)
    }

    /// As [`Ctx::known_by`], of a key that [`Ctx::ready`] was given for the packet: it need not be hashed again.
    #[inline]
    pub fn known_ready<A: Access>(
        &mut self,
        packet: &Pkt<'_, A>,
        key: &FlowKey,
    ) -> Option<FlowOf<'_, N::Flow>> {
        let hash = self.keys.made.hash_of(packet.at(), key);
        let hash = hash.unwrap_or_else(|| self.flows.hash(key));
        let found = Found { key, direction: Direction::Up, hash };
        self.flows.known_hashed(found, self.clock.now_ns)
    }

    /// What is remembered under a key, if there is anything: a look only, after which the flow is as before, for replicas too.
    #[inline]
    pub fn peek_by(&mut self, key: &FlowKey) -> Option<&N::Flow> {
        self.flows.peek(key, self.clock.now_ns)
    }

    /// The same, made when there is none; `None` when the table is full.
    #[inline]
    pub fn flow_by(&mut self, key: FlowKey) -> Option<FlowOf<'_, N::Flow>> {
        self.flows.find(key, Direction::Up, self.clock.now_ns)
    }

    /// What is remembered of the flow that was looked up last, if it has not ended meanwhile.
    #[inline]
    pub fn looked_up(&mut self) -> Option<&mut N::Flow> {
        self.flows.looked_up()
    }

    /// Ends flows that have been idle for too long now, instead of behind the batch: `ended` is given them, and those that have ended
    /// since the batch began, instead of [`Nf::on_flow_end`].
    pub fn end_idle(&mut self, mut ended: impl FnMut(&FlowKey, N::Flow, &mut N::Shared)) {
        self.flows.expire(self.clock.now_ns);
        for (key, flow) in self.flows.take_ended() {
            ended(&key, flow, self.shared);
        }
    }

    /// Hashes keys of the µNF's own making, for each packet of the batch in turn one or none, for [`Ctx::known_ready`]; and lets what is remembered under them come into the
    /// processor's caches side by side, before it is looked up one by one, unless there is so little that caches hold it.
    #[inline]
    pub fn ready(&mut self, keys: impl Iterator<Item = Option<FlowKey>>) {
        self.keys.made.find(keys);
        if self.flows.is_large() {
            self.flows.ready_hashed(self.keys.made.hashes());
        }
    }

    /// How many flows have come from elsewhere, or gone there, without a packet: who counts flows by something else than
    /// their keys has to count anew ([`Ctx::each_flow`]) when it is another than before.
    #[inline]
    pub fn flows_moved(&self) -> u64 {
        self.flows.moved()
    }

    /// Shows what is remembered of each flow. It goes through the whole table.
    pub fn each_flow(&mut self, show: impl FnMut(&N::Flow)) {
        self.flows.each(self.clock.now_ns, show);
    }

    /// How many flows have given way to new ones since the last call ([`WhenFull::GiveWay`](crate::WhenFull::GiveWay)).
    #[inline]
    pub fn gave_way(&mut self) -> u64 {
        self.flows.take_gave_way()
    }

    /// Lets the flow that was looked up last end when it is idle for `idle_ns` nanoseconds from now on, whatever the
    /// descriptor says; in whole seconds, 18 h at most.
    #[inline]
    pub fn keep_flow(&mut self, idle_ns: u64) {
        self.flows.keep(idle_ns, self.clock.now_ns);
    }

    /// The same for as long as was said before, or the descriptor says: for who looks flows up by [`Ctx::known_flow`], and finds that the packet
    /// belongs to it and changes nothing about how long it is kept.
    #[inline]
    pub fn keep_on(&mut self) {
        self.flows.keep_on(self.clock.now_ns);
    }

    /// The flow that was looked up last has changed in a way that must not be forgotten: where flows are replicated less often than
    /// at every packet, this one's record is written with this batch all the same (with `us:T` when its time comes).
    #[inline]
    pub fn note_flow(&mut self) {
        self.flows.note();
    }

    /// Asks that the flow that was looked up last goes to another instance of the NF, with what is remembered of it, as if an operator had moved it: its packets are
    /// processed here until then, none is lost and none overtakes another. False when it has ended or too many wishes wait (a few dozen of a µNF), and then
    /// nothing comes of it; nor does where the NF has one instance, its flows cannot move or go with leased ports, or that instance is gone. Say it
    /// now and then, as it may come to nothing (who divides packets has just died, the graph is being changed). Each key of a flow that was moved so is remembered by all
    /// who divide packets until the graph is changed, its bucket follows or it goes back, whether or not it has ended: there is room for some 100,000. Of two flows let
    /// only one follow the other.
    pub fn move_flow(&mut self, to: Whither) -> bool {
        self.flows.wish(to)
    }

    /// Both at once: the flow's state, as [`Ctx::flow`] gives it, and the shared one.
    #[inline]
    pub fn flow_and_shared<A: Access>(
        &mut self,
        packet: &Pkt<'_, A>,
    ) -> (Option<&mut N::Flow>, &mut N::Shared) {
        let (flow, shared) = self.flow_of_and_shared(packet);
        (flow.map(|f| f.state), shared)
    }

    /// As [`Ctx::flow_and_shared`], with the packet's direction.
    #[inline]
    pub fn flow_of_and_shared<A: Access>(
        &mut self,
        packet: &Pkt<'_, A>,
    ) -> (Option<FlowOf<'_, N::Flow>>, &mut N::Shared) {
        let now = self.now(packet);
        self.keys.asked += 1;
        let flags = match self.flows.asks_flags() {
            true => packet.layers(Depth::L4).tcp_flags(&packet.bytes()),
            false => None,
        };
        let flow = match self.keys.of(packet.at(), packet.entry().first_word()) {
            Some(found) => self.flows.find_hashed(found, now, flags),
            None => {
                let key = self.flows.key(&packet.bytes(), &packet.layers(Depth::L4), now);
                key.and_then(|(key, direction)| self.flows.find_by(key, direction, now, flags))
            }
        };
        (flow, self.shared)
    }

    /// Lets a second key lead to the flow that was looked up last, until that ends: for what translates
    /// addresses, and will see the flow's packets with others. `direction` is that of a packet with the new
    /// key that goes the same way as the packet looked up; [`FlowKey::between`] gives both.
    ///
    /// # Errors
    /// When the key leads to a flow already, or there are as many further keys as there may be flows.
    /// These are counted.
    pub fn alias(&mut self, (key, direction): (FlowKey, Direction)) -> Result<(), AliasError> {
        self.flows.alias(key, direction, self.clock.now_ns)
    }

    /// Ends the flow that was looked up last, with all its keys, as if it had been idle for too long: its next packet
    /// begins another.
    pub fn end_flow(&mut self) {
        self.flows.end_current();
    }

    /// What a packet sent because of `packet` follows from.
    #[inline]
    pub fn cause<A: Access>(&self, packet: &Pkt<'_, A>) -> Cause {
        Cause::at(self.arena, packet.entry(), Place::Behind(packet.entry().index()))
    }

    /// A new packet of `len` zero bytes, with headroom before it. `None` when no buffer is free, or
    /// when a buffer does not hold so many. A µNF that makes at most as many packets for each it
    /// is given as its descriptor says (`creates`) is not given more than there are buffers for.
    pub fn alloc(&mut self, len: usize) -> Option<Fresh<'c>> {
        if N::DESCRIPTOR.creates == 0 {
            return None;
        }
        Fresh::new(self.arena, self.pool, len)
    }

    /// A copy of `packet`, tags and parse results included; otherwise as [`Ctx::alloc`].
    pub fn copy<A: Access>(&mut self, packet: &Pkt<'_, A>) -> Option<Fresh<'c>> {
        if N::DESCRIPTOR.creates == 0 {
            return None;
        }
        Fresh::copy(self.arena, self.pool, packet.entry())
    }

    /// Sends a packet that this µNF made by `output`, directly behind what it follows from.
    pub fn emit(&mut self, packet: Fresh<'c>, output: u8, cause: &Cause) {
        let origin = packet.origin;
        let Some(packet) = packet.into_packet() else { return };
        let entry = packet.into_entry().with_seq(cause.seq);
        if let Some(meta) = self.arena.meta(&entry) {
            meta.time_ns.set(cause.time_ns);
            meta.raw_time.set(cause.raw_time);
            meta.time_format.set(cause.time_format);
            meta.source_port.set(cause.source_port);
        }
        self.desk.leave(What::Made(entry, origin), Verdict::output(output), cause);
    }

    /// Keeps a packet for later. It must be released or dropped some time; what is still held at
    /// the end of the input is dropped as `held-at-end`. Gives the packet back when the µNF holds as
    /// many as it may (its descriptor's `holds`, or fewer when the packet pools are small, as what is
    /// held takes no part in receiving).
    pub fn hold<'p>(&mut self, packet: Pkt<'p, N::Access>) -> Result<Held, Pkt<'p, N::Access>> {
        if self.desk.shelf.len() >= self.desk.hold_most {
            return Err(packet);
        }
        let held = self.desk.shelf.mark(*packet.entry());
        packet.mark_held();
        Ok(held)
    }

    /// The bytes of a held packet; none when the handle is of an earlier life.
    pub fn held_bytes(&self, held: &Held) -> SharedBytes<'_> {
        match self.desk.shelf.entry(held) {
            Some(entry) => self.arena.bytes(&entry),
            None => SharedBytes::EMPTY,
        }
    }

    /// Sends a held packet by `output`, directly behind what it follows from. It keeps its own time
    /// and the port that it came in by.
    pub fn release(&mut self, held: Held, output: u8, cause: &Cause) {
        self.desk.leave(What::Held(held.0), Verdict::output(output), cause);
    }

    /// Drops a held packet; counted under `reason`.
    pub fn discard(&mut self, held: Held, reason: DropReason, cause: &Cause) {
        self.desk.leave(What::Held(held.0), Verdict::drop(reason), cause);
    }

    /// Handles of everything that is held, the oldest first: for [`Nf::on_end`]. Packets whose
    /// handle stands in a µNF's state as well can be released by either handle, once.
    pub fn all_held(&self) -> Vec<Held> {
        self.desk.shelf.all()
    }

    /// Calls [`Nf::on_timer`] with `token` when `after_ns` have gone by since `cause`. False when
    /// [`MOST_TIMERS`](crate::MOST_TIMERS) are outstanding, or the descriptor does not say that the
    /// µNF uses timers. Timers go by packet time: one is called before the first packet that is not
    /// earlier. On live input they also go by the wall clock while no packets come. The end
    /// of the input does not wait for them.
    pub fn timer(&mut self, after_ns: u64, token: u64, cause: &Cause) -> bool {
        let now = match cause.place {
            Place::Behind(_) => self.clock.see(cause.source_port, cause.time_ns),
            Place::Before(_) => self.clock.now_ns,
        };
        N::DESCRIPTOR.timers && self.desk.timers.set(now.saturating_add(after_ns), token)
    }
}
