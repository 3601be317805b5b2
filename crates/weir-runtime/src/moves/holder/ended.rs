//! Flows that were moved here one by one and have ended: what begins with their keys goes where their buckets go again.
//!
//! Each is an exception that all directors remember, so they must not outlive their flows for ever. A director cannot just be told to forget one:
//! old packets of that key may be in the lane to here, and a flow that begins with one of them would be at two places. So they go by the protocol, as migrations that find no
//! flow, to where their buckets are now, which the directors are asked for; a flow that begins meanwhile goes along. Nobody orders that: now and then, when nothing else is under way, this
//! instance looks which flows have ended.

use super::sorted::Sorted;
use super::wants::{Asked, Ordered};
use super::wishes::OWN;
use super::{Holder, Letter};
use crate::moves::{Part, Post};
use crate::segment::Segment;
use crate::spec::SpreadSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_flow::{Message, Party};
use weir_port::balance::Buckets;

/// Time between two looks at least; and so many times as long as one took, as each looks at all flows there are.
const SOON: Duration = Duration::from_secs(1);
const TIMES: u32 = 100;
/// So many are looked at between two batches, and go by one look at most.
const LOOKS: usize = 256;
const MOST: usize = 1 << 16;
/// So many directors' answers are waited for at a time, and for so long.
const OPEN: usize = 64;
const ANSWER: Duration = Duration::from_secs(1);
/// Orders of this kind have it in their number, besides what all that nobody is told of have.
const HOME: u64 = 1 << 62;

/// How far it is.
#[derive(Default)]
pub(super) struct Ended {
    step: Step,
    /// No look begins before then; `None` until there is something to look at.
    due: Option<Instant>,
    last: u64,
    /// Orders that are not over.
    out: usize,
}

#[derive(Default)]
enum Step {
    #[default]
    Rests,
    /// Flows are sorted by bucket.
    Sorts { since: Instant },
    /// Hashes that have not been looked at, and those whose flows have ended.
    Looks { since: Instant, left: Vec<u64>, ended: Vec<u64> },
    /// Directors are asked where these buckets are; since when.
    Asks {
        took: Duration,
        ended: BTreeMap<u16, Vec<u64>>,
        open: BTreeMap<u16, Instant>,
        goes: Goes,
    },
}

/// Hashes by the instance that they go to.
type Goes = BTreeMap<u16, Vec<u64>>;

/// True for the number of an order that takes home what has ended.
pub(super) fn is_homeward(ticket: u64) -> bool {
    ticket & (OWN | HOME) == OWN | HOME
}

impl Ended {
    /// True while it is to be known which flows are of which bucket.
    pub(super) fn needs_sorted(&self) -> bool {
        !matches!(self.step, Step::Rests)
    }

    /// True while some go.
    pub(super) fn goes(&self) -> bool {
        self.out > 0
    }

    /// Such an order is over.
    pub(super) fn order_is_over(&mut self) {
        self.out = self.out.saturating_sub(1);
    }

    /// In how many nanoseconds there is something to do; `None` when nothing is known of that.
    pub(super) fn later(&self) -> Option<u64> {
        match &self.step {
            Step::Rests => {
                let wait = self.due?.saturating_duration_since(Instant::now());
                Some(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
            }
            Step::Asks { .. } => Some(ANSWER.as_nanos() as u64),
            Step::Sorts { .. } | Step::Looks { .. } => Some(0),
        }
    }

    /// Rests after a look that took so long.
    fn rest(&mut self, took: Duration) {
        self.step = Step::Rests;
        self.due = Some(Instant::now() + SOON.max(TIMES * took));
    }
}

impl Holder {
    /// Looks after what has ended; true when it did something.
    pub(super) fn look_at_ended(&mut self, post: &mut Post, segment: &mut Segment) -> bool {
        // Buckets stand behind flows.
        let first = self.machine.moved_here().next();
        let any = first.is_some_and(|(part, _)| matches!(part, Part::Flow(_)));
        if !any && !self.ended.needs_sorted() {
            self.ended.due = None;
            return false;
        }
        match std::mem::take(&mut self.ended.step) {
            Step::Rests => self.rest_or_begin(segment),
            // The graph is about to be another, in which they are at home.
            _ if self.is_copied(segment) => {
                self.ended.rest(Duration::ZERO);
                true
            }
            Step::Sorts { since } => {
                self.ended.step = Step::Sorts { since };
                if self.is_sorted(segment) {
                    let here = self.machine.moved_here().map_while(|(part, _)| match part {
                        Part::Flow(hash) => Some(*hash),
                        Part::Bucket(_) => None,
                    });
                    let (left, ended) = (here.collect(), Vec::new());
                    self.ended.step = Step::Looks { since, left, ended };
                }
                true
            }
            Step::Looks { since, mut left, mut ended } => {
                let some = left.split_off(left.len().saturating_sub(LOOKS));
                ended.extend(some.into_iter().filter(|hash| !self.has_flow(*hash, segment)));
                match left.is_empty() || ended.len() >= MOST {
                    true => self.ask_homes(since.elapsed(), ended),
                    false => self.ended.step = Step::Looks { since, left, ended },
                }
                true
            }
            Step::Asks { took, mut ended, mut open, goes } => {
                let asked = self.ask_some(&mut ended, &mut open, post);
                match ended.is_empty() && open.is_empty() {
                    true => self.send_home(took, goes, segment),
                    false => self.ended.step = Step::Asks { took, ended, open, goes },
                }
                asked
            }
        }
    }

