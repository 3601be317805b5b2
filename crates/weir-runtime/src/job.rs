//! What a worker does with packets: its segment, or its device's service.

mod group;
mod relink;
mod service;

pub use self::group::GROUP;

use self::group::Group;

use crate::arrays::Learner;
use crate::dump::Dump;
use crate::early::Early;
use crate::gate::{self, Gate};
use crate::keep::Keeper;
use crate::moves::{Awaited, Listing, Moves, Order, Turn};
use crate::pace::Pace;
use crate::replica::{Reading, Recovered, Replicator};
use crate::segment::{Segment, SegmentError};
use crate::spec::{EndSpec, FromWorker, WorkerSpec};
use crate::station::{Progress, Station};
use crate::taper::Taper;
use crate::worker::WorkerError;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::time::Instant;
use weir_capture::TimeFormat;
use weir_device::{Receive, Send, TxOptions, leaves_socket, open_rx, open_tx};
use weir_mem::fault::{self, Step};
use weir_packet::{BATCH, Packet};
use weir_port::Pull;

/// Batches between two looks at whether a source has ended.
const BATCHES: u32 = 64;

enum End {
    /// `counted`: after the stop the device has counted what it missed. `holds`: nothing more is taken from it
    /// for now. `pace`: no more than so many are. `taper`: fewer and fewer are under way.
    Rx {
        device: Box<dyn Receive>,
        port: u16,
        source: usize,
        stopped: bool,
        counted: bool,
        holds: bool,
        pace: Option<Pace>,
        taper: Option<Taper>,
        learner: Option<Box<Learner>>,
        early: Option<Early>,
    },
    Tx {
        device: Box<dyn Send>,
    },
    Gate(Gate),
    Dump(Dump),
    /// By node that packets come to: at which one it is counted that they were dropped.
    Drain(Vec<usize>),
    /// A branch of a parallel stage; `closed`: of its NFs none is left, and it has all packets dropped.
    Branch {
        closed: bool,
    },
    None,
}

/// The classes of the source of the worker that `spec` describes.
fn early(spec: &WorkerSpec) -> Result<Option<Early>, WorkerError> {
    let EndSpec::Rx { early, port, .. } = &spec.end else { return Ok(None) };
    let rings = spec.lanes_out.iter().map(|lane| lane.ring.capacity);
    let capacity = rings.chain(spec.home.iter().map(|home| home.len)).min().unwrap_or(0);
    let made = Early::new(early, *port, capacity as usize);
    let failed = |source| SegmentError::Filter { name: spec.name.clone(), source };
    Ok(made.map_err(failed)?)
}

/// By node: itself, or if it only counts what a stage's branches drop the first NF behind the stage.
fn behind_stages(spec: &WorkerSpec) -> Vec<usize> {
    let nodes = spec.nodes.iter().enumerate();
    let behind = |at: usize| nodes.clone().skip(at).find(|(_, node)| node.sync.is_none());
    (0..spec.nodes.len()).map(|at| behind(at).map_or(at, |(behind, _)| behind)).collect()
}

/// Flows that may have to be read in one turn, as others are moved: some 50 ms.
const READ_IN_A_TURN: usize = 1 << 16;

