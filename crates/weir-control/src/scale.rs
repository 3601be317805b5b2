//! When an NF gets one more of its instances, and when one less: the rules of the µNF paper (§IV-E) and of NFActor
//! (Algorithm 1) as a machine without clock, memory or processes. Whoever holds it tells it what there is to see, and does
//! what it asks for (`agent/scale.rs`). All instances are there from the start; those that are not in use have no
//! buckets of the flow hash, and so no packets.
//!
//! - *Overloaded* is an instance whose input stays full although it could go on: what it sends to has room. So of a
//!   chain only the bottleneck is; who waits for it has a full input and a full output.
//! - *Idle* is an NF each of whose instances does less than half of the most that one did when it was overloaded last.
//! - One change at a time, and none for a while after it: what is measured meanwhile says nothing of what comes of it.

mod change;
mod share;
#[cfg(test)]
mod tests;

pub use self::change::{Answer, Ask, Part};
use self::change::{Change, Kind};
use serde::Serialize;
use std::time::Duration;

/// How often it is to be looked.
pub const LOOK: Duration = Duration::from_millis(100);
/// An instance is overloaded when it was found so in so many looks in a row: half a second.
const OVERLOADED: u32 = 5;
/// An NF is idle when it was found so in so many looks in a row: two seconds.
const IDLE: u32 = 20;
/// A ring counts as full from so many hundredths on. Not more: a worker takes a quarter of a ring at once.
pub(crate) const FULL: u8 = 50;
/// The same while packets are dropped where they come from.
const FULL_WITH_DROPS: u8 = 25;

/// How an NF's instances share what comes when one is added or taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Flows move, with what is remembered of them.
    Moves,
    /// Flows stay where they are until they end, new ones go where none are (E2 §5.4); those of an instance that is to be emptied
    /// move when so long has passed.
    OldFlowsEnd(Duration),
    /// Packets that need not meet divide anew at once.
    Rebalance,
}

impl Way {
    /// True when what is remembered of a flow stays with it.
    #[must_use]
    pub fn keeps_flows(self) -> bool {
        self != Way::Rebalance
    }
}

/// What an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Fewest instances in use; at least one.
    pub min: u16,
    /// Most.
    pub max: u16,
    /// How.
    pub way: Way,
    /// Flows that move in one step, about.
    pub step: u32,
    /// For so long after a change there is no other.
    pub cool: Duration,
}

/// What one look finds of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// It was not stopped for good.
    pub there: bool,
    /// How full the fullest of its inputs is, in hundredths.
    pub filled: u8,
    /// It cannot go on: what it would take has to wait for others, or what it sends to is full as well.
    pub hindered: bool,
    /// Packets that it has processed since it began.
    pub packets: u64,
    /// Packets that were dropped for want of room at the sources whose packets come to it, since they began.
    pub drops: u64,
}

/// What happened, for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// An instance more is being taken into use.
    Out,
    /// An instance is being emptied.
    In,
    /// Shares are being made even: an instance has less to do than others, or what came to one that is gone goes to the others.
    Even,
    /// The change is over.
    Done,
    /// The change was given up; what had moved stays where it is.
    GivenUp,
    /// It is overloaded, and there are no more instances.
    AtMost,
    /// An instance was stopped for good.
    Gone,
    /// Somebody else has moved flows to an instance that was not in use.
    ByHand,
}

/// A decision, or what became of it, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// What.
    pub what: Happened,
    /// The instance, from 1.
    pub instance: u16,
    /// Instances in use from then on; while flows leave one, it still is.
    pub instances: u16,
    /// Flows that have moved.
    pub flows: u64,
    /// Why.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    InUse,
    StandsBy,
    Gone,
}

/// What was counted at a look.
#[derive(Debug, Clone, PartialEq)]
struct Count {
    at: Duration,
    packets: u64,
    drops: u64,
}

