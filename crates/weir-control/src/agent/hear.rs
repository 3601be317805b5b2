//! What workers say, and whether what they say can be true.

use super::generation::{Answer, Answered};
use super::{Agent, AgentError, Event, Recovered, State};
use crate::voice::shortened;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::time::Duration;
use weir_runtime::link::LinkError;
use weir_runtime::spec::FromWorker;

/// What there is to hear of a worker.
pub(super) struct Heard {
    pub(super) worker: usize,
    /// It has sent a message.
    pub(super) said: bool,
    /// It has written to its standard error.
    pub(super) spoke: bool,
    /// It has ended.
    pub(super) ended: bool,
}

impl Agent {
    /// Which workers said something or ended.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Vec<Heard>, AgentError> {
        let mut fds = Vec::new();
        let mut whose = Vec::new();
        for (i, worker) in self.workers.iter().enumerate() {
            if let State::Running(p) | State::Done(p) = &worker.state {
                // A socket that the worker has closed is readable for ever: it is looked at no more.
                let hears = !self.liveness.is_deaf(i);
                let socket = if hears { p.socket() } else { p.pidfd() };
                fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
                fds.push(PollFd::from_borrowed_fd(p.pidfd(), PollFlags::IN));
                let ear = p.ear.fd().unwrap_or(p.pidfd());
                fds.push(PollFd::from_borrowed_fd(ear, PollFlags::IN));
                whose.push(i);
            }
        }
        let woken = self.wake.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        fds.extend(woken);
        let knells = self.knells.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        fds.extend(knells);
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(AgentError::Wait(e)),
        }
        if let Some(fd) = &self.wake
            && readable(fd.as_fd())
        {
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
        let heard = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let dying = if self.knells.fd().is_some() && fds.last().is_some_and(heard) {
            self.take_dying()
        } else {
            Vec::new()
        };
        let each = fds.chunks_exact(3).zip(whose);
        let told = |(f, worker): (&[PollFd<'_>], usize)| {
            let (said, ended, spoke) = (heard(&f[0]), heard(&f[1]), heard(&f[2]));
            let ended = ended || dying.contains(&worker);
            Heard { worker, said, spoke, ended }
        };
        Ok(each.map(told).collect())
    }

    /// Takes in one message; false when there was none.
    pub(super) fn listen(&mut self, w: usize) -> Result<bool, AgentError> {
        let (State::Running(process) | State::Done(process)) = &mut self.workers[w].state else {
            return Ok(false);
        };
        let message = match process.hear() {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(false),
            // It ended, as its descriptor will tell, or does not want to hear any more.
            Err(LinkError::Closed) => {
                self.liveness.deaf(w);
                return Ok(false);
            }
            Err(_) => {
                let _ = rustix::process::kill_process(process.pid(), rustix::process::Signal::KILL);
                self.convict(w, "sent nonsense to the agent");
                return Ok(false);
            }
        };
        let bytes = process.heard();
        if self.too_many_messages(w, bytes) {
            self.convict(w, "sent the agent more than it reads");
        }
        let is_nf = self.setup.workers[w].runs_nfs();
        let early = is_nf && matches!(message, FromWorker::Done) && !self.may_be_done(w);
        let worker = &mut self.workers[w];
        match message {
            FromWorker::Ready { .. } if self.liveness.is_ready(w) => {
                self.convict(w, "said twice that it is ready");
            }
            FromWorker::Ready { real_time, reads } => {
                self.trust.ready(w);
                self.liveness.ready(w);
                self.listen_for_death(w);
                let worker = &mut self.workers[w];
                let after = worker.died.take().map(|d| d.elapsed());
                // What it reads may be what it dies of.
                worker.reads = reads;
                if !reads {
                    worker.stillborn = 0;
                }
                worker.failed = None;
                worker.was_away = after;
                worker.real_time = real_time;
                self.tell_watchdog();
                self.events.push_back(Event::Ready { worker: w, real_time, after });
                self.flows_of_ready(w);
            }
            // One µNF's failing is no reason to end a graph that runs; nor is it when a successor cannot begin,
            // which is tried again like any that dies then.
            FromWorker::Failed(text)
                if self.trust.was_ready(w) && (is_nf || !self.liveness.is_ready(w)) =>
            {
                let text = shortened(text);
                worker.failed = Some(text.clone());
                self.heard_warning(w, text);
            }
            FromWorker::Failed(why) => {
                self.hear_words(w);
                let worker = self.setup.workers[w].name.clone();
                return Err(AgentError::Worker { worker, why: shortened(why) });
            }
            FromWorker::Warning(text) => self.heard_warning(w, text),
            FromWorker::Recovered { flows, refused, micros, after } => {
                let away_us = worker.was_away.map_or(0, |away| away.as_micros() as u64);
                let away_us = away_us.saturating_add(after);
                let (times, reading_us) = (1, micros);
                let recovered =
                    Recovered { times, flows, refused, reading_us, away_us, ..Default::default() };
                worker.recovered.add(recovered);
                if std::mem::take(&mut worker.reads) {
                    worker.stillborn = 0;
                }
                // It is told in one line, which a worker may say again and again.
                if worker.allowance.admits(0) {
                    self.events.push_back(Event::Recovered { worker: w, recovered });
                }
            }
            FromWorker::FirstOut { micros } => {
                let away_us = worker.was_away.map_or(0, |away| away.as_micros() as u64);
                let first_out_us = away_us.saturating_add(micros);
                worker.recovered.add(Recovered { first_out_us, ..Default::default() });
            }
            FromWorker::Panicked(text) => {
                self.crashes.panics.insert(w, shortened(text));
            }
            FromWorker::Report(reports) => worker.report = reports,
            FromWorker::Paused(held) => self.trust.rests(w, held),
            FromWorker::Adopted => self.generation.adopted(w, Ok(())),
            FromWorker::NotAdopted(why) => self.generation.adopted(w, Err(shortened(why))),
            FromWorker::HandedOver(handing) => self.generation.handed(w, handing),
            FromWorker::TookOver { refused } => match self.generation.took_over(w, refused) {
                true => self.trust.forgive_message(w),
                false => self.convict(w, "said that it had taken over what it was not given"),
            },
            FromWorker::Precopied { ticket, copied, left, walks, why } => {
                let answer = Answer { copied, left, walks, why };
                match self.generation.request.answered(w, ticket, answer) {
                    Answered::Now => self.trust.forgive_message(w),
                    Answered::Late => {}
                    Answered::Unasked => {
                        self.convict(w, "said that it had copied what it was not asked for");
                    }
                }
            }
            FromWorker::Goes { group, to } => self.flows_go(w, group, to),
            FromWorker::Moved { ticket, flows, times, left, why } => {
                self.flows_moved(w, ticket, (flows, left), &times, why);
            }
            FromWorker::Flows { ticket, totals, lines } => {
                self.flows_listed(w, ticket, totals, lines);
            }
            FromWorker::Waits { awaited, ms } => self.heard_of_waiting(w, awaited, ms),
            FromWorker::Done if early => {
                self.convict(w, "said that it was done before its input had ended");
            }
            FromWorker::Done => match std::mem::replace(&mut worker.state, State::Gone) {
                State::Running(process) => worker.state = State::Done(process),
                other => {
                    worker.state = other;
                    self.convict(w, "said twice that it was done");
                }
            },
        }
        Ok(true)
    }

    /// True when the end of the stream was the last that came by lane `l`.
    fn has_taken_end(&self, l: usize) -> bool {
        let last = self.memory.lanes[l].inspector.last_claimed();
        last.and_then(|e| e.as_marker()) == Some(weir_mem::Marker::EndOfStream)
    }

    /// True when all that gives packets to worker `w` has ended, as far as can be told.
    fn may_be_done(&self, w: usize) -> bool {
        let lanes = self.setup.lanes.iter().enumerate().filter(|(_, lane)| lane.to == w);
        lanes.into_iter().all(|(l, lane)| {
            if lane.back {
                return self.cycles.ended;
            }
            let producer = &self.memory.workers[lane.from];
            let ended = |words: Vec<u64>| words.get(producer.layout.ended).copied();
            let ended = producer.ledger.read().and_then(ended).unwrap_or(u64::MAX);
            ended & (1 << lane.source) != 0 || self.has_taken_end(l)
        })
    }
}

/// True when `fd` has something to read: for a descriptor of a process, that it has ended.
pub(super) fn readable(fd: rustix::fd::BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&zero)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}
