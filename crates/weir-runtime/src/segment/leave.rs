//! How a packet leaves a segment: by a lane, or for good.

use super::{Segment, Way, add};
use crate::layout::NODE_WORDS;
use std::rc::Rc;
use weir_mem::Origins;
use weir_packet::{DropReason, MOST_ROUNDS, Packet, Verdict};

impl Segment {
    /// Stages a packet of node `i` on the lane of `edge`.
    #[inline(always)]
    pub(super) fn send(&mut self, i: usize, edge: usize, packet: Packet, way: &mut Way<'_>) {
        let Some(lane) = way.egress.lane(edge, way.source) else {
            return self.discard(packet, DropReason::RingFull, i, way);
        };
        // In order: behind what waits already, unless nothing ever waits for this lane.
        let sent = match !self.more.waits(way.source) || way.egress.sheds(lane) {
            true => way.egress.send(lane, packet),
            false => Err(packet),
        };
        match sent {
            Ok(()) => {}
            Err(packet) if self.more.any && !way.egress.sheds(lane) => {
                self.more.wait(way.source, lane, [packet]);
            }
            Err(packet) => self.discard(packet, DropReason::RingFull, i, way),
        }
    }

    /// Stages a packet on a lane that closes a cycle, or drops it: waiting for room there could be waiting
    /// for oneself.
    #[inline(never)]
    pub(super) fn send_back(
        &mut self,
        i: usize,
        edge: usize,
        mut packet: Packet,
        way: &mut Way<'_>,
    ) {
        let rounds = packet.entry().aside().saturating_add(1);
        if rounds > MOST_ROUNDS {
            return self.discard(packet, DropReason::Loop, i, way);
        }
        *packet.entry_mut() = packet.entry().with_aside(rounds);
        let sent = match way.egress.lane(edge, way.source) {
            Some(lane) => way.egress.send(lane, packet),
            None => Err(packet),
        };
        if let Err(packet) = sent {
            self.discard(packet, DropReason::RingFull, i, way);
        }
    }

    /// Sends a packet by the ports of an array that it leaves by: itself by the first, copies by the others, as far
    /// as there are buffers.
    #[inline(never)]
    pub(super) fn send_to_array(
        &mut self,
        i: usize,
        pick: usize,
        packet: Packet,
        way: &mut Way<'_>,
    ) {
        let ways = self.picks.get_mut(pick).map(|(_, pick)| pick.ways(&packet, way.arena));
        let Some((first, others)) = ways.and_then(|mut ways| Some((ways.next()?, ways))) else {
            return self.discard(packet, DropReason::NoEdge, i, way);
        };
        for edge in others {
            let Some(copy) = self.more.pool.copy_of(way.arena, &packet) else { break };
            add(way.words, self.layout.copied, 1);
            self.send(i, edge, copy, way);
        }
        self.send(i, first, packet, way);
    }

    /// Where it is written which flows came in by the arrays that edges lead to.
    pub(crate) fn know(&mut self, origins: &[Option<Rc<Origins>>]) {
        for (array, pick) in &mut self.picks {
            pick.know(origins.get(*array).cloned().flatten());
        }
    }

    /// Counts a drop at node `i` and sends the buffer home, or the packet to whoever writes down what
    /// is dropped. A branch of a parallel stage says so to the sync port, which does that.
    #[inline(always)]
    pub(crate) fn discard(
        &mut self,
        packet: Packet,
        reason: DropReason,
        i: usize,
        way: &mut Way<'_>,
    ) {
        match way.egress.dump(way.source) {
            None => {
                self.count_drop(reason, i, way);
                way.egress.give_back(packet);
            }
            Some(_) if self.branch.is_some() => self.answer(packet, Verdict::drop(reason)),
            Some(lane) => {
                self.count_drop(reason, i, way);
                self.dump(lane, packet, reason, i, way);
            }
        }
    }

    #[inline(always)]
    fn count_drop(&self, reason: DropReason, i: usize, way: &mut Way<'_>) {
        add(way.words, self.layout.nodes + i * NODE_WORDS + 4 + reason as usize, 1);
    }
}
