//! What the agent wants moved: cut into migrations, begun as far as may be, told when it is done.

use super::pieces::{Piece, Pieces, hashed};
use super::some::{free_of, some_of};
use super::sorted::Sorted;
use super::wishes::{is_homeward, is_own};
use super::{Holder, Leave};
use crate::moves::look::{Chooser, LOOK};
use crate::moves::{MOST_PARTS, Part, Post, What};
use crate::segment::Segment;
use crate::spec::FromWorker;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_flow::{MoveId, Refusal, StartError};
use weir_nf::Walk;
use weir_packet::FlowKey;
use weir_port::balance::{BUCKETS, Buckets, Placer};

/// So many in a row are passed over, as enough is under way to where they go.
const FULL: usize = 8;
/// How often a target may refuse as it is busy, and how long to wait then.
const TRIES: u32 = 100;
const AGAIN: Duration = Duration::from_millis(20);
const STAGGER: Duration = Duration::from_millis(3);
/// Of what a µNF wants: so many times as long at most, by chance, and how often.
const AGAIN_OWN: u32 = 8;
const TRIES_OWN: u32 = 20;
/// Of so many migrations of an order it is told how long each took, at most: a message has bounds.
pub const MOST_TIMES: usize = 2048;

/// What the agent wants.
pub(super) struct Ordered {
    ticket: u64,
    what: Asked,
    to: u16,
    /// What has been found, of an order of flows.
    found: Option<Found>,
    /// Buckets that stay as they have flows.
    stay: u32,
}

/// Which flows.
pub(super) enum Asked {
    /// As the agent says.
    What(What),
    /// Those with these keys: a µNF wants it.
    Keys(Vec<FlowKey>),
    /// What is of these parts, which may be nothing: its flows have ended.
    Parts(BTreeSet<Part>),
}

impl Ordered {
    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    pub(super) fn new(ticket: u64, what: Asked, to: u16) -> Self {
        Ordered { ticket, what, to, found: None, stay: 0 }
    }
}

/// Flows that a filter chooses, in any of the µNFs' tables.
struct Found {
    chooser: Chooser,
    /// How many more are wanted.
    left: u32,
    /// The table that is looked through, by its place among the holder's.
    table: usize,
    walk: Walk,
    pieces: Pieces,
}

impl Found {
    fn new(chooser: Chooser, left: u32, pieces: Pieces) -> Self {
        Found { chooser, left, table: 0, walk: Walk::default(), pieces }
    }

    /// Goes on by a step; true when there is more to look at.
    fn go_on(&mut self, nodes: &[usize], segment: &Segment, placer: &Placer) -> bool {
        let Some(node) = nodes.get(self.table) else { return false };
        if self.left == 0 && nodes.len() == 1 {
            return false;
        }
        let Found { chooser, left, table, walk, pieces } = self;
        let goes_on = segment.nf_ref(*node).is_some_and(|nf| {
            nf.look_at_flows(walk, LOOK, &mut |seen| {
                if !seen.keys.is_empty() && chooser.takes(seen.keys) {
                    let hashes = hashed(placer, seen);
                    // What another µNF remembers of a flow that goes does not count once more.
                    let goes = pieces.have_any(&hashes);
                    if goes || *left > 0 {
                        *left -= u32::from(!goes);
                        pieces.add(hashes, *table);
                    }
                }
            })
        });
        if !goes_on {
            (self.table, self.walk) = (self.table + 1, Walk::default());
        }
        self.table < nodes.len()
    }
}

/// A migration that is to be begun.
pub(super) struct Wanted {
    ticket: u64,
    parts: BTreeSet<Part>,
    /// The flows' keys, where they are named one by one; each with whether a flow begins with it.
    pub(super) keys: Vec<(bool, FlowKey)>,
    to: u16,
    home: bool,
    /// How many flows they are, about, by µNF.
    flows: Vec<u64>,
    tries: u32,
    not_before: Option<Instant>,
    /// When it was first asked for, if it was.
    begun: Option<Instant>,
}

impl Wanted {
    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    pub(super) fn to(&self) -> u16 {
        self.to
    }

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
    /// Of each migration that is over: how long it took, microseconds, and how many flows it had.
    times: Vec<(u64, u64)>,
    /// Buckets that stay as they have flows.
    stay: u32,
    why: Option<String>,
}

