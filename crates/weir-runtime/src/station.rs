//! What every worker does around its work: take, commit, publish, and know when it is over.

use crate::attach::{Attached, Descriptors, attach};
use crate::layout::Layout;
use crate::spec::{WorkerSpec, command};
use std::rc::Rc;
use weir_device::Place;
use weir_mem::fault::{self, Step};
use weir_mem::{Arena, Consumer, LedgerWriter, Seq};
use weir_packet::{BATCH, Packet};
use weir_port::{Doorbell, Egress, HomePool, Ingress, Pull};

pub(crate) use crate::attach::AttachError;

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

/// Memory, rings and ledger of a worker.
pub(crate) struct Station {
    pub(crate) arena: Arena,
    pub(crate) ingress: Ingress,
    pub(crate) egress: Egress,
    pub(crate) home: Option<HomePool>,
    pub(crate) bell: Rc<Doorbell>,
    pub(crate) layout: Layout,
    /// The ledger's words as they will be committed next.
    pub(crate) words: Vec<u64>,
    ledger: LedgerWriter,
    commands: Consumer<u32>,
    /// Sources that this worker has to pass on the end of.
    expected: u64,
    /// Whether anybody further on waits for watermarks.
    any_ordered: bool,
    /// Entries that earlier incarnations rejected.
    rejected_before: u64,
}

impl Station {
    pub(crate) fn attach(spec: &WorkerSpec, mut fds: Descriptors) -> Result<Self, AttachError> {
        let layout = Layout::of(spec);
        let Attached { arena, ingress, egress, home, ledger, commands, bell } =
            attach(spec, layout.len, &mut fds)?;
        let mut words = ledger.committed();
        words.resize(layout.len, 0);
        let mut expected = 0;
        for lane in ingress.lanes() {
            expected |= 1 << lane.source;
        }
        let any_ordered = egress.lanes().iter().any(|l| l.ordered);
        let rejected_before = words.get(layout.rejected).copied().unwrap_or(0);
        let mut station = Station {
            any_ordered,
            rejected_before,
            arena,
            ingress,
            egress,
            home,
            bell,
            layout,
            words,
            ledger,
            commands,
            expected,
        };
        station.forget_ended();
        Ok(station)
    }

    /// A predecessor may have passed on a source's end without having taken the markers.
    fn forget_ended(&mut self) {
        for source in 0..self.ingress.sources() {
            if self.has_ended(source) && self.ingress.source_ended(source) {
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

    pub(crate) fn place(&self) -> Place {
        std::array::from_fn(|i| self.get(self.layout.place + i))
    }

    pub(crate) fn set_place(&mut self, place: Place) {
        for (i, word) in place.into_iter().enumerate() {
            self.set(self.layout.place + i, word);
        }
    }

    /// True when the agent wants the input to end here.
    pub(crate) fn told_to_stop(&mut self) -> bool {
        let n = self.commands.available(1);
        (0..n).any(|i| self.commands.peek(i) == Some(command::STOP))
    }

    /// Takes the next packets for which there is room further on.
    #[inline]
    pub(crate) fn pull(&mut self, packets: &mut Vec<Packet>) -> Pull {
        let egress = &mut self.egress;
        self.ingress.pull(&self.arena, packets, |source| egress.room(source, BATCH))
    }

    /// Makes the batch's work one atom: records what will be, then lets others see it.
    #[inline]
    pub(crate) fn commit(&mut self) {
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
        let rejected = self.ingress.lanes().iter().map(|l| l.rejected()).sum::<u64>()
            + self.home.as_ref().map_or(0, HomePool::rejected);
        self.set(self.layout.rejected, self.rejected_before + rejected);
        self.ledger.commit(&self.words);
        fault::step(Step::Committed);
        self.egress.publish();
    }

    /// Promises on every source's lanes what its ingress promises.
    #[inline]
    pub(crate) fn pass_watermarks(&mut self) {
        if !self.any_ordered {
            return;
        }
        for source in 0..self.ingress.sources() {
            if self.egress.is_ordered(source)
                && let Some(seq) = self.ingress.frontier(source)
            {
                self.egress.set_watermark(source, seq);
            }
        }
    }

    fn has_ended(&self, source: usize) -> bool {
        self.get(self.layout.ended) & (1 << source) != 0
    }

    /// Passes on the ends of sources that have ended here.
    pub(crate) fn pass_ends(&mut self) -> Progress {
        for source in 0..self.ingress.sources() {
            // No room for one source's end is no reason to keep back another's.
            if !self.has_ended(source)
                && self.ingress.source_ended(source)
                && self.end_source(source)
            {
                self.ingress.finish(source);
            }
        }
        let ended = self.get(self.layout.ended);
        if ended & self.expected == self.expected { Progress::Finished } else { Progress::Idle }
    }

    /// Passes on the end of `source`; false when there is no room for it yet.
    pub(crate) fn end_source(&mut self, source: usize) -> bool {
        if !self.egress.end(source) {
            return false;
        }
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
            home.collect(self.arena.owners());
        }
        self.commit();
    }
}
