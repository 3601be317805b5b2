//! Instances in use become more and fewer: what [`Scaler`] is to see is read from memory, and what it asks for is ordered.

use super::flows::{Given, Scaled};
use super::{Agent, Event, State};
use crate::crews::{Crew, Instance};
use crate::memory::Memory;
use crate::scale::{Answer, Ask, FULL, LOOK, Load, Part, Rule, Scaler};
use crate::setup::{LaneSetup, ScaleSetup, Setup};
use std::time::{Duration, Instant};
use weir_packet::DropReason;
use weir_runtime::layout::NodeCounts;
use weir_runtime::moves::{Order, What};
use weir_runtime::spec::EndSpec;

/// The NFs of a graph whose instances become more and fewer.
pub(super) struct Scales {
    all: Vec<One>,
    begun: Instant,
    looked: Duration,
}

struct One {
    scaler: Scaler,
    crew: Crew,
    /// The order that it waits for.
    waits: Option<u64>,
}

impl Scales {
    pub(super) fn new(setup: &Setup) -> Self {
        let one = |scale: &ScaleSetup| One {
            scaler: Scaler::new(scale.rule),
            crew: scale.crew.clone(),
            waits: None,
        };
        let all = setup.scales.iter().map(one).collect();
        Scales { all, begun: Instant::now(), looked: Duration::ZERO }
    }

    /// Instances in use of the NF of this name; `None` of one whose instances are always so many.
    pub(super) fn in_use(&self, nf: &str) -> Option<Vec<u16>> {
        let one = self.all.iter().find(|one| one.crew.name == nf)?;
        Some(one.scaler.in_use().collect())
    }

    /// Goes on where those of the generation before were: flows are where they were, whatever the limits are now, and so the
    /// instances that have some are in use. Packets that divide anew at once do so by the weights that the graph begins with. What is
    /// to be told of changes that are given up by this.
    pub(super) fn go_on_from(&mut self, before: &mut Scales) -> Vec<Event> {
        (self.begun, self.looked) = (before.begun, before.looked);
        let now = self.begun.elapsed();
        let mut told = Vec::new();
        for mut old in std::mem::take(&mut before.all) {
            let limits = |rule: &Rule| rule.way.keeps_flows().then_some((rule.min, rule.max));
            let mut named = self.all.iter_mut().filter(|new| new.crew.name == old.crew.name);
            let same = named.next();
            let is_same = |new: &One| {
                let (new, old) = (limits(new.scaler.rule()), limits(old.scaler.rule()));
                new.is_some() && new == old
            };
            match same {
                Some(new) if is_same(new) => {
                    old.scaler.go_on_with(*new.scaler.rule());
                    (new.scaler, new.waits) = (old.scaler, old.waits);
                    continue;
                }
                Some(new) => new.scaler.take_up(&old.scaler),
                None => {}
            }
            old.scaler.give_up(now, "the graph was changed".into());
            let nf = old.crew.name;
            let decisions = old.scaler.decisions().into_iter();
            told.extend(decisions.map(|decision| Event::Scaled { nf: nf.clone(), decision }));
        }
        told
    }
}

impl Agent {
    /// Looks whether an NF has too few or too many instances, and goes on with what is under way. Not when the graph ends or
    /// is about to be another: then all stays where it is.
    pub(super) fn scale(&mut self) {
        if self.scales.all.is_empty() {
            return self.flows.scaled.clear();
        }
        let now = self.scales.begun.elapsed();
        let mut scales = std::mem::take(&mut self.scales.all);
        for Scaled { ticket, flows, left, failures } in std::mem::take(&mut self.flows.scaled) {
            if let Some(one) = scales.iter_mut().find(|one| one.waits == Some(ticket)) {
                one.waits = None;
                one.scaler.answered(now, answer(flows, left, &failures));
            }
        }
        let rests = self.stopping || self.finished || self.is_relinking();
        let is_due = now.saturating_sub(self.scales.looked) >= LOOK;
        if is_due {
            self.scales.looked = now;
        }
        for one in &mut scales {
            if !rests {
                if is_due {
                    let loads = self.loads(&one.crew);
                    one.scaler.look(now, &loads);
                }
                if let Some(ask) = one.scaler.ask(now) {
                    self.perform(one, now, ask);
                }
            }
            let nf = &one.crew.name;
            let told = |decision| Event::Scaled { nf: nf.clone(), decision };
            self.events.extend(one.scaler.decisions().into_iter().map(told));
        }
        self.scales.all = scales;
    }

