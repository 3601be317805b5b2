//! The workers of a stage: batch by batch, in the order in which `weir-runtime` calls the ports.

use super::rig::{Bytes, PACKETS};
use super::says;
use crate::egress::Egress;
use crate::ingress::{Ingress, Pull};
use crate::sync::answer;
use std::sync::Arc;
use weir_mem::fault::{self, Step};
use weir_mem::{Arena, Entry, LedgerWriter, Packet, Seq};
use weir_packet::Verdict;

/// Records what will be, the index of each ring and a count, then lets others see it.
fn commit(egress: &mut Egress, ledger: &mut LedgerWriter, count: u64) {
    egress.lend();
    fault::step(Step::Staged);
    let rings = egress.nonsense().count();
    let mut words = vec![count; rings + 1];
    egress.targets(words.iter_mut().take(rings));
    ledger.commit(&words);
    fault::step(Step::Committed);
    egress.publish();
}

pub(super) struct Giver {
    pub(super) egress: Egress,
    pub(super) ledger: LedgerWriter,
    pub(super) arena: Arc<Arena>,
}

impl Giver {
    /// Gives all packets in one batch.
    pub(super) fn give(&mut self) {
        for n in 0..PACKETS as u32 {
            let entry = Entry::packet(n, 0, 64, Seq::new(n.into()), 0);
            let packet = Packet::admit(entry, self.arena.view()).unwrap();
            assert!(self.egress.send(0, packet).is_ok());
        }
        commit(&mut self.egress, &mut self.ledger, 0);
    }
}

pub(super) struct Branch {
    pub(super) number: usize,
    pub(super) ingress: Ingress,
    pub(super) egress: Egress,
    pub(super) ledger: LedgerWriter,
    pub(super) arena: Arc<Arena>,
    pub(super) bytes: Bytes,
}

impl Branch {
    /// Says of what a predecessor took and never answered on that there is no answer.
    pub(super) fn own_up(&mut self) {
        let claimed = self.ingress.lanes()[0].ring.claimed();
        self.egress.answer(0, claimed, &[]);
        commit(&mut self.egress, &mut self.ledger, 0);
    }

    /// Takes what it is lent, looks at it and answers; says on how many.
    pub(super) fn work(&mut self) -> usize {
        let mut packets = Vec::new();
        let room = self.egress.room(0, PACKETS);
        let Pull::Some(_) = self.ingress.pull(&self.arena, &mut packets, |_| room) else {
            return 0;
        };
        for packet in &packets {
            let n = packet.entry().index();
            self.bytes[n as usize].with(|_| ());
        }
        fault::step(Step::Processed);
        let number = self.number;
        let said = packets.drain(..).map(Packet::into_entry);
        let said: Vec<Entry> = said.map(|e| answer(&e, says(number, e.index()))).collect();
        self.says_all(&said);
        fault::step(Step::Done);
        said.len()
    }

    /// Answers so on what it has taken.
    pub(super) fn says_all(&mut self, said: &[Entry]) {
        let claimed = self.ingress.lanes()[0].ring.claimed();
        assert!(self.egress.answer(0, claimed.saturating_sub(said.len() as u64), said));
        commit(&mut self.egress, &mut self.ledger, 0);
    }
}

pub(super) struct SyncPort {
    pub(super) ingress: Ingress,
    pub(super) egress: Egress,
    pub(super) ledger: LedgerWriter,
    pub(super) arena: Arc<Arena>,
    pub(super) bytes: Bytes,
    pub(super) most: usize,
    pub(super) dropped: u64,
    /// Buffers that it took, with what the branches say of them, and which branch.
    pub(super) judged: Vec<(u32, Verdict, usize)>,
}

impl SyncPort {
    /// Takes what is answered, and passes it on or drops it.
    pub(super) fn work(&mut self) {
        let mut packets = Vec::new();
        let room = self.egress.room(0, self.most);
        let Pull::Some(_) = self.ingress.pull(&self.arena, &mut packets, |_| room) else { return };
        let answers = std::mem::take(self.ingress.answers());
        assert_eq!(answers.len(), packets.len());
        for (packet, said) in packets.into_iter().zip(answers) {
            let n = packet.entry().index();
            // It may write now, or give the buffer to somebody who does.
            self.bytes[n as usize].with_mut(|_| ());
            self.judged.push((n, said.verdict, said.branch));
            match said.verdict.as_output() {
                Some(_) => assert!(self.egress.send(0, packet).is_ok()),
                None => {
                    self.dropped += 1;
                    assert!(self.egress.give_back(packet));
                }
            }
        }
        fault::step(Step::Processed);
        commit(&mut self.egress, &mut self.ledger, self.dropped);
        fault::step(Step::Done);
    }

    /// Whether it must not sleep after all.
    pub(super) fn sleep(&mut self) -> bool {
        self.ingress.sleep()
    }

    pub(super) fn nonsense(&self) -> u64 {
        self.ingress.lanes().iter().map(|lane| lane.nonsense()).sum()
    }
}
