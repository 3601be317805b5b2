//! Instances that the next generation has not: what they know of flows goes to those that stay, by live migration, before anything else of the change is
//! copied. In the pause they have nothing left, or little.
//!
//! Of NFs whose flows cannot move, and of what did not go, all goes over in the pause, as of an NF that has become one again.

use super::Next;
use crate::agent::Agent;
use crate::agent::flows::Scaled;
use crate::crews::Crew;
use crate::setup::{Setup, WorkerSetup};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_runtime::moves::What;
use weir_runtime::spec::SpreadSpec;

/// So often it is tried again, when somebody died meanwhile.
const TRIES: u32 = 3;
/// After so long nothing more is asked for.
const LONGEST: Duration = Duration::from_secs(60);

/// One order: from one instance to another.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    crew: Crew,
    from: u16,
    to: u16,
    what: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// So many hundredths of its parts of the flow hash.
    Share(u8),
    /// What is there now, wherever it would go by its hash.
    Flows,
}

/// Orders that are given one after the other.
#[derive(Default)]
pub(in crate::agent) struct Errands {
    steps: VecDeque<Step>,
    /// The order that is waited for.
    waits: Option<u64>,
    tries: u32,
    since: Option<Instant>,
    /// Flows that have moved.
    pub(super) moved: u64,
    /// Those that give back what has gone, should the change fail.
    back: VecDeque<Step>,
}

/// The orders by which all that is at an instance from `has` on goes, in even shares, to those below.
fn leave(crew: &Crew, has: u16, leased: bool) -> VecDeque<Step> {
    let had = crew.instances.len() as u16;
    let mut steps = VecDeque::new();
    for from in has..had {
        let step = |to, what| Step { crew: crew.clone(), from, to, what };
        steps.extend((0..has).map(|to| step(to, Part::Share((100 / (has - to)).min(100) as u8))));
        // Flows that were moved there one by one; a lease takes its own along.
        steps.extend((!leased).then(|| step(has - 1, Part::Flows)));
    }
    steps
}

/// The reverse: those that stay give each of the others an even share.
fn come_back(crew: &Crew, has: u16) -> VecDeque<Step> {
    let had = crew.instances.len() as u16;
    let mut steps = VecDeque::new();
    for to in has..had {
        // All have the same until then: of so many shares that each gives one away.
        let share = (100 / (had - (to - has)).max(1)).min(100) as u8;
        let step = |from| Step { crew: crew.clone(), from, to, what: Part::Share(share) };
        steps.extend((0..has).map(step));
    }
    steps
}

/// How many instances an NF has.
fn count(setup: &Setup, nf: &str) -> usize {
    let has = |worker: &&WorkerSetup| {
        worker.runs_nfs() && worker.nodes.iter().any(|node| node.name == nf)
    };
    setup.workers.iter().filter(has).count()
}

impl Errands {
    fn of(agent: &Agent, next: &Setup) -> Self {
        let mut errands = Errands::default();
        for crew in agent.memory.crews().iter().flatten() {
            let group = agent.setup.groups.get(usize::from(crew.group()));
            let leased = group.is_some_and(|group| group.spread == SpreadSpec::Ends);
            let has = crew.nfs.iter().map(|nf| count(next, nf)).filter(|count| *count > 0).min();
            let has = has.and_then(|has| u16::try_from(has).ok());
            let Some(has) = has.filter(|has| usize::from(*has) < crew.instances.len()) else {
                continue;
            };
            errands.steps.extend(leave(crew, has, leased));
            errands.back.extend(come_back(crew, has));
        }
        errands
    }

    /// True when nothing is left to do.
    fn is_done(&self) -> bool {
        self.steps.is_empty() && self.waits.is_none()
    }

    /// What became of an order.
    fn answered(&mut self, flows: u64, failed: bool) {
        self.waits = None;
        self.moved = self.moved.saturating_add(flows);
        self.tries += 1;
        if !failed || self.tries >= TRIES {
            (self.tries, _) = (0, self.steps.pop_front());
        }
    }
}

impl Agent {
    /// Goes on with what instances that go are to leave to others; true when that is done.
    pub(super) fn have_left(&mut self, next: &mut Next) -> bool {
        let begins = next.leaving.is_none();
        let mut errands =
            next.leaving.take().unwrap_or_else(|| Errands::of(self, &next.agent.setup));
        if begins {
            // What a change before this one was to get back goes with this one.
            self.generation.back = Errands::default();
        }
        self.go_on_errands(&mut errands);
        let done = errands.is_done();
        next.leaving = Some(errands);
        done
    }

