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
/// How often it is looked whether flows have ended.
const LATER: Duration = Duration::from_secs(1);

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
    /// None: only buckets without a flow go. So many buckets stay.
    Free {
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
    /// So many flows have moved, and so many buckets are to go when their flows have ended.
    Left(u64, u32),
    /// It cannot be now, as somebody else is at it.
    NotNow,
    /// It failed, after so many flows.
    Failed(u64, String),
}

/// What a change is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The instance is to have a share as large as others.
    Out,
    /// The same, of one that has had a smaller one.
    Even,
    /// It is to have nothing.
    Back,
    /// It was stopped for good: what came to it goes to others.
    Lost,
}

/// A change that is under way.
#[derive(Debug)]
pub(super) struct Change {
    kind: Kind,
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
    /// How long flows may take to end, where they are to.
    limit: Option<Duration>,
    /// Flows that move in one step.
    step: u32,
    /// Buckets that stay, as they did not.
    stay: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Move { from: u16, to: u16, part: Part },
    Weigh,
}

impl Change {
    fn new(rule: &Rule, now: Duration, kind: Kind, instance: u16) -> Self {
        let limit = match (rule.way, kind) {
            (Way::OldFlowsEnd(limit), Kind::Out | Kind::Even | Kind::Back) => Some(limit),
            _ => None,
        };
        Change {
            kind,
            instance,
            begun: now,
            flows: 0,
            steps: VecDeque::new(),
            asked: false,
            tries: 0,
            repeats: 0,
            not_before: now,
            limit,
            step: rule.step,
            stay: 0,
        }
    }

    fn with(mut self, rule: &Rule, steps: impl IntoIterator<Item = Step>) -> Self {
        match rule.way {
            Way::Rebalance => self.steps.push_back(Step::Weigh),
            Way::Moves | Way::OldFlowsEnd(_) => self.steps.extend(steps),
        }
        self
    }

    /// `instance` gets as many buckets as each of the `others` keeps; those that have fewest stand first.
    pub(super) fn out(
        rule: &Rule,
        now: Duration,
        kind: Kind,
        instance: u16,
        others: &[u16],
    ) -> Self {
        let change = Change::new(rule, now, kind, instance);
        let steps = match change.limit {
            None => evened(rule, instance, others),
            Some(_) => {
                let part = Part::Free { keep: share(others.len() + 1) };
                others.iter().map(|from| Step::Move { from: *from, to: instance, part }).collect()
            }
        };
        change.with(rule, steps)
    }

    /// All of `instance` goes to `targets`, to each as much.
    pub(super) fn back(rule: &Rule, now: Duration, instance: u16, targets: &[u16]) -> Self {
        let change = Change::new(rule, now, Kind::Back, instance);
        let part = |keep| match change.limit {
            None => Part::Some { flows: rule.step, keep },
            Some(_) => Part::Free { keep },
        };
        let steps = given(instance, targets, part);
        change.with(rule, steps)
    }

    /// What came to `lost` goes to the others, of which the first has least. Its flows begin anew there.
    pub(super) fn lost(rule: &Rule, now: Duration, lost: u16, others: &[u16]) -> Self {
        let change = Change::new(rule, now, Kind::Lost, lost);
        let steps = match (rule.way, others.split_first()) {
            (Way::Moves, Some((first, rest))) => {
                let all = Step::Move { from: lost, to: *first, part: Part::All };
                [all].into_iter().chain(evened(rule, *first, rest)).collect()
            }
            // Flows of others stay where they are.
            _ => given(lost, others, |keep| Part::Some { flows: rule.step, keep }),
        };
        change.with(rule, steps)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// True when the instance is to have a share.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.kind, Kind::Out | Kind::Even)
    }

    /// What there is to say when it is over.
    pub(super) fn remark(&self) -> String {
        match (self.stay, self.limit) {
            (1.., Some(limit)) => format!(
                ", and {} of 65,536 parts of the flows stay where they were, as some of them had not ended in {:.0} s",
                self.stay,
                limit.as_secs_f64()
            ),
            _ => String::new(),
        }
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

    /// True when it may wait for flows to end.
    pub(super) fn may_wait(&self) -> bool {
        self.limit.is_some()
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
                    *left = u32::from(self.is_out());
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
        let is_free =
            matches!(self.steps.front(), Some(Step::Move { part: Part::Free { .. }, .. }));
        match answer {
            Answer::Left(flows, left) if is_free => {
                self.flows = self.flows.saturating_add(flows);
                self.tries = 0;
                self.wait_for_flows(now, left);
                None
            }
            // Who was not asked to leave any has no say in it.
            Answer::Done(flows) | Answer::Left(flows, _) => {
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

    /// Some buckets have flows that have not ended. When these have had time enough they move, or stay where there is no need
    /// that they go.
    fn wait_for_flows(&mut self, now: Duration, left: u32) {
        let limit = self.limit.unwrap_or_default();
        let waits = now.saturating_sub(self.begun) < limit;
        match (waits, self.is_out()) {
            (true, is_out) => {
                self.not_before = now + LATER;
                if is_out {
                    // Those of another source may have ended.
                    self.steps.rotate_left(1);
                }
            }
            (false, true) => {
                self.stay += u64::from(left);
                self.steps.pop_front();
            }
            (false, false) => {
                for step in &mut self.steps {
                    if let Step::Move { part, .. } = step
                        && let Part::Free { keep } = *part
                    {
                        *part = Part::Some { flows: self.step, keep };
                    }
                }
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

/// How many buckets each of so many instances keeps, at most.
fn share(instances: usize) -> u32 {
    BUCKETS.div_ceil(instances.max(1)) as u32
}

/// Steps that make shares even, however they were: all that is too much goes to `first`, and from one to the next until each has its
/// share.
fn evened(rule: &Rule, first: u16, others: &[u16]) -> VecDeque<Step> {
    let part = Part::Some { flows: rule.step, keep: share(others.len() + 1) };
    let gathered = others.iter().map(|from| (*from, first));
    let passed = [first].into_iter().chain(others.iter().copied()).zip(others.iter().copied());
    gathered.chain(passed).map(|(from, to)| Step::Move { from, to, part }).collect()
}

/// Steps by which all of an instance goes to `targets`, to each as much of an even share; of what stays, such a `part`.
fn given(from: u16, targets: &[u16], part: impl Fn(u32) -> Part) -> VecDeque<Step> {
    let share = BUCKETS / (targets.len() + 1);
    let mut steps = VecDeque::new();
    for (to, behind) in targets.iter().zip((0..targets.len()).rev()) {
        let keep = (share * behind / targets.len()) as u32;
        steps.push_back(Step::Move { from, to: *to, part: part(keep) });
        if behind == 0 {
            steps.push_back(Step::Move { from, to: *to, part: Part::All });
        }
    }
    steps
}
