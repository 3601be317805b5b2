//! Flows go over while packets flow (pre-copy: Clark et al., "Live Migration of Virtual Machines", NSDI 2005), so that only
//! what has changed since is left for the pause.
//!
//! A worker of the running generation writes some flows into its memory for what is handed over, between two batches; they are given to the worker of
//! the next generation that has the NF, which takes them while the first goes on. When all have been copied, those that
//! have changed meanwhile are, as long as there are fewer each time. Who dies meanwhile is mended as ever, and copied from the beginning.

use super::in_front::InFront;
use super::share::{holders, is_divided_anew};
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

/// Bytes that are copied at a time: some thousands of flows, for which a worker takes half a millisecond. Where as many change meanwhile,
/// twice as many are copied, and twice again: that takes more of the worker's time from packets, some 2 or 3 ms at a time.
const MOST: u32 = 256 << 10;
const MORE: u32 = 4;
/// So few that have changed of a worker's flows since it was asked before take less time than what is under way needs to run out.
const FEW: u64 = 512;
/// So often more is copied of each worker although no fewer have changed each time than ever before.
const IN_VAIN: u32 = 16;
/// Time between two looks at what workers that stand by say, at least.
pub(super) const LOOK: Duration = Duration::from_micros(50);
/// So long it is waited for who takes flows, before the agent looks after others.
const WHILE: Duration = Duration::from_millis(3);
/// How long somebody may need to copy some, or to take some.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so long what was copied is out of date.
const LATE: Duration = Duration::from_millis(20);
/// After so long no more is copied, whatever is left.
const LONGEST: Duration = Duration::from_secs(60);

/// An instance of an NF whose flows are copied.
struct Share {
    name: String,
    instance: u8,
    kind: String,
    /// Which instance of the next generation takes them, and its worker.
    taker: (u8, usize),
}

/// What is copied from one worker.
struct Task {
    w: usize,
    /// Its process: its successor knows nothing of it.
    pid: Option<u32>,
    /// Its NFs, by node.
    nodes: BTreeMap<u16, Share>,
    /// Flows that were to be copied when it was asked last: all at first, then what had changed since it was asked before. How many it will be
    /// when packets come no more follows from it. `None`: it was not asked yet.
    due: Option<u64>,
    /// Some were not copied at all yet.
    walks: bool,
}

impl Task {
    fn new(w: usize, nodes: BTreeMap<u16, Share>) -> Self {
        Task { w, pid: None, nodes, due: None, walks: true }
    }

    /// Who takes over this instance of the NF of this name and type.
    fn taker(&self, nf: (&str, &str), instance: u8) -> Option<(u8, usize)> {
        let is_it =
            |share: &&Share| (&*share.name, &*share.kind) == nf && share.instance == instance;
        Some(self.nodes.values().find(is_it)?.taker)
    }
}

/// How far flows have been copied.
pub(super) struct Precopy {
    tasks: Vec<Task>,
    begun: Instant,
    /// Who was asked for some, by task, and when.
    asked: Option<(usize, Instant)>,
    /// Who takes some, since when.
    taking: Option<Instant>,
    /// Fewest that were ever to be copied of all, and how often somebody was asked since.
    fewest: Option<u64>,
    in_vain: u32,
    /// Since when no more is worth it.
    ended: Option<Instant>,
    /// How many times [`MOST`] is copied at a time.
    times: u32,
    /// Flows that were copied, each as often as it was.
    pub(super) copied: u64,
}

/// What a worker says of flows that it was told to copy.
#[derive(Debug, Default)]
pub(in crate::agent) struct Answer {
    pub(in crate::agent) copied: u64,
    pub(in crate::agent) left: u64,
    /// Some were not copied at all yet.
    pub(in crate::agent) walks: bool,
    pub(in crate::agent) why: Option<String>,
}

/// What the agent has asked for.
#[derive(Debug, Default)]
pub(in crate::agent) struct Request {
    ticket: u64,
    /// Who has not answered yet.
    asked: Option<usize>,
    answer: Option<Answer>,
    /// Workers that note what changes, until they are told that nothing is copied any more.
    noting: BTreeSet<usize>,
}

/// What an answer is worth.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::agent) enum Answered {
    /// It was asked for.
    Now,
    /// It was, for a change that was given up.
    Late,
    /// It was not.
    Unasked,
}

impl Request {
    /// Nobody is asked, and what somebody was asked is not waited for.
    fn forget(&mut self) {
        self.ticket += 1;
        (self.asked, self.answer) = (None, None);
    }

