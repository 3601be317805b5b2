//! Flows from outside: which there are, and that some go to another instance.

mod list;
mod queue;
mod waits;

pub use self::list::{FlowCount, FlowRow, Listed};

use self::waits::Waiting;
use super::{Agent, Event, State};
use crate::crews::{Crew, Instance, Unmovable};
use crate::voice::shortened;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_runtime::moves::{MOST_TIMES, Order, What};
use weir_runtime::spec::{SpreadSpec, command};

/// For so long after an order, or a death in a crew, an instance may let packets wait for the state of their flows.
const EXCUSED: Duration = Duration::from_secs(10);

/// Commands that can be given to a worker at any time, whatever it was ordered: to rest and to go on, and a few more.
const SPARE: usize = 4;

/// Why no flow is moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// No such NF.
    #[error("there is no NF `{0}` of several instances; there are: {1}")]
    NoNf(String, String),
    /// They cannot.
    #[error(transparent)]
    Unmovable(#[from] Unmovable),
    /// No such instance.
    #[error("{nf} has no instance {instance}; it has 1 to {count}")]
    NoInstance {
        /// The NF.
        nf: String,
        /// The number that was asked for.
        instance: u32,
        /// How many it has.
        count: usize,
    },
    /// One by one they cannot.
    #[error(
        "mappings of {0} move together with the ports that are leased with them: write --share PERCENT or --all instead of a filter"
    )]
    Leased(String),
    /// The instance is not there.
    #[error("instance {1} of {0} was stopped for good; choose another")]
    Closed(String, u32),
    /// The graph is about to be another.
    #[error("the graph is being relinked; try again when that is over")]
    Relinking,
    /// It ends.
    #[error("the graph ends")]
    Ending,
    /// One after the other: of two orders of one NF each might wait for what the other moves.
    #[error("flows of {0} are being moved already; try again when that is over")]
    Busy(String),
    /// Of several instances each would give so many.
    #[error("{0} has more than one instance that {1} flows could come from; name it by --from")]
    FromWhich(String, u32),
    /// Too much at once.
    #[error("worker {0} has not read what it was told before; try again")]
    Slow(String),
}

/// Which flows, and where to.
#[derive(Debug, Clone)]
pub struct MoveFlows {
    /// Name of the NF; or of all of a segment's replicas, joined by `+`. Flows move with all of them, whichever is named.
    pub nf: String,
    /// Which: of each of the NF's other instances.
    pub what: What,
    /// Only of this instance, from 1.
    pub from: Option<u32>,
    /// The instance, from 1.
    pub to: u32,
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// Flows that have gone.
    pub flows: u64,
    /// What did not.
    pub failures: Vec<String>,
    /// What it took.
    pub took: Duration,
    /// Of each migration, from its first request to its last answer, as its source says: how long it took, and how many flows it had. They
    /// move together, so this is each flow's own time.
    pub times: Vec<(Duration, u64)>,
}

/// What the agent has ordered and not been told the end of.
#[derive(Default)]
pub(super) struct Desk {
    last: u64,
    open: BTreeMap<u64, Open>,
    /// What workers that were being started are to be told when they are ready, besides.
    later: Vec<(usize, Order)>,
    /// Until when instances may let packets wait.
    excused: Option<Instant>,
    waiting: Waiting,
    /// Questions that were answered without these workers, who may answer yet.
    late: BTreeSet<(u64, usize)>,
    /// When it was looked last at who is waited for.
    looked: Option<Instant>,
    /// What became of orders by which an NF's instances become more or fewer.
    pub(super) scaled: Vec<Scaled>,
    /// The operator's orders that wait for such a one, by their numbers.
    queue: Vec<(u64, MoveFlows)>,
}

/// What became of such an order.
pub(super) struct Scaled {
    pub(super) ticket: u64,
    pub(super) flows: u64,
    /// Buckets that were to go and have flows.
    pub(super) left: u32,
    pub(super) failures: Vec<String>,
}

impl Desk {
    /// How an order of this number went by which flows were moved for scaling, or for a change, if it is answered.
    pub(super) fn answer_to(&mut self, ticket: u64) -> Option<Scaled> {
        self.scaled.extract_if(.., |scaled| scaled.ticket == ticket).next()
    }

