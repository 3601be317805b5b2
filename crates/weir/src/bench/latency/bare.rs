//! What the kernel takes to wake a sleeper on another core: the floor under every latency from sleep.

use super::LatencyError;
use super::proc::wait_asleep;
use crate::bench::machine::pin;
use rustix::thread::futex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_port::Doorbell;

/// How the sleeper is woken.
#[derive(Clone, Copy)]
pub enum Wake {
    /// By a futex.
    Futex,
    /// By an event counter that it polls: Weir's doorbell.
    Doorbell,
}

/// Tells the sleeper that this was the last time.
const LAST: u32 = u32::MAX;

/// Nanoseconds from before the call that wakes a thread asleep on `core` until that thread's word is
/// seen here, `samples` times. The thread is in the class that the chain's workers are in.
pub fn wakes(
    how: Wake,
    core: usize,
    samples: usize,
    real_time: bool,
) -> Result<Vec<u64>, LatencyError> {
    let (word, seen) = (AtomicU32::new(0), AtomicU32::new(0));
    let bell = Doorbell::new()?;
    let (say, sleeper) = std::sync::mpsc::channel();
    let sleep = || {
        if real_time {
            let _ = weir_mem::realtime::set_fifo(None, 1);
        }
        let _pinned = pin(core);
        let _ = say.send(rustix::thread::gettid());
        let mut last = 0;
        while last != LAST {
            // An interrupted or early wait is no harm: the word tells.
            match how {
                Wake::Futex => {
                    let _ = futex::wait(&word, futex::Flags::empty(), last, None);
                }
                Wake::Doorbell => {
                    let _ = bell.wait(None, Duration::from_secs(1));
                }
            }
            // Acquire and Release: pair with the other side's store and load.
            last = word.load(Ordering::Acquire);
            seen.store(last, Ordering::Release);
        }
    };
    let wake = |turn| {
        word.store(turn, Ordering::Release);
        match how {
            Wake::Futex => {
                let _ = futex::wake(&word, futex::Flags::empty(), 1);
            }
            Wake::Doorbell => bell.ring(),
        }
    };
    std::thread::scope(|s| {
        s.spawn(sleep);
        let measure = || {
            let tid = sleeper.recv().map_err(|_| LatencyError::Stuck("the sleeper"))?;
            let stat = PathBuf::from(format!("/proc/self/task/{}/stat", tid.as_raw_nonzero()));
            let mut took = Vec::with_capacity(samples);
            for turn in (1..LAST).take(samples) {
                wait_asleep(&stat)?;
                let start = Instant::now();
                wake(turn);
                while seen.load(Ordering::Acquire) != turn {
                    std::hint::spin_loop();
                }
                took.push(start.elapsed().as_nanos() as u64);
            }
            Ok(took)
        };
        let measured = measure();
        wake(LAST);
        measured
    })
}