    /// Begins a look when it is due and nothing else is under way.
    fn rest_or_begin(&mut self, segment: &mut Segment) -> bool {
        let now = Instant::now();
        let Some(due) = self.ended.due else {
            self.ended.rest(Duration::ZERO);
            return false;
        };
        let may = now >= due
            // Leases of ports go as a whole.
            && self.spread != SpreadSpec::Ends
            && !self.ended.goes()
            && self.machine.is_quiet()
            && self.leaving.is_empty()
            && self.orders.is_empty()
            && self.wanted.is_empty()
            && !self.claims();
        if !may || self.is_copied(segment) || segment.read_unread(0) > 0 {
            // Asked again, but not with each batch.
            if now >= due {
                self.ended.due = Some(now + SOON / 10);
            }
            return false;
        }
        self.ended.step = Step::Sorts { since: now };
        true
    }

    /// True when some µNF remembers a flow with a key of this hash.
    fn has_flow(&self, hash: u64, segment: &Segment) -> bool {
        let of = |(sorted, node): (&Sorted, &usize)| {
            segment.nf_ref(*node).is_some_and(|nf| sorted.has(nf, hash))
        };
        self.sorted.iter().zip(&self.nodes).any(of)
    }

    fn ask_homes(&mut self, took: Duration, ended: Vec<u64>) {
        // Where flows have several keys a key alone does not say what a flow has that begins with it meanwhile.
        let several = self.sorted.iter().any(Sorted::has_several);
        if ended.is_empty() || several {
            return self.ended.rest(took);
        }
        let mut by: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for hash in ended {
            by.entry(Buckets::bucket(hash)).or_default().push(hash);
        }
        let (open, goes) = (BTreeMap::new(), Goes::new());
        self.ended.step = Step::Asks { took, ended: by, open, goes };
    }

    /// Asks where more of these buckets are; true when there were any. Of what nobody has answered nothing goes.
    fn ask_some(
        &mut self,
        ended: &mut BTreeMap<u16, Vec<u64>>,
        open: &mut BTreeMap<u16, Instant>,
        post: &mut Post,
    ) -> bool {
        open.retain(|bucket, since| {
            let waits = since.elapsed() < ANSWER;
            if !waits {
                ended.remove(bucket);
            }
            waits
        });
        let unasked = ended.keys().filter(|bucket| !open.contains_key(*bucket));
        let some: Vec<u16> = unasked.take(OPEN - open.len().min(OPEN)).copied().collect();
        for bucket in &some {
            open.insert(*bucket, Instant::now());
            // All say the same, and one may have died.
            for director in 0..self.directors {
                let ask: Letter = Message::Where(Part::Bucket(*bucket));
                post.send(Party::Director(director), &ask);
            }
        }
        !some.is_empty()
    }

    /// Who divides packets says where a bucket is.
    pub(super) fn told_home(&mut self, bucket: u16, to: u16) {
        let Step::Asks { ended, open, goes, .. } = &mut self.ended.step else { return };
        if open.remove(&bucket).is_some() {
            goes.entry(to).or_default().extend(ended.remove(&bucket).unwrap_or_default());
        }
    }

    fn send_home(&mut self, took: Duration, goes: Goes, segment: &Segment) {
        for (to, mut hashes) in goes {
            // Some may have come here again meanwhile.
            hashes.retain(|hash| !self.has_flow(*hash, segment));
            if hashes.is_empty() || to == self.me || to >= self.replicas || self.gone.contains(&to)
            {
                continue;
            }
            let ticket = OWN | HOME | self.ended.last;
            self.ended.last = (self.ended.last + 1) % HOME;
            self.ended.out += 1;
            let parts: BTreeSet<Part> = hashes.into_iter().map(Part::Flow).collect();
            self.orders.push_back(Ordered::new(ticket, Asked::Parts(parts), to));
        }
        self.ended.rest(took);
    }
}
