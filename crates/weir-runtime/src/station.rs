//! What every worker does around its work: take, commit, publish, and know when it is over.

use crate::attach::{Attached, Descriptors, attach};
use crate::layout::Layout;
use crate::link::{self, LinkError};
use crate::more::Appetite;
use crate::moves::{Moves, Post};
use crate::spec::{FromWorker, WorkerSpec, command};
use rustix::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;
use weir_device::Place;
use weir_mem::fault::{self, Step};
use weir_mem::{
    Arena, Consumer, Entry, KeptState, LedgerWriter, Muster, Origins, ReplicaTable, Seq,
};
use weir_packet::{BATCH, DropReason, Packet, REASONS};
use weir_port::{Doorbell, DoorbellError, Egress, HomePool, Ingress, Pull};

pub(crate) use crate::attach::AttachError;

/// Why a worker could not rest.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// The control socket.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The doorbell.
    #[error(transparent)]
    Doorbell(#[from] DoorbellError),
}

/// How a rest ended.
pub(crate) struct Paused {
    /// It goes on in the memory that it has adopted.
    pub(crate) goes: bool,
    /// Other commands that came meanwhile.
    pub(crate) meanwhile: Vec<u32>,
}

/// What one that stands by is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoodBy {
    /// Take over, and stand by again.
    Take,
    /// Begin.
    Go,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Packets moved.
    Did,
    /// Nothing to do, or no room to do it.
    Idle,
    /// Nothing to do for so many nanoseconds.
    Later(u64),
    /// Everything has ended and was passed on.
    Finished,
}

/// True for a command with which a message goes.
fn with_message(command: &u32) -> bool {
    matches!(*command, command::ADOPT | command::ORDER)
}

/// Memory, rings and ledger of a worker.
pub(crate) struct Station {
    pub(crate) arena: Arena,
    /// Memory of the home pool, where that is another trust domain's (a gate's).
    pub(crate) outward: Option<Arena>,
    pub(crate) ingress: Ingress,
    pub(crate) egress: Egress,
    pub(crate) home: Option<HomePool>,
    pub(crate) bell: Rc<Doorbell>,
    /// Those behind it on its core, in chain order.
    pub(crate) followers: Vec<Rc<Doorbell>>,
    /// By which the first of its core calls the others to sleep.
    pub(crate) muster: Option<Muster>,
    /// Where the µNFs' state is kept; the worker's job takes it.
    pub(crate) state: Option<KeptState>,
    /// Where what they know goes from one generation to the next.
    pub(crate) handover: Option<KeptState>,
    /// Where it is replicated; the worker's job takes it.
    pub(crate) replica: Option<ReplicaTable>,
    /// By array of ports that edges lead to: which flows came in by it; and where this worker writes that.
    pub(crate) origins: Vec<Option<Rc<Origins>>>,
    pub(crate) learns: Option<Rc<Origins>>,
    /// By crew its letters; the worker's job takes them.
    pub(crate) posts: Vec<Post>,
    pub(crate) layout: Layout,
    /// The ledger's words as they will be committed next.
    pub(crate) words: Vec<u64>,
    ledger: LedgerWriter,
    /// The batch whose records in the replica count.
    pub(crate) committed_replica: u64,
    commands: Consumer<u32>,
    /// Sources that this worker has to pass on the end of.
    expected: u64,
    /// Whether anybody further on waits for watermarks.
    any_ordered: bool,
    /// Entries that earlier incarnations rejected.
    rejected_before: u64,
    /// Nonsense that earlier incarnations saw, by ring, and buffers that came back twice.
    nonsense_before: Vec<u64>,
    /// Nonsense in all when it was written down last.
    noted: u64,
    late: Vec<Packet>,
}

impl Station {
    /// Has the agent hear of this process's death when it begins ([`weir_mem::knell`]), if that is to be had: if not, it hears of it later.
    pub(crate) fn arm_knell(&self) {
        self.ledger.arm_knell();
    }

