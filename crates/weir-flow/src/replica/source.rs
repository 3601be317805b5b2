//! What a source does.

use super::{Effect, Leaving, Replica, StartError};
use crate::message::{Going, Message, MoveId, Party, Refusal, Stage};
use std::collections::BTreeSet;
use std::fmt::Debug;

impl<K: Ord + Clone + Debug> Replica<K> {
    /// Begins to move parts to another replica: all keys of the flows, or whole buckets. `home`: their
    /// buckets go there. `flows`: how many they are, about, by µNF.
    ///
    /// # Errors
    /// When it cannot be now; nothing has changed.
    pub fn start<R>(
        &mut self,
        parts: BTreeSet<K>,
        to: u16,
        home: bool,
        flows: Vec<u64>,
    ) -> Result<(MoveId, Vec<Effect<K, R>>), StartError> {
        if !self.is_ready() {
            return Err(StartError::NotReady);
        }
        if parts.is_empty() {
            return Err(StartError::Nothing);
        }
        if to == self.me {
            return Err(StartError::Here);
        }
        if self.leaving.len() >= self.limits.moves || !self.coming.is_empty() {
            return Err(StartError::Busy);
        }
        if parts.iter().any(|part| self.is_moving(part)) {
            return Err(StartError::Moving);
        }
        self.clock = self.clock.saturating_add(1);
        let id = MoveId { source: self.me, life: self.life, number: self.clock };
        let going = Going { parts, to, home, stage: Stage::Preparing };
        let leaving = Leaving { going, unmarked: BTreeSet::new(), only_forward: false, flows };
        let ask = self.ask_target(id, &leaving);
        self.leaving.insert(id, leaving);
        Ok((id, vec![ask]))
    }

    /// True when a part comes here or goes away from here: it gets no further key then.
    pub fn is_moving(&self, part: &K) -> bool {
        self.expected.contains_key(part)
            || self.leaving.values().any(|leaving| leaving.going.parts.contains(part))
    }

    fn ask_target<R>(&self, id: MoveId, leaving: &Leaving<K>) -> Effect<K, R> {
        let Going { parts, to, home, .. } = leaving.going.clone();
        let flows = leaving.flows.clone();
        Effect::Send(Party::Replica(to), Message::Prepare { id, parts, home, flows })
    }

    /// True for the target of a migration from here.
    pub(super) fn is_target(&self, id: MoveId, who: Party) -> bool {
        self.leaving.get(&id).is_some_and(|leaving| Party::Replica(leaving.going.to) == who)
    }

    /// The target is ready: no way back from here.
    pub(super) fn prepared<R>(&mut self, id: MoveId, effects: &mut Vec<Effect<K, R>>) {
        let Some(leaving) = self.leaving.get_mut(&id) else { return };
        if leaving.going.stage == Stage::Preparing {
            leaving.going.stage = Stage::Switching;
            leaving.unmarked = self.directors.clone();
            self.ask_directors(id, effects);
            self.hand_over_if_marked(id, effects);
        }
    }

    /// Asks those directors that have not answered.
    pub(super) fn ask_directors<R>(&self, id: MoveId, effects: &mut Vec<Effect<K, R>>) {
        let Some(leaving) = self.leaving.get(&id) else { return };
        for director in &leaving.unmarked {
            let Going { parts, to, .. } = leaving.going.clone();
            let ask = Message::Switch { id, parts, to };
            effects.push(Effect::Send(Party::Director(*director), ask));
        }
    }

    pub(super) fn refused<R>(&mut self, id: MoveId, why: Refusal, effects: &mut Vec<Effect<K, R>>) {
        let gives_up = |leaving: &&mut Leaving<K>| leaving.going.stage == Stage::Preparing;
        let Some(leaving) = self.leaving.get_mut(&id).filter(gives_up) else { return };
        // One that must go forward is asked for again, at its next time-out.
        if !leaving.only_forward {
            self.leaving.remove(&id);
            effects.push(Effect::Failed(id, why));
        }
    }

    /// A marker has come through the ring of a director: no packet of the migration's flows comes behind it.
    pub fn marker<R>(&mut self, director: u16, id: MoveId) -> Vec<Effect<K, R>> {
        let mut effects = Vec::new();
        if let Some(leaving) = self.leaving.get_mut(&id)
            && leaving.going.stage == Stage::Switching
        {
            leaving.unmarked.remove(&director);
            self.hand_over_if_marked(id, &mut effects);
        }
        effects
    }

