//! Keeps the machine alive when real-time workers take what the rest of it needs, and lets them breathe before they do.

mod breath;

use self::breath::{Breath, Lost, OnCore};
use rustix::process::Pid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_mem::realtime::{WATCHDOG_PRIORITY, WORKER_PRIORITY};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(100);
/// After so many looks without a sign of life of the agent's loop it acts: two seconds.
const PATIENCE: u32 = 20;
/// How long the agent's loop may wait in one turn: a part of that patience, or its own waiting would
/// be taken for the workers' doing.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(500);
const _: () = assert!(LONGEST_WAIT.as_millis() * 2 < EVERY.as_millis() * PATIENCE as u128);

struct Shared {
    beats: AtomicU64,
    stop: AtomicBool,
    /// It has acted, and that was not told yet.
    barked: AtomicBool,
    watched: Mutex<Watched>,
}

/// Whom it watches.
#[derive(Default)]
pub(crate) struct Watched {
    /// All processes: to be taken out of the real-time class.
    pub(crate) all: Vec<Pid>,
    /// Those that have said that they run in it.
    pub(crate) real_time: Vec<OnCore>,
}

/// A thread above all other priorities. The agent's loop runs in the default class, but for moments; when it does
/// not get to run for two seconds, the workers go back to the default class too.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts it; `None` when the real-time class is not permitted (then nothing needs watching).
    pub(crate) fn start() -> Option<Self> {
        let shared = Arc::new(Shared {
            beats: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            barked: AtomicBool::new(false),
            watched: Mutex::default(),
        });
        let (say, granted) = std::sync::mpsc::channel();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("weir-watchdog".into())
            .spawn(move || {
                // Above workers at least, where no more is permitted.
                let mut priorities = (WORKER_PRIORITY + 1..=WATCHDOG_PRIORITY).rev();
                let ok = priorities.any(|p| weir_mem::realtime::set_fifo(None, p).is_ok());
                let _ = say.send(ok);
                if ok {
                    watch(&theirs);
                }
            })
            .ok()?;
        granted.recv().ok()?.then_some(Watchdog { shared, thread: Some(thread) })
    }

    /// A sign of life.
    pub(crate) fn beat(&self) {
        // Relaxed: a counter, no data behind it.
        self.shared.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// True once each time that it has taken the workers out of the real-time class. The agent says so, when it runs
    /// again: writing may wait for a reader.
    pub(crate) fn has_barked(&self) -> bool {
        // Relaxed: no data behind it.
        self.shared.barked.swap(false, Ordering::Relaxed)
    }

    /// Whom to watch from now on. Who has died is to be none of them before it is waited for.
    pub(crate) fn watch(&self, whom: Watched) {
        if let Ok(mut watched) = self.shared.watched.lock() {
            *watched = whom;
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn watch(shared: &Shared) {
    let (mut last, mut silent) = (0, 0);
    let (mut breath, mut due) = (Breath::new(), Instant::now() + EVERY);
    while !shared.stop.load(Ordering::Relaxed) {
        let until_due = due.saturating_duration_since(Instant::now());
        std::thread::park_timeout(breath.next(until_due));
        if let Err(Lost) = breath.look(&shared.watched) {
            shared.barked.store(true, Ordering::Relaxed);
        }
        let now = Instant::now();
        if now < due {
            continue;
        }
        due = next_look(due, now);
        let beats = shared.beats.load(Ordering::Relaxed);
        silent = if beats == last { silent + 1 } else { 0 };
        last = beats;
        if silent == PATIENCE {
            if let Ok(watched) = shared.watched.lock() {
                for &pid in &watched.all {
                    let _ = weir_mem::realtime::set_default(Some(pid));
                }
            }
            shared.barked.store(true, Ordering::Relaxed);
        }
    }
}

/// When to look for the agent's signs of life again, where it was to be done by `due`. What was missed is not made up for: who was stopped, with
/// the agent, or on a machine that slept, would find no sign of life in many looks at once.
fn next_look(due: Instant, now: Instant) -> Instant {
    let next = due + EVERY;
    if next > now { next } else { now + EVERY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_keep_their_distance_and_none_is_made_up_for() {
        let due = Instant::now();
        assert_eq!(next_look(due, due + EVERY / 5), due + EVERY);
        // It was stopped for three seconds.
        let late = due + Duration::from_secs(3);
        assert_eq!(next_look(due, late), late + EVERY);
    }
}
