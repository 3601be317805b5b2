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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_mem::Region;

    fn name(number: u64) -> Name {
        Name { crew: 3, id: Some(MoveId { source: 1, life: 2, number }) }
    }

    /// What a successor finds in that memory, with this batch committed: the shelf, the table, what was whole.
    fn next_life(region: &Region, committed: u64) -> (Shelf, ReplicaTable, Vec<(Name, Vec<u8>)>) {
        let (mut shelf, mut table) = (Shelf::new(), ReplicaTable::attach(region).unwrap());
        table.reopen(committed, |slot, found| {
            found.record().is_some_and(|record| shelf.read(slot, record))
        });
        let found = shelf.found();
        (shelf, table, found)
    }

    fn memory(name: &str) -> (Region, ReplicaTable) {
        let region = Region::create(name, ReplicaTable::LEN).unwrap();
        let table = ReplicaTable::attach(&region).unwrap();
        (region, table)
    }

    #[test]
    fn what_was_committed_is_found_whole_however_long_it_is() {
        let (region, mut table) = memory("shelf/whole");
        let mut shelf = Shelf::new();
        let long: Vec<u8> = (0..3 * RECORD_BYTES).map(|at| (at % 251) as u8).collect();
        shelf.put(&mut table, name(1), b"short", 1).unwrap();
        shelf.put(&mut table, name(2), &long, 1).unwrap();
        let (.., found) = next_life(&region, 1);
        assert_eq!(found, [(name(1), b"short".to_vec()), (name(2), long)]);
    }

    #[test]
    fn what_was_not_committed_takes_nothing_away_from_what_was() {
        let (region, mut table) = memory("shelf/uncommitted");
        let mut shelf = Shelf::new();
        shelf.put(&mut table, name(1), b"old", 1).unwrap();
        shelf.put(&mut table, name(2), b"stays", 1).unwrap();
        // A batch that its worker dies in: one is written anew, one is over, one is new.
        shelf.put(&mut table, name(1), b"new", 2).unwrap();
        shelf.clear(&mut table, name(2), 2);
        shelf.put(&mut table, name(3), b"newer", 2).unwrap();
        let old = vec![(name(1), b"old".to_vec()), (name(2), b"stays".to_vec())];
        let (mut shelf, mut table, found) = next_life(&region, 1);
        assert_eq!(found, old);
        // Its successor, too: what it writes it writes over nothing that counts.
        shelf.put(&mut table, name(4), b"another", 2).unwrap();
        let (.., found) = next_life(&region, 1);
        assert_eq!(found, old);
    }

    #[test]
    fn what_is_over_is_found_no_more_and_leaves_its_room() {
        let (region, mut table) = memory("shelf/room");
        let mut shelf = Shelf::new();
        for batch in 1..=3 * u64::from(SLOTS) {
            shelf.put(&mut table, name(batch), b"one of many", batch).unwrap();
            shelf.clear(&mut table, name(batch), batch);
        }
        assert!(next_life(&region, 3 * u64::from(SLOTS)).2.is_empty());
    }

    #[test]
    fn half_of_something_is_nothing_and_its_slots_are_used_again() {
        let (region, mut table) = memory("shelf/half");
        let mut shelf = Shelf::new();
        let long = vec![7; 2 * RECORD_BYTES];
        shelf.put(&mut table, name(1), &long, 1).unwrap();
        let first = *shelf.slots.get(&name(1)).and_then(|slots| slots.first()).unwrap();
        table.clear(first, 2);
        let (mut shelf, mut table, found) = next_life(&region, 2);
        assert!(found.is_empty());
        shelf.put(&mut table, name(2), b"whole", 3).unwrap();
        let (shelf, _, found) = next_life(&region, 3);
        assert_eq!(found, [(name(2), b"whole".to_vec())]);
        assert_eq!(shelf.free.len(), SLOTS as usize - 1);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_nothing_of_it_stays() {
        let (region, mut table) = memory("shelf/full");
        let mut shelf = Shelf::new();
        shelf.free.truncate(1);
        let long = vec![7; 2 * RECORD_BYTES];
        assert_eq!(shelf.put(&mut table, name(1), &long, 1), Err(PutError::Full));
        shelf.put(&mut table, name(2), b"short", 1).unwrap();
        assert_eq!(next_life(&region, 1).2, [(name(2), b"short".to_vec())]);
    }

    #[test]
    fn a_record_that_is_none_or_comes_twice_is_refused() {
        let mut shelf = Shelf::new();
        let record = |at, of| postcard::to_stdvec(&Head { name: name(1), at, of }).unwrap();
        assert!(!shelf.read(0, &[0xff; 3]));
        assert!(!shelf.read(0, &record(2, 2)), "a part beyond the last");
        assert!(shelf.read(0, &record(0, 1)));
        assert!(!shelf.read(1, &record(0, 1)), "the same part once more");
    }
}
