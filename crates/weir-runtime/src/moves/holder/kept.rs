//! What of a holder's migrations is committed with its flows, where those are replicated: the copies that it has handed over,
//! whose flows are in no table, which migrations have come, and what was moved here: those who send it here may die before they have
//! told a successor so.

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

/// What has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Came {
    taken: BTreeSet<MoveId>,
    /// What was moved here and is here.
    guests: Vec<(Part, MoveId)>,
}

/// What is to be written for a migration, or for all together, or that there is nothing any more.
pub(in crate::moves) type Change = (Option<MoveId>, Option<Vec<u8>>);

/// What there is in the replica.
#[derive(Default)]
pub(super) struct Kept {
    copies: BTreeSet<MoveId>,
    came: Came,
    /// Something may be otherwise since.
    pub(super) dirty: bool,
}

/// What an earlier life had committed, as far as it can be.
#[derive(Default)]
struct Found {
    came: Came,
    copies: Vec<(MoveId, Copied)>,
    /// Something of it cannot be.
    damaged: bool,
}

impl Kept {
    /// What is to be written so that there are just these copies, and just this has come.
    fn changes<'c>(
        &mut self,
        handing: impl Iterator<Item = (MoveId, &'c Going<Part>, &'c Flows)>,
        taken: &BTreeSet<MoveId>,
        guests: impl Iterator<Item = (Part, MoveId)> + Clone,
    ) -> Vec<Change> {
        let (mut changes, mut copies) = (Vec::new(), BTreeSet::new());
        for (id, going, flows) in handing {
            copies.insert(id);
            // A copy never changes.
            if !self.copies.contains(&id) {
                let copied = Copied { going: going.clone(), flows: flows.clone() };
                changes.push((Some(id), postcard::to_stdvec(&copied).ok()));
            }
        }
        changes.extend(self.copies.difference(&copies).map(|id| (Some(*id), None)));
        self.copies = copies;
        // There may be many guests, and most turns change none: they are looked through, and written only then.
        if *taken != self.came.taken || !guests.clone().eq(self.came.guests.iter().copied()) {
            self.came = Came { taken: taken.clone(), guests: guests.collect() };
            changes.push((None, postcard::to_stdvec(&self.came).ok()));
        }
        changes
    }

    /// Reads what is in the replica, of `replicas` instances.
    fn read(&mut self, found: &[(Option<MoveId>, Vec<u8>)], replicas: u16) -> Found {
        let mut all = Found::default();
        for (id, bytes) in found {
            match id {
                None => match postcard::from_bytes(bytes) {
                    Ok(came) => all.came = came,
                    Err(_) => all.damaged = true,
                },
                Some(id) => {
                    // Also of what cannot be: it is cleared with what is over.
                    self.copies.insert(*id);
                    match postcard::from_bytes::<Copied>(bytes) {
                        Ok(copied)
                            if copied.going.parts.len() <= MOST_PARTS
                                && copied.going.to < replicas =>
                        {
                            all.copies.push((*id, copied));
                        }
                        Ok(_) | Err(_) => all.damaged = true,
                    }
                }
            }
        }
        self.came.clone_from(&all.came);
        self.dirty = true;
        all
    }
}

impl Holder {
    /// True when something of what is remembered of its flows is replicated.
    pub(in crate::moves) fn is_replicated(&self, segment: &Segment) -> bool {
        let mut nodes = self.nodes.iter().filter_map(|node| segment.nodes.get(*node));
        nodes.any(|node| node.replicate.is_some())
    }

    /// What is to be written with the tables, before any letter leaves.
    pub(in crate::moves) fn changes(&mut self) -> Vec<Change> {
        // What comes back has been put into the table at the turn's beginning: nothing is given up that is in none.
        debug_assert!(self.returning.is_empty());
        if !std::mem::take(&mut self.kept.dirty) {
            return Vec::new();
        }
        let leaving = &self.leaving;
        let handing = self
            .machine
            .handing()
            .filter_map(|(id, going)| Some((id, going, leaving.get(&id)?.copy.as_ref()?)));
        let guests = self.machine.moved_here().map(|(part, by)| (*part, by));
        self.kept.changes(handing, self.machine.taken(), guests)
    }

