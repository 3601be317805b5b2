//! What the agent wants moved: cut into migrations, begun as far as may be, told when it is done.

use super::sorted::Sorted;
use super::{Holder, Leave};
use crate::moves::look::{Chooser, LOOK};
use crate::moves::{MOST_PARTS, Part, Post, What};
use crate::segment::Segment;
use crate::spec::FromWorker;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_flow::{MoveId, Refusal, StartError};
use weir_nf::{Instance, Walk};
use weir_packet::{FlowHasher, FlowKey};
use weir_port::balance::{BUCKETS, Buckets};

/// Flows of one migration, about: many make all of them wait for each other, few cost a message more often (NFActor moves 500
/// per step of its auto-scaling).
const FLOWS: usize = 500;
/// The same of a migration of buckets.
const BUCKET_FLOWS: u64 = 1024;
/// Buckets of one migration, at most: each is a part that all directors are told of.
const BUCKETS_AT_ONCE: usize = 4096;
/// How often a target may refuse as it is busy, and how long to wait then.
const TRIES: u32 = 100;
const AGAIN: Duration = Duration::from_millis(20);
const STAGGER: Duration = Duration::from_millis(3);

/// What the agent wants.
pub(super) struct Ordered {
    ticket: u64,
    what: What,
    to: u16,
    /// What has been found, of an order of flows.
    found: Option<Found>,
}

/// Flows that a filter chooses.
struct Found {
    chooser: Chooser,
    walk: Walk,
    pieces: Vec<Piece>,
}

impl Found {
    /// Goes on by a step; true when there is more to look at.
    fn go_on(&mut self, nf: &dyn Instance, hasher: &FlowHasher) -> bool {
        let Found { chooser, walk, pieces } = self;
        nf.look_at_flows(walk, LOOK, &mut |seen| {
            let Some(first) = seen.keys.first().filter(|_| chooser.takes(seen.keys)) else {
                return;
            };
            if pieces.last().is_none_or(|piece| piece.keys.len() >= FLOWS) {
                pieces.push(Piece::default());
            }
            let Some(piece) = pieces.last_mut() else { return };
            piece.keys.push(*first);
            piece.parts.extend(seen.keys.iter().map(|key| Part::Flow(hasher.hash(key))));
            piece.flows += 1;
        })
    }
}

/// What is to go in one migration.
#[derive(Default)]
struct Piece {
    parts: BTreeSet<Part>,
    /// First keys of the flows, where they are named one by one.
    keys: Vec<FlowKey>,
    home: bool,
    /// How many flows they are, about.
    flows: u64,
}

/// A migration that is to be begun.
pub(super) struct Wanted {
    ticket: u64,
    parts: BTreeSet<Part>,
    /// First keys of the flows, where they are named one by one.
    pub(super) keys: Vec<FlowKey>,
    to: u16,
    home: bool,
    /// How many flows they are, about.
    flows: u64,
    tries: u32,
    not_before: Option<Instant>,
}

impl Wanted {
    pub(super) fn of_buckets(&self) -> bool {
        // Buckets stand behind flows.
        self.parts.last().is_some_and(|part| matches!(part, Part::Bucket(_)))
    }
}

/// What is to be told of an order.
pub(super) struct Ticket {
    /// Migrations that are not over.
    left: usize,
    flows: u64,
    why: Option<String>,
}

impl Holder {
    /// The agent wants flows moved from here.
    pub(in crate::moves) fn order(&mut self, ticket: u64, what: What, to: u16) {
        self.orders.push_back(Ordered { ticket, what, to, found: None });
    }

