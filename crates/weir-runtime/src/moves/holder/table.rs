//! What is done with the table of the µNF whose flows move.

use super::{Flows, Holder, Part};
use crate::segment::Segment;
use std::collections::BTreeSet;
use weir_flow::MoveId;
use weir_nf::{Instance, SaveError, Take, Walk};
use weir_packet::FlowKey;

impl Holder {
    /// Goes on to sort flows by buckets, or ends it; true when there is more to look at.
    pub(super) fn sort(&mut self, segment: &mut Segment) -> bool {
        let Some(nf) = segment.nf(self.node).filter(|_| self.sorted.is_some()) else {
            return false;
        };
        if self.orders.is_empty() && self.wanted.is_empty() && self.leaving.is_empty() {
            nf.watch_flows(false);
            self.sorted = None;
        }
        self.sorted.as_mut().is_some_and(|sorted| {
            sorted.go_on(nf);
            !sorted.is_whole()
        })
    }

    /// Takes the flows of these parts out of the table.
    pub(super) fn take(
        &mut self,
        id: MoveId,
        parts: &BTreeSet<Part>,
        segment: &mut Segment,
    ) -> Flows {
        for part in parts {
            match part {
                Part::Bucket(bucket) => self.own(*bucket, false),
                Part::Flow(hash) => drop(self.visitors.remove(hash)),
            }
        }
        let keys = self.leaving.get(&id).and_then(|leave| leave.wanted.as_ref());
        let keys = keys.map(|wanted| wanted.keys.clone()).unwrap_or_default();
        let (mut flows, mut count, mut lost) = (Flows::default(), 0, 0);
        if let Some(nf) = segment.nf(self.node) {
            let mut record = Vec::new();
            for key in &keys {
                record.clear();
                match nf.take_flow(key, &mut record) {
                    Ok(true) => {
                        flows.push(&record);
                        count += 1;
                    }
                    Ok(false) => {}
                    Err(_) => lost += 1,
                }
            }
            // Flows that were named by their keys are out already.
            let all = keys.is_empty() || parts.iter().any(|part| matches!(part, Part::Bucket(_)));
            if all && nf.flows().0 > 0 {
                let (more, failed) = match self.sorted.as_ref().filter(|s| s.is_whole()) {
                    Some(sorted) => sorted.take(nf, parts, &mut |record| flows.push(record)),
                    // An earlier life began it: what is here has begun since.
                    None => {
                        let hasher = weir_packet::FlowHasher::new(u128::from(self.seed));
                        let goes = |key: &FlowKey| {
                            Part::of(hasher.place(key)).iter().any(|part| parts.contains(part))
                        };
                        take_those(nf, goes, &mut flows)
                    }
                };
                (count, lost) = (count + more, lost + failed);
            }
        }
        self.lost += lost;
        self.leave(id).flows = count;
        flows
    }

    /// Puts flows into the table; how many found no place.
    pub(super) fn put(&mut self, flows: &Flows, segment: &mut Segment) -> u64 {
        let Some(nf) = segment.nf(self.node) else { return 0 };
        flows.records().map(|record| u64::from(nf.put_flow(record).is_err())).sum()
    }
}

/// Takes all flows out that `goes` is true for: how many, and how many could not be written down.
fn take_those(
    nf: &mut dyn Instance,
    goes: impl Fn(&FlowKey) -> bool,
    flows: &mut Flows,
) -> (u64, u64) {
    let (mut walk, mut count, mut failed) = (Walk::default(), 0, 0);
    loop {
        let take = Take {
            look: usize::MAX,
            take: usize::MAX,
            chosen: &mut |key| goes(key),
            to: &mut |_, record| {
                flows.push(record);
                count += 1;
            },
        };
        match nf.take_flows(&mut walk, take) {
            Ok(true) => {}
            Ok(false) => return (count, failed),
            // Packets are held: no flow goes.
            Err(SaveError::Holds(_)) => return (count, failed + 1),
            Err(_) => failed += 1,
        }
    }
}
