//! Flows of an NF that go from one of its instances to another while packets come: what a worker does for
//! `weir-flow`'s protocol between two batches.
//!
//! A *crew* is the replicas of a segment (here `Holder`: an NF's instances, or those of several NFs that are fused, one of each) and the
//! workers that divide packets over them (directors, here `Sender`). They write letters to each other ([`weir_mem::mail`]); a director's answer is a marker in
//! the lanes. A worker may be of several crews.
//!
//! The target buffers in its lanes: the first packet whose flow's state has not come stays there, and all behind it. That
//! is the protocol with a buffer of 0 packets, as its model has it. No packet changes its place in the stream by
//! it, and a full lane is what lets directors send more slowly, as ever. Nobody waits for himself, as a source's packets
//! reach a crew by one director: what came to the source of a migration is earlier than all that waits at its target.

#[cfg(feature = "attacks")]
pub(crate) mod attack;
mod frame;
mod holder;
mod look;
mod order;
mod part;
mod post;
mod sender;
mod waits;

pub use holder::{MOST_TIMES, Placed, Placing};
pub use order::{BucketSet, FlowLine, FlowTotal, Order, What};
pub use part::{Flows, Part};
pub use waits::{Awaited, Owed};

pub(crate) use look::Listing;
pub(crate) use post::{Channel, Post};

use self::holder::Holder;
use self::sender::Sender;
use crate::replica::{Name, Replicator};
use crate::segment::Segment;
use crate::spec::{CrewSpec, FromWorker, WorkerSpec};
use crate::station::Station;
use std::time::Duration;
use weir_flow::Party;
use weir_mem::fault::{self, Step};
use weir_mem::{Arena, Entry};

/// A letter of the protocol.
pub(crate) type Letter = weir_flow::Message<Part, Flows>;

/// For how long letters are read in one go, about: packets must not wait for long, and one letter may cost much.
const READING: Duration = Duration::from_millis(1);
/// Parts of one migration, at most: who gets more at once is not spoken to by a sound instance.
const MOST_PARTS: usize = 1 << 15;
/// Keys of flows that were moved one by one, of all instances of an NF together, at most.
const GUESTS: usize = 1 << 18;

/// What one turn did.
pub(crate) struct Turn {
    /// Something was to do.
    pub(crate) did: bool,
    /// Packets may be taken.
    pub(crate) ready: bool,
    /// In how many nanoseconds to call again.
    pub(crate) later: Option<u64>,
}

/// A worker's part in its crews.
pub(crate) struct Moves {
    crews: Vec<Crew>,
    /// Lanes in of the first holder whose packets are looked at, if any is.
    gates: bool,
    notes: Vec<FromWorker>,
    /// Migrations that a hostile one has announced and does not mean.
    #[cfg(feature = "attacks")]
    announced: u64,
}

struct Crew {
    post: Post,
    role: Role,
}

enum Role {
    Holder(Box<Holder>),
    Sender(Box<Sender>),
}

impl Moves {
    /// The part that `spec` gives a worker; `posts` are its crews' letters in their order.
    pub(crate) fn new(spec: &WorkerSpec, posts: Vec<Post>, station: &mut Station) -> Option<Self> {
        let crew = |(crew, mut post): (&CrewSpec, Post)| {
            let group = spec.groups.get(usize::from(*crew.groups.first()?))?;
            let role = match crew.me {
                Party::Replica(me) => {
                    let lanes = crew.lanes.iter().map(|(lane, _)| usize::from(*lane));
                    lanes.for_each(|lane| station.ingress.take_marks(lane));
                    // Also in the place of one that was stopped for good: it has no µNF, so no flow, but gives away what packets
                    // still come there for.
                    Role::Holder(Box::new(Holder::new(me, crew, group, spec, &mut post)?))
                }
                Party::Director(_) => Role::Sender(Box::new(Sender::new(crew, group, &mut post)?)),
            };
            Some(Crew { post, role })
        };
        let crews: Vec<_> = spec.crews.iter().zip(posts).filter_map(crew).collect();
        (!crews.is_empty()).then_some(Moves {
            crews,
            gates: false,
            notes: Vec::new(),
            #[cfg(feature = "attacks")]
            announced: 1,
        })
    }

    /// Reads and answers letters, takes and sends markers, moves what is to move.
    ///
    /// Where flows are replicated, what a turn changes counts before any of its letters leaves: what a letter brings away is in no table any more,
    /// and what is said to have come is in one that outlives this worker.
    pub(crate) fn turn(
        &mut self,
        station: &mut Station,
        segment: &mut Segment,
        replicator: Option<&mut Replicator>,
    ) -> Turn {
        let mut turn = Turn { did: false, ready: true, later: None };
        self.gates = false;
        for Crew { post, role } in &mut self.crews {
            let later = match role {
                Role::Holder(holder) => {
                    turn.did |= holder.turn(post, station, segment);
                    turn.ready &= holder.is_ready();
                    self.gates |= holder.expects();
                    holder.later()
                }
                Role::Sender(sender) => {
                    turn.did |= sender.turn(post, station, segment);
                    turn.ready &= sender.is_ready();
                    sender.later()
                }
            };
            if post.waits() {
                turn.did |= post.pump();
            }
            let posts = (post.waits() || post.defers()).then_some(SOON_NS);
            turn.later = [turn.later, later, posts].into_iter().flatten().min();
        }
        if let Some(replicator) = replicator {
            self.commit(replicator, station, segment);
            for crew in &mut self.crews {
                turn.did |= crew.post.let_go();
            }
        }
        turn
    }