impl Holder {
    /// The agent wants flows moved from here.
    pub(in crate::moves) fn order(&mut self, ticket: u64, what: What, to: u16) {
        self.orders.push_back(Ordered::new(ticket, Asked::What(what), to));
    }

    /// Cuts orders into migrations, a step at a time. Not before it is known what is here: one that was just started anew is told that by the
    /// others, and what is on its way here, as an earlier order ended early, is here when it has come. True when it did something.
    pub(super) fn cut_orders(&mut self, segment: &mut Segment) -> bool {
        if !self.machine.is_ready() || self.expects() || self.claims() {
            return false;
        }
        let Some(mut order) = self.orders.pop_front() else { return false };
        segment.read_unread(usize::MAX);
        let Some(pieces) = self.cut(&mut order, segment) else {
            self.orders.push_front(order);
            return true;
        };
        let Ordered { ticket, to, stay, .. } = order;
        let left = pieces.len();
        for Piece { parts, keys, home, flows } in pieces {
            let (tries, not_before, begun) = (0, None, None);
            self.wanted.push_back(Wanted {
                ticket,
                parts,
                keys,
                to,
                home,
                flows,
                tries,
                not_before,
                begun,
            });
        }
        self.tickets.insert(ticket, Ticket { left, flows: 0, times: Vec::new(), stay, why: None });
        self.tell(ticket);
        true
    }

    /// What is to go by an order; `None` while it is being looked for.
    fn cut(&mut self, order: &mut Ordered, segment: &mut Segment) -> Option<Vec<Piece>> {
        if order.to == self.me || order.to >= self.replicas {
            return Some(Vec::new());
        }
        let what = match &order.what {
            // Other flows of the same client go along, and have to be found.
            Asked::Keys(_) | Asked::What(What::Flows(_) | What::Count(_))
                if self.placer.joins_flows() && !self.is_sorted(segment) =>
            {
                return None;
            }
            Asked::Keys(keys) => return Some(self.with_keys(keys, segment)),
            Asked::Parts(parts) => return Some(self.of_parts(parts)),
            Asked::What(what) => what,
        };
        match what {
            What::Flows(_) | What::Count(_) => {
                if order.found.is_none() {
                    let (filter, most) = match what {
                        What::Flows(filter) => (filter.as_ref(), u32::MAX),
                        What::Count(flows) => (None, *flows),
                        _ => (None, 0),
                    };
                    let Ok(chooser) = Chooser::new(filter) else {
                        // The agent has compiled it before.
                        return Some(Vec::new());
                    };
                    order.found = Some(Found::new(chooser, most, self.new_pieces()));
                }
                let found = order.found.as_mut();
                if found.is_some_and(|found| found.go_on(&self.nodes, segment, &self.placer)) {
                    return None;
                }
                Some(order.found.take().map(|found| found.pieces.all()).unwrap_or_default())
            }
            What::Share(percent) => {
                if !self.is_sorted(segment) {
                    return None;
                }
                Some(self.share(*percent, order.to, self.most_flows(segment)))
            }
            What::Some { keep, .. } | What::Free { keep } => {
                let keep = *keep;
                // Nothing is to go: the table need not be looked through.
                if self.owned.iter().filter(|own| **own).count() <= keep as usize {
                    return Some(Vec::new());
                }
                if !self.is_sorted(segment) {
                    return None;
                }
                let here = self.buckets_here();
                let of = |bucket| self.flows_in(bucket);
                let all = self.most_flows(segment);
                if let What::Some { flows, .. } = what {
                    let going = some_of(&here, of, all, *flows, keep);
                    return Some(self.pieces(&here, going, order.to, all));
                }
                // What has ended may still be among what was sorted, and what begins from now on moves along.
                let (going, stay) = free_of(&here, of, keep);
                order.stay = stay;
                Some(self.pieces(&here, &going, order.to, 0))
            }
            What::Buckets(set) | What::FreeOf(set) => {
                let asked = self.owned.iter().zip(set.to_vec()).zip(0..=u16::MAX);
                let asked = asked.filter(|((owned, asked), _)| **owned && *asked);
                let asked: Vec<u16> = asked.map(|(_, bucket)| bucket).collect();
                if asked.is_empty() {
                    return Some(Vec::new());
                }
                if !self.is_sorted(segment) {
                    return None;
                }
                if matches!(what, What::Buckets(_)) {
                    let all = self.most_flows(segment);
                    return Some(self.pieces(&asked, &asked, order.to, all));
                }
                let (free, stay) = free_of(&asked, |bucket| self.flows_in(bucket), 0);
                order.stay = stay;
                Some(self.pieces(&free, &free, order.to, 0))
            }
        }
    }

