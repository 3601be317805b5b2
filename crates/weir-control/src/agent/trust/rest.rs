//! The audit of a domain, seen from the agent: all its workers rest, each buffer's place is found out,
//! and they go on.

use crate::agent::hear::readable;
use crate::agent::{Agent, AgentError, Event, State};
use crate::audit::audit;
use crate::census::Census;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use weir_runtime::spec::command;

/// How long a worker may take to come to rest.
const REST: Duration = Duration::from_secs(2);

impl Agent {
    /// Lets all workers of domain `d` rest, finds out where each buffer is, and lets them go on.
    /// Says how many buffers were given back.
    pub(super) fn audit(&mut self, d: usize) -> Result<u64, AgentError> {
        let mut resting = Vec::new();
        for w in 0..self.workers.len() {
            if !self.setup.workers[w].is_in(d) {
                continue;
            }
            self.trust.records[w].resting = None;
            let running = matches!(self.workers[w].state, State::Running(_) | State::Done(_));
            if running && self.trust.records[w].offence.is_none() {
                self.order(w, command::PAUSE);
                resting.push(w);
            }
        }
        self.wait_for_rest(&resting)?;
        resting.retain(|&w| {
            if self.trust.records[w].resting.is_some() {
                return true;
            }
            // Dead, or as good as: it must not go on while its memory is put right.
            self.convict(w, "did not rest when it was told to");
            if let State::Running(process) | State::Done(process) = &mut self.workers[w].state {
                process.kill();
            }
            false
        });
        let held: Vec<(usize, Vec<u32>)> = resting
            .iter()
            .map(|&w| (w, self.trust.records[w].resting.take().unwrap_or_default()))
            .collect();
        let audited = audit(&self.setup, &mut self.memory, d, &held);
        self.trust.remember(&self.setup, &self.memory, d);
        for w in resting {
            // What it saw until now has been dealt with.
            let worker = &self.memory.workers[w];
            if let Some(words) = worker.ledger.read() {
                let said = words.get(worker.layout.nonsense..worker.layout.nodes);
                self.trust.records[w].answered = said.unwrap_or_default().to_vec();
                let doubled = words.get(worker.layout.doubled).copied().unwrap_or(0);
                self.trust.records[w].doubled(doubled);
            }
            let refill = self.memory.pools.iter().any(|p| p.worker == w && p.domain == d);
            self.order(w, if refill { command::REFILL } else { command::RESUME });
        }
        self.events.push_back(Event::Audited { domain: d, voided: audited.voided });
        Ok(audited.freed)
    }

    /// Looks once more at the end, and audits domains somebody of which was named.
    pub(in crate::agent) fn last_look(&mut self) {
        // Errors of workers are of no interest any more.
        let _ = self.look_now();
        for w in 0..self.workers.len() {
            if self.trust.offence(w).is_some() {
                self.workers[w].state = State::Gone;
                let _ = self.mend(w, true);
            }
        }
        for d in 0..self.setup.domains.len() {
            // Who was put into a domain of its own is not trusted with what it left there.
            if d > 0 && !Census::of_domain(&self.setup, &self.memory, d).is_clean() {
                for w in (0..self.workers.len()).filter(|&w| self.setup.workers[w].domain == d) {
                    if self.setup.workers[w].runs_nfs() {
                        self.trust.records[w].count += 1;
                        let what = "left its domain's buffers in disorder".to_owned();
                        self.events.push_back(Event::Offence { worker: w, what });
                    }
                }
                self.trust.tainted[d] = true;
            }
            if self.trust.tainted[d] {
                let _ = self.audit(d);
            }
        }
    }

    fn wait_for_rest(&mut self, workers: &[usize]) -> Result<(), AgentError> {
        // Time in which the agent itself stood still does not count.
        let mut left = REST;
        while !left.is_zero() {
            let mut fds = Vec::new();
            let mut whose = Vec::new();
            for &w in workers.iter().filter(|&&w| self.trust.records[w].resting.is_none()) {
                if let State::Running(p) | State::Done(p) = &self.workers[w].state
                    && !readable(p.pidfd())
                {
                    fds.push(PollFd::from_borrowed_fd(p.socket(), PollFlags::IN));
                    whose.push(w);
                }
            }
            if whose.is_empty() {
                return Ok(());
            }
            let before = Instant::now();
            let turn = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            if let Err(e) = poll(&mut fds, Some(&turn))
                && e != rustix::io::Errno::INTR
            {
                return Err(AgentError::Wait(e));
            }
            let heard: Vec<usize> = fds
                .iter()
                .zip(whose)
                .filter(|(f, _)| !f.revents().is_empty())
                .map(|f| f.1)
                .collect();
            for w in heard {
                self.listen(w)?;
            }
            if let Some(dog) = &self.watchdog {
                dog.beat();
            }
            left = left.saturating_sub(
                before.elapsed().clamp(Duration::from_micros(100), Duration::from_millis(20)),
            );
        }
        Ok(())
    }
}
