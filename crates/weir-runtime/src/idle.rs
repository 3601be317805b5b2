//! What a worker does when there is nothing to do: poll on, let others run, or sleep.

use crate::spec::ScheduleSpec;
use crate::station::{Progress, Station};
use rustix::fd::BorrowedFd;
use std::time::{Duration, Instant};
use weir_mem::Muster;
use weir_port::Woken;

/// Longest sleep: a bound on what a lost wake-up could cost, should there be one.
const LONGEST: Duration = Duration::from_secs(1);

/// Longest turn of a real-time worker: others may be on its core, of this graph or of another, and the kernel never
/// takes the core from one of them for another.
const TURN: Duration = Duration::from_millis(1);

/// Steps between two looks at how long the turn is: a look costs some 25 ns.
const STEPS: u32 = 16;

/// For experiments: how old a worker is when it begins to keep its core. Those behind it start on that core too, and the
/// agent waits for them.
const KEEPS_AFTER: Duration = Duration::from_millis(300);

/// A yield after which nobody else ran takes less than this. Who yields all the time while nobody wants to run has the kernel count time in pieces so small that they
/// are rounded down to nothing where its control group weighs much, and then tasks of other groups on the core, kernel threads among them, do not run for minutes
/// (seen with Linux 6.18). So he polls for a while in between.
const ALONE: Duration = Duration::from_nanos(500);
const POLLS: Duration = Duration::from_micros(2);

/// How often the first worker of a core, while it polls, puts those behind it in order.
const MUSTER: Duration = Duration::from_millis(50);

/// Polls for a while after the last packet, then sleeps until somebody rings.
pub(crate) struct Idle {
    spin: Duration,
    shares_core: bool,
    /// For now it shares it with a worker of the next generation, which takes what this one gives.
    has_guest: bool,
    busy: bool,
    /// For experiments: from when on it does not yield.
    keeps_from: Option<Instant>,
    /// It has not rested yet. Who shares its core sleeps then at once: workers come up in any order,
    /// and are woken in that of the chain.
    fresh: bool,
    since: Option<Instant>,
    /// When it last put those behind it in order.
    mustered: Option<Instant>,
    /// Since when it has had its core, if the kernel does not share that out by itself.
    turn: Option<Instant>,
    /// Until when it does not yield, as nobody else wanted to run.
    alone: Option<Instant>,
    steps: u32,
}

/// What one more look found, and what to wait for.
pub(crate) struct Look<'d> {
    pub(crate) progress: Progress,
    /// The device's descriptor.
    pub(crate) device: Option<BorrowedFd<'d>>,
    /// Buffers that come home.
    pub(crate) buffers: bool,
}

/// Outcome of [`Idle::rest`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rested {
    /// Look again.
    Again,
    /// The agent has gone.
    Orphan,
    /// Look again; the device's descriptor is in error.
    Trouble,
}

impl Idle {
    /// `real_time`: whether the class was granted.
    pub(crate) fn new(schedule: &ScheduleSpec, real_time: bool) -> Self {
        Idle {
            turn: real_time.then(Instant::now),
            alone: None,
            steps: 0,
            spin: Duration::from_micros(schedule.spin_us.into()),
            shares_core: schedule.shares_core,
            has_guest: false,
            busy: schedule.busy,
            keeps_from: schedule.trial.keeps_core.then(|| Instant::now() + KEEPS_AFTER),
            fresh: schedule.shares_core,
            since: None,
            mustered: None,
        }
    }

    /// There was something to do.
    #[inline]
    pub(crate) fn reset(&mut self) {
        (self.since, self.alone) = (None, None);
        self.steps = self.steps.wrapping_add(1);
        if self.turn.is_some() && self.steps.is_multiple_of(STEPS) {
            self.let_others(Instant::now());
        }
    }

    /// Lets others run, unless there just were none.
    fn yield_unless_alone(&mut self, now: Instant) {
        if self.alone.is_some_and(|until| now < until) {
            return std::hint::spin_loop();
        }
        rustix::thread::sched_yield();
        // In the real-time class nobody waits for what is counted.
        if self.turn.is_none() {
            let back = Instant::now();
            self.alone = (back.duration_since(now) < ALONE).then(|| back + POLLS);
        }
    }

