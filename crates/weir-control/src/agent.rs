//! The agent's loop.

use crate::census::Census;
use crate::memory::{Memory, MemoryError};
use crate::process::{Process, SpawnError};
use crate::recover::recover;
use crate::setup::Setup;
use crate::watchdog::Watchdog;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_runtime::link::{self, LinkError};
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
}

/// A worker that dies more often than this before it is ready is given up: restarting will not help.
const STILLBORN: u32 = 5;

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            window: Duration::from_secs(10),
            delay: Duration::from_millis(10),
            longest: Duration::from_secs(2),
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
    memory: Memory,
    workers: Vec<Worker>,
    policy: RestartPolicy,
    events: VecDeque<Event>,
    watchdog: Option<Watchdog>,
    stopping: bool,
    finished: bool,
}

impl Agent {
    /// Makes the memory and starts all workers.
    pub fn start(setup: Setup, policy: RestartPolicy) -> Result<Self, AgentError> {
        raise_descriptor_limit();
        let memory = Memory::new(&setup)?;
        let real_time = setup.workers.iter().any(|w| w.schedule.real_time);
        let watchdog = if real_time { Watchdog::start() } else { None };
        let mut agent = Agent {
            workers: Vec::new(),
            memory,
            policy,
            events: VecDeque::new(),
            watchdog,
            stopping: false,
            finished: false,
            setup,
        };
        for w in 0..agent.setup.workers.len() {
            let fault = agent.setup.workers[w].fault;
            let process = Process::start(&agent.setup, &agent.memory, w, fault)?;
            agent.workers.push(Worker {
                state: State::Running(process),
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

    /// True when packet bytes are on huge pages.
    pub fn huge_pages(&self) -> bool {
        self.memory.huge()
    }

    /// Bytes of packet memory, and of one buffer.
    pub fn memory_size(&self) -> (usize, usize) {
        let shape = self.memory.shape();
        (shape.data_len(), shape.stride() as usize)
    }

    /// Ends all input; what is under way runs out.
    pub fn stop(&mut self) {
        self.stopping = true;
        for w in &mut self.memory.workers {
            w.command.stage(command::STOP);
            w.command.publish();
            w.bell.ring();
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
        let done = |w: &Worker| matches!(w.state, State::Done(_) | State::Gone);
        if !self.finished && self.workers.iter().all(done) {
            self.finished = true;
            self.events.push_back(Event::Finished);
        }
        Ok(())
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
                // A fault that a test asked for is the first process's alone.
                let process = Process::start(&self.setup, &self.memory, w, None)?;
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
        let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
            return Ok(false);
        };
        let message = match link::receive::<FromWorker>(process.socket()) {
            Ok((message, _)) => message,
            // It ended (its descriptor will tell), or sent nonsense: then it is ended.
            Err(LinkError::Closed) => return Ok(false),
            Err(_) => {
                let _ = rustix::process::kill_process(process.pid(), rustix::process::Signal::KILL);
                return Ok(false);
            }
        };
        let worker = &mut self.workers[w];
        match message {
            FromWorker::Ready { real_time } => {
                let after = worker.died.take().map(|d| d.elapsed());
                worker.stillborn = 0;
                self.events.push_back(Event::Ready { worker: w, real_time, after });
            }
            FromWorker::Failed(why) => {
                let worker = self.setup.workers[w].name.clone();
                return Err(AgentError::Worker { worker, why });
            }
            FromWorker::Warning(text) => {
                self.events.push_back(Event::Warning { worker: w, text });
            }
            FromWorker::Report(reports) => worker.report = reports,
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
            Ok(status) => status.to_string(),
            Err(e) => e.to_string(),
        };
        let damage = recover(&self.setup, &mut self.memory, w);
        let mended = noticed.elapsed();
        let worker = &mut self.workers[w];
        worker.lost += damage.lost;
        if !was_done {
            let again = worker.last_death.is_some_and(|d| noticed - d < self.policy.window);
            worker.deaths = if again { worker.deaths + 1 } else { 1 };
            worker.last_death = Some(noticed);
            worker.stillborn += 1;
            if worker.stillborn > STILLBORN {
                let worker = self.setup.workers[w].name.clone();
                let why = format!("it dies before it is ready, again and again ({how})");
                return Err(AgentError::Worker { worker, why });
            }
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

    /// The layout of worker `w`'s words.
    pub fn layout(&self, w: usize) -> Option<weir_runtime::layout::Layout> {
        self.memory.workers.get(w).map(|m| m.layout)
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
        let mut children = Vec::new();
        for (w, worker) in self.workers.iter_mut().enumerate() {
            match std::mem::replace(&mut worker.state, State::Gone) {
                State::Done(process) => children.push((w, process.dismiss())),
                State::Running(mut process) => process.kill(),
                State::Restarting(_) | State::Gone => {}
            }
        }
        for (w, mut child) in children {
            // One that was killed on its way out has not written down what it held.
            if !child.wait().is_ok_and(|status| status.success()) {
                recover(&self.setup, &mut self.memory, w);
                self.memory.forget_stack(w);
            }
        }
        Census::take(&self.memory)
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
