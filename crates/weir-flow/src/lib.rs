//! Moving flows between the replicas of a segment while packets come: NFActor's three
//! request-responses (§4.1), with several directors, and for crashes at any step.
//!
//! Pure: [`Replica`] (source and target) and [`Director`] take messages, markers and time-outs, and say
//! what is to be done. Who drives them has the channels, rings and tables. `docs/flows.md` has the
//! diagram, the invariants, and what happens when something goes wrong at each arrow;
//! `tests/model.rs` looks at every interleaving of small cases.
//!
//! What a driver must give:
//! - Messages between two parties come in order and once, and those of an earlier life of a party
//!   before those of a later one (a ring in shared memory does that). Messages to one that has died may be lost.
//! - A ring from each director to each replica, in which packets and markers stay in order, and which
//!   outlives both ends.
//! - A party that dies is started anew on the same rings and channels ([`Replica::restarted`],
//!   [`Director::restarted`]), or everybody is told that it is gone for good.
//! - One thread per party: a call and the effects that it asks for are done before the next.

mod director;
mod guests;
mod message;
mod replica;

pub use director::{Director, DirectorEffect};
pub use guests::Guests;
pub use message::{Going, Message, MoveId, Party, Refusal, Route, Stage, Told};
pub use replica::{Effect, Fate, Limits, Replica, StartError};
