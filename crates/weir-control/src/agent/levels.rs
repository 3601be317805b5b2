//! Instances have come or gone, and flows stayed where they were: what has no flows of what is to be elsewhere now goes there, at once and as
//! flows end (E2 §5.4, migration avoidance). What an NF has by leases of ports goes with its flows: a lease is hardly ever without.

use super::flows::Scaled;
use super::{Agent, Event};
use crate::crews::Crew;
use crate::setup::Setup;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use weir_port::balance::Buckets;
use weir_runtime::moves::{BucketSet, What};
use weir_runtime::spec::{NodeSpec, SpreadSpec};

/// Time until it is looked again whether flows have ended, at first and at most: each look is one at the whole table. It grows with the time that
/// it has taken so far.
const AGAIN: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);
const PART: u32 = 8;
/// Time until it is tried again when somebody else is at it.
const SOON: Duration = Duration::from_millis(50);

/// How an NF's parts of the flow hash go where they are to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levelled {
    /// The NF; of several whose flows move together, joined by `+`.
    pub nf: String,
    /// Flows that have moved.
    pub flows: u64,
    /// Parts of the flow hash, of 65,536, that go when their flows have ended.
    pub left: u32,
    /// What did not go, and why.
    pub failures: Vec<String>,
}

impl std::fmt::Display for Levelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Levelled { nf, flows, left, failures } = self;
        let what = if failures.is_empty() { "what" } else { "some of what" };
        write!(
            f,
            "{nf}: {what} is to be at other instances now has gone there, with {flows} flows"
        )?;
        match left {
            0 => Ok(()),
            left => write!(
                f,
                ", but for {left} of 65,536 parts of the flow hash, which go when their flows have ended (or at once: weir flow move)"
            ),
        }
    }
}

/// The NFs of a graph whose buckets are elsewhere than the weights say.
#[derive(Default)]
pub(super) struct Levels {
    all: Vec<One>,
}

struct One {
    crew: Crew,
    /// With their flows.
    flows: bool,
    /// Where buckets were when it began, and where they are to be.
    begins: Buckets,
    due: Buckets,
    /// From which instance to which some are to go yet: those that were not asked for longest first.
    pairs: VecDeque<(u16, u16)>,
    /// How many of them were not asked for in this round.
    round: usize,
    /// The order that is waited for.
    waits: Option<u64>,
    begun: Instant,
    not_before: Instant,
    told: Levelled,
    /// What was told first.
    said: bool,
}

impl Levels {
    /// Of the next generation: of NFs whose instances or weights are others than `before`, all that the weights say; of others what was to go
    /// already and has not. What somebody moved on purpose stays where it is.
    pub(super) fn new(before: &Levels, old: &Setup, new: &Agent) -> Self {
        let crews = new.memory.crews().iter().flatten();
        Levels { all: crews.filter_map(|crew| One::new(before, old, &new.setup, crew)).collect() }
    }

    /// Somebody moves parts of the flow hash of this NF on purpose: they stay where they are from here on.
    pub(super) fn leave(&mut self, nf: &str) {
        self.all.retain(|one| one.crew.name != nf);
    }

    /// How many parts of the flow hash are elsewhere than they are to be.
    pub(super) fn uneven(&self) -> u32 {
        let count = |one: &One| {
            one.begins.instances().zip(one.due.instances()).filter(|(a, b)| a != b).count()
        };
        self.all.iter().map(|one| count(one) as u32).sum()
    }
}

/// The weights of an NF's instances, nothing of one that has a single one; `None` when there is no such NF.
fn weights<'s>(setup: &'s Setup, nf: &str) -> Option<&'s [u32]> {
    let mut nodes = setup.workers.iter().flat_map(|worker| &worker.nodes);
    let part = nodes.find(|node| node.name == nf)?.part;
    let group = part.and_then(|part| setup.groups.get(usize::from(part.group)));
    Some(group.map_or(&[], |group| &group.weights))
}

/// How many instances of an NF have not been stopped for good.
pub(super) fn running(setup: &Setup, nf: &str) -> usize {
    let workers = setup.workers.iter().filter(|worker| worker.runs_nfs());
    // Several may share a worker.
    let has = |node: &&NodeSpec| node.name == nf && node.nf.is_some() && node.instance_of.is_none();
    workers.flat_map(|worker| &worker.nodes).filter(has).count()
}

/// By which weights buckets are to be divided. An NF whose instances become more and fewer sees to that itself (`None`), but for instances that are to be in
/// use and have none: then those that have some are in use, too.
fn due_weights(new: &Setup, crew: &Crew, weights: &[u32], begins: &Buckets) -> Option<Vec<u32>> {
    if !new.scales.iter().any(|scale| scale.crew.groups == crew.groups) {
        return Some(weights.to_vec());
    }
    let has: BTreeSet<usize> = begins.instances().map(usize::from).collect();
    let each = weights.iter().enumerate();
    let lacks = each.clone().any(|(i, weight)| *weight > 0 && !has.contains(&i));
    lacks.then(|| each.map(|(i, weight)| (*weight).max(u32::from(has.contains(&i)))).collect())
}

