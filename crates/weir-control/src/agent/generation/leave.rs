//! Instances that the next generation has not: what they know of flows goes to those that stay, by live migration, before anything else of the change is
//! copied. In the pause they have nothing left, or little.
//!
//! Of NFs whose flows cannot move, and of what did not go, all goes over in the pause, as of an NF that has become one again.

use super::Next;
use crate::agent::Agent;
use crate::agent::flows::Desk;
use crate::agent::levels::running;
use crate::crews::Crew;
use crate::setup::{Setup, WorkerSetup};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_runtime::moves::What;

/// So often it is tried again, when somebody died meanwhile.
const TRIES: u32 = 3;
/// Time until then.
const SOON: Duration = Duration::from_millis(50);
/// After so long nothing more is asked for.
const LONGEST: Duration = Duration::from_secs(60);

/// One order: from one instance to another so many hundredths of its parts of the flow hash, with the flows that are in them and, when it is all, those
/// that are there by themselves.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    crew: Crew,
    from: u16,
    to: u16,
    share: u8,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An instance leaves; so many hundredths of what the other has then give that back.
    Leaves(u8),
    /// As [`Kind::Leaves`], of an NF whose instances become more and fewer by themselves: they get again what they need.
    LeavesForGood,
    GivesBack,
}

/// Orders that are given one after the other.
#[derive(Default)]
pub(in crate::agent) struct Errands {
    steps: VecDeque<Step>,
    /// The order that is waited for.
    waits: Option<u64>,
    tries: u32,
    not_before: Option<Instant>,
    since: Option<Instant>,
    /// Flows that have left.
    pub(super) moved: u64,
    /// Those that give back what has gone, should the change fail: what went last comes first.
    back: VecDeque<Step>,
}

/// The orders by which all that is at an instance from `has` on goes, in even shares, to some of those below.
fn leave(crew: &Crew, has: u16, targets: &[u16], for_good: bool) -> VecDeque<Step> {
    let had = crew.instances.len() as u16;
    let mut steps = VecDeque::new();
    for (from, gone) in (has..had).zip(1..) {
        for (to, left) in targets.iter().zip((1..=targets.len()).rev()) {
            // Of even shares: what it gets is one part of so many as it has then.
            let kind = match for_good {
                true => Kind::LeavesForGood,
                false => Kind::Leaves((100 / (targets.len() + gone)) as u8),
            };
            let share = (100 / left) as u8;
            steps.push_back(Step { crew: crew.clone(), from, to: *to, share, kind });
        }
    }
    steps
}

/// How many of its instances a crew's NFs that remember flows will have, where that is fewer than it has.
fn fewer(crew: &Crew, next: &Setup) -> Option<u16> {
    let mut counts = crew.name.split('+').map(|nf| running(next, nf)).filter(|count| *count > 0);
    let has = counts.next().filter(|has| *has < crew.instances.len())?;
    // Where they will have different numbers nothing is known of where each goes.
    counts.all(|other| other == has).then(|| u16::try_from(has).ok())?
}

impl Errands {
    fn of(agent: &mut Agent, next: &Setup) -> Self {
        // What a change before this one was to get back it gets, where it stays.
        let mut errands = std::mem::take(&mut agent.generation.back);
        errands.begin_giving_back();
        let waits = usize::from(errands.waits.is_some());
        let mut at = 0..;
        errands.steps.retain(|step| {
            at.next().is_some_and(|at| at < waits) || fewer(&step.crew, next).is_none()
        });
        (errands.since, errands.moved) = (None, 0);
        for crew in agent.memory.crews().iter().flatten() {
            let Some(has) = fewer(crew, next) else { continue };
            // Of an NF whose instances become more and fewer by themselves to those in use.
            let scales = agent.scales.in_use(&crew.name);
            let in_use = scales.iter().flatten().copied().filter(|i| *i < has);
            let mut targets: Vec<u16> = in_use.collect();
            if targets.is_empty() {
                targets = (0..has).collect();
            }
            errands.steps.extend(leave(crew, has, &targets, scales.is_some()));
        }
        errands
    }

