//! Workers that neither take nor give: caught in an endless loop, or stopped.
//!
//! A worker that commits, or takes from a ring, lives. One that does neither is asked: a command in its
//! ring, which every sound worker takes at the end of its batch, asleep or not. Who does not take it
//! within the patience is looked at from outside (state and processor time, from /proc): a process
//! that had no processor to run on is only late, all others are named and ended. What they held is
//! swept as after any death.
//!
//! Commits and answers are a worker's own word. A worker of µNFs that has packets to take and room for
//! them must take some, and pass on how far its sources have come: one that answers and does neither is
//! ended like one that hangs. So is one that takes from some of its rings and passes another over. Who hangs
//! again and again is replaced by a drain, as who is named again and again. Two more that would not be noticed otherwise are ended here: who is not ready in time after its start (or is stopped
//! meanwhile), and who closed its control socket.

use super::duty::Duty;
use super::hear::readable;
use super::{Agent, Event, State};
use std::time::{Duration, Instant};
use weir_packet::BATCH;
use weir_runtime::spec::{EndSpec, command};

/// How often the agent looks.
const EVERY: Duration = Duration::from_millis(100);
/// How often a worker that has nothing to do is asked.
const IDLE: Duration = Duration::from_secs(2);
/// The same for an Rx service, whose work cannot be seen from outside.
const RX: Duration = Duration::from_millis(300);
/// Processor time without the end of a batch that nobody sound takes, as a part of the patience.
const SPENT: f64 = 0.5;

/// So many answers, and nothing done, prove that a worker will not: between the first and the second
/// it has looked into its rings, and what the agent saw there before it asked was in them.
const ANSWERS: u32 = 2;
/// Batches of each source that a worker takes while it passes over a lane that is its next: a sound one asks
/// all sources in turn, so it takes none before it has come round.
const ROUNDS: u64 = 64;
/// So many times as long as others a worker may take while flows are asked for or moved, for ten seconds at most.
const WALKS: u32 = 8;
/// What is said of one that does so.
const PASSES_OVER: &str = "takes from its other rings and passes one over";
/// What is said of one that is asleep inside a batch. Only its doorbell may keep a worker waiting.
pub(super) const SLEEPS: &str = "waits for something other than packets";
/// How long a worker without a control socket may take to end: a dying one closes it first.
const DEAF: Duration = Duration::from_secs(1);

/// A successor may take so many times as long as the first process of its worker took until it was ready,
const AS_FIRST: u32 = 4;
/// and so much besides: the first was not measured on the machine as it is now.
const BESIDES: Duration = Duration::from_secs(1);
/// What it reads at least in a second of what is remembered for it, which the first did not have to.
const READS: u64 = 32 << 20;

/// What is said of a process that somebody stopped.
pub(super) const STOPPED: &str = "was stopped";
/// What is said of one that did not come to rest for want of a processor.
pub(super) const STARVED: &str = "had no processor to come to rest on";
/// What is said of one that was not ready in time.
const UNREADY: &str = "was not ready in time";

/// True when a µNF that was given a packet is to blame for hanging so.
pub(super) fn is_of_packet(what: &str) -> bool {
    !matches!(what, STOPPED | STARVED | UNREADY)
}

/// How long a successor may be at work, or asleep, until it is ready, when its worker's first process took `first`
/// and so many bytes are remembered for it.
fn successors_patience(first: Duration, remembered: u64) -> Duration {
    let reading = Duration::from_millis(remembered.saturating_mul(1000) / READS);
    BESIDES + first.saturating_mul(AS_FIRST) + reading
}

/// What the agent knows of workers' signs of life.
pub(super) struct Liveness {
    looked: Instant,
    pulses: Vec<Pulse>,
    /// By worker: how long its first process took until it was ready.
    firsts: Vec<Option<Duration>>,
}

#[derive(Default)]
struct Pulse {
    /// When this incarnation was started.
    started: Option<Instant>,
    /// Since when it has been ready, by its word.
    ready: Option<Instant>,
    /// For how long it has been seen stopped before it was; time in which the agent itself stood still
    /// does not count.
    stopped: Duration,
    /// For how long it has been seen asleep before it was; look by look as well.
    asleep: Duration,
    /// Since when its control socket has been closed.
    deaf: Option<Instant>,
    /// Commits, and entries taken, at the last look.
    progress: u64,
    /// Entries taken at the last look, and given by one that may send without taking.
    taken: (u64, u64),
    /// What it could have done, of a worker of µNFs.
    duty: Option<Duty>,
    /// How long it has not, and how often it answered meanwhile. Counted look by look: time in which the
    /// agent itself stood still is nobody's fault.
    refused: (Duration, u32),
    /// Lanes that it was to take from next and did not.
    passed_over: Vec<PassedOver>,
    /// When it was asked last.
    asked: Option<Instant>,
    /// Since when it has shown no sign of life, and the processor time that it had taken by then.
    silent: Option<(Instant, Duration)>,
}