/// Where buckets are to be that are here `now`, when they `began` there and were to be where `due` says: what is not where it was has gone, or somebody
/// has moved it.
fn still_due(now: &Buckets, began: &Buckets, due: &Buckets) -> Vec<u8> {
    let each = now.instances().zip(began.instances()).zip(due.instances());
    each.map(|((now, began), due)| if now == began { due } else { now }).collect()
}

/// From which instances to which.
fn pairs(begins: &Buckets, due: &Buckets) -> VecDeque<(u16, u16)> {
    let mut pairs = VecDeque::new();
    for (from, to) in begins.instances().zip(due.instances()).filter(|(from, to)| from != to) {
        let pair = (u16::from(from), u16::from(to));
        if !pairs.contains(&pair) {
            pairs.push_back(pair);
        }
    }
    pairs
}

impl One {
    /// `None` when all is where it is to be.
    fn new(before: &Levels, old: &Setup, new: &Setup, crew: &Crew) -> Option<Self> {
        let group = new.groups.get(usize::from(crew.group()))?;
        let table = group.table.as_ref()?;
        let begins = Buckets::restore(table, group.weights.len()).ok()?;
        let is_same = |nf: &String| {
            // One that was put in among them brings no flows.
            let Some(before) = weights(old, nf) else { return true };
            // What one had that was stopped for good, others have had.
            Some(before) == weights(new, nf) && running(old, nf) >= before.len()
        };
        let due = match crew.nfs.iter().all(is_same) {
            false => {
                let mut due = begins.clone();
                due.reweigh(&due_weights(new, crew, &group.weights, &begins)?).ok()?;
                due
            }
            true => {
                let one = before.all.iter().find(|one| one.crew.name == crew.name)?;
                let due = still_due(&begins, &one.begins, &one.due);
                Buckets::of(due, group.weights.len()).ok()?
            }
        };
        let one = Self::of(crew.clone(), begins, due, group.spread == SpreadSpec::Ends);
        (!one.pairs.is_empty()).then_some(one)
    }

    fn of(crew: Crew, begins: Buckets, due: Buckets, flows: bool) -> Self {
        let pairs = pairs(&begins, &due);
        let (now, round) = (Instant::now(), pairs.len());
        let nf = crew.name.clone();
        let told = Levelled { nf, flows: 0, left: 0, failures: Vec::new() };
        let (waits, begun, not_before, said) = (None, now, now, false);
        One { crew, flows, begins, due, pairs, round, waits, begun, not_before, told, said }
    }

    /// What is asked for of what goes from one instance to another.
    fn what(&self, (from, to): (u16, u16)) -> What {
        let each = self.begins.instances().zip(self.due.instances());
        let goes = each.map(|(began, due)| (u16::from(began), u16::from(due)) == (from, to));
        let set = BucketSet::new(&goes.collect::<Vec<bool>>());
        if self.flows { What::Buckets(set) } else { What::FreeOf(set) }
    }

    /// What became of an order.
    fn answered(&mut self, Scaled { flows, left, failures, .. }: Scaled) -> Option<Levelled> {
        self.waits = None;
        self.told.flows = self.told.flows.saturating_add(flows);
        self.told.left = self.told.left.saturating_add(left);
        let failed = !failures.is_empty();
        self.told.failures.extend(failures);
        if let Some(pair) = self.pairs.pop_front().filter(|_| left > 0 || failed) {
            self.pairs.push_back(pair);
        }
        self.round = self.round.saturating_sub(1);
        if self.round > 0 {
            return None;
        }
        // All were asked for once.
        self.round = self.pairs.len();
        self.not_before = Instant::now() + (self.begun.elapsed() / PART).clamp(AGAIN, LATEST);
        let told = self.told.clone();
        (self.told.left, self.told.failures) = (0, Vec::new());
        let is_news = !self.said || self.pairs.is_empty();
        self.said = true;
        is_news.then_some(told)
    }
}