/// What this worker does with packets.
pub(crate) struct Job {
    end: End,
    pub(crate) segment: Segment,
    pub(crate) packets: Vec<Packet>,
    clear_tags: bool,
    batches: u32,
    /// Some source is live: while no packets come, timers go by the wall clock, counted from here.
    live: Option<Instant>,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) replicator: Option<Replicator>,
    /// What was found in the replica, until it is told.
    pub(crate) recovered: Option<Recovered>,
    /// Those flows of it that have not been read yet.
    pub(crate) reading: Option<Reading>,
    /// When it was ready with that, until a batch is through.
    pub(crate) returned: Option<Instant>,
    /// What the operator should know.
    pub(crate) warnings: Vec<String>,
    /// Its part in moving flows, if it has one.
    pub(crate) moves: Option<Box<Moves>>,
    /// Which flows there are, as far as the agent has asked and that has been looked at.
    listings: VecDeque<Listing>,
    /// What the agent asked, answered; and what else it is to know.
    pub(crate) answers: Vec<FromWorker>,
    /// Batches may be committed together ([`Group`]).
    groups: bool,
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
            EndSpec::Rx { device, port, source, .. } => End::Rx {
                device: open_rx(device, station.place(), lent)?
                    .ok_or_else(|| WorkerError::Direction(device.clone()))?,
                port: *port,
                source: usize::from(*source),
                stopped: false,
                counted: false,
                holds: false,
                pace: None,
                taper: None,
                learner: station
                    .learns
                    .take()
                    .and_then(|o| Learner::new(o, usize::from(*source)))
                    .map(Box::new),
                early: early(spec)?,
            },
            EndSpec::Tx { device, nanoseconds, tells, .. } => {
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
            EndSpec::Drain | EndSpec::None if spec.branch => {
                End::Branch { closed: spec.end == EndSpec::Drain }
            }
            EndSpec::Drain => End::Drain(behind_stages(spec)),
            EndSpec::None => End::None,
        };
        Ok(Self::with(end, spec, station, segment))
    }

    fn with(end: End, spec: &WorkerSpec, station: &mut Station, mut segment: Segment) -> Self {
        segment.know(&std::mem::take(&mut station.origins));
        let posts = std::mem::take(&mut station.posts);
        let mut moves = Moves::new(spec, posts, station).map(Box::new);
        let memory = station.state.take().filter(|_| segment.remembers());
        let table = station
            .replica
            .take()
            .filter(|_| matches!(end, End::None | End::Rx { .. } | End::Branch { closed: false }));
        let replicator = table.and_then(|table| Replicator::new(table, &mut segment));
        if replicator.as_ref().is_some_and(Replicator::has_nfs) {
            moves.iter_mut().for_each(|moves| moves.hold_letters(&segment));
        }
        // Not where µNFs send by themselves; and what drops packets when it is full must come to its consumer batch by batch.
        let groups = replicator.as_ref().is_some_and(Replicator::writes_at_commits)
            && !segment.more.any
            && station.egress.lanes().iter().all(|lane| !lane.closes);
        Job {
            end,
            segment,
            packets: Vec::with_capacity(BATCH),
            clear_tags: spec.clear_tags,
            batches: 0,
            live: spec.live.then(Instant::now),
            keeper: memory.map(Keeper::new),
            replicator,
            recovered: None,
            reading: None,
            returned: None,
            warnings: Vec::new(),
            moves,
            listings: VecDeque::new(),
            answers: Vec::new(),
            groups,
            full: false,
        }
    }

    /// Repeats what the worker's own source had promised, and how far it had come: a predecessor may have died between its last
    /// packets and their watermark, and whoever merges must not wait for the next packet to learn that
    /// nothing precedes it.
    pub(crate) fn begin(&self, station: &mut Station) {
        if let End::Rx { device, source, .. } = &self.end {
            // Where in the kernel's ring its device is, a successor has to know before the first packet.
            let place = device.place();
            if leaves_socket(&place) && place != station.place() {
                station.set_place(place);
                station.commit();
            }
            let seq = station.seq();
            station.ingress.say_progress(*source, seq);
            station.egress.set_watermark(*source, seq);
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
            _ => {
                let kept = self.keeper.as_mut().and_then(Keeper::notice);
                kept.or_else(|| self.replicator.as_mut().and_then(Replicator::notice))
            }
        }
    }

    /// Whether it waits for buffers to come home. An Rx service with a batch's worth of them does not.
    pub(crate) fn wants_buffers(&self) -> bool {
        self.full || !matches!(self.end, End::Rx { .. })
    }

    /// What to wait for besides the bell.
    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Rx { device, holds: false, .. } if !self.full => device.wake_fd(),
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
        let looked = !self.listings.is_empty() && self.look_on();
        let progress = match self.moves {
            None => self.work(station),
            Some(_) => self.attend_and_work(station),
        };
        // Packets that have waited go first.
        let looked = looked | (self.reading.is_some() && self.read_on());
        match progress {
            Ok(Progress::Idle | Progress::Later(_)) if looked => Ok(Progress::Did),
            progress => progress,
        }
    }

    /// Looks for flows that the agent asks for, by a step; true when it did.
    #[cold]
    pub(crate) fn look_on(&mut self) -> bool {
        let Some(listing) = self.listings.front_mut() else { return false };
        if let Some(mut answer) = listing.go_on(&self.segment) {
            if let (FromWorker::Flows { totals, .. }, Some(moves)) = (&mut answer, &self.moves) {
                totals.iter_mut().for_each(|of| of.moved = moves.moved_to(of.node.into()));
            }
            self.answers.push(answer);
            self.listings.pop_front();
        }
        true
    }

    /// Looks after flows that are moved; then a step, if packets may be taken.
    fn attend_and_work(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let Some(turn) = self.attend(station) else { return self.work(station) };
        let progress = match turn.ready {
            true => self.work(station)?,
            false => {
                // Markers go behind what waits for room.
                let waits = !self.segment.more.has_no_backlog();
                let cleared = waits && self.clear_backlog(station);
                station.tell();
                if cleared { Progress::Did } else { Progress::Idle }
            }
        };
        Ok(match (progress, turn.later) {
            (Progress::Idle | Progress::Later(_), _) if turn.did => Progress::Did,
            (Progress::Idle, Some(later)) => Progress::Later(later),
            (Progress::Later(ns), Some(later)) => Progress::Later(ns.min(later)),
            (progress, _) => progress,
        })
    }

    /// Looks after flows that are moved; `None` when none ever is.
    pub(crate) fn attend(&mut self, station: &mut Station) -> Option<Turn> {
        if self.is_reading() && self.moves.is_some() && self.segment.read_unread(0) > READ_IN_A_TURN
        {
            // Whoever sends flows here, or wants some, would have to wait for all of them at once.
            return Some(Turn { did: self.read_in_haste(), ready: false, later: None });
        }
        let moves = self.moves.as_mut()?;
        let replicator = self.replicator.as_mut().filter(|replicator| replicator.has_nfs());
        let turn = moves.turn(station, &mut self.segment, replicator);
        self.answers.extend(self.moves.as_mut()?.notes());
        Some(turn)
    }

    /// The agent says that this is not worth waiting for.
    pub(crate) fn wait_no_longer(&mut self, awaited: Awaited) {
        if let Some(moves) = &mut self.moves {
            moves.wait_no_longer(awaited);
        }
    }

    /// Writes letters to those with whom it moves flows that no sound one writes.
    #[cfg(feature = "attacks")]
    pub(crate) fn write_nonsense(&mut self, random: crate::moves::attack::Random<'_>) {
        if let Some(moves) = &mut self.moves {
            moves.write_nonsense(random);
        }
    }

    /// Announces flows to those with whom it moves flows, and sends none.
    #[cfg(feature = "attacks")]
    pub(crate) fn announce(&mut self) {
        if let Some(moves) = &mut self.moves {
            moves.announce();
        }
    }

    /// Has what sends packets give them to another device.
    pub(crate) fn send_to(&mut self, other: Box<dyn Send>) {
        if let End::Tx { device } = &mut self.end {
            *device = other;
        }
    }

    /// Takes in an order of the agent's.
    pub(crate) fn order(&mut self, order: Order) {
        match order {
            Order::List { ticket, filter, most } => {
                self.listings.extend(Listing::new(ticket, filter.as_ref(), most));
            }
            // Of a sound agent the weights are right; what cannot be changes nothing.
            Order::Weigh { group, weights } => self.segment.reweigh(group, &weights),
            Order::EndPrecopy => self.segment.end_precopy(),
            Order::Pace(per_second) => {
                if let End::Rx { pace, .. } = &mut self.end {
                    *pace = per_second.map(Pace::new);
                }
            }
            Order::Taper { in_rings } => {
                if let End::Rx { taper, .. } = &mut self.end {
                    *taper = Some(Taper::new(usize::try_from(in_rings).unwrap_or(usize::MAX)));
                }
            }
            order => {
                if let Some(moves) = &mut self.moves {
                    moves.order(order);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// What the agent is to be told of its orders.
    pub(crate) fn answers(&mut self) -> Vec<FromWorker> {
        std::mem::take(&mut self.answers)
    }

    #[inline]
    fn work(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        match &mut self.end {
            End::None => Ok(self.segment_step(station)),
            End::Gate(gate) => {
                let pick = self.segment.picks.first_mut().map(|(_, pick)| pick);
                let progress = gate.step(station, &mut self.packets, pick);
                Ok(if progress == Progress::Did { self.did(station) } else { progress })
            }
            End::Drain(counts) => {
                let progress = gate::drain(station, counts, &mut self.packets);
                Ok(if progress == Progress::Did { self.did(station) } else { progress })
            }
            End::Branch { closed } => {
                let closed = *closed;
                Ok(self.branch_step(station, closed))
            }
            End::Tx { .. } => self.tx_step(station),
            End::Dump(_) => self.dump_step(station),
            End::Rx { .. } => self.rx_step(station),
        }
    }

    #[inline]
    fn segment_step(&mut self, station: &mut Station) -> Progress {
        if self.segment.more.any {
            self.clear_backlog(station);
        }
        let mut pulled = match self.pull(station) {
            Pull::Some(pulled) => pulled,
            // Blocked or not: what a source promises, and that it has ended, others may wait for.
            Pull::Blocked | Pull::None => {
                self.segment.pass_watermarks(station);
                station.ingress.wake_producers();
                station.tell();
                return self.rest(station);
            }
        };
        let mut group = self.group(station);
        loop {
            let came = self.packets.len();
            let (segment, packets) = (&mut self.segment, &mut self.packets);
            if station.ingress.answers().is_empty() {
                segment.with(station, pulled.source, |segment, way| {
                    segment.run(pulled.node, pulled.input, packets, way);
                });
            } else {
                segment.go_on(station, pulled, packets);
            }
            fault::step(Step::Processed);
            let goes_on = group.as_mut().is_some_and(|group| group.goes_on(came));
            if !goes_on || !station.may_claim_more() || self.is_asked(station) {
                break;
            }
            match self.pull(station) {
                Pull::Some(next) => pulled = next,
                // What there is to do then is done at the next step, behind the commit.
                Pull::Blocked | Pull::None => break,
            }
        }
        self.replicate(station);
        station.commit();
        // Of all sources: one that is always busy must not keep the others' promises back. What waits
        // for room is promised by nobody.
        self.segment.pass_watermarks(station);
        station.ingress.wake_producers();
        if let Some(keeper) = &mut self.keeper {
            keeper.after_batch(&self.segment);
        }
        fault::step(Step::Done);
        self.did(station)
    }

    /// Takes the next packets, if their flows' state is here.
    #[inline]
    fn pull(&mut self, station: &mut Station) -> Pull {
        let appetite = self.segment.more.appetite(self.segment.appetite());
        match self.moves.as_deref_mut().filter(|moves| moves.gates()) {
            None => station.pull(&mut self.packets, appetite),
            Some(moves) => station.pull_those(&mut self.packets, appetite, moves),
        }
    }

    /// Whether batches may be committed together now: what is replicated is written once for all of them then.
    #[inline]
    fn group(&self, station: &mut Station) -> Option<Group> {
        // Each batch is one where packets are looked at one by one, or flows are on their way; so are the first that a successor takes, and
        // what is done between two batches does not wait.
        let is_plain = self.groups
            && self.returned.is_none()
            && self.reading.is_none()
            && self.listings.is_empty()
            && station.ingress.answers().is_empty()
            && self.segment.appetite() == BATCH
            && self.moves.as_ref().is_none_or(|moves| !moves.gates());
        is_plain.then(Group::begin)
    }

    /// Whether somebody waits for the end of the step: the agent, or with whom it moves flows.
    #[inline]
    fn is_asked(&mut self, station: &mut Station) -> bool {
        station.has_command() || self.moves.as_mut().is_some_and(|moves| moves.has_letters())
    }

    /// Sends what waits for room; true when nothing waits any more.
    fn clear_backlog(&mut self, station: &mut Station) -> bool {
        if self.segment.more.has_no_backlog() {
            return true;
        }
        if !self.segment.more.may_send(&mut station.egress) {
            return false;
        }
        let done = self.segment.with(station, 0, |segment, way| segment.clear_backlog(way));
        station.commit();
        self.segment.pass_watermarks(station);
        done
    }

    /// No packets can be taken: passes on what has ended, and does what is due without packets.
    pub(crate) fn rest(&mut self, station: &mut Station) -> Progress {
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
                self.replicate(station);
                station.commit();
                return Progress::Did;
            }
            later = next;
        }
        let keep = self.keeper.as_mut().and_then(|k| k.if_due(&self.segment));
        let keep = keep.map(|left| left.as_nanos() as u64);
        let replicate = self.replicator.as_ref().and_then(Replicator::due);
        if replicate.is_some_and(|left| left.is_zero()) {
            self.replicate(station);
            station.commit();
            return Progress::Did;
        }
        let replicate = replicate.map(|left| left.as_nanos() as u64);
        [later, keep, replicate].into_iter().flatten().min().map_or(Progress::Idle, Progress::Later)
    }

    /// Passes on the ends of sources, after the µNFs have sent what they hold.
    fn pass_ends(&mut self, station: &mut Station) -> Progress {
        let (segment, replicator) = (&mut self.segment, &mut self.replicator);
        station.pass_ends(|station, source| {
            if !segment.more.any {
                return true;
            }
            let ended = station.get(station.layout.ended) | 1 << source;
            if segment.more.waits(source) {
                return false;
            }
            let reached = station.ingress.reached(source);
            segment.with(station, source, |segment, way| {
                segment.end_source(source, ended, reached, way);
            });
            if let Some(replicator) = replicator {
                // Whatever its pace: what the end has done is not to be done again.
                replicator.write(segment, station, true);
            }
            // Also when nothing waits: what was sent and written counts, whether or not there is room for the end.
            station.commit();
            !segment.more.waits(source)
        })
    }

    /// A batch is done. Now and then looks whether a source has ended: while another keeps the
    /// worker busy there is no idle step that would.
    pub(crate) fn did(&mut self, station: &mut Station) -> Progress {
        self.batches = self.batches.wrapping_add(1);
        if let Some(since) = self.returned.take() {
            self.answers.push(FromWorker::FirstOut { micros: since.elapsed().as_micros() as u64 });
        }
        if self.batches.is_multiple_of(BATCHES) && self.pass_ends(station) == Progress::Finished {
            return Progress::Finished;
        }
        Progress::Did
    }
}
