//! How long a gate waits for a domain, and what buys the domain more of that.

use std::time::{Duration, Instant};

/// How long a gate waits for a domain to take packets before it drops them, and to give what it
/// promised before it goes on without.
pub(super) const PATIENCE: Duration = Duration::from_millis(800);
/// What a packet that the domain takes gives back of that time. A sound worker ends a batch of 64 within
/// half a second, or it is taken for one that hangs: it takes more than a hundred packets a second, and so
/// earns more than it uses up. Who takes one now and then does not.
const EARNED: Duration = Duration::from_millis(10);
/// How often it looks meanwhile. Longer waits count as this much: then the whole machine stood still.
pub(super) const GLANCE: Duration = Duration::from_millis(50);

/// Time spent waiting, while this process had the machine.
#[derive(Default)]
pub(super) struct Waiting {
    last: Option<Instant>,
    sum: Duration,
}

impl Waiting {
    pub(super) fn on(&mut self) -> Duration {
        let now = Instant::now();
        let passed = self.last.map_or(Duration::ZERO, |last| now - last);
        self.last = Some(now);
        self.sum += passed.min(GLANCE);
        self.sum
    }

    pub(super) fn over(&mut self) {
        *self = Waiting::default();
    }
}

/// How much of its patience a domain has used up by leaving no room.
#[derive(Default)]
struct Credit {
    /// Since when there has been no room.
    since: Option<Instant>,
    used: Duration,
}

impl Credit {
    /// There is no room; true when that has been so for too long.
    fn blocked(&mut self, now: Instant) -> bool {
        let waited =
            self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.since = Some(now);
        // Never more than one packet buys back: who takes again is given to at once.
        self.used = (self.used + waited.min(GLANCE)).min(PATIENCE + EARNED);
        self.used >= PATIENCE
    }

    /// Whether there is anything to be earned: while nobody waits no clock need be read.
    fn is_used(&self) -> bool {
        self.since.is_some() || !self.used.is_zero()
    }

    /// The domain took so many packets.
    fn took(&mut self, packets: usize, now: Instant) {
        if self.since.is_some() {
            let _ = self.blocked(now);
        }
        self.since = None;
        let earned = EARNED.saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX));
        self.used = self.used.saturating_sub(earned);
    }
}

/// A gate's patience with the domain that it leads into, by source: of one source the domain may take what it likes, and keep the
/// others' packets, which those behind a merge wait for.
pub(super) struct Patience(Vec<Credit>);

impl Patience {
    pub(super) fn with(sources: usize) -> Self {
        Patience((0..sources).map(|_| Credit::default()).collect())
    }

    /// There is no room for packets of `source`; true when that has been so for too long.
    pub(super) fn is_over(&mut self, source: usize, now: impl FnOnce() -> Instant) -> bool {
        self.0.get_mut(source).is_some_and(|credit| credit.blocked(now()))
    }

    /// The domain took so many packets of `source`. No clock is read while nobody waits.
    pub(super) fn took(&mut self, source: usize, packets: usize, now: impl FnOnce() -> Instant) {
        if let Some(credit) = self.0.get_mut(source).filter(|credit| credit.is_used()) {
            credit.took(packets, now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::BATCH;

    /// When patience with a domain is over that takes `packets` every `pause`, if within a minute.
    fn patience_with(packets: usize, pause: Duration) -> Option<Duration> {
        let (mut credit, start) = (Credit::default(), Instant::now());
        let mut now = start;
        while now - start < Duration::from_secs(60) {
            let until = now + pause;
            while now < until {
                if credit.blocked(now) {
                    return Some(now - start);
                }
                now += GLANCE.min(until - now);
            }
            credit.took(packets, now);
        }
        None
    }

    #[test]
    fn a_domain_that_takes_nothing_is_waited_for_no_longer_than_the_patience() {
        let over = patience_with(1, Duration::from_secs(30)).unwrap();
        assert!(over >= PATIENCE && over <= PATIENCE + 2 * GLANCE, "{over:?}");
    }

    #[test]
    fn a_packet_now_and_then_does_not_make_a_gate_wait_for_ever() {
        let over = patience_with(1, Duration::from_millis(700)).unwrap();
        assert!(over < 2 * PATIENCE, "{over:?}");
        assert!(patience_with(1, Duration::from_millis(20)).is_some());
    }

    #[test]
    fn a_domain_that_is_only_slow_is_waited_for() {
        assert_eq!(patience_with(BATCH, Duration::from_millis(500)), None);
        assert_eq!(patience_with(1, Duration::from_millis(5)), None);
    }

    #[test]
    fn who_takes_again_is_given_to_at_once() {
        let (mut credit, mut now) = (Credit::default(), Instant::now());
        while !credit.blocked(now) {
            now += GLANCE;
        }
        for _ in 0..1000 {
            now += GLANCE;
            assert!(credit.blocked(now));
        }
        credit.took(BATCH, now);
        assert!(!credit.blocked(now) && !credit.blocked(now + GLANCE));
    }

    #[test]
    fn a_domain_is_not_waited_for_as_it_takes_packets_of_another_source() {
        let (mut patience, start) = (Patience::with(2), Instant::now());
        let mut now = start;
        // Of the first source it takes all there is, of the second nothing.
        while !patience.is_over(1, || now) {
            let waited = now - start;
            assert!(waited <= PATIENCE + 2 * GLANCE, "still waited for after {waited:?}");
            patience.is_over(0, || now);
            now += GLANCE / 2;
            patience.took(0, BATCH, || now);
        }
        assert!(now - start >= PATIENCE, "waited for no longer after {:?}", now - start);
        // And what it keeps of the second is no reason not to wait for it to take of the first.
        assert!(!patience.is_over(0, || now));
        // It takes of the second again: then it is waited for.
        patience.took(1, 1, || now);
        assert!(!patience.is_over(1, || now));
    }
}
