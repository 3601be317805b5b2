//! What follows a worker's death: mending, and whether and when its successor starts.

use super::absent::STANDS_IN;
use super::crash::Cause;
use super::hear::readable;
use super::{Agent, AgentError, Event, State};
use crate::process::{Beginning, Process};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};
use weir_device::{leaves_socket, unread_packets};
use weir_mem::fault::Step;
use weir_runtime::spec::{EndSpec, command};

/// A worker that dies more often than this before it is ready is given up: restarting will not help.
const STILLBORN: u32 = 5;
/// One that died and then so often before it was ready again begins without what it remembered: that
/// may be what kills it.
const FORGET: u32 = 2;
/// One whose µNFs crash so often in a row, each time soon after the one before, begins so too: poison is
/// two crashes a packet, so this is more than two packets' doing.
const CRASHES: u32 = 5;

impl Agent {
    /// A process has ended.
    pub(super) fn bury(&mut self, w: usize) -> Result<(), AgentError> {
        let noticed = Instant::now();
        // What it said last may still be in the socket.
        while let State::Running(p) | State::Done(p) = &self.workers[w].state
            && readable(p.socket())
            && self.listen(w)?
        {}
        let was_ready = self.liveness.is_ready(w);
        // Not before: what it said when it was ready is judged so.
        self.liveness.gone(w);
        // What it had said of its orders is an answer; what it had not it does not say any more.
        self.flows_of_dead(w);
        self.hear_last_words(w);
        let worker = &mut self.workers[w];
        let state = std::mem::replace(&mut worker.state, State::Gone);
        let (mut process, was_done) = match state {
            State::Running(p) => (p, false),
            State::Done(p) => (p, true),
            other => {
                worker.state = other;
                return Ok(());
            }
        };
        self.workers[w].real_time = false;
        // Before it is waited for, and made to stand in nobody's way.
        self.tell_watchdog();
        let (mut cause, mut killed) = (Cause::Elsewhere, false);
        let how = match process.wait() {
            Ok(status) => {
                killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw());
                let how = how_ended(status);
                cause = self.examine(w, status, &how);
                if status.signal() == Some(rustix::process::Signal::SYS.as_raw()) {
                    // What a worker that tries such things has written is not to be believed.
                    self.accuse(w, "tried what its sandbox forbids");
                }
                // Its successor must not be taken for who wrote that.
                self.look_at_promises(w);
                how
            }
            Err(e) => e.to_string(),
        };
        let offence = self.trust.offence(w).is_some();
        let damage = self.mend(w, offence)?;
        let mended = noticed.elapsed();
        let quarantined =
            (offence && self.quarantine(w)) || (cause == Cause::Hung && self.hangs_again(w));
        // A named one has to do what was left undone, whatever it said.
        let was_done = was_done && !offence;
        let worker = &mut self.workers[w];
        worker.lost += damage.lost;
        if !was_done {
            let again = worker.last_death.is_some_and(|d| noticed - d < self.policy.window);
            worker.deaths = if again { worker.deaths + 1 } else { 1 };
            worker.last_death = Some(noticed);
            // Who was ready and is killed by somebody has not died of what it had still to read.
            if std::mem::take(&mut worker.reads) && cause == Cause::Elsewhere {
                worker.stillborn = 0;
            }
            worker.stillborn += 1;
            worker.crashes = match (cause != Cause::Elsewhere, again) {
                (true, true) => worker.crashes + 1,
                (true, false) => 1,
                (false, _) => 0,
            };
            // What an offender wrote down is as little to be believed as the rest.
            if offence {
                self.forget(w, "as that is not to be believed");
            } else if worker.stillborn > FORGET {
                self.forget(w, "as whoever takes it over dies");
            } else if worker.crashes >= CRASHES {
                self.forget(w, "as it crashes with it again and again");
            }
            let worker = &mut self.workers[w];
            if quarantined {
                (worker.stillborn, worker.deaths) = (0, 0);
            }
            self.give_up_stillborn(w, &how)?;
            self.keep_socket(w, process, killed && !offence);
            self.workers[w].died = Some(noticed);
            self.workers[w].state = State::Restarting(noticed + self.delay(w));
            let renewed = std::mem::take(&mut self.workers[w].renewed);
            // Whatever else it died of would go along.
            if was_ready && killed && cause == Cause::Elsewhere && !offence && !renewed {
                self.leave_after_death(w, noticed);
            }
        } else {
            self.memory.forget_stack(w);
            self.flows_of_gone(w);
        }
        let (lost, swept) = (damage.lost, damage.swept);
        self.events.push_back(Event::Died { worker: w, how, lost, swept, mended });
        Ok(())
    }
}