    /// Worker `w` says that it has copied what it was asked for.
    pub(in crate::agent) fn answered(&mut self, w: usize, ticket: u64, answer: Answer) -> Answered {
        if ticket == self.ticket && self.asked == Some(w) {
            (self.asked, self.answer) = (None, Some(answer));
            return Answered::Now;
        }
        match ticket < self.ticket {
            true => Answered::Late,
            false => Answered::Unasked,
        }
    }
}

impl Precopy {
    /// What can be copied: of each NF the flows of each instance that has one of the same place in the next generation, which gets all of them.
    /// What those have that are one too many, and has not left them, goes over in the pause.
    fn new(before: &Setup, next: &Agent) -> Self {
        let (old, new) = (holders(before), holders(&next.setup));
        let mut tasks: BTreeMap<usize, BTreeMap<u16, Share>> = BTreeMap::new();
        for (nf, holders) in old {
            let Some(takers) = new.get(&nf) else { continue };
            let counts = (holders.len(), takers.len());
            if is_divided_anew(before, next, nf, counts) {
                continue;
            }
            for (instance, w, node) in holders {
                // By its number: one before it may have been stopped for good.
                let taker = takers.iter().find(|(n, ..)| *n == instance);
                let Some((n, taker, _)) = taker else { continue };
                let (name, kind, taker) = (nf.0.to_owned(), nf.1.to_owned(), (*n, *taker));
                tasks.entry(w).or_default().insert(node, Share { name, instance, kind, taker });
            }
        }
        Self::of(tasks.into_iter().map(|(w, nodes)| Task::new(w, nodes)).collect())
    }

    fn of(tasks: Vec<Task>) -> Self {
        let (now, asked, taking) = (Instant::now(), None, None);
        let (fewest, in_vain, times, copied) = (None, 0, 1, 0);
        let (begun, ended) = (now, None);
        Precopy { tasks, begun, asked, taking, fewest, in_vain, ended, times, copied }
    }

    /// What was copied is out of date, as the switch has to wait: what has changed is copied again.
    fn go_on_if_late(&mut self) {
        if self.ended.is_some_and(|ended| ended.elapsed() > LATE) {
            self.go_on();
        }
    }

    /// The pause does not come yet: what changes until then is copied, as long as that makes it less.
    pub(super) fn go_on(&mut self) {
        (self.fewest, self.in_vain, self.ended) = (None, 0, None);
        self.tasks.iter_mut().for_each(|task| task.due = task.due.map(|_| u64::MAX));
    }

    /// Who takes over an instance of an NF of worker `w`, by name and type, if its flows are copied.
    pub(super) fn taker(&self, w: usize, nf: (&str, &str), instance: u8) -> Option<(u8, usize)> {
        self.tasks.iter().find(|task| task.w == w)?.taker(nf, instance)
    }

    /// Which instances, in which workers, may have been given copies of which NF, by name and type.
    pub(super) fn takers(&self) -> impl Iterator<Item = ((u8, usize), (&str, &str))> {
        let shares = self.tasks.iter().flat_map(|task| task.nodes.values());
        shares.map(|share| (share.taker, (&*share.name, &*share.kind)))
    }

    /// The worker that is to be asked next: of which most were; `None` when it is not worth it any more.
    fn next(&self) -> Option<usize> {
        // Who was not asked yet is before all, and whose flows were not all copied once before others.
        let rank = |task: &Task| (task.due.is_none(), task.walks, task.due);
        let is_worth = |task: &Task| task.walks || task.due > Some(FEW);
        let all = self.tasks.iter().enumerate().filter(|(_, task)| is_worth(task));
        let (at, most) = all.max_by_key(|(_, task)| rank(task))?;
        let vain = IN_VAIN * self.tasks.len() as u32;
        let is_good = self.in_vain > vain / 2 && self.is_least();
        let in_vain = is_good || self.in_vain > vain;
        (most.walks || !in_vain).then_some(at)
    }

    /// Flows that were to be copied of all when each was asked last; `None`: not all were asked yet.
    fn due(&self) -> Option<u64> {
        self.tasks.iter().try_fold(0_u64, |all, task| Some(all.saturating_add(task.due?)))
    }

    /// About as few as ever: a good moment, when there will be no fewer.
    fn is_least(&self) -> bool {
        let (fewest, due) = (self.fewest, self.due());
        fewest.zip(due).is_some_and(|(few, due)| due <= few.saturating_add(few / 8))
    }

