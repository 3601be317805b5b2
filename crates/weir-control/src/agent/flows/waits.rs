//! Who of a crew has others wait for what he announced or knows. They say so themselves; the agent knows which flows were to
//! move, and says when something is not worth waiting for. Nobody is ended on another's word.

use super::EXCUSED;
use crate::agent::{Agent, Event};
use crate::crews::Crew;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_flow::Party;
use weir_runtime::moves::{Awaited, Order, Owed};

/// How long somebody who is ready may take to tell one who was started anew what he knows. He may wait himself, as a replica
/// does for other replicas: so who divides packets waits longer.
const HEARS: Duration = Duration::from_secs(5);
const HEARS_ALL: Duration = Duration::from_secs(8);
/// For so long after a worker has said that flows go elsewhere as their µNF wants it others may wait for them: it says so every second while that is so, and
/// nobody else knows whether it is true.
const WISHED: Duration = Duration::from_secs(4);
/// Time between two times that somebody is told the same.
const AGAIN: Duration = Duration::from_secs(1);

/// What the agent knows of who may wait for whom.
#[derive(Default)]
pub(super) struct Waiting {
    /// By NF, worker and instance: when an order to move flows from there to there was given, or was over.
    ordered: BTreeMap<(u16, usize, u16), Instant>,
    /// The same, when a worker said that its µNF wants it.
    wished: BTreeMap<(u16, usize, u16), Instant>,
    /// Who was told not to wait for what, and when.
    told: BTreeMap<(usize, Awaited), Instant>,
    /// By worker, when it began anew to have to work, as it was told so.
    spared: BTreeMap<usize, Instant>,
}

impl Waiting {
    /// Worker `w` has been given this order, or is through with it.
    pub(super) fn note(&mut self, w: usize, order: &Order) {
        if let Order::Move { group, to, .. } = order {
            self.ordered.insert((*group, w, *to), Instant::now());
        }
    }

    /// True for a worker that flows come to, as somebody says whose µNF wants it, or that divides packets for it. Not for who says so.
    pub(super) fn waits_for_wishes(&self, crew: &Crew, w: usize) -> bool {
        self.wished.iter().any(|((group, from, to), at)| {
            let target = crew.instances.get(usize::from(*to)).map(|own| own.worker);
            let waits = target == Some(w) || crew.senders.contains(&w);
            *group == crew.group() && *from != w && waits && at.elapsed() < WISHED
        })
    }

    /// True when worker `w` was ordered to move flows to an instance lately.
    fn was_ordered(&self, group: u16, w: usize, to: u16) -> bool {
        let lately = |all: &BTreeMap<_, Instant>, most| {
            all.get(&(group, w, to)).is_some_and(|at| at.elapsed() < most)
        };
        lately(&self.ordered, EXCUSED) || lately(&self.wished, WISHED)
    }
}

impl Agent {
    /// Worker `w` says that somebody has it wait.
    pub(in crate::agent) fn heard_of_waiting(&mut self, w: usize, awaited: Awaited, ms: u64) {
        let Awaited { group, from, owed } = awaited;
        let its = |crew: &&Crew| crew.group() == group && crew.has(w);
        let Some(crew) = self.memory.crews().iter().flatten().find(its) else {
            return self.convict(w, "said that it waits for flows, and none are moved to it");
        };
        let by = match from {
            Party::Replica(i) => crew.instances.get(usize::from(i)).map(|i| i.worker),
            Party::Director(i) => crew.senders.get(usize::from(i)).copied(),
        };
        let to = crew.instances.iter().position(|own| own.worker == w);
        let Some(by) = by.filter(|by| *by != w) else {
            return self.convict(w, "said that it waits for somebody that there is not");
        };
        let waited = Duration::from_millis(ms);
        let is_worth_it = match (owed, to.and_then(|to| u16::try_from(to).ok())) {
            (Owed::Flows, Some(to)) => waited < EXCUSED && self.may_send_flows(group, by, to),
            (Owed::Flows, None) => false,
            // Who is not ready cannot tell yet.
            (Owed::Word, to) => {
                let most = if to.is_some() { HEARS } else { HEARS_ALL };
                self.liveness.ready_for(by).is_none_or(|ready| ready.min(waited) < most)
            }
        };
        if !is_worth_it {
            self.tell_not_to_wait(w, by, awaited);
        }
    }

    /// Worker `w` says that flows go from there to an instance, as their µNF wants it.
    pub(in crate::agent) fn flows_go(&mut self, w: usize, group: u16, to: u16) {
        let its = |crew: &Crew| {
            let is_there = usize::from(to) < crew.instances.len();
            crew.group() == group && is_there && crew.instances.iter().any(|own| own.worker == w)
        };
        if !self.memory.crews().iter().flatten().any(its) {
            return self.convict(w, "said that flows go where none of its can");
        }
        let before = self.flows.waiting.wished.insert((group, w, to), Instant::now());
        // Who says so all the time floods.
        if before.is_none_or(|before| before.elapsed() > AGAIN / 2) {
            self.trust.forgive_message(w);
        }
    }

    /// True when flows of an NF may be on their way from worker `from` to an instance.
    fn may_send_flows(&self, group: u16, from: usize, to: u16) -> bool {
        let is_open = |open: &super::Open| {
            matches!(open.order, Order::Move { group: g, to: t, .. } if (g, t) == (group, to))
                && open.waits.contains(&from)
        };
        self.flows.open.values().any(is_open) || self.flows.waiting.was_ordered(group, from, to)
    }

    fn tell_not_to_wait(&mut self, w: usize, by: usize, awaited: Awaited) {
        let Some(command) = awaited.to_command() else { return };
        let lately = |at: &Instant, most| at.elapsed() < most;
        if self.flows.waiting.told.get(&(w, awaited)).is_some_and(|at| lately(at, AGAIN)) {
            return;
        }
        if self.memory.workers[w].command.room(1) < 1 {
            return;
        }
        self.order(w, command);
        self.flows.waiting.told.insert((w, awaited), Instant::now());
        // It could not take packets until now. Who says so again and again gains nothing.
        if !self.flows.waiting.spared.get(&w).is_some_and(|at| lately(at, EXCUSED)) {
            self.flows.waiting.spared.insert(w, Instant::now());
            self.liveness.spare(w);
        }
        if awaited.owed == Owed::Flows {
            self.workers[by].unsent += 1;
        }
        self.events.push_back(Event::WaitsNoLonger { worker: w, by, owed: awaited.owed });
    }
}
