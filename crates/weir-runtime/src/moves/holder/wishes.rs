//! Flows that a µNF itself wants elsewhere: at an instance that it names, or at the one that another flow's packets go to (NFActor §3.2: the
//! runtime's API has that for NFs, too). They go by the protocol as those do that the agent orders; it is only told that some go.

use super::pieces::{Piece, hashed};
use super::wants::{Asked, Ordered, Wanted};
use super::{Holder, Leave, Letter};
use crate::moves::{Part, Post};
use crate::segment::Segment;
use crate::spec::{FromWorker, SpreadSpec};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};
use weir_flow::{Message, Party};
use weir_nf::{Walk, Whither};
use weir_packet::FlowKey;

/// Flows that wait for those before them, at most: all that go to one instance go together.
const WAITING: usize = 1024;
/// Time between two orders of µNFs, at least.
const REST: Duration = Duration::from_millis(10);
/// So many flows of others are asked for at once, at most, for so many each; and for so long an answer is waited for.
const OPEN: usize = 64;
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// Time between two times that the agent is told that flows go to the same instance.
const AGAIN: Duration = Duration::from_secs(1);
/// Orders of µNFs have numbers from here on, which no order of the agent has: nobody is told of their end.
const OWN: u64 = 1 << 63;
/// Those of them by which nothing goes but what has ended.
pub(super) const HOME: u64 = 1 << 62;

/// What µNFs of this replica want.
#[derive(Default)]
pub(super) struct Wishes {
    last: u64,
    /// Orders that are not over.
    out: usize,
    /// What is to go then, and where to.
    waiting: HashMap<FlowKey, u16>,
    /// Not before then.
    rests: Option<Instant>,
    /// By hash of the flow that others are to be with: those, and since when who divides packets has been asked.
    open: BTreeMap<u64, (Vec<FlowKey>, Instant)>,
    /// It was said that some cannot be.
    told: bool,
    /// By instance: when the agent was told last that some go there.
    said: BTreeMap<u16, Instant>,
    chance: u64,
}

impl Wishes {
    /// True while some are to be taken up.
    pub(super) fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// True for the number of an order that nobody is told of.
pub(super) fn is_own(ticket: u64) -> bool {
    ticket & OWN != 0
}

/// True for the number of an order by which what has ended goes home.
pub(super) fn is_homeward(ticket: u64) -> bool {
    is_own(ticket) && ticket & HOME != 0
}

impl Holder {
    /// A number for an order of nobody outside, of this kind.
    pub(super) fn own_ticket(&mut self, kind: u64) -> u64 {
        self.wishes.last = (self.wishes.last + 1) % HOME;
        OWN | kind | self.wishes.last
    }

    /// Takes in what its µNFs want; true when there was something.
    pub(super) fn hear_wishes(&mut self, post: &mut Post, segment: &mut Segment) -> bool {
        let mut any = false;
        for at in 0..self.nodes.len() {
            let nf = self.nodes.get(at).and_then(|node| segment.nf(*node));
            let wishes = nf.map(|nf| nf.wishes()).unwrap_or_default();
            any |= !wishes.is_empty();
            for wish in wishes {
                match wish.to {
                    Whither::Instance(to) => self.want(to, wish.flow),
                    Whither::With(other) => self.ask_where(wish.flow, &other, post),
                }
            }
        }
        let Wishes { out, waiting, open, .. } = &self.wishes;
        let rests = *out == 0 && waiting.is_empty() && open.is_empty();
        if rests && self.leaving.is_empty() && !self.goes_home() {
            return any;
        }
        self.say_that_some_go();
        // The graph is about to be another: what does not go now does not hold that up.
        if self.is_copied(segment) {
            self.forget_wishes();
            return any;
        }
        let rests = self.wishes.rests.is_some_and(|until| Instant::now() < until);
        if self.wishes.out == 0 && !rests && self.is_ready() {
            let mut goes: BTreeMap<u16, Vec<FlowKey>> = BTreeMap::new();
            for (flow, to) in self.wishes.waiting.drain() {
                goes.entry(to).or_default().push(flow);
            }
            for (to, flows) in goes {
                let ticket = self.own_ticket(0);
                self.wishes.out += 1;
                self.orders.push_back(Ordered::new(ticket, Asked::Keys(flows), to));
            }
        }
        any
    }

    /// Those who wait for what goes from here, and nobody outside has ordered, ask the agent whether it is worth it: it has to know, as long as it is so.
    fn say_that_some_go(&mut self) {
        let own = |wanted: &&Wanted| is_own(wanted.ticket());
        let wanted = self.wanted.iter().chain(self.leaving.values().filter_map(Leave::wanted));
        let wanted = wanted.filter(own).map(Wanted::to);
        // What an earlier life began may have been wanted by anybody.
        let earlier = self.machine.handing().filter(|(id, _)| {
            let leave = self.leaving.get(id);
            leave.is_none_or(|leave| leave.wanted().is_none())
        });
        let earlier = earlier.map(|(_, going)| going.to);
        let to: BTreeSet<u16> = wanted.chain(earlier).collect();
        for to in to {
            let said = self.wishes.said.get(&to).is_some_and(|said| said.elapsed() < AGAIN);
            if !said {
                self.wishes.said.insert(to, Instant::now());
                self.notes.push(FromWorker::Goes { group: self.group, to });
            }
        }
    }

