//! What of a holder's migrations is committed with its flows, where those are replicated: the copies that it has handed over,
//! whose flows are in no table, and which migrations have come.

use super::{Holder, Leave};
use crate::moves::{Flows, MOST_PARTS, Part, Post};
use crate::segment::Segment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weir_flow::{Going, MoveId, Stage};

/// A migration that is handed over.
#[derive(Serialize, Deserialize)]
struct Copied {
    going: Going<Part>,
    flows: Flows,
}

/// What is to be written for a migration, or for all together, or that there is nothing any more.
pub(in crate::moves) type Change = (Option<MoveId>, Option<Vec<u8>>);

/// What there is in the replica.
#[derive(Default)]
pub(super) struct Kept {
    copies: BTreeSet<MoveId>,
    taken: BTreeSet<MoveId>,
    /// Something may be otherwise since.
    pub(super) dirty: bool,
}

impl Holder {
    /// True when something of what is remembered of its flows is replicated.
    pub(in crate::moves) fn is_replicated(&self, segment: &Segment) -> bool {
        let mut nodes = self.nodes.iter().filter_map(|node| segment.nodes.get(*node));
        nodes.any(|node| node.replicate.is_some())
    }

    /// What is to be written with the tables, before any letter leaves.
    pub(in crate::moves) fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        // What comes back into the table is in it at the next turn only.
        if !self.kept.dirty || !self.returning.is_empty() {
            return changes;
        }
        self.kept.dirty = false;
        let mut copies = BTreeSet::new();
        for (id, going) in self.machine.handing() {
            let copy = self.leaving.get(&id).and_then(|leave| leave.copy.as_ref());
            let Some(flows) = copy else { continue };
            copies.insert(id);
            if !self.kept.copies.contains(&id) {
                let copied = Copied { going: going.clone(), flows: flows.clone() };
                changes.push((Some(id), postcard::to_stdvec(&copied).ok()));
            }
        }
        changes.extend(self.kept.copies.difference(&copies).map(|id| (Some(*id), None)));
        self.kept.copies = copies;
        let taken = self.machine.taken();
        if *taken != self.kept.taken {
            changes.push((None, postcard::to_stdvec(taken).ok()));
            self.kept.taken = taken.clone();
        }
        changes
    }

    /// Goes on with what an earlier life had committed; false when it cannot have been a sound one's.
    pub(in crate::moves) fn resume(
        &mut self,
        found: &[(Option<MoveId>, Vec<u8>)],
        post: &mut Post,
    ) -> bool {
        let (mut taken, mut handing, mut all) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut sound = true;
        self.kept.dirty = true;
        for (id, bytes) in found {
            match id {
                None => match postcard::from_bytes(bytes) {
                    Ok(ids) => taken = ids,
                    Err(_) => sound = false,
                },
                Some(id) => {
                    self.kept.copies.insert(*id);
                    match postcard::from_bytes::<Copied>(bytes) {
                        Ok(Copied { going, flows })
                            if going.parts.len() <= MOST_PARTS && going.to < self.replicas =>
                        {
                            handing.push((*id, going.clone()));
                            all.push((*id, going, flows));
                        }
                        Ok(_) | Err(_) => sound = false,
                    }
                }
            }
        }
        self.kept.taken.clone_from(&taken);
        if !self.machine.resume(taken, handing) {
            return false;
        }
        let mut gone = BTreeSet::new();
        for (id, going, copy) in all {
            let is_gone = self.gone.contains(&going.to);
            if is_gone {
                gone.insert(going.to);
            }
            for part in going.parts.iter().filter(|_| !is_gone) {
                match part {
                    Part::Bucket(bucket) => self.own(*bucket, false),
                    Part::Flow(hash) => drop(self.visitors.remove(hash)),
                }
            }
            let flows = copy.records().filter(|record| record.begins).count() as u64;
            let new = Leave::new(None);
            self.leaving
                .insert(id, Leave { stage: Stage::Handing, copy: Some(copy), flows, ..new });
        }
        // Of a target that has gone meanwhile nobody tells this life.
        for target in gone {
            let effects = self.machine.gone(target);
            self.apply_without_table(effects, post);
        }
        sound
    }
}
