//! Orders of the operator that wait for what moves by itself.

use super::{Answer, MoveError, MoveFlows, Moved, Open};
use crate::agent::{Agent, Event};
use std::time::Duration;

impl Agent {
    /// Begins with the operator's orders that had to wait.
    pub(in crate::agent) fn move_queued(&mut self) {
        for (ticket, order) in std::mem::take(&mut self.flows.queue) {
            match self.begin_moving(&order, ticket) {
                Ok(()) => {}
                Err(MoveError::Busy(_)) => self.flows.queue.push((ticket, order)),
                Err(why) => self.not_moved(ticket, why.to_string()),
            }
        }
    }

    pub(super) fn not_moved(&mut self, ticket: u64, why: String) {
        let (failures, times) = (vec![why], Vec::new());
        let moved = Moved { flows: 0, failures, took: Duration::ZERO, times };
        self.events.push_back(Event::FlowsMoved { ticket, moved });
    }

    /// True when an order for the NFs of this crew, whose flows are being moved, may wait for that: it moves by itself, and so is through with a step
    /// soon; and no other waits.
    pub(super) fn may_be_queued(&self, crew: &str) -> bool {
        let mut crews = self.memory.crews().iter().flatten();
        let Some(crew) = crews.find(|own| own.name == crew) else { return false };
        let by_operator = |open: &Open| matches!(open.answer, Answer::Moved { group, scales: false, .. } if group == crew.group());
        let waits = |(_, order): &(u64, MoveFlows)| crew.is_of(&order.nf);
        !self.flows.open.values().any(by_operator) && !self.flows.queue.iter().any(waits)
    }
}
