//! What measurements ask of an agent: to play workers themselves, among others that are processes, and to set a source's rate.

use super::Agent;
use super::flows::Given;
use crate::inline::{InlineError, stepper};
use weir_runtime::Stepper;
use weir_runtime::moves::Order;

impl Agent {
    /// Worker `w`, which must be one of those that [`Agent::start_hosting`] started no process for:
    /// attached to the same memory, it takes a step whenever it is told to.
    pub fn stepper(&self, w: usize) -> Result<Stepper, InlineError> {
        stepper(&self.setup, &self.memory, w)
    }

    /// Has worker `w`, a service that receives and is running, take so many packets a second from now on, and make up for those that
    /// were late; `None`: as many as are taken. False: it could not be told.
    pub fn pace(&mut self, w: usize, per_second: Option<u64>) -> bool {
        matches!(self.give(w, &Order::Pace(per_second)), Given::Told)
    }
}
