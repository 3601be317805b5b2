//! The agent before all others of its core, for as long as all others wait for it.

use crate::setup::Setup;
use weir_mem::realtime;

/// While what changes is copied faster than it changes, and in the pause, all wait for the agent: where workers are in the real-time
/// class it is too, so that it does not wait for services that poll on its core. It sleeps between two looks.
pub(super) struct InFront(bool);

impl InFront {
    /// Steps there, where workers are to be in that class and it is permitted.
    pub(super) fn step(setup: &Setup) -> Self {
        let wanted = setup.workers.iter().any(|worker| worker.schedule.real_time);
        InFront(wanted && realtime::set_fifo(None, 1).is_ok())
    }
}

impl Drop for InFront {
    fn drop(&mut self) {
        if self.0 {
            let _ = realtime::set_default(None);
            let _ = realtime::take_short_turns();
        }
    }
}