    pub(crate) fn attach(spec: &WorkerSpec, mut fds: Descriptors) -> Result<Self, AttachError> {
        let layout = Layout::of(spec);
        let attached = attach(spec, layout.len, &mut fds)?;
        let Attached { arena, outward, ingress, egress, home, ledger, commands, .. } = attached;
        let Attached {
            bell,
            followers,
            muster,
            state,
            handover,
            replica,
            origins,
            learns,
            posts,
            ..
        } = attached;
        let mut words = ledger.committed();
        words.resize(layout.len, 0);
        let mut expected = 0;
        for lane in ingress.lanes() {
            expected |= 1 << lane.source;
        }
        let any_ordered = egress.lanes().iter().any(|l| l.ordered);
        let rejected_before = words.get(layout.rejected).copied().unwrap_or(0);
        let rings = layout.lanes_in_len + layout.rings_out + layout.home_len;
        let before = words.get(layout.doubled..layout.nonsense + rings);
        let nonsense_before = before.map(<[u64]>::to_vec).unwrap_or_default();
        let committed_replica = words.get(layout.replica).copied().unwrap_or(0);
        let mut station = Station {
            committed_replica,
            any_ordered,
            rejected_before,
            nonsense_before,
            noted: 0,
            late: Vec::with_capacity(BATCH),
            arena,
            outward,
            ingress,
            egress,
            home,
            bell,
            followers,
            muster,
            state,
            handover,
            replica,
            origins,
            learns,
            posts,
            layout,
            words,
            ledger,
            commands,
            expected,
        };
        station.forget_ended();
        Ok(station)
    }

    /// A predecessor may have passed on a source's end without having taken the markers, or all of them. What it
    /// left is no nonsense of who sent it.
    fn forget_ended(&mut self) {
        for source in 0..self.ingress.sources() {
            if self.has_ended(source) {
                self.ingress.finish(source);
            }
        }
    }

    fn word(&mut self, at: usize) -> Option<&mut u64> {
        self.words.get_mut(at)
    }

    pub(crate) fn set(&mut self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            *word = value;
        }
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Adds to the drops of the node whose words begin at `node`.
    pub(crate) fn add_drops(&mut self, node: usize, drops: &[u64; REASONS]) {
        for (at, n) in (node + 4..).zip(drops).filter(|(_, n)| **n > 0) {
            let so_far = self.get(at);
            self.set(at, so_far + n);
        }
    }

    pub(crate) fn place(&self) -> Place {
        std::array::from_fn(|i| self.get(self.layout.place + i))
    }

    pub(crate) fn set_place(&mut self, place: Place) {
        for (i, word) in place.into_iter().enumerate() {
            self.set(self.layout.place + i, word);
        }
    }

    /// Whether the agent has given a command.
    #[inline]
    pub(crate) fn has_command(&mut self) -> bool {
        self.commands.available(1) > 0
    }

    /// The agent's next command.
    pub(crate) fn command(&mut self) -> Option<u32> {
        self.commands.available(1);
        let command = self.commands.peek(0);
        self.commands.claim(1);
        command
    }

    /// Rests at a batch boundary, after it has told the agent so by `message`, until the agent says to go on.
    pub(crate) fn pause(
        &mut self,
        agent: BorrowedFd<'_>,
        message: &FromWorker,
    ) -> Result<Paused, PauseError> {
        self.note_nonsense();
        self.commit();
        link::send(agent, message, &[])?;
        let mut paused = Paused { goes: false, meanwhile: Vec::new() };
        loop {
            match self.command() {
                Some(go @ (command::RESUME | command::REFILL)) => {
                    self.ingress.resync();
                    self.egress.resync();
                    if let Some(home) = &mut self.home {
                        home.resync(go == command::REFILL);
                    }
                    return Ok(paused);
                }
                Some(command::GO) => return Ok(Paused { goes: true, ..paused }),
                Some(command::PING) => {}
                // Whatever else is wanted can wait.
                Some(other) => paused.meanwhile.push(other),
                None => {
                    // A message that goes with a command is read when the command's turn comes; until then
                    // it is no sign that the agent has gone.
                    let agent = (!paused.meanwhile.iter().any(with_message)).then_some(agent);
                    if self.bell.wait(agent, Duration::from_secs(1))? && !self.has_command() {
                        return Err(LinkError::Closed.into());
                    }
                }
            }
        }
    }

