//! The machine that is measured: what it is, and in which mood.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Exchanges per measurement of the round trip.
const EXCHANGES: u64 = 20_000;

/// What a measurement depends on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Online cores.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Whether this process group was put before others on the machine.
    pub favoured: bool,
}

impl Machine {
    /// Looks, and asks the kernel to favour this session: it groups processes by terminal, so that
    /// `nice` alone does not protect a measurement from a compile in another terminal.
    pub fn prepare() -> Self {
        let favoured = std::fs::write("/proc/self/autogroup", "-20").is_ok();
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
        Machine {
            processor: model.unwrap_or("unknown").to_owned(),
            cores: crate::cores::online(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            favoured,
        }
    }
}

/// Binds this thread to a core.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        set.set(core);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Nanoseconds for a word to go from one core to the other and back. It changes within seconds on
/// virtual machines; samples are comparable only where it is alike.
pub fn round_trip(a: usize, b: usize) -> f64 {
    let ball = AtomicU64::new(0);
    let play = |core: usize, odd: u64| {
        pin(core);
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
