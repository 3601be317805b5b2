//! One lane into a worker.

use crate::doorbell::Doorbell;
use crate::sync::Carries;
use std::rc::Rc;
use weir_mem::{Consumer, Entry, Marker, Seq, StreamEnd};
use weir_packet::BATCH;

/// One ring that leads here.
pub struct LaneIn {
    /// The ring.
    pub ring: Consumer<Entry>,
    /// Index of the packets' source.
    pub source: usize,
    /// Which node of the segment the lane's edge leads to.
    pub node: usize,
    /// Which input of that node.
    pub input: u8,
    /// Wakes the producer.
    pub bell: Rc<Doorbell>,
    /// What it carries; packets, if nothing else was said before it became one of a worker's lanes.
    pub carries: Carries,
    /// The sync port in front of which its packets wait.
    pub(crate) sync: Option<usize>,
    pub(super) ended: bool,
    /// Its end has been taken, as that of all lanes of its source.
    pub(super) finished: bool,
    pub(super) rejected: u64,
    /// Promises that went back, or beyond what the source has sent.
    broken: u64,
    pub(super) promised: Option<Seq>,
    /// Packets come there around a cycle.
    pub(super) back: bool,
    /// Markers of migrations are for this worker: see [`super::Ingress::mark`].
    pub(super) takes_marks: bool,
}

impl LaneIn {
    /// A lane that has not ended.
    pub fn new(
        ring: Consumer<Entry>,
        source: usize,
        node: usize,
        input: u8,
        bell: Rc<Doorbell>,
    ) -> Self {
        let (rejected, broken, promised) = (0, 0, None);
        let (carries, sync, back, takes_marks) = (Carries::Packets, None, false, false);
        let (ended, finished) = (false, false);
        LaneIn {
            ring,
            source,
            node,
            input,
            bell,
            carries,
            sync,
            ended,
            finished,
            rejected,
            broken,
            promised,
            back,
            takes_marks,
        }
    }

    /// The same, by which packets come around a cycle: see [`super::Ingress::pull_back`].
    #[must_use]
    pub fn coming_back(self) -> Self {
        LaneIn { back: true, ..self }
    }

    /// One more entry that cannot be right.
    pub(crate) fn reject(&mut self) {
        self.rejected += 1;
    }

    /// Everything that the producer cannot have written if it is sound: indices, entries, promises.
    pub fn nonsense(&self) -> u64 {
        self.ring.nonsense() + self.rejected + self.broken
    }

    /// The first entry. Passes over those that the agent has voided, and over ends of a stream that
    /// has not ended, whoever said so: its service has not, or more follows. (A marker may follow that says the
    /// same again.)
    pub(super) fn head(&mut self, ends: &[StreamEnd]) -> Option<Entry> {
        loop {
            let head = self.ring.peek(0)?;
            match head.as_marker() {
                Some(Marker::Void) => {}
                Some(Marker::Moved) if !self.takes_marks => self.rejected += 1,
                Some(Marker::EndOfStream)
                    if ends.get(self.source).is_some_and(|end| !end.is_set()) =>
                {
                    self.rejected += 1;
                }
                Some(Marker::EndOfStream) if self.ring.available(2) > 1 => {
                    let behind = self.ring.peek(1).and_then(|entry| entry.as_marker());
                    self.rejected += u64::from(behind != Some(Marker::EndOfStream));
                }
                _ => return Some(head),
            }
            self.ring.claim(1);
            if self.ring.available(1) == 0 {
                return None;
            }
        }
    }

    /// True when its end-of-stream marker has been reached.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The same, looked at anew: what follows an end shows that it was none. A producer that is not sound wrote it, and
    /// left there what follows would hold up whoever gives to that producer, for ever where they are the same that this
    /// worker waits for on another lane.
    pub(super) fn is_over(&mut self) -> bool {
        if self.ended && !self.finished && self.ring.available(2) > 1 {
            self.ended = false;
        }
        self.ended
    }

    /// Entries that were not packets of the arena: a producer wrote nonsense. They are claimed,
    /// counted and forgotten.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Sequence number of the head, or the watermark below which nothing follows; `None` after
    /// the end of the stream. A head that is not `answered` is not to be taken yet.
    pub(super) fn frontier(&mut self, ends: &[StreamEnd], answered: bool) -> Option<Frontier> {
        if self.is_over() {
            return None;
        }
        // The watermark first, then the ring: an empty ring then means that everything below the
        // watermark has been seen (Consumer::watermark).
        let mut watermark = self.ring.watermark();
        let promised = self.promised;
        let goes_back = promised.is_some_and(|promised| watermark.before(promised));
        if goes_back || !can_be(ends, self.source, watermark) {
            // Such a promise is none; the one before stands.
            self.broken = self.broken.saturating_add(1);
            watermark = promised.unwrap_or_default();
        } else {
            self.promised = Some(watermark);
        }
        if self.ring.available(1) == 0 {
            return Some(Frontier { seq: watermark, present: false });
        }
        let Some(head) = self.head(ends) else {
            return Some(Frontier { seq: watermark, present: false });
        };
        if head.as_marker() == Some(Marker::Moved) {
            // What was sent behind it is before what was promised then.
            let seq = self.behind_marks().unwrap_or(watermark);
            return Some(Frontier { seq, present: false });
        }
        if head.as_marker() == Some(Marker::EndOfStream) {
            if !answered {
                return Some(Frontier { seq: watermark, present: false });
            }
            self.ended = true;
            return None;
        }
        Some(Frontier { seq: head.seq(), present: answered })
    }

    /// Sequence number of the first packet behind markers.
    #[cold]
    fn behind_marks(&mut self) -> Option<Seq> {
        // All of them: what has come since the watermark was read does no harm, but what had come by then must be seen.
        let all = self.ring.available(usize::MAX);
        let behind = (1..all).map_while(|at| self.ring.peek(at));
        behind.into_iter().find(|entry| entry.as_marker().is_none()).map(|entry| entry.seq())
    }
}

/// Packets that a source may have sent before its service says how far it has come: a batch.
pub const UNSAID: u64 = BATCH as u64;

/// Whether `source` can have come to `seq`, by the word of its service. What is to be compared with it has to be read
/// before: a service says how far it is before it promises as much.
pub(super) fn can_be(ends: &[StreamEnd], source: usize, seq: Seq) -> bool {
    ends.get(source).is_none_or(|end| !end.reached().plus(UNSAID).before(seq))
}

/// How far a lane has come.
#[derive(Clone, Copy)]
pub(super) struct Frontier {
    pub(super) seq: Seq,
    pub(super) present: bool,
}
