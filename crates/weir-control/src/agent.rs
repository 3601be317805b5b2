//! The agent's loop.

mod absent;
mod bury;
mod crash;
mod cycles;
mod duty;
mod elsewhere;
mod ending;
mod event;
mod flows;
mod generation;
mod hear;
mod hosted;
mod knells;
mod levels;
mod liveness;
mod load;
mod renew;
mod reserve;
mod scale;
mod still;
mod trust;
mod view;
mod voices;

pub use crash::Crash;
pub use event::Event;
pub use flows::{FlowCount, FlowRow, Listed, MoveError, MoveFlows, Moved};
pub use generation::{RelinkError, Relinked, Retired};
pub use levels::Levelled;
pub use load::LoadRow;
pub use renew::{RenewError, Renewed, Renewing};

use crate::census::Census;
use crate::memory::{Memory, MemoryError};
use crate::process::{Beginning, Process, Programs, SpawnError};
use crate::recover::recover;
use crate::setup::{Setup, WorkerSetup};
use crate::spare;
use crate::voice::Allowance;
use crate::watchdog::{LONGEST_WAIT, Watchdog, Watched};
use hear::Heard;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_device::Place;
use weir_mem::realtime::Turns;
use weir_runtime::spec::command;

/// How workers that die are restarted: at once the first time, and with a growing delay when they
/// die again within `window`.
#[derive(Debug, Clone, Copy)]
pub struct RestartPolicy {
    /// A death this long after the one before counts as a first one.
    pub window: Duration,
    /// Delay before the second restart; doubled each time.
    pub delay: Duration,
    /// Longest delay.
    pub longest: Duration,
    /// A worker that shows no sign of life for so long is ended and started again; `None`: never.
    pub patience: Option<Duration>,
    /// A worker that is not ready so long after its start is ended and started again (not without
    /// `patience`).
    pub start_patience: Duration,
    /// A worker that is named for nonsense so often within `window` is not started again: a drain
    /// takes its place.
    pub offences: u32,
    /// How long what is under way may take to run out after [`Agent::stop`]; then workers are ended.
    pub drain: Duration,
}

/// Workers that are started at once.
const AT_ONCE: usize = 64;
/// How many of the others are started in a turn: some ten milliseconds' worth.
const EACH_TURN: usize = 8;

/// How often the agent looks whether an interface that was deleted is there again.
const RETAKE: Duration = Duration::from_millis(100);

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            window: Duration::from_secs(10),
            delay: Duration::from_millis(10),
            longest: Duration::from_millis(500),
            offences: 5,
            // A full ring of slow NFs' packets takes some seconds.
            drain: Duration::from_secs(10),
            patience: Some(Duration::from_millis(500)),
            // Building the largest rule sets takes seconds, on a busy machine some more.
            start_patience: Duration::from_secs(20),
        }
    }
}

/// Why the agent cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A worker could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A worker says that it cannot do its work.
    #[error("{worker}: {why}")]
    Worker {
        /// Its name.
        worker: String,
        /// What it says.
        why: String,
    },
    /// Waiting failed.
    #[error("cannot wait for workers: {0}")]
    Wait(rustix::io::Errno),
}

/// How long who was killed shortly before a graph ends may take to be gone.
const GONE_IN: Duration = Duration::from_secs(2);

enum State {
    /// To be started for the first time: of hundreds only some are at once.
    Waiting,
    /// Running; the process may not have said so yet.
    Running(Process),
    /// Dead; to be started again.
    Restarting(Instant),
    /// Its input has ended and everything was passed on.
    Done(Process),
    /// As `Done`, and the process has gone.
    Gone,
}

struct Worker {
    state: State,
    /// When its death was noticed, until its successor is ready.
    died: Option<Instant>,
    last_death: Option<Instant>,
    /// Deaths in a row before it was ready.
    stillborn: u32,
    /// It is ready, and reads on what its predecessor has left.
    reads: bool,
    /// It is ready, and was in the real-time class then.
    real_time: bool,
    /// Why the last of them could not begin, if it said so.
    failed: Option<String>,
    /// Deaths in a row that its µNFs brought about, each within the policy's window of the one before.
    crashes: u32,
    /// How often its successor had to begin with nothing remembered.
    forgotten: u32,
    /// How often another waited no longer for flows that it had announced.
    unsent: u32,
    /// Deaths in a row, each within the policy's window of the one before.
    deaths: u32,
    restarts: u32,
    /// The time from its last death to its being ready again.
    was_away: Option<Duration>,
    /// What its successors have got back from the replica.
    recovered: Recovered,
    lost: u64,
    /// The operator had it ended, and wants it to go on with what it had.
    renewed: bool,
    /// The process that waits to be its successor.
    reserve: Option<Process>,
    /// The packet socket that its last process has left, with all that waits there.
    left: Option<OwnedFd>,
    /// Packets in sockets that were left so and nobody goes on with: what its next process counts first.
    unread: u64,
    /// Where its device was when it died last.
    left_at: Option<Place>,
    report: Vec<String>,
    /// What it may say.
    allowance: Allowance,
}

