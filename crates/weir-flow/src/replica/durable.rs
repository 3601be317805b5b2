//! What has to outlive a replica whose flows do: of a death between two steps nobody else may learn.
//!
//! A driver whose table outlives it commits with it, and sends messages behind that commit: the flows of each
//! migration that is handed over ([`Replica::handing`]), which are in the table no more, which migrations have come
//! ([`Replica::taken`]), whose flows are, and what was moved here ([`Replica::moved_here`]). So whenever somebody dies a flow is in one table, or in one source's copy for a
//! target that has not taken it, and neither is sent or taken anew; and directors that die too, before they have said what they send here, hear it
//! from here.

use super::{Leaving, Replica};
use crate::message::{Going, MoveId, Stage};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// So many migrations of one source are remembered as taken, for each that may be under way: the source has asked for
/// older ones.
const REMEMBERED: usize = 4;

impl<K: Ord + Clone + Debug> Replica<K> {
    /// Migrations that have come here, as long as their sources may ask for that.
    #[must_use]
    pub fn taken(&self) -> &BTreeSet<MoveId> {
        &self.taken
    }

    /// Migrations whose flows have been handed over, and nobody has said that they have come.
    pub fn handing(&self) -> impl Iterator<Item = (MoveId, &Going<K>)> {
        let going = self.leaving.iter().map(|(id, leaving)| (*id, &leaving.going));
        going.filter(|(_, going)| going.stage == Stage::Handing)
    }

    /// To be said of one that was just started anew: what its earlier life had committed. False, and nothing has changed, when
    /// no sound one can have done so.
    pub fn resume(
        &mut self,
        taken: BTreeSet<MoveId>,
        handing: Vec<(MoveId, Going<K>)>,
        guests: Vec<(K, MoveId)>,
    ) -> bool {
        let of_another = |id: &MoveId| id.source != self.me && id.can_follow(0);
        let own = |(id, going): &(MoveId, Going<K>)| {
            let is_older = id.source == self.me && id.life < self.life && id.can_follow(0);
            is_older && going.to != self.me
        };
        let can = taken.iter().all(of_another)
            && taken.len() <= self.most_taken() * usize::from(u16::MAX)
            && handing.len() <= self.limits.moves
            && handing.iter().all(own)
            && guests.len() <= self.limits.guests
            && guests.iter().all(|(_, by)| by.can_follow(0));
        if !can {
            return false;
        }
        let ids = taken.iter().chain(handing.iter().map(|(id, _)| id));
        let numbers = ids.chain(guests.iter().map(|(_, by)| by)).map(|id| id.number);
        self.clock = numbers.fold(self.clock, u64::max);
        self.taken = taken;
        self.guests = guests.into_iter().collect();
        for (id, going) in handing {
            let going = Going { stage: Stage::Handing, ..going };
            let (unmarked, flows) = (BTreeSet::new(), Vec::new());
            self.leaving.insert(id, Leaving { going, unmarked, only_forward: true, flows });
        }
        true
    }

    /// True when the flows of a migration have come here.
    pub(super) fn has_taken(&self, id: MoveId) -> bool {
        // Not by its guests: of those one that was started anew may know from directors alone, before they are here.
        self.taken.contains(&id)
    }

    pub(super) fn remember_taken(&mut self, id: MoveId) {
        self.taken.insert(id);
        let own = |other: &&MoveId| other.source == id.source;
        if self.taken.iter().filter(own).count() > self.most_taken()
            && let Some(oldest) = self.taken.iter().find(own).copied()
        {
            self.taken.remove(&oldest);
        }
    }

    /// Of one source.
    fn most_taken(&self) -> usize {
        REMEMBERED * self.limits.moves.max(1)
    }
}
