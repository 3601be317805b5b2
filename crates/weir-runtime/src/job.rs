//! What a worker does with packets: its segment, or its device's service.

use crate::arrays::Learner;
use crate::dump::Dump;
use crate::gate::{self, Gate};
use crate::keep::Keeper;
use crate::segment::{Segment, Way};
use crate::spec::{EndSpec, WorkerSpec};
use crate::station::{Progress, Station};
use crate::worker::WorkerError;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;
use weir_capture::TimeFormat;
use weir_device::{Receive, Room, Send, Status, TxOptions, open_rx, open_tx};
use weir_mem::fault::{self, Step};
use weir_packet::{BATCH, Packet, REASONS};
use weir_port::Pull;

/// Batches between two looks at whether a source has ended.
const BATCHES: u32 = 64;

enum End {
    /// `counted`: after the stop the device has counted what it missed.
    Rx {
        device: Box<dyn Receive>,
        port: u16,
        source: usize,
        stopped: bool,
        counted: bool,
        learner: Option<Learner>,
    },
    Tx {
        device: Box<dyn Send>,
    },
    Gate(Gate),
    Dump(Dump),
    Drain,
    None,
}

/// What this worker does with packets.
pub(crate) struct Job {
    end: End,
    pub(crate) segment: Segment,
    packets: Vec<Packet>,
    clear_tags: bool,
    batches: u32,
    /// Some source is live: while no packets come, timers go by the wall clock, counted from here.
    live: Option<Instant>,
    keeper: Option<Keeper>,
    /// What the operator should know.
    pub(crate) warnings: Vec<String>,
    /// The last step had no room for packets: a device that has some must not end a rest.
    full: bool,
}

impl Job {
    pub(crate) fn new(
        spec: &WorkerSpec,
        station: &mut Station,
        segment: Segment,
        lent: Option<OwnedFd>,
    ) -> Result<Self, WorkerError> {
        let end = match &spec.end {
            EndSpec::Rx { device, port, source } => End::Rx {
                device: open_rx(device, station.place(), lent)?
                    .ok_or_else(|| WorkerError::Direction(device.clone()))?,
                port: *port,
                source: usize::from(*source),
                stopped: false,
                counted: false,
                learner: station.learns.take().and_then(|o| Learner::new(o, usize::from(*source))),
            },
            EndSpec::Tx { device, nanoseconds, tells } => {
                let time = match nanoseconds {
                    true => TimeFormat::PcapNanos,
                    false => TimeFormat::PcapMicros,
                };
                let longest = station.arena.shape().stride();
                let options = TxOptions { time, lent, longest, tells: *tells };
                let device = open_tx(device, station.place(), options)?
                    .ok_or_else(|| WorkerError::Direction(device.clone()))?;
                station.ingress.set_touches(device.touches());
                End::Tx { device }
            }
            EndSpec::Gate { into, out_of } => End::Gate(Gate::new(spec, *into, *out_of)),
            EndSpec::Dump(spec) => {
                station.ingress.set_unordered();
                End::Dump(Dump::open(spec, station.place())?)
            }
            EndSpec::Drain => End::Drain,
            EndSpec::None => End::None,
        };
        let mut segment = segment;
        segment.know(&std::mem::take(&mut station.origins));
        let memory = station.state.take().filter(|_| segment.remembers());
        let mut keeper = memory.map(Keeper::new);
        let warnings = keeper.as_mut().map_or_else(Vec::new, |k| k.restore(&mut segment));
        Ok(Job {
            end,
            segment,
            packets: Vec::with_capacity(BATCH),
            clear_tags: spec.clear_tags,
            batches: 0,
            live: spec.live.then(Instant::now),
            keeper,
            warnings,
            full: false,
        })
    }

    /// Repeats what the worker's own source had promised, and how far it had come: a predecessor may have died between its last
    /// packets and their watermark, and whoever merges must not wait for the next packet to learn that
    /// nothing precedes it.
    pub(crate) fn begin(&self, station: &mut Station) {
        if let End::Rx { source, .. } = self.end {
            let seq = station.seq();
            station.egress.set_watermark(source, seq);
            station.ingress.say_progress(source, seq);
        }
    }