/// What a worker's successors have got back of what its µNFs remembered of flows, by their own word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recovered {
    /// How many successors have told so.
    pub times: u32,
    /// Flows, of all deaths.
    pub flows: u64,
    /// Records that were refused, as they were damaged.
    pub refused: u64,
    /// The longest that reading took, in microseconds.
    pub reading_us: u64,
    /// The longest until a successor had read all of them, from when the death was noticed, in microseconds; packets go before.
    pub away_us: u64,
    /// The longest until a successor's first batch was through, from when the death was noticed, in microseconds; 0 when none was. If
    /// no packets came, the time without them is in it.
    pub first_out_us: u64,
    /// Flows that have gone on at other instances of their NFs, as the operator wants it after a death.
    pub left: u64,
    /// The longest until all of a death had, from when it was noticed, in microseconds.
    pub left_us: u64,
}

impl Recovered {
    pub(crate) fn add(&mut self, other: Recovered) {
        self.times = self.times.saturating_add(other.times);
        self.flows = self.flows.saturating_add(other.flows);
        self.refused = self.refused.saturating_add(other.refused);
        self.reading_us = self.reading_us.max(other.reading_us);
        self.away_us = self.away_us.max(other.away_us);
        self.first_out_us = self.first_out_us.max(other.first_out_us);
        self.left = self.left.saturating_add(other.left);
        self.left_us = self.left_us.max(other.left_us);
    }
}

/// What is done again and again while a graph is held still for a change.
type Meanwhile = Box<dyn FnMut(&mut Agent)>;

/// A running graph.
pub struct Agent {
    setup: Setup,
    programs: Programs,
    memory: Memory,
    workers: Vec<Worker>,
    policy: RestartPolicy,
    events: VecDeque<Event>,
    watchdog: Option<Watchdog>,
    /// On cores for real-time workers, while there may be such.
    claim: Option<spare::Claim>,
    liveness: liveness::Liveness,
    crashes: crash::Crashes,
    retaken: Instant,
    trust: trust::Trust,
    still: still::Still,
    cycles: cycles::Cycles,
    generation: generation::Generation,
    flows: flows::Desk,
    scales: scale::Scales,
    levels: levels::Levels,
    reserves: reserve::Reserves,
    knells: knells::Knells,
    leaving: Vec<elsewhere::Leaving>,
    /// Ends a wait when it has something to read.
    wake: Option<OwnedFd>,
    /// Whether the operator wants the graph to end.
    ends_when: Option<Box<dyn Fn() -> bool>>,
    /// What is done besides while the graph is held still for a change.
    meanwhile: Option<Meanwhile>,
    stopping: bool,
    /// Until when what is under way has to have run out.
    ends_by: Option<Instant>,
    /// Packets that were under way then and did not.
    undrained: Option<u64>,
    finished: bool,
    /// Its workers begin when they are told to.
    stands_by: bool,
    /// How its thread takes its turns, if that is its to say.
    turns: Option<Turns>,
}

/// How workers are started.
enum Start<'f> {
    /// As processes that begin at once, but for those that the caller plays.
    Hosting(&'f dyn Fn(&WorkerSetup) -> bool),
    /// As processes that wait for the word, but for services, whose processes are the generation's before.
    StandingBy,
}

impl Agent {
    /// Makes the memory and starts all workers.
    pub fn start(setup: Setup, policy: RestartPolicy) -> Result<Self, AgentError> {
        Self::start_hosting(setup, policy, |_| false)
    }

    /// As [`Agent::start`], without processes for the workers that `hosted` names: the caller plays
    /// them ([`Agent::stepper`]). For measurements.
    pub fn start_hosting(
        setup: Setup,
        policy: RestartPolicy,
        hosted: impl Fn(&WorkerSetup) -> bool,
    ) -> Result<Self, AgentError> {
        Self::launch(setup, policy, &Start::Hosting(&hosted))
    }

