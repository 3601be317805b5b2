//! Flows go over while packets flow (pre-copy: Clark et al., "Live Migration of Virtual Machines", NSDI 2005), so that only
//! what has changed since is left for the pause.
//!
//! A worker of the running generation writes some flows into its memory for what is handed over, between two batches; they are given to the worker of
//! the next generation that has the NF, which takes them while the first goes on. When all have been copied, those that
//! have changed meanwhile are, as long as there are fewer each time. Who dies meanwhile is mended as ever, and copied from the beginning.

use super::in_front::InFront;
use super::{Next, RelinkError};
use crate::agent::flows::Given;
use crate::agent::{Agent, State};
use crate::setup::Setup;
use crate::voice::shortened;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_runtime::handover::{Handed, NfFlows};
use weir_runtime::moves::Order;
use weir_runtime::spec::command;

/// Bytes that are copied of an NF at a time: some thousands of flows, for which a worker takes half a millisecond.
const MOST: u32 = 256 << 10;
/// So few that have changed of a worker's flows since it was asked before take less time than what is under way needs to run out.
const FEW: u64 = 512;
/// So often more is copied of each worker although no fewer have changed each time than ever before.
const IN_VAIN: u32 = 16;
/// So long it is waited for who takes flows, before the agent looks after others.
const LOOK: Duration = Duration::from_micros(20);
const WHILE: Duration = Duration::from_millis(3);
/// How long somebody may need to copy some, or to take some.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is copied from one worker.
struct Task {
    w: usize,
    /// Its process: its successor knows nothing of it.
    pid: Option<u32>,
    /// Nodes, and who of the next generation takes their flows.
    nodes: BTreeMap<u16, usize>,
    /// Flows that were to be copied when it was asked last: all at first, then what had changed since it was asked before. How many it will be
    /// when packets come no more follows from it. `None`: it was not asked yet.
    due: Option<u64>,
    /// Flows that there were at first, less those that were copied since: what was not copied yet at all.
    new: u64,
}

/// How far flows have been copied.
#[derive(Default)]
pub(super) struct Precopy {
    tasks: Vec<Task>,
    /// Who was asked for some, by task, and when.
    asked: Option<(usize, Instant)>,
    /// Who takes some, since when.
    taking: Option<Instant>,
    /// Fewest that were ever to be copied of all, and how often somebody was asked since.
    fewest: Option<u64>,
    in_vain: u32,
    /// Flows that were copied, each as often as it was.
    pub(super) copied: u64,
}

/// What a worker says of flows that it was told to copy.
#[derive(Debug, Default)]
pub(in crate::agent) struct Copied {
    pub(in crate::agent) copied: u64,
    pub(in crate::agent) left: u64,
    pub(in crate::agent) why: Option<String>,
}

/// What the agent has asked for, and the answer.
#[derive(Debug, Default)]
pub(in crate::agent) struct Copies {
    /// Of the latest request.
    ticket: u64,
    asked: Option<usize>,
    answer: Option<Copied>,
}

/// What an answer is worth.
pub(in crate::agent) enum Answered {
    /// It was asked for.
    Now,
    /// It was, for a change that was given up.
    Late,
    /// It was not.
    Unasked,
}

impl Copies {
    /// Nobody is asked, and what somebody was asked is not waited for.
    fn forget(&mut self) {
        self.ticket += 1;
        (self.asked, self.answer) = (None, None);
    }

    /// Worker `w` says that it has copied what it was asked for.
    pub(in crate::agent) fn answered(&mut self, w: usize, ticket: u64, copied: Copied) -> Answered {
        if ticket == self.ticket && self.asked == Some(w) {
            (self.asked, self.answer) = (None, Some(copied));
            return Answered::Now;
        }
        match ticket < self.ticket {
            true => Answered::Late,
            false => Answered::Unasked,
        }
    }
}

impl Precopy {
    /// What can be copied: of each NF that as many workers have in both, so that each has one successor, which gets all its flows.
    pub(super) fn new(before: &Setup, next: &Setup) -> Self {
        let (old, new) = (holders(before), holders(next));
        let mut tasks: BTreeMap<usize, BTreeMap<u16, usize>> = BTreeMap::new();
        for (nf, holders) in old {
            let Some(takers) = new.get(&nf).filter(|takers| takers.len() == holders.len()) else {
                continue;
            };
            if super::switch::is_divided_anew(before, next, nf, takers.len()) {
                continue;
            }
            for ((w, node), (taker, _)) in holders.iter().zip(takers) {
                tasks.entry(*w).or_default().insert(*node, *taker);
            }
        }
        let task = |(w, nodes)| Task { w, pid: None, nodes, due: None, new: 0 };
        Precopy { tasks: tasks.into_iter().map(task).collect(), ..Precopy::default() }
    }

