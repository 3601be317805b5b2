//! Instances have come or gone, and flows stayed where they were: what has no flows of what is to be elsewhere now goes there, at once and as
//! flows end (E2 §5.4, migration avoidance). What an NF has by leases of ports goes with its flows: a lease is hardly ever without.

use super::flows::Scaled;
use super::generation::levels;
use super::{Agent, Event};
use crate::crews::{Crew, Unmovable};
use crate::setup::Setup;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_port::balance::Buckets;
use weir_runtime::moves::What;
use weir_runtime::spec::SpreadSpec;

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
        let Levelled { nf, flows, left, .. } = self;
        write!(f, "{nf}: what is to be at other instances now has gone there, with {flows} flows")?;
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
    /// Parts of the flow hash that were elsewhere when it began.
    uneven: u32,
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
    pub(super) fn new(setup: &Setup, crews: &[Result<Crew, Unmovable>]) -> Self {
        let all = crews.iter().flatten().filter(|crew| levels(setup, crew));
        Levels { all: all.filter_map(|crew| One::new(setup, crew)).collect() }
    }

    /// How many parts of the flow hash are elsewhere than they are to be.
    pub(super) fn uneven(&self) -> u32 {
        self.all.iter().map(|one| one.uneven).sum()
    }
}

impl One {
    /// `None` when all is where it is to be.
    fn new(setup: &Setup, crew: &Crew) -> Option<Self> {
        let group = setup.groups.get(usize::from(crew.group()))?;
        let table = group.table.as_ref()?;
        let begins = Buckets::restore(table, group.weights.len()).ok()?;
        let mut level = begins.clone();
        level.reweigh(&group.weights).ok()?;
        let mut pairs = VecDeque::new();
        let mut uneven = 0;
        for (from, to) in begins.instances().zip(level.instances()).filter(|(from, to)| from != to)
        {
            uneven += 1;
            let pair = (u16::from(from), u16::from(to));
            if !pairs.contains(&pair) {
                pairs.push_back(pair);
            }
        }
        let now = Instant::now();
        let nf = crew.name.clone();
        let told = Levelled { nf, flows: 0, left: 0, failures: Vec::new() };
        let round = pairs.len();
        (round > 0).then(|| One {
            crew: crew.clone(),
            flows: group.spread == SpreadSpec::Ends,
            uneven,
            pairs,
            round,
            waits: None,
            begun: now,
            not_before: now,
            told,
            said: false,
        })
    }

    /// What became of an order.
    fn answered(&mut self, Scaled { flows, left, failures, .. }: Scaled) -> Option<Event> {
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
        is_news.then_some(Event::Levelled(told))
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
            let is_its = |scaled: &mut Scaled| one.waits == Some(scaled.ticket);
            let answer = self.flows.scaled.extract_if(.., is_its).next();
            let told = answer.and_then(|answer| one.answered(answer));
            self.events.extend(told);
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
        let rests = self.stopping || self.finished || self.is_relinking();
        for one in all.iter_mut().filter(|one| !rests && one.waits.is_none()) {
            let now = Instant::now();
            let Some(&(from, to)) = one.pairs.front().filter(|_| one.not_before <= now) else {
                continue;
            };
            match self.move_for_scaling(&one.crew, from, to, What::Home { flows: one.flows }) {
                Ok(ticket) => one.waits = Some(ticket),
                Err(_) => one.not_before = now + SOON,
            }
        }
        self.levels.all = all;
    }
}
