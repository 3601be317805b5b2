//! What a target does.

use super::{Coming, Effect, Replica};
use crate::message::{Message, MoveId, Party, Refusal};
use std::collections::BTreeSet;
use std::fmt::Debug;

impl<K: Ord + Clone + Debug> Replica<K> {
    pub(super) fn prepare<R>(
        &mut self,
        id: MoveId,
        parts: BTreeSet<K>,
        home: bool,
        effects: &mut Vec<Effect<K, R>>,
    ) {
        let source = Party::Replica(id.source);
        let answer = if self.is_coming(id) {
            Message::Prepared(id)
        } else if self.has_taken(id) {
            // An earlier life of the source did not hear it.
            Message::Done { id, lost: 0 }
        } else if !self.leaving.is_empty() {
            // Who waits for flows lets nobody wait for his: two that wait for each other's would wait for ever.
            Message::Refused(id, Refusal::Busy)
        } else if parts.iter().any(|part| self.is_moving(part)) {
            Message::Refused(id, Refusal::Moving)
        } else if self.coming.len() >= self.limits.moves {
            Message::Refused(id, Refusal::Busy)
        } else if !home && self.guests_then() + parts.len() > self.limits.guests {
            Message::Refused(id, Refusal::Full)
        } else {
            self.expect(id, parts, home);
            Message::Prepared(id)
        };
        effects.push(Effect::Send(source, answer));
    }

    /// Guests when all migrations under way are over.
    fn guests_then(&self) -> usize {
        let coming = self.coming.values().filter(|coming| !coming.home);
        self.guests.len() + coming.map(|coming| coming.parts.len()).sum::<usize>()
    }

    pub(super) fn expect(&mut self, id: MoveId, parts: BTreeSet<K>, home: bool) {
        for part in &parts {
            self.expected.insert(part.clone(), id);
        }
        self.coming.insert(id, Coming { parts, home, buffered: 0, curious: BTreeSet::new() });
    }

    fn no_more_expected(&mut self, id: MoveId) -> Option<Coming<K>> {
        let coming = self.coming.remove(&id)?;
        for part in &coming.parts {
            if self.expected.get(part) == Some(&id) {
                self.expected.remove(part);
            }
        }
        self.buffered = self.buffered.saturating_sub(coming.buffered);
        Some(coming)
    }

    /// Waits no longer for the state of what `source` has announced: no sound one has it come so late. Packets that wait for it are
    /// processed, so flows begin anew. Should the state come all the same it is taken, as far as its flows have not begun.
    pub fn forsake<R>(&mut self, source: u16) -> Vec<Effect<K, R>> {
        let mut effects = Vec::new();
        let from = |id: &&MoveId| id.source == source;
        let late: Vec<MoveId> = self.coming.keys().filter(from).copied().collect();
        for id in late {
            let Some(mut coming) = self.no_more_expected(id) else { continue };
            // Directors that were started anew wait no longer to hear how it ends either. They still hear when it comes.
            for director in &coming.curious {
                effects.push(Effect::Send(Party::Director(*director), Message::Dropped(id)));
            }
            coming.buffered = 0;
            self.remember_overdue(id, coming);
            effects.push(Effect::Overdue(id));
        }
        effects
    }

    /// As many are remembered as may be under way: who announces more loses his own first.
    fn remember_overdue(&mut self, id: MoveId, coming: Coming<K>) {
        if self.overdue.len() >= self.limits.moves.max(1) {
            let own = self.overdue.keys().find(|other| other.source == id.source);
            if let Some(oldest) = own.or_else(|| self.overdue.keys().next()).copied() {
                self.overdue.remove(&oldest);
            }
        }
        self.overdue.insert(id, coming);
    }

    /// What comes, or was to have come long ago, does not come any more.
    fn forget_coming(&mut self, id: MoveId) -> Option<Coming<K>> {
        let overdue = self.overdue.remove(&id);
        self.no_more_expected(id).or(overdue)
    }

    pub(super) fn cancel<R>(&mut self, id: MoveId, effects: &mut Vec<Effect<K, R>>) {
        self.overdue.remove(&id);
        let Some(coming) = self.no_more_expected(id) else { return };
        for director in coming.curious {
            effects.push(Effect::Send(Party::Director(director), Message::Dropped(id)));
        }
        // Nothing was buffered, as no director was asked; if the source errs, packets are not kept for ever.
        if coming.buffered > 0 {
            effects.push(Effect::Release(id));
        }
    }

    pub(super) fn state<R>(&mut self, id: MoveId, state: R, effects: &mut Vec<Effect<K, R>>) {
        let done = Effect::Send(Party::Replica(id.source), Message::Done { id, lost: 0 });
        if let Some(coming) = self.forget_coming(id) {
            self.remember_taken(id);
            for part in &coming.parts {
                self.guests.insert(part.clone(), id);
            }
            for director in coming.curious {
                let arrived = Message::Arrived { id, parts: coming.parts.clone() };
                effects.push(Effect::Send(Party::Director(director), arrived));
            }
            effects.push(Effect::Adopt(id, state));
            effects.push(Effect::Release(id));
            effects.push(done);
        } else if self.has_taken(id) {
            effects.push(done);
        }
    }

    /// A source is gone for good, and the flows' state with it: they begin anew here, and the
    /// directors that it had not asked are asked in its place.
    pub(super) fn source_gone<R>(&mut self, source: u16, effects: &mut Vec<Effect<K, R>>) {
        self.taken.retain(|id| id.source != source);
        let all = self.coming.keys().chain(self.overdue.keys());
        let gone: Vec<MoveId> = all.filter(|id| id.source == source).copied().collect();
        for id in gone {
            let Some(coming) = self.forget_coming(id) else { continue };
            for director in &self.directors {
                let (parts, to) = (coming.parts.clone(), self.me);
                let director = Party::Director(*director);
                effects.push(Effect::Send(director, Message::Switch { id, parts, to }));
                let settled = Message::Settled { id, home: coming.home };
                effects.push(Effect::Send(director, settled));
            }
            if !coming.home {
                for part in coming.parts {
                    self.guests.insert(part, id);
                }
            }
            effects.push(Effect::Release(id));
        }
    }
}