    pub(super) fn hand_over_if_marked<R>(&mut self, id: MoveId, effects: &mut Vec<Effect<K, R>>) {
        let Some(leaving) = self.leaving.get_mut(&id) else { return };
        if leaving.going.stage == Stage::Switching && leaving.unmarked.is_empty() {
            leaving.going.stage = Stage::Handing;
            for part in &leaving.going.parts {
                self.guests.remove(part);
            }
            effects.push(Effect::HandOver(id, leaving.going.to, leaving.going.parts.clone()));
        }
    }

    pub(super) fn done<R>(&mut self, id: MoveId, effects: &mut Vec<Effect<K, R>>) {
        let Some(Leaving { going, .. }) = self.leaving.remove(&id) else { return };
        for part in &going.parts {
            self.guests.remove(part);
        }
        if !self.unheard.is_empty() {
            // Some director's word that it is not settled may be on its way here.
            self.arrived.insert(id);
        }
        self.settle(id, going.to, going.home, effects);
        effects.push(Effect::Moved(id));
    }

    pub(super) fn settle<R>(
        &self,
        id: MoveId,
        target: u16,
        home: bool,
        effects: &mut Vec<Effect<K, R>>,
    ) {
        let directors = self.directors.iter().map(|director| Party::Director(*director));
        // Its flows may have come back here since.
        let target = (target != self.me).then_some(Party::Replica(target));
        for to in directors.chain(target) {
            effects.push(Effect::Send(to, Message::Settled { id, home }));
        }
    }

    /// A migration takes too long. While no director knows of it it is given up; later, what was not
    /// answered is asked again.
    pub fn timeout<R>(&mut self, id: MoveId) -> Vec<Effect<K, R>> {
        let mut effects = Vec::new();
        let Some(leaving) = self.leaving.get(&id) else { return effects };
        let to = leaving.going.to;
        match leaving.going.stage {
            Stage::Preparing if leaving.only_forward => effects.push(self.ask_target(id, leaving)),
            Stage::Preparing => {
                self.leaving.remove(&id);
                effects.push(Effect::Send(Party::Replica(to), Message::Cancel(id)));
                effects.push(Effect::Failed(id, Refusal::Busy));
            }
            Stage::Switching => self.ask_directors(id, &mut effects),
            Stage::Handing => {
                effects.push(Effect::HandAgain(id, to, leaving.going.parts.clone()));
            }
        }
        effects
    }

    /// What is to be sent to a target that was started anew, when it has been told.
    pub(super) fn hand_again<R>(&self, target: u16, effects: &mut Vec<Effect<K, R>>) {
        for (id, Leaving { going, .. }) in &self.leaving {
            if going.to == target && going.stage == Stage::Handing {
                effects.push(Effect::HandAgain(*id, target, going.parts.clone()));
            }
        }
    }

    /// What a target of an earlier life's migration, or a director, has told: it goes on from `stage`.
    pub(super) fn go_on<R>(
        &mut self,
        id: MoveId,
        going: Going<K>,
        effects: &mut Vec<Effect<K, R>>,
    ) {
        let unmarked = self.directors.clone();
        let leaving = Leaving { going, unmarked, only_forward: true, flows: Vec::new() };
        if leaving.going.stage == Stage::Preparing {
            effects.push(self.ask_target(id, &leaving));
        }
        self.leaving.insert(id, leaving);
    }

    /// A target is gone for good: its flows stay here, or come back.
    pub(super) fn target_gone<R>(&mut self, target: u16, effects: &mut Vec<Effect<K, R>>) {
        let gone = self.leaving.extract_if(.., |_, leaving| leaving.going.to == target);
        for (id, Leaving { going, .. }) in gone.collect::<Vec<_>>() {
            if going.stage == Stage::Handing {
                effects.push(Effect::TakeBack(id));
            }
            if going.stage != Stage::Preparing {
                for part in &going.parts {
                    self.guests.insert(part.clone(), id);
                }
                for director in &self.directors {
                    let (parts, to) = (going.parts.clone(), self.me);
                    let back = Message::Switch { id, parts, to };
                    effects.push(Effect::Send(Party::Director(*director), back));
                    let settled = Message::Settled { id, home: false };
                    effects.push(Effect::Send(Party::Director(*director), settled));
                }
            }
            effects.push(Effect::Failed(id, Refusal::Busy));
        }
    }
}
