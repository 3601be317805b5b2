//! Which instance each bucket of the flow hash belongs to.

use thiserror::Error;

/// Number of buckets: a power of two, so that they can be those of a NIC's redirection table (RSS) later, and
/// enough that a share of a hundredth is kept to within two thousandths of itself.
pub const BUCKETS: usize = 1 << 16;

/// The most instances of one balance port.
pub const MOST_INSTANCES: usize = 64;

/// Bytes of a run of buckets in what is written down: its instance, and how many follow the first.
const RUN: usize = 3;

/// Why there is no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// Too many instances.
    #[error("{0} instances; at most {MOST_INSTANCES} can share the packets of an NF")]
    TooMany(usize),
    /// What was written down is no such table.
    #[error(
        "a table of {0} buckets, or of instances that there are not, is none; there are {BUCKETS}"
    )]
    Damaged(usize),
    /// Nobody would get packets.
    #[error("no instance has a weight above 0; give one to at least one of them")]
    NoWeight,
}

/// The instance of each bucket. Each instance has its weight's share of the buckets, to within one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    instances: Box<[u8]>,
}

impl Buckets {
    /// By the instances' weights. A weight of 0 is an instance that gets nothing new.
    ///
    /// # Errors
    /// When there are more than [`MOST_INSTANCES`], or all weights are 0.
    pub fn new(weights: &[u32]) -> Result<Self, BucketsError> {
        // Nobody's, to begin with: all are given out as those of an instance that has gone.
        let mut buckets = Buckets { instances: vec![u8::MAX; BUCKETS].into_boxed_slice() };
        buckets.reweigh(weights)?;
        Ok(buckets)
    }

    /// The table in which each bucket has this instance, of so many.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn of(table: Vec<u8>, instances: usize) -> Result<Self, BucketsError> {
        let highest = table.iter().max().copied().unwrap_or(u8::MAX);
        match table.len() == BUCKETS && usize::from(highest) < instances {
            true => Ok(Buckets { instances: table.into_boxed_slice() }),
            false => Err(BucketsError::Damaged(table.len())),
        }
    }

    /// Reads what [`Buckets::save`] wrote, of so many instances.
    ///
    /// # Errors
    /// When it is no such table.
    pub fn restore(saved: &[u8], instances: usize) -> Result<Self, BucketsError> {
        if saved.len() == BUCKETS {
            return Self::of(saved.to_vec(), instances);
        }
        let (runs, []) = saved.as_chunks::<RUN>() else {
            return Err(BucketsError::Damaged(saved.len()));
        };
        let mut table = Vec::with_capacity(BUCKETS);
        for [instance, low, high] in runs {
            let longer = table.len() + usize::from(u16::from_le_bytes([*low, *high])) + 1;
            table.resize(longer.min(BUCKETS + 1), *instance);
        }
        Self::of(table, instances)
    }

    /// The instance of each bucket, in order.
    pub fn instances(&self) -> impl Iterator<Item = u8> {
        self.instances.iter().copied()
    }

    /// Writes down which instance each bucket has: mostly few bytes, as many have the same as the one before them.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        for run in self.instances.chunk_by(|a, b| a == b) {
            let (Some(instance), Ok(more)) = (run.first(), u16::try_from(run.len() - 1)) else {
                continue;
            };
            saved.push(*instance);
            saved.extend(more.to_le_bytes());
            // Then the table itself is shorter; runs never have just as many bytes as it.
            if saved.len() >= BUCKETS {
                return self.instances.to_vec();
            }
        }
        saved
    }

    /// The instance that a hash belongs to.
    #[inline]
    #[must_use]
    pub fn instance(&self, hash: u64) -> u8 {
        self.at(Self::bucket(hash))
    }

    /// The bucket of a hash.
    #[inline]
    #[must_use]
    pub fn bucket(hash: u64) -> u16 {
        // The upper bits, so that tables which use the lower ones spread well inside an instance.
        (hash >> 48) as u16
    }

    /// Gives a bucket to an instance, whatever its weight.
    pub(super) fn set(&mut self, bucket: u16, instance: u8) {
        if let Some(slot) = self.instances.get_mut(usize::from(bucket)) {
            *slot = instance;
        }
    }

    /// The instance of a bucket.
    #[inline]
    #[must_use]
    pub fn at(&self, bucket: u16) -> u8 {
        self.instances.get(usize::from(bucket)).copied().unwrap_or(0)
    }

    /// Changes weights, and with them the number of instances. Gives how many buckets moved, which is the
    /// fewest by which the new shares can be had: from n instances to n + 1 of equal weight, one
    /// in n + 1, and all of them to the new one.
    ///
    /// # Errors
    /// As [`Buckets::new`]; nothing has changed then.
    pub fn reweigh(&mut self, weights: &[u32]) -> Result<usize, BucketsError> {
        let mut left = shares(weights)?;
        // A bucket stays where it is while its instance has room for it.
        let mut homeless = Vec::new();
        for (bucket, instance) in self.instances.iter().enumerate() {
            match left.get_mut(usize::from(*instance)) {
                Some(left) if *left > 0 => *left -= 1,
                _ => homeless.push(bucket),
            }
        }
        let moved = homeless.len();
        let mut homeless = homeless.into_iter();
        for (instance, left) in (0..).zip(left) {
            for bucket in homeless.by_ref().take(left) {
                if let Some(slot) = self.instances.get_mut(bucket) {
                    *slot = instance;
                }
            }
        }
        Ok(moved)
    }
}

