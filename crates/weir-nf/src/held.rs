//! Packets that a µNF keeps for later.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use weir_mem::Entry;
use weir_packet::{Packet, Verdict};

/// A packet that a µNF keeps, by [`Ctx::hold`](crate::Ctx::hold): to be released or dropped later.
/// Move-only, so it cannot be released twice. It may stand in flow or shared state, but packets do
/// not survive their worker: written down and read back, it stands for nothing, and what it stood
/// for is counted as lost.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a held packet that is forgotten stays until the end of the input"]
pub struct Held(pub(crate) u64);

impl Default for Held {
    /// A handle that stands for no packet.
    fn default() -> Self {
        Held(u64::MAX)
    }
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // A byte, though it says nothing: a list of handles must not be longer than what it is read from.
        to.serialize_u8(0)
    }
}

impl<'d> Deserialize<'d> for Held {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        u8::deserialize(from)?;
        Ok(Held::default())
    }
}

enum Kept {
    /// Of the batch that is being processed: the packet itself is still there.
    Marked(Entry),
    /// Ours.
    Packet(Packet),
}

/// The packets that one µNF keeps, in the order in which it took them.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: BTreeMap<u64, Kept>,
    /// Released, and about to leave when the batch is done.
    released: BTreeMap<u64, Kept>,
    next: u64,
    /// Some are marked only.
    marked: bool,
}

impl Shelf {
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Appends the buffers of what is kept.
    pub(crate) fn buffers(&self, buffers: &mut Vec<u32>) {
        buffers.extend(self.kept.values().map(|kept| match kept {
            Kept::Marked(entry) => entry.index(),
            Kept::Packet(packet) => packet.entry().index(),
        }));
    }

    /// Notes that the packet in `entry` is to be kept.
    pub(crate) fn mark(&mut self, entry: Entry) -> Held {
        let id = self.next;
        self.next += 1;
        self.marked = true;
        self.kept.insert(id, Kept::Marked(entry));
        Held(id)
    }

    /// Takes what was marked and still is, out of the batch that was processed. From here on the
    /// shelf holds the packet: whoever has the batch must forget those with the verdict
    /// [`Verdict::HELD`].
    pub(crate) fn collect(
        &mut self,
        packets: &[Packet],
        verdicts: &[Verdict],
        arena: &weir_mem::Arena,
    ) {
        if !std::mem::take(&mut self.marked) {
            return;
        }
        let held = |entry: &Entry| {
            let mut both = packets.iter().zip(verdicts);
            both.any(|(p, v)| *v == Verdict::HELD && p.entry().index() == entry.index())
        };
        let still = |_: &u64, kept: &mut Kept| match kept {
            Kept::Marked(entry) if held(entry) => match Packet::admit(*entry, arena.view()) {
                Some(packet) => {
                    *kept = Kept::Packet(packet);
                    true
                }
                None => false,
            },
            // The µNF judged it otherwise in a second look at its batch.
            Kept::Marked(_) => false,
            Kept::Packet(_) => true,
        };
        self.kept.retain(still);
        self.released.retain(still);
    }

    /// A packet is to leave: its place is free. False for a handle that stands for none.
    pub(crate) fn release(&mut self, id: u64) -> bool {
        let kept = self.kept.remove(&id);
        let is_there = kept.is_some();
        self.released.extend(kept.map(|kept| (id, kept)));
        is_there
    }

    /// Looks at a packet.
    pub(crate) fn entry(&self, held: &Held) -> Option<Entry> {
        Some(match self.kept.get(&held.0)? {
            Kept::Marked(entry) => *entry,
            Kept::Packet(packet) => *packet.entry(),
        })
    }

    /// Takes a released packet; `None` when it was judged otherwise meanwhile.
    pub(crate) fn take(&mut self, id: u64) -> Option<Packet> {
        match self.released.remove(&id)? {
            Kept::Packet(packet) => Some(packet),
            Kept::Marked(_) => None,
        }
    }

    /// Handles of all, the oldest first.
    pub(crate) fn all(&self) -> Vec<Held> {
        self.kept.keys().map(|&id| Held(id)).collect()
    }
}