/// A lane that its worker was to take from next, and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PassedOver {
    lane: usize,
    /// What had been taken from it.
    tail: u64,
    /// What its worker had taken of all lanes when that was first seen.
    taken: u64,
    /// For how long; time in which the agent itself stood still does not count.
    since: Duration,
}

/// Remembers which lanes are passed over: `next` are those to be taken from now with what was taken
/// from them, `taken` is what was taken of all. True when one has been passed over for `patience` while
/// `enough` was taken from others.
fn passes_over(
    passed_over: &mut Vec<PassedOver>,
    next: &[(usize, u64)],
    taken: u64,
    passed: Duration,
    (patience, enough): (Duration, u64),
) -> bool {
    passed_over.retain(|p| next.contains(&(p.lane, p.tail)));
    for &(lane, tail) in next {
        match passed_over.iter_mut().find(|p| p.lane == lane) {
            Some(known) => known.since += passed,
            None => passed_over.push(PassedOver { lane, tail, taken, since: Duration::ZERO }),
        }
    }
    passed_over.iter().any(|p| p.since >= patience && taken.wrapping_sub(p.taken) > enough)
}

impl Liveness {
    pub(super) fn new(workers: usize) -> Self {
        let pulses = (0..workers).map(|_| Pulse::default()).collect();
        Liveness { looked: Instant::now(), pulses, firsts: vec![None; workers] }
    }

    /// Worker `w` was started.
    pub(super) fn started(&mut self, w: usize) {
        self.pulses[w] = Pulse { started: Some(Instant::now()), ..Pulse::default() };
    }

    /// Worker `w` is ready; from now on it has to answer.
    pub(super) fn ready(&mut self, w: usize) {
        let pulse = &mut self.pulses[w];
        pulse.ready = Some(Instant::now());
        if let Some(started) = pulse.started {
            self.firsts[w].get_or_insert_with(|| started.elapsed());
        }
    }

    /// Worker `w` was ready before, in the generation that it comes from, where it was worker `old`: it is not its
    /// first process that goes on here.
    pub(super) fn go_on_from(&mut self, w: usize, before: &Liveness, old: usize) {
        self.started(w);
        self.firsts[w] = before.firsts.get(old).copied().flatten();
        self.pulses[w].ready = Some(Instant::now());
    }

    /// Whether this incarnation of worker `w` is ready.
    pub(super) fn is_ready(&self, w: usize) -> bool {
        self.pulses[w].ready.is_some()
    }

    /// For how long this incarnation of worker `w` has been ready, if it is.
    pub(super) fn ready_for(&self, w: usize) -> Option<Duration> {
        self.pulses[w].ready.map(|at| at.elapsed())
    }

    /// True when worker `w` has been asked for a sign of life, and has shown none for so long.
    pub(super) fn is_silent_for(&self, w: usize, most: Duration) -> bool {
        self.pulses[w].silent.is_some_and(|(since, _)| since.elapsed() >= most)
    }

    /// Worker `w` could do nothing until now.
    pub(super) fn spare(&mut self, w: usize) {
        self.pulses[w].refused = (Duration::ZERO, 0);
    }

    /// Worker `w` has closed its control socket.
    pub(super) fn deaf(&mut self, w: usize) {
        self.pulses[w].deaf.get_or_insert_with(Instant::now);
    }

    /// Whether worker `w` has closed its control socket.
    pub(super) fn is_deaf(&self, w: usize) -> bool {
        self.pulses[w].deaf.is_some()
    }

    /// Whether it has done so for longer than dying takes.
    pub(super) fn is_long_deaf(&self, w: usize) -> bool {
        self.pulses[w].deaf.is_some_and(|since| since.elapsed() > DEAF)
    }

    /// Worker `w` has ended.
    pub(super) fn gone(&mut self, w: usize) {
        self.pulses[w] = Pulse::default();
    }
}

/// What /proc says of a process.
pub(super) struct Seen {
    /// `R`, `S`, `D`, `T`, `t`, `Z`: proc_pid_stat(5).
    pub(super) state: char,
    /// Processor time, user's and system's.
    pub(super) cpu: Duration,
}

impl Agent {
    /// Looks for workers that hang, now and then.
    pub(super) fn feel_pulses(&mut self) {
        let Some(patience) = self.policy.patience else { return };
        let passed = self.liveness.looked.elapsed();
        if passed < EVERY {
            return;
        }
        self.liveness.looked = Instant::now();
        for w in 0..self.workers.len() {
            let hangs = self.hangs(w, patience, passed.min(2 * EVERY));
            if let Some(what) = hangs.filter(|_| !self.is_exiting(w)) {
                self.end_hung(w, what);
            }
        }
    }