    /// Waits for the agent's word to take over or to begin, and reads anew what it has written meanwhile.
    pub(crate) fn stand_by(&mut self, agent: BorrowedFd<'_>) -> Result<StoodBy, PauseError> {
        loop {
            match self.command() {
                Some(word @ (command::TAKE_OVER | command::GO)) => {
                    self.reload();
                    return Ok(match word {
                        command::GO => StoodBy::Go,
                        _ => StoodBy::Take,
                    });
                }
                Some(_) => {}
                None => {
                    if self.bell.wait(Some(agent), Duration::from_secs(1))? && !self.has_command() {
                        return Err(LinkError::Closed.into());
                    }
                }
            }
        }
    }

    /// Reads its record anew: the agent has written where this worker begins.
    pub(crate) fn reload(&mut self) {
        self.ledger.reload();
        self.words = self.ledger.committed();
        self.words.resize(self.layout.len, 0);
        self.committed_replica = self.get(self.layout.replica);
    }

    /// Writes down what nonsense others wrote into their rings, when there is any new; it is
    /// committed with the next batch, or by [`Station::confess`].
    pub(crate) fn note_nonsense(&mut self) -> bool {
        let home = self.home.iter();
        let all = home.clone().map(HomePool::doubled).sum::<u64>()
            + self.ingress.lanes().iter().map(|l| l.nonsense()).sum::<u64>()
            + self.egress.nonsense().sum::<u64>()
            + home.flat_map(HomePool::nonsense).sum::<u64>();
        if all == self.noted {
            return false;
        }
        self.noted = all;
        let home = self.home.iter();
        let doubled = home.clone().map(HomePool::doubled).sum::<u64>();
        let lanes = self.ingress.lanes().iter().map(|l| l.nonsense());
        let seen = std::iter::once(doubled).chain(lanes).chain(self.egress.nonsense());
        let seen = seen.chain(home.flat_map(HomePool::nonsense));
        let words = self.words.iter_mut().skip(self.layout.doubled);
        for ((word, seen), before) in words.zip(seen).zip(&self.nonsense_before) {
            *word = before.wrapping_add(seen);
        }
        let rejected = self.ingress.lanes().iter().map(|l| l.rejected()).sum::<u64>()
            + self.home.as_ref().map_or(0, HomePool::rejected);
        self.set(self.layout.rejected, self.rejected_before + rejected);
        true
    }

    /// What the agent has to know of a worker that may not get round to a batch: nonsense that others wrote,
    /// and buffers that it has taken home since. Without those a worker that takes nothing looks as if it
    /// waited for buffers.
    pub(crate) fn tell(&mut self) {
        let free = self.home.as_ref().map_or(0, |home| home.free() as u64);
        let is_new = self.home.is_some() && self.get(self.layout.free) != free;
        if self.note_nonsense() || is_new {
            self.commit();
        }
    }

    /// Drops what came after the end of a source.
    pub(crate) fn drop_late(&mut self) {
        for source in 0..self.ingress.sources() {
            if !self.has_ended(source) {
                continue;
            }
            let mut late = std::mem::take(&mut self.late);
            if self.ingress.take_late(source, &self.arena, &mut late) && late.is_empty() {
                // Markers: claimed and not written down they would count as lost.
                self.commit();
            }
            self.drop_all(&mut late, DropReason::BadEntry);
            if self.ingress.comes_back() {
                self.ingress.take_back_late(source, &self.arena, &mut late);
                self.drop_all(&mut late, DropReason::HeldAtEnd);
            }
            self.late = late;
        }
    }