/// How many buckets each weight is worth: rounded down, and what is left to the largest remainders
/// (Hamilton's method), of equal ones to the first.
fn shares(weights: &[u32]) -> Result<Vec<usize>, BucketsError> {
    if weights.len() > MOST_INSTANCES {
        return Err(BucketsError::TooMany(weights.len()));
    }
    let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
    if sum == 0 {
        return Err(BucketsError::NoWeight);
    }
    let exact = |weight: &u32| u64::from(*weight) * BUCKETS as u64;
    let mut shares: Vec<usize> = weights.iter().map(|w| (exact(w) / sum) as usize).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|i| std::cmp::Reverse(weights.get(*i).map_or(0, |w| exact(w) % sum)));
    let rest = BUCKETS - shares.iter().sum::<usize>();
    for instance in by_remainder.into_iter().take(rest) {
        if let Some(share) = shares.get_mut(instance) {
            *share += 1;
        }
    }
    Ok(shares)
}

#[cfg(all(test, not(loom)))]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(buckets: &Buckets) -> Vec<usize> {
        let mut counts = vec![0; MOST_INSTANCES];
        (0..=u16::MAX).for_each(|b| counts[usize::from(buckets.at(b))] += 1);
        counts
    }

    fn weights() -> impl Strategy<Value = Vec<u32>> {
        let weight = prop_oneof![Just(0), 1..10_u32, any::<u32>()];
        prop::collection::vec(weight, 1..=MOST_INSTANCES)
            .prop_filter("somebody must take packets", |w| w.iter().any(|w| *w > 0))
    }

    #[test]
    fn one_more_instance_takes_its_share_and_moves_nothing_else() {
        for n in 1..MOST_INSTANCES {
            let old = Buckets::new(&vec![1; n]).unwrap();
            let mut new = old.clone();
            let moved = new.reweigh(&vec![1; n + 1]).unwrap();
            assert!(moved.abs_diff(BUCKETS / (n + 1)) <= 1, "{n}: {moved}");
            for b in 0..=u16::MAX {
                let to = new.at(b);
                assert!(to == old.at(b) || usize::from(to) == n);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        assert_eq!(Buckets::new(&[]), Err(BucketsError::NoWeight));
        let old = Buckets::new(&[1, 2]).unwrap();
        let mut new = old.clone();
        assert_eq!(new.reweigh(&[0, 0]), Err(BucketsError::NoWeight));
        assert_eq!(new.reweigh(&[1; 65]), Err(BucketsError::TooMany(65)));
        assert_eq!(new, old);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every instance has its share to within one bucket, and no more move than have to.
        #[test]
        fn what_is_written_down_is_read_back(of in 1..=MOST_INSTANCES, length in 1..5_usize, seed: u64) {
            // In runs of about that length, and one by one.
            let mut state = seed | 1;
            let mut table = Vec::new();
            while table.len() < BUCKETS {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let run = 1 + (state >> 40) as usize % length.pow(6);
                table.resize((table.len() + run).min(BUCKETS), (state >> 33) as u8 % of as u8);
            }
            let buckets = Buckets::of(table, of).unwrap();
            let saved = buckets.save();
            prop_assert!(saved.len() <= BUCKETS);
            prop_assert_eq!(Buckets::restore(&saved, of), Ok(buckets));
        }

        #[test]
        fn what_is_damaged_is_no_table(saved in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(buckets) = Buckets::restore(&saved, 3) {
                prop_assert!((0..=u16::MAX).all(|bucket| buckets.at(bucket) < 3));
            }
        }

        #[test]
        fn shares_follow_weights_and_few_buckets_move(first in weights(), second in weights()) {
            let mut buckets = Buckets::new(&first).unwrap();
            for weights in [&first, &second] {
                let old = counts(&buckets);
                let before = buckets.clone();
                let moved = buckets.reweigh(weights).unwrap();
                let now = counts(&buckets);
                let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
                for (i, count) in now.iter().enumerate() {
                    let weight = weights.get(i).map_or(0.0, |w| f64::from(*w));
                    let share = weight / sum * BUCKETS as f64;
                    prop_assert!((*count as f64 - share).abs() <= 1.0);
                    prop_assert!(weight > 0.0 || *count == 0);
                }
                let gained: usize = now.iter().zip(&old).map(|(n, o)| n.saturating_sub(*o)).sum();
                let differ = (0..=u16::MAX).filter(|b| before.at(*b) != buckets.at(*b)).count();
                prop_assert_eq!((moved, differ), (gained, gained));
            }
        }
    }
}
