//! The machine that is measured: what it is.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;

/// What a measurement depends on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Online cores.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// The processor's clock in MHz, as it is without boost where that is told; 0: not told.
    #[serde(default)]
    pub mhz: u32,
    /// Memory, in whole GiB.
    #[serde(default)]
    pub memory_gib: u32,
    /// NUMA nodes; 0: not told.
    #[serde(default)]
    pub numa_nodes: u32,
}

impl Machine {
    /// Looks at it.
    pub fn look() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
        Machine {
            processor: model.unwrap_or("unknown").to_owned(),
            cores: crate::cores::online(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            mhz: clock(&cpuinfo),
            memory_gib: memory_gib(&read("/proc/meminfo")),
            numa_nodes: numa_nodes(),
        }
    }
}

impl Machine {
    /// What it is, in a line.
    pub fn line(&self) -> String {
        let of = |value: u32, unit: &str| match value {
            0 => format!("{unit} not told"),
            value => format!("{value} {unit}"),
        };
        format!(
            "{}, {} cores, {}, {}, {}, kernel {}",
            self.processor,
            self.cores,
            of(self.mhz, "MHz"),
            of(self.memory_gib, "GiB"),
            of(self.numa_nodes, "NUMA nodes"),
            self.kernel
        )
    }
}

/// What does not change from one moment to the next: the base clock; where clocks are not governed here, the one that is listed.
fn clock(cpuinfo: &str) -> u32 {
    let governed = Path::new("/sys/devices/system/cpu/cpu0/cpufreq");
    if governed.exists() {
        let khz = std::fs::read_to_string(governed.join("base_frequency"));
        return khz.ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0) / 1000;
    }
    let listed = cpuinfo.lines().find_map(|l| l.strip_prefix("cpu MHz")?.split(": ").nth(1));
    listed.and_then(|text| text.trim().parse::<f64>().ok()).unwrap_or(0.0) as u32
}

fn memory_gib(meminfo: &str) -> u32 {
    let total = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    (kib.unwrap_or(0.0) / f64::from(1 << 20)).round() as u32
}

fn numa_nodes() -> u32 {
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node = |name: &str| {
        name.strip_prefix("node")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    entries.filter(|e| e.file_name().to_str().is_some_and(is_node)).count() as u32
}

/// While this is there the thread that made it is bound to a core.
pub struct Pinned {
    before: Option<CpuSet>,
}

/// Binds this thread to a core, for as long as what is returned is there: whatever comes after, and every process it starts, has
/// its cores again.
#[must_use = "the thread is let go as soon as this is dropped"]
pub fn pin(core: usize) -> Pinned {
    let before = sched_getaffinity(None).ok();
    let mut set = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        set.set(core);
        let _ = sched_setaffinity(None, &set);
    }
    Pinned { before }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = sched_setaffinity(None, &before);
        }
    }
}

/// The clock rate that the kernel states, in MHz: on x86 that of the time stamp counter where clock rates do not
/// change, as on virtual machines. Where none is stated a cycle is a nanosecond.
pub fn mhz() -> f64 {
    stated_mhz().unwrap_or(1_000.0)
}

fn stated_mhz() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let stated = text.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split(": ").nth(1));
    stated?.trim().parse().ok()
}

/// Of which clock [`mhz`] is, for findings with cycles in them.
pub fn clock_told() -> String {
    match stated_mhz() {
        Some(mhz) => format!("the clock of {mhz:.0} MHz that the kernel states"),
        None => "1,000 MHz, as the kernel states no clock: they are nanoseconds".to_owned(),
    }
}

/// Processor time that all threads of these processes have had so far, in nanoseconds, by the scheduler's own account; `None` where it keeps none.
pub fn cpu_time_ns(pids: impl IntoIterator<Item = u32>) -> Option<u64> {
    let mut sum = 0_u64;
    for pid in pids {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        for thread in threads.flatten() {
            // A thread that ends meanwhile takes what it had with it.
            let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else {
                continue;
            };
            sum = sum.saturating_add(text.split_whitespace().next()?.parse().ok()?);
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    #[test]
    fn processor_time_is_that_of_all_threads_and_grows_with_work() {
        let own = || cpu_time_ns([std::process::id()]);
        let Some(before) = own() else {
            crate::say::print_line!("skipped: the kernel keeps no account of processor time");
            return;
        };
        // Work of another thread of this process counts, until it ends.
        let (stop, worked) = (std::sync::atomic::AtomicBool::new(false), 5_000_000);
        let grew = std::thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let end = Instant::now() + std::time::Duration::from_secs(20);
            let mut grew = 0;
            while grew < worked && Instant::now() < end {
                grew = own().unwrap_or(0).saturating_sub(before);
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            grew
        });
        assert!(grew >= worked, "{grew} ns in 20 s");
        assert_eq!(cpu_time_ns([0]), None, "no such process");
    }

    #[test]
    fn a_machine_is_told_in_a_line_with_all_that_is_known() {
        let mut machine = Machine {
            processor: "a processor".to_owned(),
            cores: 2,
            kernel: "6.1".to_owned(),
            mhz: 2_600,
            memory_gib: 8,
            numa_nodes: 1,
        };
        assert_eq!(
            machine.line(),
            "a processor, 2 cores, 2600 MHz, 8 GiB, 1 NUMA nodes, kernel 6.1"
        );
        machine.mhz = 0;
        assert!(machine.line().contains("MHz not told"));
    }

    #[test]
    fn a_thread_that_was_bound_has_its_cores_again() {
        let cores = || {
            let set = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect::<Vec<_>>()
        };
        let before = cores();
        {
            let _pinned = pin(before[0]);
            assert_eq!(cores(), before[..1]);
        }
        assert_eq!(cores(), before);
    }
}