    /// Some NF's flows are copied.
    pub(super) fn has_flows(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Each flow was copied once: what is left has changed since.
    fn all_were_copied(&self) -> bool {
        self.tasks.iter().all(|task| !task.walks)
    }

    /// A worker has copied some. What it says may be anything, but it can hold up the change by that no longer than [`LONGEST`].
    fn count(&mut self, task: usize, answer: &Answer) {
        self.copied = self.copied.saturating_add(answer.copied);
        let due = answer.copied.saturating_add(answer.left);
        let mut is_new = false;
        for task in self.tasks.iter_mut().skip(task).take(1) {
            (is_new, task.walks, task.due) = (task.walks, answer.walks, Some(due));
        }
        let due = self.due();
        self.in_vain += 1;
        // What comes and goes by chance is no progress. Of many that are left a little is, each time.
        let part = if answer.left > answer.copied { 32 } else { 8 };
        let least = (answer.copied / part).max(1);
        let is_fewer = |due: u64| self.fewest.is_none_or(|few| due <= few.saturating_sub(least));
        if due.is_none_or(is_fewer) || is_new {
            (self.fewest, self.in_vain) = (due, 0);
        } else if answer.left > answer.copied && self.in_vain.is_multiple_of(IN_VAIN / 4) {
            self.times = MORE.min(self.times * 2);
        }
    }
}

impl Agent {
    /// Goes on copying flows to the next generation; true when no more are to be copied before the pause.
    pub(super) fn precopy(&mut self, next: &mut Next) -> Result<bool, RelinkError> {
        let mut precopy = match next.precopy.take() {
            Some(precopy) => precopy,
            // Of a change before this one.
            None if !self.all_have_ended_copying() => {
                let worker = self.generation.request.noting.first().copied();
                let patience = self.policy.start_patience;
                return match worker.filter(|_| next.started.elapsed() > patience) {
                    Some(w) => Err(self.not_copied(w, patience)),
                    None => Ok(false),
                };
            }
            None => Precopy::new(&self.setup, &next.agent),
        };
        let (was_asked, before) = (precopy.asked.is_some(), precopy.copied);
        let done = self.copy_some(&mut precopy, &mut next.agent);
        if !was_asked || precopy.copied > before {
            // Who dies while copies are made has as long to come back as who dies before.
            next.started = Instant::now();
        }
        if precopy.all_were_copied() && self.may_switch(next) {
            next.in_front.get_or_insert_with(|| InFront::step(&self.setup, self.turns));
        }
        next.precopy = Some(precopy);
        done
    }

    fn not_copied(&self, w: usize, patience: Duration) -> RelinkError {
        RelinkError::NotCopied { worker: self.setup.workers[w].name.clone(), patience }
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
            let Some(answer) = self.generation.request.answer.take() else {
                return match since.elapsed() > PATIENCE {
                    true => Err(self.not_copied(precopy.tasks[at].w, PATIENCE)),
                    false => Ok(false),
                };
            };
            precopy.asked = None;
            self.hand_ahead(&precopy.tasks[at], &answer, to)?;
            precopy.taking = Some(Instant::now());
            precopy.count(at, &answer);
        }
        precopy.go_on_if_late();
        // What was given last is taken while packets that are under way run out.
        let next = precopy.next().filter(|_| precopy.begun.elapsed() < LONGEST);
        let Some(at) = next else {
            precopy.ended.get_or_insert_with(Instant::now);
            return Ok(true);
        };
        let task = &mut precopy.tasks[at];
        let request = &mut self.generation.request;
        request.forget();
        request.asked = Some(task.w);
        let (ticket, nodes) = (request.ticket, task.nodes.keys().copied().collect());
        let (first, most) = (task.due.is_none(), precopy.times * MOST);
        let order = Order::Precopy { ticket, nodes, first, most };
        let w = task.w;
        task.pid = self.pid(w);
        match self.give(w, &order) {
            Given::Told => {
                precopy.asked = Some((at, Instant::now()));
                self.generation.request.noting.insert(w);
            }
            Given::Later | Given::Full | Given::Not(_) => self.generation.request.forget(),
        }
        Ok(false)
    }