/// What is known of an instance.
#[derive(Debug, Clone)]
struct Instance {
    standing: Standing,
    /// At the last look.
    last: Option<Count>,
    /// In so many looks in a row it was overloaded, and what had been counted before the first.
    over: u32,
    since: Option<Count>,
    /// Stopped for good, and packets still come to it: they are to go elsewhere, not before then.
    leaves: Option<Duration>,
}

/// Decides for one NF. Times are since any moment, the same for all.
#[derive(Debug)]
pub struct Scaler {
    rule: Rule,
    instances: Vec<Instance>,
    /// The most packets per second of an instance while it was overloaded, of the last time that one was.
    most: Option<f64>,
    /// Some instance is overloaded, and was at each look since `most` was begun.
    lasts: bool,
    /// In so many looks in a row all was idle.
    idle: u32,
    /// No change before.
    quiet: Duration,
    change: Option<Change>,
    /// It was said that there are no more instances.
    said_most: bool,
    /// Shares were made even, which moved nothing, and nothing has changed them since: what is uneven is what comes.
    is_even: bool,
    decisions: Vec<Decision>,
}

impl Scaler {
    /// Of an NF whose first `min` instances are in use.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        let instance = |i: u16| {
            let standing = if i < rule.min { Standing::InUse } else { Standing::StandsBy };
            Instance { standing, last: None, over: 0, since: None, leaves: None }
        };
        Scaler {
            rule,
            instances: (0..rule.max).map(instance).collect(),
            most: None,
            lasts: false,
            idle: 0,
            quiet: Duration::ZERO,
            change: None,
            said_most: false,
            is_even: false,
            decisions: Vec::new(),
        }
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Instances in use, from 0.
    pub fn in_use(&self) -> impl Iterator<Item = u16> {
        let all = self.instances.iter().zip(0..);
        all.filter(|(instance, _)| instance.standing == Standing::InUse).map(|(_, i)| i)
    }

    fn count(&self) -> u16 {
        self.in_use().count() as u16
    }

    /// Goes on with the next generation of the graph, where flows are where they were and everything is counted anew.
    /// The limits are the same.
    pub fn go_on_with(&mut self, rule: Rule) {
        self.rule = rule;
        for one in &mut self.instances {
            // One that was stopped for good is there again. When packets come to it, it is in use.
            if one.standing == Standing::Gone {
                one.standing = Standing::StandsBy;
            }
            one.leaves = None;
        }
        self.is_even = false;
        self.count_anew();
    }

    /// Begins where one of other limits was: flows are where they were, so who had packets has some still. What instances that are no
    /// more had is at the last one.
    pub fn take_up(&mut self, before: &Scaler) {
        if !self.rule.way.keeps_flows() || !before.rule.way.keeps_flows() {
            return;
        }
        for i in before.in_use() {
            self.stand(i.min(self.rule.max.saturating_sub(1)), Standing::InUse);
        }
        self.most = before.most;
    }

    /// What is under way is not gone on with.
    pub fn give_up(&mut self, now: Duration, why: String) {
        self.end(now, Some(why));
    }

    fn count_anew(&mut self) {
        (self.idle, self.lasts) = (0, false);
        for one in &mut self.instances {
            (one.last, one.over, one.since) = (None, 0, None);
        }
    }

    /// What was decided since this was asked last.
    pub fn decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    fn say(&mut self, what: Happened, instance: u16, flows: u64, why: String) {
        let (instance, instances) = (instance + 1, self.count());
        self.decisions.push(Decision { what, instance, instances, flows, why });
    }

    /// Takes in what a look at `now` found, one of each instance, and decides.
    pub fn look(&mut self, now: Duration, loads: &[Load]) {
        for (i, load) in (0..self.rule.max).zip(loads) {
            if !load.there {
                self.lose(now, i);
            }
        }
        if self.change.is_some() || self.begin_lost(now) {
            return;
        }
        let rates = self.measure(now, loads);
        let slow = rates.iter().flatten().all(|rate| self.most.is_some_and(|m| *rate < m / 2.0));
        let over = self.in_use().any(|i| self.instance(i).is_some_and(|one| one.over > 0));
        let is_idle = slow && !over && rates.iter().any(Option::is_some);
        self.idle = if is_idle { self.idle + 1 } else { 0 };
        self.lasts &= over;
        self.said_most &= over;
        if now < self.quiet {
            return;
        }
        if self.count() < self.rule.min {
            self.begin_out(now, format!("there are to be {} at least", self.rule.min));
        } else if let Some(why) = self.overload(loads) {
            match self.stands_by().is_none().then(|| self.uneven(&rates)).flatten() {
                Some(order) => self.begin_even(now, &order, &why),
                None => self.begin_out(now, why),
            }
        } else if self.idle >= IDLE && self.count() > self.rule.min {
            self.begin_in(now);
        }
    }

    fn instance(&self, i: u16) -> Option<&Instance> {
        self.instances.get(usize::from(i))
    }

    /// Packets per second of each instance in use since the last look, where there was one.
    fn measure(&mut self, now: Duration, loads: &[Load]) -> Vec<Option<f64>> {
        let mut rates = vec![None; self.instances.len()];
        let mut by_hand = Vec::new();
        let (mut most, mut lasts) = (self.most, self.lasts);
        let each = self.instances.iter_mut().zip(&mut rates).zip(loads).zip(0..);
        for (((one, rate), load), i) in each {
            let count = Count { at: now, packets: load.packets, drops: load.drops };
            let Some(last) = one.last.replace(count).filter(|last| last.at < now) else { continue };
            let rests = load.packets == last.packets;
            // What packets without a share come to otherwise is left of the one that it had.
            if one.standing == Standing::StandsBy && !rests && self.rule.way.keeps_flows() {
                by_hand.push(i);
            }
            if one.standing != Standing::InUse {
                continue;
            }
            *rate = Some(per_second(&last, load, now));
            let dropped = load.drops != last.drops;
            let full = if dropped { FULL_WITH_DROPS } else { FULL };
            if load.filled < full || load.hindered {
                (one.over, one.since) = (0, None);
                continue;
            }
            if rests {
                // It does not do as much as it can: it hangs, or its batch lasts. Either is seen to elsewhere.
                continue;
            }
            one.over += 1;
            let since = one.since.get_or_insert(last);
            if one.over >= OVERLOADED {
                let rate = per_second(since, load, now);
                // How much it manages depends on what comes: what it managed another time does not count.
                most = Some(most.filter(|most| lasts && *most > rate).unwrap_or(rate));
                lasts = true;
            }
        }
        (self.most, self.lasts) = (most, lasts);
        self.is_even &= by_hand.is_empty();
        for i in by_hand {
            if let Some(one) = self.instances.get_mut(usize::from(i)) {
                one.standing = Standing::InUse;
            }
            self.say(
                Happened::ByHand,
                i,
                0,
                "packets come to it, as flows were moved there".into(),
            );
        }
        rates
    }

    /// Why there has to be an instance more.
    fn overload(&self, loads: &[Load]) -> Option<String> {
        let over = |i: &u16| self.instance(*i).is_some_and(|one| one.over >= OVERLOADED);
        let i = self.in_use().find(over)?;
        let (one, load) = (self.instance(i)?, loads.get(usize::from(i))?);
        let dropped = one.since.as_ref().map_or(0, |since| load.drops.wrapping_sub(since.drops));
        let mut why = format!(
            "the input of {} was at least half full for {} looks in a row, now {} %, and nothing behind it is",
            i + 1,
            one.over,
            load.filled
        );
        if dropped > 0 {
            why = format!(
                "{dropped} packets were dropped where they come in, and the input of {} was full for {} looks in a \
                 row, now {} %, and nothing behind it is",
                i + 1,
                one.over,
                load.filled
            );
        }
        Some(why)
    }

    /// The next instance that could be taken into use.
    fn stands_by(&self) -> Option<u16> {
        let by = |one: &Instance| one.standing == Standing::StandsBy;
        self.instances.iter().position(by).map(|i| i as u16)
    }

    fn begin_out(&mut self, now: Duration, why: String) {
        let Some(i) = self.stands_by() else {
            if !std::mem::replace(&mut self.said_most, true) {
                let last = self.rule.max.saturating_sub(1);
                self.say(Happened::AtMost, last, 0, format!("{why}; there are no more instances"));
            }
            self.quiet = now + self.rule.cool;
            return;
        };
        let sources: Vec<u16> = self.in_use().collect();
        self.stand(i, Standing::InUse);
        self.say(Happened::Out, i, 0, why);
        self.change = Some(Change::out(&self.rule, now, Kind::Out, i, &sources));
        // With nobody to take flows from there is nothing to do.
        self.end_if_done(now);
    }

    fn begin_in(&mut self, now: Duration) {
        let Some(i) = self.in_use().last() else { return };
        let most = self.most.unwrap_or_default();
        let why = format!(
            "each instance did less than half of {most:.0} packets per second, the most that one did when it was \
             overloaded last, for {} looks in a row",
            self.idle
        );
        let targets: Vec<u16> = self.in_use().filter(|target| *target != i).collect();
        self.say(Happened::In, i, 0, why);
        self.change = Some(Change::back(&self.rule, now, i, &targets));
    }

    fn stand(&mut self, i: u16, standing: Standing) {
        if let Some(one) = self.instances.get_mut(usize::from(i)) {
            one.standing = standing;
        }
    }

    /// What is to be done now, once: [`Scaler::answered`] says how it went.
    pub fn ask(&mut self, now: Duration) -> Option<Ask> {
        let weights = || {
            let in_use = |one: &Instance| u32::from(one.standing == Standing::InUse);
            self.instances.iter().map(in_use).collect::<Vec<u32>>()
        };
        self.change.as_mut()?.ask(now, weights)
    }

    /// How that went which was asked for last.
    pub fn answered(&mut self, now: Duration, answer: Answer) {
        let Some(change) = &mut self.change else { return };
        let given_up = change.answered(now, answer);
        match given_up {
            Some(why) => self.end(now, Some(why)),
            None => self.end_if_done(now),
        }
    }

    fn end_if_done(&mut self, now: Duration) {
        if self.change.as_ref().is_some_and(Change::is_done) {
            self.end(now, None);
        }
    }

    /// The change is over; `why` it was given up, if it was.
    fn end(&mut self, now: Duration, why: Option<String>) {
        let Some(change) = self.change.take() else { return };
        let (i, flows) = (change.instance(), change.flows());
        match (change.kind(), &why) {
            (Kind::Back, None) => self.stand(i, Standing::StandsBy),
            (Kind::Lost, _) => {
                // It has to be done, so it is tried on.
                let again = why.is_some().then(|| now + self.rule.cool);
                if let Some(one) = self.instances.get_mut(usize::from(i)) {
                    one.leaves = again;
                }
            }
            _ => {}
        }
        self.is_even = change.kind() == Kind::Even && why.is_none() && flows == 0;
        let what = if why.is_some() { Happened::GivenUp } else { Happened::Done };
        let took = now.saturating_sub(change.begun());
        let how = why.unwrap_or_else(|| {
            format!("it took {:.1} ms{}", took.as_secs_f64() * 1e3, change.remark())
        });
        self.say(what, i, flows, how);
        // Where too few are in use nothing is waited for, but after a failure.
        let is_short = self.count() < self.rule.min && what == Happened::Done;
        self.quiet = if is_short { now } else { now + self.rule.cool };
        self.count_anew();
    }
}

fn per_second(since: &Count, load: &Load, now: Duration) -> f64 {
    // A ledger that began anew counts from 0.
    let packets = load.packets.saturating_sub(since.packets) as f64;
    packets / now.saturating_sub(since.at).as_secs_f64().max(1e-3)
}
