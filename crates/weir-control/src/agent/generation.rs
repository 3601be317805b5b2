//! From one generation of the graph to the next, while packets flow.
//!
//! The next generation is made beside the one that runs: its memory, and a process for each worker of µNFs,
//! which attaches, builds and waits ("stands by"). Services keep their processes, and with them their
//! devices: they attach to the new memory beside their own. All that takes time is done then, at full load;
//! when any of it fails, the new workers are dismissed and nothing has happened.
//!
//! When all are ready flows go ahead (the module `precopy`). Then the switch, the only pause: Rx services take nothing more, what is
//! under way runs out, all workers rest and hand over what their µNFs know, and the next generation is told to go. Until that word the old
//! one can go on at any time, and does when something fails. What dies after it is mended as ever.
//! Why so: docs/decisions/0013-live-relink.md.

mod calm;
mod error;
mod in_front;
mod leave;
mod places;
mod precopy;
mod share;
mod standby;
mod switch;
mod take;

use super::hear::Heard;
use super::levels::Levels;
use super::{Agent, AgentError, Event, Start, State};
use crate::census::Census;
use crate::recover::recover;
use crate::setup::Setup;
use calm::Calm;
pub use error::RelinkError;
use in_front::InFront;
use leave::Errands;
pub(super) use precopy::{Answer, Answered};
use precopy::{Precopy, Request};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use weir_device::Place;
use weir_packet::DropReason;
use weir_runtime::layout::NodeCounts;
use weir_runtime::spec::{EndSpec, Handing, command};

/// How long the agent waits at most for something to happen while a generation is being prepared.
const TURN: Duration = Duration::from_millis(2);
/// After the switch of a live graph, so long until the services have asked the kernel what it dropped: they do
/// so when they see that it did, and four times a second.
const ASKED: Duration = Duration::from_millis(400);

/// Packets that an NF holds cannot go over, and mostly it will soon have let them go: for so long a switch is tried
/// again.
const HELD: Duration = Duration::from_secs(3);
/// Time before the first of these tries; each time twice as long, as each costs a pause.
const AGAIN: Duration = Duration::from_millis(5);

/// How a relink went.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Relinked {
    /// What was done beside the running graph, in milliseconds.
    pub prepared_ms: f64,
    /// How long nothing was taken from devices, in milliseconds.
    pub pause_ms: f64,
    /// Before it, for so many milliseconds, no more was taken from devices than half of what came through, until little was under way.
    pub tapered_ms: f64,
    /// Packets that live devices dropped from then until a moment later.
    pub missed: u64,
    /// NFs whose state went over.
    pub carried: usize,
    /// Flows that were copied before the pause, each as often as it was: what had changed since then went over in it.
    pub copied: u64,
    /// Flows that instances which have gone left to others before it.
    pub left: u64,
    /// Parts of the flow hash, of 65,536, that are with another instance than they are to be with now, as instances have come or gone: flows stay
    /// where they are, and these go as soon as they have none.
    pub uneven: u32,
}

impl std::fmt::Display for Relinked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Relinked { prepared_ms, pause_ms, missed, carried, .. } = self;
        write!(
            f,
            "relinked in {pause_ms:.1} ms ({prepared_ms:.0} ms of preparation beside the running graph): {missed} packets missed by \
             devices, what {carried} NFs know went over"
        )
    }
}

/// A generation that has ended: its counters stay to be read.
pub struct Retired {
    /// It.
    pub agent: Agent,
    /// Where its buffers were in the end.
    pub census: Census,
}

/// What a generation knows of those before and behind it.
pub(super) struct Generation {
    /// By worker: where its device was when it began.
    inherited: Vec<Place>,
    /// The one that is being prepared.
    next: Option<Box<Next>>,
    /// What services said of the memory that they were to adopt.
    adopted: BTreeMap<usize, Result<(), String>>,
    /// What instances are to get back, as a change failed by which they were to go.
    pub(super) back: Errands,
    /// The switch to it is under way.
    switches: bool,
    /// Workers were told to hand over, and not yet to go on.
    asked: bool,
    /// Which workers rest and have handed over.
    handed: BTreeMap<usize, Handing>,
    /// What was asked for of flows that are being copied.
    pub(super) request: Request,
    /// Workers that were told to take over, until they are told to begin; and what of it they could not.
    taking: BTreeMap<usize, Option<Vec<String>>>,
    /// By worker: how many answers are still to come that nobody waits for any more.
    stale: BTreeMap<usize, u32>,
    retired: Vec<Retired>,
    /// The switch by which it began, until that is told.
    begun: Option<(Instant, Relinked)>,
}

