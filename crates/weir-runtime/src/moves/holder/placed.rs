//! Where flows are, from one generation of the graph to the next.
//!
//! Each instance hands over which buckets of the flow hash are with it, and what was moved to it one by one. The agent makes of that one table for
//! the next generation, in which buckets are where they were: an instance's successor has what it had, and with it its flows. Those who divide
//! packets begin with that table, too, and ask for the rest, as one that was started anew does: they send nothing before all instances have told them.
//!
//! So it is also with another number of instances, or other weights: flows stay where they are (E2 §5.4, migration avoidance), and what is to
//! be elsewhere now goes there as soon as it has no flows, by order of the agent ([`What::FreeOf`](crate::moves::What::FreeOf)).

use super::Holder;
use crate::handover::NfState;
use crate::moves::look::LOOK;
use crate::moves::{BucketSet, GUESTS, Moves, Part, Role};
use crate::segment::Segment;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use weir_flow::MoveId;
use weir_nf::{Instance, Walk};
use weir_port::balance::Buckets;

/// Of fewer flows it is looked which have ended of those that were moved here one by one; of more not in the pause, unless they are so many
/// that there may soon be no room for others.
const FEW: usize = 1 << 12;
/// One part in so many of the room.
const MUCH: usize = 4;

/// What an instance has when it hands over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Its buckets.
    pub buckets: BucketSet,
    /// Hashes of flows that were moved here one by one, in order.
    pub moved: Vec<u64>,
    /// The highest number of a migration that is known here.
    pub clock: u64,
}

/// What a worker of the next generation begins with, of one crew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placing {
    /// The first of its groups.
    pub group: u16,
    /// Where buckets are ([`Buckets::save`]).
    #[serde(with = "serde_bytes")]
    pub table: Vec<u8>,
    /// Of an instance, hashes of flows that are there wherever their buckets are.
    pub moved: Vec<u64>,
    /// At least the highest number of a migration that anybody knew.
    pub clock: u64,
    /// Flows that an instance takes over may have other buckets than it has: they were not divided by them.
    pub scattered: bool,
}

impl Placed {
    /// False when no sound instance can have handed over this.
    #[must_use]
    pub fn can_be(&self) -> bool {
        let last = MoveId { source: 0, life: 0, number: self.clock };
        last.can_follow(0) && self.moved.len() <= GUESTS
    }
}

impl Moves {
    /// True when nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.crews.iter().all(|crew| match &crew.role {
            Role::Holder(holder) => holder.is_quiet() && !crew.post.holds(),
            Role::Sender(sender) => sender.is_ready(),
        })
    }

    /// Adds to what µNFs hand over where their flows are.
    pub(crate) fn hand_over(&self, states: &mut [NfState], segment: &Segment) {
        for crew in &self.crews {
            let Role::Holder(holder) = &crew.role else { continue };
            let placed = holder.placed();
            // With each, as the next graph may not have all of them.
            for state in states.iter_mut().filter(|state| holder.keeps(segment, &state.name)) {
                state.placed = Some(placed.clone());
            }
        }
    }

    /// Begins where the generation before was, with the flows that have been taken over; what of it cannot be, and why.
    pub(crate) fn begin_at(&mut self, places: &[Placing], segment: &mut Segment) -> Vec<String> {
        let mut refused = Vec::new();
        for crew in &mut self.crews {
            let group = match &crew.role {
                Role::Holder(holder) => holder.group(),
                Role::Sender(sender) => sender.group(),
            };
            let place = places.iter().find(|place| place.group == group);
            let replicas = match &crew.role {
                Role::Holder(holder) => holder.replicas,
                Role::Sender(sender) => sender.replicas(),
            };
            let table = |place: &Placing| Buckets::restore(&place.table, replicas.into());
            match (&mut crew.role, place.map(|place| (place, table(place)))) {
                (_, Some((_, Err(why)))) => refused.push(format!("where flows are: {why}")),
                (_, None) => {}
                (Role::Sender(sender), Some((_, Ok(buckets)))) => {
                    sender.begin_at(buckets, segment);
                }
                (Role::Holder(holder), Some((place, Ok(buckets)))) => {
                    if let Err(most) = holder.begin_at(place, buckets, segment) {
                        let nodes = holder.nodes.iter();
                        let nodes = nodes.filter_map(|node| segment.nodes.get(*node));
                        let names: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
                        refused.push(format!(
                            "the flows of {}: more than {most} of an instance would have to be where their packets do not divide to; give it \
                             one instance first, to which all go",
                            names.join(", ")
                        ));
                    }
                }
            }
        }
        refused
    }
}