    /// The order of this number, if worker `w` has not answered it, and now has.
    fn waits_for(&mut self, ticket: u64, w: usize) -> Option<&mut Open> {
        let open = self.open.get_mut(&ticket)?;
        (!open.untold.contains(&w) && open.waits.remove(&w)).then_some(open)
    }
}

struct Open {
    begun: Instant,
    order: Order,
    /// Who has not answered.
    waits: BTreeSet<usize>,
    /// Of those, who is not ready to be told yet.
    untold: BTreeSet<usize>,
    answer: Answer,
}

/// How it went to give a worker an order.
pub(super) enum Given {
    Told,
    /// It is being started, and can be told when it is ready.
    Later,
    /// It has not read what it was told before, and could be told when it has.
    Full,
    /// It cannot be told.
    Not(&'static str),
}

impl Given {
    /// Why it was not told and is not to be.
    const FULL: &'static str = "has not read what it was told before; try again";
}

enum Answer {
    Moved {
        group: u16,
        flows: u64,
        left: u32,
        failures: Vec<String>,
        times: Vec<(Duration, u64)>,
        /// It was not asked for by the operator.
        scales: bool,
    },
    Listed {
        listed: Listed,
        nf: Option<String>,
        most: usize,
    },
}

impl Agent {
    /// NFs of several instances whose flows can be moved, and why those of others cannot.
    pub fn crews(&self) -> &[Result<Crew, Unmovable>] {
        self.memory.crews()
    }

    /// Has flows moved; an [`Event::FlowsMoved`] with the number given here says how it went.
    ///
    /// # Errors
    /// When it cannot be; nothing is moved then.
    pub fn move_flows(&mut self, order: &MoveFlows) -> Result<u64, MoveError> {
        let ticket = self.flows.last + 1;
        self.flows.last = ticket;
        match self.begin_moving(order, ticket) {
            // What moves by itself is through with a step soon.
            Err(MoveError::Busy(nf)) if self.may_be_queued(&nf) => {
                self.flows.queue.push((ticket, order.clone()));
            }
            begun => begun?,
        }
        Ok(ticket)
    }

    fn begin_moving(&mut self, order: &MoveFlows, ticket: u64) -> Result<(), MoveError> {
        self.may_move()?;
        let named = |crew: &&Result<Crew, Unmovable>| match crew {
            Ok(crew) => crew.is_of(&order.nf),
            Err(why) => order.nf.split('+').all(|nf| is_among(nf, why.nf())),
        };
        let Some(crew) = self.memory.crews().iter().find(named) else {
            let name = |crew: &Result<Crew, Unmovable>| match crew {
                Ok(crew) => crew.name.clone(),
                Err(why) => why.nf().to_owned(),
            };
            let all: Vec<String> = self.memory.crews().iter().map(name).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            return Err(MoveError::NoNf(order.nf.clone(), all));
        };
        let crew = crew.clone()?;
        let group = self.setup.groups.get(usize::from(crew.group()));
        let leased = group.is_some_and(|group| group.spread == SpreadSpec::Ends);
        if leased && matches!(order.what, What::Flows(_) | What::Count(_)) {
            return Err(MoveError::Leased(crew.name));
        }
        let count = crew.instances.len();
        let place = |instance: u32| {
            let place = instance.checked_sub(1).and_then(|at| u16::try_from(at).ok());
            let nf = order.nf.clone();
            let none = MoveError::NoInstance { nf, instance, count };
            place.filter(|at| usize::from(*at) < count).ok_or(none)
        };
        let to = place(order.to)?;
        let from = order.from.map(place).transpose()?;
        let lives = |instance: &Instance| {
            self.setup.workers.get(instance.worker).is_some_and(|worker| worker.runs_nfs())
        };
        if !crew.instances.get(usize::from(to)).is_some_and(lives) {
            return Err(MoveError::Closed(order.nf.clone(), order.to));
        }
        // One that was stopped for good has no flows.
        let sources = crew.instances.iter().zip(0..).filter(|(own, i)| *i != to && lives(own));
        let sources = sources.filter(|(_, i)| from.is_none_or(|from| *i == from));
        let sources: Vec<usize> = sources.map(|(own, _)| own.worker).collect();
        if let (What::Count(flows), true) = (&order.what, sources.len() > 1) {
            return Err(MoveError::FromWhich(order.nf.clone(), *flows));
        }
        self.order_moves(ticket, (&crew, sources, to), &order.what, false)?;
        if !matches!(order.what, What::Flows(_) | What::Count(_)) {
            self.levels.leave(&crew.name);
        }
        self.generation.back.leave_alone(&crew.name);
        Ok(())
    }

