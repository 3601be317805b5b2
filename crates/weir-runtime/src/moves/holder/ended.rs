//! Flows that were moved here one by one and have ended: what begins with their keys goes where their buckets go again.
//!
//! Each is an exception that all directors remember, so they must not outlive their flows for ever. A director cannot just be told to forget one:
//! old packets of that key may be in the lane to here, and a flow that begins with one of them would be at two places. So they go by the protocol, as migrations that find no
//! flow, to where their buckets are now, which the directors are asked for; a flow that begins meanwhile goes along. Nobody orders that: now and then, when nothing else is under way, this
//! instance looks which flows have ended.

use super::Holder;
use super::sorted::Sorted;
use super::wants::{Asked, Ordered};
use super::wishes::{ANSWER, HOME, is_homeward};
use crate::moves::{Part, Post};
use crate::segment::Segment;
use crate::spec::SpreadSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_port::balance::Buckets;

/// Time between two looks at least; and so many times as long as one took, as each looks at all flows there are. How long others took to answer does not
/// count.
const SOON: Duration = Duration::from_secs(1);
const TIMES: u32 = 100;
/// So many are looked at between two batches, and so many of those that have ended go before the next are looked at, or a few more.
const LOOKS: usize = 256;
const ROUND: usize = 1024;
/// Of so many buckets it is asked at a time where they are.
const OPEN: usize = 64;

/// How far it is.
#[derive(Default)]
pub(super) struct Ended {
    step: Step,
    /// No look begins before then; `None` until there is something to look at.
    due: Option<Instant>,
}

#[derive(Default)]
enum Step {
    #[default]
    Rests,
    /// Flows are sorted by bucket.
    Sorts(Look),
    /// Which of those that were moved here have ended: hashes.
    Looks(Look, Vec<u64>),
    /// Directors are asked where the buckets of these are.
    Asks(Look, Homes),
    /// They go. Then the next are looked at.
    Goes(Look),
}

/// A look at all that were moved here.
struct Look {
    /// When flows began to be sorted or looked at, and how long that took before.
    since: Instant,
    before: Duration,
    /// From which hash on they have not been looked at; `None` when all have.
    next: Option<u64>,
}

/// Where buckets are.
struct Homes {
    /// Hashes of which that is not known, by bucket.
    ended: BTreeMap<u16, Vec<u64>>,
    /// Buckets that were asked for, the last of them then.
    open: BTreeSet<u16>,
    asked: Instant,
    /// Hashes of which it is, by the instance that they go to.
    goes: BTreeMap<u16, Vec<u64>>,
}

impl Ended {
    /// True while it is to be known which flows are of which bucket.
    pub(super) fn needs_sorted(&self) -> bool {
        !matches!(self.step, Step::Rests)
    }