impl Holder {
    /// True when it moves no flows, takes none and is to move none.
    pub(super) fn is_quiet(&self) -> bool {
        self.machine.is_quiet()
            && self.leaving.is_empty()
            && !self.expects()
            && self.orders.is_empty()
            && self.wanted.is_empty()
            && self.returning.is_empty()
    }

    fn placed(&self) -> Placed {
        // Buckets stand behind flows.
        let moved = self.machine.moved_here().map_while(|(part, _)| match part {
            Part::Flow(hash) => Some(*hash),
            Part::Bucket(_) => None,
        });
        let (moved, clock) = (moved.collect(), self.machine.clock());
        Placed { buckets: BucketSet::new(&self.owned), moved, clock }
    }

    /// True for an NF whose flows it keeps.
    fn keeps(&self, segment: &Segment, nf: &str) -> bool {
        let node = |node: &usize| segment.nodes.get(*node);
        self.nodes.iter().filter_map(node).any(|node| node.name == nf)
    }

    /// Shows the hashes of all keys of each flow of these µNFs, flow by flow, until the answer is false.
    fn each_flow(&self, nfs: &[&dyn Instance], mut show: impl FnMut(&[u64]) -> bool) {
        let (mut goes_on, mut hashes) = (true, Vec::new());
        for nf in nfs {
            let mut walk = Walk::default();
            while goes_on
                && nf.look_at_flows(&mut walk, LOOK, &mut |seen| {
                    hashes.clear();
                    let keys = seen.keys.iter().zip(seen.starts);
                    hashes.extend(keys.map(|(key, start)| self.placer.hash(key, *start)));
                    goes_on &= show(&hashes);
                })
            {}
        }
    }

    /// Begins with buckets where these are, and as guests the flows that were moved here; or how many it can have at most.
    fn begin_at(
        &mut self,
        place: &Placing,
        buckets: Buckets,
        segment: &Segment,
    ) -> Result<(), usize> {
        // Of all instances together no more than directors can remember.
        let most = GUESTS / usize::from(self.replicas).max(1);
        for (owned, instance) in self.owned.iter_mut().zip(buckets.instances()) {
            *owned = u16::from(instance) == self.me;
        }
        self.initial = buckets;
        let nfs = self.nodes.iter().filter_map(|node| segment.nodes.get(*node));
        let nfs: Vec<&dyn Instance> = nfs.filter_map(|node| node.nf.as_deref()).collect();
        let mut moved: BTreeSet<u64> = place.moved.iter().copied().collect();
        let flows = nfs.iter().map(|nf| nf.flows().0).sum::<usize>();
        if !moved.is_empty() && (flows <= FEW || moved.len() > most / MUCH) {
            self.forget_ended(&mut moved, &nfs);
        }
        if place.scattered {
            self.find_scattered(&mut moved, most, &nfs);
        }
        // The first migration of all that come from here on is later.
        let number = place.clock.max(1);
        let by = MoveId { source: self.me, life: self.life, number };
        let guests = moved.iter().map(|hash| (Part::Flow(*hash), by)).collect();
        self.kept.dirty = true;
        // Nobody sound has more, or has come so far: what was handed over may be anybody's word.
        if moved.len() > most || !self.machine.carry_on(number, guests) {
            return Err(most);
        }
        self.visitors = moved.into_iter().collect();
        Ok(())
    }

    /// What was moved alone and has ended since goes where its bucket goes from here on.
    fn forget_ended(&self, moved: &mut BTreeSet<u64>, nfs: &[&dyn Instance]) {
        let mut here: HashSet<u64> = HashSet::new();
        self.each_flow(nfs, |hashes| {
            here.extend(hashes.iter().filter(|hash| moved.contains(*hash)));
            here.len() < moved.len()
        });
        moved.retain(|hash| here.contains(hash));
    }

    /// Adds all flows that are here and whose buckets are not, until they are more than `most`.
    fn find_scattered(&self, moved: &mut BTreeSet<u64>, most: usize, nfs: &[&dyn Instance]) {
        let is_away = |hash: &u64| u16::from(self.initial.instance(*hash)) != self.me;
        self.each_flow(nfs, |hashes| {
            moved.extend(hashes.iter().copied().filter(is_away));
            moved.len() <= most
        });
    }
}