    /// Cuts orders into migrations, a step at a time. Not before it is known what is here: one that was just started anew is told that by the
    /// others, and what is on its way here, as an earlier order ended early, is here when it has come. True when it did something.
    pub(super) fn cut_orders(&mut self, segment: &mut Segment) -> bool {
        if !self.machine.is_ready() || self.expects() {
            return false;
        }
        let Some(mut order) = self.orders.pop_front() else { return false };
        let Some(pieces) = self.cut(&mut order, segment) else {
            self.orders.push_front(order);
            return true;
        };
        let Ordered { ticket, to, .. } = order;
        let left = pieces.len();
        for Piece { parts, keys, home, flows } in pieces {
            let (tries, not_before) = (0, None);
            self.wanted.push_back(Wanted {
                ticket,
                parts,
                keys,
                to,
                home,
                flows,
                tries,
                not_before,
            });
        }
        self.tickets.insert(ticket, Ticket { left, flows: 0, why: None });
        self.tell(ticket);
        true
    }

    /// What is to go by an order; `None` while it is being looked for.
    fn cut(&mut self, order: &mut Ordered, segment: &mut Segment) -> Option<Vec<Piece>> {
        let nf = segment.nf(self.node).filter(|_| order.to != self.me && order.to < self.replicas);
        let Some(nf) = nf else { return Some(Vec::new()) };
        match &order.what {
            What::Flows(filter) => {
                if order.found.is_none() {
                    let Ok(chooser) = Chooser::new(filter.as_ref()) else {
                        // The agent has compiled it before.
                        return Some(Vec::new());
                    };
                    let (walk, pieces) = (Walk::default(), Vec::new());
                    order.found = Some(Found { chooser, walk, pieces });
                }
                let hasher = FlowHasher::new(u128::from(self.seed));
                let goes_on = order.found.as_mut().is_some_and(|found| found.go_on(nf, &hasher));
                (!goes_on).then(|| order.found.take().map(|found| found.pieces).unwrap_or_default())
            }
            What::Share(_) | What::Some { .. } => {
                let seed = self.seed;
                if !self.sorted.get_or_insert_with(|| Sorted::new(seed, nf)).is_whole() {
                    return None;
                }
                let all = nf.flows().0 as u64;
                let What::Some { flows, keep } = order.what else {
                    let What::Share(percent) = order.what else { return Some(Vec::new()) };
                    return Some(self.share(percent, order.to, all));
                };
                let here = self.buckets_here();
                let sorted = self.sorted.as_ref();
                let of = |bucket| sorted.map_or(0, |sorted| sorted.count(bucket));
                let going = some_of(&here, of, all, flows, keep);
                Some(self.pieces(&here, going, order.to, all))
            }
        }
    }

    /// So many hundredths of the buckets that are here, which have so many `flows` in all; with all of them the flows that
    /// are here by themselves too.
    fn share(&self, percent: u8, to: u16, flows: u64) -> Vec<Piece> {
        let here = self.buckets_here();
        let count = (here.len() * usize::from(percent.min(100))).div_ceil(100);
        let mut wanted = self.pieces(&here, here.get(..count).unwrap_or_default(), to, flows);
        if percent >= 100 {
            // Those whose buckets are elsewhere.
            let is_away = |hash: &&u64| !self.is_here(&Part::Bucket(Buckets::bucket(**hash)));
            let rest: Vec<Part> =
                self.visitors.iter().filter(is_away).map(|hash| Part::Flow(*hash)).collect();
            for some in rest.chunks(FLOWS) {
                let (parts, flows) = (some.iter().copied().collect(), some.len() as u64);
                wanted.push(Piece { parts, flows, ..Piece::default() });
            }
        }
        wanted
    }

    fn buckets_here(&self) -> Vec<u16> {
        let here = self.owned.iter().zip(0..=u16::MAX).filter(|(owned, _)| **owned);
        here.map(|(_, bucket)| bucket).collect()
    }

