//! What is done with the tables of the µNFs whose flows move.

use super::gather::Gathered;
use super::sorted::Sorted;
use super::{Flows, Holder, Part};
use crate::segment::Segment;
use crate::spec::FromWorker;
use std::collections::BTreeSet;
use weir_flow::MoveId;
use weir_nf::{Instance, SaveError, Take, Walk};
use weir_packet::{Direction, FlowKey};

/// Is given a flow's first key and a µNF's record of it.
pub(super) type Taken<'t> = &'t mut dyn FnMut(&FlowKey, &[u8]);

impl Holder {
    /// Goes on to sort flows by buckets, or ends it; true when there is more to look at.
    pub(super) fn sort(&mut self, segment: &mut Segment) -> bool {
        if self.sorted.is_empty() {
            return false;
        }
        let ordered = !self.orders.is_empty() || !self.wanted.is_empty();
        let rests = !ordered && self.leaving.is_empty() && !self.ended.needs_sorted();
        // One table at a time: packets wait for one step.
        let mut may_look = true;
        for (sorted, node) in self.sorted.iter_mut().zip(&self.nodes) {
            let Some(nf) = segment.nf(*node) else { continue };
            if rests {
                nf.watch_flows(false);
                continue;
            }
            sorted.go_on(nf, may_look);
            may_look &= sorted.is_whole();
        }
        if rests {
            self.sorted.clear();
        }
        !self.sorted.iter().all(Sorted::is_whole)
    }

    /// True when it is known which flows are of which bucket. Else begins to look for that.
    pub(super) fn is_sorted(&mut self, segment: &mut Segment) -> bool {
        if self.sorted.is_empty() {
            let nodes = self.nodes.iter();
            let begun = nodes.filter_map(|node| Some(Sorted::new(self.placer, segment.nf(*node)?)));
            self.sorted = begun.collect();
        }
        self.sorted.iter().all(Sorted::is_whole)
    }

    /// Flows that there are: of the µNF that remembers the most.
    pub(super) fn most_flows(&self, segment: &Segment) -> u64 {
        let count = |node: &usize| segment.nf_ref(*node).map(|nf| nf.flows().0 as u64);
        self.nodes.iter().filter_map(count).max().unwrap_or(0)
    }

    /// Takes the flows of these parts out of the tables.
    pub(super) fn take(
        &mut self,
        id: MoveId,
        parts: &BTreeSet<Part>,
        segment: &mut Segment,
    ) -> Flows {
        segment.read_unread(usize::MAX);
        for part in parts {
            match part {
                Part::Bucket(bucket) => self.own(*bucket, false),
                Part::Flow(hash) => self.visitors.remove(*hash),
            }
        }
        let keys = self.leaving.get(&id).and_then(|leave| leave.wanted.as_ref());
        // Of a client others may be there that were not named: they are found by their parts.
        let keys = keys.filter(|_| !self.placer.joins_flows());
        let keys = keys.map(|wanted| wanted.keys.clone()).unwrap_or_default();
        let mut flows = Flows::default();
        let (mut count, mut lost) = self.take_named(&keys, &mut flows, segment);
        // Flows that were named by their keys are out already.
        if keys.is_empty() || parts.iter().any(|part| matches!(part, Part::Bucket(_))) {
            let (more, failed) = self.take_parts(parts, &mut flows, segment);
            (count, lost) = (count + more, lost + failed);
        }
        self.lost += lost;
        self.leave(id).flows = count;
        flows
    }

    /// Takes flows out by their keys: how many, and how many could not be written down.
    fn take_named(
        &self,
        keys: &[(bool, FlowKey)],
        flows: &mut Flows,
        segment: &mut Segment,
    ) -> (u64, u64) {
        let (mut count, mut lost, mut record) = (0, 0, Vec::new());
        let mut begins = true;
        for (is_another, key) in keys {
            begins |= is_another;
            for (nf, node) in (0_u16..).zip(&self.nodes) {
                record.clear();
                match segment.nf(*node).map(|nf| nf.take_flow(key, &mut record)) {
                    Some(Ok(true)) => {
                        flows.push(begins, nf, &record);
                        count += u64::from(begins);
                        begins = false;
                    }
                    Some(Ok(false)) | None => {}
                    Some(Err(_)) => lost += 1,
                }
            }
        }
        (count, lost)
    }

    /// Takes all flows out that are of these parts: how many, and how many could not be written down.
    fn take_parts(
        &self,
        parts: &BTreeSet<Part>,
        flows: &mut Flows,
        segment: &mut Segment,
    ) -> (u64, u64) {
        let (mut count, mut lost) = (0, 0);
        let mut gathered = Gathered::default();
        let is_alone = self.nodes.len() == 1;
        let is_sorted = !self.sorted.is_empty() && self.sorted.iter().all(Sorted::is_whole);
        for (nf, node) in (0_u16..).zip(&self.nodes) {
            let sorted = self.sorted.get(usize::from(nf)).filter(|_| is_sorted);
            let Some(table) = segment.nf(*node).filter(|table| table.flows().0 > 0) else {
                continue;
            };
            let mut to = |key: &FlowKey, record: &[u8]| match is_alone {
                true => {
                    flows.push(true, nf, record);
                    count += 1;
                }
                false => gathered.add(key, nf, record),
            };
            lost += match sorted {
                Some(sorted) => sorted.take(table, parts, &mut to),
                // An earlier life began it: what is here has begun since.
                None => {
                    let goes = |key: &FlowKey, start| {
                        let of = Part::of(self.placer.hash(key, start));
                        of.iter().any(|part| parts.contains(part))
                    };
                    take_those(table, goes, &mut to)
                }
            };
        }
        (count + gathered.write(flows), lost)
    }

    /// Puts flows into the tables; of how many something could not be. Why the first could not is a warning.
    pub(super) fn put(&mut self, flows: &Flows, segment: &mut Segment) -> u64 {
        segment.read_unread(usize::MAX);
        let (mut lost, mut is_lost, mut first) = (0, false, None);
        for record in flows.records() {
            is_lost &= !record.begins;
            let Some(nf) = self.nodes.get(record.nf).and_then(|node| segment.nf(*node)) else {
                lost += u64::from(!std::mem::replace(&mut is_lost, true));
                continue;
            };
            if let Err(why) = nf.put_flow(record.bytes) {
                let name = nf.descriptor().name;
                first.get_or_insert_with(|| {
                    format!("a flow of {name} that was moved here could not be put in: {why}")
                });
                lost += u64::from(!std::mem::replace(&mut is_lost, true));
            }
        }
        self.notes.extend(first.map(FromWorker::Warning));
        lost
    }
}

/// Takes all flows out that `goes` is true for; how many could not be written down.
fn take_those(
    nf: &mut dyn Instance,
    goes: impl Fn(&FlowKey, Direction) -> bool,
    to: Taken<'_>,
) -> u64 {
    let (mut walk, mut failed) = (Walk::default(), 0);
    loop {
        let take = Take {
            look: usize::MAX,
            take: usize::MAX,
            chosen: &mut |key, start| goes(key, start),
            to: &mut |key, record| to(key, record),
        };
        match nf.take_flows(&mut walk, take) {
            Ok(true) => {}
            Ok(false) => return failed,
            // Packets are held: no flow goes.
            Err(SaveError::Holds(_)) => return failed + 1,
            Err(_) => failed += 1,
        }
    }
}
