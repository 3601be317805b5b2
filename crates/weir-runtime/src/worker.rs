//! The worker process: one segment, or a device's Rx or Tx service.

use crate::attach::Descriptors;
use crate::idle::{Idle, Rested};
use crate::link::{self, LinkError};
use crate::segment::{Segment, SegmentError, Way};
use crate::spec::{EndSpec, FromWorker, WorkerSpec};
use crate::station::{AttachError, Progress, Station};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;
use weir_capture::TimeFormat;
use weir_device::{DeviceError, Receive, Room, Send, Status, open_rx, open_tx};
use weir_mem::fault::{self, Step};
use weir_packet::{BATCH, Packet, REASONS};
use weir_port::{DoorbellError, Pull};

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
    /// The device does not do what the worker is for.
    #[error("device {0:?} cannot do that")]
    Direction(weir_device::DeviceSpec),
}

/// The whole life of a worker whose control socket is its standard input.
pub fn main() -> ExitCode {
    // The worker outlives the agent's Ctrl-C, not the agent.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let stdin = std::io::stdin();
    let agent = stdin.as_fd();
    match run(agent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(WorkerError::Link(LinkError::Closed)) => ExitCode::FAILURE,
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
    let name: String = spec.name.chars().filter(|c| *c != '\0').take(15).collect();
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
    let mut station = Station::attach(&spec, Descriptors::new(fds))?;
    let segment = Segment::new(&spec)?;
    let mut job = Job::new(&spec, &mut station, segment)?;
    let real_time = crate::schedule::apply(&spec.schedule);
    #[cfg(feature = "faults")]
    if let Some((step, nth)) = spec.fault {
        fault::arm(step, nth);
    }
    link::send(agent, &FromWorker::Ready { real_time }, &[])?;

    if let End::Rx { source, .. } = job.end {
        // A predecessor may have died between its last packets and their watermark: whoever merges
        // must not wait for the next packet to learn that nothing precedes it.
        let seq = station.seq();
        station.egress.set_watermark(source, seq);
    }
    let mut idle = Idle::new(&spec.schedule);
    let mut steps = 0u32;
    loop {
        if steps.is_multiple_of(STEPS) && station.told_to_stop() {
            job.stop();
        }
        steps = steps.wrapping_add(1);
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
        let rested = idle.rest(&mut station, agent, later, |s| match job.step(s) {
            Ok(progress) => progress,
            Err(e) => {
                failed = Some(e);
                Progress::Did
            }
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
        if rested == Rested::Orphan {
            return Err(LinkError::Closed.into());
        }
    }
    if let Some(warning) = job.warning() {
        link::send(agent, &FromWorker::Warning(warning), &[])?;
    }
    station.settle();
    link::send(agent, &FromWorker::Report(job.segment.reports()), &[])?;
    link::send(agent, &FromWorker::Done, &[])?;
    // Stay until the agent has taken everything in and closes: pool owners take buffers back
    // until nobody gives any.
    while !station.bell.wait(Some(agent), Duration::from_secs(1))? {
        station.settle();
    }
    station.settle();
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
        let mut station = Station::attach(spec, Descriptors::new(fds))?;
        let segment = Segment::new(spec)?;
        let job = Job::new(spec, &mut station, segment)?;
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

enum End {
    Rx { device: Box<dyn Receive>, port: u16, source: usize, stopped: bool },
    Tx { device: Box<dyn Send> },
    None,
}

/// What this worker does with packets.
struct Job {
    end: End,
    segment: Segment,
    packets: Vec<Packet>,
    clear_tags: bool,
    batches: u32,
}

impl Job {
    fn new(
        spec: &WorkerSpec,
        station: &mut Station,
        segment: Segment,
    ) -> Result<Self, WorkerError> {
        let end = match &spec.end {
            EndSpec::Rx { device, port, source } => End::Rx {
                device: open_rx(device, station.place())?
                    .ok_or_else(|| WorkerError::Direction(device.clone()))?,
                port: *port,
                source: usize::from(*source),
                stopped: false,
            },
            EndSpec::Tx { device, nanoseconds } => {
                let time = match nanoseconds {
                    true => TimeFormat::PcapNanos,
                    false => TimeFormat::PcapMicros,
                };
                let device = open_tx(device, station.place(), time)?
                    .ok_or_else(|| WorkerError::Direction(device.clone()))?;
                station.ingress.set_touches(device.touches());
                End::Tx { device }
            }
            EndSpec::None => End::None,
        };
        let packets = Vec::with_capacity(BATCH);
        Ok(Job { end, segment, packets, clear_tags: !spec.tags.is_empty(), batches: 0 })
    }

    /// The agent wants the input to end.
    fn stop(&mut self) {
        if let End::Rx { stopped, .. } = &mut self.end {
            *stopped = true;
        }
    }

    fn warning(&self) -> Option<String> {
        match &self.end {
            End::Rx { device, .. } => device.warning(),
            _ => None,
        }
    }

    #[inline]
    fn step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        match &mut self.end {
            End::None => Ok(self.segment_step(station)),
            End::Tx { .. } => self.tx_step(station),
            End::Rx { .. } => self.rx_step(station),
        }
    }

    #[inline]
    fn segment_step(&mut self, station: &mut Station) -> Progress {
        let pulled = match station.pull(&mut self.packets) {
            Pull::Some(pulled) => pulled,
            // Blocked or not: what a source promises, and that it has ended, others may wait for.
            Pull::Blocked | Pull::None => {
                station.pass_watermarks();
                station.ingress.wake_producers();
                return station.pass_ends();
            }
        };
        let Station { arena, egress, words, .. } = station;
        let mut way = Way { arena, egress, source: pulled.source, words };
        self.segment.run(pulled.node, pulled.input, &mut self.packets, &mut way);
        fault::step(Step::Processed);
        station.commit();
        // Of all sources: one that is always busy must not keep the others' promises back.
        station.pass_watermarks();
        station.ingress.wake_producers();
        fault::step(Step::Done);
        self.did(station)
    }

    fn tx_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Tx { device } = &mut self.end else {
            return Ok(Progress::Idle);
        };
        match station.pull(&mut self.packets) {
            Pull::Some(_) => {}
            Pull::Blocked | Pull::None => {
                station.ingress.wake_producers();
                return Ok(station.pass_ends());
            }
        }
        device.send(&self.packets, &station.arena)?;
        let place = device.commit()?;
        station.set_place(place);
        fault::step(Step::Processed);
        let base = station.layout.nodes;
        let count = self.packets.len() as u64;
        let bytes: u64 = self.packets.iter().map(|p| u64::from(p.entry().len())).sum();
        station.egress.give_all_back(&mut self.packets);
        let (packets_so_far, bytes_so_far) = (station.get(base), station.get(base + 1));
        station.set(base, packets_so_far + count);
        station.set(base + 1, bytes_so_far + bytes);
        station.commit();
        station.ingress.wake_producers();
        fault::step(Step::Done);
        Ok(self.did(station))
    }

    /// A batch is done. Now and then looks whether a source has ended: while another keeps the
    /// worker busy there is no idle step that would.
    fn did(&mut self, station: &mut Station) -> Progress {
        self.batches = self.batches.wrapping_add(1);
        if self.batches.is_multiple_of(STEPS) && station.pass_ends() == Progress::Finished {
            return Progress::Finished;
        }
        Progress::Did
    }

    fn rx_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Rx { device, port, source, stopped } = &mut self.end else {
            return Ok(Progress::Idle);
        };
        if station.own_source_ended(*source) {
            return Ok(Progress::Finished);
        }
        if *stopped {
            let ended = station.end_source(*source);
            return Ok(if ended { Progress::Finished } else { Progress::Idle });
        }
        let left = station.egress.room(*source, BATCH).min(BATCH);
        let Station { arena, egress, home, words, layout, .. } = station;
        let Some(pool) = home.as_mut() else {
            return Ok(Progress::Idle);
        };
        let left = left.min(pool.refill(arena.owners(), BATCH));
        if left == 0 {
            return Ok(Progress::Idle);
        }
        let mut seq = words.get(layout.seq).copied().unwrap_or(0);
        let mut room = Room {
            arena,
            pool,
            packets: &mut self.packets,
            left,
            seq: &mut seq,
            source_port: *port,
            received: (0, 0),
            refused: [0; REASONS],
            clear_tags: self.clear_tags,
        };
        let status = device.receive(&mut room)?;
        let (received, refused) = (room.received, room.refused);
        let place = device.place();
        fault::step(Step::Claimed);
        if received.0 > 0 {
            let base = layout.nodes;
            let mut way = Way { arena, egress, source: *source, words };
            self.segment.run(0, 0, &mut self.packets, &mut way);
            fault::step(Step::Processed);
            // The port's node counts what it was given; what was refused comes on top.
            let count_refused: u64 = refused.iter().sum();
            for (i, n) in refused.iter().enumerate().filter(|(_, n)| **n > 0) {
                let word = base + 4 + i;
                let so_far = station.get(word);
                station.set(word, so_far + n);
            }
            let so_far = station.get(base);
            station.set(base, so_far + count_refused);
            station.set(station.layout.seq, seq);
            station.set_place(place);
            station.commit();
            let seq = station.seq();
            station.egress.set_watermark(*source, seq);
            fault::step(Step::Done);
        }
        match status {
            Status::End => {
                *stopped = true;
                Ok(Progress::Did)
            }
            Status::Later(ns) if received.0 == 0 => Ok(Progress::Later(ns)),
            _ if received.0 == 0 => Ok(Progress::Idle),
            _ => Ok(Progress::Did),
        }
    }
}
