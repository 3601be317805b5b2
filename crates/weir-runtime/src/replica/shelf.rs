//! What a worker's migrations of flows have to find again after its death: bytes, each with a name, in slots in front of
//! those of the µNFs. What is longer than a record stands in several.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_flow::MoveId;
use weir_mem::{PutError, RECORD_BYTES, ReplicaTable};

/// Slots of all together.
pub(super) const SLOTS: u32 = 1 << 12;
/// Of a record so many bytes say whose it is, at most.
const HEAD: usize = 64;

/// Whose some bytes are: of a worker's crew, of a migration or of all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) crew: u16,
    pub(crate) id: Option<MoveId>,
}

/// Which part of some bytes a record is.
#[derive(Serialize, Deserialize)]
struct Head {
    name: Name,
    at: u32,
    of: u32,
}

/// What was found of some bytes: part, slot, how many parts there are, and the part.
type Found = BTreeMap<u32, (u32, u32, Vec<u8>)>;

/// Which slots are whose.
pub(super) struct Shelf {
    slots: BTreeMap<Name, Vec<u32>>,
    free: Vec<u32>,
    found: BTreeMap<Name, Found>,
    /// Slots whose records are of no use.
    stale: Vec<u32>,
    record: Vec<u8>,
}

impl Shelf {
    pub(super) fn new() -> Self {
        Shelf {
            slots: BTreeMap::new(),
            free: (0..SLOTS).rev().collect(),
            found: BTreeMap::new(),
            stale: Vec::new(),
            record: Vec::new(),
        }
    }

    /// Writes bytes over those of the same name.
    ///
    /// # Errors
    /// When they have no room; then there are none of the name.
    pub(super) fn put(
        &mut self,
        table: &mut ReplicaTable,
        name: Name,
        bytes: &[u8],
        batch: u64,
    ) -> Result<(), PutError> {
        self.clear(table, name, batch);
        let chunks = bytes.chunks(RECORD_BYTES - HEAD);
        let of = chunks.len() as u32;
        for (at, chunk) in (0..).zip(chunks) {
            self.record.clear();
            let head = postcard::to_stdvec(&Head { name, at, of }).unwrap_or_default();
            self.record.extend(head);
            self.record.extend(chunk);
            let slot = self.free.pop().ok_or(PutError::Full);
            let put = slot.and_then(|slot| {
                self.slots.entry(name).or_default().push(slot);
                table.put(slot, &self.record, batch)
            });
            if let Err(e) = put {
                self.clear(table, name, batch);
                return Err(e);
            }
        }
        Ok(())
    }

    /// From the commit of `batch` on there are no bytes of that name.
    pub(super) fn clear(&mut self, table: &mut ReplicaTable, name: Name, batch: u64) {
        let slots = self.slots.remove(&name).unwrap_or_default();
        for slot in slots.into_iter().rev().chain(self.stale.drain(..)) {
            table.clear(slot, batch);
            self.free.push(slot);
        }
    }

    /// Takes in a predecessor's record; false when it is none.
    pub(super) fn read(&mut self, slot: u32, record: &[u8]) -> bool {
        let Ok((Head { name, at, of }, bytes)) = postcard::take_from_bytes(record) else {
            return false;
        };
        let parts = self.found.entry(name).or_default();
        let is_new = at < of && !parts.contains_key(&at);
        if is_new {
            parts.insert(at, (slot, of, bytes.to_vec()));
        }
        is_new
    }

    /// What a predecessor has left, as far as it is whole.
    pub(super) fn found(&mut self) -> Vec<(Name, Vec<u8>)> {
        let mut whole = Vec::new();
        for (name, parts) in std::mem::take(&mut self.found) {
            let count = parts.len() as u32;
            let slots: Vec<u32> = parts.values().map(|(slot, ..)| *slot).collect();
            self.free.retain(|slot| !slots.contains(slot));
            if parts.values().all(|(_, of, _)| *of == count) {
                self.slots.insert(name, slots);
                whole.push((name, parts.into_values().flat_map(|(.., bytes)| bytes).collect()));
            } else {
                self.stale.extend(slots);
            }
        }
        whole
    }
}