    fn drop_all(&mut self, packets: &mut Vec<Packet>, reason: DropReason) {
        if self.ingress.borrows() {
            // They are others' to drop and to count.
            if !packets.is_empty() {
                packets.drain(..).for_each(|packet| {
                    let _ = packet.into_entry();
                });
                self.commit();
            }
            return;
        }
        if !packets.is_empty() {
            let word = self.layout.nodes + 4 + reason as usize;
            let (count, so_far) = (packets.len() as u64, self.get(word));
            self.set(word, so_far + count);
            self.egress.give_all_back(packets);
            self.commit();
        }
        packets.clear();
    }

    /// Takes the next packets for which there is room further on, as many as `appetite` says.
    #[inline]
    pub(crate) fn pull(&mut self, packets: &mut Vec<Packet>, appetite: Appetite) -> Pull {
        let (arena, egress) = (&self.arena, &mut self.egress);
        if self.ingress.comes_back() {
            let room = |source| egress.room(source, BATCH).min(appetite.back(source));
            if let Some(pulled) = self.ingress.pull_back(arena, packets, room) {
                return Pull::Some(pulled);
            }
        }
        let (home, owners) = (&mut self.home, arena.owners());
        self.ingress.pull(arena, packets, |source| {
            egress.room(source, BATCH).min(appetite.of(source, home.as_mut(), owners))
        })
    }

    /// Whether another batch may be taken before what was taken is committed. Of a worker that dies the agent puts rings right by what it has
    /// committed, and what it has taken beyond that is never more than a ring holds.
    #[inline]
    pub(crate) fn may_claim_more(&self) -> bool {
        let committed = self.words.iter().skip(self.layout.lanes_in);
        let mut lanes = self.ingress.lanes().iter().zip(committed);
        lanes.all(|(lane, committed)| {
            lane.ring.claimed().saturating_sub(*committed) + BATCH as u64
                <= lane.ring.capacity() as u64
        })
    }

    /// As [`Station::pull`], of packets whose flows' state is here.
    pub(crate) fn pull_those(
        &mut self,
        packets: &mut Vec<Packet>,
        appetite: Appetite,
        moves: &mut Moves,
    ) -> Pull {
        let (arena, egress) = (&self.arena, &mut self.egress);
        if self.ingress.comes_back() {
            let room = |source| egress.room(source, BATCH).min(appetite.back(source));
            if let Some(pulled) = self.ingress.pull_back(arena, packets, room) {
                return Pull::Some(pulled);
            }
        }
        let (home, owners) = (&mut self.home, arena.owners());
        let room =
            |source| egress.room(source, BATCH).min(appetite.of(source, home.as_mut(), owners));
        let goes = |lane, entry: &Entry| moves.goes(arena, lane, entry);
        self.ingress.pull_those(arena, packets, room, goes)
    }

    /// Takes the marker that is next on a lane in: as one with the record, so that it never counts as a lost packet.
    pub(crate) fn pass_mark(&mut self, lane: usize) {
        let claimed = self.ingress.lanes().get(lane).map_or(0, |lane| lane.ring.claimed());
        self.set(self.layout.lanes_in + lane, claimed.wrapping_add(1));
        self.commit();
        self.ingress.pass_mark(lane);
    }

    /// Makes the batch's work one atom: records what will be, then lets others see it.
    #[inline]
    pub(crate) fn commit(&mut self) {
        self.egress.lend();
        fault::step(Step::Staged);
        self.egress.targets(self.words.iter_mut());
        let lanes = self.ingress.lanes().iter();
        let words = self.words.iter_mut().skip(self.layout.lanes_in);
        for (word, lane) in words.zip(lanes) {
            // A source that has ended stands one further: its marker is taken after the commit.
            *word = (*word).max(lane.ring.claimed());
        }
        if let Some(home) = &self.home {
            let free = home.free() as u64;
            self.set(self.layout.free, free);
        }
        self.ledger.commit(&self.words);
        self.committed_replica = self.get(self.layout.replica);
        fault::step(Step::Committed);
        self.egress.publish();
    }