    /// True for a worker that somebody has killed and the kernel takes long to take apart: it does not hang.
    fn is_exiting(&self, w: usize) -> bool {
        match &self.workers[w].state {
            State::Running(process) | State::Done(process) => process.is_exiting(),
            State::Waiting | State::Restarting(_) | State::Gone => false,
        }
    }

    /// Ends worker `w` for hanging so.
    pub(super) fn end_hung(&mut self, w: usize, what: &'static str) {
        let (State::Running(process) | State::Done(process)) = &mut self.workers[w].state else {
            return;
        };
        process.kill();
        self.liveness.gone(w);
        self.crashes.hung.insert(w, what);
        self.events.push_back(Event::Hung { worker: w, what });
    }

    /// Ends workers that have closed their control socket and go on all the same.
    pub(super) fn convict_deaf(&mut self) {
        for w in 0..self.workers.len() {
            let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
                continue;
            };
            if !self.liveness.is_long_deaf(w) || readable(process.pidfd()) || process.is_exiting() {
                continue;
            }
            if self.setup.workers[w].runs_nfs() {
                self.convict(w, "closed its control socket");
            } else {
                self.end_hung(w, "closed its control socket");
            }
        }
    }

    /// What is wrong with worker `w`, when it hangs. `passed` has passed since the last look.
    fn hangs(&mut self, w: usize, patience: Duration, passed: Duration) -> Option<&'static str> {
        let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
            return None;
        };
        let runs = matches!(self.workers[w].state, State::Running(_));
        let pid = process.pid();
        let taken = self.taken(w);
        let progress = taken.wrapping_add(self.memory.workers[w].ledger.generation());
        let answered = self.memory.workers[w].has_taken_commands();
        let has_work = self.has_work(w);
        let watched = runs && self.setup.workers[w].runs_nfs() && !self.is_excused(w);
        let duty = if watched { self.duty(w) } else { None };
        let next = if watched { self.next_lanes(w) } else { Vec::new() };
        let tail = |l: usize| self.memory.lanes[l].inspector.tail();
        let next: Vec<(usize, u64)> = next.into_iter().map(|l| (l, tail(l))).collect();
        let given = if watched { self.given(w) } else { 0 };
        let enough = ROUNDS * BATCH as u64 * u64::from(self.setup.sources);
        let promised = match &self.liveness.pulses[w].duty {
            Some(Duty::Promise(owed)) => !self.still_owes(w, owed),
            _ => false,
        };
        // Who is asked for its flows goes through all of them in one turn.
        let allowed = if self.is_busy_with_flows(w) { patience * WALKS } else { patience };
        let is_rx = matches!(self.setup.workers[w].end, EndSpec::Rx { .. });
        let rest = if is_rx { RX } else { IDLE };
        let first = self.liveness.firsts[w];
        let most = first.map(|first| successors_patience(first, self.memory.remembered(w)));
        let pulse = &mut self.liveness.pulses[w];
        if pulse.ready.is_none() {
            // One that builds may take its time; one that is stopped builds nothing.
            let (state, cpu) =
                look(pid).map_or((' ', Duration::ZERO), |seen| (seen.state, seen.cpu));
            let stopped = matches!(state, 'T' | 't');
            pulse.stopped = if stopped { pulse.stopped + passed } else { Duration::ZERO };
            if pulse.stopped >= patience {
                return Some(STOPPED);
            }
            if state == 'S' {
                pulse.asleep += passed;
            }
            let late = pulse.started.is_some_and(|at| at.elapsed() > self.policy.start_patience);
            // A successor's domain stands still until it is ready. Time in which it had no processor does not count.
            let slow = most.is_some_and(|most| cpu + pulse.asleep > most);
            return (late || slow).then_some(UNREADY);
        }
        let progressed = std::mem::replace(&mut pulse.progress, progress) != progress;
        let moved_any = (taken, given);
        let took = std::mem::replace(&mut pulse.taken, moved_any) != moved_any;
        if passes_over(&mut pulse.passed_over, &next, taken, passed, (patience, enough)) {
            return Some(PASSES_OVER);
        }
        // `None`: it had nothing to do then, or has nothing now.
        let did = match (&pulse.duty, &duty) {
            (Some(Duty::Take), Some(Duty::Take)) => Some(took),
            (Some(Duty::Promise(_)), Some(Duty::Promise(_))) => Some(took || promised),
            _ => None,
        };
        let moved = did.unwrap_or(progressed);
        let answered = answered && pulse.silent.is_some();
        if moved || answered {
            pulse.silent = None;
        }
        if did == Some(false) {
            // What it was seen to have to do stands until it has done it.
            pulse.refused.0 += passed;
            pulse.refused.1 += u32::from(answered);
            if pulse.refused.0 >= patience && pulse.refused.1 > ANSWERS {
                return Some(match duty {
                    Some(Duty::Take) => "answers and takes nothing",
                    _ => "answers and promises nothing",
                });
            }
        } else {
            (pulse.refused, pulse.duty) = ((Duration::ZERO, 0), duty);
        }
        let Some((since, cpu)) = pulse.silent else {
            let due = has_work
                || pulse.duty.is_some()
                || pulse.asked.is_none_or(|at| at.elapsed() >= rest);
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
            // However much it has to go through: who is stopped goes through nothing.
            'T' | 't' => Some(STOPPED),
            'Z' | 'X' => None,
            _ if since.elapsed() < allowed => None,
            _ if seen.cpu.saturating_sub(cpu) >= allowed.mul_f64(SPENT) => {
                Some("does not come to the end of a batch")
            }
            // Asleep, and no doorbell wakes it. A device may keep its service waiting.
            'S' if self.setup.workers[w].runs_nfs() && since.elapsed() >= 2 * patience => {
                Some(SLEEPS)
            }
            _ => None,
        }
    }

    /// Entries that worker `w` has taken, of all lanes.
    fn taken(&self, w: usize) -> u64 {
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        let taken = lanes.filter(|(lane, _)| lane.to == w).map(|(_, ring)| ring.inspector.tail());
        taken.fold(0, u64::wrapping_add)
    }

    /// Entries that worker `w` has given, of all lanes, if it makes or holds packets, or answers for packets lent to it:
    /// it may have to send what it has before it takes any.
    fn given(&self, w: usize) -> u64 {
        if !self.sends_later(w) && !self.setup.workers[w].branch {
            return 0;
        }
        let lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        let given = lanes.filter(|(lane, _)| lane.from == w).map(|(_, ring)| ring.inspector.head());
        given.fold(0, u64::wrapping_add)
    }

    /// True when something waits for worker `w`, as far as can be seen from outside.
    fn has_work(&self, w: usize) -> bool {
        let mut lanes = self.setup.lanes.iter().zip(&self.memory.lanes);
        lanes.any(|(lane, ring)| lane.to == w && !ring.inspector.is_empty())
    }
}