    /// Has flows moved from one instance to another, counted from 0, as the NF's instances become more or fewer, by a change of the graph
    /// that is being prepared, too. How it went is in [`Desk::scaled`].
    pub(super) fn move_for_scaling(
        &mut self,
        crew: &Crew,
        from: u16,
        to: u16,
        what: What,
    ) -> Result<u64, MoveError> {
        let source = crew.instances.get(usize::from(from)).map(|own| own.worker);
        let ticket = self.flows.last + 1;
        self.order_moves(ticket, (crew, source.into_iter().collect(), to), &what, true)?;
        self.flows.last = ticket;
        Ok(ticket)
    }

    fn order_moves(
        &mut self,
        ticket: u64,
        (crew, sources, to): (&Crew, Vec<usize>, u16),
        what: &What,
        scales: bool,
    ) -> Result<(), MoveError> {
        let is_same = |open: &Open| matches!(open.answer, Answer::Moved { group, .. } if group == crew.group());
        if self.flows.open.values().any(is_same) {
            return Err(MoveError::Busy(crew.name.clone()));
        }
        let group = crew.group();
        let (failures, times) = (Vec::new(), Vec::new());
        let answer = Answer::Moved { group, flows: 0, left: 0, failures, times, scales };
        let order = Order::Move { ticket, group, what: what.clone(), to };
        self.ask(ticket, sources, answer, order);
        self.flows.excused = Some(Instant::now() + EXCUSED);
        Ok(())
    }

    fn may_move(&self) -> Result<(), MoveError> {
        if self.finished {
            return Err(MoveError::Ending);
        }
        if self.is_relinking() {
            return Err(MoveError::Relinking);
        }
        Ok(())
    }

    /// Gives an order of this number to some workers. Who is just being started gets it when it is ready.
    fn ask(&mut self, ticket: u64, workers: Vec<usize>, answer: Answer, order: Order) {
        let (waits, untold) = (BTreeSet::new(), BTreeSet::new());
        let open = Open { begun: Instant::now(), order, waits, untold, answer };
        self.tell_all(ticket, open, workers);
    }

    fn tell_all(&mut self, ticket: u64, mut open: Open, workers: Vec<usize>) {
        // Who asks which flows there are waits a moment for him to read.
        let asks = matches!(open.answer, Answer::Listed { .. });
        for w in workers {
            self.flows.waiting.note(w, &open.order);
            let given = match asks && self.generation.holds_still() {
                // Who rests reads no message: they would fill its socket.
                true => Given::Full,
                false => self.give(w, &open.order),
            };
            match given {
                Given::Told => drop(open.waits.insert(w)),
                Given::Full if !asks => open.fail(&self.setup.workers[w].name, Given::FULL),
                Given::Later | Given::Full => {
                    open.waits.insert(w);
                    open.untold.insert(w);
                }
                Given::Not(why) => open.fail(&self.setup.workers[w].name, why),
            }
        }
        self.flows.open.insert(ticket, open);
        self.close_if_answered(ticket);
    }