    fn launch(
        mut setup: Setup,
        policy: RestartPolicy,
        start: &Start<'_>,
    ) -> Result<Self, AgentError> {
        raise_descriptor_limit();
        let claim = spare::Claim::of(&mut setup.workers, spare::online());
        let programs = Programs::open(&setup).map_err(SpawnError::from)?;
        let mut memory = Memory::new(&setup)?;
        if matches!(start, Start::StandingBy) {
            memory.ask_for_flows();
        }
        let mut agent = Agent {
            workers: Vec::new(),
            programs,
            memory,
            policy,
            events: VecDeque::new(),
            watchdog: None,
            claim,
            liveness: liveness::Liveness::new(setup.workers.len()),
            crashes: crash::Crashes::default(),
            retaken: Instant::now(),
            trust: trust::Trust::new(&setup),
            still: still::Still::default(),
            cycles: cycles::Cycles::default(),
            generation: generation::Generation::new(setup.workers.len()),
            flows: flows::Desk::default(),
            scales: scale::Scales::new(&setup),
            levels: levels::Levels::default(),
            reserves: reserve::Reserves::default(),
            knells: knells::Knells::default(),
            leaving: Vec::new(),
            wake: None,
            ends_when: None,
            meanwhile: None,
            stopping: false,
            ends_by: None,
            undrained: None,
            finished: false,
            stands_by: false,
            turns: None,
            setup,
        };
        for w in 0..agent.setup.workers.len() {
            let own = &agent.setup.workers[w];
            let (absent, standby) = match start {
                Start::Hosting(hosted) => (hosted(own), false),
                Start::StandingBy => (own.serves(), true),
            };
            let state = if absent {
                State::Gone
            } else {
                let (programs, setup, memory) = (&agent.programs, &agent.setup, &agent.memory);
                match w < AT_ONCE {
                    true => {
                        let how = Beginning { fault: own.fault, standby, socket: None };
                        State::Running(Process::start(programs, setup, memory, w, how)?)
                    }
                    false => State::Waiting,
                }
            };
            agent.workers.push(Worker {
                state,
                died: None,
                last_death: None,
                stillborn: 0,
                reads: false,
                real_time: false,
                failed: None,
                crashes: 0,
                forgotten: 0,
                unsent: 0,
                deaths: 0,
                restarts: 0,
                was_away: None,
                recovered: Recovered::default(),
                lost: 0,
                renewed: false,
                reserve: None,
                left: None,
                unread: 0,
                left_at: None,
                report: Vec::new(),
                allowance: Allowance::default(),
            });
        }
        for w in 0..agent.workers.len() {
            agent.liveness.started(w);
        }
        agent.stands_by = matches!(start, Start::StandingBy);
        if !matches!(start, Start::StandingBy) {
            // What it is asked, and what a change of the graph waits for, is not to wait for services that poll on its core. It is a wish.
            agent.turns = Turns::take_short();
            agent.watchdog = agent.start_watchdog();
            agent.claim_what_is_permitted();
        }
        agent.tell_watchdog();
        Ok(agent)
    }

    /// Has [`Agent::turn`] wait no longer when an eventfd is written to: somebody else has something for who calls it.
    pub fn wake_by(&mut self, eventfd: OwnedFd) {
        self.wake = Some(eventfd);
    }

    /// Whether the graph is to end, as [`Agent::stop`] will say: a change for which it is held still for some seconds is given up
    /// then.
    pub fn ends_when(&mut self, ends: impl Fn() -> bool + 'static) {
        self.ends_when = Some(Box::new(ends));
    }

    /// What to do again and again while the graph is held still for a change, which takes seconds where much is under way: [`Agent::turn`]
    /// does not come back before, and who asks something is not to wait for that.
    pub fn meanwhile(&mut self, serve: impl FnMut(&mut Agent) + 'static) {
        self.meanwhile = Some(Box::new(serve));
    }

    /// Ends all input; what is under way runs out, or is given up when it takes longer than [`RestartPolicy::drain`].
    pub fn stop(&mut self) {
        self.stopping = true;
        self.dismiss_reserve();
        self.ends_by.get_or_insert(Instant::now() + self.policy.drain);
        for w in 0..self.workers.len() {
            self.order(w, command::STOP);
        }
    }

    /// Waits until something happens or `timeout` is over, but for half a second at most: who waits
    /// for longer looks to the watchdog like one who does not get to run. Then it does what is due;
    /// [`Agent::event`] has what happened.
    pub fn turn(&mut self, timeout: Duration) -> Result<(), AgentError> {
        if let Some(dog) = &self.watchdog {
            dog.beat();
            if dog.has_barked() {
                self.events.push_back(Event::Demoted);
            }
        }
        let timeout = self.go_on_relinking(timeout)?;
        let timeout = self.restart_due(timeout)?;
        let ready = self.wait(timeout.min(LONGEST_WAIT))?;
        for Heard { worker, said, spoke, ended } in ready {
            if spoke {
                self.hear_words(worker);
            }
            if said {
                self.listen(worker)?;
            }
            if ended {
                self.bury(worker)?;
            }
        }
        self.look()?;
        self.convict_deaf();
        self.feel_pulses();
        crate::reaper::reap();
        self.answer_in_time();
        self.notice_standstill();
        self.move_queued();
        // Before the last, which takes what is left of answers.
        self.hear_of_errands();
        self.go_on_giving_back();
        self.level();
        self.go_on_leaving();
        self.scale();
        self.end_cycles();
        self.retake_interfaces();
        self.fill_reserve();
        self.end_in_time();
        let done = |w: &Worker| matches!(w.state, State::Done(_) | State::Gone);
        if !self.finished && self.workers.iter().all(done) {
            self.give_up_relinking();
            self.finished = true;
            self.events.push_back(Event::Finished);
        }
        Ok(())
    }