    /// More is copied, as the switch has to wait.
    pub(super) fn go_on(&mut self) {
        (self.fewest, self.in_vain) = (None, 0);
    }

    /// The worker that is to be asked next: of which most were; `None` when it is not worth it any more.
    fn next(&self) -> Option<usize> {
        let due = |task: &Task| task.due.unwrap_or(u64::MAX);
        let (at, most) = self.tasks.iter().enumerate().max_by_key(|(_, task)| due(task))?;
        let vain = IN_VAIN * self.tasks.len() as u32;
        let is_good = self.in_vain > vain / 2 && self.is_least();
        let in_vain = is_good || self.in_vain > vain;
        (due(most) > FEW && (!in_vain || most.due.is_none())).then_some(at)
    }

    /// About as few as ever: a good moment, when there will be no fewer.
    fn is_least(&self) -> bool {
        let due: Option<u64> = self.tasks.iter().map(|task| task.due).sum();
        self.fewest.zip(due).is_some_and(|(fewest, due)| due <= fewest.saturating_add(fewest / 8))
    }

    /// Each flow was copied once: what is left has changed since.
    fn all_were_copied(&self) -> bool {
        self.tasks.iter().all(|task| task.due.is_some() && task.new == 0)
    }

    /// A worker has copied some.
    fn count(&mut self, task: usize, copied: &Copied) {
        self.copied += copied.copied;
        let due = copied.copied.saturating_add(copied.left);
        for task in self.tasks.iter_mut().skip(task).take(1) {
            let new = if task.due.is_none() { due } else { task.new };
            task.new = new.saturating_sub(copied.copied);
            task.due = Some(due);
        }
        let due: Option<u64> = self.tasks.iter().map(|task| task.due).sum();
        self.in_vain += 1;
        // Fewer by an eighth of what was copied: what comes and goes by chance is no progress.
        let least = copied.copied / 8;
        let is_fewer = |due: u64| self.fewest.is_none_or(|few| due.saturating_add(least) <= few);
        if due.is_none_or(is_fewer) || !self.all_were_copied() {
            (self.fewest, self.in_vain) = (due, 0);
        }
    }
}

/// By name and type, in which worker's which node an NF is, in order.
type Holders<'s> = BTreeMap<(&'s str, &'s str), Vec<(usize, u16)>>;

fn holders(setup: &Setup) -> Holders<'_> {
    let mut all = Holders::new();
    for (w, worker) in setup.workers.iter().enumerate().filter(|(_, worker)| worker.runs_nfs()) {
        for (node, spec) in (0..).zip(&worker.nodes) {
            if let Some((kind, _)) = spec.nf.as_ref().filter(|_| spec.instance_of.is_none()) {
                all.entry((&spec.name, kind)).or_default().push((w, node));
            }
        }
    }
    all
}

impl Agent {
    /// Goes on copying flows to the next generation; true when no more are to be copied before the pause.
    pub(super) fn precopy(&mut self, next: &mut Next) -> Result<bool, RelinkError> {
        let mut precopy = match next.precopy.take() {
            Some(precopy) => precopy,
            None => Precopy::new(&self.setup, &next.agent.setup),
        };
        let done = self.copy_some(&mut precopy, &mut next.agent);
        if precopy.all_were_copied() {
            next.in_front.get_or_insert_with(|| InFront::step(&self.setup));
        }
        next.precopy = Some(precopy);
        done
    }

    fn copy_some(&mut self, precopy: &mut Precopy, to: &mut Agent) -> Result<bool, RelinkError> {
        if let Some(since) = precopy.taking {
            if !to.have_taken_some(since)? {
                return Ok(false);
            }
            precopy.taking = None;
        }
        self.begin_anew_with_successors(precopy);
        if let Some((at, since)) = precopy.asked {
            let Some(copied) = self.generation.copies.answer.take() else {
                if since.elapsed() > PATIENCE {
                    let worker = self.setup.workers[precopy.tasks[at].w].name.clone();
                    return Err(RelinkError::NotCopied { worker, patience: PATIENCE });
                }
                return Ok(false);
            };
            precopy.asked = None;
            let (w, nodes) = (precopy.tasks[at].w, &precopy.tasks[at].nodes);
            self.hand_ahead(w, nodes, &copied, to)?;
            precopy.taking = Some(Instant::now());
            precopy.count(at, &copied);
        }
        // What was given last is taken while packets that are under way run out.
        let Some(at) = precopy.next() else { return Ok(true) };
        let task = &mut precopy.tasks[at];
        let copies = &mut self.generation.copies;
        copies.forget();
        copies.asked = Some(task.w);
        let (ticket, nodes) = (copies.ticket, task.nodes.keys().copied().collect());
        let order = Order::Precopy { ticket, nodes, first: task.due.is_none(), most: MOST };
        let w = task.w;
        task.pid = self.pid(w);
        match self.give(w, &order) {
            Given::Told => precopy.asked = Some((at, Instant::now())),
            Given::Later | Given::Full | Given::Not(_) => self.generation.copies.forget(),
        }
        Ok(false)
    }