    /// True when nothing is left to do.
    fn is_done(&self) -> bool {
        self.steps.is_empty() && self.waits.is_none()
    }

    /// It takes longer than it may.
    pub(super) fn is_late(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > LONGEST)
    }

    /// An order of its own is waited for, and not for too long.
    pub(super) fn goes_on(&self) -> bool {
        self.waits.is_some() && !self.is_late()
    }

    /// What became of an order.
    fn answered(&mut self, flows: u64, failed: bool) {
        self.waits = None;
        let gives_back = self.steps.front().is_some_and(|step| step.kind == Kind::GivesBack);
        self.moved = self.moved.saturating_add(if gives_back { 0 } else { flows });
        self.tries += 1;
        if failed {
            self.not_before = Some(Instant::now() + SOON);
        }
        if failed && self.tries < TRIES {
            return;
        }
        self.tries = 0;
        let Some(step) = self.steps.pop_front() else { return };
        if let (Kind::Leaves(share), true) = (step.kind, flows > 0) {
            let (from, to, kind) = (step.to, step.from, Kind::GivesBack);
            self.back.push_front(Step { from, to, share, kind, ..step });
        }
    }

    /// The change failed. What is under way goes on, and is not tried again; and what has gone comes back.
    fn turn_back(&mut self) {
        let waits = usize::from(self.waits.is_some());
        let mut at = 0..;
        self.steps
            .retain(|step| at.next().is_some_and(|at| at < waits) || step.kind == Kind::GivesBack);
        self.tries = if waits > 0 { TRIES - 1 } else { 0 };
        self.since = None;
    }

    /// Once nothing else is left.
    fn begin_giving_back(&mut self) {
        self.steps.extend(std::mem::take(&mut self.back));
    }

    /// Somebody moves flows of this NF on purpose: they stay where they are.
    pub(in crate::agent) fn leave_alone(&mut self, nf: &str) {
        self.back.retain(|step| step.crew.name != nf);
        if self.waits.is_none() {
            self.steps.retain(|step| step.crew.name != nf);
        }
    }
}

impl Agent {
    /// Goes on with what instances that go are to leave to others; true when that is done.
    pub(super) fn have_left(&mut self, next: &mut Next) -> bool {
        let mut errands = match next.leaving.take() {
            Some(errands) => errands,
            None => Errands::of(self, &next.agent.setup),
        };
        self.go_on_errands(&mut errands);
        let done = errands.is_done();
        next.leaving = Some(errands);
        done
    }

    /// The change failed: instances that were to go get back what they have left.
    pub(super) fn give_back(&mut self, next: &mut Next) {
        if let Some(mut errands) = next.leaving.take() {
            errands.turn_back();
            self.generation.back = errands;
        }
    }

    /// Goes on with that, while the graph is not changed again.
    pub(in crate::agent) fn go_on_giving_back(&mut self) {
        let mut errands = std::mem::take(&mut self.generation.back);
        if !self.is_relinking() && !self.stopping && !self.finished {
            if errands.is_done() {
                errands.begin_giving_back();
            }
            self.go_on_errands(&mut errands);
        }
        self.generation.back = errands;
    }

    /// Gives the next order, if none is waited for.
    fn go_on_errands(&mut self, errands: &mut Errands) {
        let now = Instant::now();
        let is_early = errands.not_before.is_some_and(|at| now < at);
        let idle = errands.waits.is_none() && !is_early;
        let Some(step) = errands.steps.front().filter(|_| idle) else { return };
        errands.since.get_or_insert(now);
        // One that was stopped for good has no flows, and gets none.
        let runs = |i: u16| {
            let instance = step.crew.instances.get(usize::from(i));
            let worker = instance.and_then(|instance| self.setup.workers.get(instance.worker));
            worker.is_some_and(WorkerSetup::runs_nfs)
        };
        if errands.is_late() || !runs(step.from) || !runs(step.to) {
            errands.steps.pop_front();
            return;
        }
        let what = What::Share(step.share);
        // Somebody else's order is waited for.
        let Ok(ticket) = self.move_for_scaling(&step.crew, step.from, step.to, what) else {
            return;
        };
        self.levels.leave(&step.crew.name);
        errands.waits = Some(ticket);
        // Nobody could be told: it is answered already.
        hear(errands, &mut self.flows);
    }

