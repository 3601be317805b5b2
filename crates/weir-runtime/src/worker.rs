//! The worker process: one segment, or a device's Rx or Tx service.

use crate::attach::Descriptors;
#[cfg(feature = "attacks")]
use crate::attack::{Attack, Next as Strike};
use crate::idle::{Idle, Look, Rested};
use crate::job::Job;
use crate::link::{self, LinkError};
use crate::moves::{Awaited, Order, Turn};
use crate::sandbox::{self, Filters, Profile, SandboxError};
use crate::segment::{Segment, SegmentError};
use crate::spec::{EndSpec, FromWorker, RESERVE, WorkerSpec, command};
use crate::station::{AttachError, PauseError, Progress, Station, StoodBy};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;
use weir_device::DeviceError;
use weir_mem::fault::{self, Step};
use weir_nf::CopyProgress;
use weir_port::DoorbellError;

/// Steps between two looks at the agent's commands.
const STEPS: u32 = 64;

/// Why a worker ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The control socket.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Shared memory.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The µNFs.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The doorbell.
    #[error(transparent)]
    Doorbell(#[from] DoorbellError),
    /// Resting while the agent puts memory right.
    #[error(transparent)]
    Pause(#[from] PauseError),
    /// The sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// It was told to go on in the next generation, and has adopted none that it could.
    #[error("it was told to go on in a next generation of the graph and has none")]
    NoNext,
    /// The device does not do what the worker is for.
    #[error("device {0:?} cannot do that")]
    Direction(weir_device::DeviceSpec),
}

/// The whole life of a worker whose control socket is its standard input.
pub fn main() -> ExitCode {
    // Before the first descriptor comes: another worker of the same user could take it from here. That
    // it holds is found out with the sandbox, which does it again.
    let _ = sandbox::hide();
    // The worker outlives the agent's Ctrl-C, not the agent.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let stdin = std::io::stdin();
    let agent = stdin.as_fd();
    let filters = if std::env::args_os().nth(3).is_some_and(|word| word == RESERVE) {
        // What can be done before somebody waits for it. Who looks at processes sees by the name that this one waits.
        let _ = rustix::thread::set_name(c"weir-reserve");
        sandbox::filters(Profile::Nf).ok()
    } else {
        None
    };
    match run(agent, filters) {
        Ok(()) => ExitCode::SUCCESS,
        Err(WorkerError::Link(LinkError::Closed))
        | Err(WorkerError::Pause(PauseError::Link(LinkError::Closed))) => ExitCode::FAILURE,
        Err(e) => {
            if link::send(agent, &FromWorker::Failed(e.to_string()), &[]).is_err() {
                eprintln!("weir worker: {e}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(agent: BorrowedFd<'_>, filters: Option<Filters>) -> Result<(), WorkerError> {
    let (spec, fds): (WorkerSpec, _) = link::receive(agent)?;
    if spec.sandbox.is_none() {
        let _ = sandbox::show();
    }
    let name: String = spec.name.chars().filter(|c| *c != '\0').take(15).collect();
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
    #[cfg(feature = "attacks")]
    let attack = spec.attack.map(|seed| Attack::new(&spec.name, seed, &fds));
    tell_of_panics();
    let secret = u128::from(spec.secret.0) << 64 | u128::from(spec.secret.1);
    let alike = weir_nf::hash_flows_by(secret);
    let mut fds = Descriptors::new(fds);
    let device = fds.device(&spec)?;
    let mut station = Station::attach(&spec, fds)?;
    let segment = Segment::new(&spec)?;
    let mut job = Job::new(&spec, &mut station, segment, device)?;
    let real_time = crate::schedule::apply(&spec.schedule, spec.standby);
    #[cfg(feature = "faults")]
    if let Some((step, nth)) = spec.fault {
        fault::arm(step, nth);
    }
    // Not of a device's service: its successor wants the device, which it has until it is gone; and it goes on in other memory.
    if spec.end == EndSpec::None {
        station.arm_knell();
    }
    // Everything is open and granted: nothing more is needed.
    if let Some(sandbox) = &spec.sandbox {
        sandbox::enter(sandbox, filters)?;
    }
    if spec.standby {
        fault::step(Step::StandingBy);
    } else {
        // Read where it can do no harm: who wrote it may have been anybody's.
        job.recover(&mut station, alike);
    }
    let reads = job.is_reading();
    link::send(agent, &FromWorker::Ready { real_time, reads }, &[])?;
    if spec.standby {
        while station.stand_by(agent)? == StoodBy::Take {
            // While all can still go back: what this one cannot read is not lost.
            let refused = job.take_over(&mut station);
            link::send(agent, &FromWorker::TookOver { refused }, &[])?;
        }
        fault::step(Step::Begun);
        // Should it die now, its successor knows as much.
        job.keep();
    }
    let idle = Idle::new(&spec.schedule, real_time);
    let mut worker = Worker {
        agent,
        station,
        job,
        idle,
        real_time,
        next: None,
        before: None,
        held: VecDeque::new(),
        #[cfg(feature = "attacks")]
        attack,
    };
    worker.begin()?;
    loop {
        worker.work()?;
        worker.tell_end()?;
        if !worker.linger()? {
            return Ok(());
        }
    }
}

/// The memory of the next generation, which a service has attached to beside its own.
struct Next {
    spec: WorkerSpec,
    station: Station,
    segment: Segment,
}

impl Next {
    fn attach(spec: WorkerSpec, fds: Vec<OwnedFd>) -> Result<Self, WorkerError> {
        let station = Station::attach(&spec, Descriptors::new(fds))?;
        let segment = Segment::new(&spec)?;
        Ok(Next { spec, station, segment })
    }
}

/// What waits until all flows have been read.
enum Held {
    Order(Order),
    HandOver,
}

/// A worker's process, as long as it is one.
struct Worker<'a> {
    agent: BorrowedFd<'a>,
    station: Station,
    job: Job,
    idle: Idle,
    real_time: bool,
    next: Option<Box<Next>>,
    /// The memory that it went over from, its replica among it. Unmapping takes as long as a batch or more, so it waits for a rest.
    before: Option<Box<(Station, Job)>>,
    /// What it was told to do with flows, while some have not been read.
    held: VecDeque<Held>,
    #[cfg(feature = "attacks")]
    attack: Option<Attack>,
}

impl Worker<'_> {
    /// Tells what there was to tell of the beginning, and begins.
    fn begin(&mut self) -> Result<(), WorkerError> {
        self.job.tell_recovered();
        for warning in std::mem::take(&mut self.job.warnings) {
            link::send(self.agent, &FromWorker::Warning(warning), &[])?;
        }
        self.job.begin(&mut self.station);
        Ok(())
    }

    /// Works until all input has ended.
    fn work(&mut self) -> Result<(), WorkerError> {
        let mut steps = 0u32;
        loop {
            // One load of a line that is seldom written: a command must not wait for 64 long batches.
            if steps.is_multiple_of(STEPS)
                || self.station.has_command()
                || self.job.has_answers()
                || !self.held.is_empty()
            {
                if !self.held.is_empty() {
                    self.job.read_in_haste();
                }
                self.obey()?;
                self.tell_notices()?;
            }
            steps = steps.wrapping_add(1);
            #[cfg(feature = "attacks")]
            match self.attack.as_mut().map(|attack| attack.strike(self.agent)) {
                Some(Strike::Obey) => continue,
                Some(Strike::Lie) => self.station.lie(),
                Some(Strike::Keep) => {
                    self.station.keep();
                    continue;
                }
                Some(Strike::Write) => {
                    if let Some(attack) = &mut self.attack {
                        self.job.write_nonsense(&mut |below| attack.below(below));
                    }
                }
                Some(Strike::Announce) => self.job.announce(),
                Some(Strike::Work) | None => {}
            }
            let later = match self.job.step(&mut self.station)? {
                Progress::Did => {
                    self.idle.reset();
                    continue;
                }
                Progress::Finished => {
                    while self.job.read_in_haste() {
                        self.obey()?;
                    }
                    return Ok(());
                }
                Progress::Idle => None,
                Progress::Later(ns) => Some(ns),
            };
            self.before = None;
            steps = 0; // look at the commands again after a rest
            let mut failed = None;
            let buffers = self.job.wants_buffers();
            let (resting, error) = (&mut self.job, &mut failed);
            let rested =
                self.idle.rest(&mut self.station, self.agent, later, buffers, move |s| {
                    let progress = resting.step(s).unwrap_or_else(|e| {
                        *error = Some(e);
                        Progress::Did
                    });
                    Look { progress, device: resting.wake_fd(), buffers: resting.wants_buffers() }
                })?;
            if let Some(e) = failed {
                return Err(e);
            }
            match rested {
                Rested::Again => {}
                // What goes with a command comes by the agent's socket.
                Rested::Orphan if self.station.has_command() => {}
                Rested::Orphan => return Err(LinkError::Closed.into()),
                Rested::Trouble => self.job.trouble(),
            }
        }
    }

    /// All input has ended: tells what there is to tell of it.
    fn tell_end(&mut self) -> Result<(), WorkerError> {
        self.job.keep();
        self.tell_notices()?;
        let warnings = std::mem::take(&mut self.job.warnings);
        for warning in self.job.warning().into_iter().chain(warnings) {
            link::send(self.agent, &FromWorker::Warning(warning), &[])?;
        }
        self.station.settle();
        link::send(self.agent, &FromWorker::Report(self.job.segment.reports()), &[])?;
        link::send(self.agent, &FromWorker::Done, &[])?;
        Ok(())
    }

    /// Stays until the agent has taken everything in and closes: pool owners take buffers back until
    /// nobody gives any. True when it is to go on in the next generation.
    fn linger(&mut self) -> Result<bool, WorkerError> {
        loop {
            self.station.ingress.sleep();
            self.station.settle();
            // Flows of others may still be on their way.
            let turn = self.job.attend(&mut self.station);
            let looked = self.job.look_on();
            self.tell_notices()?;
            let wait = match turn {
                _ if looked => Duration::ZERO,
                Some(turn) if turn.did => Duration::ZERO,
                Some(Turn { later: Some(later), .. }) => Duration::from_nanos(later),
                _ => Duration::from_secs(1),
            };
            let said = self.station.bell.wait(Some(self.agent), wait)?;
            if said && !self.station.has_command() {
                break;
            }
            if self.obey()? {
                return Ok(true);
            }
            self.station.settle();
        }
        self.station.settle();
        Ok(false)
    }

    /// Passes on what a device, or what keeps state, has to tell.
    fn tell_notices(&mut self) -> Result<(), WorkerError> {
        while let Some(notice) = self.job.notice() {
            link::send(self.agent, &FromWorker::Warning(notice), &[])?;
        }
        for answer in self.job.answers() {
            link::send(self.agent, &answer, &[])?;
        }
        Ok(())
    }

    /// Does what the agent commands; true when it goes on in the next generation from here.
    fn obey(&mut self) -> Result<bool, WorkerError> {
        self.station.note_nonsense();
        let (mut waiting, mut went) = (VecDeque::new(), false);
        loop {
            let held = if self.job.is_reading() { None } else { self.held.pop_front() };
            let command = match held {
                Some(Held::Order(order)) => {
                    self.take_order(order)?;
                    continue;
                }
                Some(Held::HandOver) => Some(command::HAND_OVER),
                None => waiting.pop_front().or_else(|| self.station.command()),
            };
            let Some(command) = command else { return Ok(went) };
            let rested = match command {
                command::STOP => {
                    self.job.stop();
                    continue;
                }
                command::END_CYCLES => {
                    self.station.ingress.end_cycles();
                    continue;
                }
                command::HOLD => {
                    self.job.hold(true);
                    fault::step(Step::Holding);
                    continue;
                }
                command::RECEIVE => {
                    self.job.hold(false);
                    continue;
                }
                command::ADOPT => {
                    self.adopt()?;
                    continue;
                }
                command::FORSAKE => {
                    self.next = None;
                    self.job.take_as_ever();
                    continue;
                }
                command::ORDER => {
                    let (order, _): (Order, _) = link::receive(self.agent)?;
                    match self.job.is_reading() {
                        true => self.held.push_back(Held::Order(order)),
                        false => self.take_order(order)?,
                    }
                    continue;
                }
                command::PAUSE => {
                    self.station.pause(self.agent, &FromWorker::Paused(self.job.held()))?
                }
                command::HAND_OVER if self.job.is_reading() => {
                    self.held.push_back(Held::HandOver);
                    continue;
                }
                command::HAND_OVER => {
                    fault::step(Step::HandingOver);
                    let handing = self.job.hand_over(&mut self.station);
                    self.station.settle();
                    let reports = FromWorker::Report(self.job.segment.reports());
                    link::send(self.agent, &reports, &[])?;
                    self.station.pause(self.agent, &FromWorker::HandedOver(handing))?
                }
                word => {
                    if let Some(awaited) = Awaited::of_command(word) {
                        self.job.wait_no_longer(awaited);
                    }
                    continue;
                }
            };
            waiting.extend(rested.meanwhile);
            if rested.goes {
                self.go_over()?;
                went = true;
            }
        }
    }

    /// Does what the agent orders of flows, all of which have been read.
    fn take_order(&mut self, order: Order) -> Result<(), WorkerError> {
        if let Order::EndPrecopy = order {
            self.idle.has_guest(false);
        }
        let Order::Precopy { ticket, nodes, first, most } = order else {
            self.job.order(order);
            return Ok(());
        };
        self.idle.has_guest(true);
        let (first, most) = (first.then_some(ticket), most as usize);
        let copied = self.job.precopy(&mut self.station, &nodes, first, most);
        fault::step(Step::Precopied);
        let (done, why) = match copied {
            Ok(done) => (done, None),
            Err(why) => (CopyProgress::default(), Some(why)),
        };
        let (copied, left) = (done.copied as u64, done.left as u64);
        let walks = done.walks;
        let answer = FromWorker::Precopied { ticket, copied, left, walks, why };
        Ok(link::send(self.agent, &answer, &[])?)
    }

    /// Attaches to the memory that a message describes.
    fn adopt(&mut self) -> Result<(), WorkerError> {
        let (spec, fds): (WorkerSpec, _) = link::receive(self.agent)?;
        let answer = match Next::attach(spec, fds) {
            Ok(next) => {
                self.next = Some(Box::new(next));
                fault::step(Step::Adopting);
                FromWorker::Adopted
            }
            Err(e) => FromWorker::NotAdopted(e.to_string()),
        };
        link::send(self.agent, &answer, &[])?;
        Ok(())
    }

    /// Goes over into the memory that it has adopted, with its device.
    fn go_over(&mut self) -> Result<(), WorkerError> {
        let Some(next) = self.next.take() else { return Err(WorkerError::NoNext) };
        fault::step(Step::GoingOver);
        let Next { spec, mut station, segment } = *next;
        station.reload();
        let job = self.job.succeed(&spec, &mut station, segment).ok_or(WorkerError::NoNext)?;
        let before = std::mem::replace(&mut self.station, station);
        let gone = std::mem::replace(&mut self.job, job);
        self.idle = Idle::new(&spec.schedule, self.real_time);
        self.before = Some(Box::new((before, gone)));
        fault::step(Step::CarriedOver);
        self.job.take_what_services_get(&mut self.station);
        self.begin()?;
        // The agent sees by it that this worker has begun.
        self.station.commit();
        Ok(())
    }
}

/// Lets the agent know why, should some code panic: the process ends then.
fn tell_of_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text: String = panic.to_string().chars().take(2000).collect();
        let stdin = std::io::stdin();
        if link::send(stdin.as_fd(), &FromWorker::Panicked(text), &[]).is_err() {
            usual(panic);
        }
    }));
}

