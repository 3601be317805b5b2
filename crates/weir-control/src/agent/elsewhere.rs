//! Flows of an instance whose worker has died go on at the NF's other instances, where that is asked for: the first of NFActor's two ways
//! (§4.2).
//!
//! Who reads them from the replica is the dead worker's successor: it has mended rings to go on with, and nobody else may look into what its
//! predecessor has written. It serves packets meanwhile, and gives its flows away by migrations as any other, so each is at one place
//! whoever dies next, its directors are switched, and it is in its new instance's replica before packets of it leave there.
//!
//! Not when its own µNFs brought the death about: whatever they died of would go along, and kill the others one after the other. That cannot
//! always be told (who takes too much memory is killed by the kernel as by anybody), so of an NF one instance leaves, and then none for a while.

use super::flows::Scaled;
use super::{Agent, Event, Recovered};
use crate::crews::Crew;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_runtime::moves::What;

/// Time until it is tried again, when somebody has just died, or somebody else moves flows of the NF.
const SOON: Duration = Duration::from_millis(20);
/// How often what failed is tried again.
const TRIES: u32 = 200;
/// After so many that is told: half a second, in which who has just died is there again.
const TOLD: u32 = 7;
/// The pause grows with each failure, to so many times that.
const MOST_SOON: u32 = 25;

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
    /// Worker `w` has been killed, by nobody that knows better, and will be started again.
    pub(super) fn leave_after_death(&mut self, w: usize, died: Instant) {
        for crew in &self.setup.leaves {
            let Some(at) = crew.instances.iter().position(|own| own.worker == w) else { continue };
            let from = at as u16;
            let has_died = |w: usize| {
                self.workers[w].last_death.is_some_and(|at| died - at < self.policy.window)
            };
            let mut others = crew.instances.iter().map(|own| own.worker).filter(|own| *own != w);
            let too_soon = others.any(has_died);
            // It gives its flows away already, and goes on with that.
            if self.leaving.iter().any(|one| one.crew.name == crew.name && one.from == from) {
                continue;
            }
            if too_soon {
                let name = &self.setup.workers[w].name;
                let text = format!(
                    "flows of {name} stay with its successor, as another instance has died just before"
                );
                self.events.push_back(Event::Warning { worker: w, text });
            }
            if too_soon || self.workers[w].deaths > 1 {
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
                Look::GivenUp(why) => self.tell_rest(&one, &why),
            }
        }
        self.leaving = left;
    }

    fn leave(&mut self, one: &mut Leaving) -> Look {
        let now = Instant::now();
        if one.waits.is_some() {
            match self.leave_on(one, now) {
                Look::GoesOn if one.waits.is_none() => {}
                look => return look,
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
                // Nobody could be told: it is answered already.
                self.leave_on(one, now)
            }
            Err(_) => {
                one.not_before = now + SOON;
                Look::GoesOn
            }
        }
    }

    /// What became of its order, if it is answered.
    fn leave_on(&mut self, one: &mut Leaving, now: Instant) -> Look {
        let answer = one.waits.and_then(|ticket| self.flows.answer_to(ticket));
        let Some(Scaled { flows: left, failures, .. }) = answer else { return Look::GoesOn };
        one.waits = None;
        one.flows = one.flows.saturating_add(left);
        if let Some(worker) = one.worker() {
            self.workers[worker].recovered.add(Recovered { left, ..Recovered::default() });
        }
        let Some(why) = failures.into_iter().next() else {
            one.to.pop_front();
            return if one.to.is_empty() { Look::Done } else { Look::GoesOn };
        };
        one.tries += 1;
        if one.tries == TOLD
            && let Some(worker) = one.worker()
        {
            let name = &self.setup.workers[worker].name;
            let text = format!("flows of {name} stay where they are for now: {why}");
            self.events.push_back(Event::Warning { worker, text });
        }
        one.not_before = now + SOON * one.tries.min(MOST_SOON);
        // Another one may have room, or live.
        one.to.rotate_left(1);
        if one.tries > TRIES { Look::GivenUp(why) } else { Look::GoesOn }
    }

    fn tell_left(&mut self, one: &Leaving) {
        let Some(worker) = one.worker() else { return };
        let took = one.died.elapsed();
        let left_us = took.as_micros() as u64;
        self.workers[worker].recovered.add(Recovered { left_us, ..Recovered::default() });
        self.events.push_back(Event::WentElsewhere { worker, flows: one.flows, took });
    }

    pub(super) fn tell_rest(&mut self, one: &Leaving, why: &str) {
        let (Some(worker), flows) = (one.worker(), one.flows) else { return };
        let name = &self.setup.workers[worker].name;
        let text = format!("{flows} flows of {name} have gone to others, and no more do: {why}");
        self.events.push_back(Event::Warning { worker, text });
    }

    /// Goes on where the generation before was, if the NF's instances are the same; with which it does not.
    pub(super) fn leave_as_before(&mut self, before: Vec<Leaving>) -> Vec<Leaving> {
        let mut given_up = Vec::new();
        for mut one in before {
            let same = self.setup.leaves.iter().find(|crew| {
                crew.name == one.crew.name && crew.instances.len() == one.crew.instances.len()
            });
            if let Some(crew) = same {
                one.crew = crew.clone();
                one.waits = None;
                self.leaving.push(one);
            } else {
                given_up.push(one);
            }
        }
        given_up
    }
}

impl Leaving {
    fn worker(&self) -> Option<usize> {
        self.crew.instances.get(usize::from(self.from)).map(|own| own.worker)
    }
}
