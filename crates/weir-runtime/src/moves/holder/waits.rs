//! What comes here, and what was to come and does not.

use super::Holder;
use crate::moves::{Awaited, Owed, Part, Post};
use crate::spec::FromWorker;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_flow::{MoveId, Party};

/// For so long nothing is taken from who announced flows that did not come.
const SHUNNED: Duration = Duration::from_secs(60);

/// A migration to here.
pub(super) struct Come {
    pub(super) parts: BTreeSet<Part>,
    /// How many flows of each µNF, about.
    pub(super) flows: Vec<u64>,
    since: Instant,
    /// It is not waited for any more. It may still come.
    pub(super) overdue: bool,
}

impl Come {
    pub(super) fn new(parts: BTreeSet<Part>, flows: Vec<u64>) -> Self {
        Come { parts, flows, since: Instant::now(), overdue: false }
    }
}

impl Holder {
    /// Has the agent hear of who is waited for.
    pub(super) fn note_waits(&mut self) {
        let now = Instant::now();
        if !self.waits.is_due(now) {
            return;
        }
        let flows = self.coming.iter().filter(|(_, come)| !come.overdue);
        let sources: BTreeSet<u16> = flows.map(|(id, _)| id.source).collect();
        let flows = sources.into_iter().map(|source| (Party::Replica(source), Owed::Flows));
        let words = self.machine.unheard().map(|party| (party, Owed::Word));
        for ((from, owed), all) in self.waits.look(now, flows.chain(words)) {
            let waited = match owed {
                Owed::Word => all,
                Owed::Flows => {
                    let oldest = self.oldest(from);
                    oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
                }
            };
            let ms = waited.as_millis() as u64;
            let awaited = Awaited { group: self.group, from, owed };
            self.notes.push(FromWorker::Waits { awaited, ms });
        }
    }

    /// Since when what comes from there has been waited for.
    fn oldest(&self, from: Party) -> Option<Instant> {
        let its = self.coming.iter().filter(|(id, _)| Party::Replica(id.source) == from);
        its.filter(|(_, come)| !come.overdue).map(|(_, come)| come.since).min()
    }

    /// The agent says that this is not worth waiting for.
    pub(in crate::moves) fn wait_no_longer(&mut self, awaited: Awaited, post: &mut Post) {
        let Awaited { from, owed, .. } = awaited;
        self.waits.stop((from, owed));
        let effects = match (owed, from) {
            (Owed::Word, _) => self.machine.go_on_without(from),
            (Owed::Flows, Party::Replica(source)) => {
                let effects = self.machine.forsake(source);
                // Said too late, all has come: then there is nobody to shun.
                if !effects.is_empty() {
                    self.shunned.insert(source, Instant::now() + SHUNNED);
                }
                effects
            }
            (Owed::Flows, Party::Director(_)) => return,
        };
        self.apply_without_table(effects, post);
    }

    /// What a migration was to bring has not come, and packets for it do not wait any more.
    pub(super) fn overdue(&mut self, id: MoveId) {
        if let Some(come) = self.coming.get_mut(&id) {
            come.overdue = true;
        }
    }
}
