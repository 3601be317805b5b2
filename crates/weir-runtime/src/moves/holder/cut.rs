//! How orders are cut into migrations. What was measured for it: docs/performance.md, "What moving flows costs".

use crate::spec::Trial;

/// How orders are cut, and how much of them goes at a time.
pub(super) struct Cut {
    /// Migrations under way from here to one target, at most. From *Switch* to *Done* packets of their flows wait there, and others behind these.
    pub(super) at_once: usize,
    /// Migrations under way from here, and to here, at most, of all sources and targets together.
    pub(super) in_all: usize,
    /// Flows of one migration, about: many make all of them wait for each other, few cost a message more often (NFActor moves 500
    /// per step of its auto-scaling).
    pub(super) flows: usize,
    /// The same of a migration of buckets.
    pub(super) bucket_flows: usize,
    /// Buckets of one migration, at most: each is a part that all directors are told of.
    pub(super) buckets: usize,
}

/// What makes packets wait the least without taking longer for all: more at once take no less time where cores are not full.
const BEST: Cut = Cut { at_once: 2, in_all: 16, flows: 500, bucket_flows: 1_024, buckets: 4_096 };
/// What may be tried, at most.
const MOST: Cut =
    Cut { at_once: 128, in_all: 128, flows: 8_192, bucket_flows: 8_192, buckets: 16_384 };

impl Cut {
    /// The best, or what is to be tried.
    pub(super) fn of(trial: &Trial) -> Self {
        let or = |tried: Option<u16>, best: usize, most: usize| {
            tried.map_or(best, usize::from).clamp(1, most)
        };
        let at_once = or(trial.migrations, BEST.at_once, MOST.at_once);
        Cut {
            at_once,
            in_all: at_once.max(BEST.in_all),
            flows: or(trial.flows, BEST.flows, MOST.flows),
            bucket_flows: or(trial.flows, BEST.bucket_flows, MOST.bucket_flows),
            buckets: or(trial.buckets, BEST.buckets, MOST.buckets),
        }
    }
}