    /// Takes up interfaces that were deleted and made anew, now and then: services may not.
    fn retake_interfaces(&mut self) {
        if self.retaken.elapsed() < RETAKE {
            return;
        }
        self.retaken = Instant::now();
        for (name, fd) in &self.setup.taps {
            weir_device::retake_tap(name, fd);
        }
        for (w, worker) in self.workers.iter().enumerate() {
            if let State::Running(process) = &worker.state
                && let Some(fd) = process.packets()
                && let Some((name, receives)) = self.setup.packets(w)
            {
                weir_device::retake_packets(name, fd, receives);
            }
        }
    }

    /// The next thing that happened.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Of what happened the answers to [`Agent::list_flows`], for who does not want to wait until all before them has been told.
    pub fn listed(&mut self) -> Vec<Event> {
        let is_answer = |event: &Event| matches!(event, Event::FlowsListed { .. });
        if !self.events.iter().any(is_answer) {
            return Vec::new();
        }
        let events = std::mem::take(&mut self.events).into_iter();
        let (answers, rest): (Vec<_>, Vec<_>) = events.partition(is_answer);
        self.events = rest.into();
        answers
    }

    /// Starts some of the workers that have not been yet. Starting hundreds takes seconds, and meanwhile signals are
    /// to be heard and workers to be mended. True when some are left.
    fn start_waiting(&mut self) -> Result<bool, AgentError> {
        let is_waiting = |w: &Worker| matches!(w.state, State::Waiting);
        let mut waiting = (0..self.workers.len()).filter(|w| is_waiting(&self.workers[*w]));
        let now: Vec<usize> = waiting.by_ref().take(EACH_TURN).collect();
        let left = waiting.next().is_some();
        for &w in &now {
            let (fault, standby) = (self.setup.workers[w].fault, self.stands_by);
            let how = Beginning { fault, standby, socket: None };
            let process = Process::start(&self.programs, &self.setup, &self.memory, w, how)?;
            self.workers[w].state = State::Running(process);
            self.liveness.started(w);
        }
        if !now.is_empty() {
            self.tell_watchdog();
        }
        Ok(left)
    }

    /// A watchdog, if the real-time class may be asked for, by workers or, in the pause of a change, by the agent.
    fn start_watchdog(&self) -> Option<Watchdog> {
        if self.setup.real_time { Watchdog::start() } else { None }
    }

    /// Where the real-time class is not permitted there is no watchdog, and no core is taken from other graphs.
    fn claim_what_is_permitted(&mut self) {
        if self.watchdog.is_none() {
            self.claim = None;
        }
    }

    /// Whom it is to watch: all that run.
    pub(super) fn tell_watchdog(&self) {
        let Some(dog) = &self.watchdog else { return };
        let mut watched = Watched::default();
        for (worker, setup) in self.workers.iter().zip(&self.setup.workers) {
            let (State::Running(process) | State::Done(process)) = &worker.state else { continue };
            watched.all.push(process.pid());
            if worker.real_time {
                watched.real_time.push((process.pid(), setup.schedule.core));
            }
        }
        dog.watch(watched);
    }

    /// Sends everybody home and counts the buffers.
    pub fn dismiss(&mut self) -> Census {
        self.last_look();
        self.dismiss_reserve();
        let mut children = Vec::new();
        for w in 0..self.workers.len() {
            if let State::Running(process) = &mut self.workers[w].state {
                process.kill_last();
                self.hear_last_words(w);
            }
            match std::mem::replace(&mut self.workers[w].state, State::Gone) {
                State::Done(process) => children.push((w, process.dismiss())),
                State::Running(_) | State::Waiting | State::Restarting(_) | State::Gone => {}
            }
        }
        for (w, leaving) in children {
            // One that was killed on its way out has not written down what it held.
            if !self.see_off(w, leaving) {
                recover(&self.setup, &mut self.memory, w);
                self.memory.forget_stack(w);
            }
        }
        self.clear_tainted();
        crate::reaper::wait_for_all(GONE_IN);
        Census::take(&self.setup, &self.memory)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            if let State::Running(process) | State::Done(process) = &mut worker.state {
                process.kill_last();
            }
        }
    }
}

/// Each ring is two descriptors: a long isolated chain needs more than the usual 1,024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}
