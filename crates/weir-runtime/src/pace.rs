//! The rate of a source that somebody sets while the graph runs: measurements search for the most that a graph sustains.

use std::time::Instant;

/// How many packets of a source are due. What it could not give in time stays due: it makes up for its pauses, as a wire would not wait.
pub(crate) struct Pace {
    per_second: u64,
    since: Instant,
    given: u64,
}

impl Pace {
    /// Begins now. At 0 nothing is ever due.
    pub(crate) fn new(per_second: u64) -> Self {
        Pace { per_second, since: Instant::now(), given: 0 }
    }

    /// How many packets are due at `now`, or in how many nanoseconds one may be.
    pub(crate) fn due(&self, now: Instant) -> Result<u64, u64> {
        let elapsed_ns = now.saturating_duration_since(self.since).as_nanos();
        let due = elapsed_ns.saturating_mul(self.per_second.into()) / 1_000_000_000;
        let left = u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.given);
        match left {
            0 => Err(1_000_000_000_u64.checked_div(self.per_second).unwrap_or(1_000_000_000)),
            left => Ok(left),
        }
    }

    /// So many were given.
    pub(crate) fn gave(&mut self, packets: u64) {
        self.given = self.given.saturating_add(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_due_grows_with_time_and_what_was_not_given_in_time_stays_due() {
        let mut pace = Pace::new(2_000_000);
        let at = |us: u64| pace.since + Duration::from_micros(us);
        let (start, later, end) = (at(0), at(5), at(1_000));
        assert_eq!(pace.due(start), Err(500), "half a microsecond until the next");
        assert_eq!(pace.due(later), Ok(10));
        pace.gave(10);
        assert_eq!(pace.due(later), Err(500));
        assert_eq!(pace.due(end), Ok(1_990), "a pause of a millisecond is made up for");
    }

    #[test]
    fn at_no_rate_nothing_is_due_and_at_any_other_nothing_overflows() {
        let far = Instant::now() + Duration::from_secs(1 << 30);
        assert!(Pace::new(0).due(far).is_err());
        let mut fast = Pace::new(u64::MAX);
        fast.gave(u64::MAX);
        assert!(fast.due(far).is_err());
    }
}