    /// Gives an order to worker `w`.
    pub(super) fn give(&mut self, w: usize, order: &Order) -> Given {
        let process = match &mut self.workers[w].state {
            State::Running(process) | State::Done(process) => process,
            State::Waiting | State::Restarting(_) => return Given::Later,
            State::Gone => return Given::Not("has ended"),
        };
        if !self.liveness.is_ready(w) {
            return Given::Later;
        }
        // The command first: who finds the message finds the command.
        let own = &mut self.memory.workers[w];
        if own.command.room(SPARE + 1) <= SPARE {
            return Given::Full;
        }
        own.command.stage(command::ORDER);
        own.command.publish();
        if process.tell_order(order).is_err() {
            // It may have got half of the message, and would wait for the rest.
            process.kill();
            return Given::Not("could not be told; try again");
        }
        self.memory.workers[w].bell.ring();
        Given::Told
    }

    /// Worker `w` is ready, and is told what it is to do.
    pub(super) fn flows_of_ready(&mut self, w: usize) {
        let later = self.flows.later.extract_if(.., |(to, _)| *to == w);
        let mut orders: Vec<_> = later.map(|(_, order)| (None, order)).collect();
        for (ticket, open) in &mut self.flows.open {
            if open.untold.remove(&w) {
                orders.push((Some(*ticket), open.order.clone()));
            }
        }
        for (ticket, order) in orders {
            let why = match self.give(w, &order) {
                Given::Told => continue,
                Given::Later | Given::Full => Given::FULL,
                Given::Not(why) => why,
            };
            let open = ticket.and_then(|ticket| Some((ticket, self.flows.open.get_mut(&ticket)?)));
            if let Some((ticket, open)) = open {
                open.waits.remove(&w);
                open.fail(&self.setup.workers[w].name, why);
                self.close_if_answered(ticket);
            }
        }
    }

    /// Worker `w` says what it has moved.
    pub(super) fn flows_moved(
        &mut self,
        w: usize,
        ticket: u64,
        (count, stay): (u64, u32),
        taken: &[(u64, u64)],
        why: Option<String>,
    ) {
        let name = &self.setup.workers[w].name;
        let Some(open) = self.flows.waits_for(ticket, w) else {
            return self.convict(w, "said that it had moved flows that it was not asked for");
        };
        let order = open.order.clone();
        self.trust.forgive_message(w);
        if let Answer::Moved { flows, left, failures, times, .. } = &mut open.answer {
            let taken = taken.iter().take(MOST_TIMES);
            times.extend(taken.map(|(us, flows)| (Duration::from_micros(*us), *flows)));
            *flows = flows.saturating_add(count);
            *left = left.saturating_add(stay);
            failures.extend(why.map(|why| format!("{name}: {}", shortened(why))));
        }
        self.flows.waiting.note(w, &order);
        self.close_if_answered(ticket);
    }

    /// Tells of an order when all have answered.
    fn close_if_answered(&mut self, ticket: u64) {
        if self.flows.open.get(&ticket).is_none_or(|open| !open.waits.is_empty()) {
            return;
        }
        let Some(Open { begun, answer, .. }) = self.flows.open.remove(&ticket) else { return };
        self.events.push_back(match answer {
            Answer::Moved { flows, left, failures, scales: true, .. } => {
                return self.flows.scaled.push(Scaled { ticket, flows, left, failures });
            }
            Answer::Moved { flows, failures, times, .. } => {
                let took = begun.elapsed();
                Event::FlowsMoved { ticket, moved: Moved { flows, failures, took, times } }
            }
            Answer::Listed { mut listed, .. } => {
                // Not in the order in which workers happened to answer.
                listed.counts.sort_by(|a, b| (&a.nf, a.instance).cmp(&(&b.nf, b.instance)));
                listed.rows.sort_by(|a, b| (&a.nf, a.instance).cmp(&(&b.nf, b.instance)));
                Event::FlowsListed { ticket, listed }
            }
        });
    }

    /// Worker `w` has died: what it was asked it does not answer.
    pub(super) fn flows_of_dead(&mut self, w: usize) {
        if self.memory.crews().iter().flatten().any(|crew| crew.has(w)) {
            self.flows.excused = Some(Instant::now() + EXCUSED);
        }
        self.flows.later.retain(|(to, _)| *to != w);
        self.flows.late.retain(|(_, from)| *from != w);
        // Which flows there are its successor is asked, as soon as it can be.
        let is_question = |open: &&mut Open| matches!(open.answer, Answer::Listed { .. });
        for open in self.flows.open.values_mut().filter(is_question) {
            if open.waits.contains(&w) {
                open.untold.insert(w);
            }
        }
        self.give_up(
            w,
            "died meanwhile: what was under way from it goes on, the rest stays",
            |open| !open.untold.contains(&w),
        );
    }

