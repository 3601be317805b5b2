//! The operator's signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// SIGINT and SIGTERM: the first drains, the second ends at once. SIGHUP drains, however often it comes:
/// a terminal that goes away may send several.
pub(super) struct Signals {
    ends: Arc<AtomicUsize>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        let signals = Signals { ends: Arc::default(), hang_up: Arc::default() };
        if !ignores_hang_up() {
            let told = signals.hang_up.clone();
            signal_hook::flag::register(signal_hook::consts::SIGHUP, told)?;
        }
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let count = signals.ends.clone();
        std::thread::Builder::new().name("weir-signals".into()).spawn(move || {
            let mut byte = [0];
            let mut read = read;
            while matches!(std::io::Read::read(&mut read, &mut byte), Ok(1)) {
                // Relaxed: a counter, no data behind it.
                count.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(signals)
    }

    pub(super) fn count(&self) -> usize {
        self.ends.load(Ordering::Relaxed)
    }

    pub(super) fn hung_up(&self) -> bool {
        // Relaxed: a flag, no data behind it.
        self.hang_up.load(Ordering::Relaxed)
    }
}

/// Whether weir was started so that it outlives its terminal, as `nohup` does: that is to stay so.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal_hook::consts::SIGHUP - 1)) != 0)
}
