//! The audit of a domain, seen from the agent: all its workers rest, each buffer's place is found out,
//! and they go on.

use crate::agent::hear::readable;
use crate::agent::liveness::{SLEEPS, STARVED, STOPPED, look};
use crate::agent::{Agent, AgentError, Event, State};
use crate::audit::audit;
use crate::census::Census;
use crate::places;
use crate::recover::{Damage, recover};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use weir_runtime::spec::command;

/// How long a worker may take to come to rest, at most.
const LONGEST: Duration = Duration::from_secs(2);
/// Processor time without coming to rest that no sound worker takes, as a part of that. Who had less was
/// only late.
const SPENT: f64 = 0.25;

/// How long a worker may take to come to rest where workers that hang are ended after `patience`: as long
/// as one that hangs is left alone at most ([`crate::agent::liveness`]), so whoever takes longer would be
/// ended anyhow.
fn rest(patience: Option<Duration>) -> Duration {
    patience.map_or(LONGEST, |patience| patience.saturating_mul(2).min(LONGEST))
}

impl Agent {
    /// Lets all workers of domain `d` rest, finds out where each buffer is, and lets them go on.
    /// Says how many buffers were given back.
    pub(super) fn audit(&mut self, d: usize) -> Result<u64, AgentError> {
        let (mut resting, mut spent) = (Vec::new(), Vec::new());
        for w in 0..self.workers.len() {
            if !self.setup.workers[w].is_in(d) {
                continue;
            }
            self.trust.records[w].resting = None;
            let running = matches!(self.workers[w].state, State::Running(_) | State::Done(_));
            if running && self.trust.records[w].offence.is_none() {
                self.order(w, command::PAUSE);
                if !self.liveness.is_ready(w) {
                    // It has taken nothing yet, and will rest before it does.
                    self.trust.records[w].resting = Some(Vec::new());
                    self.trust.records[w].stale += 1;
                }
                resting.push(w);
                spent.push(self.spent(w));
            }
        }
        let most = rest(self.policy.patience);
        self.wait_for_rest(&resting, most)?;
        for (&w, spent) in resting.iter().zip(spent) {
            if self.trust.records[w].resting.is_none() {
                self.end_restless(w, spent, most);
            }
        }
        resting.retain(|&w| self.trust.records[w].resting.is_some());
        let held: Vec<(usize, Vec<u32>)> = resting
            .iter()
            .map(|&w| (w, self.trust.records[w].resting.take().unwrap_or_default()))
            .collect();
        let audited = audit(&self.setup, &mut self.memory, d, &held);
        places::mend(&self.setup, &self.memory, d, |w| resting.contains(&w));
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

    /// Processor time that worker `w` has had.
    fn spent(&self, w: usize) -> Option<Duration> {
        let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
            return None;
        };
        look(process.pid()).map(|seen| seen.cpu)
    }

    /// Worker `w` did not come to rest, and must not go on while its memory is put right. It is an
    /// offender only if it could have: not when it died, was stopped, had no processor since (`spent` it
    /// had had before), or sleeps inside a batch, which ends it as it does without an audit.
    fn end_restless(&mut self, w: usize, spent: Option<Duration>, most: Duration) {
        let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
            return;
        };
        if !readable(process.pidfd()) && self.trust.records[w].offence.is_none() {
            let seen = look(process.pid());
            let before = spent.unwrap_or_default();
            let is_idle = |cpu: Duration| cpu.saturating_sub(before) < most.mul_f64(SPENT);
            match seen {
                Some(seen) if matches!(seen.state, 'T' | 't') => self.end_hung(w, STOPPED),
                Some(seen) if matches!(seen.state, 'R' | 'D') && is_idle(seen.cpu) => {
                    self.end_hung(w, STARVED);
                }
                Some(seen) if seen.state == 'S' && is_idle(seen.cpu) => self.end_hung(w, SLEEPS),
                _ if self.setup.workers[w].runs_nfs() => {
                    self.convict(w, "did not rest when it was told to");
                }
                _ => self.end_hung(w, "did not rest when it was told to"),
            }
        }
        if self.trust.records[w].offence.is_none() {
            // What it had committed is published before anybody says where its buffers are.
            let damage = recover(&self.setup, &mut self.memory, w);
            self.trust.records[w].mended = Some(damage);
        }
    }

    /// Mends the graph after the death of `w`, which nobody was named for.
    pub(super) fn recover(&mut self, w: usize) -> Damage {
        let damage = recover(&self.setup, &mut self.memory, w);
        let before = self.trust.records[w].mended.take();
        let before = before.unwrap_or(Damage { lost: 0, swept: 0 });
        Damage { lost: before.lost + damage.lost, swept: before.swept + damage.swept }
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
            // Nonsense that nobody could be named for: what was put right then may be in disorder again.
            self.trust.tainted[d] |= self.trust.suspected[d];
            if self.trust.tainted[d] {
                let _ = self.audit(d);
            }
        }
    }

    fn wait_for_rest(&mut self, workers: &[usize], most: Duration) -> Result<(), AgentError> {
        // Time in which the agent itself stood still does not count.
        let mut left = most;
        while !left.is_zero() {
            let mut fds = Vec::new();
            let mut whose = Vec::new();
            // Who has no control socket any more will not answer; if it is dying, it is waited for.
            let waits = |w: &&usize| {
                self.trust.records[**w].resting.is_none() && !self.liveness.is_long_deaf(**w)
            };
            for &w in workers.iter().filter(waits) {
                if let State::Running(p) | State::Done(p) = &self.workers[w].state
                    && !readable(p.pidfd())
                {
                    let hears = !self.liveness.is_deaf(w);
                    let socket = if hears { p.socket() } else { p.pidfd() };
                    fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
                    fds.push(PollFd::from_borrowed_fd(p.pidfd(), PollFlags::IN));
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
            let spoken = whose.clone();
            let heard: Vec<usize> = fds
                .chunks_exact(2)
                .zip(whose)
                .filter(|(f, _)| !f[0].revents().is_empty())
                .map(|f| f.1)
                .collect();
            for w in heard {
                self.listen(w)?;
            }
            // One that waits until it is read what it wrote comes to rest then.
            spoken.into_iter().for_each(|w| self.hear_words(w));
            if let Some(dog) = &self.watchdog {
                dog.beat();
            }
            left = left.saturating_sub(before.elapsed().min(Duration::from_millis(20)));
        }
        Ok(())
    }
}