    /// The buckets that are `going` as migrations, of those that are `here`, which have so many `flows` in all.
    fn pieces(&self, here: &[u16], going: &[u16], to: u16, flows: u64) -> Vec<Piece> {
        let is_home = |bucket: &&u16| u16::from(self.initial.at(**bucket)) == to;
        let (home, away): (Vec<&u16>, Vec<&u16>) = going.iter().partition(is_home);
        let pieces = (flows / BUCKET_FLOWS).clamp(1, BUCKETS as u64) as usize;
        let size = here.len().div_ceil(pieces).clamp(1, BUCKETS_AT_ONCE);
        let mut wanted = Vec::new();
        for (buckets, home) in [(home, true), (away, false)] {
            for some in buckets.chunks(size) {
                let parts = some.iter().map(|b| Part::Bucket(**b)).collect();
                wanted.push(Piece { parts, home, ..Piece::default() });
            }
        }
        wanted
    }

    /// How many flows these buckets have, about.
    fn flows_of(&self, parts: &BTreeSet<Part>) -> u64 {
        let count = |part: &Part| match (part, &self.sorted) {
            (Part::Bucket(bucket), Some(sorted)) => sorted.count(*bucket),
            _ => 0,
        };
        parts.iter().map(count).sum()
    }

    /// What of these parts is here now, with all that was moved here one by one and is of these buckets. What has come or gone
    /// since it was wanted is not what was named then.
    fn still_here(&self, parts: &BTreeSet<Part>) -> BTreeSet<Part> {
        let mut here = BTreeSet::new();
        for part in parts {
            match part {
                Part::Bucket(bucket) if self.is_here(part) => {
                    let first = u64::from(*bucket) << 48;
                    let visitors = self.visitors.range(first..=first | (u64::MAX >> 16));
                    here.extend(visitors.map(|hash| Part::Flow(*hash)));
                    here.insert(*part);
                }
                Part::Flow(hash)
                    if self.is_here(part)
                        || self.is_here(&Part::Bucket(Buckets::bucket(*hash))) =>
                {
                    here.insert(*part);
                }
                Part::Bucket(_) | Part::Flow(_) => {}
            }
        }
        here
    }

    /// Begins what may be begun. A migration of buckets goes alone: it takes all flows of them that are here.
    pub(super) fn begin_wanted(&mut self, post: &mut Post, segment: &mut Segment) -> bool {
        let mut any = false;
        for _ in 0..self.wanted.len() {
            let Some(next) = self.wanted.front() else { break };
            let alone = match next.of_buckets() {
                true => self.leaving.is_empty(),
                false => !self.leaving.values().any(Leave::of_buckets),
            };
            let due = next.not_before.is_none_or(|at| at <= Instant::now());
            if !alone || !due {
                break;
            }
            let may =
                self.machine.is_ready() && !self.expects() && self.leaving.len() < self.at_once;
            if !may {
                break;
            }
            let parts = self.still_here(&next.parts);
            if parts.is_empty() || parts.len() > MOST_PARTS {
                // Nothing, or so many keys of a few buckets that only their being named one by one can move them.
                let why = (!parts.is_empty()).then(|| {
                    "too many flows were moved there one by one; name them by a filter".to_owned()
                });
                if let Some(wanted) = self.wanted.pop_front() {
                    self.over(wanted.ticket, 0, why);
                }
                any = true;
                continue;
            }
            // What buckets had was counted by key, and some of it may have ended: never more than there are.
            let all = segment.nf_ref(self.node).map_or(0, |nf| nf.flows().0 as u64);
            let flows = if next.of_buckets() { self.flows_of(&parts).min(all) } else { next.flows };
            match self.machine.start(parts.clone(), next.to, next.home, flows) {
                Ok((id, effects)) => {
                    let wanted = self.wanted.pop_front().map(|wanted| Wanted { parts, ..wanted });
                    self.leaving.insert(id, Leave::new(wanted));
                    self.apply(effects, post, segment);
                    any = true;
                }
                Err(StartError::Busy | StartError::NotReady) => break,
                Err(why) => {
                    if let Some(wanted) = self.wanted.pop_front() {
                        self.again(wanted, why.to_string());
                    }
                }
            }
        }
        any
    }

