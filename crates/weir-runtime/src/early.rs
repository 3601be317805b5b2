//! Early drop: what a live source does with packets of low weight when the graph has too little room for all. It is done
//! before any work is spent on them but that of taking them from the device; and they must be taken, as behind them
//! in the kernel's ring stand others of more weight.

use crate::dump;
use crate::spec::EarlySpec;
use weir_filter::{CompileError, Filter};
use weir_mem::Arena;
use weir_packet::{DropReason, Packet};
use weir_port::{Egress, HomePool, Shares};

/// Weight of what no class takes.
const REST: u32 = 1;

/// The classes of a live source.
pub(crate) struct Early {
    /// By class but the last, which is everything else.
    filters: Vec<Filter>,
    shares: Shares,
    kept: Vec<Packet>,
}

impl Early {
    /// Classes of the source that receives by policy port `port`; `capacity` is that of its shortest ring. `None` when
    /// there are none.
    pub(crate) fn new(
        classes: &[EarlySpec],
        port: u16,
        capacity: usize,
    ) -> Result<Option<Self>, CompileError> {
        if classes.is_empty() {
            return Ok(None);
        }
        let compile = |class: &EarlySpec| Filter::compile(&class.filter.resolve_ingress(port));
        let filters = classes.iter().map(compile).collect::<Result<_, _>>()?;
        let weights = classes.iter().map(|class| class.weight).chain([REST]).collect();
        let kept = Vec::with_capacity(weir_packet::BATCH);
        Ok(Some(Early { filters, shares: Shares::new(weights, capacity), kept }))
    }

    /// Up to how many packets' room must be asked for.
    pub(crate) fn capacity(&self) -> usize {
        self.shares.capacity()
    }

    /// See [`Shares::at_once`].
    pub(crate) fn at_once(&self, room: usize) -> usize {
        self.shares.at_once(room)
    }

    /// Drops what does not enter while there is room for `room`; says how many, and counts them by class in `counts`. What
    /// stays keeps its order.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        packets: &mut Vec<Packet>,
        room: usize,
        counts: &mut [u64],
        way: &mut EarlyWay<'_>,
    ) -> u64 {
        if self.shares.admits_all(packets.len(), room) {
            return 0;
        }
        self.choose_each(packets, room, counts, way)
    }

    #[inline(never)]
    fn choose_each(
        &mut self,
        packets: &mut Vec<Packet>,
        mut room: usize,
        counts: &mut [u64],
        way: &mut EarlyWay<'_>,
    ) -> u64 {
        let mut dropped = 0;
        for packet in packets.drain(..) {
            let bytes = way.arena.bytes(packet.entry());
            let class = self.filters.iter().position(|filter| filter.matches(&bytes));
            let class = class.unwrap_or(self.filters.len());
            if self.shares.admits(class, room) {
                room -= 1;
                self.kept.push(packet);
                continue;
            }
            dropped += 1;
            if let Some(count) = counts.get_mut(class) {
                *count = count.wrapping_add(1);
            }
            if self.is_written_down(way) {
                let dropped = [(packet, DropReason::EarlyDrop)];
                dump::discard(dropped, 0, way.source, way.arena, way.egress);
            } else {
                // Its buffer was taken from this worker's own pool a moment ago.
                way.pool.put(packet.into_entry().index());
            }
        }
        std::mem::swap(packets, &mut self.kept);
        dropped
    }

    /// Whether what is dropped now goes to who writes drops down. Up to half of the ring to it does: any packet that is kept may
    /// still be dropped for another reason, and needs room there before it can be taken in.
    fn is_written_down(&self, way: &mut EarlyWay<'_>) -> bool {
        let capacity = self.shares.capacity();
        let has_lane = way.egress.dump(way.source).is_some();
        has_lane && 2 * way.egress.dump_room(way.source, capacity) > capacity
    }
}

/// Where dropped packets go.
pub(crate) struct EarlyWay<'w> {
    pub(crate) arena: &'w Arena,
    pub(crate) pool: &'w mut HomePool,
    pub(crate) egress: &'w mut Egress,
    pub(crate) source: usize,
}
