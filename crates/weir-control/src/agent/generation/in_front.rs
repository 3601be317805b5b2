//! The agent before all others of its core, for as long as all others wait for it.

use crate::setup::Setup;
use weir_mem::realtime::Turns;

/// While what changes is copied faster than it changes, and in the pause, all wait for the agent: where the real-time class is permitted it
/// is before them, so that it does not wait for workers that poll on its core, of whatever class. It sleeps between two looks, and until somebody says something.
pub(super) struct InFront(Option<Turns>);

impl InFront {
    /// Steps there, where that class may be asked for and is permitted.
    pub(super) fn step(setup: &Setup, turns: Option<Turns>) -> Self {
        let turns = turns.filter(|turns| setup.real_time && turns.step_in_front().is_ok());
        InFront(turns)
    }
}

impl Drop for InFront {
    fn drop(&mut self) {
        if let Some(turns) = &self.0 {
            turns.step_back();
        }
    }
}