/// The generation that is being prepared.
struct Next {
    agent: Agent,
    /// Services, by their places in this generation and in that.
    services: Vec<(usize, usize)>,
    /// The processes that were told of the new memory, by their places in this generation.
    told: Option<BTreeMap<usize, u32>>,
    since: Instant,
    /// When its processes had been started.
    started: Instant,
    /// Flows that go ahead, since all are ready.
    precopy: Option<Precopy>,
    in_front: Option<InFront>,
    /// What instances that go leave to others.
    leaving: Option<Errands>,
    /// What is under way becomes less.
    calm: Option<Calm>,
    /// Since when the switch failed for packets that are held, and when it is tried again after which time.
    held: Option<(Instant, Instant, Duration)>,
}

impl Next {
    /// True while flows are leaving, by an order of the change's own that is not late.
    fn leaves(&self) -> bool {
        self.leaving.as_ref().is_some_and(Errands::goes_on)
    }

    /// True while it is too early to try again.
    fn waits(&self) -> bool {
        self.held.is_some_and(|(_, again, _)| Instant::now() < again)
    }

    /// Packets were held; true when it is to be tried again.
    fn tries_again(&mut self) -> bool {
        let now = Instant::now();
        let (since, wait) = self.held.map_or((now, AGAIN), |(since, _, wait)| (since, wait * 2));
        self.held = Some((since, now + wait, wait));
        now + wait < since + HELD
    }
}

impl Generation {
    pub(super) fn new(workers: usize) -> Self {
        Generation {
            inherited: vec![Place::default(); workers],
            next: None,
            adopted: BTreeMap::new(),
            back: Errands::default(),
            switches: false,
            asked: false,
            handed: BTreeMap::new(),
            request: Request::default(),
            taking: BTreeMap::new(),
            stale: BTreeMap::new(),
            retired: Vec::new(),
            begun: None,
        }
    }

    pub(super) fn adopted(&mut self, w: usize, how: Result<(), String>) {
        self.adopted.insert(w, how);
    }

    /// Worker `w` has taken over; false if it was not told to.
    pub(super) fn took_over(&mut self, w: usize, refused: Vec<String>) -> bool {
        match self.taking.get_mut(&w) {
            Some(answer @ None) => {
                *answer = Some(refused);
                true
            }
            _ => false,
        }
    }

    /// True until the switch by which it began is told.
    pub(super) fn is_untold(&self) -> bool {
        self.begun.is_some()
    }

    /// True while workers rest, or are about to, to hand over what they know.
    pub(super) fn holds_still(&self) -> bool {
        self.asked
    }

    /// A successor of worker `w` begins, which was asked nothing.
    pub(super) fn expects_nothing(&mut self, w: usize) {
        self.stale.remove(&w);
    }

    pub(super) fn handed(&mut self, w: usize, handing: Handing) {
        // Its answer to a switch that did not wait for it.
        match self.stale.get_mut(&w) {
            Some(stale) if *stale > 0 => *stale -= 1,
            _ => drop(self.handed.insert(w, handing)),
        }
    }
}

impl Agent {
    /// Begins to make `setup` the next generation of the graph: [`Agent::turn`] goes on with it, and an
    /// event says how it went. The devices must be those of this generation.
    ///
    /// # Errors
    /// When it cannot even begin; the graph goes on.
    pub fn relink(&mut self, mut setup: Setup) -> Result<(), RelinkError> {
        if self.generation.next.is_some() {
            return Err(RelinkError::Busy);
        }
        if self.stopping || self.finished {
            return Err(RelinkError::Ending);
        }
        let services = services(&self.setup, &setup)?;
        setup.taps.clone_from(&self.setup.taps);
        let since = Instant::now();
        let crashes = self.crashes.for_next(&self.setup, &setup);
        for (w, careful) in crashes.careful() {
            setup.workers[w].careful.push(careful);
        }
        standby::place(&self.setup, &mut setup);
        let agent = Agent::launch(setup, self.policy, &Start::StandingBy);
        let agent = agent.map_err(|e| RelinkError::Start(Box::new(e)))?;
        self.generation.adopted.clear();
        let started = Instant::now();
        let next = Next {
            agent,
            services,
            told: None,
            since,
            started,
            precopy: None,
            in_front: None,
            leaving: None,
            calm: None,
            held: None,
        };
        self.generation.next = Some(Box::new(next));
        Ok(())
    }

