//! Deaths that are heard of when they begin ([`weir_mem::knell`]): a thread listens for all workers that have a knell, and wakes the agent.
//!
//! A worker can ring without dying, or die without (one that has written to the word, of which there are too many, or on a kernel that cannot wait
//! for several words): its descriptor tells of its end as of anybody's, only later. Who rings and does not die is listened to no more, so one that
//! rings all the time keeps nobody busy.

use super::{Agent, State};
use crate::process::Process;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_mem::knell::{self, Knell};
use weir_mem::realtime::Turns;

/// How long until it is tried again to listen, when that was not to be had (no memory).
const RETRY: Duration = Duration::from_millis(100);
/// How long who has rung may take to be on its way out. The kernel rings in the middle of it, and is there in microseconds.
const SOON: Duration = Duration::from_millis(1);

/// Whose knell: the worker, and which of its processes.
type Whose = (usize, u32);

/// The agent's end.
#[derive(Default)]
pub(super) struct Knells {
    listener: Option<Listener>,
}

struct Listener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    lists: Mutex<Lists>,
    /// Counts what the agent has changed in the lists.
    call: AtomicU32,
    /// An eventfd: somebody has rung.
    rings: OwnedFd,
}

#[derive(Default)]
struct Lists {
    heard: Vec<(Whose, Knell)>,
    rung: Vec<Whose>,
    ends: bool,
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the lists, and has the thread look at them.
    fn change(&self, change: impl FnOnce(&mut Lists)) {
        change(&mut self.lists());
        // Relaxed: the lists are read under their lock.
        self.call.fetch_add(1, Ordering::Relaxed);
        knell::call(&self.call);
    }

    /// The thread's life.
    fn listen(&self) {
        // Who it wakes is waited for. It is a wish.
        let _turns = Turns::take_short();
        loop {
            // Before the lists are: what changes behind is looked at in the next turn.
            let seen = self.call.load(Ordering::Relaxed);
            let (whose, knells): (Vec<Whose>, Vec<Knell>) = {
                let lists = self.lists();
                if lists.ends {
                    return;
                }
                lists.heard.iter().cloned().unzip()
            };
            let rung = match knell::listen(&knells, &self.call, seen) {
                Ok(rung) => rung,
                Err(Errno::NOSYS) => return,
                Err(_) => {
                    std::thread::sleep(RETRY);
                    continue;
                }
            };
            if rung.is_empty() {
                continue;
            }
            let rung: Vec<Whose> = rung.into_iter().filter_map(|i| whose.get(i).copied()).collect();
            {
                let mut lists = self.lists();
                lists.heard.retain(|(whose, _)| !rung.contains(whose));
                lists.rung.extend(rung);
            }
            // Nobody who is woken waits for the lists.
            let _ = rustix::io::write(&self.rings, &1u64.to_ne_bytes());
        }
    }
}