    fn perform(&mut self, one: &mut One, now: Duration, ask: Ask) {
        let done = match ask {
            Ask::Move { from, to, part } => {
                let what = match part {
                    Part::Some { flows, keep } => What::Some { flows, keep },
                    Part::Free { keep } => What::Free { keep },
                    Part::All => What::Share(100),
                };
                match self.move_for_scaling(&one.crew, from, to, what) {
                    Ok(ticket) => {
                        self.levels.leave(&one.crew.name);
                        one.waits = Some(ticket);
                        return;
                    }
                    Err(_) => Answer::NotNow,
                }
            }
            Ask::Weigh(weights) => self.weigh(&one.crew, weights),
        };
        one.scaler.answered(now, done);
    }

    /// Tells who divides packets of other weights.
    fn weigh(&mut self, crew: &Crew, weights: Vec<u32>) -> Answer {
        // One that does not take it now is told again with all others: it changes nothing for who knows. One that has ended
        // divides nothing any more.
        let mut all = true;
        for &group in &crew.groups {
            // Who is started again divides by these at once.
            if let Some(group) = self.setup.groups.get_mut(usize::from(group)) {
                group.weights.clone_from(&weights);
            }
            let order = Order::Weigh { group, weights: weights.clone() };
            for w in &crew.senders {
                let ended = matches!(self.workers[*w].state, State::Gone);
                all &= ended || matches!(self.give(*w, &order), Given::Told);
            }
        }
        if all { Answer::Done(0) } else { Answer::NotNow }
    }

    /// What there is to see of each instance.
    fn loads(&self, crew: &Crew) -> Vec<Load> {
        crew.instances.iter().map(|instance| self.load(crew, instance)).collect()
    }

    fn load(&self, crew: &Crew, Instance { worker: w, entries, .. }: &Instance) -> Load {
        let w = *w;
        let lanes = || self.setup.lanes.iter().zip(&self.memory.lanes);
        let comes = |lane: &LaneSetup| {
            lane.to == w && entries.contains(&lane.node) && crew.senders.contains(&lane.from)
        };
        let (mut filled, mut behind, mut drops) = (0, 0, 0_u64);
        for (lane, ring) in lanes().filter(|(lane, _)| lane.has_packets()) {
            let full =
                (ring.inspector.len() * 100 / ring.inspector.capacity().max(1)).min(100) as u8;
            if comes(lane) {
                filled = filled.max(full);
            }
            if lane.from == w {
                behind = behind.max(full);
            }
        }
        for source in 0..self.setup.sources {
            if lanes().any(|(lane, _)| comes(lane) && lane.source == source) {
                drops = drops.wrapping_add(dropped(&self.setup, &self.memory, source));
            }
        }
        let goes = self.liveness.is_ready(w) && self.can_take(w) && behind < FULL;
        let count = |node: &u16| counts(&self.memory, w, (*node).into());
        let packets = entries.iter().filter_map(count).map(|counts| counts.packets);
        let packets = packets.fold(0, u64::wrapping_add);
        let there = self.setup.workers.get(w).is_some_and(|worker| worker.runs_nfs());
        Load { there, filled, hindered: !goes, packets, drops }
    }
}

/// What an order's answer means.
fn answer(flows: u64, left: u32, failures: &[String]) -> Answer {
    match failures.first() {
        None if left > 0 => Answer::Left(flows, left),
        None => Answer::Done(flows),
        Some(why) => Answer::Failed(flows, why.clone()),
    }
}

pub(super) fn counts(memory: &Memory, w: usize, node: usize) -> Option<NodeCounts> {
    let worker = memory.workers.get(w)?;
    Some(NodeCounts::read(&worker.ledger.read()?, &worker.layout, node))
}

/// What was dropped of a source for want of room further on.
fn dropped(setup: &Setup, memory: &Memory, source: u16) -> u64 {
    let is_its = |end: &EndSpec| matches!(end, EndSpec::Rx { source: own, .. } if *own == source);
    let service = setup.workers.iter().position(|worker| is_its(&worker.end));
    let counts = service.and_then(|w| counts(memory, w, 0));
    let of = |reason: DropReason| {
        counts.as_ref().and_then(|c| c.drops.get(reason as usize).copied()).unwrap_or(0)
    };
    of(DropReason::KernelFull).wrapping_add(of(DropReason::EarlyDrop))
}