    /// True while a next generation is being prepared.
    pub fn is_relinking(&self) -> bool {
        self.generation.next.is_some() || self.generation.switches
    }

    /// Generations that have ended since this was asked last, the oldest first.
    pub fn retired(&mut self) -> Vec<Retired> {
        std::mem::take(&mut self.generation.retired)
    }

    /// Where the device of worker `w` was when this generation began.
    pub(crate) fn inherited(&self, w: usize) -> Place {
        self.generation.inherited.get(w).copied().unwrap_or_default()
    }

    /// Does what is due of a relink; how long the agent may wait for something to happen.
    pub(super) fn go_on_relinking(&mut self, timeout: Duration) -> Result<Duration, AgentError> {
        self.tell_relinked();
        // What has happened is told before workers get other numbers.
        if !self.events.is_empty() {
            return Ok(timeout.min(TURN));
        }
        let Some(mut next) = self.generation.next.take() else { return Ok(timeout) };
        let prepared = if self.stopping || self.finished {
            Err(RelinkError::Ending)
        } else {
            self.prepare(&mut next)
        };
        let failed = match prepared {
            // The change before this one is told first.
            Ok(ready) if !ready || !self.may_switch(&next) => {
                self.generation.next = Some(next);
                return Ok(timeout.min(TURN));
            }
            Ok(_) => match self.switch_to(&mut next)? {
                Ok(relinked) => {
                    self.become_next(*next, relinked);
                    return Ok(Duration::ZERO);
                }
                Err(RelinkError::Held { .. }) if next.tries_again() => {
                    next.calm = None;
                    self.generation.next = Some(next);
                    return Ok(timeout.min(TURN));
                }
                Err(why) => why,
            },
            Err(why) => why,
        };
        self.forsake(&next);
        self.give_back(&mut next);
        self.take_words_of(&mut next.agent);
        self.events.push_back(Event::NotRelinked { why: failed });
        // Its processes end with it.
        drop(next);
        Ok(Duration::ZERO)
    }

    /// Switches, and says meanwhile that it is at it.
    fn switch_to(&mut self, next: &mut Next) -> Result<Result<Relinked, RelinkError>, AgentError> {
        self.generation.switches = true;
        let switched = self.switch(next);
        self.generation.switches = false;
        switched
    }

    /// The graph has ended: what is being prepared is given up, who waits for word of it gets one, and its processes end.
    pub(super) fn give_up_relinking(&mut self) {
        let Some(mut next) = self.generation.next.take() else { return };
        self.forsake(&next);
        self.take_words_of(&mut next.agent);
        self.events.push_back(Event::NotRelinked { why: RelinkError::Ending });
    }

    /// Goes on preparing; true when all is.
    fn prepare(&mut self, next: &mut Next) -> Result<bool, RelinkError> {
        next.agent.stand_by(Duration::ZERO)?;
        let patience = self.policy.start_patience;
        let failed = |e| RelinkError::Start(Box::new(e));
        if next.agent.start_waiting().map_err(failed)? {
            // Who is started last has as long as the first.
            next.started = Instant::now();
            return Ok(false);
        }
        let late = next.started.elapsed() > patience;
        let unready = |agent: &Agent| {
            let running = |w: &usize| matches!(agent.workers[*w].state, State::Running(_));
            let all = (0..agent.workers.len()).filter(running);
            all.filter(|w| !agent.liveness.is_ready(*w))
                .map(|w| agent.setup.workers[w].name.clone())
                .next()
        };
        if let Some(worker) = unready(&next.agent) {
            return if late { Err(RelinkError::Unready { worker, patience }) } else { Ok(false) };
        }
        // One that is being started again is waited for.
        if self.workers.iter().any(|w| matches!(w.state, State::Gone)) {
            // It was through with everything when it went.
            return Err(RelinkError::Ending);
        }
        let restarting =
            |w: &usize| !matches!(self.workers[*w].state, State::Running(_) | State::Done(_));
        let absent = (0..self.workers.len()).find(restarting);
        let absent = absent.map(|w| self.setup.workers[w].name.clone()).or_else(|| unready(self));
        if let Some(worker) = absent {
            self.is_calm_no_more(next);
            return if late { Err(RelinkError::Died { worker }) } else { Ok(false) };
        }
        let Some(told) = &next.told else {
            next.told = Some(self.tell_services(next)?);
            return Ok(false);
        };
        for (&w, &pid) in told {
            let worker = || self.setup.workers[w].name.clone();
            if self.pid(w) != Some(pid) {
                return Err(RelinkError::Died { worker: worker() });
            }
            match self.generation.adopted.get(&w) {
                Some(Ok(())) => {}
                Some(Err(why)) => {
                    let why = why.clone();
                    return Err(RelinkError::NotAdopted { worker: worker(), why });
                }
                None if late => return Err(RelinkError::Unready { worker: worker(), patience }),
                None => return Ok(false),
            }
        }
        if !self.have_left(next) {
            if next.leaves() {
                // Who dies meanwhile has as long to come back as who dies before.
                next.started = Instant::now();
            }
            return if late { Err(RelinkError::Moving) } else { Ok(false) };
        }
        // No order is taken meanwhile.
        if self.is_moving_flows() {
            return if late { Err(RelinkError::Moving) } else { Ok(false) };
        }
        let copied = self.precopy(next)?;
        // While it is too early for the pause services receive as ever.
        Ok(copied && (!self.may_switch(next) || self.is_calm(next)))
    }

