//! What a µNF has besides its batch: packets that it keeps, packets on their way out, timers.

use crate::ctx::{Cause, Place};
use crate::held::Shelf;
use crate::pool::Origin;
use crate::timers::Timers;
use weir_mem::{Arena, Entry, Seq};
use weir_packet::{Packet, Verdict};

/// Which packet is to leave.
pub(crate) enum What {
    /// One that the µNF made, in its final form.
    Made(Entry, Origin),
    /// One that it held.
    Held(u64),
}

pub(crate) struct Waiting {
    what: What,
    verdict: Verdict,
    place: Place,
    seq: Seq,
}

/// How a packet that leaves besides those of the batch came about: for the balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The µNF made it.
    Created,
    /// The µNF made it as a copy of another.
    Copied,
    /// The µNF held it.
    Released,
}

/// A packet that a µNF sends, or drops, besides those of the batch.
#[derive(Debug)]
pub struct Leaving {
    /// The packet.
    pub packet: Packet,
    /// Its output, or why it is dropped.
    pub verdict: Verdict,
    /// How it came about.
    pub kind: Kind,
    /// Where between the batch's packets it belongs: before the packet at position *i* is 2 *i*,
    /// behind it 2 *i* + 1. Never less than that of the one before in the list.
    pub at: usize,
}

/// The desk of one µNF.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) shelf: Shelf,
    pub(crate) timers: Timers,
    /// Most packets to hold.
    pub(crate) hold_most: usize,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) leaving: Vec<Leaving>,
}

impl Desk {
    pub(crate) fn leave(&mut self, what: What, verdict: Verdict, cause: &Cause) {
        if let What::Held(id) = what
            && !self.shelf.release(id)
        {
            return;
        }
        self.waiting.push(Waiting { what, verdict, place: cause.place, seq: cause.seq });
    }

    /// The µNF is done with its batch: takes what it holds out of it, and puts what it sent besides
    /// in order.
    #[inline]
    pub(crate) fn settle(&mut self, packets: &[Packet], verdicts: &[Verdict], arena: &Arena) {
        self.shelf.collect(packets, verdicts, arena);
        if !self.waiting.is_empty() {
            self.arrange(packets, arena);
        }
    }

    #[cold]
    fn arrange(&mut self, packets: &[Packet], arena: &Arena) {
        let mut last = 0;
        for waiting in self.waiting.drain(..) {
            let at = match waiting.place {
                Place::Before(i) => 2 * i,
                Place::Behind(buffer) => {
                    // Mostly the same packet as before, or a later one.
                    let here = |p: &Packet| p.entry().index() == buffer;
                    let ahead = packets.iter().skip(last).position(here).map(|i| last + i);
                    let i = ahead.or_else(|| packets.iter().position(here));
                    last = i.unwrap_or(packets.len());
                    2 * last + 1
                }
            };
            let (packet, kind) = match waiting.what {
                What::Made(entry, Origin::Created) => (Some(entry), Kind::Created),
                What::Made(entry, Origin::Copied) => (Some(entry), Kind::Copied),
                What::Held(id) => (self.shelf.take(id).map(Packet::into_entry), Kind::Released),
            };
            let placed = packet.map(|entry| entry.with_seq(waiting.seq));
            if let Some(packet) = placed.and_then(|entry| Packet::admit(entry, arena.view())) {
                self.leaving.push(Leaving { packet, verdict: waiting.verdict, kind, at });
            }
        }
        // Stable: what follows from one packet stays in the order in which it was sent.
        self.leaving.sort_by_key(|l| l.at);
    }
}
