//! Before the pause: fewer and fewer packets are under way, so that what has to run out in it is little, however full rings were.

use super::Next;
use crate::agent::Agent;
use crate::agent::flows::Given;
use crate::setup::LaneSetup;
use std::time::{Duration, Instant};
use weir_runtime::moves::Order;
use weir_runtime::spec::EndSpec;

/// Packets of a source in rings that run out in no time.
const FEW: u64 = 512;
/// So long there may be no fewer: what is left does not become less, as it is not for want of packets that come.
const STILL: Duration = Duration::from_millis(5);
/// What is longer than that under way takes as long to run out, as it did without.
const LONGEST: Duration = Duration::from_secs(1);

/// How what is under way becomes less.
pub(super) struct Calm {
    since: Instant,
    /// Fewest packets in rings so far, and when that was.
    least: (u64, Instant),
}

impl Calm {
    fn new(under_way: u64, now: Instant) -> Self {
        Calm { since: now, least: (under_way, now) }
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
        let under_way: Vec<u64> = self.under_way_by_source();
        let (now, sources) = (Instant::now(), under_way.len().max(1) as u64);
        let all = under_way.iter().fold(0_u64, |all, of| all.saturating_add(*of));
        if let Some(calm) = &mut next.calm {
            return calm.has_come(all, sources, now);
        }
        if all <= 2 * FEW * sources {
            return true;
        }
        for w in 0..self.workers.len() {
            let EndSpec::Rx { source, .. } = self.setup.workers[w].end else { continue };
            let in_rings = under_way.get(usize::from(source)).copied().unwrap_or(0);
            // Whoever cannot be told goes on as ever.
            let (Given::Told | Given::Later | Given::Full | Given::Not(_)) =
                self.give(w, &Order::Taper { in_rings });
        }
        next.calm = Some(Calm::new(all, now));
        false
    }

    /// By source: packets in rings.
    fn under_way_by_source(&self) -> Vec<u64> {
        let mut all = vec![0_u64; usize::from(self.setup.sources)];
        for (LaneSetup { source, .. }, ring) in self.setup.lanes.iter().zip(&self.memory.lanes) {
            if let Some(of) = all.get_mut(usize::from(*source)) {
                *of = of.saturating_add(ring.inspector.len());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calm_has_come_when_little_is_left_or_it_becomes_no_less() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut calm = Calm::new(10_000, start);
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
        let mut slow = Calm::new(u64::MAX, start);
        let mut under_way = u64::MAX;
        for ms in (0..=1_000).step_by(4) {
            under_way -= under_way / 10;
            assert!(!slow.has_come(under_way, 1, at(ms)) || under_way <= 512, "it goes on");
        }
        let mut endless = Calm::new(1 << 40, start);
        assert!(!endless.has_come(1 << 39, 1, at(999)));
        assert!(endless.has_come(1 << 38, 1, at(1_001)));
    }
}
