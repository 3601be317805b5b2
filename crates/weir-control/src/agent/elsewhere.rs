//! Flows of an instance whose worker has died go on at the NF's other instances, where that is asked for: the first of NFActor's two ways
//! (§4.2).
//!
//! Who reads them from the replica is the dead worker's successor: it has mended rings to go on with, and nobody else may look into what its
//! predecessor has written. It serves packets meanwhile, and gives its flows away by migrations as any other, so each is at one place
//! whoever dies next, its directors are switched, and it is in its new instance's replica before packets of it leave there.
//!
//! Not when its own µNFs brought the death about: whatever they died of would go along, and kill the others one after the other.

use super::{Agent, Event, Recovered};
use crate::crews::Crew;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_runtime::moves::What;

/// Time until it is tried again, when somebody has just died, or somebody else moves flows of the NF.
const SOON: Duration = Duration::from_millis(20);
/// How often what failed is tried again.
const TRIES: u32 = 200;

/// An instance that gives its flows away.
pub(super) struct Leaving {
    crew: Crew,
    from: u16,
    /// Who is to have some yet.
    to: VecDeque<u16>,
    /// The order that it waits for.
    waits: Option<u64>,
    flows: u64,
    died: Instant,
    not_before: Instant,
    tries: u32,
}

/// What comes of a look at it.
enum Look {
    GoesOn,
    Done,
    /// The rest stays where it is.
    GivenUp(String),
}

impl Agent {
    /// Worker `w` has died, and will be started again; by nothing that its µNFs did.
    pub(super) fn leave_after_death(&mut self, w: usize, died: Instant) {
        for crew in &self.setup.leaves {
            let Some(at) = crew.instances.iter().position(|own| own.worker == w) else { continue };
            let from = at as u16;
            if self.leaving.iter().any(|one| one.crew.name == crew.name && one.from == from) {
                continue;
            }
            let to = (0..crew.instances.len() as u16).filter(|to| *to != from).collect();
            let (crew, not_before) = (crew.clone(), died);
            let (waits, flows, tries) = (None, 0, 0);
            self.leaving.push(Leaving { crew, from, to, waits, flows, died, not_before, tries });
        }
    }

    /// Goes on with what gives its flows away. Not when the graph ends or is about to be another.
    pub(super) fn go_on_leaving(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let mut left = Vec::new();
        for mut one in std::mem::take(&mut self.leaving) {
            match self.leave(&mut one) {
                Look::GoesOn => left.push(one),
                Look::Done => self.tell_left(&one),
                Look::GivenUp(why) => {
                    let Some(worker) = one.worker() else { continue };
                    let name = &self.setup.workers[worker].name;
                    let text = format!("flows of {name} stay where they are: {why}");
                    self.events.push_back(Event::Warning { worker, text });
                }
            }
        }
        self.leaving = left;
    }

    fn leave(&mut self, one: &mut Leaving) -> Look {
        let now = Instant::now();
        if let Some(ticket) = one.waits {
            let Some(answer) = self.flows.answer_to(ticket) else { return Look::GoesOn };
            one.waits = None;
            one.flows = one.flows.saturating_add(answer.flows);
            if let Some(why) = answer.failures.into_iter().next() {
                one.tries += 1;
                one.not_before = now + SOON;
                if one.tries > TRIES {
                    return Look::GivenUp(why);
                }
            } else {
                one.to.pop_front();
                if one.to.is_empty() {
                    return Look::Done;
                }
            }
        }
        if self.stopping || self.finished || self.is_relinking() || one.not_before > now {
            return Look::GoesOn;
        }
        let runs = |i: u16| {
            let instance = one.crew.instances.get(usize::from(i));
            let setup = instance.and_then(|own| self.setup.workers.get(own.worker));
            setup.is_some_and(|worker| worker.runs_nfs())
        };
        if !runs(one.from) {
            return Look::GivenUp("it was stopped for good".to_owned());
        }
        let to: VecDeque<u16> = one.to.iter().copied().filter(|to| runs(*to)).collect();
        one.to = to;
        let Some(&to) = one.to.front() else {
            return Look::GivenUp("no other instance of the NF runs".to_owned());
        };
        // Of what it still has: each gets as much as the others.
        let share = 100_usize.div_ceil(one.to.len()) as u8;
        match self.move_for_scaling(&one.crew, one.from, to, What::Share(share)) {
            Ok(ticket) => {
                // It is to stay so.
                self.levels.leave(&one.crew.name);
                self.generation.back.leave_alone(&one.crew.name);
                one.waits = Some(ticket);
            }
            Err(_) => one.not_before = now + SOON,
        }
        Look::GoesOn
    }

    fn tell_left(&mut self, one: &Leaving) {
        let Some(worker) = one.worker() else { return };
        let took = one.died.elapsed();
        let (left, left_us) = (one.flows, took.as_micros() as u64);
        let left = Recovered { left, left_us, ..Recovered::default() };
        self.workers[worker].recovered.add(left);
        self.events.push_back(Event::WentElsewhere { worker, flows: one.flows, took });
    }

    /// Goes on where the generation before was, if the NF's instances are the same.
    pub(super) fn leave_as_before(&mut self, before: Vec<Leaving>) {
        for mut one in before {
            let same = self.setup.leaves.iter().find(|crew| {
                crew.name == one.crew.name && crew.instances.len() == one.crew.instances.len()
            });
            if let Some(crew) = same {
                one.crew = crew.clone();
                one.waits = None;
                self.leaving.push(one);
            }
        }
    }
}

impl Leaving {
    fn worker(&self) -> Option<usize> {
        self.crew.instances.get(usize::from(self.from)).map(|own| own.worker)
    }
}
