//! µNFs that have crashed by themselves get their packets one at a time: so it is known which one
//! kills, and one that has done so twice is dropped before it does so again.

use crate::layout::NODE_WORDS;
use crate::segment::{Segment, Way, add};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use weir_mem::SharedBytes;
use weir_packet::{DropReason, Packet};

/// What is remembered of a µNF's crashes.
pub(crate) struct Careful {
    /// Fingerprints of packets that are not given to it any more.
    poison: HashSet<u64>,
    one: Vec<Packet>,
}

impl Careful {
    pub(crate) fn new(poison: &[u64]) -> Self {
        Careful { poison: poison.iter().copied().collect(), one: Vec::with_capacity(1) }
    }
}

/// Fingerprint of a packet: SipHash over its bytes, never 0. Equal in all processes of one build.
pub fn fingerprint(bytes: &SharedBytes<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_usize(bytes.len());
    let mut piece = [0; 64];
    let mut at = 0;
    while at < bytes.len() {
        let n = bytes.copy_to(at, &mut piece);
        hasher.write(piece.get(..n).unwrap_or_default());
        at += n;
    }
    hasher.finish().max(1)
}

impl Segment {
    /// As [`Segment::node`], packet by packet.
    #[cold]
    pub(crate) fn carefully(
        &mut self,
        i: usize,
        input: u8,
        batch: &mut Vec<Packet>,
        way: &mut Way<'_>,
    ) {
        let base = self.layout.nodes + i * NODE_WORDS;
        let taken = self.nodes.get_mut(i).and_then(|n| n.careful.take());
        let Some(mut careful) = taken else { return };
        for packet in batch.drain(..) {
            let fingerprint = fingerprint(&way.arena.bytes(packet.entry()));
            if careful.poison.contains(&fingerprint) {
                add(way.words, base, 1);
                add(way.words, base + 1, u64::from(packet.entry().len()));
                self.discard(packet, DropReason::Poison, i, way);
                continue;
            }
            way.arena.witness().knows(fingerprint);
            careful.one.push(packet);
            self.node(i, input, &mut careful.one, way, false);
        }
        way.arena.witness().knows(0);
        if let Some(node) = self.nodes.get_mut(i) {
            node.careful = Some(careful);
        }
    }
}
