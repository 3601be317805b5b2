//! Workers that whoever holds the agent plays itself, among others that are processes.

use super::Agent;
use crate::inline::{InlineError, stepper};
use weir_runtime::Stepper;

impl Agent {
    /// Worker `w`, which must be one of those that [`Agent::start_hosting`] started no process for:
    /// attached to the same memory, it takes a step whenever it is told to.
    pub fn stepper(&self, w: usize) -> Result<Stepper, InlineError> {
        stepper(&self.setup, &self.memory, w)
    }
}
