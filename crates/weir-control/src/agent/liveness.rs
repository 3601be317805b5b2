//! Workers that neither take nor give: caught in an endless loop, or stopped.
//!
//! A worker that commits, or takes from a ring, lives. One that does neither is asked: a command in its
//! ring, which every sound worker takes at the end of its batch, asleep or not. Who does not take it
//! within the patience is looked at from outside (state and processor time, from /proc): a process
//! that had no processor to run on is only late, all others are named and ended. What they held is
//! swept as after any death.

use super::{Agent, Event, State};
use std::time::{Duration, Instant};
use weir_runtime::spec::{EndSpec, command};

/// How often the agent looks.
const EVERY: Duration = Duration::from_millis(100);
/// How often a worker that has nothing to do is asked.
const IDLE: Duration = Duration::from_secs(2);
/// The same for an Rx service, whose work cannot be seen from outside.
const RX: Duration = Duration::from_millis(300);
/// Processor time without the end of a batch that nobody sound takes, as a part of the patience.
const SPENT: f64 = 0.5;

/// What is said of a process that somebody stopped.
pub(super) const STOPPED: &str = "was stopped";

/// What the agent knows of workers' signs of life.
pub(super) struct Liveness {
    looked: Instant,
    pulses: Vec<Pulse>,
}

#[derive(Default)]
struct Pulse {
    /// This incarnation has said that it is ready.
    ready: bool,
    /// Commits, and entries taken, at the last look.
    progress: u64,
    /// When it was asked last.
    asked: Option<Instant>,
    /// Since when it has shown no sign of life, and the processor time that it had taken by then.
    silent: Option<(Instant, Duration)>,
}

impl Liveness {
    pub(super) fn new(workers: usize) -> Self {
        let pulses = (0..workers).map(|_| Pulse::default()).collect();
        Liveness { looked: Instant::now(), pulses }
    }

    /// Worker `w` is ready; from now on it has to answer.
    pub(super) fn ready(&mut self, w: usize) {
        self.pulses[w] = Pulse { ready: true, ..Pulse::default() };
    }

    /// Worker `w` has ended.
    pub(super) fn gone(&mut self, w: usize) {
        self.pulses[w] = Pulse::default();
    }
}

/// What /proc says of a process.
struct Seen {
    /// `R`, `S`, `D`, `T`, `t`, `Z`: proc_pid_stat(5).
    state: char,
    /// Processor time, user's and system's.
    cpu: Duration,
}

impl Agent {
    /// Looks for workers that hang, now and then.
    pub(super) fn feel_pulses(&mut self) {
        let Some(patience) = self.policy.patience else { return };
        if self.liveness.looked.elapsed() < EVERY {
            return;
        }
        self.liveness.looked = Instant::now();
        for w in 0..self.workers.len() {
            if let Some(what) = self.hangs(w, patience) {
                let (State::Running(process) | State::Done(process)) = &mut self.workers[w].state
                else {
                    continue;
                };
                process.kill();
                self.liveness.gone(w);
                self.crashes.hung.insert(w, what);
                self.events.push_back(Event::Hung { worker: w, what });
            }
        }
    }

    /// What is wrong with worker `w`, when it hangs.
    fn hangs(&mut self, w: usize, patience: Duration) -> Option<&'static str> {
        let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
            return None;
        };
        let pid = process.pid();
        let progress = self.progress(w);
        let taken = self.memory.workers[w].has_taken_commands();
        let has_work = self.has_work(w);
        let is_rx = matches!(self.setup.workers[w].end, EndSpec::Rx { .. });
        let rest = if is_rx { RX } else { IDLE };
        let pulse = &mut self.liveness.pulses[w];
        if !pulse.ready {
            return None;
        }
        let moved = std::mem::replace(&mut pulse.progress, progress) != progress;
        if moved || (taken && pulse.silent.is_some()) {
            pulse.silent = None;
        }
        let Some((since, cpu)) = pulse.silent else {
            let due = has_work || pulse.asked.is_none_or(|at| at.elapsed() >= rest);
            if !moved && due {
                let cpu = look(pid).map_or(Duration::MAX, |seen| seen.cpu);
                pulse.asked = Some(Instant::now());
                pulse.silent = Some((Instant::now(), cpu));
                self.order(w, command::PING);
            }
            return None;
        };
        if since.elapsed() < patience {
            return None;
        }
        let seen = look(pid)?;
        match seen.state {
            'T' | 't' => Some(STOPPED),
            'Z' | 'X' => None,
            _ if seen.cpu.saturating_sub(cpu) >= patience.mul_f64(SPENT) => {
                Some("does not come to the end of a batch")
            }
            // Asleep, and no doorbell wakes it. A device may keep its service waiting.
            'S' if self.setup.workers[w].runs_nfs() && since.elapsed() >= 2 * patience => {
                Some("waits for something other than packets")
            }
            _ => None,
        }
    }

    /// Grows when worker `w` does anything.
    fn progress(&self, w: usize) -> u64 {
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        let taken = lanes.filter(|(lane, _)| lane.to == w).map(|(_, ring)| ring.inspector.tail());
        taken.fold(self.memory.workers[w].ledger.generation(), u64::wrapping_add)
    }

    /// True when something waits for worker `w`, as far as can be seen from outside.
    fn has_work(&self, w: usize) -> bool {
        let mut lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        lanes.any(|(lane, ring)| lane.to == w && !ring.inspector.is_empty())
    }
}

fn look(pid: rustix::process::Pid) -> Option<Seen> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    seen(&stat)
}

/// Reads a line of /proc/PID/stat. The name in parentheses may hold anything, parentheses too.
fn seen(stat: &str) -> Option<Seen> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // Fields 14 and 15, in ticks of a hundredth of a second; the state is the third.
    let mut fields = fields.skip(10).map(str::parse::<u64>);
    let ticks = fields.next()?.ok()?.saturating_add(fields.next()?.ok()?);
    Some(Seen { state, cpu: Duration::from_millis(ticks.saturating_mul(10)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_processor_time_are_read_whatever_the_process_calls_itself() {
        let line = "77 (a) R (b) T 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 99\n";
        let seen = seen(line).unwrap();
        assert_eq!((seen.state, seen.cpu), ('T', Duration::from_secs(2)));
        for cut in 0..line.len() {
            let _ = super::seen(&line[..cut]);
        }
    }

    #[test]
    fn this_process_runs() {
        let seen = look(rustix::process::getpid()).unwrap();
        assert!(matches!(seen.state, 'R' | 'S' | 'D'), "{}", seen.state);
    }
}
