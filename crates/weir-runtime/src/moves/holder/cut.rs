//! How orders are cut into migrations. What was measured for it: docs/performance.md, "What moving flows costs".

use crate::spec::Trial;

/// How orders are cut, and how much of them goes at a time.
pub(super) struct Cut {
    /// Migrations under way from an instance, and to it, at most. From *Switch* to *Done* packets of their flows wait, and others behind these.
    pub(super) at_once: usize,
    /// Flows of one migration, about: many make all of them wait for each other, few cost a message more often (NFActor moves 500
    /// per step of its auto-scaling).
    pub(super) flows: usize,
    /// The same of a migration of buckets.
    pub(super) bucket_flows: u64,
    /// Buckets of one migration, at most: each is a part that all directors are told of.
    pub(super) buckets: usize,
}

/// What makes packets wait the least without taking longer for all: more at once take no less time where cores are not full.
const BEST: Cut = Cut { at_once: 2, flows: 250, bucket_flows: 1_024, buckets: 4_096 };
/// What may be tried, at most.
const MOST: Cut = Cut { at_once: 128, flows: 8_192, bucket_flows: 8_192, buckets: 16_384 };

impl Cut {
    /// The best, or what is to be tried.
    pub(super) fn of(trial: &Trial) -> Self {
        let or = |tried: Option<u16>, best: usize, most: usize| {
            tried.map_or(best, usize::from).clamp(1, most)
        };
        let flows = |best, most| or(trial.flows, best, most);
        Cut {
            at_once: or(trial.migrations, BEST.at_once, MOST.at_once),
            flows: flows(BEST.flows, MOST.flows),
            bucket_flows: flows(BEST.bucket_flows as usize, MOST.bucket_flows as usize) as u64,
            buckets: or(trial.buckets, BEST.buckets, MOST.buckets),
        }
    }
}