    /// Lets the services attach to the memory of the next generation.
    fn tell_services(&mut self, next: &Next) -> Result<BTreeMap<usize, u32>, RelinkError> {
        let mut told = BTreeMap::new();
        for &(old, new) in &next.services {
            // The command first: who finds the message finds the command.
            self.order_quietly(old, command::ADOPT);
            let (State::Running(process) | State::Done(process)) = &mut self.workers[old].state
            else {
                continue;
            };
            let sent = process.tell_next(&next.agent.setup, &next.agent.memory, new);
            if let Err(e) = sent {
                // It may have got half of the message, and would wait for the rest.
                process.kill();
                let worker = self.setup.workers[old].name.clone();
                return Err(RelinkError::NotAdopted { worker, why: e.to_string() });
            }
            told.insert(old, process.pid().as_raw_nonzero().get() as u32);
            self.memory.workers[old].bell.ring();
        }
        Ok(told)
    }

    /// The services forget what they have adopted.
    fn forsake(&mut self, next: &Next) {
        self.end_precopy();
        for &w in next.told.iter().flatten().map(|(w, _)| w) {
            self.order(w, command::FORSAKE);
        }
    }

    /// Takes in what the workers that stand by say; waits so long for the first word. Who looks again and again instead takes turns, and
    /// caches, from whom it waits for.
    fn stand_by(&mut self, timeout: Duration) -> Result<(), RelinkError> {
        if let Some(dog) = &self.watchdog {
            dog.beat();
        }
        let failed = |e| RelinkError::Start(Box::new(e));
        for Heard { worker: w, said, spoke, ended } in self.wait(timeout).map_err(failed)? {
            if spoke {
                self.hear_words(w);
            }
            while said && self.listen(w).map_err(failed)? {}
            if ended {
                self.hear_last_words(w);
                let worker = self.setup.workers[w].name.clone();
                let how = match &mut self.workers[w].state {
                    State::Running(process) | State::Done(process) => process.wait(),
                    State::Waiting | State::Restarting(_) | State::Gone => continue,
                };
                let how = how.map_or_else(|e| e.to_string(), |status| status.to_string());
                let how = self.crashes.panics.remove(&w).unwrap_or(how);
                return Err(RelinkError::Stillborn { worker, how });
            }
        }
        Ok(())
    }

    /// The next generation has taken over: this agent is its agent from now on, and what it was retires.
    fn become_next(&mut self, next: Next, mut relinked: Relinked) {
        let mut old = std::mem::replace(self, next.agent);
        // Somebody may wait for what was answered while all workers were brought to rest; what happened to workers is the old
        // generation's to tell, as they have its numbers.
        let is_of_graph = |event: &Event| {
            matches!(
                event,
                Event::FlowsMoved { .. }
                    | Event::FlowsListed { .. }
                    | Event::Scaled { .. }
                    | Event::Levelled(_)
            )
        };
        let heard = std::mem::take(&mut old.events);
        let (of_graph, of_workers): (VecDeque<_>, _) = heard.into_iter().partition(is_of_graph);
        old.events = of_workers;
        self.events.extend(of_graph);
        // Who died since it was launched is remembered as well; those that began learn it when they die of it.
        self.crashes = old.crashes.for_next(&old.setup, &self.setup);
        self.generation.retired = std::mem::take(&mut old.generation.retired);
        (self.wake, self.ends_when) = (old.wake.take(), old.ends_when.take());
        self.turns = old.turns;
        self.meanwhile = old.meanwhile.take();
        self.flows = std::mem::take(&mut old.flows);
        self.flows_of_retired();
        let told = self.scales.go_on_from(&mut old.scales);
        self.events.extend(told);
        self.levels = Levels::new(&old.levels, &old.setup, self);
        for one in self.leave_as_before(std::mem::take(&mut old.leaving)) {
            old.tell_rest(&one, "the graph was changed, and has other instances");
        }
        relinked.uneven = self.levels.uneven();
        self.generation.begun = Some((Instant::now(), relinked));
        // One dog for all generations: that of a graph which is not looked after yet would bark.
        self.watchdog = old.watchdog.take().or_else(|| self.start_watchdog());
        self.claim_what_is_permitted();
        self.tell_watchdog();
        self.tell_relinked();
        let census = old.retire();
        self.generation.retired.push(Retired { agent: old, census });
    }

