//! The worker process: one segment, or a device's Rx or Tx service.

use crate::attach::Descriptors;
#[cfg(feature = "attacks")]
use crate::attack::{Attack, Next};
use crate::idle::{Idle, Look, Rested};
use crate::job::Job;
use crate::link::{self, LinkError};
use crate::sandbox::{self, SandboxError};
use crate::segment::{Segment, SegmentError};
use crate::spec::{FromWorker, WorkerSpec, command};
use crate::station::{AttachError, PauseError, Progress, Station};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;
use weir_device::DeviceError;
#[cfg(feature = "faults")]
use weir_mem::fault;
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
    match run(agent) {
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

fn run(agent: BorrowedFd<'_>) -> Result<(), WorkerError> {
    let (spec, fds): (WorkerSpec, _) = link::receive(agent)?;
    if spec.sandbox.is_none() {
        let _ = sandbox::show();
    }
    let name: String = spec.name.chars().filter(|c| *c != '\0').take(15).collect();
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
    #[cfg(feature = "attacks")]
    let mut attack = spec.attack.map(|seed| Attack::new(&spec.name, seed, &fds));
    tell_of_panics();
    let mut fds = Descriptors::new(fds);
    let device = fds.device(&spec)?;
    let mut station = Station::attach(&spec, fds)?;
    let segment = Segment::new(&spec)?;
    let mut job = Job::new(&spec, &mut station, segment, device)?;
    let real_time = crate::schedule::apply(&spec.schedule);
    #[cfg(feature = "faults")]
    if let Some((step, nth)) = spec.fault {
        fault::arm(step, nth);
    }
    // Everything is open and granted: nothing more is needed.
    if let Some(sandbox) = &spec.sandbox {
        sandbox::enter(sandbox)?;
    }
    link::send(agent, &FromWorker::Ready { real_time }, &[])?;

    for warning in std::mem::take(&mut job.warnings) {
        link::send(agent, &FromWorker::Warning(warning), &[])?;
    }
    job.begin(&mut station);
    let mut idle = Idle::new(&spec.schedule);
    let mut steps = 0u32;
    loop {
        // One load of a line that is seldom written: a command must not wait for 64 long batches.
        if steps.is_multiple_of(STEPS) || station.has_command() {
            obey(&mut station, &mut job, agent)?;
            tell_notices(&mut job, agent)?;
        }
        steps = steps.wrapping_add(1);
        #[cfg(feature = "attacks")]
        if let Some(attack) = &mut attack
            && attack.strike(agent) == Next::Obey
        {
            continue;
        }
        let later = match job.step(&mut station)? {
            Progress::Did => {
                idle.reset();
                continue;
            }
            Progress::Finished => break,
            Progress::Idle => None,
            Progress::Later(ns) => Some(ns),
        };
        steps = 0; // look at the commands again after a rest
        let mut failed = None;
        let (buffers, resting, error) = (job.wants_buffers(), &mut job, &mut failed);
        let rested = idle.rest(&mut station, agent, later, buffers, move |s| {
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
            Rested::Orphan => return Err(LinkError::Closed.into()),
            Rested::Trouble => job.trouble(),
        }
    }
    job.keep();
    tell_notices(&mut job, agent)?;
    for warning in job.warning().into_iter().chain(std::mem::take(&mut job.warnings)) {
        link::send(agent, &FromWorker::Warning(warning), &[])?;
    }
    station.settle();
    link::send(agent, &FromWorker::Report(job.segment.reports()), &[])?;
    link::send(agent, &FromWorker::Done, &[])?;
    // Stay until the agent has taken everything in and closes: pool owners take buffers back
    // until nobody gives any.
    loop {
        station.ingress.sleep();
        station.settle();
        if station.bell.wait(Some(agent), Duration::from_secs(1))? {
            break;
        }
        obey(&mut station, &mut job, agent)?;
        station.settle();
    }
    station.settle();
    Ok(())
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

/// Passes on what a device, or what keeps state, has to tell.
fn tell_notices(job: &mut Job, agent: BorrowedFd<'_>) -> Result<(), WorkerError> {
    while let Some(notice) = job.notice() {
        link::send(agent, &FromWorker::Warning(notice), &[])?;
    }
    Ok(())
}

/// Does what the agent commands.
fn obey(station: &mut Station, job: &mut Job, agent: BorrowedFd<'_>) -> Result<(), WorkerError> {
    station.note_nonsense();
    while let Some(command) = station.command() {
        let stop = match command {
            command::STOP => true,
            command::PAUSE => station.pause(agent, job.held())?,
            _ => false,
        };
        if stop {
            job.stop();
        }
    }
    Ok(())
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
        let job = Job::new(spec, &mut station, segment, device)?;
        Ok(Stepper { station, job })
    }

    /// Takes one step; true when there may be more to do, false when everything has ended.
    pub fn step(&mut self) -> Result<bool, WorkerError> {
        Ok(self.job.step(&mut self.station)? != Progress::Finished)
    }

    /// The first node's packets so far.
    pub fn packets(&self) -> u64 {
        self.station.get(self.station.layout.nodes)
    }
}