    /// Waits until all that was given is taken, before more is given: packets have run out.
    pub(super) fn finish_precopy(&mut self, next: &mut Next) -> Result<(), RelinkError> {
        // Packets may have taken longer to run out than anybody may take to take what was given, and nobody has listened meanwhile.
        let since = Instant::now();
        while next.precopy.as_ref().is_some_and(|precopy| precopy.taking.is_some()) {
            if next.agent.have_taken_some(since)? {
                next.precopy.iter_mut().for_each(|precopy| precopy.taking = None);
            }
            // Who of this generation dies meanwhile is mended; the next then has to begin anew.
            self.take_in(Duration::ZERO).map_err(|e| RelinkError::Start(Box::new(e)))??;
        }
        Ok(())
    }

    /// Who has died since it was asked knows of no copy: neither what it was asked for comes, nor what has changed.
    fn begin_anew_with_successors(&mut self, precopy: &mut Precopy) {
        for (at, task) in precopy.tasks.iter_mut().enumerate() {
            if task.pid.is_some() && task.pid != self.pid(task.w) {
                (task.pid, task.due, task.walks) = (None, None, true);
                if precopy.asked.is_some_and(|(asked, _)| asked == at) {
                    precopy.asked = None;
                    self.generation.request.forget();
                }
            }
        }
    }

    /// Gives what a worker has copied to those who take over its NFs.
    fn hand_ahead(
        &mut self,
        task: &Task,
        answer: &Answer,
        to: &mut Agent,
    ) -> Result<(), RelinkError> {
        let name = |agent: &Agent, w: usize| agent.setup.workers[w].name.clone();
        if let Some(why) = &answer.why {
            let why = shortened(why.clone());
            return Err(RelinkError::State { worker: name(self, task.w), why });
        }
        let flows = match self.memory.handed_over(task.w) {
            Some(Handed::Ahead(flows)) => Some(flows),
            Some(Handed::All(..)) | None => None,
        };
        let mut shares: BTreeMap<usize, Vec<NfFlows>> = BTreeMap::new();
        let (mut seen, mut sound) = (BTreeSet::new(), flows.is_some());
        for flows in flows.into_iter().flatten() {
            // Its own word, in its own memory: another NF's flows it has none of.
            let taker = task.taker((&flows.name, &flows.kind), flows.instance);
            match taker.filter(|_| seen.insert((flows.name.clone(), flows.instance))) {
                Some((instance, taker)) => {
                    shares.entry(taker).or_default().push(NfFlows { instance, ..flows });
                }
                None => sound = false,
            }
        }
        if !sound {
            self.convict(task.w, "copied flows that are not its own, or nothing that can be read");
            let why = "it is not to be believed".to_owned();
            return Err(RelinkError::State { worker: name(self, task.w), why });
        }
        to.generation.taking.clear();
        for (taker, flows) in shares {
            let given = to.memory.hand_ahead_to(taker, &flows);
            let failed = |why: String| RelinkError::State { worker: name(to, taker), why };
            given.map_err(|e| failed(e.to_string()))?;
            if matches!(to.workers[taker].state, State::Running(_)) {
                to.generation.taking.insert(taker, None);
                to.order(taker, command::TAKE_OVER);
            }
        }
        Ok(())
    }

    /// Of the next generation: true when all have taken what was given to them since then. Waits for a moment.
    fn have_taken_some(&mut self, given: Instant) -> Result<bool, RelinkError> {
        let (since, mut again) = (Instant::now(), false);
        loop {
            let waited = self.generation.taking.iter().find(|(_, answer)| answer.is_none());
            let Some((&w, _)) = waited else { break };
            if given.elapsed() > PATIENCE {
                let worker = self.setup.workers[w].name.clone();
                return Err(RelinkError::Unready { worker, patience: PATIENCE });
            }
            if again {
                // Somebody said something, but not that: who says much does not keep the agent busy.
                std::thread::sleep(LOOK);
            }
            again = true;
            let Some(left) = WHILE.checked_sub(since.elapsed()) else { return Ok(false) };
            self.stand_by(left)?;
        }
        self.all_taken().map(|()| true)
    }

    /// Nothing is copied any more.
    pub(super) fn end_precopy(&mut self) {
        self.generation.request.forget();
        // Who cannot be told now is before the next change.
        self.all_have_ended_copying();
    }