    /// Where flows are put together that are named one by one: none so far.
    pub(super) fn new_pieces(&self) -> Pieces {
        Pieces::new(self.cut.flows, self.nodes.len(), self.placer.joins_flows())
    }

    /// So many hundredths of the buckets that are here, which have so many `flows` in all; with all of them the flows that
    /// are here by themselves too.
    fn share(&self, percent: u8, to: u16, flows: u64) -> Vec<Piece> {
        let here = self.buckets_here();
        let count = (here.len() * usize::from(percent.min(100))).div_ceil(100);
        let mut wanted = self.pieces(&here, here.get(..count).unwrap_or_default(), to, flows);
        if percent >= 100 {
            // Those whose buckets are elsewhere.
            let is_away = |hash: &u64| !self.is_here(&Part::Bucket(Buckets::bucket(*hash)));
            let rest: Vec<Part> = self.visitors.iter().filter(is_away).map(Part::Flow).collect();
            for some in rest.chunks(self.cut.flows) {
                let parts = some.iter().copied().collect();
                let flows = vec![some.len() as u64; self.nodes.len()];
                wanted.push(Piece { parts, flows, ..Piece::default() });
            }
        }
        wanted
    }

    /// These parts, some of which may have a flow again.
    fn of_parts(&self, parts: &BTreeSet<Part>) -> Vec<Piece> {
        let all: Vec<Part> = parts.iter().copied().collect();
        let pieces = all.chunks(self.cut.flows).map(|some| {
            let (parts, flows) = (some.iter().copied().collect(), vec![0; self.nodes.len()]);
            Piece { parts, flows, ..Piece::default() }
        });
        pieces.collect()
    }

    /// How many flows a bucket has, about: of the µNF that remembers the most.
    fn flows_in(&self, bucket: u16) -> u64 {
        self.sorted.iter().map(|sorted| sorted.count(bucket)).max().unwrap_or(0)
    }

    fn buckets_here(&self) -> Vec<u16> {
        let here = self.owned.iter().zip(0..=u16::MAX).filter(|(owned, _)| **owned);
        here.map(|(_, bucket)| bucket).collect()
    }

    /// The buckets that are `going` as migrations, of those that are `here`, which have so many `flows` in all.
    fn pieces(&self, here: &[u16], going: &[u16], to: u16, flows: u64) -> Vec<Piece> {
        let is_home = |bucket: &&u16| u16::from(self.initial.at(**bucket)) == to;
        let (home, away): (Vec<&u16>, Vec<&u16>) = going.iter().partition(is_home);
        let pieces = (flows / self.cut.bucket_flows as u64).clamp(1, BUCKETS as u64) as usize;
        let size = here.len().div_ceil(pieces).clamp(1, self.cut.buckets);
        let mut wanted = Vec::new();
        for (buckets, home) in [(home, true), (away, false)] {
            for some in buckets.chunks(size) {
                let parts = some.iter().map(|b| Part::Bucket(**b)).collect();
                wanted.push(Piece { parts, home, ..Piece::default() });
            }
        }
        wanted
    }

    /// How many flows these buckets have, about, by µNF.
    fn flows_of(&self, parts: &BTreeSet<Part>, segment: &Segment) -> Vec<u64> {
        let of = |(sorted, node): (&Sorted, &usize)| {
            let count = |part: &Part| match part {
                Part::Bucket(bucket) => sorted.count(*bucket),
                Part::Flow(_) => 0,
            };
            // What buckets have was counted by key, and some of it may have ended: never more than there are.
            let all = segment.nf_ref(*node).map_or(0, |nf| nf.flows().0 as u64);
            parts.iter().map(count).sum::<u64>().min(all)
        };
        self.sorted.iter().zip(&self.nodes).map(of).collect()
    }

