//! Which flows of a µNF are of which bucket, for as long as buckets move.
//!
//! A table finds flows by their keys, not by their buckets. So before the first of an order's buckets goes, all flows are looked at once, in steps
//! between batches; what begins from then on is added. What a bucket has is found at once then, however many others there are.

use super::table::Taken;
use crate::moves::Part;
use crate::moves::look::LOOK;
use std::collections::BTreeSet;
use weir_nf::{FlowSeen, Instance, SaveError, Take, Walk};
use weir_port::balance::{BUCKETS, Buckets, Placer};

/// So many times as many entries as there were when all had been looked at (and buckets), at most: the rest is of flows that have ended.
const MOST_ENDED: usize = 4;

/// Flows of a µNF by bucket, each under the bucket of each of its keys. Some may have ended, so what is found is looked at again.
pub(super) struct Sorted {
    placer: Placer,
    /// By bucket: its first entry, one too high; 0 for none.
    heads: Vec<u32>,
    /// Flows' numbers, each with the next entry of its bucket.
    entries: Vec<(u32, u32)>,
    /// Until all flows that were there have been looked at.
    walk: Option<Walk>,
    /// Entries there were then.
    whole: usize,
    /// Some flow has keys that are of several parts.
    several: bool,
}

impl Sorted {
    pub(super) fn new(placer: Placer, nf: &mut dyn Instance) -> Self {
        nf.watch_flows(true);
        Sorted {
            placer,
            heads: vec![0; BUCKETS],
            entries: Vec::new(),
            walk: Some(Walk::default()),
            whole: 0,
            several: false,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.walk.is_none()
    }

    /// Adds what has begun, and goes on by a step if it `may_look`.
    pub(super) fn go_on(&mut self, nf: &mut dyn Instance, may_look: bool) {
        if self.walk.is_none() && self.entries.len() > MOST_ENDED * (self.whole + BUCKETS) {
            // Nearly all of them have ended: begins again.
            self.heads.fill(0);
            self.entries.clear();
            self.walk = Some(Walk::default());
        }
        for number in nf.new_flows() {
            nf.look_at_flows(&mut Walk::at(number), 1, &mut |seen| self.add(seen));
        }
        if let Some(mut walk) = self.walk.take_if(|_| may_look) {
            match nf.look_at_flows(&mut walk, LOOK, &mut |seen| self.add(seen)) {
                true => self.walk = Some(walk),
                false => self.whole = self.entries.len(),
            }
        }
    }

    fn add(&mut self, seen: FlowSeen<'_>) {
        let mut first = None;
        for (key, start) in seen.keys.iter().zip(seen.starts) {
            let hash = self.placer.hash(key, *start);
            self.several |= *first.get_or_insert(hash) != hash;
            let bucket = Buckets::bucket(hash);
            let Some(head) = self.heads.get_mut(usize::from(bucket)) else { continue };
            let Ok(at) = u32::try_from(self.entries.len() + 1) else { return };
            self.entries.push((seen.number, std::mem::replace(head, at)));
        }
    }

    fn of(&self, bucket: u16) -> impl Iterator<Item = u32> {
        let mut at = self.heads.get(usize::from(bucket)).copied().unwrap_or(0);
        std::iter::from_fn(move || {
            let (number, next) = *self.entries.get(at.checked_sub(1)? as usize)?;
            at = next;
            Some(number)
        })
    }

    /// True when it has seen a flow whose keys are not all of one part.
    pub(super) fn has_several(&self) -> bool {
        self.several
    }

    /// True when some flow that is there has a key of this hash.
    pub(super) fn has(&self, nf: &dyn Instance, hash: u64) -> bool {
        self.of(Buckets::bucket(hash)).any(|number| {
            let mut found = false;
            nf.look_at_flows(&mut Walk::at(number), 1, &mut |seen| {
                let mut keys = seen.keys.iter().zip(seen.starts);
                found |= keys.any(|(key, start)| self.placer.hash(key, *start) == hash);
            });
            found
        })
    }

    /// How many flows a bucket has, about.
    pub(super) fn count(&self, bucket: u16) -> u64 {
        self.of(bucket).count() as u64
    }

    /// Takes all flows of these parts out of the table; how many could not be written down.
    pub(super) fn take(&self, nf: &mut dyn Instance, parts: &BTreeSet<Part>, to: Taken<'_>) -> u64 {
        let mut failed = 0;
        for part in parts {
            let bucket = match part {
                Part::Bucket(bucket) => *bucket,
                Part::Flow(hash) => Buckets::bucket(*hash),
            };
            for number in self.of(bucket) {
                let take = Take {
                    look: 1,
                    take: 1,
                    chosen: &mut |key, start| {
                        let of = Part::of(self.placer.hash(key, start));
                        of.iter().any(|part| parts.contains(part))
                    },
                    to: &mut |key, record| to(key, record),
                };
                match nf.take_flows(&mut Walk::at(number), take) {
                    Ok(_) => {}
                    // Packets are held: no flow goes.
                    Err(SaveError::Holds(_)) => return failed + 1,
                    Err(_) => failed += 1,
                }
            }
        }
        failed
    }
}
