//! Flows that were moved to an instance one by one, by the hash of a key.

use std::collections::{BTreeMap, BTreeSet};
use weir_flow::{Guests, MoveId};

/// Hashes of flows that some director may send here for no other reason than that they were moved here. They are more than the protocol's
/// guests: those end as soon as one director says that they are at home.
#[derive(Default)]
pub(super) struct Visitors {
    guests: Guests<u64>,
    /// By migration the directors that have not said that all it brought goes here as its buckets do.
    unsaid: BTreeMap<MoveId, BTreeSet<u16>>,
}

/// Stands for a migration of which is not known which it was. Their numbers begin with 1.
const UNKNOWN: MoveId = MoveId { source: u16::MAX, life: u32::MAX, number: 0 };

impl Visitors {
    pub(super) fn len(&self) -> usize {
        self.guests.len()
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.guests.contains(&hash)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.guests.iter().map(|(hash, _)| *hash)
    }

    /// Those of one bucket of the flow hash.
    pub(super) fn of_bucket(&self, bucket: u16) -> impl Iterator<Item = u64> {
        let first = u64::from(bucket) << 48;
        self.guests.range(first..=first | (u64::MAX >> 16)).copied()
    }

    /// One of which is not known how it came.
    pub(super) fn insert(&mut self, hash: u64) {
        self.put(hash, UNKNOWN);
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some(by) = self.guests.remove(&hash)
            && !self.guests.has_of(by)
        {
            self.unsaid.remove(&by);
        }
    }

    /// One that a migration has brought; so many directors sent it elsewhere before.
    pub(super) fn come(&mut self, id: MoveId, hash: u64, directors: u16) {
        self.put(hash, id);
        // Also of one that comes once more, as its source died before it heard that it had come: directors send what it brings here anew.
        self.unsaid.insert(id, (0..directors).collect());
    }

    fn put(&mut self, hash: u64, by: MoveId) {
        self.remove(hash);
        self.guests.insert(hash, by);
    }

    /// A director says that what a migration brought goes here as its buckets do. When all have said so they are none any more: they go
    /// wherever their buckets go. (Of what came to an earlier life, or another generation, none says it to who has heard it from none.)
    pub(super) fn at_home(&mut self, id: MoveId, director: u16) {
        let Some(unsaid) = self.unsaid.get_mut(&id) else { return };
        unsaid.remove(&director);
        if unsaid.is_empty() {
            self.unsaid.remove(&id);
            self.guests.end(id);
        }
    }
}

impl FromIterator<u64> for Visitors {
    fn from_iter<I: IntoIterator<Item = u64>>(all: I) -> Self {
        let guests = all.into_iter().map(|hash| (hash, UNKNOWN)).collect();
        Visitors { guests, unsaid: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> MoveId {
        MoveId { source: 1, life: 0, number }
    }

    #[test]
    fn they_are_visitors_until_all_directors_say_that_they_are_at_home() {
        let mut visitors: Visitors = [1, 2].into_iter().collect();
        [3, 4, 7 << 48 | 5].into_iter().for_each(|hash| visitors.come(id(1), hash, 2));
        visitors.at_home(id(1), 0);
        visitors.at_home(id(1), 0);
        assert_eq!(visitors.of_bucket(7).collect::<Vec<_>>(), [7 << 48 | 5]);
        // One has gone and come again.
        visitors.remove(3);
        visitors.come(id(2), 3, 2);
        visitors.at_home(id(1), 1);
        assert_eq!(visitors.iter().collect::<Vec<_>>(), [1, 2, 3]);
        visitors.at_home(id(2), 1);
        visitors.at_home(id(2), 0);
        assert_eq!(visitors.iter().collect::<Vec<_>>(), [1, 2]);
        assert!(visitors.unsaid.is_empty());
    }

    #[test]
    fn what_comes_once_more_by_the_same_migration_is_here_until_all_directors_have_said_so_anew() {
        let mut visitors = Visitors::default();
        let come = |visitors: &mut Visitors| [3, 4].map(|hash| visitors.come(id(1), hash, 2));
        come(&mut visitors);
        visitors.at_home(id(1), 0);
        come(&mut visitors);
        visitors.at_home(id(1), 1);
        assert_eq!(visitors.iter().collect::<Vec<_>>(), [3, 4]);
        visitors.at_home(id(1), 0);
        assert_eq!(visitors.len(), 0);
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing() {
        let mut visitors = Visitors::default();
        for number in 1..1000 {
            visitors.come(id(number), number % 7, 1);
            visitors.come(id(number), 8, 1);
            visitors.remove(number % 7);
        }
        // The last one is of the last migration, and those before it of none.
        assert_eq!(visitors.unsaid.keys().copied().collect::<Vec<_>>(), [id(999)]);
        visitors.insert(8);
        assert_eq!((visitors.unsaid.len(), visitors.len()), (0, 1));
    }
}
