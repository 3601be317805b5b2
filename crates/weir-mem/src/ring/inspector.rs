//! A ring as the agent sees it.

use super::{RingMemory, RingShape};
use crate::broken;
use crate::region::{Region, RegionError};
use crate::shared::Plain;
use crate::sync::{Ordering, fence};

/// More entries than any ring carries between two looks at it.
const FAR: u64 = 1 << 40;

/// Both indices of a ring, as last seen to be right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Indices {
    head: u64,
    tail: u64,
}

/// Whose index of a ring cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Nobody's.
    Sound,
    /// The producer's.
    Producer,
    /// The consumer's.
    Consumer,
    /// One of the two: the other may have believed it.
    Either,
}

/// The agent's view of a ring: both indices and the slots, to read, and to complete what a dead
/// worker had committed.
pub struct RingInspector<E> {
    pub(super) memory: RingMemory<E>,
}

impl<E: Plain> RingInspector<E> {
    /// Attaches with both memories writable; only the agent can.
    pub fn attach(
        shape: RingShape<E>,
        producer: &Region,
        consumer: &Region,
    ) -> Result<Self, RegionError> {
        let memory = RingMemory::map(shape, producer.map_writable()?, consumer.map_writable()?)?;
        Ok(RingInspector { memory })
    }

    /// Published entries since the ring was made.
    pub fn head(&self) -> u64 {
        // Acquire: pairs with `Producer::publish`.
        self.memory.producer().head.load(Ordering::Acquire)
    }

    /// Claimed entries since the ring was made.
    pub fn tail(&self) -> u64 {
        // Acquire: pairs with `Consumer::claim`.
        self.memory.consumer().tail.load(Ordering::Acquire)
    }

    /// Entries published and not claimed.
    pub fn len(&self) -> u64 {
        let tail = self.tail();
        self.head().wrapping_sub(tail).min(self.memory.capacity())
    }

    /// True when everything published has been claimed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that fit.
    pub fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    /// Copies of the entries published and not claimed. Exact while one of the two sides rests;
    /// while the consumer goes on, a superset of what is left.
    pub fn unclaimed(&self) -> Vec<E> {
        let tail = self.tail();
        let n = self.head().wrapping_sub(tail).min(self.memory.capacity());
        (0..n).map(|i| self.memory.slot(tail.wrapping_add(i)).load()).collect()
    }

    /// A copy of the entry that the consumer is to take next, if there is one.
    pub fn first(&self) -> Option<E> {
        let tail = self.tail();
        let ahead = self.head().wrapping_sub(tail);
        (ahead > 0 && ahead <= self.memory.capacity()).then(|| self.memory.slot(tail).load())
    }

    /// Puts right what a dead producer may have written over: a head that cannot be (behind the
    /// tail, or more than the capacity ahead) becomes `head`, the last that is known of, or the tail
    /// where that cannot be either. True when something had to be done.
    pub fn repair_head(&self, head: u64) -> bool {
        let (tail, capacity) = (self.tail(), self.memory.capacity());
        let fits = |h: u64| h.wrapping_sub(tail) <= capacity;
        if fits(self.head()) {
            return false;
        }
        let head = if fits(head) { head } else { tail };
        // Release: in the dead producer's stead, pairs with `Consumer::available`.
        self.memory.producer().head.store(head, Ordering::Release);
        true
    }

    /// Puts right what a dead consumer may have written over: a tail that cannot be (ahead of the
    /// head, or behind `claimed`, the last that is known of) becomes `claimed`, or the head where
    /// that cannot be either. True when something had to be done.
    pub fn repair_tail(&self, claimed: u64) -> bool {
        let (head, capacity) = (self.head(), self.memory.capacity());
        let fits = |t: u64| head.wrapping_sub(t) <= capacity;
        let tail = self.tail();
        // A marker is counted as claimed just before it is.
        if fits(tail) && tail.wrapping_add(1).wrapping_sub(claimed) <= capacity + 1 {
            return false;
        }
        let tail = if fits(claimed) { claimed } else { head };
        // Release: in the dead consumer's stead, pairs with `Producer::room`.
        self.memory.consumer().tail.store(tail, Ordering::Release);
        true
    }

    /// Publishes for a dead producer what its ledger had committed: entries up to `target`, whose
    /// slots it had written. Goes forward only, and by at most the ring's capacity.
    pub fn roll_forward(&self, target: u64) {
        let ahead = target.wrapping_sub(self.head());
        if ahead > 0 && ahead <= self.memory.capacity() {
            // Release: pairs with `Consumer::available`, in the dead producer's stead.
            self.memory.producer().head.store(target, Ordering::Release);
        }
    }

    /// Copies of all slots, claimed or not: only the producer writes them.
    pub fn slots(&self) -> impl Iterator<Item = E> {
        (0..self.memory.capacity()).map(|i| self.memory.slot(i).load())
    }

    /// A copy of the entry published last, `None` before the first.
    pub fn last_published(&self) -> Option<E> {
        let head = self.head().checked_sub(1)?;
        Some(self.memory.slot(head).load())
    }

    /// A copy of the entry claimed last, if the producer has not written over it since.
    pub fn last_claimed(&self) -> Option<E> {
        let tail = self.tail().checked_sub(1)?;
        Some(self.memory.slot(tail).load())
    }

