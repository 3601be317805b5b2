//! A replica: source of some migrations, target of others.

mod durable;
mod restart;
mod source;
mod target;

use crate::guests::Guests;
use crate::message::{AHEAD, Going, Message, MoveId, Party, Refusal, Stage};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// What a replica's driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect<K: Ord, R> {
    /// Send a message.
    Send(Party, Message<K, R>),
    /// Take the flows of these parts out of the table, keep a copy until [`Effect::Moved`], and send
    /// [`Message::State`] to the target. There may be none: then they have ended.
    HandOver(MoveId, u16, BTreeSet<K>),
    /// Send that copy again; without one, as after [`Effect::HandOver`].
    HandAgain(MoveId, u16, BTreeSet<K>),
    /// Put the copy back into the table: the target is gone.
    TakeBack(MoveId),
    /// Put these flows into the table.
    Adopt(MoveId, R),
    /// Process the packets that were buffered for a migration, in the order in which they came; before any other
    /// packet.
    Release(MoveId),
    /// The same, though the flows have not come: they begin anew. They are not here as those of [`Effect::Release`] are, and may
    /// still come.
    Overdue(MoveId),
    /// A migration is over: the flows are elsewhere, the copy can go.
    Moved(MoveId),
    /// A migration has been given up: the flows are here.
    Failed(MoveId, Refusal),
}

/// What is to be done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Process it.
    Process,
    /// Buffer it for a migration, behind those that are.
    Buffer(MoveId),
    /// Leave it in its ring, with all behind it: the buffer is full, or it is not known yet whose it is.
    Wait,
}

/// Bounds of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Migrations under way from it, and to it, at most.
    pub moves: usize,
    /// Packets that it buffers, for all migrations together.
    pub packets: usize,
    /// Parts moved to it that do not have their buckets there.
    pub guests: usize,
}

/// Why a migration was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There are as many as may be, or some come here: who waits for flows lets nobody wait for his.
    #[error(
        "as many migrations as may be are under way from here, or some to here; try again later"
    )]
    Busy,
    /// Some part is on its way already.
    #[error("some of the flows are being moved already; wait for that")]
    Moving,
    /// They would go where they are.
    #[error("the flows are there already")]
    Here,
    /// Nothing is to move.
    #[error("no flow was named; name one at least")]
    Nothing,
    /// It was just started anew.
    #[error("the replica was just started anew and has not heard from all others; try again later")]
    NotReady,
}

/// A migration away from here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Leaving<K: Ord> {
    going: Going<K>,
    /// Directors whose marker has not come.
    unmarked: BTreeSet<u16>,
    /// A director may know of it from an earlier life: it cannot be given up.
    only_forward: bool,
    /// Flows that go, about, by µNF.
    flows: Vec<u64>,
}

/// A migration to here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Coming<K: Ord> {
    parts: BTreeSet<K>,
    home: bool,
    buffered: usize,
    /// Directors that were started anew and have been told that it comes: they wait to hear how it ends.
    curious: BTreeSet<u16>,
}

/// A migration of an earlier life, as directors tell it: what moves, where to, whether that goes home.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Heard<K: Ord> {
    parts: BTreeSet<K>,
    to: u16,
    home: bool,
}