    /// Tells all who note what changes that nobody wants to know any more; true when all are told.
    fn all_have_ended_copying(&mut self) -> bool {
        for w in std::mem::take(&mut self.generation.request.noting) {
            match self.give(w, &Order::EndPrecopy) {
                Given::Told | Given::Not(_) => {}
                Given::Later | Given::Full => drop(self.generation.request.noting.insert(w)),
            }
        }
        self.generation.request.noting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u32 = 100_000;

    /// Asks until it is not worth it any more, at most so often; what answers is `of` the worker and how often it was asked, which has
    /// copied each flow once when it was asked `once` times. How often it was.
    fn copies(workers: usize, once: u32, of: impl Fn(usize, u32) -> (u64, u64)) -> u32 {
        let task = |w| Task::new(w, BTreeMap::new());
        let mut precopy = Precopy::of((0..workers).map(task).collect());
        let mut asked = vec![0; workers];
        for n in 0..MANY {
            let Some(w) = precopy.next() else { return n };
            let (copied, left) = of(w, asked[w]);
            asked[w] += 1;
            let walks = asked[w] < once;
            precopy.count(w, &Answer { copied, left, walks, why: None });
        }
        MANY
    }

    #[test]
    fn what_waited_for_the_switch_is_copied_anew() {
        let mut precopy = Precopy::of(vec![Task::new(0, BTreeMap::new())]);
        precopy.count(0, &Answer { copied: 700, ..Answer::default() });
        let before = (precopy.fewest, precopy.tasks[0].due);
        precopy.ended = Some(Instant::now());
        precopy.go_on_if_late();
        assert_eq!((precopy.fewest, precopy.tasks[0].due), before);
        precopy.ended = Instant::now().checked_sub(2 * LATE);
        precopy.go_on_if_late();
        assert_eq!((precopy.fewest, precopy.tasks[0].due), (None, Some(u64::MAX)));
        assert_eq!(precopy.ended, None);
    }

    #[test]
    fn copying_ends_when_few_have_changed() {
        // 30,000 flows, 3,000 at a time; then always fewer.
        let of = |_, n: u32| match n {
            0..10 => (3_000, 27_000 - u64::from(n) * 3_000),
            _ => (3_000 >> (n - 9), 0),
        };
        assert_eq!(copies(1, 10, of), 13);
        assert_eq!(copies(3, 10, of), 39);
        assert_eq!(copies(1, 1, |_, _| (0, 0)), 1);
        assert_eq!(copies(0, 1, |_, _| (0, 0)), 0);
        // Of one few change from the first, of another many: that is copied as long as it helps.
        let of = |w, n| if w == 0 { (10, 0) } else { of(w, n) };
        assert_eq!(copies(2, 10, of), 10 + 13);
    }

    #[test]
    fn all_is_copied_once_however_much_changes_meanwhile_and_then_as_long_as_it_helps() {
        // As many change as are copied.
        let asked = copies(1, 100, |_, _| (3_000, 300_000));
        assert!((101..130).contains(&asked), "{asked}");
        // A little is won each time.
        let of = |_, n: u32| (10_000, 750_000 - 2_000 * u64::from(n.min(370)));
        let asked = copies(1, 75, of);
        assert!((370..410).contains(&asked), "{asked}");
    }

    #[test]
    fn what_a_worker_says_cannot_keep_the_agent_copying_for_ever_or_end_it() {
        for (copied, left) in
            [(0, 1_000), (0, u64::MAX), (u64::MAX, u64::MAX), (1, 7_000), (7, 7_000)]
        {
            let asked = copies(2, 1, |_, _| (copied, left));
            assert!(asked < 100, "{copied} {left}: {asked}");
        }
    }

    /// A table that had very many flows once has stretches of free numbers.
    #[test]
    fn that_nothing_was_found_for_a_while_does_not_end_the_first_walk() {
        let of = |_, n: u32| if n < 500 { (0, 30_000) } else { (30_000 >> (n - 500).min(31), 0) };
        let asked = copies(1, 501, of);
        assert!((505..540).contains(&asked), "{asked}");
    }

    #[test]
    fn an_answer_counts_once_and_only_if_it_was_asked_for() {
        let mut request = Request::default();
        assert_eq!(request.answered(1, 0, Answer::default()), Answered::Unasked);
        request.forget();
        request.asked = Some(1);
        assert_eq!(request.answered(2, 1, Answer::default()), Answered::Unasked);
        assert_eq!(request.answered(1, 0, Answer::default()), Answered::Late);
        assert_eq!(request.answered(1, 1, Answer::default()), Answered::Now);
        assert_eq!(request.answered(1, 1, Answer::default()), Answered::Unasked);
        request.forget();
        assert_eq!(request.answered(1, 1, Answer::default()), Answered::Late);
        assert_eq!(request.answered(1, 9, Answer::default()), Answered::Unasked);
    }
}