    /// In how many nanoseconds there is something to do; `None` when nothing is known of that.
    pub(super) fn later(&self) -> Option<u64> {
        let wait = match &self.step {
            Step::Rests => self.due?.saturating_duration_since(Instant::now()),
            Step::Asks(..) => ANSWER,
            Step::Sorts(_) | Step::Looks(..) => Duration::ZERO,
            // Orders say so.
            Step::Goes(_) => return None,
        };
        Some(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Rests after a look that took so long.
    fn rest(&mut self, took: Duration) {
        self.step = Step::Rests;
        self.due = Some(Instant::now() + SOON.max(TIMES * took));
    }

    /// Looks at the next, if there are any.
    fn go_on(&mut self, look: Look) {
        match look.next {
            Some(_) => self.step = Step::Looks(Look { since: Instant::now(), ..look }, Vec::new()),
            None => self.rest(look.before),
        }
    }
}

impl Look {
    fn took(&self) -> Duration {
        self.before + self.since.elapsed()
    }
}

impl Holder {
    /// Looks after what has ended; true when it did something.
    pub(super) fn look_at_ended(&mut self, post: &mut Post, segment: &mut Segment) -> bool {
        match std::mem::take(&mut self.ended.step) {
            Step::Rests => self.rest_or_begin(segment),
            // The graph is about to be another. What goes already is the business of others.
            _ if self.is_copied(segment) => {
                self.ended.rest(Duration::ZERO);
                true
            }
            Step::Sorts(look) => {
                self.ended.step = match self.is_sorted(segment) {
                    true => Step::Looks(look, Vec::new()),
                    false => Step::Sorts(look),
                };
                true
            }
            // So many have begun since that it begins to sort anew: who is not sorted yet would seem to have ended.
            Step::Looks(look, _) if !self.is_sorted(segment) => {
                self.ended.step = Step::Sorts(look);
                true
            }
            Step::Looks(look, ended) => {
                self.look(look, ended, segment);
                true
            }
            Step::Asks(look, homes) => self.ask_or_go(look, homes, post, segment),
            Step::Goes(look) => {
                let goes = self.goes_home();
                match goes {
                    true => self.ended.step = Step::Goes(look),
                    // Others come first.
                    false if !self.is_quiet() => self.ended.rest(look.before),
                    false => self.ended.go_on(look),
                }
                !goes
            }
        }
    }

    /// True while some that have ended go home.
    pub(super) fn goes_home(&self) -> bool {
        let begun = self.tickets.keys().any(|ticket| is_homeward(*ticket));
        begun || self.orders.iter().any(|order| is_homeward(order.ticket()))
    }

    /// Hashes of flows that were moved here one by one, from this one on.
    fn moved_from(&self, first: u64) -> impl Iterator<Item = u64> {
        // Buckets stand behind flows.
        self.machine.moved_here_from(Part::Flow(first)).map_while(|part| match part {
            Part::Flow(hash) => Some(*hash),
            Part::Bucket(_) => None,
        })
    }

    /// Begins a look when it is due and nothing else is under way.
    fn rest_or_begin(&mut self, segment: &mut Segment) -> bool {
        // Leases of ports go as a whole.
        if self.spread == SpreadSpec::Ends || self.moved_from(0).next().is_none() {
            self.ended.due = None;
            return false;
        }
        let now = Instant::now();
        let due = *self.ended.due.get_or_insert(now + SOON);
        if now < due {
            return false;
        }
        let busy = !self.is_quiet() || self.claims() || self.is_copied(segment);
        if busy || segment.read_unread(0) > 0 {
            // Asked again, but not with each batch.
            self.ended.due = Some(now + SOON / 10);
            return false;
        }
        self.ended.step = Step::Sorts(Look { since: now, before: Duration::ZERO, next: Some(0) });
        true
    }

    /// Looks at some more; when enough have ended, or all have been looked at, those are to go.
    fn look(&mut self, look: Look, mut ended: Vec<u64>, segment: &Segment) {
        let first = look.next.unwrap_or(u64::MAX);
        let some: Vec<u64> = self.moved_from(first).take(LOOKS).collect();
        let last = some.last().filter(|_| some.len() == LOOKS);
        let look = Look { next: last.and_then(|last| last.checked_add(1)), ..look };
        ended.extend(some.iter().filter(|hash| !self.has_flow(**hash, segment)));
        if look.next.is_some() && ended.len() < ROUND {
            self.ended.step = Step::Looks(look, ended);
            return;
        }
        // Where flows have several keys a key alone does not say what a flow has that begins with it meanwhile.
        if self.sorted.iter().any(Sorted::has_several) {
            return self.ended.rest(look.took());
        }
        let mut by: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for hash in ended {
            by.entry(Buckets::bucket(hash)).or_default().push(hash);
        }
        let (open, goes) = (BTreeSet::new(), BTreeMap::new());
        let homes = Homes { ended: by, open, asked: Instant::now(), goes };
        let look = Look { before: look.took(), ..look };
        self.ended.step = Step::Asks(look, homes);
    }

    /// True when some µNF remembers a flow with a key of this hash.
    fn has_flow(&self, hash: u64, segment: &Segment) -> bool {
        let of = |(sorted, node): (&Sorted, &usize)| {
            segment.nf_ref(*node).is_some_and(|nf| sorted.has(nf, hash))
        };
        self.sorted.iter().zip(&self.nodes).any(of)
    }

    /// Asks where more buckets are; when that is known of all, what has ended is to go there.
    fn ask_or_go(
        &mut self,
        look: Look,
        mut homes: Homes,
        post: &mut Post,
        segment: &mut Segment,
    ) -> bool {
        if homes.ended.is_empty() {
            if !self.is_sorted(segment) {
                self.ended.step =
                    Step::Sorts(Look { since: Instant::now(), next: Some(0), ..look });
                return true;
            }
            self.send_home(homes.goes, segment);
            self.ended.step = Step::Goes(look);
            return true;
        }
        if !homes.open.is_empty() {
            if homes.asked.elapsed() >= ANSWER {
                // Who divides packets may have died: those go of which it is known where to, others another time.
                homes.ended.clear();
                homes.open.clear();
            }
            self.ended.step = Step::Asks(look, homes);
            return false;
        }
        homes.open = homes.ended.keys().copied().take(OPEN).collect();
        homes.asked = Instant::now();
        for bucket in &homes.open {
            self.ask_directors(Part::Bucket(*bucket), post);
        }
        self.ended.step = Step::Asks(look, homes);
        true
    }

    /// Who divides packets says where a bucket is.
    pub(super) fn told_home(&mut self, bucket: u16, to: u16) {
        let Step::Asks(_, homes) = &mut self.ended.step else { return };
        if homes.open.remove(&bucket) {
            let hashes = homes.ended.remove(&bucket).unwrap_or_default();
            homes.goes.entry(to).or_default().extend(hashes);
        }
    }

    fn send_home(&mut self, goes: BTreeMap<u16, Vec<u64>>, segment: &Segment) {
        for (to, mut hashes) in goes {
            // Some may have come here again meanwhile.
            hashes.retain(|hash| !self.has_flow(*hash, segment));
            if to == self.me || to >= self.replicas || self.gone.contains(&to) {
                continue;
            }
            let parts = hashes.into_iter().map(Part::Flow).collect();
            let ticket = self.own_ticket(HOME);
            self.orders.push_back(Ordered::new(ticket, Asked::Parts(parts), to));
        }
    }
}
