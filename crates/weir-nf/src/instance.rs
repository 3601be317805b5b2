//! A µNF with its state, behind one virtual call per batch.

use crate::ctx::{Cause, Clock, Ctx, Env};
use crate::descriptor::Descriptor;
use crate::desk::{Desk, Leaving};
use crate::flows::FlowTable;
use crate::nf::{ConfigError, Merge, Nf};
use crate::pool::Pool;
use serde_json::Value;
use std::any::TypeId;
use weir_mem::{Arena, Seq};
use weir_packet::{Access, Packet, Packets, Verdict};

/// Why a µNF could not be made from its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration does not have the right form.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// It has, but what it says cannot be.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// No µNF of this name is linked in.
    #[error("there is no NF type `{0}`; `weir nf list` shows those there are")]
    Unknown(String),
    /// Two µNFs of this name are linked in.
    #[error("two NF types are called `{0}`; rename one")]
    Twice(String),
}

/// Why state that an earlier incarnation left was not taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It is of another version of the µNF.
    #[error("it is of version {found}, this is version {wanted}")]
    Version {
        /// Its version.
        found: u32,
        /// The version that this µNF reads.
        wanted: u32,
    },
    /// It cannot be read.
    #[error("{0}")]
    Form(#[from] postcard::Error),
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
}

/// A running µNF, whatever its type.
pub trait Instance: Send {
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
}

pub(crate) struct Running<N: Nf> {
    nf: N,
    shared: N::Shared,
    flows: FlowTable<N::Flow>,
    clock: Clock,
    desk: Desk,
    /// What the last packet was, for what is sent without one.
    last: Option<Cause>,
    /// When no packets came any more, by the wall clock, and by this one's.
    still: Option<(u64, u64)>,
}

fn build<N: Nf>(config: &Value, env: &Env) -> Result<N, BuildError> {
    let empty = Value::Object(Default::default());
    let config = if config.is_null() { &empty } else { config };
    let config: N::Config = serde::Deserialize::deserialize(config)?;
    Ok(N::build(config, env)?)
}

/// Surroundings for a call of a µNF.
macro_rules! ctx {
    ($running:expr, $input:expr, $site:expr) => {
        Ctx {
            clock: &mut $running.clock,
            input: $input,
            shared: &mut $running.shared,
            flows: &mut $running.flows,
            desk: &mut $running.desk,
            arena: $site.arena,
            pool: $site.pool,
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
            flows: FlowTable::new(N::DESCRIPTOR.flows, N::DESCRIPTOR.flow_idle_ns),
            clock: Clock::default(),
            desk: Desk { hold_most: N::DESCRIPTOR.holds as usize, ..Desk::default() },
            last: None,
            still: None,
        })
    }

    /// Calls all timers that are due at `now_ns`.
    fn fire(&mut self, now_ns: u64, cause: Cause, site: Site<'_>) {
        // What a timer sets anew for at once waits for the next time: no endless loop.
        let mut due = Vec::new();
        while let Some(timer) = self.desk.timers.due(now_ns) {
            due.push(timer);
        }
        for (due_ns, token) in due {
            self.clock.see(due_ns);
            let mut ctx = ctx!(self, 0, site);
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
                self.fire(self.clock.now_ns.max(cause.time_ns), cause, site);
            }
            let mut packet = Packets::new(packet, verdict, site.arena);
            let mut ctx = ctx!(self, input, site);
            self.nf.process(&mut packet, &mut ctx);
            judged |= packet.judged();
        }
        judged
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
            let mut packets = Packets::new(packets, verdicts, site.arena);
            let mut ctx = ctx!(self, input, site);
            self.nf.process(&mut packets, &mut ctx);
            packets.judged()
        };
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
        let mut ctx = ctx!(self, 0, site);
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
        let (found, wanted) = (u32::from_le_bytes(*version), N::Shared::VERSION);
        if found != wanted {
            return Err(RestoreError::Version { found, wanted });
        }
        self.shared.merge(postcard::from_bytes(bytes)?);
        Ok(())
    }

    fn flows(&self) -> (usize, u64) {
        (self.flows.len(), self.flows.refused())
    }
}