/// A worker without a process of its own: whoever holds it decides when it takes a step. For
/// measurements and tests in which several workers take turns in one thread.
pub struct Stepper {
    station: Station,
    job: Job,
}

impl Stepper {
    /// Attaches to what `spec` describes.
    pub fn new(spec: &WorkerSpec, fds: Vec<OwnedFd>) -> Result<Self, WorkerError> {
        let mut fds = Descriptors::new(fds);
        let device = fds.device(spec)?;
        let mut station = Station::attach(spec, fds)?;
        let segment = Segment::new(spec)?;
        let mut job = Job::new(spec, &mut station, segment, device)?;
        // Whoever it goes on from was another process.
        job.recover(&mut station, false);
        Ok(Stepper { station, job })
    }

    /// Takes one step; true when there may be more to do, false when everything has ended.
    pub fn step(&mut self) -> Result<bool, WorkerError> {
        Ok(self.job.step(&mut self.station)? != Progress::Finished)
    }

    /// Has a service that receives take so many packets a second from now on; `None`: as many as are taken.
    pub fn pace(&mut self, per_second: Option<u64>) {
        self.job.order(Order::Pace(per_second));
    }

    /// Has a service that sends give packets to `device` from now on, in the place of its own.
    pub fn send_to(&mut self, device: Box<dyn weir_device::Send>) {
        self.job.send_to(device);
    }

    /// What its µNFs report now: JSON, by node.
    pub fn reports(&self) -> Vec<String> {
        self.job.segment.reports()
    }

    /// The first node's packets so far.
    pub fn packets(&self) -> u64 {
        self.station.get(self.station.layout.nodes)
    }
}
