//! Parallel stages: what a branch does with packets that are lent to it, and what becomes of packets on
//! which all branches have answered.
//!
//! A branch gets each packet of the stage and answers on it, in order and at its index; it owns none, frees
//! none, and counts no drops: who has the sync port does. That way a packet's end is in one ledger, and is
//! counted once whoever dies (decisions/0012-parallel-stages.md).

use crate::job::Job;
use crate::more::Appetite;
use crate::segment::{Segment, Way, add};
use crate::station::{Progress, Station};
use weir_mem::Entry;
use weir_mem::fault::{self, Step};
use weir_packet::{DropReason, Packet, Verdict};
use weir_port::{Answer, Carries, Egress, Pull, Pulled, answer, no_answer};

/// What a branch says of the packets that it was given, in whatever order it came to say so.
#[derive(Default)]
pub(crate) struct Said {
    /// Buffers with verdicts.
    verdicts: Vec<(u32, Verdict)>,
    /// What it was asked.
    asked: Vec<Entry>,
    /// The answers, in the order of the questions.
    answers: Vec<Entry>,
}

impl Said {
    /// Puts the verdicts into the order of the questions. What was not said anything of, or twice, has no
    /// answer: a µNF cannot bring that about, but an index that is wrong would stay wrong for ever.
    fn put_in_order(&mut self) {
        self.answers.clear();
        for (i, asked) in self.asked.iter().enumerate() {
            let of = |said: &&(u32, Verdict)| said.0 == asked.index();
            let here = self.verdicts.get(i).filter(of);
            let said = here.or_else(|| self.verdicts.iter().find(of));
            self.answers.push(said.map_or(no_answer(), |(_, verdict)| answer(asked, *verdict)));
        }
        self.verdicts.clear();
        self.asked.clear();
    }
}

impl Segment {
    /// The end of a branch: what becomes of the packet.
    pub(crate) fn answer(&mut self, packet: Packet, verdict: Verdict) {
        let index = packet.into_entry().index();
        if let Some(said) = &mut self.branch {
            said.verdicts.push((index, verdict));
        }
    }

    /// The same of all packets of a batch.
    pub(crate) fn answer_all(&mut self, packets: &mut Vec<Packet>, verdict: Verdict) {
        packets.drain(..).for_each(|packet| self.answer(packet, verdict));
    }

    /// Packets of a parallel stage go on as its branches say.
    #[inline(never)]
    pub(crate) fn go_on(
        &mut self,
        station: &mut Station,
        pulled: Pulled,
        packets: &mut Vec<Packet>,
    ) {
        let mut answers = std::mem::take(station.ingress.answers());
        self.with(station, pulled.source, |segment, way| {
            if segment.care > 0 {
                segment.grow_calm(packets.len());
            }
            segment.take_at_their_word(pulled.node, packets, &answers, way);
            segment.carry_on(pulled.node + 1, way);
        });
        answers.clear();
        *station.ingress.answers() = answers;
    }

    fn take_at_their_word(
        &mut self,
        node: usize,
        packets: &mut Vec<Packet>,
        answers: &[Answer],
        way: &mut Way<'_>,
    ) {
        let joins = self.nodes.get(node).map_or(0, |n| n.joins);
        // Mostly all leave alike, to the next µNF.
        let same =
            answers.first().filter(|first| answers.iter().all(|a| a.verdict == first.verdict));
        let output = same.and_then(|answer| answer.verdict.as_output()).map(usize::from);
        let branches = self.nodes.get(node).and_then(|n| n.outputs.get(output?));
        if let Some([branch]) = branches.map(Vec::as_slice)
            && let Some((to, input, words)) = branch.to_node()
        {
            let bytes: u64 = packets.iter().map(|p| u64::from(p.entry().len())).sum();
            if let Some(words) = words {
                add(way.words, words, packets.len() as u64);
                add(way.words, words + 1, bytes);
            }
            return self.hand_on(to, input, packets);
        }
        for (packet, answer) in packets.drain(..).zip(answers) {
            // Each branch's drops are counted at a node of its own, before that of the last.
            let behind = joins.saturating_sub(answer.branch.saturating_add(1));
            let at = match answer.verdict.as_output() {
                Some(_) => node,
                None => node.saturating_sub(behind),
            };
            self.place(at, packet, answer.verdict, way);
        }
    }
}

impl Job {
    /// One step of a branch.
    #[inline]
    pub(crate) fn branch_step(&mut self, station: &mut Station, closed: bool) -> Progress {
        let owed = self.own_up(station);
        if owed {
            station.commit();
        }
        let most = self.segment.appetite();
        let pulled = match station.pull(&mut self.packets, Appetite::up_to(most)) {
            Pull::Some(pulled) => pulled,
            Pull::Blocked | Pull::None => {
                station.ingress.wake_producers();
                station.tell();
                return if owed { Progress::Did } else { self.rest(station) };
            }
        };
        let (segment, packets) = (&mut self.segment, &mut self.packets);
        let n = packets.len();
        if let Some(said) = &mut segment.branch {
            said.asked.extend(packets.iter().map(Packet::entry));
        }
        if closed {
            segment.answer_all(packets, Verdict::drop(DropReason::Quarantined));
        } else {
            segment.with(station, pulled.source, |segment, way| {
                segment.run(pulled.node, pulled.input, packets, way);
            });
        }
        fault::step(Step::Processed);
        self.replicate(station);
        let claimed = station.ingress.lanes().get(pulled.lane).map_or(0, |l| l.ring.claimed());
        if let (Some(lane), Some(said)) =
            (station.egress.dump(pulled.source), &mut self.segment.branch)
        {
            said.put_in_order();
            station.egress.answer(lane, claimed.wrapping_sub(n as u64), &said.answers);
        }
        station.commit();
        station.ingress.wake_producers();
        if let Some(keeper) = &mut self.keeper {
            keeper.after_batch(&self.segment);
        }
        fault::step(Step::Done);
        self.did(station)
    }

    /// Says of packets that a predecessor took and never answered on that there is no answer, and of nonsense
    /// that was passed over, as far as there is room; true when there was any.
    fn own_up(&mut self, station: &mut Station) -> bool {
        let Station { ingress, egress, .. } = station;
        let mut any = false;
        for lane in ingress.lanes().iter().filter(|lane| lane.carries == Carries::Loans) {
            let Some(out) = egress.dump(lane.source) else { continue };
            let staged = |egress: &Egress| egress.lanes().get(out).map(|l| l.ring.staged());
            let before = staged(egress);
            egress.answer(out, lane.ring.claimed(), &[]);
            any |= staged(egress) != before;
        }
        any
    }
}
