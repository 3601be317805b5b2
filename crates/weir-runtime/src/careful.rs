//! µNFs that have crashed by themselves get their packets one at a time, and their worker commits after
//! each: so it is known which one kills, the next crash costs that packet only, and one that has killed
//! twice is dropped before it does so again. When all has gone well for a while, batches are whole again.

use crate::fingerprint::fingerprint;
use crate::layout::NODE_WORDS;
use crate::segment::{Segment, Way, add};
use std::collections::HashSet;
use weir_packet::{BATCH, DropReason, Packet};

/// After so many packets without a crash a segment takes whole batches again.
pub(crate) const CLEAN: usize = 100_000;

/// What is remembered of a µNF's crashes.
pub(crate) struct Careful {
    /// Fingerprints of packets that are not given to it any more.
    poison: HashSet<u64>,
    /// What it is given next.
    given: Vec<Packet>,
}

impl Careful {
    pub(crate) fn new(poison: &[u64]) -> Self {
        Careful { poison: poison.iter().copied().collect(), given: Vec::with_capacity(BATCH) }
    }
}

impl Segment {
    /// How many packets to take in at a time: one while a crash may follow on a crash.
    #[inline]
    pub(crate) fn appetite(&self) -> usize {
        if self.care > 0 { 1 } else { BATCH }
    }

    /// So many packets have come in since the crash. It counts what the segment takes in, not what the
    /// µNF is given: one that is given little must not slow its neighbours down for ever.
    #[cold]
    pub(crate) fn grow_calm(&mut self, packets: usize) {
        self.care = self.care.saturating_sub(packets);
        if self.care == 0 {
            for node in &mut self.nodes {
                node.careful.take_if(|careful| careful.poison.is_empty());
            }
        }
    }

    /// As [`Segment::node`], without what is poison; packet by packet until the segment has calmed down.
    #[cold]
    pub(crate) fn carefully(
        &mut self,
        i: usize,
        input: u8,
        batch: &mut Vec<Packet>,
        way: &mut Way<'_>,
        timed: bool,
    ) {
        let base = self.layout.nodes + i * NODE_WORDS;
        let taken = self.nodes.get_mut(i).and_then(|n| n.careful.take());
        let Some(mut careful) = taken else { return };
        let singly = self.care > 0;
        for packet in batch.drain(..) {
            let fingerprint = fingerprint(&way.arena.bytes(packet.entry()), self.beside);
            if careful.poison.contains(&fingerprint) {
                add(way.words, base, 1);
                add(way.words, base + 1, u64::from(packet.entry().len()));
                self.discard(packet, DropReason::Poison, i, way);
                continue;
            }
            careful.given.push(packet);
            if singly {
                way.arena.witness().knows(fingerprint);
                self.node(i, input, &mut careful.given, way, false);
            }
        }
        way.arena.witness().knows(0);
        if !careful.given.is_empty() {
            self.node(i, input, &mut careful.given, way, timed);
        }
        if let Some(node) = self.nodes.get_mut(i) {
            node.careful = Some(careful);
        }
    }
}
