//! Parts that were moved to a replica.

use crate::MoveId;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::RangeBounds;

/// By part the migration that brought it, and by migration its parts: who says that one is at home is not to have all others looked at.
#[derive(Debug, Clone)]
pub struct Guests<K: Ord> {
    by_part: BTreeMap<K, MoveId>,
    by_move: BTreeMap<MoveId, BTreeSet<K>>,
}

// By move they follow from what they are by part.
impl<K: Ord> PartialEq for Guests<K> {
    fn eq(&self, other: &Self) -> bool {
        self.by_part == other.by_part
    }
}

impl<K: Ord> Eq for Guests<K> {}

impl<K: Ord + Hash> Hash for Guests<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.by_part.hash(state);
    }
}

impl<K: Ord> Default for Guests<K> {
    fn default() -> Self {
        Guests { by_part: BTreeMap::new(), by_move: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Guests<K> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_part.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_part.is_empty()
    }

    /// True for one that is there.
    #[must_use]
    pub fn contains(&self, part: &K) -> bool {
        self.by_part.contains_key(part)
    }

    /// True while some are there that this migration brought.
    #[must_use]
    pub fn has_of(&self, id: MoveId) -> bool {
        self.by_move.contains_key(&id)
    }

    /// Those in this range, in their order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = &K> {
        self.by_part.range(range).map(|(part, _)| part)
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, MoveId)> + Clone {
        self.by_part.iter().map(|(part, by)| (part, *by))
    }

    /// One that a migration has brought; if it was there, by that one from now on.
    pub fn insert(&mut self, part: K, by: MoveId) {
        if let Some(before) = self.by_part.insert(part.clone(), by) {
            self.forget(before, &part);
        }
        self.by_move.entry(by).or_default().insert(part);
    }

    /// One is there no more: the migration that had brought it.
    pub fn remove(&mut self, part: &K) -> Option<MoveId> {
        let by = self.by_part.remove(part)?;
        self.forget(by, part);
        Some(by)
    }

    /// What a migration brought are guests no more.
    pub fn end(&mut self, id: MoveId) {
        for part in self.by_move.remove(&id).unwrap_or_default() {
            self.by_part.remove(&part);
        }
    }

    fn forget(&mut self, by: MoveId, part: &K) {
        if let Some(parts) = self.by_move.get_mut(&by) {
            parts.remove(part);
            if parts.is_empty() {
                self.by_move.remove(&by);
            }
        }
    }
}

impl<K: Ord + Clone> FromIterator<(K, MoveId)> for Guests<K> {
    fn from_iter<I: IntoIterator<Item = (K, MoveId)>>(all: I) -> Self {
        let mut guests = Self::default();
        all.into_iter().for_each(|(part, by)| guests.insert(part, by));
        guests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_those_that_one_map_has_in_which_all_are_looked_at(
            acts in prop::collection::vec((0..3_u8, 0..6_u8, 0..4_u64), 0..60)
        ) {
            let (mut guests, mut map) = (Guests::default(), BTreeMap::new());
            for (act, part, number) in acts {
                let id = MoveId { source: 1, life: 0, number };
                match act {
                    0 => {
                        guests.insert(part, id);
                        map.insert(part, id);
                    }
                    1 => {
                        guests.remove(&part);
                        map.remove(&part);
                    }
                    _ => {
                        guests.end(id);
                        map.retain(|_, by| *by != id);
                    }
                }
                let all: Vec<_> = guests.iter().map(|(part, by)| (*part, by)).collect();
                prop_assert_eq!(&all, &map.clone().into_iter().collect::<Vec<_>>());
                let mut by_move: Vec<_> = guests.by_move.iter()
                    .flat_map(|(by, parts)| parts.iter().map(|part| (*part, *by))).collect();
                by_move.sort_unstable();
                prop_assert_eq!(all, by_move);
                prop_assert!(guests.by_move.values().all(|parts| !parts.is_empty()));
            }
        }
    }
}