    /// Waits until all that was given is taken, before more is given: packets have run out.
    pub(super) fn finish_precopy(&mut self, next: &mut Next) -> Result<(), RelinkError> {
        while let Some(since) = next.precopy.as_ref().and_then(|precopy| precopy.taking) {
            if next.agent.have_taken_some(since)? {
                next.precopy.iter_mut().for_each(|precopy| precopy.taking = None);
            }
        }
        Ok(())
    }

    /// Who has died since it was asked knows of no copy: neither what it was asked for comes, nor what has changed.
    fn begin_anew_with_successors(&mut self, precopy: &mut Precopy) {
        for (at, task) in precopy.tasks.iter_mut().enumerate() {
            if task.pid.is_some() && task.pid != self.pid(task.w) {
                (task.pid, task.due) = (None, None);
                if precopy.asked.is_some_and(|(asked, _)| asked == at) {
                    precopy.asked = None;
                    self.generation.copies.forget();
                }
            }
        }
    }

    /// Gives what worker `w` has copied to those who take over its NFs.
    fn hand_ahead(
        &mut self,
        w: usize,
        nodes: &BTreeMap<u16, usize>,
        copied: &Copied,
        to: &mut Agent,
    ) -> Result<(), RelinkError> {
        let name = |agent: &Agent, w: usize| agent.setup.workers[w].name.clone();
        if let Some(why) = &copied.why {
            return Err(RelinkError::State { worker: name(self, w), why: shortened(why.clone()) });
        }
        let flows = match self.memory.handed_over(w) {
            Some(Handed::Ahead(flows)) => Some(flows),
            Some(Handed::All(_)) | None => None,
        };
        // Its own word, in its own memory: another NF's flows it has none of.
        let taker = |flows: &NfFlows| {
            nodes.iter().find_map(|(node, taker)| {
                let spec = self.setup.workers[w].nodes.get(usize::from(*node))?;
                let is_own = spec.name == flows.name
                    && spec.nf.as_ref().is_some_and(|(kind, _)| *kind == flows.kind);
                is_own.then_some(*taker)
            })
        };
        let mut shares: BTreeMap<usize, Vec<NfFlows>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut sound = flows.is_some();
        for flows in flows.into_iter().flatten() {
            match taker(&flows).filter(|_| seen.insert(flows.name.clone())) {
                Some(taker) => shares.entry(taker).or_default().push(flows),
                None => sound = false,
            }
        }
        if !sound {
            self.convict(w, "copied flows that are not its own, or nothing that can be read");
            let why = "it is not to be believed".to_owned();
            return Err(RelinkError::State { worker: name(self, w), why });
        }
        to.generation.taking.clear();
        for (taker, flows) in shares {
            to.memory
                .hand_ahead_to(taker, &flows)
                .map_err(|e| RelinkError::State { worker: name(to, taker), why: e.to_string() })?;
            if matches!(to.workers[taker].state, State::Running(_)) {
                to.generation.taking.insert(taker, None);
                to.order(taker, command::TAKE_OVER);
            }
        }
        Ok(())
    }

    /// Of the next generation: true when all have taken what was given to them since then. Waits for a moment.
    fn have_taken_some(&mut self, given: Instant) -> Result<bool, RelinkError> {
        let since = Instant::now();
        loop {
            self.stand_by()?;
            let waited = self.generation.taking.iter().find(|(_, answer)| answer.is_none());
            let Some((&w, _)) = waited else { break };
            if given.elapsed() > PATIENCE {
                let worker = self.setup.workers[w].name.clone();
                return Err(RelinkError::Unready { worker, patience: PATIENCE });
            }
            if since.elapsed() > WHILE {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        for (w, taken) in std::mem::take(&mut self.generation.taking) {
            let refused = taken.map(|taken| taken.refused).unwrap_or_default();
            if !refused.is_empty() {
                let (worker, what) = (self.setup.workers[w].name.clone(), refused.join("; "));
                return Err(RelinkError::NotTaken { worker, what });
            }
        }
        Ok(true)
    }

    /// Nothing is copied any more.
    pub(super) fn end_precopy(&mut self, next: &Next) {
        self.generation.copies.forget();
        let begun = next.precopy.iter().flat_map(|precopy| &precopy.tasks);
        for w in begun.filter(|task| task.pid.is_some()).map(|task| task.w).collect::<Vec<_>>() {
            // Who cannot be told goes on noting what changes, of each flow once, until it is copied anew.
            let _ = self.give(w, &Order::EndPrecopy);
        }
    }
}