impl Agent {
    /// Starts successors whose time has come; how long to wait for the next one, `timeout` at most.
    pub(super) fn restart_due(&mut self, timeout: Duration) -> Result<Duration, AgentError> {
        let now = Instant::now();
        let mut timeout = if self.start_waiting()? { Duration::ZERO } else { timeout };
        for w in 0..self.workers.len() {
            let State::Restarting(at) = self.workers[w].state else { continue };
            if at <= now {
                // What its predecessor was told and did not take is over.
                self.memory.workers[w].forget_commands();
                self.trust.expects_nothing(w);
                self.generation.expects_nothing(w);
                if self.stopping {
                    self.order(w, command::STOP);
                }
                self.tell_of_cycles(w);
                self.memory.begin_life(w);
                // A fault that a test asked for is the first process's alone; one that only a successor comes by is the first one's.
                let is_first = self.workers[w].restarts == 0;
                let fault = self.setup.workers[w].fault;
                let of_successors = [Step::Recovering, Step::ReadingOn].map(|step| step as u32);
                let fault = fault.filter(|(step, _)| is_first && of_successors.contains(step));
                let socket = self.workers[w].left.take();
                if socket.is_none() && self.setup.packets(w).is_some() {
                    // Before it has one: should it die before it has said where in its ring it is, nobody takes the old one's
                    // place for that.
                    let unread = std::mem::take(&mut self.workers[w].unread);
                    self.memory.begin_at_new_socket(w, unread);
                }
                // Should there be no process this time, it is the next one's.
                let kept = socket.as_ref().and_then(|socket| socket.try_clone().ok());
                self.workers[w].failed = None;
                let reserve = self.out_of_reserve(w);
                let (programs, setup, memory) = (&self.programs, &self.setup, &self.memory);
                let started = match reserve {
                    Some(process) => process.take_over(programs, setup, memory, w, fault),
                    None => {
                        let how = Beginning { fault, socket, standby: false };
                        Process::start(programs, setup, memory, w, how)
                    }
                };
                let process = match started {
                    Ok(process) => process,
                    Err(e) => {
                        self.workers[w].left = kept;
                        self.not_started(w, e.to_string())?;
                        continue;
                    }
                };
                self.workers[w].state = State::Running(process);
                self.liveness.started(w);
                self.workers[w].restarts += 1;
                self.tell_watchdog();
            } else {
                timeout = timeout.min(at - now);
                if self.stand_in(w) {
                    timeout = timeout.min(STANDS_IN);
                }
            }
        }
        Ok(timeout)
    }

    /// There is no process for a successor of worker `w` (no memory, no descriptors): as if it had died at once.
    pub(super) fn not_started(&mut self, w: usize, why: String) -> Result<(), AgentError> {
        let now = Instant::now();
        let worker = &mut self.workers[w];
        worker.stillborn += 1;
        worker.deaths += 1;
        worker.last_death = Some(now);
        self.give_up_stillborn(w, &why)?;
        self.events.push_back(Event::Warning { worker: w, text: why });
        self.workers[w].state = State::Restarting(now + self.delay(w));
        Ok(())
    }

    /// When worker `w` has died too often before it was ready, a drain takes its place. There is none for who
    /// runs no µNFs, and nothing to go on with when it was never ready: that ends the graph.
    fn give_up_stillborn(&mut self, w: usize, how: &str) -> Result<(), AgentError> {
        let worker = &mut self.workers[w];
        if worker.stillborn <= STILLBORN {
            return Ok(());
        }
        let setup = &self.setup.workers[w];
        let drains = setup.end == EndSpec::Drain;
        if (setup.runs_nfs() || drains) && self.trust.was_ready(w) {
            (worker.stillborn, worker.deaths) = (0, 0);
            if !drains {
                self.close(w);
            }
            return Ok(());
        }
        let how = worker.failed.as_deref().unwrap_or(how);
        let why = format!("it dies before it is ready, again and again ({how})");
        Err(AgentError::Worker { worker: setup.name.clone(), why })
    }

    /// How long after its last death worker `w` is started again.
    fn delay(&self, w: usize) -> Duration {
        let deaths = self.workers[w].deaths;
        if deaths < 2 {
            return Duration::ZERO;
        }
        (self.policy.delay * (1 << (deaths - 2).min(16))).min(self.policy.longest)
    }

    /// What waits for worker `w` in the packet socket of its process, which has ended, is its successor's: nothing that came by the
    /// interface is lost with it. Not if it may die of that: who was not `killed` has to have come further than the one before,
    /// and be ready again. Else what waits is counted.
    fn keep_socket(&mut self, w: usize, process: Process, killed: bool) {
        let place = self.memory.place(w);
        let worker = &mut self.workers[w];
        let further = worker.left_at.replace(place) != Some(place);
        let may = (killed || further) && worker.stillborn <= FORGET;
        let packets = process.into_packets().filter(|_| leaves_socket(&place));
        match packets {
            Some(packets) if may => worker.left = Some(packets),
            Some(packets) => worker.unread += unread_packets(packets, &place),
            None => {}
        }
    }

    /// The successor of worker `w` begins with nothing.
    fn forget(&mut self, w: usize, why: &str) {
        self.workers[w].crashes = 0;
        let (kept, replica) = (self.memory.clear_kept(w), self.memory.clear_replica(w));
        // Of a service it was whose datagrams had not come whole.
        if (kept || replica) && self.setup.workers[w].runs_nfs() {
            self.workers[w].forgotten += 1;
            let name = &self.setup.workers[w].name;
            let text = format!("what the NFs of {name} remembered is dropped, {why}");
            self.events.push_back(Event::Warning { worker: w, text });
        }
    }
}

/// How a worker ended, in words.
fn how_ended(status: std::process::ExitStatus) -> String {
    // The kernel's way to end a process that its system-call filter forbids to live.
    if status.signal() == Some(rustix::process::Signal::SYS.as_raw()) {
        return format!("killed by the sandbox: system call not allowed; {status}");
    }
    status.to_string()
}