    /// Nobody waits for an answer of worker `w` any more, where `which` is true.
    fn give_up(&mut self, w: usize, why: &str, which: impl Fn(&Open) -> bool) {
        let name = &self.setup.workers[w].name;
        let mut left = Vec::new();
        for (ticket, open) in self.flows.open.iter_mut().filter(|(_, open)| which(open)) {
            open.untold.remove(&w);
            if open.waits.remove(&w) {
                // What is under way goes on.
                self.flows.waiting.note(w, &open.order);
                open.fail(name, why);
                left.push(*ticket);
            }
        }
        left.into_iter().for_each(|ticket| self.close_if_answered(ticket));
    }

    /// Worker `w` is not started again: the others need not wait for it.
    pub(super) fn flows_of_gone(&mut self, w: usize) {
        self.memory.end_life(w);
        self.give_up(w, "was stopped for good", |_| true);
        let mut told = Vec::new();
        for crew in self.memory.crews().iter().flatten() {
            let place = crew.instances.iter().position(|own| own.worker == w);
            if let Some(replica) = place.and_then(|at| u16::try_from(at).ok()) {
                // Directors before replicas.
                let others = crew.instances.iter().map(|own| own.worker);
                let all = crew.senders.iter().copied().chain(others).filter(|other| *other != w);
                told.extend(all.map(|w| (w, Order::Gone { group: crew.group(), replica })));
            }
        }
        for (w, order) in told {
            // Who is started later is told so at its start.
            if matches!(self.give(w, &order), Given::Later)
                && matches!(self.workers[w].state, State::Running(_))
            {
                self.flows.later.push((w, order));
            }
        }
    }

    /// Those who were asked have retired with their generation: which flows there are is asked of this one.
    pub(super) fn flows_of_retired(&mut self) {
        self.flows.later.clear();
        self.flows.late.clear();
        self.flows.waiting = Waiting::default();
        for (ticket, _) in std::mem::take(&mut self.flows.queue) {
            self.not_moved(ticket, "the graph was relinked meanwhile; ask again".to_owned());
        }
        for (ticket, mut open) in std::mem::take(&mut self.flows.open) {
            if matches!(open.answer, Answer::Listed { .. }) {
                self.list_anew(ticket, open);
                continue;
            }
            open.waits.clear();
            open.fail("the graph", "was relinked meanwhile; ask again");
            self.flows.open.insert(ticket, open);
            self.close_if_answered(ticket);
        }
    }

    /// True while worker `w` may let packets wait for what others of its crew send it.
    pub(super) fn is_excused(&self, w: usize) -> bool {
        let all = self.flows.excused.is_some_and(|until| Instant::now() < until);
        let mut crews = self.memory.crews().iter().flatten();
        crews.any(|crew| crew.has(w) && (all || self.flows.waiting.waits_for_wishes(crew, w)))
    }

    /// True while worker `w` may take long over one turn: what others of its crew write to it, as flows move, may be long.
    pub(super) fn is_busy_with_flows(&self, w: usize) -> bool {
        let asked = |open: &Open| open.waits.contains(&w) && open.begun.elapsed() < EXCUSED;
        self.flows.open.values().any(asked)
    }

    /// True while flows are moved by an order.
    pub(super) fn is_moving_flows(&self) -> bool {
        self.flows.open.values().any(|open| matches!(open.answer, Answer::Moved { .. }))
    }
}

/// True for an NF that is named among several, joined by `+`.
fn is_among(nf: &str, names: &str) -> bool {
    names.split('+').any(|name| name == nf)
}

impl Open {
    fn fail(&mut self, worker: &str, why: &str) {
        let (Answer::Moved { failures, .. }
        | Answer::Listed { listed: Listed { failures, .. }, .. }) = &mut self.answer;
        failures.push(format!("{worker} {why}"));
    }
}
