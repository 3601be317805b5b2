//! Branches of a parallel stage whose worker waits for its restart: the stage does not wait with them.
//!
//! A worker that dies again and again is started after longer and longer delays. What it is lent meanwhile the agent answers in
//! its stead, with what stands for packets with which a branch died: they pass it, or are dropped as `branch-lost` where it may drop.

use super::Agent;
use crate::setup::LaneCarries;
use std::time::Duration;
use weir_mem::{Entry, Marker};
use weir_port::no_answer;

/// How often packets that were lent to an absent branch are answered on: as often as rings that are not large are full at some
/// hundred thousand packets per second.
pub(super) const STANDS_IN: Duration = Duration::from_micros(500);

impl Agent {
    /// Answers on what was lent to worker `w`, which is dead, if it is a branch at all; true if it is. The end of a stream it leaves
    /// to the successor, whose µNFs are to be told.
    pub(super) fn stand_in(&mut self, w: usize) -> bool {
        if !self.setup.workers[w].branch {
            return false;
        }
        let layout = self.memory.workers[w].layout;
        let mut words = self.memory.workers[w].ledger.read().unwrap_or_default();
        words.resize(layout.len, 0);
        let mut any = false;
        let loans = self.setup.lanes.iter().enumerate().filter(|(_, lane)| lane.to == w);
        for (nth_in, (loan, lent)) in loans.enumerate() {
            let LaneCarries::Loans { of } = lent.carries else { continue };
            let mut out = self.setup.lanes.iter().enumerate().filter(|(_, lane)| lane.from == w);
            let answers = |carries| matches!(carries, LaneCarries::Answers { on, .. } if on == of);
            let found = out.by_ref().enumerate().find(|(_, (_, lane))| answers(lane.carries));
            let Some((nth_out, (answer, answered))) = found else { continue };
            let (giver, taker) = (lent.from, answered.to);
            let lanes = &self.memory.lanes;
            let (lent, said) = (&lanes[loan].inspector, &lanes[answer].inspector);
            let (tail, head) = (lent.tail(), said.head());
            let waiting = lent.unclaimed();
            let end = waiting.iter().position(needs_a_worker).unwrap_or(waiting.len());
            let until = said.fill(no_answer(), tail.wrapping_add(end as u64));
            lent.claim_up_to(until);
            let (taken, given) = (lent.tail(), said.head());
            if (taken, given) == (tail, head) {
                continue;
            }
            any = true;
            // A successor that dies before its first batch is judged by this record.
            words[layout.lanes_in + nth_in] = taken;
            words[nth_out] = given;
            self.memory.written_off[loan] = taken;
            self.memory.workers[taker].bell.ring();
            self.memory.workers[giver].bell.ring();
        }
        if any {
            self.memory.workers[w].ledger.reset(&words);
        }
        true
    }
}

/// True for what is more than a packet, or nothing.
fn needs_a_worker(entry: &Entry) -> bool {
    entry.as_marker().is_some_and(|marker| marker != Marker::Void)
}