    /// Takes the answers to these orders, before others do.
    pub(in crate::agent) fn hear_of_errands(&mut self) {
        let leaving = self.generation.next.as_mut().and_then(|next| next.leaving.as_mut());
        for errands in [leaving, Some(&mut self.generation.back)].into_iter().flatten() {
            hear(errands, &mut self.flows);
        }
    }
}

fn hear(errands: &mut Errands, desk: &mut Desk) {
    if let Some(answer) = errands.waits.and_then(|ticket| desk.answer_to(ticket)) {
        errands.answered(answer.flows, !answer.failures.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crews::Instance;

    fn crew(instances: u16) -> Crew {
        let instance = |i| Instance { worker: usize::from(i), entries: Vec::new(), nodes: vec![0] };
        let (name, nfs) = ("fw".to_owned(), vec!["fw".to_owned()]);
        let instances = (0..instances).map(instance).collect();
        Crew { groups: vec![0], name, nfs, instances, senders: Vec::new() }
    }

    /// What each instance has of so many hundredths when these orders have been followed; each has moved some flows.
    fn follow(has: &mut [f64], errands: &mut Errands, orders: usize) {
        for _ in 0..orders {
            let Some(step) = errands.steps.front() else { return };
            let (from, to) = (usize::from(step.from), usize::from(step.to));
            let goes = has[from] * f64::from(step.share) / 100.0;
            has[from] -= goes;
            has[to] += goes;
            errands.answered(1, false);
        }
    }

    fn is_even(parts: &[f64]) -> bool {
        let even = 100.0 / parts.len() as f64;
        parts.iter().all(|part| (part - even).abs() < even / 6.0)
    }

    #[test]
    fn instances_that_go_leave_even_shares_and_get_back_what_they_have_left_whenever_the_change_fails()
     {
        for (had, has) in [(2_u16, 1_u16), (3, 1), (3, 2), (5, 3), (16, 1), (16, 15)] {
            let targets: Vec<u16> = (0..has).collect();
            let steps = leave(&crew(had), has, &targets, false);
            for orders in 0..=steps.len() {
                let mut errands = Errands { steps: steps.clone(), ..Errands::default() };
                let mut parts = vec![100.0 / f64::from(had); usize::from(had)];
                follow(&mut parts, &mut errands, orders);
                if orders == steps.len() {
                    let (stay, gone) = parts.split_at(usize::from(has));
                    assert!(is_even(stay) && gone.iter().all(|part| *part == 0.0), "{parts:?}");
                }
                errands.turn_back();
                assert!(errands.is_done(), "what was not begun is not done");
                errands.begin_giving_back();
                follow(&mut parts, &mut errands, usize::MAX);
                assert!(is_even(&parts), "{had} to {has}, after {orders} orders: {parts:?}");
                assert!(errands.is_done() && errands.back.is_empty());
            }
        }
    }

    #[test]
    fn what_fails_is_tried_again_and_then_left_for_the_pause_and_nobody_gets_back_what_did_not_go()
    {
        let mut errands = Errands { steps: leave(&crew(3), 1, &[0], false), ..Errands::default() };
        for flows in [0, 0] {
            errands.answered(flows, true);
            assert_eq!(errands.steps.len(), 2);
        }
        errands.answered(0, true);
        assert_eq!(errands.steps.len(), 1, "three times were enough");
        errands.waits = Some(1);
        errands.turn_back();
        // What is under way is not known yet, and comes back when it has gone.
        assert_eq!((errands.steps.len(), errands.back.len()), (1, 0));
        errands.answered(13, false);
        assert!(errands.is_done() && errands.moved == 13);
        let back: Vec<_> = errands.back.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(back, [(0, 2)]);
        errands.leave_alone("fw");
        assert!(errands.back.is_empty());
    }
}
