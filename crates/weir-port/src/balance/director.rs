//! The flow director: a balance port whose flows can be moved while they are under way (NFActor §3.4's
//! virtual switch, without an actor for each flow).

use super::{Buckets, BucketsError};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use thiserror::Error;
use weir_packet::{FlowHasher, FlowKey};

/// Why flows are not sent elsewhere; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DirectError {
    /// There is no such instance.
    #[error("there is no instance {0}; there are {1}, counted from 0")]
    NoInstance(u8, usize),
    /// No room for the exceptions.
    #[error(
        "{0} moved flows are remembered, which is the most; move whole buckets, or some flows home"
    )]
    Full(usize),
}

/// Keys are hashes already, under a secret seed.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Sends each flow to the instance of its bucket, but for those that were moved. It learns no flow: what it
/// remembers is what was moved one by one, at most as many keys as it was made for; whole buckets cost nothing.
///
/// Both directions of a flow have one key, so they move together. A flow that is known by several keys (its own and a
/// translated one) is moved with all of them. Moving here is only where packets go from now on: that no
/// packet is lost or overtaken meanwhile is the protocol's business (`weir-flow`).
#[derive(Debug)]
pub struct FlowDirector {
    buckets: Buckets,
    instances: usize,
    hasher: FlowHasher,
    exceptions: HashMap<u64, u8, BuildHasherDefault<AsItIs>>,
    most: usize,
}

impl FlowDirector {
    /// Over as many instances as there are weights, with room for `most` keys that do not go where their buckets go; the memory is
    /// taken now. Directors with equal seeds have the same buckets: those of one NF must.
    ///
    /// # Errors
    /// As [`Buckets::new`].
    pub fn new(weights: &[u32], seed: u128, most: usize) -> Result<Self, BucketsError> {
        Ok(Self::over(Buckets::new(weights)?, weights.len(), seed, most))
    }

    /// The same, where buckets are as these, of so many instances.
    #[must_use]
    pub fn over(buckets: Buckets, instances: usize, seed: u128, most: usize) -> Self {
        FlowDirector {
            buckets,
            instances,
            hasher: FlowHasher::new(seed),
            exceptions: HashMap::with_capacity_and_hasher(most, BuildHasherDefault::default()),
            most,
        }
    }

    /// Begins anew, with buckets where these are and without an exception.
    pub fn begin_at(&mut self, buckets: &Buckets) {
        self.buckets.clone_from(buckets);
        self.exceptions.clear();
    }

    /// The instance that a flow's packets go to.
    #[inline]
    #[must_use]
    pub fn instance(&self, key: &FlowKey) -> u8 {
        self.at(self.hasher.place(key))
    }

    /// The same, of a packet's hash under the director's seed: of its flow, or whatever it has instead of one.
    #[inline]
    #[must_use]
    pub fn at(&self, hash: u64) -> u8 {
        if !self.exceptions.is_empty()
            && let Some(moved) = self.exceptions.get(&hash)
        {
            return *moved;
        }
        self.buckets.instance(hash)
    }

    /// The instance of a bucket.
    #[inline]
    #[must_use]
    pub fn of_bucket(&self, bucket: u16) -> u8 {
        self.buckets.at(bucket)
    }

    /// From now on packets with this hash go to an instance, whatever their bucket's. For whoever has hashes
    /// only, and sees to the bounds himself.
    ///
    /// # Errors
    /// When there is no such instance.
    pub fn divert(&mut self, hash: u64, to: u8) -> Result<(), DirectError> {
        self.check(to)?;
        self.exceptions.insert(hash, to);
        Ok(())
    }

    /// Takes back [`FlowDirector::divert`].
    pub fn undivert(&mut self, hash: u64) {
        self.exceptions.remove(&hash);
    }

    /// From now on a bucket goes to an instance; exceptions stay, also those that lead there.
    ///
    /// # Errors
    /// When there is no such instance.
    pub fn set_bucket(&mut self, bucket: u16, to: u8) -> Result<(), DirectError> {
        self.check(to)?;
        self.buckets.set(bucket, to);
        Ok(())
    }