    /// Of those whose flows are replicated letters wait for the end of the turn.
    pub(crate) fn hold_letters(&mut self, segment: &Segment) {
        for Crew { post, role } in &mut self.crews {
            if let Role::Holder(holder) = role
                && holder.is_replicated(segment)
            {
                post.hold();
            }
        }
    }

    /// Commits what has changed of tables and migrations.
    fn commit(
        &mut self,
        replicator: &mut Replicator,
        station: &mut Station,
        segment: &mut Segment,
    ) {
        if self.keep(replicator, station) {
            replicator.write(segment, station, true);
            fault::step(Step::MovesWritten);
            station.commit();
            fault::step(Step::MovesKept);
        }
    }

    /// Writes down what has changed of migrations; it counts with the station's next commit, and so must what the tables have.
    /// True when there was anything.
    pub(crate) fn keep(&mut self, replicator: &mut Replicator, station: &mut Station) -> bool {
        let mut any = false;
        for (crew, Crew { post, role }) in (0..).zip(&mut self.crews) {
            let Role::Holder(holder) = role else { continue };
            if !post.is_held() {
                continue;
            }
            for (id, bytes) in holder.changes() {
                replicator.keep(station, Name { crew, id }, bytes.as_deref());
                any = true;
            }
        }
        any
    }

    /// Goes on with what an earlier life had committed; what of it cannot be.
    pub(crate) fn resume(&mut self, found: &[(Name, Vec<u8>)]) -> Option<String> {
        let mut sound = true;
        for (at, Crew { post, role }) in (0..).zip(&mut self.crews) {
            let own = found.iter().filter(|(name, _)| name.crew == at);
            let own: Vec<_> = own.map(|(name, bytes)| (name.id, bytes.clone())).collect();
            match role {
                Role::Holder(holder) if !own.is_empty() => sound &= holder.resume(&own, post),
                Role::Holder(_) | Role::Sender(_) => sound &= own.is_empty(),
            }
        }
        let why = "what the replica says of flows that were on their way is none that can be, and is lost";
        (!sound).then(|| why.to_owned())
    }

    /// Whether letters have come.
    #[inline]
    pub(crate) fn has_letters(&mut self) -> bool {
        self.crews.iter_mut().any(|crew| crew.post.has_some())
    }

    /// True when packets have to be looked at before they are taken ([`Moves::goes`]).
    #[inline]
    pub(crate) fn gates(&self) -> bool {
        self.gates
    }

    /// True for a packet that may be taken from lane `lane`: false when its flow's state has not come yet.
    pub(crate) fn goes(&mut self, arena: &Arena, lane: usize, entry: &Entry) -> bool {
        self.crews.iter_mut().all(|crew| match &mut crew.role {
            Role::Holder(holder) => holder.goes(arena, lane, entry),
            Role::Sender(_) => true,
        })
    }

    /// How many keys were moved one by one to the replica that a node is of.
    pub(crate) fn moved_to(&self, node: usize) -> u64 {
        let of = |crew: &Crew| match &crew.role {
            Role::Holder(holder) => holder.moved_to(node),
            Role::Sender(_) => None,
        };
        self.crews.iter().find_map(of).unwrap_or(0)
    }

    /// Takes in what the agent orders.
    pub(crate) fn order(&mut self, order: Order) {
        let mut unheard = match &order {
            Order::Move { ticket, .. } => Some(*ticket),
            Order::Gone { .. }
            | Order::Weigh { .. }
            | Order::List { .. }
            | Order::Precopy { .. }
            | Order::EndPrecopy
            | Order::Pace(_)
            | Order::Taper { .. } => None,
        };
        for Crew { post, role } in &mut self.crews {
            match (&order, role) {
                (Order::Move { ticket, group, what, to }, Role::Holder(holder))
                    if holder.group() == *group =>
                {
                    holder.order(*ticket, what.clone(), *to);
                    unheard = None;
                }
                (Order::Gone { group, replica }, role) => role.gone(*group, *replica, post),
                _ => {}
            }
        }
        if let Some(ticket) = unheard {
            let why = Some("it keeps no flows of this NF that could be moved".to_owned());
            self.notes.push(FromWorker::Moved {
                ticket,
                flows: 0,
                times: Vec::new(),
                left: 0,
                why,
            });
        }
    }

    /// The agent says that this is not worth waiting for.
    pub(crate) fn wait_no_longer(&mut self, awaited: Awaited) {
        for Crew { post, role } in &mut self.crews {
            match role {
                Role::Holder(holder) if holder.group() == awaited.group => {
                    holder.wait_no_longer(awaited, post);
                }
                Role::Sender(sender) if sender.group() == awaited.group => {
                    sender.wait_no_longer(awaited);
                }
                Role::Holder(_) | Role::Sender(_) => {}
            }
        }
    }

    /// What the agent is to be told.
    pub(crate) fn notes(&mut self) -> Vec<FromWorker> {
        let notes = |crew: &mut Crew| match &mut crew.role {
            Role::Holder(holder) => holder.notes(),
            Role::Sender(sender) => sender.notes(),
        };
        let own = std::mem::take(&mut self.notes);
        own.into_iter().chain(self.crews.iter_mut().flat_map(notes)).collect()
    }
}

impl Role {
    fn gone(&mut self, group: u16, replica: u16, post: &mut Post) {
        match self {
            Role::Holder(holder) if holder.group() == group => holder.gone(replica, post),
            Role::Sender(sender) if sender.group() == group => sender.gone(replica),
            Role::Holder(_) | Role::Sender(_) => {}
        }
    }
}

/// When to look again for what waits for room, or for somebody else.
const SOON_NS: u64 = 1_000_000;
/// The same, where only the agent is to be told in time.
const WAITS_NS: u64 = 20_000_000;