    /// From now on, or no more, a worker of the next generation is to come to its turn on this core.
    pub(crate) fn has_guest(&mut self, has: bool) {
        self.has_guest = has;
    }

    fn keeps_core(&self, now: Instant) -> bool {
        self.keeps_from.is_some_and(|from| now >= from)
    }

    /// Yields the core when the turn has been long.
    fn let_others(&mut self, now: Instant) {
        if self.keeps_core(now) {
            self.turn = None;
        }
        if let Some(turn) = &mut self.turn
            && now.duration_since(*turn) >= TURN
        {
            rustix::thread::sched_yield();
            *turn = Instant::now();
        }
    }

    /// Nothing was to do: rests as is fit. `step` is one more look after everybody has been told
    /// that this worker sleeps; without it a packet could come between the look and the sleep. `buffers`:
    /// it waits for some to come home; else nobody is to ring for each batch that does.
    pub(crate) fn rest<'d>(
        &mut self,
        station: &mut Station,
        agent: BorrowedFd<'_>,
        later_ns: Option<u64>,
        buffers: bool,
        step: impl FnOnce(&mut Station) -> Look<'d>,
    ) -> Result<Rested, weir_port::DoorbellError> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let fresh = std::mem::take(&mut self.fresh);
        let leads = !station.followers.is_empty();
        let called = !leads && station.muster.as_ref().is_some_and(Muster::calls);
        let spinning = !fresh && !called && (now.duration_since(since) < self.spin || self.busy);
        if spinning {
            if leads
                && !self.keeps_core(now)
                && self.mustered.is_none_or(|then| now.duration_since(then) >= MUSTER)
            {
                self.mustered = Some(now);
                muster(station);
            } else if (self.shares_core || self.has_guest) && !self.keeps_core(now) {
                self.yield_unless_alone(now);
            } else {
                self.let_others(now);
                std::hint::spin_loop();
            }
            return Ok(Rested::Again);
        }
        station.ingress.sleep();
        station.egress.sleep();
        if let Some(home) = station.home.as_mut().filter(|_| buffers) {
            home.sleep();
        }
        let look = step(station);
        let mut rested = Rested::Again;
        let mut packets = look.progress == Progress::Did;
        let unasked = look.buffers && !buffers;
        if !unasked && !matches!(look.progress, Progress::Did | Progress::Finished) {
            let timeout = later_ns.map_or(LONGEST, |ns| Duration::from_nanos(ns).min(LONGEST));
            let woken = station.bell.wait_with(Some(agent), look.device, timeout)?;
            packets = woken.device || station.ingress.waits();
            rested = match woken {
                Woken { other: true, .. } => Rested::Orphan,
                Woken { trouble: true, .. } => Rested::Trouble,
                _ => Rested::Again,
            };
        }
        // Whoever is woken gets in line before the one that runs. Were each woken by the one before it,
        // the order of turns would be that of the chain backwards, and a packet would need a round of
        // all for each step; woken by the first, in order, they take turns in order. Only for packets:
        // woken for less they would wake this one again, and nobody would rest.
        if packets {
            station.followers.iter().for_each(|follower| follower.ring());
        }
        station.ingress.wake();
        station.egress.wake();
        if let Some(home) = station.home.as_mut().filter(|_| buffers) {
            home.wake();
        }
        self.since = None;
        Ok(rested)
    }
}

/// Puts the workers of a core into the order of the chain: all that have nothing to do go to sleep at
/// their next turn, and are woken in order. They wake in another one when packets, commands or a restart
/// wake them, and `sched_yield` keeps whatever order there is; out of it, a packet waits a whole round
/// for each step.
fn muster(station: &Station) {
    let call = |to_sleep| station.muster.iter().for_each(|m| m.call(to_sleep));
    call(true);
    rustix::thread::sched_yield();
    call(false);
    station.followers.iter().for_each(|follower| follower.ring());
}