    /// The change failed: instances that were to go get back what they have left.
    pub(super) fn give_back(&mut self, next: &mut Next) {
        let Some(errands) = next.leaving.take().filter(|errands| errands.since.is_some()) else {
            return;
        };
        let Errands { mut steps, waits, mut back, .. } = errands;
        // What is under way goes on, and is not tried again.
        back.extend(steps.pop_front().filter(|_| waits.is_some()));
        back.rotate_right(usize::from(waits.is_some()));
        let tries = if waits.is_some() { TRIES - 1 } else { 0 };
        self.generation.back = Errands { steps: back, waits, tries, ..Errands::default() };
    }

    /// Goes on with that, while the graph is not changed again.
    pub(in crate::agent) fn go_on_giving_back(&mut self) {
        let mut errands = std::mem::take(&mut self.generation.back);
        if !self.is_relinking() && !self.stopping && !self.finished {
            self.go_on_errands(&mut errands);
        }
        self.generation.back = errands;
    }

    /// Gives the next order, if none is waited for.
    fn go_on_errands(&mut self, errands: &mut Errands) {
        let Some(step) = errands.steps.front().filter(|_| errands.waits.is_none()) else { return };
        let since = *errands.since.get_or_insert_with(Instant::now);
        // One that was stopped for good has no flows, and gets none.
        let runs = |i: u16| {
            let instance = step.crew.instances.get(usize::from(i));
            let worker = instance.and_then(|instance| self.setup.workers.get(instance.worker));
            worker.is_some_and(WorkerSetup::runs_nfs)
        };
        if since.elapsed() > LONGEST || !runs(step.from) || !runs(step.to) {
            errands.steps.pop_front();
            return;
        }
        let what = match step.what {
            Part::Share(share) => What::Share(share),
            Part::Flows => What::Flows(None),
        };
        // Somebody else's order is waited for.
        let Ok(ticket) = self.move_for_change(&step.crew, step.from, step.to, what) else { return };
        self.levels.leave(&step.crew.name);
        errands.waits = Some(ticket);
    }

    /// Takes the answers to these orders, before others do.
    pub(in crate::agent) fn hear_of_errands(&mut self) {
        let leaving = self.generation.next.as_mut().and_then(|next| next.leaving.as_mut());
        for errands in [leaving, Some(&mut self.generation.back)].into_iter().flatten() {
            let Some(ticket) = errands.waits else { continue };
            let is_its = |scaled: &mut Scaled| scaled.ticket == ticket;
            if let Some(answer) = self.flows.scaled.extract_if(.., is_its).next() {
                errands.answered(answer.flows, !answer.failures.is_empty());
            }
        }
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

    /// What each instance has of so many hundredths when these orders have been followed.
    fn follow(mut has: Vec<f64>, steps: &VecDeque<Step>) -> Vec<f64> {
        for step in steps {
            let (from, to) = (usize::from(step.from), usize::from(step.to));
            let goes = match step.what {
                Part::Share(share) => has[from] * f64::from(share) / 100.0,
                Part::Flows => has[from],
            };
            has[from] -= goes;
            has[to] += goes;
        }
        has
    }

    #[test]
    fn instances_that_go_leave_even_shares_and_nothing_stays_and_get_as_much_back_when_they_stay() {
        for (had, has) in [(2, 1), (3, 1), (3, 2), (5, 3), (16, 1), (16, 15)] {
            let crew = crew(had);
            let even = 100.0 / f64::from(had);
            let left = follow(vec![even; usize::from(had)], &leave(&crew, has, true));
            let (stay, gone) = left.split_at(usize::from(has));
            assert!(gone.iter().all(|part| *part == 0.0), "{had} to {has}: {gone:?}");
            let even = 100.0 / f64::from(has);
            assert!(
                stay.iter().all(|part| (part - even).abs() < even / 10.0),
                "{had} to {has}: {stay:?}"
            );
            let back = follow(left, &come_back(&crew, has));
            let even = 100.0 / f64::from(had);
            assert!(
                back.iter().all(|part| (part - even).abs() < even / 5.0),
                "{had} to {has}: {back:?}"
            );
        }
    }

    #[test]
    fn what_fails_is_tried_again_and_then_left_for_the_pause() {
        let steps = leave(&crew(2), 1, false);
        assert_eq!(
            steps.iter().map(|step| step.what).collect::<Vec<_>>(),
            [Part::Share(100), Part::Flows]
        );
        let mut errands = Errands { steps, ..Errands::default() };
        errands.answered(5, true);
        errands.answered(0, true);
        assert_eq!(errands.steps.len(), 2);
        errands.answered(7, true);
        assert_eq!(errands.steps.len(), 1, "three times were enough");
        errands.answered(1, false);
        assert!(errands.is_done() && errands.moved == 13);
    }
}
