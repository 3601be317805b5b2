//! A µNF with its state, behind one virtual call per batch.

use crate::clock::Clock;
use crate::ctx::{Cause, Ctx, Env};
use crate::descriptor::Descriptor;
use crate::desk::{Desk, Leaving};
use crate::flows::{
    BatchKeys, FlowSeen, FlowTable, RestoreError, SaveError, Walk, Wish, read_versioned,
};
use crate::nf::{ConfigError, Merge, Nf};
use crate::pool::Pool;
use crate::precopy::Precopy;
use crate::replica::{Pieces, Replicate};
use serde_json::Value;
use std::any::TypeId;
use std::cell::Cell;
use weir_mem::{Arena, Seq};
use weir_packet::{Access, Direction, FlowKey, Packet, Packets, Verdict};

/// Why a µNF could not be made from its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration is no JSON.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// It does not have the right form, or says what cannot be.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// No µNF of this name is linked in.
    #[error("there is no NF type `{0}`; `weir nf list` shows those there are")]
    Unknown(String),
    /// Two µNFs of this name are linked in.
    #[error("two NF types are called `{0}`; rename one")]
    Twice(String),
}

/// What became of a batch as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every packet leaves by the first output; verdicts need not be looked at.
    AllFirst,
    /// Look at the verdicts, and at [`Instance::leaving`].
    Judged,
}

/// Where a µNF runs.
#[derive(Clone, Copy)]
pub struct Site<'s> {
    /// Packet memory.
    pub arena: &'s Arena,
    /// Free buffers for packets that it makes.
    pub pool: &'s Pool,
    /// What the µNFs before it have found out of the same packets; to be forgotten before others come. Who writes packets forgets it.
    pub keys: &'s Cell<BatchKeys>,
}

/// A running µNF, whatever its type.
pub trait Instance: Replicate + Precopy + Send {
    /// What it is.
    fn descriptor(&self) -> &'static Descriptor;

    /// Processes a batch that came by `input`. `verdicts` must be [`Verdict::FIRST`] on entry. Whoever
    /// has the batch forgets the packets with the verdict `HELD` afterwards: the µNF has them.
    fn process(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        input: u8,
        site: Site<'_>,
    ) -> Outcome;

    /// The next batches come from outside, or from inside ([`FlowTable::comes_from`]).
    fn comes_from(&mut self, outside: bool);

    /// What it sent besides the last batch, in order; to be taken after each call.
    fn leaving(&mut self) -> &mut Vec<Leaving>;

    /// Most packets that it may hold, if that is fewer than its descriptor says.
    fn limit_held(&mut self, most: usize);

    /// Packets that it holds.
    fn held(&self) -> usize;

    /// Appends the buffers of those packets.
    fn held_buffers(&self, buffers: &mut Vec<u32>);

