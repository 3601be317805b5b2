//! What source, target and directors say to each other.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Somebody who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Party {
    /// A replica of the segment, by its instance number.
    Replica(u16),
    /// A director in front of the replicas.
    Director(u16),
}

/// The name of one migration, never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MoveId {
    /// The replica that flows go away from.
    pub source: u16,
    /// Which of its lives began it: how often it has been started.
    pub life: u32,
    /// Higher than that of every migration that the source knew of: so of two migrations of the same flow
    /// the later one has the higher number (Lamport, "Time, clocks, and the ordering of events", 1978), whoever
    /// began it.
    pub number: u64,
}

/// So much further than all that are known the number of a migration may be. Nobody can use numbers up by naming the
/// last one.
pub(crate) const AHEAD: u64 = 1 << 32;

impl MoveId {
    /// True for a number that can be, where `clock` is the highest that is known.
    #[must_use]
    pub fn can_follow(self, clock: u64) -> bool {
        self.number <= clock.saturating_add(AHEAD)
    }

    /// Of two migrations of the same flow: this is the later one.
    #[must_use]
    pub fn is_later(self, other: MoveId) -> bool {
        self.number > other.number
    }
}

/// How far a migration is, at its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// The target has been asked. No director knows of it: it can be given up.
    Preparing,
    /// Directors have been asked. From here on it goes forward.
    Switching,
    /// All markers have come, the state is on its way.
    Handing,
}

/// Why a target does not take flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// As many migrations come to it as may, or some go away from it.
    #[error(
        "as many migrations as may be are under way to the target, or some away from it; try again later"
    )]
    Busy,
    /// It has no room for so many flows, or as many flows of others as may be.
    #[error(
        "the target has no room for so many flows, or as many moved ones as may be; move fewer, or choose another"
    )]
    Full,
    /// Some of the flows come to it, or go away from it, already.
    #[error("some of the flows are being moved already; wait for that")]
    Moving,
}

/// A migration, as its source tells it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Going<K: Ord> {
    /// What moves: keys of flows (all that a flow has), or whole buckets.
    pub parts: BTreeSet<K>,
    /// Where to.
    pub to: u16,
    /// All of it goes to where its buckets are: nobody need remember it.
    pub home: bool,
    /// How far it is.
    pub stage: Stage,
}

/// Where a part goes, that does not go where its bucket does, or did not until now.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The replica.
    pub to: u16,
    /// The migration that brought it there, the latest.
    pub by: MoveId,
    /// Migrations that asked for the part and are not over: their sources may ask again.
    pub unsettled: BTreeSet<MoveId>,
    /// Its bucket goes there too.
    pub home: bool,
}

/// What somebody knows, for one that was started anew and knows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Told<K: Ord> {
    /// The teller is being told itself what its earlier life began: it tells again when it knows.
    pub more: bool,
    /// Parts that were moved to the teller, and by which migration.
    pub guests: Vec<(K, MoveId)>,
    /// Migrations that have come to the teller, as far as their sources may ask for that.
    pub taken: BTreeSet<MoveId>,
    /// Migrations to the teller: name, parts, whether they come home.
    pub coming: Vec<(MoveId, BTreeSet<K>, bool)>,
    /// Migrations away from the teller.
    pub going: Vec<(MoveId, Going<K>)>,
    /// Where the teller, a director, sends parts.
    pub routes: Vec<(K, Route)>,
}

impl<K: Ord> Default for Told<K> {
    fn default() -> Self {
        Told {
            more: false,
            guests: Vec::new(),
            taken: BTreeSet::new(),
            coming: Vec::new(),
            going: Vec::new(),
            routes: Vec::new(),
        }
    }
}

/// A message. `R` is the flows' state, as bytes or whatever the driver has for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message<K: Ord, R> {
    /// Source to target, first request: keep packets of these parts until their state comes.
    Prepare {
        /// Which migration.
        id: MoveId,
        /// What moves.
        parts: BTreeSet<K>,
        /// As in [`Going`].
        home: bool,
        /// How many flows come, about: of each µNF of the segment that remembers any, in the order that all replicas have.
        flows: Vec<u64>,
    },
    /// Its answer: the target is ready.
    Prepared(MoveId),
    /// Its answer: no.
    Refused(MoveId, Refusal),
    /// Source to target: it is given up. No director was asked.
    Cancel(MoveId),
    /// Source to director, second request: send these parts to the target from now on. The answer is a
    /// marker behind the last packet to the source.
    Switch {
        /// Which migration.
        id: MoveId,
        /// What moves.
        parts: BTreeSet<K>,
        /// Where to.
        to: u16,
    },
    /// Source to target, third request: the state.
    State(MoveId, R),
    /// Its answer: the flows are the target's.
    Done {
        /// Which migration.
        id: MoveId,
        /// Flows that found no place there.
        lost: u64,
    },
    /// Source to directors and target: it is over. No answer.
    Settled {
        /// Which migration.
        id: MoveId,
        /// As in [`Going`].
        home: bool,
    },
    /// Target to a director that was started anew while a migration came: the flows are the target's now.
    Arrived {
        /// Which migration.
        id: MoveId,
        /// What has moved.
        parts: BTreeSet<K>,
    },
    /// The same, when it has been given up.
    Dropped(MoveId),
    /// I was started anew, in this life: tell me what you know.
    Hello(u32),
    /// The answer to that life's question. A replica answers a director when it is ready itself.
    Tell(u32, Told<K>),
    /// Replica to director: where does this part go? Nothing changes by it.
    Where(K),
    /// Its answer.
    There(K, u16),
}