    /// Goes on with what an earlier life had committed; false when it cannot have been a sound one's.
    pub(in crate::moves) fn resume(
        &mut self,
        found: &[(Option<MoveId>, Vec<u8>)],
        post: &mut Post,
    ) -> bool {
        let Found { came: Came { taken, mut guests }, copies, damaged } =
            self.kept.read(found, self.replicas);
        // A bucket that has come home is no guest: who said so may have said it to the earlier life.
        guests.retain(|(part, _)| match part {
            Part::Bucket(bucket) => u16::from(self.initial.at(*bucket)) != self.me,
            Part::Flow(_) => true,
        });
        let handing = copies.iter().map(|(id, copied)| (*id, copied.going.clone()));
        if !self.machine.resume(taken, handing.collect(), guests.clone()) {
            return false;
        }
        for (part, _) in guests {
            match part {
                Part::Bucket(bucket) => self.own(bucket, true),
                Part::Flow(hash) => self.visitors.insert(hash),
            }
        }
        let mut gone = BTreeSet::new();
        for (id, Copied { going, flows: copy }) in copies {
            let is_gone = self.gone.contains(&going.to);
            if is_gone {
                gone.insert(going.to);
            }
            for part in going.parts.iter().filter(|_| !is_gone) {
                match part {
                    Part::Bucket(bucket) => self.own(*bucket, false),
                    Part::Flow(hash) => self.visitors.remove(*hash),
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
        !damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use weir_flow::{Limits, Replica};

    proptest! {
        /// A predecessor may have been anybody's.
        #[test]
        fn whatever_stands_there_is_gone_on_with_whole_or_not_at_all(
            stands in prop::collection::vec(
                (prop::option::of((0..3_u16, 0..3_u32, 0..6_u64)), prop::collection::vec(any::<u8>(), 0..40)),
                0..8
            ),
            sound in prop::collection::vec((0..3_u16, 0..3_u32, 0..6_u64, 0..4_u16), 0..8),
            flip in prop::collection::vec((any::<u16>(), any::<u8>()), 0..3),
        ) {
            let id = |(source, life, number)| MoveId { source, life, number };
            let mut found: Vec<_> = stands.into_iter().map(|(of, bytes)| (of.map(id), bytes)).collect();
            for (source, life, number, to) in sound {
                let copied = Copied { going: going(to), flows: Flows::default() };
                let mut bytes = postcard::to_stdvec(&copied).unwrap();
                for (at, bits) in &flip {
                    let at = usize::from(*at) % bytes.len();
                    bytes[at] ^= bits;
                }
                found.push((Some(id((source, life, number))), bytes));
            }
            let limits = Limits { moves: 4, packets: 0, guests: 100 };
            let (mut machine, _) = Replica::<Part>::restarted::<Flows>(0, 2, 0..3, 0..1, limits);
            let mut kept = Kept::default();
            let Found { came, copies, .. } = kept.read(&found, 3);
            let (taken, guests) = (came.taken.clone(), came.guests.clone());
            let handing: Vec<_> = copies.iter().map(|(id, copied)| (*id, copied.going.clone())).collect();
            let count = handing.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>().len();
            if machine.resume(taken.clone(), handing, guests.clone()) {
                prop_assert_eq!(machine.handing().count(), count);
                prop_assert!(count <= limits.moves);
                prop_assert!(machine.handing().all(|(id, going)| id.source == 0 && id.life < 2 && going.to != 0));
                prop_assert_eq!(machine.taken(), &taken);
                prop_assert_eq!(machine.moved_here().map(|(part, by)| (*part, by)).collect::<Vec<_>>(), guests.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect::<Vec<_>>());
            } else {
                prop_assert_eq!((machine.handing().count(), machine.taken().len(), machine.guests()), (0, 0, 0));
            }
            // What is of no use is cleared, and nothing else is said of it.
            let named = found.iter().filter_map(|(id, _)| *id).collect::<BTreeSet<_>>();
            let cleared = changes(&mut kept, &[], &came).into_iter();
            prop_assert!(cleared.map(|(id, bytes)| (id.unwrap(), bytes)).eq(named.into_iter().map(|id| (id, None))));
        }
    }

    type Handed<'h> = (MoveId, &'h Going<Part>, &'h Flows);

    fn changes(kept: &mut Kept, handed: &[Handed<'_>], came: &Came) -> Vec<Change> {
        kept.changes(handed.iter().copied(), &came.taken, came.guests.iter().copied())
    }

    fn id(number: u64) -> MoveId {
        MoveId { source: 0, life: 0, number }
    }

    fn going(to: u16) -> Going<Part> {
        let parts = [Part::Bucket(7), Part::Flow(8)].into();
        Going { parts, to, home: false, stage: Stage::Handing }
    }

    /// Writes changes over what stands there.
    fn write(stands: &mut Vec<(Option<MoveId>, Vec<u8>)>, changes: Vec<Change>) {
        for (id, bytes) in changes {
            stands.retain(|(other, _)| *other != id);
            stands.extend(bytes.map(|bytes| (id, bytes)));
        }
    }

    #[test]
    fn a_successor_finds_the_copies_that_nobody_has_taken_yet_and_what_has_come() {
        let (mut kept, mut stands) = (Kept::default(), Vec::new());
        let (going, flows) = (going(1), Flows::default());
        let guests = vec![(Part::Flow(3), id(8)), (Part::Flow(5), id(9)), (Part::Bucket(4), id(9))];
        let came = Came { taken: [id(9)].into(), guests };
        let two = [(id(1), &going, &flows), (id(2), &going, &flows)];
        write(&mut stands, changes(&mut kept, &two, &came));
        // The first is over; the second is as it was, and not written again.
        let then = changes(&mut kept, &two[1..], &came);
        assert_eq!(then, [(Some(id(1)), None)]);
        write(&mut stands, then);

        let mut next = Kept::default();
        let found = next.read(&stands, 2);
        assert!(!found.damaged);
        assert_eq!(found.came, came);
        let [(number, copied)] = &found.copies[..] else { panic!("not one copy") };
        assert_eq!((*number, &copied.going), (id(2), &going));
        // What it has found it need not write; what is over it clears.
        assert!(changes(&mut next, &two[1..], &came).is_empty());
        assert_eq!(changes(&mut next, &[], &came), [(Some(id(2)), None)]);
        // Of what was moved there one goes: all is written anew.
        let came = Came { guests: came.guests[1..].to_vec(), ..came };
        write(&mut stands, changes(&mut next, &[], &came));
        assert_eq!(Kept::default().read(&stands, 2).came, came);
    }

    #[test]
    fn what_cannot_have_been_committed_is_said_and_cleared() {
        let (mut kept, none) = (Kept::default(), Came::default());
        let (beyond, flows) = (going(2), Flows::default());
        let written = changes(&mut kept, &[(id(1), &beyond, &flows)], &none);
        let to_nobody: Vec<_> = written.into_iter().map(|(id, b)| (id, b.unwrap())).collect();
        for found in [to_nobody, vec![(Some(id(1)), vec![0xff])], vec![(None, vec![0xff])]] {
            let mut next = Kept::default();
            let read = next.read(&found, 2);
            assert!(read.damaged && read.copies.is_empty() && read.came == none);
            let cleared = found.iter().filter(|(id, _)| id.is_some()).map(|(id, _)| (*id, None));
            assert_eq!(changes(&mut next, &[], &none), cleared.collect::<Vec<_>>());
        }
    }
}