    /// No packets come: calls timers that are due by now. `wall_ns` is any clock that goes on by
    /// itself; what counts is how far it has gone since the last packet. `seq`: the place in
    /// the source's stream from which on nothing was sent yet. In how many nanoseconds the next is
    /// due, if there is one.
    fn tick(&mut self, wall_ns: u64, seq: Seq, site: Site<'_>) -> Option<u64>;

    /// The input has ended, at `seq`: lets the µNF send what it holds, and drops the rest.
    fn end(&mut self, seq: Seq, site: Site<'_>);

    /// Replaces the configuration; state stays. On an error nothing has changed.
    fn reconfigure(&mut self, config: &Value, env: &Env) -> Result<(), BuildError>;

    /// Its shared state, for reports.
    fn report(&self) -> Value;

    /// Whether it has shared state at all.
    fn remembers(&self) -> bool;

    /// Writes its shared state down to the end of `out`, version first. Nothing when it has none.
    fn save(&self, out: &mut Vec<u8>);

    /// Merges shared state that [`Instance::save`] wrote.
    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError>;

    /// Flows it remembers, and flows that found no room.
    fn flows(&self) -> (usize, u64);

    /// How many flows it may remember; 0 if it remembers none.
    fn most_flows(&self) -> u32;

    /// Flows that it had when [`Instance::restore_flows`] brought them once more.
    fn flows_doubled(&self) -> u64;

    /// Memory that its flows take, in bytes, without what states point to.
    fn flow_bytes(&self) -> usize;

    /// Whether it has flows or timers at all.
    fn has_flows(&self) -> bool;

    /// Writes down whose the datagrams are that have not come whole, one record ([`weir_packet::FragmentTable::RECORD`]) behind the other, for who
    /// divides its packets.
    fn save_datagrams(&self, out: &mut Vec<u8>);

    /// Its time: that of the latest packet, in nanoseconds since 1970; 0 before the first.
    fn now_ns(&self) -> u64;

    /// Shows flows by going on with a walk over all; nothing changes. False when the walk is at its end.
    fn look_at_flows(
        &self,
        walk: &mut Walk,
        look: usize,
        show: &mut dyn FnMut(FlowSeen<'_>),
    ) -> bool;

    /// Writes down, to the end of `out`, what it remembers of flows and with them: each with keys, direction, age and state,
    /// fragments, its time, and timers. Nothing changes, and nothing is written when it has none of that
    /// ([`Instance::has_flows`]). Handles of held packets stand for nothing when they are read.
    ///
    /// # Errors
    /// When a state has no serialised form; `out` is then as it was.
    fn save_flows(&self, out: &mut Vec<u8>) -> Result<(), SaveError>;

    /// Adds what [`Instance::save_flows`] wrote; how many flows there were in it. Its time goes on from
    /// the later of both, and so does a flow that is in both ([`Instance::flows_doubled`]).
    ///
    /// # Errors
    /// When it is of another version or cannot be read, when a flow is twice in it, when there is no room. No flow or
    /// timer has been added then, and none is lost.
    fn restore_flows(&mut self, saved: &[u8]) -> Result<usize, RestoreError>;

    /// Where it wants flows to be, since this was asked last.
    fn wishes(&mut self) -> Vec<Wish>;

    /// The number ([`FlowSeen::number`]) of the flow that a key leads to.
    fn flow_number(&self, key: &FlowKey) -> Option<u32>;

    /// From now on, or no more, it is remembered which flows begin, come from elsewhere, or get a key.
    fn watch_flows(&mut self, on: bool);

    /// The numbers of those flows ([`FlowSeen::number`]) since this was asked last. Some may have ended since.
    fn new_flows(&mut self) -> Vec<u32>;

    /// Takes flows out, to move them elsewhere: goes on with a walk over all. False when the walk is at its
    /// end. Timers stay: they are the µNF's, not a flow's. `on_flow_end` is not called.
    ///
    /// # Errors
    /// When a state has no serialised form (its flow stays), or while the µNF holds packets.
    fn take_flows(&mut self, walk: &mut Walk, take: Take<'_>) -> Result<bool, SaveError>;

    /// Takes out the flow that a key leads to, as a record to the end of `out`; false when there is none.
    ///
    /// # Errors
    /// As [`Instance::take_flows`].
    fn take_flow(&mut self, key: &FlowKey, out: &mut Vec<u8>) -> Result<bool, SaveError>;

    /// Puts in a flow that was taken out of an instance of the same µNF; its first key.
    ///
    /// # Errors
    /// As [`Instance::restore_flows`]; nothing has changed then.
    fn put_flow(&mut self, record: &[u8]) -> Result<FlowKey, RestoreError>;
}

/// Which flows to take, and where to.
pub struct Take<'t> {
    /// Flows to look at, at most.
    pub look: usize,
    /// Flows to take, at most.
    pub take: usize,
    /// True for a key of a flow that is to go, with the direction that packets have by it that come from where the flow's first one
    /// came from. A flow goes when it is true for one of its keys.
    pub chosen: &'t mut dyn FnMut(&FlowKey, Direction) -> bool,
    /// Gets each flow's first key and record.
    pub to: &'t mut dyn FnMut(&FlowKey, &[u8]),
}

pub(crate) struct Running<N: Nf> {
    nf: N,
    pub(crate) shared: N::Shared,
    pub(crate) flows: FlowTable<N::Flow>,
    pub(crate) clock: Clock,
    pub(crate) desk: Desk,
    /// What the last packet was, for what is sent without one.
    pub(crate) last: Option<Cause>,
    pub(crate) pieces: Pieces,
    /// When no packets came any more, by the wall clock, and by this one's.
    still: Option<(u64, u64)>,
    /// It asked for the flows of most packets of the last batch.
    asks: bool,
    /// Of one that writes packets: memory for what is found of them before.
    keys: BatchKeys,
}

fn build<N: Nf>(config: &Value, env: &Env) -> Result<N, BuildError> {
    let empty = Value::Object(Default::default());
    let config = if config.is_null() { &empty } else { config };
    let config = serde_path_to_error::deserialize(config).map_err(|e| ConfigError {
        at: pointer(e.path()),
        why: crate::in_words(&e.inner().to_string()),
    })?;
    Ok(N::build(config, env)?)
}

/// A place in a configuration as a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer += &format!("/{index}"),
            Segment::Map { key } => {
                pointer.push('/');
                pointer += &key.replace('~', "~0").replace('/', "~1");
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// Surroundings for a call of a µNF.
macro_rules! ctx {
    ($running:expr, $input:expr, $site:expr, $keys:expr) => {
        Ctx {
            clock: &mut $running.clock,
            input: $input,
            shared: &mut $running.shared,
            flows: &mut $running.flows,
            desk: &mut $running.desk,
            arena: $site.arena,
            pool: $site.pool,
            keys: $keys,
            timed: None,
        }
    };
}

impl<N: Nf> Running<N> {
    /// Whether it does anything but judge the packets of its batch.
    const EXTRAS: bool = N::DESCRIPTOR.does_more();

    pub(crate) fn new(config: &Value, env: &Env) -> Result<Self, BuildError> {
        Ok(Running {
            nf: build(config, env)?,
            shared: N::Shared::default(),
            flows: FlowTable::new(env.most_flows(N::DESCRIPTOR.flows), N::DESCRIPTOR.flow_idle_ns)
                .with_tcp(N::DESCRIPTOR.tcp_idle)
                .with_answer(N::DESCRIPTOR.when_full),
            clock: Clock::default(),
            desk: Desk { hold_most: N::DESCRIPTOR.holds as usize, ..Desk::default() },
            last: None,
            pieces: Pieces::default(),
            still: None,
            asks: false,
            keys: BatchKeys::default(),
        })
    }

    /// Calls all timers that are due at `now_ns`.
    fn fire(&mut self, now_ns: u64, cause: Cause, site: Site<'_>) {
        // What a timer sets anew for at once waits for the next time: no endless loop.
        let mut due = Vec::new();
        while let Some(timer) = self.desk.timers.due(now_ns) {
            due.push(timer);
        }
        self.clock.reach(now_ns);
        for (_, token) in due {
            let mut none = BatchKeys::default();
            let mut ctx = ctx!(self, 0, site, &mut none);
            self.nf.on_timer(token, &cause, &mut ctx);
        }
    }

    /// A µNF with timers sees its packets one at a time, so that a timer comes exactly before the
    /// first packet that is not earlier, however the packets are cut into batches.
    fn one_by_one(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        input: u8,
        site: Site<'_>,
    ) -> bool {
        let mut judged = false;
        for i in 0..packets.len() {
            let (Some(packet), Some(verdict)) = (packets.get_mut(i..=i), verdicts.get_mut(i..=i))
            else {
                break;
            };
            if self.desk.timers.next().is_some()
                && let Some(first) = packet.first()
            {
                let cause = Cause::before(site.arena, first.entry(), i);
                let now = self.clock.see(cause.source_port, cause.time_ns);
                self.fire(now, cause, site);
            }
            let mut packet = Packets::new(packet, verdict, site.arena);
            let mut none = BatchKeys::default();
            let mut ctx = ctx!(self, input, site, &mut none);
            self.nf.process(&mut packet, &mut ctx);
            judged |= packet.judged();
        }
        judged
    }

    /// Finds the keys of a batch's packets, if it asks for flows as a rule, and lets what is remembered of them come into the caches
    /// side by side, before it is looked up one by one.
    #[inline]
    fn ready(&mut self, packets: &[Packet], site: Site<'_>) -> BatchKeys {
        // One that writes packets may ask for a packet's flow behind that.
        let mut keys = match N::Access::WRITES {
            true => std::mem::take(&mut self.keys),
            false => site.keys.take(),
        };
        if self.asks && packets.len() > 1 && (!N::Access::WRITES || self.flows.is_large()) {
            keys.find(packets, site.arena);
            if self.flows.is_large() {
                self.flows.ready_hashed(keys.hashes());
            }
        }
        if N::Access::WRITES {
            keys.forget();
        }
        keys.asked = 0;
        keys
    }

    /// A flow whose packet is held here cannot go away from it.
    fn holds_none(&self) -> Result<(), SaveError> {
        match self.desk.shelf.len() {
            0 => Ok(()),
            held => Err(SaveError::Holds(held)),
        }
    }

    #[inline]
    fn end_flows(&mut self) {
        if TypeId::of::<N::Flow>() == TypeId::of::<()>() {
            return;
        }
        self.flows.expire(self.clock.now_ns);
        for (key, flow) in self.flows.take_ended() {
            self.nf.on_flow_end(&key, flow, &mut self.shared);
        }
    }
}

impl<N: Nf> Instance for Running<N> {
    fn descriptor(&self) -> &'static Descriptor {
        const { assert!(N::DESCRIPTOR.layers.writes() == N::Access::WRITES) };
        &N::DESCRIPTOR
    }

    #[inline]
    fn process(
        &mut self,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        input: u8,
        site: Site<'_>,
    ) -> Outcome {
        let judged = if N::DESCRIPTOR.timers {
            self.one_by_one(packets, verdicts, input, site)
        } else {
            let mut keys = self.ready(packets, site);
            let mut packets = Packets::new(packets, verdicts, site.arena);
            let mut ctx = ctx!(self, input, site, &mut keys);
            self.nf.process(&mut packets, &mut ctx);
            self.asks = keys.asked * 2 > packets.len();
            match N::Access::WRITES {
                true => self.keys = keys,
                false => site.keys.set(keys),
            }
            packets.judged()
        };
        if N::Access::WRITES {
            // What was found of packets before they were written.
            let mut keys = site.keys.take();
            keys.forget();
            site.keys.set(keys);
        }
        self.end_flows();
        if Self::EXTRAS {
            self.desk.settle(packets, verdicts, site.arena);
            if let Some(last) = packets.last() {
                self.last = Some(Cause::before(site.arena, last.entry(), 0));
            }
            self.still = None;
            if !self.desk.leaving.is_empty() {
                return Outcome::Judged;
            }
        }
        if judged { Outcome::Judged } else { Outcome::AllFirst }
    }

    fn leaving(&mut self) -> &mut Vec<Leaving> {
        &mut self.desk.leaving
    }

    fn limit_held(&mut self, most: usize) {
        self.desk.hold_most = self.desk.hold_most.min(most);
    }

    fn comes_from(&mut self, outside: bool) {
        self.flows.comes_from(outside);
    }

    fn held(&self) -> usize {
        self.desk.shelf.len()
    }

    fn held_buffers(&self, buffers: &mut Vec<u32>) {
        self.desk.shelf.buffers(buffers);
    }

    fn tick(&mut self, wall_ns: u64, seq: Seq, site: Site<'_>) -> Option<u64> {
        let (next, last) = (self.desk.timers.next()?, self.last?);
        let (since, from) = *self.still.get_or_insert((wall_ns, self.clock.now_ns));
        let now = from.saturating_add(wall_ns.saturating_sub(since));
        if next <= now {
            self.fire(now, last.moment(seq, now), site);
            self.desk.settle(&[], &[], site.arena);
            self.end_flows();
        }
        self.desk.timers.next().map(|next| next.saturating_sub(now))
    }

    fn end(&mut self, seq: Seq, site: Site<'_>) {
        let Some(last) = self.last else { return };
        let cause = Cause { seq, ..last };
        let mut none = BatchKeys::default();
        let mut ctx = ctx!(self, 0, site, &mut none);
        self.nf.on_end(&cause, &mut ctx);
        for held in ctx.all_held() {
            ctx.discard(held, weir_packet::DropReason::HeldAtEnd, &cause);
        }
        self.desk.settle(&[], &[], site.arena);
    }

    fn reconfigure(&mut self, config: &Value, env: &Env) -> Result<(), BuildError> {
        self.nf = build(config, env)?;
        Ok(())
    }

    fn report(&self) -> Value {
        serde_json::to_value(&self.shared).unwrap_or(Value::Null)
    }

    fn remembers(&self) -> bool {
        size_of::<N::Shared>() > 0
    }

    fn save(&self, out: &mut Vec<u8>) {
        if !self.remembers() {
            return;
        }
        let start = out.len();
        out.extend(N::Shared::VERSION.to_le_bytes());
        match postcard::to_stdvec(&self.shared) {
            Ok(bytes) => out.extend(bytes),
            Err(_) => out.truncate(start),
        }
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), RestoreError> {
        let Some((version, bytes)) = saved.split_first_chunk::<4>() else {
            return Ok(());
        };
        let versions = (u32::from_le_bytes(*version), N::Shared::VERSION);
        self.shared.merge(read_versioned(bytes, versions, N::Shared::from_version)?);
        Ok(())
    }

    fn flows(&self) -> (usize, u64) {
        (self.flows.len(), self.flows.refused())
    }

    fn most_flows(&self) -> u32 {
        self.flows.capacity()
    }

    fn flows_doubled(&self) -> u64 {
        self.flows.doubled()
    }

    fn flow_bytes(&self) -> usize {
        self.flows.bytes()
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns
    }

    fn look_at_flows(
        &self,
        walk: &mut Walk,
        look: usize,
        show: &mut dyn FnMut(FlowSeen<'_>),
    ) -> bool {
        self.flows.look_at(walk, look, self.clock.now_ns, show)
    }

    fn has_flows(&self) -> bool {
        TypeId::of::<N::Flow>() != TypeId::of::<()>() || N::DESCRIPTOR.timers
    }

    fn save_datagrams(&self, out: &mut Vec<u8>) {
        self.flows.save_datagrams(out);
    }

    fn save_flows(&self, out: &mut Vec<u8>) -> Result<(), SaveError> {
        if !self.has_flows() {
            return Ok(());
        }
        let start = out.len();
        self.save_course(out);
        let saved = self.flows.save(out);
        saved.inspect_err(|_| out.truncate(start))
    }

    fn restore_flows(&mut self, saved: &[u8]) -> Result<usize, RestoreError> {
        if saved.is_empty() {
            return Ok(0);
        }
        let (course, flows) = self.read_course(saved)?;
        let flows = self.flows.restore(course.now_ns, flows)?;
        self.go_on(course);
        Ok(flows)
    }

    fn wishes(&mut self) -> Vec<Wish> {
        self.flows.take_wishes()
    }

    fn flow_number(&self, key: &FlowKey) -> Option<u32> {
        self.flows.number_of(key)
    }

    fn watch_flows(&mut self, on: bool) {
        self.flows.watch(on);
    }

    fn new_flows(&mut self) -> Vec<u32> {
        self.flows.take_news()
    }

    fn take_flows(&mut self, walk: &mut Walk, take: Take<'_>) -> Result<bool, SaveError> {
        self.holds_none()?;
        self.flows.take(walk, (take.look, take.take), take.chosen, take.to)
    }

    fn take_flow(&mut self, key: &FlowKey, out: &mut Vec<u8>) -> Result<bool, SaveError> {
        self.holds_none()?;
        self.flows.take_one(key, out)
    }

    fn put_flow(&mut self, record: &[u8]) -> Result<FlowKey, RestoreError> {
        self.flows.put(self.clock.now_ns, record)
    }
}