/// What a replica knows of migrations from it and to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replica<K: Ord> {
    me: u16,
    life: u32,
    /// The highest number of a migration that is known here.
    clock: u64,
    limits: Limits,
    directors: BTreeSet<u16>,
    replicas: BTreeSet<u16>,
    leaving: BTreeMap<MoveId, Leaving<K>>,
    coming: BTreeMap<MoveId, Coming<K>>,
    /// Those to here that are not waited for any more ([`Replica::forsake`]).
    overdue: BTreeMap<MoveId, Coming<K>>,
    /// The parts of those that are.
    expected: BTreeMap<K, MoveId>,
    /// Parts that were moved here, by which migration.
    guests: Guests<K>,
    /// Migrations whose flows have come here, as long as their sources may ask whether they have.
    taken: BTreeSet<MoveId>,
    buffered: usize,
    /// After a restart: who has not told yet, and what was told that can be judged only when all have.
    unheard: BTreeSet<Party>,
    /// Who was himself being told when he told, and tells again.
    unsure: BTreeSet<Party>,
    /// Replicas that were told so by this one, with the life in which they asked.
    told_early: BTreeMap<u16, u32>,
    heard: BTreeMap<MoveId, Heard<K>>,
    arrived: BTreeSet<MoveId>,
    /// Directors that ask what is known here, by their life: they are answered when it is.
    asking: BTreeMap<u16, u32>,
}

impl<K: Ord + Clone + Debug> Replica<K> {
    /// A replica in its first life.
    #[must_use]
    pub fn new(
        me: u16,
        replicas: impl IntoIterator<Item = u16>,
        directors: impl IntoIterator<Item = u16>,
        limits: Limits,
    ) -> Self {
        Replica {
            me,
            life: 0,
            clock: 0,
            limits,
            directors: directors.into_iter().collect(),
            replicas: replicas.into_iter().filter(|replica| *replica != me).collect(),
            leaving: BTreeMap::new(),
            coming: BTreeMap::new(),
            overdue: BTreeMap::new(),
            expected: BTreeMap::new(),
            guests: Guests::default(),
            taken: BTreeSet::new(),
            buffered: 0,
            unheard: BTreeSet::new(),
            unsure: BTreeSet::new(),
            told_early: BTreeMap::new(),
            heard: BTreeMap::new(),
            arrived: BTreeSet::new(),
            asking: BTreeMap::new(),
        }
    }

    /// One in place of a replica that died, in a life that nobody of this number had. Its flows are those that
    /// its driver has got back, or none. It takes no packets and markers until all others have told it what
    /// is under way.
    #[must_use]
    pub fn restarted<R>(
        me: u16,
        life: u32,
        replicas: impl IntoIterator<Item = u16>,
        directors: impl IntoIterator<Item = u16>,
        limits: Limits,
    ) -> (Self, Vec<Effect<K, R>>) {
        let mut new = Replica { life, ..Self::new(me, replicas, directors, limits) };
        let directors = new.directors.iter().map(|director| Party::Director(*director));
        new.unheard = new.replicas.iter().map(|r| Party::Replica(*r)).chain(directors).collect();
        let hello = |to: &Party| Effect::Send(*to, Message::Hello(life));
        let effects = new.unheard.iter().map(hello).collect();
        (new, effects)
    }

    /// It takes the place of one that rests, at a time when nothing is under way: with the parts that were moved to it
    /// and the highest number of a migration that was known there. False, and nothing has changed, when no sound one can
    /// have said that.
    pub fn carry_on(&mut self, clock: u64, guests: Vec<(K, MoveId)>) -> bool {
        let can_be = |(_, by): &(K, MoveId)| by.number <= clock;
        let can = clock <= AHEAD && guests.len() <= self.limits.guests && guests.iter().all(can_be);
        if can {
            (self.clock, self.guests) = (clock, guests.into_iter().collect());
        }
        can
    }

    /// The highest number of a migration that is known here.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Parts that were moved here, in their order, and by which migration each: with the clock, what [`Replica::carry_on`] of the next is
    /// to be given.
    pub fn moved_here(&self) -> impl Iterator<Item = (&K, MoveId)> + Clone {
        self.guests.iter()
    }

    /// The same from this part on, without what brought them.
    pub fn moved_here_from(&self, first: K) -> impl Iterator<Item = &K> {
        self.guests.range(first..)
    }