impl Agent {
    /// Goes on with what is to go elsewhere. Not when the graph ends or is about to be another: then all stays where it is.
    pub(super) fn level(&mut self) {
        if self.levels.all.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.levels.all);
        for one in &mut all {
            let answer = one.waits.and_then(|ticket| self.flows.answer_to(ticket));
            let told = answer.and_then(|answer| one.answered(answer));
            self.events.extend(told.map(Event::Levelled));
        }
        // Nothing comes from one that was stopped for good, or goes there.
        let runs = |one: &One, i: u16| {
            let instance = one.crew.instances.get(usize::from(i));
            let worker = instance.and_then(|instance| self.setup.workers.get(instance.worker));
            worker.is_some_and(|worker| worker.runs_nfs())
        };
        for one in all.iter_mut().filter(|one| one.waits.is_none()) {
            let pairs = std::mem::take(&mut one.pairs);
            one.pairs =
                pairs.into_iter().filter(|(from, to)| runs(one, *from) && runs(one, *to)).collect();
            one.round = one.round.min(one.pairs.len());
        }
        all.retain(|one| !one.pairs.is_empty());
        // First things first: the change is told before what comes of it.
        let is_early = self.is_relinking() || self.generation.is_untold();
        let rests = self.stopping || self.finished || is_early;
        for one in all.iter_mut().filter(|one| !rests && one.waits.is_none()) {
            let now = Instant::now();
            let Some(&(from, to)) = one.pairs.front().filter(|_| one.not_before <= now) else {
                continue;
            };
            match self.move_for_scaling(&one.crew, from, to, one.what((from, to))) {
                Ok(ticket) => {
                    one.waits = Some(ticket);
                    // Nobody could be told: it is answered already.
                    let told = self.flows.answer_to(ticket).and_then(|answer| one.answered(answer));
                    self.events.extend(told.map(Event::Levelled));
                }
                Err(_) => one.not_before = now + SOON,
            }
        }
        self.levels.all = all;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use weir_port::balance::BUCKETS;

    fn one(begins: &Buckets, due: &Buckets, flows: bool) -> One {
        let name = "fw".to_owned();
        let (nfs, groups) = (vec![name.clone()], vec![0]);
        let (instances, senders) = (Vec::new(), Vec::new());
        let crew = Crew { groups, name, nfs, instances, senders };
        One::of(crew, begins.clone(), due.clone(), flows)
    }

    fn answer(flows: u64, left: u32) -> Scaled {
        Scaled { ticket: 0, flows, left, failures: Vec::new() }
    }

    fn buckets(what: What) -> usize {
        let (What::Buckets(set) | What::FreeOf(set)) = what else { return 0 };
        set.to_vec().into_iter().filter(|has| *has).count()
    }

    /// Two become three.
    fn grown() -> (Buckets, Buckets) {
        let begins = Buckets::new(&[1, 1]).unwrap();
        let begins = Buckets::restore(&begins.save(), 3).unwrap();
        let mut due = begins.clone();
        due.reweigh(&[1, 1, 1]).unwrap();
        (begins, due)
    }

    #[test]
    fn each_of_two_instances_gives_a_third_that_has_come_its_share_and_what_has_flows_is_asked_for_again()
     {
        let (begins, due) = grown();
        let mut one = one(&begins, &due, false);
        assert_eq!(one.pairs, [(0, 2), (1, 2)]);
        assert!(matches!(one.what((0, 2)), What::FreeOf(_)));
        let asked = [(0, 2), (1, 2)].map(|pair| buckets(one.what(pair)));
        assert_eq!(asked.iter().sum::<usize>(), BUCKETS / 3);
        // Of the first all went, of the other not.
        assert_eq!(one.answered(answer(0, 0)), None);
        let told =
            |flows, left| Some(Levelled { nf: "fw".into(), flows, left, failures: Vec::new() });
        assert_eq!(one.answered(answer(0, 70)), told(0, 70));
        assert!(one.not_before > Instant::now() && one.pairs == [(1, 2)]);
        // That is told once, and when it is over.
        assert_eq!(one.answered(answer(1, 20)), None);
        assert_eq!(one.answered(answer(0, 0)), told(1, 0));
        assert!(one.pairs.is_empty());
    }

    #[test]
    fn what_failed_is_told_and_asked_for_again() {
        let (begins, due) = grown();
        let mut one = one(&begins, &due, true);
        assert!(matches!(one.what((0, 2)), What::Buckets(_)));
        let failed = Scaled { failures: vec!["worker fw died".into()], ..answer(5, 0) };
        assert_eq!(one.answered(failed), None);
        let Some(told) = one.answered(answer(7, 0)) else { panic!("nothing was told") };
        assert_eq!((told.flows, told.left, told.failures.len()), (12, 0, 1));
        assert_eq!(one.pairs, [(0, 2)]);
    }

    #[test]
    fn in_the_next_change_what_has_gone_is_there_what_was_moved_on_purpose_stays_and_the_rest_is_still_to_go()
     {
        let (began, due) = grown();
        let elsewhere = |(began, due): (u8, u8)| began != due;
        let mut now: Vec<u8> = began.instances().collect();
        let goes: Vec<usize> = began
            .instances()
            .zip(due.instances())
            .enumerate()
            .filter(|(_, b)| elsewhere(*b))
            .map(|(at, _)| at)
            .collect();
        // The first has gone; the second, and one that was to stay, were moved by somebody.
        let stays = (0..BUCKETS).find(|at| !goes.contains(at)).unwrap();
        now[goes[0]] = 2;
        now[goes[1]] = 1 - now[goes[1]];
        now[stays] = 2;
        let now = Buckets::of(now, 3).unwrap();
        let still = Buckets::of(still_due(&now, &began, &due), 3).unwrap();
        let left = now.instances().zip(still.instances()).filter(|b| elsewhere(*b)).count();
        assert_eq!(left, goes.len() - 2);
        assert_eq!(still.instances().nth(stays), Some(2));
    }
}
