//! What a µNF has at hand while it processes a batch.

use crate::flows::FlowTable;
use crate::nf::Nf;
use weir_mem::{Arena, Entry};
use weir_packet::{Access, Depth, FlowKey, Pkt, TagSlot};

/// Time as packets tell it. One per segment; never goes back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    now_ns: u64,
}

impl Clock {
    fn see(&mut self, time_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(time_ns);
        self.now_ns
    }
}

/// What a µNF may ask while its configuration is compiled.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// Slots of the tags that the planner assigned, by name. A tag that nobody uses has none.
    pub tags: Vec<(String, u8)>,
    /// Seed of everything random: runs with equal seeds are equal.
    pub seed: u64,
}

impl Env {
    /// The slot of the tag called `name`, when somebody uses it.
    pub fn tag(&self, name: &str) -> Option<TagSlot> {
        self.tags.iter().find(|(n, _)| n == name).map(|&(_, slot)| TagSlot(slot))
    }
}

/// A batch's surroundings: time, state, and which input the packets came by.
pub struct Ctx<'c, N: Nf> {
    pub(crate) clock: &'c mut Clock,
    pub(crate) arena: &'c Arena,
    /// Last packet of the batch: its time stamp is looked at only when somebody asks.
    pub(crate) last: Entry,
    pub(crate) input: u8,
    pub(crate) shared: &'c mut N::Shared,
    pub(crate) flows: &'c mut FlowTable<N::Flow>,
}

impl<N: Nf> Ctx<'_, N> {
    /// Time in nanoseconds since 1970, from packets' time stamps, never going back: a capture
    /// replays exactly, at any speed.
    #[inline]
    pub fn now(&mut self) -> u64 {
        let time = self.arena.meta(&self.last).map_or(0, |m| m.time_ns.get());
        self.clock.see(time)
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
        let layers = packet.layers(Depth::L4);
        let (key, _) = FlowKey::from_packet(&packet.bytes(), &layers)?;
        let now = self.now();
        self.flows.get_or_create(key, now)
    }
}
