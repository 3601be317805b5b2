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
            let Some(node) = segment.nodes.get(holder.node) else { continue };
            if let Some(state) = states.iter_mut().find(|state| state.name == node.name) {
                state.placed = Some(holder.placed());
            }
        }
    }

    /// Takes up what µNFs have handed over.
    pub(crate) fn take_over(&mut self, states: &mut [NfState], segment: &Segment) {
        for crew in &mut self.crews {
            let Role::Holder(holder) = &mut crew.role else { continue };
            let Some(node) = segment.nodes.get(holder.node) else { continue };
            // Of instances that have become one the state of each is there.
            for state in states.iter_mut().filter(|state| state.name == node.name) {
                if let Some(placed) = state.placed.take() {
                    holder.take_over(placed);
                }
            }
        }
    }
}

impl Holder {
    /// True when it moves no flows, takes none and is to move none.
    fn is_quiet(&self) -> bool {
        self.machine.is_quiet()
            && self.leaving.is_empty()
            && !self.expects()
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

    fn take_over(&mut self, placed: Placed) {
        // Instances have come or gone: packets divide anew, and flows begin anew where they do not stay.
        if placed.me != self.me || placed.weights != self.weights {
            return;
        }
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
