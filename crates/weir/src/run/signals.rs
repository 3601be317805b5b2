//! The operator's signals.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The same signal once more within this time is the same wish: `timeout` and terminals send it to the process, and to its group as well.
const AT_ONCE: Duration = Duration::from_millis(200);

/// SIGINT and SIGTERM: the first drains, the second ends at once. SIGHUP asks for the policy to be read again; from a
/// terminal that goes away it drains, however often it comes.
pub(super) struct Signals {
    ends: Arc<AtomicUsize>,
    hang_up: Arc<AtomicBool>,
    terminals: Vec<OwnedFd>,
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        let signals =
            Signals { ends: Arc::default(), hang_up: Arc::default(), terminals: terminals() };
        if !ignores_hang_up() {
            let told = signals.hang_up.clone();
            signal_hook::flag::register(signal_hook::consts::SIGHUP, told)?;
        }
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let (mut read, write) = std::os::unix::net::UnixStream::pair()?;
            signal_hook::low_level::pipe::register(signal, write)?;
            let count = signals.ends.clone();
            std::thread::Builder::new().name("weir-signals".into()).spawn(move || {
                let (mut byte, mut last) = ([0], None::<Instant>);
                while matches!(std::io::Read::read(&mut read, &mut byte), Ok(1)) {
                    if last.is_none_or(|last| last.elapsed() >= AT_ONCE) {
                        last = Some(Instant::now());
                        // Relaxed: a counter, no data behind it.
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })?;
        }
        Ok(signals)
    }

    /// How often it was asked to end.
    pub(super) fn count(&self) -> usize {
        self.interrupts().count()
    }

    /// The same, for somebody else to look at.
    pub(super) fn interrupts(&self) -> Interrupts {
        Interrupts(self.ends.clone())
    }

    /// What SIGHUP has come for since this was asked last.
    pub(super) fn hung_up(&self) -> HangUp {
        // Relaxed: a flag, no data behind it.
        match self.hang_up.swap(false, Ordering::Relaxed) {
            false => HangUp::No,
            true if self.terminals.iter().any(has_gone) => HangUp::Terminal,
            true => HangUp::Asked,
        }
    }
}

/// How often the run was asked to end.
pub(super) struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    pub(super) fn count(&self) -> usize {
        // Relaxed: a counter, no data behind it.
        self.0.load(Ordering::Relaxed)
    }
}

/// What a SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HangUp {
    /// None came.
    No,
    /// The terminal that weir was started from has gone.
    Terminal,
    /// Somebody wants the policy to be read again.
    Asked,
}

/// The standard streams that are terminals.
fn terminals() -> Vec<OwnedFd> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let all = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let terminals = all.into_iter().filter(IsTerminal::is_terminal);
    terminals.filter_map(|fd| fd.try_clone_to_owned().ok()).collect()
}

/// Nobody is at the other end any more.
fn has_gone(terminal: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(terminal, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP)
}

/// Whether weir was started so that it outlives its terminal, as `nohup` does: that is to stay so.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal_hook::consts::SIGHUP - 1)) != 0)
}