pub(super) fn look(pid: rustix::process::Pid) -> Option<Seen> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    seen(&crate::reaper::stat(std::path::Path::new(&path)).ok()?)
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
    fn a_lane_is_passed_over_when_others_are_taken_from_for_long_and_it_is_not() {
        const STEP: Duration = Duration::from_millis(100);
        let limits = (3 * STEP, 1000);
        let mut seen = Vec::new();
        // Lane 4 stays where it is while 600 packets a look are taken from others.
        let mut look =
            |next: &[(usize, u64)], taken| passes_over(&mut seen, next, taken, STEP, limits);
        assert!(!look(&[(4, 70)], 0) && !look(&[(4, 70)], 600) && !look(&[(4, 70)], 1200));
        assert!(look(&[(4, 70)], 1800));
        // Something was taken from it: it begins anew.
        assert!(!look(&[(4, 71)], 2400) && !look(&[(4, 71)], 3000) && !look(&[(4, 71)], 3600));
        // It was not its turn, or had no room, meanwhile: the same.
        assert!(!look(&[], 4200) && !look(&[(4, 71)], 4800) && !look(&[(4, 71)], 5400));
    }

    #[test]
    fn who_takes_nothing_at_all_passes_nothing_over() {
        let mut seen = Vec::new();
        let mut look =
            || passes_over(&mut seen, &[(0, 7)], 7, Duration::from_secs(1), (Duration::ZERO, 1000));
        assert!(!look() && !look() && !look());
    }

    #[test]
    fn a_successor_has_a_multiple_of_what_the_first_took_and_time_to_read() {
        let millis = Duration::from_millis;
        assert_eq!(successors_patience(millis(0), 0), millis(1000));
        assert_eq!(successors_patience(millis(250), 0), millis(2000));
        assert_eq!(successors_patience(millis(250), 64 << 20), millis(4000));
        assert!(successors_patience(Duration::MAX / 8, u64::MAX) > millis(1000));
    }

    #[test]
    fn only_the_first_process_of_a_worker_says_how_long_a_start_takes() {
        let mut liveness = Liveness::new(1);
        liveness.started(0);
        assert_eq!(liveness.firsts[0], None);
        liveness.ready(0);
        let first = liveness.firsts[0];
        assert!(first.is_some());
        liveness.gone(0);
        liveness.started(0);
        liveness.ready(0);
        assert_eq!(liveness.firsts[0], first);
    }

    #[test]
    fn this_process_runs() {
        let seen = look(rustix::process::getpid()).unwrap();
        assert!(matches!(seen.state, 'R' | 'S' | 'D'), "{}", seen.state);
    }
}