    /// A number that is mostly another than other instances have at the time.
    pub(super) fn by_chance(&mut self) -> u32 {
        // A linear congruential generator, whose upper bits are good enough to keep out of each other's way.
        let chance = self.wishes.chance.wrapping_add(u64::from(self.me) << 20);
        self.wishes.chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.wishes.chance >> 40) as u32
    }

    /// True while flows are copied for the next generation.
    pub(super) fn is_copied(&self, segment: &Segment) -> bool {
        let mut nfs = self.nodes.iter().filter_map(|node| segment.nf_ref(*node));
        nfs.any(|nf| nf.is_precopied())
    }

    /// What µNFs want and has not begun stays where it is.
    fn forget_wishes(&mut self) {
        self.wishes.waiting.clear();
        self.wishes.open.clear();
        let all = std::mem::take(&mut self.wanted).into_iter();
        let (own, others): (VecDeque<_>, VecDeque<_>) =
            all.partition(|wanted| is_own(wanted.ticket()));
        self.wanted = others;
        own.iter().for_each(|wanted| self.over(wanted.ticket(), 0, None));
        // Nobody has been told of those that have not been cut.
        let all = std::mem::take(&mut self.orders).into_iter();
        let (own, others): (VecDeque<_>, VecDeque<_>) =
            all.partition(|order| is_own(order.ticket()));
        self.orders = others;
        let wishes = own.iter().filter(|order| !is_homeward(order.ticket()));
        wishes.for_each(|_| self.wish_is_over(None));
    }

    /// An order of a µNF is over.
    pub(super) fn wish_is_over(&mut self, why: Option<&str>) {
        self.wishes.out = self.wishes.out.saturating_sub(1);
        // Others are to have their turn: who has flows that leave takes none.
        self.wishes.rests = Some(Instant::now() + REST * (1 + self.by_chance() % 2));
        why.into_iter().for_each(|why| self.stays(why));
    }

    /// Asks who divides packets where those of another flow go.
    fn ask_where(&mut self, flow: FlowKey, other: &FlowKey, post: &mut Post) {
        let Some(hash) = self.placer.hash_of(other) else {
            return self.stays("its packets divide by their client's end; name an instance");
        };
        let open = &mut self.wishes.open;
        open.retain(|_, (_, since)| since.elapsed() < ANSWER);
        if let Some((flows, _)) = open.get_mut(&hash) {
            if flows.len() < OPEN && !flows.contains(&flow) {
                flows.push(flow);
            }
            return;
        }
        if open.len() < OPEN {
            open.insert(hash, (vec![flow], Instant::now()));
            self.ask_directors(Part::Flow(hash), post);
        }
    }

    /// Asks who divide packets where those of a part go. All say the same, and one may have died.
    pub(super) fn ask_directors(&self, part: Part, post: &mut Post) {
        for director in 0..self.directors {
            let ask: Letter = Message::Where(part);
            post.send(Party::Director(director), &ask);
        }
    }

    /// Who divides packets says where those of a flow go.
    pub(super) fn told_where(&mut self, hash: u64, to: u16) {
        if let Some((flows, _)) = self.wishes.open.remove(&hash) {
            flows.into_iter().for_each(|flow| self.want(to, flow));
        }
    }

    fn want(&mut self, to: u16, flow: FlowKey) {
        if self.spread == SpreadSpec::Ends {
            return self.stays("its flows move with leased ports");
        }
        if to >= self.replicas || self.gone.contains(&to) {
            return self.stays("there is no such instance");
        }
        // What was said last counts.
        self.wishes.waiting.remove(&flow);
        if to != self.me && self.wishes.waiting.len() < WAITING {
            self.wishes.waiting.insert(flow, to);
        }
    }

    /// A flow cannot go where its µNF wants it: said once.
    fn stays(&mut self, why: &str) {
        if !std::mem::replace(&mut self.wishes.told, true) {
            let text = format!("flows that an NF wants to move stay where they are: {why}");
            self.notes.push(FromWorker::Warning(text));
        }
    }

    /// The flows with these keys, with what all µNFs remember of them.
    pub(super) fn with_keys(&self, keys: &[FlowKey], segment: &Segment) -> Vec<Piece> {
        let mut pieces = self.new_pieces();
        let nfs: Vec<_> = self.nodes.iter().map(|node| segment.nf_ref(*node)).collect();
        let mut done: BTreeSet<(usize, u32)> = BTreeSet::new();
        // What another µNF remembers may have more keys, and what they lead to goes along.
        let mut all: Vec<FlowKey> = keys.to_vec();
        let mut next = 0;
        while let Some(key) = all.get(next).copied() {
            next += 1;
            for (table, nf) in nfs.iter().enumerate() {
                let Some(nf) = nf else { continue };
                let Some(number) = nf.flow_number(&key) else { continue };
                if !done.insert((table, number)) {
                    continue;
                }
                nf.look_at_flows(&mut Walk::at(number), 1, &mut |seen| {
                    let keys = hashed(&self.placer, seen);
                    pieces.add(keys, table);
                    all.extend(seen.keys.iter().filter(|other| **other != key));
                });
            }
        }
        pieces.all()
    }
}