    /// True when packets and markers may be taken.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unheard.is_empty() && self.unsure.is_empty()
    }

    /// Who has not told yet what he knows, after a restart.
    pub fn unheard(&self) -> impl Iterator<Item = Party> {
        self.unheard.iter().chain(&self.unsure).copied()
    }

    /// True when nothing is under way, but for what was to have come long ago.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.is_ready() && self.leaving.is_empty() && self.coming.is_empty()
    }

    /// Migrations away from here, with their stage.
    pub fn leaving(&self) -> impl Iterator<Item = (MoveId, Stage)> {
        self.leaving.iter().map(|(id, leaving)| (*id, leaving.going.stage))
    }

    /// True while the state of a migration is to come here, late or not.
    #[must_use]
    pub fn is_coming(&self, id: MoveId) -> bool {
        self.coming.contains_key(&id) || self.overdue.contains_key(&id)
    }

    /// Migrations to here that are not waited for any more and have not come.
    #[must_use]
    pub fn overdue(&self) -> usize {
        self.overdue.len()
    }

    /// Parts that were moved here and do not have their bucket here.
    #[must_use]
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// What is to be done with a packet whose flow has these parts: its key, its bucket. A packet that is to be
    /// buffered is counted as such.
    #[inline]
    pub fn packet(&mut self, parts: &[K]) -> Fate {
        let is_ready = self.is_ready();
        if self.expected.is_empty() && is_ready {
            return Fate::Process;
        }
        if !is_ready {
            return Fate::Wait;
        }
        // A flow that was moved here by itself is here, though its bucket comes only now: the first part that says anything decides.
        let first = parts.iter().find_map(|part| match self.expected.get(part) {
            Some(id) => Some(Some(id)),
            None => self.guests.contains(part).then_some(None),
        });
        let id = first.flatten();
        let Some((id, coming)) = id.and_then(|id| Some((*id, self.coming.get_mut(id)?))) else {
            return Fate::Process;
        };
        if self.buffered >= self.limits.packets {
            return Fate::Wait;
        }
        self.buffered += 1;
        coming.buffered += 1;
        Fate::Buffer(id)
    }

    /// Later migrations from here get higher numbers. False for a number that cannot be, which changes nothing.
    fn see(&mut self, id: MoveId) -> bool {
        let can = id.can_follow(self.clock);
        if can {
            self.clock = self.clock.max(id.number);
        }
        can
    }

    /// Takes in a message.
    pub fn message<R>(&mut self, from: Party, message: Message<K, R>) -> Vec<Effect<K, R>> {
        let mut effects = Vec::new();
        match (message, from) {
            (Message::Hello(life), _) => self.hello(from, life, &mut effects),
            (Message::Tell(life, told), _) if life == self.life => {
                self.told(from, told, &mut effects);
            }
            (Message::Tell(..), _) => {}
            // What somebody said before he told what he knows is in that, or of an earlier life.
            _ if self.unheard.contains(&from) => {}
            (Message::Prepare { id, parts, home, .. }, _) => match self.see(id) {
                true => self.prepare(id, parts, home, &mut effects),
                false => effects.push(Effect::Send(from, Message::Refused(id, Refusal::Busy))),
            },
            (Message::Cancel(id), _) => self.cancel(id, &mut effects),
            (Message::State(id, state), _) => self.state(id, state, &mut effects),
            // No other replica has a say in it.
            (Message::Settled { id, home }, from)
                if matches!(from, Party::Director(_)) || from == Party::Replica(id.source) =>
            {
                self.taken.remove(&id);
                if home {
                    self.guests.end(id);
                }
            }
            // Only the target may say how it goes with a migration.
            (Message::Prepared(id), from) if self.is_target(id, from) => {
                self.prepared(id, &mut effects);
            }
            (Message::Refused(id, why), from) if self.is_target(id, from) => {
                self.refused(id, why, &mut effects);
            }
            (Message::Done { id, .. }, from) if self.is_target(id, from) => {
                self.done(id, &mut effects);
            }
            _ => {}
        }
        effects
    }
}