    /// What of these parts is here now, with all that was moved here one by one and is of these buckets. What has come or gone
    /// since it was wanted is not what was named then.
    fn still_here(&self, parts: &BTreeSet<Part>) -> BTreeSet<Part> {
        let mut here = BTreeSet::new();
        for part in parts {
            match part {
                Part::Bucket(bucket) if self.is_here(part) => {
                    here.extend(self.visitors.of_bucket(*bucket).map(Part::Flow));
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
        let (mut any, mut full) = (false, 0);
        for _ in 0..self.wanted.len() {
            let Some(next) = self.wanted.front() else { break };
            let alone = match next.of_buckets() {
                true => self.leaving.is_empty(),
                false => !self.leaving.values().any(Leave::of_buckets),
            };
            let due = next.not_before.is_none_or(|at| at <= Instant::now());
            if !due {
                // Others need not wait for it.
                self.wanted.rotate_left(1);
                continue;
            }
            if !alone {
                break;
            }
            let may =
                self.machine.is_ready() && !self.expects() && self.leaving.len() < self.cut.in_all;
            if !may {
                break;
            }
            let to = next.to;
            let is_there = |leave: &&Leave| leave.wanted().is_some_and(|wanted| wanted.to == to);
            if self.leaving.values().filter(is_there).count() >= self.cut.at_once {
                // What goes to others need not wait for it. Mostly all goes there: that is not looked through at each turn.
                self.wanted.rotate_left(1);
                full += 1;
                if full < FULL {
                    continue;
                }
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
            let flows = match next.of_buckets() {
                true => self.flows_of(&parts, segment),
                false => next.flows.clone(),
            };
            let begun = next.begun.or_else(|| Some(Instant::now()));
            match self.machine.start(parts.clone(), next.to, next.home, flows) {
                Ok((id, effects)) => {
                    let wanted =
                        self.wanted.pop_front().map(|wanted| Wanted { parts, begun, ..wanted });
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
        let most = if is_own(wanted.ticket) { TRIES_OWN } else { TRIES };
        if wanted.tries < most {
            // Two that refuse each other do not ask again at the same time.
            let times = match is_own(wanted.ticket) {
                // All may want something of all: while one waits others get their turn.
                true => 1 + self.by_chance() % AGAIN_OWN,
                false => 1,
            };
            let wait = AGAIN * times + STAGGER * u32::from(self.me);
            wanted.not_before = Some(Instant::now() + wait);
            self.wanted.push_back(wanted);
        } else {
            self.over(wanted.ticket, 0, Some(why));
        }
    }

    /// A migration is over: the flows are elsewhere.
    pub(super) fn moved(&mut self, id: MoveId) {
        if let Some(Leave { wanted: Some(wanted), flows, lost, .. }) = self.leaving.remove(&id) {
            let why = (lost > 0).then(|| {
                format!("{lost} flows could not be put in where they came, and begin anew there")
            });
            let moved = flows.saturating_sub(lost);
            if let Some((told, begun)) = self.tickets.get_mut(&wanted.ticket).zip(wanted.begun)
                && moved > 0
                && told.times.len() < MOST_TIMES
            {
                told.times.push((begun.elapsed().as_micros() as u64, moved));
            }
            self.over(wanted.ticket, moved, why);
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
                Part::Flow(hash) => self.visitors.insert(*hash),
            }
        }
        self.over(
            wanted.ticket,
            0,
            Some("the instance that they were to go to is gone".to_owned()),
        );
    }

    pub(super) fn over(&mut self, ticket: u64, flows: u64, why: Option<String>) {
        if let Some(told) = self.tickets.get_mut(&ticket) {
            told.left = told.left.saturating_sub(1);
            told.flows += flows;
            told.why = told.why.take().or(why);
        }
        self.tell(ticket);
    }

    fn tell(&mut self, ticket: u64) {
        if self.tickets.get(&ticket).is_some_and(|told| told.left == 0)
            && let Some(Ticket { flows, times, stay, why, .. }) = self.tickets.remove(&ticket)
        {
            match (is_own(ticket), why) {
                (false, why) => {
                    self.notes.push(FromWorker::Moved { ticket, flows, times, left: stay, why });
                }
                (true, _) if is_homeward(ticket) => {}
                (true, why) => self.wish_is_over(why.as_deref()),
            }
        }
    }
}
