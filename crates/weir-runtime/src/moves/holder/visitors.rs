//! Flows that were moved to an instance one by one, by the hash of a key.

use std::collections::{BTreeMap, BTreeSet};
use weir_flow::MoveId;

/// What migrations have brought may be so much more than what is still here before their lists are tidied.
const SLACK: usize = 4096;

/// Hashes of flows that some director may send here for no other reason than that they were moved here, each with the migration that brought
/// it, as far as that is known.
#[derive(Default)]
pub(super) struct Visitors {
    by: BTreeMap<u64, Option<MoveId>>,
    brought: BTreeMap<MoveId, Brought>,
    /// Hashes in `brought`.
    listed: usize,
}

/// What one migration has brought.
struct Brought {
    hashes: Vec<u64>,
    /// Directors that have not said that all of it goes here as its buckets do.
    unsaid: BTreeSet<u16>,
}

impl Visitors {
    pub(super) fn len(&self) -> usize {
        self.by.len()
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.by.contains_key(&hash)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.by.keys().copied()
    }

    /// Those of one bucket of the flow hash.
    pub(super) fn of_bucket(&self, bucket: u16) -> impl Iterator<Item = u64> {
        let first = u64::from(bucket) << 48;
        self.by.range(first..=first | (u64::MAX >> 16)).map(|(hash, _)| *hash)
    }

    /// One of which is not known how it came.
    pub(super) fn insert(&mut self, hash: u64) {
        self.by.insert(hash, None);
    }

    pub(super) fn remove(&mut self, hash: u64) {
        self.by.remove(&hash);
    }

    /// A migration has brought these; so many directors sent them elsewhere before.
    pub(super) fn come(&mut self, id: MoveId, hashes: Vec<u64>, directors: u16) {
        if hashes.is_empty() {
            return;
        }
        self.by.extend(hashes.iter().map(|hash| (*hash, Some(id))));
        self.listed += hashes.len();
        self.brought.insert(id, Brought { hashes, unsaid: (0..directors).collect() });
        if self.listed > 2 * self.by.len() + SLACK {
            self.tidy();
        }
    }

    /// A director says that what a migration brought goes here as its buckets do. When all have said so they are none any more: they go
    /// wherever their buckets go. (Of what came to an earlier life, or another generation, none says it to who has heard it from none.)
    pub(super) fn at_home(&mut self, id: MoveId, director: u16) {
        let Some(brought) = self.brought.get_mut(&id) else { return };
        brought.unsaid.remove(&director);
        if !brought.unsaid.is_empty() {
            return;
        }
        let hashes = self.brought.remove(&id).map(|brought| brought.hashes).unwrap_or_default();
        self.listed -= hashes.len();
        for hash in hashes {
            // What has gone and come again meanwhile another migration has brought.
            if self.by.get(&hash) == Some(&Some(id)) {
                self.by.remove(&hash);
            }
        }
    }

    /// Forgets of migrations what has gone since.
    fn tidy(&mut self) {
        let by = &self.by;
        self.brought.retain(|id, brought| {
            brought.hashes.retain(|hash| by.get(hash) == Some(&Some(*id)));
            !brought.hashes.is_empty()
        });
        self.listed = self.brought.values().map(|brought| brought.hashes.len()).sum();
    }
}

impl FromIterator<u64> for Visitors {
    fn from_iter<I: IntoIterator<Item = u64>>(all: I) -> Self {
        Visitors { by: all.into_iter().map(|hash| (hash, None)).collect(), ..Self::default() }
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
        visitors.come(id(1), vec![3, 4, 7 << 48 | 5], 2);
        visitors.at_home(id(1), 0);
        visitors.at_home(id(1), 0);
        assert_eq!(visitors.of_bucket(7).collect::<Vec<_>>(), [7 << 48 | 5]);
        // One has gone and come again.
        visitors.remove(3);
        visitors.come(id(2), vec![3], 2);
        visitors.at_home(id(1), 1);
        assert_eq!(visitors.iter().collect::<Vec<_>>(), [1, 2, 3]);
        visitors.at_home(id(2), 1);
        visitors.at_home(id(2), 0);
        assert_eq!(visitors.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!((visitors.listed, visitors.brought.len()), (0, 0));
    }

    #[test]
    fn what_comes_and_goes_for_ever_leaves_nothing() {
        let mut visitors = Visitors::default();
        for number in 0..100_000 {
            visitors.come(id(number), vec![number % 7], 1);
            visitors.remove(number % 7);
        }
        assert_eq!(visitors.len(), 0);
        assert!(visitors.listed <= SLACK + 1 && visitors.brought.len() <= SLACK + 1);
    }
}