    /// Writes down what the µNFs remember.
    pub(crate) fn keep(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.now(&self.segment);
        }
    }

    /// The agent wants the input to end.
    pub(crate) fn stop(&mut self) {
        if let End::Rx { stopped, .. } = &mut self.end {
            *stopped = true;
        }
    }

    /// Buffers in the hands of the µNFs between two batches.
    pub(crate) fn held(&self) -> Vec<u32> {
        self.segment.buffers_in_hand()
    }

    /// What a device, or what keeps state, has to tell while it runs.
    pub(crate) fn notice(&mut self) -> Option<String> {
        match &mut self.end {
            End::Rx { device, .. } => device.notice(),
            End::Tx { device } => device.notice(),
            _ => self.keeper.as_mut().and_then(Keeper::notice),
        }
    }

    /// Whether it waits for buffers to come home. An Rx service with a batch's worth of them does not.
    pub(crate) fn wants_buffers(&self) -> bool {
        self.full || !matches!(self.end, End::Rx { .. })
    }

    /// What to wait for besides the bell.
    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Rx { device, .. } if !self.full => device.wake_fd(),
            _ => None,
        }
    }

    /// The device's descriptor is in error.
    pub(crate) fn trouble(&mut self) {
        if let End::Rx { device, .. } = &mut self.end {
            device.trouble();
        }
    }

    pub(crate) fn warning(&self) -> Option<String> {
        match &self.end {
            End::Rx { device, .. } => device.warning(),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        match &mut self.end {
            End::None => Ok(self.segment_step(station)),
            End::Gate(gate) => {
                let pick = self.segment.picks.first_mut().map(|(_, pick)| pick);
                let progress = gate.step(station, &mut self.packets, pick);
                Ok(if progress == Progress::Did { self.did(station) } else { progress })
            }
            End::Drain => {
                let progress = gate::drain(station, &mut self.packets);
                Ok(if progress == Progress::Did { self.did(station) } else { progress })
            }
            End::Tx { .. } => self.tx_step(station),
            End::Dump(_) => self.dump_step(station),
            End::Rx { .. } => self.rx_step(station),
        }
    }

    #[inline]
    fn segment_step(&mut self, station: &mut Station) -> Progress {
        let mut most = self.segment.appetite();
        if self.segment.more.any {
            if !self.clear_backlog(station) {
                station.ingress.wake_producers();
                return Progress::Idle;
            }
            most = most.min(self.segment.more.most(station.home.as_mut(), station.arena.owners()));
        }
        let pulled = match station.pull(&mut self.packets, most) {
            Pull::Some(pulled) => pulled,
            // Blocked or not: what a source promises, and that it has ended, others may wait for.
            Pull::Blocked | Pull::None => {
                station.pass_watermarks();
                station.ingress.wake_producers();
                station.tell();
                return self.rest(station);
            }
        };
        let (segment, packets) = (&mut self.segment, &mut self.packets);
        segment.with(station, pulled.source, |segment, way| {
            segment.run(pulled.node, pulled.input, packets, way);
        });
        fault::step(Step::Processed);
        station.commit();
        // Of all sources: one that is always busy must not keep the others' promises back. What waits
        // for room is promised by nobody.
        if self.segment.more.backlog.is_empty() {
            station.pass_watermarks();
        }
        station.ingress.wake_producers();
        if let Some(keeper) = &mut self.keeper {
            keeper.after_batch(&self.segment);
        }
        fault::step(Step::Done);
        self.did(station)
    }

    /// Sends what waits for room; true when nothing waits any more.
    fn clear_backlog(&mut self, station: &mut Station) -> bool {
        if self.segment.more.backlog.is_empty() {
            return true;
        }
        let done = self.segment.with(station, 0, |segment, way| segment.clear_backlog(way));
        station.commit();
        self.segment.pass_watermarks(station);
        done
    }

    /// No packets can be taken: passes on what has ended, and does what is due without packets.
    fn rest(&mut self, station: &mut Station) -> Progress {
        match self.pass_ends(station) {
            Progress::Idle => {}
            other => return other,
        }
        let mut later = None;
        if let Some(start) = self.live.filter(|_| self.segment.more.timers) {
            let ended = station.get(station.layout.ended);
            let now = start.elapsed().as_nanos() as u64;
            let (sent, next) = self.segment.tick(station, now, ended);
            if sent {
                station.commit();
                return Progress::Did;
            }
            later = next;
        }
        let keep = self.keeper.as_mut().and_then(|k| k.if_due(&self.segment));
        let keep = keep.map(|left| left.as_nanos() as u64);
        [later, keep].into_iter().flatten().min().map_or(Progress::Idle, Progress::Later)
    }

    /// Passes on the ends of sources, after the µNFs have sent what they hold.
    fn pass_ends(&mut self, station: &mut Station) -> Progress {
        let segment = &mut self.segment;
        station.pass_ends(|station, source| {
            if !segment.more.any {
                return true;
            }
            let ended = station.get(station.layout.ended) | 1 << source;
            if !segment.more.backlog.is_empty() {
                return false;
            }
            segment.with(station, source, |segment, way| segment.end_source(source, ended, way));
            let done = segment.more.backlog.is_empty();
            if !done {
                station.commit();
            }
            done
        })
    }

    fn dump_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Dump(dump) = &mut self.end else {
            return Ok(Progress::Idle);
        };
        let lane = match station.pull(&mut self.packets, BATCH) {
            Pull::Some(pulled) => pulled.lane,
            Pull::Blocked | Pull::None => {
                station.ingress.wake_producers();
                station.tell();
                return Ok(self.pass_ends(station));
            }
        };
        let place = dump.write(&self.packets, lane, station)?;
        station.set_place(place);
        fault::step(Step::Processed);
        self.finish_batch(station);
        Ok(self.did(station))
    }

    fn tx_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Tx { device } = &mut self.end else {
            return Ok(Progress::Idle);
        };
        match station.pull(&mut self.packets, BATCH) {
            Pull::Some(_) => {}
            Pull::Blocked | Pull::None => {
                station.ingress.wake_producers();
                station.tell();
                return Ok(self.pass_ends(station));
            }
        }
        let mut dropped = [0; REASONS];
        device.send(&self.packets, &station.arena, &mut dropped)?;
        let place = device.commit()?;
        station.set_place(place);
        fault::step(Step::Processed);
        let base = station.layout.nodes;
        station.add_drops(base, &dropped);
        self.finish_batch(station);
        Ok(self.did(station))
    }

    /// Counts packets that left the graph here and gives their buffers back.
    fn finish_batch(&mut self, station: &mut Station) {
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
    }

    /// A batch is done. Now and then looks whether a source has ended: while another keeps the
    /// worker busy there is no idle step that would.
    fn did(&mut self, station: &mut Station) -> Progress {
        self.batches = self.batches.wrapping_add(1);
        if self.batches.is_multiple_of(BATCHES) && self.pass_ends(station) == Progress::Finished {
            return Progress::Finished;
        }
        Progress::Did
    }

    fn rx_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Rx { device, port, source, stopped, counted, learner } = &mut self.end else {
            return Ok(Progress::Idle);
        };
        if station.own_source_ended(*source) {
            return Ok(Progress::Finished);
        }
        if *stopped && *counted {
            let ended = station.end_source(*source);
            return Ok(if ended { Progress::Finished } else { Progress::Idle });
        }
        let left = station.egress.room(*source, BATCH).min(BATCH);
        let Station { arena, egress, home, words, layout, .. } = station;
        let Some(pool) = home.as_mut() else {
            return Ok(Progress::Idle);
        };
        let left = left.min(pool.refill(arena.owners(), BATCH));
        self.full = left == 0;
        if left == 0 && !*stopped {
            station.tell();
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
        let status = if *stopped {
            *counted = true;
            device.finish(&mut room);
            Status::More
        } else {
            device.receive(&mut room)?
        };
        let (received, refused) = (room.received, room.refused);
        let place = device.place();
        fault::step(Step::Claimed);
        if let Some(learner) = learner {
            learner.see_time();
            learner.learn(&self.packets, arena);
        }
        if received.0 > 0 {
            let base = layout.nodes;
            let mut way = Way { arena, egress, source: *source, words };
            self.segment.run(0, 0, &mut self.packets, &mut way);
            fault::step(Step::Processed);
            // The port's node counts what it was given; what was refused comes on top.
            let count_refused: u64 = refused.iter().sum();
            station.add_drops(base, &refused);
            let so_far = station.get(base);
            station.set(base, so_far + count_refused);
            station.set(station.layout.seq, seq);
            station.set_place(place);
            station.commit();
            let seq = station.seq();
            station.egress.set_watermark(*source, seq);
            station.ingress.say_progress(*source, seq);
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
