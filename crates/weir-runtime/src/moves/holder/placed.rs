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
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
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

    /// True when the same is elsewhere, whichever migrations brought it there.
    fn is_as(&self, other: &Placed) -> bool {
        let parts =
            |placed: &Placed| placed.guests.iter().map(|(part, _)| *part).collect::<Vec<_>>();
        self.away == other.away && parts(self) == parts(other)
    }
}

/// True when what two µNFs, or two instances of one, had been moved was the same, as far as one instance of each is concerned.
fn agree(one: Option<&Placed>, other: Option<&Placed>) -> bool {
    match (one, other) {
        (Some(a), Some(b)) => a.me != b.me || (a.weights == b.weights && a.is_as(b)),
        // One whose flows could not move had none moved.
        (Some(placed), None) | (None, Some(placed)) => !placed.is_moved(),
        (None, None) => true,
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

    /// Takes up what µNFs have handed over, before they have their flows ([`Moves::keep_in_place`] has to follow); what of it cannot be, and
    /// why.
    pub(crate) fn take_over(&mut self, states: &mut [NfState], segment: &Segment) -> Vec<String> {
        let mut refused = Vec::new();
        for crew in &mut self.crews {
            let Role::Holder(holder) = &mut crew.role else { continue };
            // Of instances that have become one the state of each is there.
            // Of an instance that was stopped for good nothing is said: where its flows went is asked for.
            let says = |state: &&mut NfState| state.placed.is_some() || !state.is_nothing();
            let own = states.iter_mut().filter(|state| holder.keeps(segment, &state.name));
            let own = own.filter(says);
            let own: Vec<(&str, Option<Placed>)> =
                own.map(|state| (state.name.as_str(), state.placed.take())).collect();
            if own.is_empty() {
                continue;
            }
            let agree = |i: usize, j: usize| match (own.get(i), own.get(j)) {
                (Some((_, a)), Some((_, b))) => agree(a.as_ref(), b.as_ref()),
                _ => true,
            };
            let pairs = (1..own.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            if let Some((i, j)) = pairs.into_iter().find(|(i, j)| !agree(*i, *j)) {
                let name = |i: usize| own.get(i).map_or("?", |(name, _)| *name);
                refused.push(format!(
                    "the flows of {} and {}: they were moved or divided apart, and those of the new graph move together; move them \
                     back first (weir flow move --all; where --scale moved them, --to 1), or give both one instance first",
                    name(i),
                    name(j)
                ));
                continue;
            }
            let suiting = own.iter().map(|(_, placed)| placed.as_ref().filter(|p| holder.suits(p)));
            // Where one does not suit, instances have come or gone, or that µNF had no part in this.
            let Some(suiting) = suiting.collect::<Option<Vec<&Placed>>>() else {
                holder.handed = Handed::Otherwise;
                continue;
            };
            let Some(placed) = suiting.first() else { continue };
            holder.handed = Handed::As(Placed::clone(placed));
        }
        refused
    }

    /// Lets flows that were taken over stay where they are, wherever their buckets are now: how many would have gone elsewhere, and of
    /// which NFs they are too many for that.
    pub(crate) fn keep_in_place(&mut self, segment: &Segment) -> (u64, Vec<String>) {
        let (mut stay, mut refused) = (0, Vec::new());
        for crew in &mut self.crews {
            let Role::Holder(holder) = &mut crew.role else { continue };
            let nodes = || holder.nodes.iter().filter_map(|node| segment.nodes.get(*node));
            let names: Vec<&str> = nodes().map(|node| node.name.as_str()).collect();
            let nfs: Vec<&dyn Instance> = nodes().filter_map(|node| node.nf.as_deref()).collect();
            let kept = match std::mem::take(&mut holder.handed) {
                Handed::None => {
                    holder.is_new = true;
                    Ok(0)
                }
                Handed::As(placed) => {
                    if let Err(guests) = holder.take_over(placed, &nfs) {
                        refused.push(format!(
                            "the flows of {}: that {guests} flows or buckets were moved here cannot be, by what was handed over",
                            names.join(", ")
                        ));
                    }
                    Ok(0)
                }
                Handed::Otherwise => holder.keep_in_place(&nfs),
            };
            match kept {
                Ok(flows) => stay += flows,
                Err(most) => refused.push(format!(
                    "the flows of {}: more than {most} of an instance would have to stay where they are although their packets divide \
                     otherwise now; leave the number of instances, their weights and the limits of --scale as they are, or give \
                     them one instance, to which all go",
                    names.join(", ")
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

    /// True for an NF whose flows it keeps.
    fn keeps(&self, segment: &Segment, nf: &str) -> bool {
        let node = |node: &usize| segment.nodes.get(*node);
        self.nodes.iter().filter_map(node).any(|node| node.name == nf)
    }

    /// False when instances have come or gone: packets divide anew.
    fn suits(&self, placed: &Placed) -> bool {
        placed.me == self.me && placed.weights == self.weights
    }

    /// Shows the hashes of all keys of each flow of these µNFs, flow by flow, until the answer is false.
    fn each_flow(&self, nfs: &[&dyn Instance], mut show: impl FnMut(&[u64]) -> bool) {
        let hasher = FlowHasher::new(u128::from(self.seed));
        let (mut goes_on, mut hashes) = (true, Vec::new());
        for nf in nfs {
            let mut walk = Walk::default();
            while goes_on
                && nf.look_at_flows(&mut walk, LOOK, &mut |seen| {
                    hashes.clear();
                    hashes.extend(seen.keys.iter().map(|key| hasher.place(key)));
                    goes_on &= show(&hashes);
                })
            {}
        }
    }

    /// All is where it was; but what was moved alone and has ended since goes where its bucket goes from here on. Or nothing
    /// has changed, and so many guests were too many, or of migrations that nobody can have come to.
    fn take_over(&mut self, mut placed: Placed, nfs: &[&dyn Instance]) -> Result<(), usize> {
        let hash = |part: &Part| match part {
            Part::Flow(hash) => Some(*hash),
            Part::Bucket(_) => None,
        };
        let moved: HashSet<u64> = placed.guests.iter().filter_map(|(part, _)| hash(part)).collect();
        if !moved.is_empty() {
            let mut here: HashSet<u64> = HashSet::new();
            self.each_flow(nfs, |hashes| {
                here.extend(hashes.iter().filter(|hash| moved.contains(*hash)));
                here.len() < moved.len()
            });
            placed.guests.retain(|(part, _)| hash(part).is_none_or(|hash| here.contains(&hash)));
        }
        self.kept.dirty = true;
        // Nobody sound has more, or has come so far: what was handed over may be anybody's word.
        if !self.machine.carry_on(placed.clock, placed.guests.clone()) {
            return Err(placed.guests.len());
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
        Ok(())
    }

    /// Takes in as guests all flows that are here and whose buckets are not; how many, or how many keys of such there may be at most.
    /// Nobody sends a packet meanwhile.
    fn keep_in_place(&mut self, nfs: &[&dyn Instance]) -> Result<u64, usize> {
        // Of all instances together no more than directors can remember.
        let most = GUESTS / self.weights.len().max(1);
        let (mut guests, mut flows) = (BTreeSet::new(), 0);
        let is_away = |hash: &u64| u16::from(self.initial.instance(*hash)) != self.me;
        self.each_flow(nfs, |hashes| {
            let before = guests.len();
            guests.extend(hashes.iter().copied().filter(is_away));
            flows += u64::from(guests.len() > before);
            guests.len() <= most
        });
        // The first migration of all: whatever moves a flow from here on is later.
        let by = MoveId { source: self.me, life: self.life, number: 1 };
        let parts = guests.iter().map(|hash| (Part::Flow(*hash), by)).collect();
        if guests.len() > most || !self.machine.carry_on(by.number, parts) {
            return Err(most);
        }
        self.kept.dirty = true;
        self.visitors.extend(guests);
        Ok(flows)
    }
}