    /// Writes into its record that it has taken packets that never came.
    #[cfg(feature = "attacks")]
    pub(crate) fn lie(&mut self) {
        let taken = self.get(self.layout.lanes_in);
        self.set(self.layout.lanes_in, taken + (1 << 20));
        self.commit();
    }

    /// Takes packets, and neither passes them on nor says that it has them.
    #[cfg(feature = "attacks")]
    pub(crate) fn keep(&mut self) {
        let mut packets = Vec::new();
        let _ = self.pull(&mut packets, Appetite::up_to(BATCH));
        for packet in packets {
            let _ = packet.into_entry();
        }
        self.commit();
    }

    /// Promises on every source's lanes what its ingress promises.
    #[inline]
    pub(crate) fn pass_watermarks(&mut self) {
        self.pass_watermarks_before(|_| None);
    }

    /// The same, but of each source nothing behind what still `waits` here to be sent.
    pub(crate) fn pass_watermarks_before(&mut self, waits: impl Fn(usize) -> Option<Seq>) {
        if !self.any_ordered {
            return;
        }
        for source in 0..self.ingress.sources() {
            if !self.egress.is_ordered(source) {
                continue;
            }
            let (comes, waits) = (self.ingress.frontier(source), waits(source));
            if let Some(seq) = [comes, waits].into_iter().flatten().reduce(|a, b| a.min(b)) {
                self.egress.set_watermark(source, seq);
            }
        }
    }

    /// Bits of the sources that packets come from by lanes.
    pub(crate) fn sources_that_come(&self) -> u64 {
        self.expected
    }

    fn has_ended(&self, source: usize) -> bool {
        self.get(self.layout.ended) & (1 << source) != 0
    }

    /// Passes on the ends of sources that have ended here, when `before` has sent what there was
    /// still to send of one.
    pub(crate) fn pass_ends(
        &mut self,
        mut before: impl FnMut(&mut Self, usize) -> bool,
    ) -> Progress {
        for source in 0..self.ingress.sources() {
            // No room for one source's end is no reason to keep back another's.
            if self.has_ended(source) || !self.ingress.source_ended(source) || !before(self, source)
            {
                continue;
            }
            if self.end_source(source) {
                self.ingress.finish(source);
                // Of a stage's answers the markers are taken beyond what was written down.
                self.commit();
            } else if let Some(reached) = self.ingress.reached(source) {
                // Who fills a lane may wait to hear from others, and they from here, that nothing comes before it.
                self.egress.set_watermark(source, reached);
            }
        }
        self.drop_late();
        let ended = self.get(self.layout.ended);
        if ended & self.expected == self.expected { Progress::Finished } else { Progress::Idle }
    }

    /// Passes on the end of `source`; false when there is no room for it yet.
    pub(crate) fn end_source(&mut self, source: usize) -> bool {
        if !self.egress.end(source) {
            return false;
        }
        self.ingress.say_end(source);
        let ended = self.get(self.layout.ended) | 1 << source;
        self.set(self.layout.ended, ended);
        // Its markers count as claimed in the record already: dying before they are taken must not
        // look like lost packets.
        for (i, lane) in self.ingress.lanes().iter().enumerate() {
            if lane.source == source
                && lane.ended()
                && let Some(word) = self.words.get_mut(self.layout.lanes_in + i)
            {
                *word = lane.ring.claimed() + 1;
            }
        }
        self.commit();
        true
    }

    /// True when this worker's own source (a device's) has been ended.
    pub(crate) fn own_source_ended(&self, source: usize) -> bool {
        self.has_ended(source)
    }

    /// The next sequence number of the worker's own source.
    pub(crate) fn seq(&self) -> Seq {
        Seq::new(self.get(self.layout.seq))
    }

    /// Takes back buffers that came home, so that the record is true at the end.
    pub(crate) fn settle(&mut self) {
        if let Some(home) = &mut self.home {
            home.collect(self.outward.as_ref().unwrap_or(&self.arena).owners());
        }
        self.drop_late();
        self.note_nonsense();
        self.commit();
    }
}
