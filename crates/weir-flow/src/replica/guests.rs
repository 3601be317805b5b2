//! Parts that were moved to a replica.

use crate::message::MoveId;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// By part the migration that brought it, and by migration its parts: who says that one is at home is not to have all others looked at.
#[derive(Debug, Clone)]
pub(super) struct Guests<K: Ord> {
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

impl<K: Ord + Clone> Guests<K> {
    pub(super) fn new() -> Self {
        Guests { by_part: BTreeMap::new(), by_move: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_part.len()
    }

    pub(super) fn contains(&self, part: &K) -> bool {
        self.by_part.contains_key(part)
    }

    /// In their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, MoveId)> + Clone {
        self.by_part.iter().map(|(part, by)| (part, *by))
    }

    pub(super) fn insert(&mut self, part: K, by: MoveId) {
        if let Some(before) = self.by_part.insert(part.clone(), by) {
            self.forget(before, &part);
        }
        self.by_move.entry(by).or_default().insert(part);
    }

    pub(super) fn remove(&mut self, part: &K) {
        if let Some(by) = self.by_part.remove(part) {
            self.forget(by, part);
        }
    }

    /// What a migration brought are guests no more.
    pub(super) fn end(&mut self, id: MoveId) {
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
        let mut guests = Self::new();
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
            let (mut guests, mut map) = (Guests::new(), BTreeMap::new());
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
