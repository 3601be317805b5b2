//! Where moved flows are, from one generation of the graph to the next.
//!
//! Each instance hands over what was moved to it and away from it. Those who divide packets know nothing then and ask, as one
//! that was started anew does: they send nothing before all instances have told them.
//!
//! With another number of instances, or other weights, buckets are elsewhere. Then each instance looks through the flows that it has taken
//! over, and those whose packets would go to others now are guests: they stay where they are until they end or are moved, and new flows
//! divide as the buckets say (E2 §5.4, migration avoidance).

use super::Holder;
use crate::handover::NfState;
use crate::moves::look::LOOK;
use crate::moves::{GUESTS, Moves, Part, Role};
use crate::segment::Segment;
use crate::spec::FromWorker;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weir_flow::MoveId;
use weir_nf::{Instance, Walk};
use weir_packet::FlowHasher;

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

/// What a holder has been handed over.
#[derive(Default)]
pub(super) enum Handed {
    /// Nothing.
    #[default]
    None,
    /// Where everything was, which is where it is.
    As(Placed),
    /// What was divided otherwise.
    Otherwise,
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

    /// Takes up what µNFs have handed over; [`Moves::keep_in_place`] has to follow when they have their flows.
    pub(crate) fn take_over(&mut self, states: &mut [NfState], segment: &Segment) {
        for crew in &mut self.crews {
            let Role::Holder(holder) = &mut crew.role else { continue };
            let Some(node) = segment.nodes.get(holder.node) else { continue };
            // Of instances that have become one the state of each is there.
            for state in states.iter_mut().filter(|state| state.name == node.name) {
                holder.handed = match state.placed.take() {
                    Some(placed) if placed.me == holder.me && placed.weights == holder.weights => {
                        Handed::As(placed)
                    }
                    // Instances have come or gone, or had no part in this.
                    _ => Handed::Otherwise,
                };
            }
        }
    }

    /// Lets flows that were taken over stay where they are, wherever their buckets are now: how many would have gone elsewhere, and of
    /// which NFs they are too many for that.
    pub(crate) fn keep_in_place(&mut self, segment: &Segment) -> (u64, Vec<String>) {
        let (mut stay, mut refused) = (0, Vec::new());
        for crew in &mut self.crews {
            let Role::Holder(holder) = &mut crew.role else { continue };
            let Some(node) = segment.nodes.get(holder.node) else { continue };
            let Some(nf) = &node.nf else { continue };
            let kept = match std::mem::take(&mut holder.handed) {
                Handed::None => Ok(0),
                Handed::As(placed) => {
                    holder.take_over(placed, nf.as_ref());
                    Ok(0)
                }
                Handed::Otherwise => holder.keep_in_place(nf.as_ref()),
            };
            match kept {
                Ok(flows) => stay += flows,
                Err(most) => refused.push(format!(
                    "the flows of {}: more than {most} of an instance would have to stay where they are although their packets divide \
                     otherwise now; leave the number of instances and their weights as they are",
                    node.name
                )),
            }
        }
        (stay, refused)
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

    /// All is where it was; but what was moved alone and has ended since goes where its bucket goes from here on.
    fn take_over(&mut self, mut placed: Placed, nf: &dyn Instance) {
        let is_flow = |part: &Part| matches!(part, Part::Flow(_));
        if placed.guests.iter().any(|(part, _)| is_flow(part)) {
            let hasher = FlowHasher::new(u128::from(self.seed));
            let mut here = BTreeSet::new();
            let mut walk = Walk::default();
            while nf.look_at_flows(&mut walk, LOOK, &mut |seen| {
                here.extend(seen.keys.iter().map(|key| Part::Flow(hasher.hash(key))));
            }) {}
            placed.guests.retain(|(part, _)| !is_flow(part) || here.contains(part));
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
        let guests = placed.guests.len();
        if !self.machine.carry_on(placed.clock, placed.guests) {
            let text = format!(
                "{guests} flows or buckets that had been moved here cannot have been, by what was handed over: they do not stay where they were moved to"
            );
            self.notes.push(FromWorker::Warning(text));
        }
    }

    /// Takes in as guests all flows that are here and whose buckets are not; how many, or how many keys of such there may be at most.
    /// Nobody sends a packet meanwhile.
    fn keep_in_place(&mut self, nf: &dyn Instance) -> Result<u64, usize> {
        let hasher = FlowHasher::new(u128::from(self.seed));
        // Of all instances together no more than directors can remember.
        let most = GUESTS / self.weights.len().max(1);
        let (mut guests, mut flows) = (BTreeSet::new(), 0);
        let is_away = |hash: &u64| u16::from(self.initial.instance(*hash)) != self.me;
        let mut walk = Walk::default();
        let mut more = true;
        while more && guests.len() <= most {
            more = nf.look_at_flows(&mut walk, LOOK, &mut |seen| {
                let before = guests.len();
                guests.extend(seen.keys.iter().map(|key| hasher.hash(key)).filter(is_away));
                flows += u64::from(guests.len() > before);
            });
        }
        // The first migration of all: whatever moves a flow from here on is later.
        let by = MoveId { source: self.me, life: self.life, number: 1 };
        let parts = guests.iter().map(|hash| (Part::Flow(*hash), by)).collect();
        if guests.len() > most || !self.machine.carry_on(by.number, parts) {
            return Err(most);
        }
        self.visitors.extend(guests);
        Ok(flows)
    }
}
