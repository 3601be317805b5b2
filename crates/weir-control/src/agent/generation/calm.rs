//! Before the pause: fewer and fewer packets are under way, so that what has to run out in it is little, however full rings were.

use super::Next;
use super::precopy::Precopy;
use crate::agent::Agent;
use crate::setup::LaneSetup;
use std::time::{Duration, Instant};
use weir_runtime::moves::Order;
use weir_runtime::spec::{EndSpec, command};

/// Packets of a source in rings that run out in no time.
const FEW: u64 = 512;
/// So long there may be no fewer: what is left does not become less, as it is not for want of packets that come.
const STILL: Duration = Duration::from_millis(5);
/// What is longer than that under way takes as long to run out, as it did without.
const LONGEST: Duration = Duration::from_secs(1);

/// How what is under way becomes less.
pub(super) struct Calm {
    pub(super) since: Instant,
    /// What live devices had dropped by then.
    pub(super) missed: u64,
    /// It has come.
    come: bool,
    /// Fewest packets in rings so far, and when that was.
    least: (u64, Instant),
}

impl Calm {
    fn new(under_way: u64, missed: u64, now: Instant) -> Self {
        Calm { since: now, missed, come: false, least: (under_way, now) }
    }

    /// True when so many, of so many sources, will hardly become fewer.
    fn has_come(&mut self, under_way: u64, sources: u64, now: Instant) -> bool {
        let (least, at) = self.least;
        if under_way < least - least / 16 {
            self.least = (under_way, now);
        }
        let still = now.saturating_duration_since(at) > STILL && under_way >= least - least / 16;
        under_way <= FEW * sources || still || now.saturating_duration_since(self.since) > LONGEST
    }
}

impl Agent {
    /// Has services that receive let less and less be under way, if there is much; true when there is little.
    pub(super) fn is_calm(&mut self, next: &mut Next) -> bool {
        let (now, sources) = (Instant::now(), u64::from(self.setup.sources.max(1)));
        let all = self.in_rings(|_| true);
        if let Some(calm) = &mut next.calm {
            if !calm.come && calm.has_come(all, sources, now) {
                calm.come = true;
                // What has changed until now is copied.
                next.precopy.iter_mut().for_each(Precopy::go_on);
                return next.precopy.as_ref().is_none_or(|precopy| !precopy.has_flows());
            }
            return calm.come;
        }
        if all <= 2 * FEW * sources {
            return true;
        }
        for w in 0..self.workers.len() {
            let EndSpec::Rx { source, .. } = self.setup.workers[w].end else { continue };
            // Behind gates are buffers of others.
            let domain = self.setup.workers[w].domain;
            let in_rings = self.in_rings(|lane| {
                lane.source == source && self.setup.workers[lane.from].domain == domain
            });
            // Whoever cannot be told goes on as ever.
            let _ = self.give(w, &Order::Taper { in_rings });
        }
        next.calm = Some(Calm::new(all, self.missed_by_devices(), now));
        false
    }

    /// The pause does not come for now: services receive as ever, and nobody waits for the agent.
    pub(super) fn is_calm_no_more(&mut self, next: &mut Next) {
        next.in_front = None;
        if next.calm.take().is_some() {
            self.hold(command::RECEIVE);
        }
    }

    /// Packets in some of the rings.
    fn in_rings(&self, which: impl Fn(&LaneSetup) -> bool) -> u64 {
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        // Rings of loans and answers have the same packets again.
        let lanes = lanes.filter(|(lane, _)| lane.has_packets() && which(lane));
        lanes.fold(0, |all, (_, ring)| all.saturating_add(ring.inspector.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calm_has_come_when_little_is_left_or_it_becomes_no_less() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut calm = Calm::new(10_000, 0, start);
        for (ms, under_way, sources, has) in [
            (2, 8_000, 1, false),
            (6, 6_000, 1, false),
            (10, 5_900, 1, false),
            (12, 5_900, 1, true),
            (13, 5_000, 1, false),
            (14, 1_025, 2, false),
            (15, 1_024, 2, true),
            (15, 512, 1, true),
        ] {
            assert_eq!(calm.has_come(under_way, sources, at(ms)), has, "{under_way} after {ms} ms");
        }
        let mut slow = Calm::new(u64::MAX, 0, start);
        let mut under_way = u64::MAX;
        for ms in (0..=1_000).step_by(4) {
            under_way -= under_way / 10;
            assert!(!slow.has_come(under_way, 1, at(ms)) || under_way <= 512, "it goes on");
        }
        let mut endless = Calm::new(1 << 40, 0, start);
        assert!(!endless.has_come(1 << 39, 1, at(999)));
        assert!(endless.has_come(1 << 38, 1, at(1_001)));
    }
}
