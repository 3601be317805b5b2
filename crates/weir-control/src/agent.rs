//! The agent's loop.

mod crash;
mod hosted;
mod liveness;
mod trust;

pub use crash::Crash;

use crate::census::Census;
use crate::memory::{Memory, MemoryError};
use crate::process::{Process, Programs, SpawnError};
use crate::recover::recover;
use crate::setup::{Setup, WorkerSetup};
use crate::watchdog::Watchdog;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use weir_runtime::link::LinkError;
use weir_runtime::spec::{FromWorker, command};

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
    /// A worker that is named for nonsense so often within `window` is not started again: a drain
    /// takes its place.
    pub offences: u32,
}

/// A worker that dies more often than this before it is ready is given up: restarting will not help.
const STILLBORN: u32 = 5;
/// One that died and then so often before it was ready again begins without what it remembered: that
/// may be what kills it.
const FORGET: u32 = 2;
/// How often the agent looks whether a TAP interface that was deleted is there again.
const RETAKE: Duration = Duration::from_millis(100);

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            window: Duration::from_secs(10),
            delay: Duration::from_millis(10),
            longest: Duration::from_millis(500),
            offences: 5,
            patience: Some(Duration::from_millis(500)),
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
                deaths: 0,
                restarts: 0,
                lost: 0,
                report: Vec::new(),
            });
        }
        agent.tell_watchdog();
        Ok(agent)
    }

    /// What is running.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Process number of a worker, while it has one.
    pub fn pid(&self, worker: usize) -> Option<u32> {
        match &self.workers.get(worker)?.state {
            State::Running(p) | State::Done(p) => Some(p.pid().as_raw_nonzero().get() as u32),
            State::Restarting(_) | State::Gone => None,
        }
    }

    /// One line on the sandbox that workers are in.
    pub fn sandbox(&self) -> String {
        self.programs.summary()
    }

    /// True when packet bytes are on huge pages.
    pub fn huge_pages(&self) -> bool {
        self.memory.huge()
    }

    /// Bytes of packet memory, and of one buffer.
    pub fn memory_size(&self) -> (usize, usize) {
        self.memory.size()
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
        self.feel_pulses();
        self.retake_taps();
        let done = |w: &Worker| matches!(w.state, State::Done(_) | State::Gone);
        if !self.finished && self.workers.iter().all(done) {
            self.finished = true;
            self.events.push_back(Event::Finished);
        }
        Ok(())
    }

    /// Takes up TAP interfaces that were deleted and made anew, now and then.
    fn retake_taps(&mut self) {
        if self.retaken.elapsed() < RETAKE {
            return;
        }
        self.retaken = Instant::now();
        for (name, fd) in &self.setup.taps {
            weir_device::retake_tap(name, fd);
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
                if self.stopping {
                    self.order(w, command::STOP);
                }
                // A fault that a test asked for is the first process's alone.
                let process = Process::start(&self.programs, &self.setup, &self.memory, w, None)?;
                self.workers[w].state = State::Running(process);
                self.workers[w].restarts += 1;
                self.tell_watchdog();
            } else {
                timeout = timeout.min(at - now);
            }
        }
        Ok(timeout)
    }

    /// Which workers said something or ended.
    fn wait(&self, timeout: Duration) -> Result<Vec<(usize, bool, bool)>, AgentError> {
        let mut fds = Vec::new();
        let mut whose = Vec::new();
        for (i, worker) in self.workers.iter().enumerate() {
            if let State::Running(p) | State::Done(p) = &worker.state {
                fds.push(PollFd::from_borrowed_fd(p.socket(), PollFlags::IN));
                fds.push(PollFd::from_borrowed_fd(p.pidfd(), PollFlags::IN));
                whose.push(i);
            }
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(AgentError::Wait(e)),
        }
        let heard = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let pairs = fds.chunks_exact(2).zip(whose);
        Ok(pairs.map(|(f, w)| (w, heard(&f[0]), heard(&f[1]))).collect())
    }

    /// Takes in one message; false when there was none.
    fn listen(&mut self, w: usize) -> Result<bool, AgentError> {
        let (State::Running(process) | State::Done(process)) = &mut self.workers[w].state else {
            return Ok(false);
        };
        let message = match process.hear() {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(false),
            // It ended (its descriptor will tell), or sent nonsense: then it is ended.
            Err(LinkError::Closed) => return Ok(false),
            Err(_) => {
                let _ = rustix::process::kill_process(process.pid(), rustix::process::Signal::KILL);
                self.convict(w, "sent nonsense to the agent");
                return Ok(false);
            }
        };
        if self.too_many_messages(w) {
            self.convict(w, "sent the agent more than it reads");
        }
        let is_nf = self.setup.workers[w].runs_nfs();
        let early = is_nf && matches!(message, FromWorker::Done) && !self.may_be_done(w);
        let worker = &mut self.workers[w];
        match message {
            FromWorker::Ready { real_time } => {
                self.trust.ready(w);
                self.liveness.ready(w);
                let after = worker.died.take().map(|d| d.elapsed());
                worker.stillborn = 0;
                self.events.push_back(Event::Ready { worker: w, real_time, after });
            }
            // One µNF's failing is no reason to end a graph that runs.
            FromWorker::Failed(text) if is_nf && self.trust.was_ready(w) => {
                self.events.push_back(Event::Warning { worker: w, text });
            }
            FromWorker::Failed(why) => {
                let worker = self.setup.workers[w].name.clone();
                return Err(AgentError::Worker { worker, why });
            }
            FromWorker::Warning(text) => {
                self.events.push_back(Event::Warning { worker: w, text });
            }
            FromWorker::Panicked(text) => {
                self.crashes.panics.insert(w, text);
            }
            FromWorker::Report(reports) => worker.report = reports,
            FromWorker::Paused(held) => self.trust.rests(w, held),
            FromWorker::Done if early => {
                self.convict(w, "said that it was done before its input had ended");
            }
            FromWorker::Done => {
                let state = std::mem::replace(&mut worker.state, State::Gone);
                if let State::Running(process) = state {
                    worker.state = State::Done(process);
                }
            }
        }
        Ok(true)
    }

    /// A process has ended.
    fn bury(&mut self, w: usize) -> Result<(), AgentError> {
        self.liveness.gone(w);
        let noticed = Instant::now();
        // What it said last may still be in the socket.
        while let State::Running(p) | State::Done(p) = &self.workers[w].state
            && readable(p.socket())
            && self.listen(w)?
        {}
        let worker = &mut self.workers[w];
        let state = std::mem::replace(&mut worker.state, State::Gone);
        let (mut process, was_done) = match state {
            State::Running(p) => (p, false),
            State::Done(p) => (p, true),
            other => {
                worker.state = other;
                return Ok(());
            }
        };
        let how = match process.wait() {
            Ok(status) => {
                let how = how_ended(status);
                self.examine(w, status, &how);
                if status.signal() == Some(rustix::process::Signal::SYS.as_raw()) {
                    // What a worker that tries such things has written is not to be believed.
                    self.accuse(w, "tried what its sandbox forbids");
                }
                how
            }
            Err(e) => e.to_string(),
        };
        let offence = self.trust.offence(w).is_some();
        let damage = self.mend(w, offence)?;
        let mended = noticed.elapsed();
        let quarantined = offence && self.quarantine(w);
        // A named one has to do what was left undone, whatever it said.
        let was_done = was_done && !offence;
        let hopeless = self.setup.workers[w].runs_nfs() && self.trust.was_ready(w);
        let worker = &mut self.workers[w];
        worker.lost += damage.lost;
        if !was_done {
            let again = worker.last_death.is_some_and(|d| noticed - d < self.policy.window);
            worker.deaths = if again { worker.deaths + 1 } else { 1 };
            worker.last_death = Some(noticed);
            worker.stillborn += 1;
            if worker.stillborn > FORGET {
                self.memory.clear_kept(w);
            }
            if quarantined {
                (worker.stillborn, worker.deaths) = (0, 0);
            }
            if worker.stillborn > STILLBORN && hopeless {
                (worker.stillborn, worker.deaths) = (0, 0);
                self.close(w);
            } else if worker.stillborn > STILLBORN {
                let worker = self.setup.workers[w].name.clone();
                let why = format!("it dies before it is ready, again and again ({how})");
                return Err(AgentError::Worker { worker, why });
            }
            let worker = &mut self.workers[w];
            worker.died = Some(noticed);
            let doublings = worker.deaths.saturating_sub(2).min(16);
            let delay = if worker.deaths < 2 {
                Duration::ZERO
            } else {
                (self.policy.delay * (1 << doublings)).min(self.policy.longest)
            };
            worker.state = State::Restarting(noticed + delay);
        } else {
            self.memory.forget_stack(w);
        }
        let (lost, swept) = (damage.lost, damage.swept);
        self.events.push_back(Event::Died { worker: w, how, lost, swept, mended });
        Ok(())
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

    /// The ledger words of worker `w` as they are now.
    pub fn words(&self, w: usize) -> Option<Vec<u64>> {
        self.memory.workers.get(w)?.ledger.read()
    }

    /// What worker `w`'s µNFs remembered when it was last written down: for each that remembers
    /// anything its name, its type, and its state as `Instance::save` gives it.
    pub fn kept(&self, w: usize) -> Option<Vec<(String, String, Vec<u8>)>> {
        self.memory.kept(w)
    }

    /// The layout of worker `w`'s words.
    pub fn layout(&self, w: usize) -> Option<weir_runtime::layout::Layout> {
        self.memory.workers.get(w).map(|m| m.layout)
    }

    /// How often worker `w` was named for nonsense.
    pub fn offences(&self, w: usize) -> u32 {
        self.trust.offences(w)
    }

    /// True when the end of the stream was the last that came by lane `l`.
    fn has_taken_end(&self, l: usize) -> bool {
        let last = self.memory.lanes[l].inspector.last_claimed();
        last.and_then(|e| e.as_marker()) == Some(weir_mem::Marker::EndOfStream)
    }

    /// True when all that gives packets to worker `w` has ended, as far as can be told.
    fn may_be_done(&self, w: usize) -> bool {
        let lanes = self.setup.lanes.iter().enumerate().filter(|(_, lane)| lane.to == w);
        lanes.into_iter().all(|(l, lane)| {
            let producer = &self.memory.workers[lane.from];
            let ended = |words: Vec<u64>| words.get(producer.layout.ended).copied();
            let ended = producer.ledger.read().and_then(ended).unwrap_or(u64::MAX);
            ended & (1 << lane.source) != 0 || self.has_taken_end(l)
        })
    }

    /// Packets lost with worker `w`'s deaths, and how often it was restarted.
    pub fn toll(&self, w: usize) -> (u64, u32) {
        self.workers.get(w).map_or((0, 0), |w| (w.lost, w.restarts))
    }

    /// What worker `w`'s µNFs reported when they ended: JSON, by node.
    pub fn reports(&self, w: usize) -> &[String] {
        self.workers.get(w).map_or(&[], |w| &w.report)
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

/// How a worker ended, in words.
fn how_ended(status: std::process::ExitStatus) -> String {
    // The kernel's way to end a process that its system-call filter forbids to live.
    if status.signal() == Some(rustix::process::Signal::SYS.as_raw()) {
        return format!("killed by the sandbox: system call not allowed; {status}");
    }
    status.to_string()
}

fn readable(fd: rustix::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&zero)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// Each ring is two descriptors: a long isolated chain needs more than the usual 1,024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}