    /// Wants it again a little later, unless it was often enough.
    fn again(&mut self, mut wanted: Wanted, why: String) {
        wanted.tries += 1;
        if wanted.tries < TRIES {
            // Two that refuse each other do not ask again at the same time.
            wanted.not_before = Some(Instant::now() + AGAIN + STAGGER * u32::from(self.me));
            self.wanted.push_back(wanted);
        } else {
            self.over(wanted.ticket, 0, Some(why));
        }
    }

    /// A migration is over: the flows are elsewhere.
    pub(super) fn moved(&mut self, id: MoveId) {
        if let Some(Leave { wanted: Some(wanted), flows, lost, .. }) = self.leaving.remove(&id) {
            let why = (lost > 0).then(|| {
                format!("{lost} flows found no room where they came, and begin anew there")
            });
            self.over(wanted.ticket, flows.saturating_sub(lost), why);
        }
    }

    /// A migration has been given up before anything was handed over.
    pub(super) fn failed(&mut self, id: MoveId, why: Refusal) {
        let Some(Leave { wanted: Some(wanted), .. }) = self.leaving.remove(&id) else { return };
        match why {
            Refusal::Busy | Refusal::Moving => self.again(wanted, why.to_string()),
            Refusal::Full => self.over(wanted.ticket, 0, Some(why.to_string())),
        }
    }

    /// The target of a migration is gone: the flows are here, or come back.
    pub(super) fn returned(&mut self, id: MoveId) {
        let Some(Leave { wanted: Some(wanted), .. }) = self.leaving.remove(&id) else { return };
        for part in &wanted.parts {
            match part {
                Part::Bucket(bucket) => self.own(*bucket, true),
                Part::Flow(hash) => drop(self.visitors.insert(*hash)),
            }
        }
        self.over(
            wanted.ticket,
            0,
            Some("the instance that they were to go to is gone".to_owned()),
        );
    }

    fn over(&mut self, ticket: u64, flows: u64, why: Option<String>) {
        if let Some(told) = self.tickets.get_mut(&ticket) {
            told.left = told.left.saturating_sub(1);
            told.flows += flows;
            told.why = told.why.take().or(why);
        }
        self.tell(ticket);
    }

    fn tell(&mut self, ticket: u64) {
        if self.tickets.get(&ticket).is_some_and(|told| told.left == 0)
            && let Some(Ticket { flows, why, .. }) = self.tickets.remove(&ticket)
        {
            self.notes.push(FromWorker::Moved { ticket, flows, why });
        }
    }
}

/// Of the buckets that are `here`, with `all` flows, those of the first `flows` flows or a little more; but of many a
/// thirty-second part. `keep` stay at least.
fn some_of(here: &[u16], of: impl Fn(u16) -> u64, all: u64, flows: u32, keep: u32) -> &[u16] {
    let enough = u64::from(flows.max(1)).max(all / 32);
    let may = here.len().saturating_sub(keep as usize);
    let (mut count, mut sum) = (0, 0);
    while count < may && sum < enough {
        sum += here.get(count).map_or(0, |bucket| of(*bucket));
        count += 1;
    }
    here.get(..count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::some_of;

    #[test]
    fn a_step_has_the_flows_that_were_asked_for_and_leaves_the_buckets_that_stay() {
        let here: Vec<u16> = (0..100).collect();
        let one = |_| 1;
        assert_eq!(some_of(&here, one, 100, 7, 50), &here[..7]);
        assert_eq!(some_of(&here, one, 100, 500, 50), &here[..50]);
        assert_eq!(some_of(&here, one, 100, 500, 100), &here[..0]);
        assert_eq!(some_of(&here, one, 100, 500, 200), &here[..0]);
        // Buckets without flows go along with those before them, and alone at the end.
        let few = |bucket| u64::from(bucket < 3);
        assert_eq!(some_of(&here, few, 3, 2, 0), &here[..2]);
        assert_eq!(some_of(&here[2..], few, 1, 2, 0), &here[2..]);
        // A thirty-second of 64,000.
        assert_eq!(some_of(&here, |_| 640, 64_000, 500, 0), &here[..4]);
    }
}
