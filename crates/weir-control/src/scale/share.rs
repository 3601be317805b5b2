//! Shares that are not as they should be: of an instance that was stopped for good, or of one that could do more.

use super::change::{Change, Kind};
use super::{Happened, Instance, Scaler, Standing};
use std::time::Duration;

impl Scaler {
    /// The instances in use, those that do least first, when one does less than half of what it could although another is overloaded.
    pub(super) fn uneven(&self, rates: &[Option<f64>]) -> Option<Vec<u16>> {
        if self.is_even || !self.rule.way.keeps_flows() {
            return None;
        }
        let rate = |i: &u16| rates.get(usize::from(*i)).copied().flatten();
        let mut order: Vec<(u16, f64)> =
            self.in_use().filter_map(|i| Some((i, rate(&i)?))).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (first, least) = order.first()?;
        // What it could have done another time says nothing while it is overloaded itself.
        let is_over = self.instance(*first).is_none_or(|one| one.over > 0);
        let is_idle = !is_over && *least < self.most? / 2.0;
        is_idle.then(|| order.into_iter().map(|(i, _)| i).collect())
    }

    pub(super) fn begin_even(&mut self, now: Duration, order: &[u16], why: &str) {
        let Some((first, others)) = order.split_first() else { return };
        let why = format!("{why}; {} does less than half of what it could", first + 1);
        self.say(Happened::Even, *first, 0, why);
        self.change = Some(Change::out(&self.rule, now, Kind::Even, *first, others));
    }

    /// What came to an instance that was stopped for good goes to another that takes its place, or to all that are left; true when that
    /// begins.
    pub(super) fn begin_lost(&mut self, now: Duration) -> bool {
        let due = |one: &Instance| one.leaves.is_some_and(|at| at <= now);
        let Some(lost) = self.instances.iter().position(due).map(|i| i as u16) else {
            return false;
        };
        let mut others: Vec<u16> = self.in_use().collect();
        let place = self.stands_by().filter(|_| others.len() < usize::from(self.rule.min));
        match place {
            Some(i) => {
                others.insert(0, i);
                self.stand(i, Standing::InUse);
                let why = format!("it takes the place of {}, which was stopped for good", lost + 1);
                self.say(Happened::Out, i, 0, why);
            }
            None if others.is_empty() => return false,
            None => {
                let why =
                    "it was stopped for good, so what came to it goes to the others".to_owned();
                self.say(Happened::Even, lost, 0, why);
            }
        }
        self.change = Some(Change::lost(&self.rule, now, lost, &others));
        true
    }

    /// Instance `i` was stopped for good.
    pub(super) fn lose(&mut self, now: Duration, i: u16) {
        let Some(one) = self.instances.get_mut(usize::from(i)) else { return };
        let stood = std::mem::replace(&mut one.standing, Standing::Gone);
        if stood == Standing::Gone {
            return;
        }
        if stood == Standing::InUse {
            one.leaves = Some(now);
            self.is_even = false;
        }
        let mut why = "it was stopped for good".to_owned();
        if self.count() == 0 {
            why.push_str(match self.stands_by() {
                Some(_) => ", and no other is in use: its flows begin anew at one that is taken into use now",
                None => ", and there is no other: what comes is dropped until the graph is changed",
            });
        }
        self.say(Happened::Gone, i, 0, why);
        self.lose_from_change(now, i);
        if self.count() < self.rule.min {
            self.quiet = now;
        }
    }

    fn lose_from_change(&mut self, now: Duration, i: u16) {
        let Some(change) = &mut self.change else { return };
        let goes_on = change.without(i);
        let (is_out, instance, waits) = (change.is_out(), change.instance(), change.may_wait());
        // Nobody is left who could have what leaves.
        let alone = !is_out && self.in_use().all(|other| other == instance);
        // What comes to the lost one does not wait until flows of others have ended.
        let urgent = waits && self.instance(i).is_some_and(|one| one.leaves.is_some());
        match goes_on && !alone && !urgent {
            true => self.end_if_done(now),
            false => self.end(now, Some(format!("{} was stopped for good", i + 1))),
        }
    }
}
