//! Who waits for others of his crew, how long, and that the agent hears of it: it knows which flows were to move, so it can
//! tell a slow one from one that announced what it does not send.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_flow::Party;

/// How long somebody waits before the agent hears of it, and then between two times. A good part of what a worker may take to do
/// anything is left then.
const TELL: Duration = Duration::from_millis(100);

/// How often it is looked who is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// What somebody of a crew waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Awaited {
    /// The NF, by its place in [`WorkerSpec::groups`](crate::spec::WorkerSpec::groups).
    pub group: u16,
    /// From whom.
    pub from: Party,
    /// What.
    pub owed: Owed,
}

/// What somebody owes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owed {
    /// Flows that he announced.
    Flows,
    /// What he knows: the other was started anew and has asked.
    Word,
}

/// A command that says to wait no longer has this bit; what is waited for stands in the others.
const COMMAND: u32 = 1 << 31;
const WORD: u32 = 1 << 30;
const DIRECTOR: u32 = 1 << 29;
const GROUP: u32 = 16;
const MOST_GROUP: u16 = 1 << 13;

impl Awaited {
    /// The command to wait no longer for it. A number and no message: who gives it never waits until it is read.
    pub fn to_command(self) -> Option<u32> {
        let (director, number) = match self.from {
            Party::Replica(number) => (0, number),
            Party::Director(number) => (DIRECTOR, number),
        };
        let word = if self.owed == Owed::Word { WORD } else { 0 };
        let group = u32::from(self.group) << GROUP;
        let fits = self.group < MOST_GROUP;
        fits.then_some(COMMAND | word | director | group | u32::from(number))
    }

    /// What is not to be waited for any more, if that is what `command` says.
    pub(crate) fn of_command(command: u32) -> Option<Self> {
        let has = |bit| command & bit != 0;
        let number = command as u16;
        has(COMMAND).then(|| Awaited {
            group: (command >> GROUP) as u16 & (MOST_GROUP - 1),
            from: if has(DIRECTOR) { Party::Director(number) } else { Party::Replica(number) },
            owed: if has(WORD) { Owed::Word } else { Owed::Flows },
        })
    }
}

/// How long somebody has waited for each of the others, since he last stopped to.
#[derive(Default)]
pub(super) struct Waits {
    looked: Option<Instant>,
    /// For what he waited then.
    waits: BTreeSet<(Party, Owed)>,
    waited: BTreeMap<(Party, Owed), Waited>,
}

#[derive(Default)]
struct Waited {
    /// In all: who takes back what he announced and announces it anew gains nothing.
    all: Duration,
    /// Of that, when the agent heard of it.
    told: Duration,
}

impl Waits {
    /// True when it is worth to look again: not at each of a busy worker's turns.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|at| now.saturating_duration_since(at) >= LOOK)
    }

    /// He waits for these now. Says of which of them the agent is to hear, and how long he has waited for each.
    pub(super) fn look(
        &mut self,
        now: Instant,
        waits_for: impl Iterator<Item = (Party, Owed)>,
    ) -> Vec<((Party, Owed), Duration)> {
        let passed = self.looked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let before = std::mem::replace(&mut self.waits, waits_for.collect());
        let mut due = Vec::new();
        // What he did not wait for then he does not wait for since then.
        for of in self.waits.intersection(&before) {
            let waited = self.waited.entry(*of).or_default();
            waited.all += passed;
            if waited.all.saturating_sub(waited.told) >= TELL {
                waited.told = waited.all;
                due.push((*of, waited.all));
            }
        }
        self.looked = Some(now);
        due
    }

    /// He waits for nobody: time that passes does not count.
    pub(super) fn rest(&mut self) {
        self.looked = None;
        self.waits.clear();
    }

    /// He waits for this no longer.
    pub(super) fn stop(&mut self, of: (Party, Owed)) {
        self.waited.remove(&of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_be_waited_for_is_told_by_a_number() {
        for group in [0, 7, MOST_GROUP - 1] {
            for from in [Party::Replica(0), Party::Director(3), Party::Replica(u16::MAX)] {
                for owed in [Owed::Flows, Owed::Word] {
                    let awaited = Awaited { group, from, owed };
                    let command = awaited.to_command().unwrap();
                    assert_eq!(Awaited::of_command(command), Some(awaited));
                }
            }
        }
        let far = Awaited { group: MOST_GROUP, from: Party::Replica(0), owed: Owed::Flows };
        assert_eq!((far.to_command(), Awaited::of_command(13)), (None, None));
    }

    #[test]
    fn the_agent_hears_of_who_is_waited_for_and_again_and_of_nobody_else() {
        let one = (Party::Replica(1), Owed::Flows);
        let two = (Party::Replica(2), Owed::Flows);
        let start = Instant::now();
        let at = |n: u32| start + TELL / 2 * n;
        let mut waits = Waits::default();
        let mut look = |n, all: &[(Party, Owed)]| waits.look(at(n), all.iter().copied());
        assert_eq!(look(0, &[one]), []);
        assert_eq!(look(1, &[one, two]), []);
        assert_eq!(look(2, &[one, two]), [(one, TELL)]);
        // Nobody waits meanwhile: that does not count, what was before does.
        waits.rest();
        let mut look = |n, all: &[(Party, Owed)]| waits.look(at(n), all.iter().copied());
        assert_eq!(look(40, &[one, two]), []);
        assert_eq!(look(41, &[two]), [(two, TELL)]);
        assert_eq!(look(42, &[one]), []);
        assert_eq!(look(43, &[one]), []);
        assert_eq!(look(44, &[one]), [(one, 2 * TELL)]);
        waits.stop(one);
        assert_eq!(waits.look(at(45), [one].into_iter()), []);
    }
}
