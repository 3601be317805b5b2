//! What a µNF has at hand while it processes a batch.

use crate::flows::FlowTable;
use crate::nf::Nf;
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
    pub(crate) input: u8,
    pub(crate) shared: &'c mut N::Shared,
    pub(crate) flows: &'c mut FlowTable<N::Flow>,
}

impl<N: Nf> Ctx<'_, N> {
    /// Time in nanoseconds since 1970 when `packet` came: from packets' time stamps, never going
    /// back. It depends on the packets alone, not on how they are cut into batches, so a capture
    /// replays exactly, at any speed, isolated or fused. (Packets of several sources come in an
    /// order that depends on the moment; so does the time between them.)
    #[inline]
    pub fn now<A: Access>(&mut self, packet: &Pkt<'_, A>) -> u64 {
        self.clock.see(packet.time_ns())
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

    /// Both at once: the flow's state, as [`Ctx::flow`] gives it, and the shared one.
    #[inline]
    pub fn flow_and_shared<A: Access>(
        &mut self,
        packet: &Pkt<'_, A>,
    ) -> (Option<&mut N::Flow>, &mut N::Shared) {
        let now = self.now(packet);
        let layers = packet.layers(Depth::L4);
        let key = FlowKey::from_packet(&packet.bytes(), &layers);
        let flow = key.and_then(|(key, _)| self.flows.get_or_create(key, now));
        (flow, self.shared)
    }
}
