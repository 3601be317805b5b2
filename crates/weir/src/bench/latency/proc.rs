//! What /proc says of a process: whether it sleeps, and what it has cost.

use super::LatencyError;
use std::path::Path;
use std::time::{Duration, Instant};

/// A worker that has nothing to do is asleep long before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the task whose stat file this is sleeps.
pub fn wait_asleep(stat: &Path) -> Result<(), LatencyError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(stat).unwrap_or_default();
        if is_asleep(&text) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(LatencyError::Awake);
        }
    }
}

/// Reads a line of proc_pid_stat(5); the name in parentheses may hold anything.
fn is_asleep(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

/// Processor time of a process with one thread, from its schedstat: the first word, in nanoseconds.
pub fn spent(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_asleep_whatever_it_calls_itself() {
        assert!(is_asleep("77 (a) S 1 2 3"));
        assert!(!is_asleep("77 (a) S ) R 1 2 3"));
        assert!(!is_asleep(""));
    }

    #[test]
    fn this_process_has_cost_something() {
        assert!(spent(std::process::id()).unwrap() > Duration::ZERO);
    }
}
