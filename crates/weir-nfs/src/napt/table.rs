//! Mappings in the flow table: each is a flow of two keys, its inner end and its outer one.

use super::mapping::{End, Mapping, SECOND, Sent};
use super::{Napt, Translated};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use weir_nf::flow::{Direction, Side};
use weir_nf::{Ctx, FlowKey};

/// Why an inner endpoint gets no mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// All ports are taken, or so many that none was found.
    Ports,
    /// Its host has as many as it may have.
    Quota,
}

/// How many mappings each inner host has.
#[derive(Debug, Default)]
pub struct Hosts {
    /// As of which coming and going of mappings ([`Ctx::flows_moved`]) that is right.
    as_of: Option<u64>,
    of: HashMap<Ipv4Addr, u32>,
}

impl Hosts {
    fn add(&mut self, host: Ipv4Addr) {
        *self.of.entry(host).or_default() += 1;
    }

    /// One of a host's mappings has ended.
    pub fn remove(&mut self, host: Ipv4Addr) {
        if let Some(count) = self.of.get_mut(&host) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of.remove(&host);
            }
        }
    }
}

impl Napt {
    /// The outer end of an inner endpoint that sends a packet; made when it has none, if its host may have one more.
    /// `start`: a number by which nobody outside can guess the port.
    pub(super) fn outbound(
        &self,
        ctx: &mut Ctx<'_, Self>,
        inner: End,
        sent: &Sent,
        start: impl FnOnce() -> u64,
    ) -> Result<End, NoRoom> {
        let key = FlowKey::of_end(Side::Inside, sent.proto, inner.0, inner.1);
        if !self.has(ctx, key, sent.now_ns) {
            self.make(ctx, key, inner, sent, start)?;
        }
        pass(ctx, sent, true).map(|(_, outer)| outer).ok_or(NoRoom::Ports)
    }

    /// The inner end of an outer one that a packet is sent to, if the sender may.
    pub(super) fn inbound(&self, ctx: &mut Ctx<'_, Self>, outer: End, sent: &Sent) -> Option<End> {
        self.inner_of(ctx, sent.proto, outer, sent.now_ns)?;
        ctx.looked_up().filter(|mapping| mapping.lets_in(sent.peer, self.filtering))?;
        pass(ctx, sent, false).map(|(inner, _)| inner)
    }

    /// The inner end of an outer one, without a packet: it is not kept for longer.
    pub(super) fn inner_of(
        &self,
        ctx: &mut Ctx<'_, Self>,
        proto: u8,
        outer: End,
        now_ns: u64,
    ) -> Option<End> {
        let key = FlowKey::of_end(Side::Outside, proto, outer.0, outer.1);
        self.find(ctx, key, now_ns).map(|(inner, _)| inner)
    }

    /// The outer end of an inner one, without a packet.
    pub(super) fn outer_of(
        &self,
        ctx: &mut Ctx<'_, Self>,
        proto: u8,
        inner: End,
        now_ns: u64,
    ) -> Option<End> {
        let key = FlowKey::of_end(Side::Inside, proto, inner.0, inner.1);
        self.find(ctx, key, now_ns).map(|(_, outer)| outer)
    }

    /// Both ends of a mapping. One that is over ends: it was idle for too long, or its outer end is none that it may have, as the
    /// configuration has changed since.
    fn find(&self, ctx: &mut Ctx<'_, Self>, key: FlowKey, now_ns: u64) -> Option<(End, End)> {
        if !self.has(ctx, key, now_ns) {
            return None;
        }
        ctx.looked_up().map(|mapping| (mapping.inner, mapping.outer))
    }

    /// Looks a mapping up; false when there is none, or it is over, and ends.
    #[inline]
    fn has(&self, ctx: &mut Ctx<'_, Self>, key: FlowKey, now_ns: u64) -> bool {
        let Some(found) = ctx.known_by(key) else { return false };
        let holds = self.holds(found.state, now_ns);
        if !holds {
            ctx.end_flow();
        }
        holds
    }

    /// True for a mapping that is not over.
    #[inline]
    pub(super) fn holds(&self, mapping: &Mapping, now_ns: u64) -> bool {
        now_ns < mapping.until_ns && self.ports.fits(mapping.inner, mapping.outer)
    }

    fn make(
        &self,
        ctx: &mut Ctx<'_, Self>,
        key: FlowKey,
        inner: End,
        sent: &Sent,
        start: impl FnOnce() -> u64,
    ) -> Result<(), NoRoom> {
        // What has ended counts no more, also if that was noticed just now.
        ctx.end_idle(|_, mapping, shared| shared.hosts.remove(mapping.inner.0));
        if self.quota < u32::MAX && host_count(ctx, inner.0) >= self.quota {
            return Err(NoRoom::Quota);
        }
        let is_free = |end: End| {
            let key = FlowKey::of_end(Side::Outside, sent.proto, end.0, end.1);
            // Looking for a free port does not make other hosts' mappings look used.
            let holds = ctx.peek_by(&key).is_some_and(|mapping| self.holds(mapping, sent.now_ns));
            !holds && self.find(ctx, key, sent.now_ns).is_none()
        };
        let outer = self.ports.choose(inner, start, is_free).ok_or(NoRoom::Ports)?;
        *ctx.flow_by(key).ok_or(NoRoom::Ports)?.state = Mapping::new(inner, outer);
        if self.quota < u32::MAX {
            ctx.shared().hosts.add(inner.0);
        }
        let key = FlowKey::of_end(Side::Outside, sent.proto, outer.0, outer.1);
        if ctx.alias((key, Direction::Up)).is_err() {
            ctx.end_flow();
            return Err(NoRoom::Ports);
        }
        ctx.shared().mappings += 1;
        Ok(())
    }
}

/// A packet passes by the mapping that was looked up last; its ends.
#[inline]
fn pass(ctx: &mut Ctx<'_, Napt>, sent: &Sent, from_inside: bool) -> Option<(End, End)> {
    touch(ctx, sent, from_inside);
    ctx.looked_up().map(|mapping| (mapping.inner, mapping.outer))
}

/// A packet passes by the mapping that was looked up last.
#[inline]
pub(super) fn touch(ctx: &mut Ctx<'_, Napt>, sent: &Sent, from_inside: bool) {
    let Some(mapping) = ctx.looked_up() else { return };
    let before = mapping.until_ns;
    mapping.touch(sent, from_inside);
    let until = mapping.until_ns;
    if until != before {
        // The table counts in seconds; it is exact in the mapping itself.
        let idle = until.saturating_sub(sent.now_ns).div_ceil(SECOND);
        ctx.keep_flow(idle.saturating_mul(SECOND));
    }
}

/// How many mappings an inner host has. They are counted anew when some have come from elsewhere, or gone there.
fn host_count(ctx: &mut Ctx<'_, Napt>, host: Ipv4Addr) -> u32 {
    let moved = ctx.flows_moved();
    if ctx.shared().hosts.as_of != Some(moved) {
        let mut hosts = Hosts { as_of: Some(moved), of: HashMap::new() };
        ctx.each_flow(|mapping| hosts.add(mapping.inner.0));
        let Translated { hosts: place, .. } = ctx.shared();
        *place = hosts;
    }
    ctx.shared().hosts.of.get(&host).copied().unwrap_or(0)
}
