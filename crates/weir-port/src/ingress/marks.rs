//! Markers of migrations, which whoever works for flows' replicas takes, and packets that wait for their flows' state.

use super::{Ingress, LaneIn, Pull};
use weir_mem::{Arena, Entry};
use weir_packet::Packet;

impl Ingress {
    /// Says that markers of migrations come by a lane. From others they are nonsense.
    pub fn take_marks(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.takes_marks = true;
        }
    }

    /// The migration whose marker is next on a lane ([`Entry::as_moved`]): all that came before it has been taken. It stays,
    /// and nothing behind it is taken, until [`Ingress::pass_mark`].
    #[inline]
    pub fn mark(&mut self, lane: usize) -> Option<(u32, u32)> {
        let Ingress { lanes, ends, .. } = self;
        let lane = lanes.get_mut(lane).filter(|lane| lane.takes_marks && !lane.ended)?;
        if lane.ring.available(1) == 0 || lane.ring.peek(0)?.is_packet() {
            return None;
        }
        lane.head(ends)?.as_moved()
    }

    /// Takes that marker. To be called when the record says that it is claimed: whoever dies in between has lost no
    /// packet.
    pub fn pass_mark(&mut self, lane: usize) {
        if self.mark(lane).is_some()
            && let Some(lane) = self.lanes.get_mut(lane)
        {
            lane.ring.claim(1);
        }
    }

    /// As [`Ingress::pull`], but of a lane only those before the first packet that `goes` is false for; it is asked with the
    /// lane's index.
    pub fn pull_those(
        &mut self,
        arena: &Arena,
        out: &mut Vec<Packet>,
        room: impl FnMut(usize) -> usize,
        mut goes: impl FnMut(usize, &Entry) -> bool,
    ) -> Pull {
        self.pull_up_to(arena, out, room, |lane: &mut LaneIn, index, room| {
            let there = lane.ring.available(room).min(room);
            // What is no packet of the arena is dealt with by whoever takes it.
            let mut may = |entry: &Entry| !arena.admits(entry) || goes(index, entry);
            let entries = (0..there).map_while(|at| lane.ring.peek(at));
            entries.take_while(|entry| may(entry)).count()
        })
    }
}
