//! Orders of the operator that wait for what moves by itself.

use super::{Answer, MoveError, Moved, Open};
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

    /// True while the operator's own order is under way.
    pub(super) fn moves_for_operator(&self) -> bool {
        let own = |open: &Open| matches!(open.answer, Answer::Moved { scales: false, .. });
        self.flows.open.values().any(own)
    }
}
