//! A graph that stands still: packets wait and nobody moves any. One line says so, and whom they wait
//! for; whoever looks at a run that does not go on must not have to guess.

use super::duty::Duty;
use super::{Agent, Event, State};
use std::time::{Duration, Instant};
use weir_runtime::spec::EndSpec;

/// How often the agent looks.
const EVERY: Duration = Duration::from_millis(250);
/// How long nothing may move before it is said: longer than a worker that hangs is left alone.
const LONG: Duration = Duration::from_secs(3);

/// What the agent knows of the graph's moving.
#[derive(Default)]
pub(super) struct Still {
    looked: Option<Instant>,
    /// Entries given and taken, of all lanes, at the last look.
    moved: u64,
    /// For how long nothing has moved; time in which the agent itself stood still does not count.
    since: Duration,
    said: bool,
    /// It was said that all that comes is dropped.
    said_closed: bool,
}

impl Agent {
    /// Says, once each time, when packets wait and nothing moves.
    pub(super) fn notice_standstill(&mut self) {
        let passed = self.still.looked.map_or(EVERY, |at| at.elapsed());
        if passed < EVERY {
            return;
        }
        self.still.looked = Some(Instant::now());
        self.notice_closed();
        let inspectors = || self.memory.lanes.iter().map(|ring| &ring.inspector);
        let moved = |i: &weir_mem::RingInspector<_>| i.head().wrapping_add(i.tail());
        let moved = inspectors().map(moved).fold(0, u64::wrapping_add);
        let waits = inspectors().any(|i| !i.is_empty());
        if std::mem::replace(&mut self.still.moved, moved) != moved || !waits {
            (self.still.since, self.still.said) = (Duration::ZERO, false);
            return;
        }
        self.still.since += passed.min(2 * EVERY);
        if self.still.since < LONG || std::mem::replace(&mut self.still.said, true) {
            return;
        }
        let why = self.why_still();
        self.events.push_back(Event::StandsStill { why });
    }

    /// Whom the packets wait for: the one that could go on, as far as can be seen.
    fn why_still(&self) -> String {
        let workers = || 0..self.workers.len();
        let name = |w: usize| &self.setup.workers[w].name;
        if let Some(w) = workers().find(|&w| matches!(self.workers[w].state, State::Restarting(_)))
        {
            return format!("worker {} has died and is not started again yet", name(w));
        }
        let running = |w: &usize| matches!(self.workers[*w].state, State::Running(_));
        if let Some(w) = workers().filter(running).find(|&w| !self.liveness.is_ready(w)) {
            return format!("worker {} is not ready", name(w));
        }
        for w in workers().filter(running) {
            match (self.duty(w), &self.setup.workers[w].end) {
                (Some(Duty::Take), EndSpec::Tx { .. }) => {
                    let blocked = "its device may be blocked";
                    return format!(
                        "worker {} has packets to take, and takes none: {blocked}",
                        name(w)
                    );
                }
                (Some(Duty::Take), _) => {
                    return format!("worker {} has packets to take, and takes none", name(w));
                }
                (Some(Duty::Promise(_)), _) => {
                    return format!("worker {} does not say how far it has come", name(w));
                }
                (None, _) => {}
            }
        }
        let full = self.memory.lanes.iter().position(|ring| !ring.inspector.is_empty());
        match full.and_then(|l| self.setup.lanes.get(l)) {
            Some(lane) => format!(
                "worker {} waits for packets that come before those that it has from {}, for room or \
                 for buffers",
                name(lane.to),
                name(lane.from)
            ),
            None => "for no reason that can be seen from outside".to_owned(),
        }
    }

    /// Says once that no µNF is left.
    fn notice_closed(&mut self) {
        let mut ends = self.setup.workers.iter().map(|w| &w.end);
        let closed = ends.clone().any(|end| matches!(end, EndSpec::Drain))
            && ends.all(|end| !matches!(end, EndSpec::None));
        if closed && !std::mem::replace(&mut self.still.said_closed, true) {
            let why =
                "no NF is left, as all were stopped for good: what comes is dropped".to_owned();
            self.events.push_back(Event::StandsStill { why });
        }
    }
}
