//! In which mood the machine is. A virtual machine's cores are shared with strangers: how fast words cross from one to the other changes
//! within seconds, and how fast each works changes by some percent from one half hour to the next. Both are measured around every sample
//! with work that is none of Weir's, so that what the machine does is told from what a change of the program does.

use super::machine::pin;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Exchanges per measurement of the round trip.
const EXCHANGES: u64 = 20_000;

/// Cache lines that the work goes through, each pointing to the next: 128 KiB, as much as a batch of packets and a few tables.
const LINES: usize = 2_048;
const LINE: usize = 64;

/// Steps of the work that are timed, and those before them that bring the lines near.
const STEPS: u32 = 40_000;
const WARM: u32 = LINES as u32;

/// One look at the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mood {
    round_trip_ns: f64,
    pace_ns: f64,
}

/// Two looks, before a measurement and after it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// Round trips of a word between the cores, in nanoseconds; zeros where no second core took part.
    pub round_trip_ns: [f64; 2],
    /// How long the cores took for a step of work that is always the same, in nanoseconds; zeros where it was not measured.
    #[serde(default)]
    pub pace_ns: [f64; 2],
}

impl Mood {
    /// Looks now, at two cores or twice at the same.
    pub fn now(a: usize, b: usize) -> Self {
        Mood { round_trip_ns: round_trip(a, b), pace_ns: pace(a, b) }
    }
}

impl Around {
    pub fn of(before: Mood, after: Mood) -> Self {
        Around {
            round_trip_ns: [before.round_trip_ns, after.round_trip_ns],
            pace_ns: [before.pace_ns, after.pace_ns],
        }
    }

    /// From before this measurement to after a later one.
    pub fn until(self, later: Around) -> Self {
        let join = |[first, _]: [f64; 2], [_, last]: [f64; 2]| [first, last];
        Around {
            round_trip_ns: join(self.round_trip_ns, later.round_trip_ns),
            pace_ns: join(self.pace_ns, later.pace_ns),
        }
    }
}

#[cfg(test)]
impl From<[f64; 2]> for Around {
    fn from(round_trip_ns: [f64; 2]) -> Self {
        Around { round_trip_ns, pace_ns: [5.0; 2] }
    }
}

/// Nanoseconds for a word to go from one core to the other and back. It changes within seconds on
/// virtual machines; samples are comparable only where it is alike.
pub fn round_trip(a: usize, b: usize) -> f64 {
    if a == b {
        // Two threads that spin for each other on one core: minutes, and it says nothing.
        return 0.0;
    }
    let ball = AtomicU64::new(0);
    let play = |core: usize, odd: u64| {
        let _pinned = pin(core);
        for n in 0..EXCHANGES {
            // Acquire and Release: each side's store is seen by the other side's load.
            while ball.load(Ordering::Acquire) != 2 * n + odd {
                std::hint::spin_loop();
            }
            ball.store(2 * n + odd + 1, Ordering::Release);
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| play(a, 1));
        let server = s.spawn(|| {
            let start = Instant::now();
            play(b, 0);
            start.elapsed()
        });
        let took = server.join().unwrap_or_default();
        took.as_nanos() as f64 / EXCHANGES as f64
    })
}

/// Nanoseconds that a step of work takes, which is always the same: the mean of both cores, while both work, as in a graph.
fn pace(a: usize, b: usize) -> f64 {
    if a == b {
        let _pinned = pin(a);
        return work(|| ());
    }
    let both = Barrier::new(2);
    let on = |core: usize| {
        let _pinned = pin(core);
        work(|| {
            both.wait();
        })
    };
    std::thread::scope(|s| {
        let other = s.spawn(|| on(a));
        let mine = s.spawn(|| on(b));
        [other, mine].map(|thread| thread.join().unwrap_or(f64::NAN)).iter().sum::<f64>() / 2.0
    })
}

/// Goes from line to line in an order that no prefetcher guesses, writes to each as to a packet's head, and reckons beside it what a
/// processor can do at the same time: nanoseconds a step.
fn work(begin: impl FnOnce()) -> f64 {
    let mut lines = round_of_lines();
    let (mut at, mut sums) = (0_usize, [black_box(1_u64), 2, 3, 4]);
    let mut steps = |count: u32| {
        for _ in 0..count {
            let Some(line) = lines.get_mut(at) else { return };
            line.0[1] = line.0[1].wrapping_add(1);
            at = line.0[0] as usize;
            for sum in &mut sums {
                *sum = sum.rotate_left(5) ^ (*sum >> 3).wrapping_add(7);
            }
        }
        black_box(&mut sums);
    };
    steps(WARM);
    begin();
    let start = Instant::now();
    steps(STEPS);
    let took = start.elapsed();
    took.as_nanos() as f64 / f64::from(STEPS)
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE / 8]);

/// Lines of which each names the next one, all in one round, the same in every run.
fn round_of_lines() -> Vec<Line> {
    // A linear congruential generator modulo a power of two visits every line once when its increment is odd and 4 divides its factor
    // less one (Hull and Dobell, 1962).
    let next = |at: usize| (at * 1_229 + 347) % LINES;
    (0..LINES)
        .map(|at| {
            let mut line = Line([0; LINE / 8]);
            line.0[0] = next(at) as u64;
            line
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_goes_through_all_lines_and_comes_back() {
        let lines = round_of_lines();
        let (mut at, mut seen) = (0, vec![false; LINES]);
        for _ in 0..LINES {
            assert!(!std::mem::replace(&mut seen[at], true), "line {at} twice");
            at = lines[at].0[0] as usize;
        }
        assert_eq!(at, 0);
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn a_look_is_at_two_cores_or_at_one() {
        let one = Mood::now(0, 0);
        assert!(one.round_trip_ns == 0.0 && one.pace_ns > 0.0, "{one:?}");
        if crate::cores::online() < 2 {
            crate::say::print_line!("skipped: one core");
            return;
        }
        let two = Mood::now(0, 1);
        assert!(two.round_trip_ns > 0.0 && two.pace_ns > 0.0, "{two:?}");
    }

    #[test]
    fn what_was_around_two_measurements_was_before_the_first_and_after_the_last() {
        let of = |round_trip_ns, pace_ns| Mood { round_trip_ns, pace_ns };
        let first = Around::of(of(1.0, 10.0), of(2.0, 20.0));
        let both = first.until(Around::of(of(3.0, 30.0), of(4.0, 40.0)));
        assert_eq!(both, Around { round_trip_ns: [1.0, 4.0], pace_ns: [10.0, 40.0] });
    }
}