    /// The bucket of a flow.
    #[inline]
    #[must_use]
    pub fn bucket(&self, key: &FlowKey) -> u16 {
        Buckets::bucket(self.hasher.place(key))
    }

    /// The instance of a flow's bucket: where it goes unless it was moved alone.
    #[inline]
    #[must_use]
    pub fn home(&self, key: &FlowKey) -> u8 {
        self.buckets.instance(self.hasher.place(key))
    }

    /// From now on packets with these keys go to an instance; one that goes to its bucket's is an exception no
    /// more. All keys of a flow, or of many flows, at once: all of them or none.
    ///
    /// # Errors
    /// When there is no such instance, or no room.
    pub fn move_flows<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k FlowKey> + Clone,
        to: u8,
    ) -> Result<(), DirectError> {
        self.check(to)?;
        let hashes = keys.map(|key| self.hasher.place(key));
        let away = |hash: &u64| self.buckets.instance(*hash) != to;
        let is_new = |hash: &u64| away(hash) && !self.exceptions.contains_key(hash);
        let new: HashSet<u64> = hashes.clone().filter(is_new).collect();
        let home = |hash: &u64| !away(hash) && self.exceptions.contains_key(hash);
        let freed: HashSet<u64> = hashes.clone().filter(home).collect();
        if self.exceptions.len() + new.len() > self.most + freed.len() {
            return Err(DirectError::Full(self.most));
        }
        let hashes: Vec<u64> = hashes.collect();
        // Those that come home first: they make room for the others.
        for hash in freed {
            self.exceptions.remove(&hash);
        }
        for hash in hashes {
            if self.buckets.instance(hash) != to {
                self.exceptions.insert(hash, to);
            }
        }
        Ok(())
    }

    /// From now on packets with a key go where its bucket goes.
    pub fn move_home(&mut self, key: &FlowKey) {
        self.exceptions.remove(&self.hasher.place(key));
    }

    /// From now on whole buckets go to an instance; flows that were moved alone stay where they are.
    ///
    /// # Errors
    /// When there is no such instance.
    pub fn move_buckets(&mut self, buckets: &[u16], to: u8) -> Result<(), DirectError> {
        self.check(to)?;
        for bucket in buckets {
            self.buckets.set(*bucket, to);
        }
        let buckets = &self.buckets;
        self.exceptions.retain(|hash, instance| buckets.instance(*hash) != *instance);
        Ok(())
    }

    /// `count` buckets of an instance, or all that it has when those are fewer: a share of its flows, in
    /// proportion, to be moved elsewhere.
    #[must_use]
    pub fn share(&self, from: u8, count: usize) -> Vec<u16> {
        (0..=u16::MAX).filter(|bucket| self.buckets.at(*bucket) == from).take(count).collect()
    }

    /// The buckets that have to move for new weights, which are the fewest, with where they are and where they go.
    /// Nothing changes: each is to be moved by its own migration.
    ///
    /// # Errors
    /// As [`Buckets::reweigh`].
    pub fn moves_for(&self, weights: &[u32]) -> Result<Vec<(u16, u8, u8)>, BucketsError> {
        let mut then = self.buckets.clone();
        then.reweigh(weights)?;
        let all = (0..=u16::MAX).map(|b| (b, self.buckets.at(b), then.at(b)));
        Ok(all.filter(|(_, from, to)| from != to).collect())
    }

    /// Another number of instances. A new one has no buckets until some are moved to it.
    pub fn set_instances(&mut self, instances: u8) {
        self.instances = instances.into();
    }

    /// Keys that do not go where their buckets go.
    #[must_use]
    pub fn exceptions(&self) -> usize {
        self.exceptions.len()
    }

    /// An instance is gone: what was moved to it goes where its buckets go. Its own buckets are
    /// to be moved ([`FlowDirector::share`]).
    pub fn gone(&mut self, instance: u8) {
        self.exceptions.retain(|_, to| *to != instance);
    }

    fn check(&self, to: u8) -> Result<(), DirectError> {
        match usize::from(to) < self.instances {
            true => Ok(()),
            false => Err(DirectError::NoInstance(to, self.instances)),
        }
    }
}
