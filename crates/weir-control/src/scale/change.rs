//! One change: the steps by which an instance gets its share of the flows, or loses all.

use super::{Rule, Way};
use std::collections::VecDeque;
use std::time::Duration;
use weir_port::balance::BUCKETS;

/// How often a step may fail.
const TRIES: u32 = 5;
/// How long until it is tried again, and how long when somebody else is at it.
const AGAIN: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_millis(50);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Move flows by whole buckets of the flow hash, from an instance to another.
    Move {
        /// From.
        from: u16,
        /// To.
        to: u16,
        /// Which.
        part: Part,
    },
    /// From now on packets divide by these weights.
    Weigh(Vec<u32>),
}

/// Which flows of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// So many, about, with their buckets; so many buckets stay.
    Some {
        /// Flows.
        flows: u32,
        /// Buckets.
        keep: u32,
    },
    /// All, also those that are there by themselves.
    All,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is done; so many flows have moved.
    Done(u64),
    /// It cannot be now, as somebody else is at it.
    NotNow,
    /// It failed, after so many flows.
    Failed(u64, String),
}

/// A change that is under way.
#[derive(Debug)]
pub(super) struct Change {
    out: bool,
    instance: u16,
    begun: Duration,
    flows: u64,
    steps: VecDeque<Step>,
    /// The first step was asked for.
    asked: bool,
    tries: u32,
    /// How often the first step has moved some flows.
    repeats: usize,
    not_before: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Move { from: u16, to: u16, part: Part },
    Weigh,
}

impl Change {
    fn new(now: Duration, out: bool, instance: u16, steps: VecDeque<Step>) -> Self {
        let (begun, not_before) = (now, now);
        Change {
            out,
            instance,
            begun,
            flows: 0,
            steps,
            asked: false,
            tries: 0,
            repeats: 0,
            not_before,
        }
    }

    /// `instance` gets as many buckets as each of `sources` keeps.
    pub(super) fn out(rule: &Rule, now: Duration, instance: u16, sources: &[u16]) -> Self {
        let keep = BUCKETS.div_ceil(sources.len() + 1) as u32;
        let part = Part::Some { flows: rule.step, keep };
        let moves = || sources.iter().map(|from| Step::Move { from: *from, to: instance, part });
        let steps = match rule.way {
            Way::Moves => moves().collect(),
            Way::Rebalance => [Step::Weigh].into(),
        };
        Change::new(now, true, instance, steps)
    }

    /// All of `instance` goes to `targets`, to each as much.
    pub(super) fn back(rule: &Rule, now: Duration, instance: u16, targets: &[u16]) -> Self {
        let share = BUCKETS / (targets.len() + 1);
        let mut steps = VecDeque::new();
        for (to, behind) in targets.iter().zip((0..targets.len()).rev()) {
            let keep = (share * behind / targets.len()) as u32;
            let part = Part::Some { flows: rule.step, keep };
            steps.push_back(Step::Move { from: instance, to: *to, part });
            if behind == 0 {
                steps.push_back(Step::Move { from: instance, to: *to, part: Part::All });
            }
        }
        if rule.way == Way::Rebalance {
            steps = [Step::Weigh].into();
        }
        Change::new(now, false, instance, steps)
    }

    pub(super) fn is_out(&self) -> bool {
        self.out
    }

    pub(super) fn instance(&self) -> u16 {
        self.instance
    }

    pub(super) fn begun(&self) -> Duration {
        self.begun
    }

    pub(super) fn flows(&self) -> u64 {
        self.flows
    }

    pub(super) fn is_done(&self) -> bool {
        self.steps.is_empty()
    }

    /// What is to be done now. `weights`: as instances stand, of which one that is left still does.
    pub(super) fn ask(&mut self, now: Duration, weights: impl FnOnce() -> Vec<u32>) -> Option<Ask> {
        if self.asked || now < self.not_before {
            return None;
        }
        let ask = match *self.steps.front()? {
            Step::Move { from, to, part } => Ask::Move { from, to, part },
            Step::Weigh => {
                let mut weights = weights();
                if let Some(left) = weights.get_mut(usize::from(self.instance)) {
                    *left = u32::from(self.out);
                }
                Ask::Weigh(weights)
            }
        };
        self.asked = true;
        Some(ask)
    }

    /// Goes on; gives why it is to be given up.
    pub(super) fn answered(&mut self, now: Duration, answer: Answer) -> Option<String> {
        if !std::mem::take(&mut self.asked) {
            return None;
        }
        match answer {
            Answer::Done(flows) => {
                self.flows = self.flows.saturating_add(flows);
                self.tries = 0;
                self.repeats += 1;
                // A step that moved some may have left some. It has moved a bucket at least, so there is an end, whatever is said.
                let part = self.steps.front().copied();
                let again = matches!(part, Some(Step::Move { part: Part::Some { .. }, .. }));
                if !again || flows == 0 || self.repeats >= BUCKETS {
                    self.steps.pop_front();
                    self.repeats = 0;
                }
                None
            }
            Answer::NotNow => {
                self.not_before = now + SOON;
                None
            }
            Answer::Failed(flows, why) => {
                self.flows = self.flows.saturating_add(flows);
                self.tries += 1;
                self.not_before = now + AGAIN;
                (self.tries >= TRIES).then(|| format!("it failed {TRIES} times, at last: {why}"))
            }
        }
    }

    /// An instance is gone: nothing moves to it or from it. False when the change cannot be finished without it.
    pub(super) fn without(&mut self, gone: u16) -> bool {
        let first = self.steps.front().copied();
        let concerns = |step: &Step| matches!(step, Step::Move { from, to, .. } if *from == gone || *to == gone);
        // What is left for it goes to the one before.
        let other = self.steps.iter().rev().find_map(|step| match step {
            Step::Move { to, .. } if !concerns(step) => Some(*to),
            _ => None,
        });
        let had_all = self.steps.iter().any(|step| concerns(step) && is_all(step));
        self.steps.retain(|step| !concerns(step));
        if had_all && let Some(to) = other {
            self.steps.push_back(Step::Move { from: self.instance, to, part: Part::All });
        }
        if self.steps.front().copied() != first {
            self.asked = false;
        }
        gone != self.instance && (!had_all || other.is_some())
    }
}

fn is_all(step: &Step) -> bool {
    matches!(step, Step::Move { part: Part::All, .. })
}
