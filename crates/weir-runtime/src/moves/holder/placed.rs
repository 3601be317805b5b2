//! Where moved flows are, from one generation of the graph to the next.
//!
//! Each instance hands over what was moved to it and away from it. Those who divide packets know nothing then and ask, as one
//! that was started anew does: they send nothing before all instances have told them.

use super::Holder;
use crate::handover::NfState;
use crate::moves::{Moves, Part, Role};
use crate::segment::Segment;
use serde::{Deserialize, Serialize};
use weir_flow::MoveId;

/// What an instance has that is not where its bucket is, and what it lacks of its buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    me: u16,
    /// The weights of all instances: with others, buckets are elsewhere.
    weights: Vec<u32>,
    clock: u64,
    guests: Vec<(Part, MoveId)>,
    away: Vec<u16>,
}

impl Placed {
    /// True when something is elsewhere than its bucket says.
    pub(crate) fn is_moved(&self) -> bool {
        !self.guests.is_empty() || !self.away.is_empty()
    }

    /// True when the same is elsewhere, whichever migrations brought it there.
    fn is_as(&self, other: &Placed) -> bool {
        let parts =
            |placed: &Placed| placed.guests.iter().map(|(part, _)| *part).collect::<Vec<_>>();
        self.away == other.away && parts(self) == parts(other)
    }
}

impl Moves {
    /// True when nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.crews.iter().all(|crew| match &crew.role {
            Role::Holder(holder) => holder.is_quiet(),
            Role::Sender(sender) => sender.is_ready(),
            Role::Deaf(_) => true,
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

    /// Takes up what µNFs have handed over; what of it cannot be, and why.
    pub(crate) fn take_over(&mut self, states: &mut [NfState], segment: &Segment) -> Vec<String> {
        let mut refused = Vec::new();
        for crew in &mut self.crews {
            let Role::Holder(holder) = &mut crew.role else { continue };
            // Of instances that have become one the state of each is there.
            let own = states.iter_mut().filter(|state| holder.keeps(segment, &state.name));
            let own: Vec<(&str, Placed)> =
                own.filter_map(|state| Some((state.name.as_str(), state.placed.take()?))).collect();
            let mut suits = own.into_iter().filter(|(_, placed)| holder.suits(placed));
            let Some((first, placed)) = suits.next() else { continue };
            if let Some((other, _)) = suits.find(|(_, other)| !other.is_as(&placed)) {
                refused.push(format!(
                    "the flows of {first} and {other}: they were moved apart, and those of the new graph move together; move them \
                     back first (--all to each)"
                ));
                continue;
            }
            holder.take_over(placed);
        }
        refused
    }
}

impl Holder {
    /// True when it moves no flows, takes none and is to move none.
    fn is_quiet(&self) -> bool {
        self.machine.is_quiet()
            && self.leaving.is_empty()
            && self.coming.is_empty()
            && self.orders.is_empty()
            && self.wanted.is_empty()
            && self.returning.is_empty()
    }

    fn placed(&self) -> Placed {
        let (clock, guests) = self.machine.to_carry();
        let is_away = |bucket: &u16| {
            let here = Part::Bucket(*bucket);
            u16::from(self.initial.at(*bucket)) == self.me && !self.is_here(&here)
        };
        let away = (0..=u16::MAX).filter(is_away).collect();
        Placed { me: self.me, weights: self.weights.clone(), clock, guests, away }
    }

    /// True for an NF whose flows it keeps.
    fn keeps(&self, segment: &Segment, nf: &str) -> bool {
        let node = |node: &usize| segment.nodes.get(*node);
        self.nodes.iter().filter_map(node).any(|node| node.name == nf)
    }

    /// False when instances have come or gone: packets divide anew, and flows begin anew where they do not stay.
    fn suits(&self, placed: &Placed) -> bool {
        placed.me == self.me && placed.weights == self.weights
    }

    fn take_over(&mut self, placed: Placed) {
        for bucket in placed.away {
            self.own(bucket, false);
        }
        for (part, _) in &placed.guests {
            match part {
                Part::Bucket(bucket) => self.own(*bucket, true),
                Part::Flow(hash) => drop(self.visitors.insert(*hash)),
            }
        }
        // Nobody sound has more, or has come so far: what was handed over may be anybody's word.
        if !self.machine.carry_on(placed.clock, placed.guests) {
            self.lost += 1;
        }
    }
}