    /// Empties the ring in its consumer's stead, which rests: whatever was in it is forgotten.
    pub fn clear(&self) {
        // Release: pairs with `Producer::room`.
        self.memory.consumer().tail.store(self.head(), Ordering::Release);
    }

    /// Publishes `entry` again and again in the stead of a producer that rests or is dead, up to `target` or as far as
    /// there is room; says up to where. Goes forward only.
    pub fn fill(&self, entry: E, target: u64) -> u64 {
        let head = self.head();
        let wanted = target.wrapping_sub(head) as i64;
        let room = self.capacity().saturating_sub(self.len());
        let more = u64::try_from(wanted).unwrap_or(0).min(room);
        for i in 0..more {
            self.memory.slot(head.wrapping_add(i)).store(entry);
        }
        let until = head.wrapping_add(more);
        // Release: pairs with `Consumer::available`, in the producer's stead.
        self.memory.producer().head.store(until, Ordering::Release);
        until
    }

    /// Claims entries up to `target` in the stead of a consumer that rests or is dead, as far as there are any. Goes forward
    /// only.
    pub fn claim_up_to(&self, target: u64) {
        let tail = self.tail();
        if target.wrapping_sub(tail) <= self.len() {
            // Release: pairs with `Producer::room`, in the consumer's stead.
            self.memory.consumer().tail.store(target, Ordering::Release);
        }
    }

    /// Rewrites what is published and not claimed, while both ends rest.
    pub fn rewrite(&self, mut with: impl FnMut(E) -> E) {
        let tail = self.tail();
        for i in 0..self.len() {
            let slot = self.memory.slot(tail.wrapping_add(i));
            slot.store(with(slot.load()));
        }
    }

    /// Puts an entry before all others, in the slot that was claimed last, while both ends rest.
    /// False, and nothing done, when the ring is full.
    pub fn put_back(&self, entry: E) -> bool {
        let Some(tail) = self.tail().checked_sub(1).filter(|_| self.len() < self.capacity()) else {
            return false;
        };
        self.memory.slot(tail).store(entry);
        // Release: pairs with `Producer::room`.
        self.memory.consumer().tail.store(tail, Ordering::Release);
        true
    }

    /// Watermark of the producer.
    pub fn watermark(&self) -> crate::entry::Seq {
        // Acquire: pairs with `Producer::set_watermark`.
        crate::entry::Seq::new(self.memory.producer().watermark.load(Ordering::Acquire))
    }

    /// Looks at both indices and compares them with those of the last look, which were right.
    pub fn judge(&self, last: &mut Indices) -> Judgement {
        // The order of the loads is what makes an honest pair fit: what is claimed was published
        // before, and what is published had room.
        let head = self.head();
        let tail = self.tail();
        let later = self.head();
        let forward = |now: u64, before: u64| now.wrapping_sub(before) < FAR;
        let capacity = self.memory.capacity();
        let verdict = if !forward(head, last.head) || !forward(later, head) {
            Judgement::Producer
        } else if !forward(tail, last.tail) {
            Judgement::Consumer
        } else if !forward(later, tail) {
            // More was taken than was given: a consumer that lies, or a producer that took back what
            // an honest one had believed.
            Judgement::Either
        } else if forward(head, tail) && head.wrapping_sub(tail) > capacity {
            // More was given than there is room for: a producer that lies, or a consumer that took back
            // what an honest one had believed.
            Judgement::Either
        } else {
            Judgement::Sound
        };
        if verdict == Judgement::Sound {
            *last = Indices { head, tail };
        }
        verdict
    }

    /// Both indices as they stand.
    pub fn indices(&self) -> Indices {
        Indices { head: self.head(), tail: self.tail() }
    }

    /// True when the consumer sleeps until there is something (ring the doorbell for it).
    pub fn consumer_sleeps(&self) -> bool {
        // SeqCst fence: pairs with the one in `Consumer::sleep`.
        if !broken::is("doorbell") {
            fence(Ordering::SeqCst);
        }
        self.memory.consumer().sleeping.load(Ordering::Relaxed) != 0
    }

    /// Clears what a dead producer's or consumer's sleep left.
    pub fn forget_sleep(&self, producer: bool) {
        if producer {
            self.memory.producer().waiting.store(0, Ordering::Relaxed);
        } else {
            self.memory.consumer().sleeping.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::entry::Seq;
    use crate::ring::heap_ring_inspected;
    use crate::{Entry, Marker};

    #[test]
    fn a_ring_is_filled_and_emptied_in_a_dead_ends_stead_as_far_as_it_goes() {
        let (mut producer, mut consumer, agent) = heap_ring_inspected::<Entry>(4);
        let void = Entry::marker(Marker::Void, Seq::new(0));
        assert!(producer.stage(void));
        producer.publish();
        // Nothing is taken back, and nothing is written over.
        assert_eq!((agent.fill(void, 0), agent.fill(void, 3), agent.fill(void, 9)), (1, 3, 4));
        assert_eq!(consumer.refresh(), 4);
        assert_eq!(consumer.peek(3), Some(void));
        agent.claim_up_to(3);
        assert_eq!(agent.tail(), 3);
        for nonsense in [0, 5, u64::MAX] {
            agent.claim_up_to(nonsense);
            assert_eq!(agent.tail(), 3);
        }
    }
}