impl Listener {
    fn begin() -> Option<Self> {
        let rings = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let lists = Mutex::new(Lists::default());
        let shared = Arc::new(Shared { lists, call: AtomicU32::new(0), rings });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("weir-knells".to_owned());
        let thread = thread.spawn(move || its.listen()).ok()?;
        Some(Listener { shared, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.change(|lists| lists.ends = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Knells {
    /// Readable when somebody has rung.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(|listener| listener.shared.rings.as_fd())
    }

    fn listen_for(&mut self, whose: Whose, knell: Knell) {
        if self.listener.is_none() {
            self.listener = Listener::begin();
        }
        if let Some(listener) = &self.listener {
            listener.shared.change(|lists| {
                lists.heard.retain(|((w, _), _)| *w != whose.0);
                lists.heard.push((whose, knell));
            });
        }
    }

    /// Who has rung since the last call.
    fn take_rung(&self) -> Vec<Whose> {
        let Some(listener) = &self.listener else { return Vec::new() };
        let _ = rustix::io::read(&listener.shared.rings, &mut [0; 8]);
        std::mem::take(&mut listener.shared.lists().rung)
    }
}

impl Agent {
    /// Worker `w`, which is ready, is listened to if it has armed its knell. Not where how it ends is told to nobody before it has.
    pub(super) fn listen_for_death(&mut self, w: usize) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let knell = self.memory.workers[w].ledger.knell();
        if let (Some(pid), true) = (self.pid(w), knell.is_armed()) {
            self.knells.listen_for((w, pid), knell);
        }
    }

    /// Whether worker `w` has no knell that will ring: it has rung, or never had one. By its own word, for measurements.
    pub fn has_rung(&self, w: usize) -> bool {
        !self.memory.workers[w].ledger.knell().is_armed()
    }

    /// Workers that have rung, and are on their way out as somebody has killed them. What else they may have died of is not known before they
    /// have gone, and whoever has died of that has no packets wait for it that would not find the next death.
    pub(super) fn take_dying(&self) -> Vec<usize> {
        let killed = |process: &Process| {
            let since = Instant::now();
            while !process.was_killed() {
                // Each process at most once.
                if since.elapsed() > SOON {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        };
        let dying = |(w, pid): &Whose| match &self.workers[*w].state {
            State::Running(process) => self.pid(*w) == Some(*pid) && killed(process),
            State::Waiting | State::Restarting(_) | State::Done(_) | State::Gone => false,
        };
        self.knells.take_rung().iter().filter(|whose| dying(whose)).map(|(w, _)| *w).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::super::hear::readable;
    use super::Knells;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};
    use weir_mem::{Ledger, LedgerWriter, Region};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A thread that has armed its knell, as a worker does, and ends when it is told to; and the agent's end.
    fn worker() -> (Ledger, Sender<()>) {
        let region = Region::create("weir-test", Ledger::len_for(1)).unwrap();
        let (its, ledger) = (LedgerWriter::attach(&region, 1), Ledger::attach(&region, 1).unwrap());
        let (armed, is_armed) = channel();
        let (end, ends): (Sender<()>, Receiver<()>) = channel();
        std::thread::spawn(move || {
            armed.send(its.unwrap().arm_knell()).unwrap();
            let _ = ends.recv();
        });
        assert!(is_armed.recv().unwrap());
        (ledger, end)
    }

    fn rung(knells: &Knells) -> Vec<(usize, u32)> {
        let end = Instant::now() + PATIENCE;
        while !readable(knells.fd().unwrap()) {
            assert!(Instant::now() < end, "nobody rang");
            std::thread::yield_now();
        }
        knells.take_rung()
    }

    /// Whether anybody rings within a moment.
    fn rings_soon(knells: &Knells) -> bool {
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut fds = [PollFd::from_borrowed_fd(knells.fd().unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&moment)).unwrap() > 0
    }

    #[test]
    fn who_ends_is_heard_once_and_its_successor_as_well() {
        let mut knells = Knells::default();
        let workers: Vec<_> = (0..3).map(|_| worker()).collect();
        for (w, (ledger, _)) in workers.iter().enumerate() {
            knells.listen_for((w, 100 + w as u32), ledger.knell());
        }
        let mut ends: Vec<_> = workers.into_iter().map(|(_, end)| Some(end)).collect();
        ends[1] = None;
        assert_eq!(rung(&knells), [(1, 101)]);
        let (successor, end) = worker();
        knells.listen_for((1, 200), successor.knell());
        assert!(!rings_soon(&knells), "the others live");
        drop(end);
        assert_eq!(rung(&knells), [(1, 200)]);
        assert_eq!(knells.take_rung(), []);
        ends[0] = None;
        assert_eq!(rung(&knells), [(0, 100)]);
    }

    #[test]
    fn one_that_is_not_armed_or_no_longer_rings_once_and_keeps_nobody_busy() {
        let mut knells = Knells::default();
        let (lives, _end) = worker();
        let (dead, end) = worker();
        drop(end);
        knells.listen_for((0, 100), dead.knell());
        assert_eq!(rung(&knells), [(0, 100)]);
        knells.listen_for((1, 101), lives.knell());
        assert!(!rings_soon(&knells));
    }
}
