//! What is done when somebody dies and is started anew, or is gone.

use super::{Effect, Heard, Replica};
use crate::message::{Going, Message, Party, Stage, Told};
use std::collections::BTreeSet;
use std::fmt::Debug;

impl<K: Ord + Clone + Debug> Replica<K> {
    /// Somebody was started anew and asks what this replica knows.
    pub(super) fn hello<R>(&mut self, from: Party, life: u32, effects: &mut Vec<Effect<K, R>>) {
        if self.unheard.contains(&from) || self.unsure.contains(&from) {
            // What this one asked may have died with the other's earlier life.
            effects.push(Effect::Send(from, Message::Hello(self.life)));
        }
        match from {
            Party::Replica(target) => {
                let mut told = self.all_known();
                told.more = !self.unheard.is_empty();
                if told.more {
                    self.told_early.insert(target, life);
                }
                // Its later life may send what its earlier one did not.
                let late = self.overdue.iter().filter(|(id, _)| id.source == target);
                told.coming.extend(late.map(|(id, c)| (*id, c.parts.clone(), c.home)));
                effects.push(Effect::Send(from, Message::Tell(life, told)));
                self.hand_again(target, effects);
            }
            Party::Director(director) => {
                self.asking.insert(director, life);
                self.answer_directors(effects);
            }
        }
    }

    /// A director sends nothing until it has been answered, so it can wait for a replica that is itself
    /// being told. It forgot that it was asked to switch, if it was, and marks again.
    fn answer_directors<R>(&mut self, effects: &mut Vec<Effect<K, R>>) {
        if !self.is_ready() {
            return;
        }
        for (director, life) in std::mem::take(&mut self.asking) {
            let tell = Message::Tell(life, self.all_known());
            effects.push(Effect::Send(Party::Director(director), tell));
            for coming in self.coming.values_mut().chain(self.overdue.values_mut()) {
                coming.curious.insert(director);
            }
        }
    }

    fn all_known(&self) -> Told<K> {
        let (coming, going) = (self.coming.iter(), self.leaving.iter());
        Told {
            more: false,
            guests: self.guests.iter().map(|(part, by)| (part.clone(), by)).collect(),
            taken: self.taken.clone(),
            coming: coming.map(|(id, c)| (*id, c.parts.clone(), c.home)).collect(),
            going: going.map(|(id, leaving)| (*id, leaving.going.clone())).collect(),
            routes: Vec::new(),
        }
    }

    /// Takes in what somebody tells this replica after its restart.
    pub(super) fn told<R>(&mut self, from: Party, told: Told<K>, effects: &mut Vec<Effect<K, R>>) {
        let is_first = self.unheard.remove(&from);
        if !is_first && !self.unsure.contains(&from) {
            return;
        }
        match told.more {
            true => self.unsure.insert(from),
            false => self.unsure.remove(&from),
        };
        let numbers = told.guests.iter().map(|(_, by)| *by);
        let numbers = numbers.chain(told.taken.iter().copied());
        let numbers = numbers.chain(told.coming.iter().map(|(id, ..)| *id));
        let numbers = numbers.chain(told.going.iter().map(|(id, _)| *id));
        // All measured by what was known before: many of one letter lead no further than one.
        let clock = self.clock;
        for id in numbers.chain(told.routes.iter().map(|(_, route)| route.by)) {
            if id.can_follow(clock) {
                self.clock = self.clock.max(id.number);
            }
        }
        // Migrations to here: go on waiting for them. Nobody tells of another's.
        for (id, going) in told.going {
            if going.to != self.me || from != Party::Replica(id.source) {
                continue;
            }
            if self.taken.contains(&id) {
                // This one's earlier life has them, and what it has outlives it.
                effects.push(Effect::Send(from, Message::Done { id, lost: 0 }));
            } else {
                self.expect(id, going.parts, going.home);
                if going.stage == Stage::Preparing {
                    let prepared = Message::Prepared(id);
                    effects.push(Effect::Send(Party::Replica(id.source), prepared));
                }
            }
        }
        // Migrations away from here that an earlier life began: the target waits for them, or has them.
        if let Party::Replica(to) = from {
            for (id, parts, home) in told.coming {
                // What was handed over is sent again as it was.
                if id.source == self.me && !self.leaving.contains_key(&id) {
                    let stage = Stage::Switching;
                    self.go_on(id, Going { parts, to, home, stage }, effects);
                    self.ask_directors(id, effects);
                }
            }
            self.arrived.extend(told.taken.into_iter().filter(|id| id.source == self.me));
            self.hand_again(to, effects);
        }
        for (part, route) in told.routes {
            if route.to == self.me && !route.home {
                self.guests.insert(part.clone(), route.by);
            }
            for id in route.unsettled.into_iter().filter(|id| id.source == self.me) {
                // One that is not the latest for the part has arrived.
                if id != route.by {
                    self.arrived.insert(id);
                }
                let new = || Heard { parts: BTreeSet::new(), to: route.to, home: true };
                let heard = self.heard.entry(id).or_insert_with(new);
                heard.parts.insert(part.clone());
                heard.home &= route.home;
            }
        }
        if is_first && self.unheard.is_empty() {
            self.all_told(effects);
        }
        self.begin_if_ready(effects);
    }

    /// All have told: what directors know and the target does not say can be judged now.
    fn all_told<R>(&mut self, effects: &mut Vec<Effect<K, R>>) {
        for (id, Heard { parts, to, home }) in std::mem::take(&mut self.heard) {
            let is_back = to == self.me && !self.arrived.contains(&id);
            if self.leaving.contains_key(&id) || is_back {
                continue;
            }
            if self.arrived.contains(&id) || !self.replicas.contains(&to) {
                self.settle(id, to, home, effects);
            } else {
                let stage = Stage::Preparing;
                self.go_on(id, Going { parts, to, home, stage }, effects);
            }
        }
        self.arrived.clear();
        // Two that died together: what this one goes on with the other could hear from nobody else.
        for (replica, life) in std::mem::take(&mut self.told_early) {
            let tell = Message::Tell(life, self.all_known());
            effects.push(Effect::Send(Party::Replica(replica), tell));
        }
    }

    /// All have told all that they go on with: packets may be taken.
    fn begin_if_ready<R>(&mut self, effects: &mut Vec<Effect<K, R>>) {
        if self.is_ready() {
            for part in self.expected.keys() {
                self.guests.remove(part);
            }
            self.arrived.clear();
            self.answer_directors(effects);
        }
    }

    /// Waits no longer for what somebody is to tell after this one's restart: it goes on as if he had told that he knows nothing.
    pub fn go_on_without<R>(&mut self, who: Party) -> Vec<Effect<K, R>> {
        let mut effects = Vec::new();
        let was_unsure = self.unsure.remove(&who);
        let was_unheard = self.unheard.remove(&who);
        if was_unheard && self.unheard.is_empty() {
            self.all_told(&mut effects);
        }
        if was_unheard || was_unsure {
            self.begin_if_ready(&mut effects);
        }
        effects
    }

    /// A replica is gone for good: nobody of its number comes any more. Directors are told by the same
    /// hand ([`Director::gone`](crate::Director::gone)), before the replicas.
    pub fn gone<R>(&mut self, replica: u16) -> Vec<Effect<K, R>> {
        let mut effects = Vec::new();
        self.replicas.remove(&replica);
        self.target_gone(replica, &mut effects);
        self.source_gone(replica, &mut effects);
        effects.extend(self.go_on_without(Party::Replica(replica)));
        effects
    }
}
