//! How long a run may take. What figures take on another machine is not known before: a slower one, or one whose moods keep searches for
//! sustained rates from closing their bounds, takes longer. Samples stay as many and as long as they are asked for; searches give way:
//! their bounds may end further apart, which is told.

use std::time::Duration;

/// A run is to end a little before its time is over.
const SHARE: f64 = 0.95;

/// Twice what searches of half the patience take less, as a part of the time of all figures, about.
const SAVES: f64 = 0.18;

/// Searches never have less of their patience ([`crate::bench::search::Goal::with`]).
const LEAST: f64 = 0.5;

/// So much of what figures usually take has been measured before anything is concluded from it.
const KNOWN: Duration = Duration::from_secs(20);

/// A run's time, as far as it is.
#[derive(Debug)]
pub struct Budget {
    /// `None`: it takes as long as it takes.
    within: Option<Duration>,
    /// What figures that were measured would usually take, and would have taken here with all patience.
    usual: Duration,
    took: Duration,
}

impl Budget {
    pub fn new(within: Option<Duration>) -> Self {
        Budget { within, usual: Duration::ZERO, took: Duration::ZERO }
    }

    /// How patient searches may be, [`LEAST`] to 1, when so much of the time is over and what is to be measured usually takes
    /// `left`.
    pub fn patience(&self, elapsed: Duration, left: Duration) -> f64 {
        let Some(within) = self.within else { return 1.0 };
        if self.usual < KNOWN {
            return 1.0;
        }
        let slowness = self.took.as_secs_f64() / self.usual.as_secs_f64();
        let needed = left.as_secs_f64() * slowness;
        let has = within.as_secs_f64() * SHARE - elapsed.as_secs_f64();
        if needed <= has {
            return 1.0;
        }
        (1.0 - (1.0 - has / needed) / SAVES).max(LEAST)
    }

    /// A figure that usually takes `usual` took `took`, with so patient searches.
    pub fn note(&mut self, usual: Duration, took: Duration, patience: f64) {
        self.usual += usual;
        self.took += took.div_f64(1.0 - SAVES * (1.0 - patience));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long ten rounds of ten figures take, each of 10 s usually, on a machine where they take so many times as long, four fifths of it whatever
    /// searches do; and the least patience that searches had.
    fn run(within: Option<Duration>, slowness: f64) -> (f64, f64) {
        let mut budget = Budget::new(within);
        let (mut elapsed, mut least) = (0.0, 1.0_f64);
        for done in 0..100 {
            let left = Duration::from_secs(10 * (100 - done));
            let patience = budget.patience(Duration::from_secs_f64(elapsed), left);
            let took = 10.0 * slowness * (4.0 + patience) / 5.0;
            budget.note(Duration::from_secs(10), Duration::from_secs_f64(took), patience);
            (elapsed, least) = (elapsed + took, least.min(patience));
        }
        (elapsed, least)
    }

    #[test]
    fn a_slower_machine_ends_in_time_as_searches_are_less_patient() {
        let within = Some(Duration::from_secs(1_100));
        let (took, patience) = run(within, 1.1);
        assert!(took <= 1_100.0 && took > 1_000.0 && patience < 0.8, "{took} s, {patience}");
        // As it is meant to be, nothing gives way.
        let (took, patience) = run(within, 1.0);
        assert!((took - 1_000.0).abs() < 0.1 && patience == 1.0, "{took} s, {patience}");
    }

    #[test]
    fn no_search_is_without_patience_and_without_a_limit_all_have_it() {
        let (took, patience) = run(Some(Duration::from_secs(500)), 3.0);
        assert!(patience == LEAST && took > 500.0, "{took} s, {patience}");
        assert_eq!(run(None, 3.0), (run(None, 3.0).0, 1.0));
        // One that is late from the beginning.
        let mut late = Budget::new(Some(Duration::ZERO));
        late.note(KNOWN, KNOWN, 1.0);
        assert_eq!(late.patience(KNOWN, KNOWN), LEAST);
    }
}