    /// Ends all that is left of this generation, which has handed over, and counts its buffers.
    fn retire(&mut self) -> Census {
        self.watchdog = None;
        self.dismiss_reserve();
        for w in 0..self.workers.len() {
            match &mut self.workers[w].state {
                State::Running(process) | State::Done(process) => process.kill(),
                State::Waiting | State::Restarting(_) | State::Gone => continue,
            }
            self.hear_last_words(w);
            self.workers[w].state = State::Gone;
            // What it held went over: it is not lost.
            recover(&self.setup, &mut self.memory, w);
            self.memory.forget_stack(w);
        }
        self.clear_tainted();
        Census::take(&self.setup, &self.memory)
    }

    /// The change before is told, and it is not too early to try again.
    fn may_switch(&self, next: &Next) -> bool {
        self.generation.begun.is_none() && !next.waits()
    }

    /// Tells of the switch by which this generation began, when all is known of it.
    fn tell_relinked(&mut self) {
        let Some((at, mut relinked)) = self.generation.begun else { return };
        if self.setup.is_live() && at.elapsed() < ASKED && !self.finished && !self.stopping {
            return;
        }
        self.generation.begun = None;
        relinked.missed = relinked.missed.saturating_add(self.missed_by_devices());
        self.events.push_back(Event::Relinked(relinked));
    }

    /// Packets that live devices have dropped since this generation began.
    fn missed_by_devices(&self) -> u64 {
        let counted = |w: usize| {
            let worker = self.memory.workers.get(w)?;
            let counts = NodeCounts::read(&worker.ledger.read()?, &worker.layout, 0);
            counts.drops.get(DropReason::KernelFull as usize).copied()
        };
        let is_rx = |w: &usize| matches!(self.setup.workers[*w].end, EndSpec::Rx { .. });
        let receive = (0..self.workers.len()).filter(is_rx);
        receive.filter_map(counted).fold(0, u64::saturating_add)
    }
}

/// Which service of `old` is which of `new`: by the policy's port, and the file of drops by its domain.
fn services(old: &Setup, new: &Setup) -> Result<Vec<(usize, usize)>, RelinkError> {
    /// What a service is, whatever number it has.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Key {
        Rx(u16),
        Tx(u16),
        Dump(std::path::PathBuf),
    }
    let keys = |setup: &Setup| {
        let mut all = BTreeMap::new();
        for (w, worker) in setup.workers.iter().enumerate() {
            let key = match &worker.end {
                EndSpec::Rx { port, .. } => Key::Rx(*port),
                EndSpec::Tx { port, .. } => Key::Tx(*port),
                EndSpec::Dump(spec) => Key::Dump(spec.path.clone()),
                EndSpec::Gate { .. } | EndSpec::Drain | EndSpec::None => continue,
            };
            all.insert(key, w);
        }
        all
    };
    let refused = |key: &Key, what: [&'static str; 2]| match (key, what) {
        (Key::Rx(port), [change, _]) | (Key::Tx(port), [_, change]) => {
            RelinkError::Ports { port: *port, change }
        }
        (Key::Dump(_), _) => RelinkError::Dumps,
    };
    let (before, mut after) = (keys(old), keys(new));
    let mut pairs = Vec::new();
    for (key, o) in &before {
        let gone = ["not received from any more", "not sent to any more"];
        let n = after.remove(key).ok_or_else(|| refused(key, gone))?;
        pairs.push((*o, n));
    }
    match after.keys().next() {
        Some(key) => {
            Err(refused(key, ["received from for the first time", "sent to for the first time"]))
        }
        None => Ok(pairs),
    }
}
