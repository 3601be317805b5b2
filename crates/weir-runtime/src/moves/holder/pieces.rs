//! What goes in one migration, and how flows that are named one by one are put together into such pieces.

use crate::moves::Part;
use std::collections::{BTreeSet, HashMap};
use weir_nf::FlowSeen;
use weir_packet::FlowKey;
use weir_port::balance::Placer;

/// A flow's keys with their hashes.
pub(super) fn hashed(placer: &Placer, seen: FlowSeen<'_>) -> Vec<(FlowKey, u64)> {
    let keys = seen.keys.iter().zip(seen.starts);
    keys.map(|(key, start)| (*key, placer.hash(key, *start))).collect()
}

/// What is to go in one migration.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) parts: BTreeSet<Part>,
    /// The flows' keys, where they are named one by one; each with whether a flow begins with it.
    pub(super) keys: Vec<(bool, FlowKey)>,
    pub(super) home: bool,
    /// How many flows they are, about, by µNF.
    pub(super) flows: Vec<u64>,
}

impl Piece {
    /// Its flows, about: of the µNF that remembers the most.
    fn most(&self) -> u64 {
        self.flows.iter().copied().max().unwrap_or(0)
    }

    fn join(&mut self, mut other: Piece) {
        self.parts.append(&mut other.parts);
        self.keys.append(&mut other.keys);
        for (own, more) in self.flows.iter_mut().zip(other.flows) {
            *own += more;
        }
    }
}

/// Flows that have been put together so far.
pub(super) struct Pieces {
    /// Flows of a piece, about.
    size: usize,
    /// µNFs that remember something of them.
    tables: usize,
    /// Another flow may have a key of one that is in a piece: they go together.
    joins: bool,
    pieces: Vec<Piece>,
    /// By hash of a key: the piece that has it. Of one µNF alone none is met twice, but where clients decide.
    places: HashMap<u64, usize>,
}

impl Pieces {
    /// None so far, of so many flows each; `joins`: a µNF's flows may have keys of each other.
    pub(super) fn new(size: usize, tables: usize, joins: bool) -> Self {
        let (pieces, places) = (Vec::new(), HashMap::new());
        Pieces { size, tables, joins: joins || tables > 1, pieces, places }
    }

    /// True when a piece has one of these keys.
    pub(super) fn have_any(&self, keys: &[(FlowKey, u64)]) -> bool {
        keys.iter().any(|(_, hash)| self.places.contains_key(hash))
    }

    /// Adds a flow with these keys, as µNF `table` has it, to the piece that has one of them already, or to the last.
    pub(super) fn add(&mut self, keys: Vec<(FlowKey, u64)>, table: usize) {
        let at = self.place(&keys);
        let Some(piece) = self.pieces.get_mut(at) else { return };
        let mut is_another = true;
        for (key, hash) in keys {
            // What another µNF remembers may have the same keys.
            if piece.parts.insert(Part::Flow(hash)) || self.tables == 1 {
                piece.keys.push((is_another, key));
                is_another = false;
            }
            if self.joins {
                self.places.insert(hash, at);
            }
        }
        piece.flows.resize(self.tables, 0);
        if let Some(flows) = piece.flows.get_mut(table) {
            *flows += 1;
        }
    }

    /// Where a flow with these keys goes.
    fn place(&mut self, keys: &[(FlowKey, u64)]) -> usize {
        let mut known: Vec<usize> =
            keys.iter().filter_map(|(_, hash)| self.places.get(hash).copied()).collect();
        let Some(at) = known.first().copied() else {
            if self.pieces.last().is_none_or(|piece| piece.most() >= self.size as u64) {
                self.pieces.push(Piece::default());
            }
            return self.pieces.len() - 1;
        };
        // It has keys of flows that were in several pieces: they go together.
        known.sort_unstable();
        known.dedup();
        for other in known.into_iter().filter(|other| *other != at) {
            let Some(joined) = self.pieces.get_mut(other).map(std::mem::take) else { continue };
            for part in &joined.parts {
                if let Part::Flow(hash) = part {
                    self.places.insert(*hash, at);
                }
            }
            if let Some(piece) = self.pieces.get_mut(at) {
                piece.join(joined);
            }
        }
        at
    }

    /// All that have flows.
    pub(super) fn all(self) -> Vec<Piece> {
        self.pieces.into_iter().filter(|piece| !piece.parts.is_empty()).collect()
    }
}
