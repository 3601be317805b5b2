//! The sustainable rate: the most that can be offered so that hardly anything is lost, after RFC 2544 §26.1, in the manner of MLRsearch
//! (IETF BMWG): trials grow longer as bounds come closer, and a bound counts only when the longest trials hold it.

use std::time::Duration;

/// What counts as sustained, and when the search ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// The largest part of the packets that may be lost.
    pub loss: f64,
    /// The search ends when upper and lower bound are so close: their difference as a part of the upper one.
    pub width: f64,
    /// How long trials take, from the first phase to the last.
    pub trials: Vec<Duration>,
    /// No more trials than this in all.
    pub most: usize,
}

/// Searches from `most` packets a second downwards. `trial` offers a rate for a time and says which part of the packets was lost, 0 to 1.
/// The highest rate that a trial of the longest kind held; 0.0: none did within the trials that are allowed.
pub fn sustainable<E>(
    goal: &Goal,
    most: f64,
    mut trial: impl FnMut(f64, Duration) -> Result<f64, E>,
) -> Result<f64, E> {
    let (mut low, mut high, mut held) = (0.0_f64, most, 0.0_f64);
    let longest = goal.trials.len().saturating_sub(1);
    let mut left = goal.most;
    for (phase, &span) in goal.trials.iter().enumerate() {
        if phase == 0 {
            let lost = trial(high, span)?;
            left = left.saturating_sub(1);
            if lost <= goal.loss {
                low = high;
                held = if longest == 0 { high } else { held };
            } else {
                // What arrived of too much is a better guess than half of it.
                low = high * (1.0 - lost).clamp(0.01, 1.0);
            }
        }
        // What shorter trials held may be too much for longer ones: down, in growing steps.
        let mut step = goal.width;
        while left > 0 && low > 0.0 {
            left -= 1;
            if trial(low, span)? <= goal.loss {
                held = if phase == longest { held.max(low) } else { held };
                break;
            }
            high = low;
            low = if step < 1.0 { low * (1.0 - step) } else { 0.0 };
            step *= 2.0;
        }
        while left > 0 && high - low > goal.width * high {
            left -= 1;
            let middle = if low > 0.0 { (low * high).sqrt() } else { high / 2.0 };
            if trial(middle, span)? > goal.loss {
                high = middle;
                continue;
            }
            low = middle;
            held = if phase == longest { held.max(low) } else { held };
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn goal() -> Goal {
        let trials = vec![Duration::from_millis(1), Duration::from_millis(5)];
        Goal { loss: 0.001, width: 0.01, trials, most: 60 }
    }

    /// What a device does that takes so many packets a second: the rest is lost.
    fn device(capacity: f64) -> impl FnMut(f64, Duration) -> Result<f64, Infallible> {
        move |rate, _| Ok((1.0 - capacity / rate).max(0.0))
    }

    #[test]
    fn it_is_found_within_the_width_wherever_it_lies() {
        for capacity in [1e3, 3.3e5, 1.4e7, 9.9e7] {
            let Ok(found) = sustainable(&goal(), 1e8, device(capacity));
            let off = found / capacity - 1.0;
            assert!((-0.011..=0.002).contains(&off), "{capacity}: {found}");
        }
        let Ok(all) = sustainable(&goal(), 1e8, device(2e8));
        assert_eq!(all, 1e8);
    }

    #[test]
    fn a_bound_that_short_trials_held_by_luck_is_given_up_in_longer_ones() {
        // Short trials see the buffers: twice the capacity goes through for a moment.
        let trial = |rate: f64, span: Duration| {
            let capacity = if span < Duration::from_millis(5) { 2e6 } else { 1e6 };
            Ok::<_, Infallible>((1.0 - capacity / rate).max(0.0))
        };
        let Ok(found) = sustainable(&goal(), 1e7, trial);
        assert!((0.98e6..=1.002e6).contains(&found), "{found}");
    }

    #[test]
    fn who_loses_always_sustains_nothing_and_the_search_ends() {
        let mut asked = 0;
        let Ok(found) = sustainable(&goal(), 1e7, |_, _| {
            asked += 1;
            Ok::<_, Infallible>(1.0)
        });
        assert!(found == 0.0 && asked <= 60, "{found} after {asked} trials");
    }
}
