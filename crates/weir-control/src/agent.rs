//! The agent's loop.

mod bury;
mod crash;
mod duty;
mod hear;
mod hosted;
mod liveness;
mod still;
mod trust;
mod view;

pub use crash::Crash;

use crate::census::Census;
use crate::memory::{Memory, MemoryError};
use crate::process::{Process, Programs, SpawnError};
use crate::recover::recover;
use crate::setup::{Setup, WorkerSetup};
use crate::watchdog::Watchdog;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
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
}

/// How often the agent looks whether an interface that was deleted is there again.
const RETAKE: Duration = Duration::from_millis(100);

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            window: Duration::from_secs(10),
            delay: Duration::from_millis(10),
            longest: Duration::from_millis(500),
            offences: 5,
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

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker is running (again).
    Ready {
        /// Index of the worker.
        worker: usize,
        /// In the real-time class.
        real_time: bool,
        /// Time since its predecessor's death was noticed, when it had one.
        after: Option<Duration>,
    },
    /// A worker died and the graph was mended.
    Died {
        /// Index of the worker.
        worker: usize,
        /// How.
        how: String,
        /// Packets lost with it.
        lost: u64,
        /// Buffers swept.
        swept: u64,
        /// What mending took.
        mended: Duration,
    },
    /// A worker wants the operator to know something.
    Warning {
        /// Index of the worker.
        worker: usize,
        /// What.
        text: String,
    },
    /// A worker did what no sound one does, and was ended.
    Offence {
        /// Index of the worker.
        worker: usize,
        /// What it did.
        what: String,
    },
    /// A µNF brought its worker's death about.
    Crashed(Crash),
    /// A worker neither took nor gave, and was ended.
    Hung {
        /// Index of the worker.
        worker: usize,
        /// What was wrong with it.
        what: &'static str,
    },
    /// A worker was named too often: what comes for it is dropped from now on.
    Quarantined {
        /// Index of the worker.
        worker: usize,
    },
    /// Where each buffer of a domain is was found out anew.
    Audited {
        /// Index of the domain.
        domain: usize,
        /// Ring entries that were voided.
        voided: u64,
    },
    /// Packets wait and nobody moves any.
    StandsStill {
        /// Whom they wait for.
        why: String,
    },
    /// All input has ended and everything has been passed on.
    Finished,
}

enum State {
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
    /// Deaths in a row that its µNFs brought about, each within the policy's window of the one before.
    crashes: u32,
    /// How often its successor had to begin with nothing remembered.
    forgotten: u32,
    /// Deaths in a row, each within the policy's window of the one before.
    deaths: u32,
    restarts: u32,
    lost: u64,
    report: Vec<String>,
}

/// A running graph.
pub struct Agent {
    setup: Setup,
    programs: Programs,
    memory: Memory,
    workers: Vec<Worker>,
    policy: RestartPolicy,
    events: VecDeque<Event>,
    watchdog: Option<Watchdog>,
    liveness: liveness::Liveness,
    crashes: crash::Crashes,
    retaken: Instant,
    trust: trust::Trust,
    still: still::Still,
    stopping: bool,
    finished: bool,
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
        raise_descriptor_limit();
        let programs = Programs::open(&setup).map_err(SpawnError::from)?;
        let memory = Memory::new(&setup)?;
        let real_time = setup.workers.iter().any(|w| w.schedule.real_time);
        let watchdog = if real_time { Watchdog::start() } else { None };
        let mut agent = Agent {
            workers: Vec::new(),
            programs,
            memory,
            policy,
            events: VecDeque::new(),
            watchdog,
            liveness: liveness::Liveness::new(setup.workers.len()),
            crashes: crash::Crashes::default(),
            retaken: Instant::now(),
            trust: trust::Trust::new(&setup),
            still: still::Still::default(),
            stopping: false,
            finished: false,
            setup,
        };
        for w in 0..agent.setup.workers.len() {
            let state = if hosted(&agent.setup.workers[w]) {
                State::Gone
            } else {
                let fault = agent.setup.workers[w].fault;
                let (programs, setup, memory) = (&agent.programs, &agent.setup, &agent.memory);
                State::Running(Process::start(programs, setup, memory, w, fault)?)
            };
            agent.workers.push(Worker {
                state,
                died: None,
                last_death: None,
                stillborn: 0,
                crashes: 0,
                forgotten: 0,
                deaths: 0,
                restarts: 0,
                lost: 0,
                report: Vec::new(),
            });
        }
        for w in 0..agent.workers.len() {
            agent.liveness.started(w);
        }
        agent.tell_watchdog();
        Ok(agent)
    }

    /// Ends all input; what is under way runs out.
    pub fn stop(&mut self) {
        self.stopping = true;
        for w in 0..self.workers.len() {
            self.order(w, command::STOP);
        }
    }

    /// Waits until something happens or `timeout` is over, and does what is due. Afterwards
    /// [`Agent::event`] has what happened.
    pub fn turn(&mut self, timeout: Duration) -> Result<(), AgentError> {
        if let Some(dog) = &self.watchdog {
            dog.beat();
        }
        let timeout = self.restart_due(timeout)?;
        let ready = self.wait(timeout)?;
        for (w, said, ended) in ready {
            if said {
                self.listen(w)?;
            }
            if ended {
                self.bury(w)?;
            }
        }
        self.look()?;
        self.convict_deaf();
        self.feel_pulses();
        self.notice_standstill();
        self.retake_interfaces();
        let done = |w: &Worker| matches!(w.state, State::Done(_) | State::Gone);
        if !self.finished && self.workers.iter().all(done) {
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

    fn restart_due(&mut self, timeout: Duration) -> Result<Duration, AgentError> {
        let now = Instant::now();
        let mut timeout = timeout;
        for w in 0..self.workers.len() {
            let State::Restarting(at) = self.workers[w].state else { continue };
            if at <= now {
                // What its predecessor was told and did not take is over.
                self.memory.workers[w].forget_commands();
                self.trust.expects_nothing(w);
                if self.stopping {
                    self.order(w, command::STOP);
                }
                // A fault that a test asked for is the first process's alone.
                let process = Process::start(&self.programs, &self.setup, &self.memory, w, None)?;
                self.workers[w].state = State::Running(process);
                self.liveness.started(w);
                self.workers[w].restarts += 1;
                self.tell_watchdog();
            } else {
                timeout = timeout.min(at - now);
            }
        }
        Ok(timeout)
    }

    fn tell_watchdog(&self) {
        if let Some(dog) = &self.watchdog {
            let pids = self.workers.iter().filter_map(|w| match &w.state {
                State::Running(p) | State::Done(p) => Some(p.pid()),
                State::Restarting(_) | State::Gone => None,
            });
            dog.set_workers(pids.collect());
        }
    }

    /// Sends everybody home and counts the buffers.
    pub fn dismiss(&mut self) -> Census {
        self.last_look();
        let mut children = Vec::new();
        for (w, worker) in self.workers.iter_mut().enumerate() {
            match std::mem::replace(&mut worker.state, State::Gone) {
                State::Done(process) => children.push((w, process.dismiss())),
                State::Running(mut process) => process.kill(),
                State::Restarting(_) | State::Gone => {}
            }
        }
        for (w, mut leaving) in children {
            // One that was killed on its way out has not written down what it held.
            if !leaving.wait() {
                recover(&self.setup, &mut self.memory, w);
                self.memory.forget_stack(w);
            }
        }
        self.clear_tainted();
        Census::take(&self.setup, &self.memory)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            if let State::Running(process) | State::Done(process) = &mut worker.state {
                process.kill();
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
