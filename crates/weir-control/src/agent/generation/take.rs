//! Whether the next generation can read what it is given: found out while this one can still go on.

use super::precopy::LOOK;
use super::{Next, RelinkError};
use crate::agent::{Agent, State};
use std::time::{Duration, Instant};
use weir_runtime::spec::command;

/// So long it is waited for who takes over, before the agent looks after others.
const WHILE: Duration = Duration::from_millis(1);

impl Agent {
    /// Has these workers of the next generation take over what was handed to them, and waits until all have.
    pub(super) fn have_taken_over(
        &mut self,
        next: &mut Next,
        workers: &[usize],
        patience: Duration,
    ) -> Result<(), RelinkError> {
        let to = &mut next.agent;
        to.generation.taking.clear();
        for &w in workers {
            if matches!(to.workers[w].state, State::Running(_)) {
                to.generation.taking.insert(w, None);
                to.order(w, command::TAKE_OVER);
            }
        }
        // Who has died is found now, also if nobody has anything to take: this generation can still go on.
        to.stand_by(Duration::ZERO)?;
        let (since, mut again) = (Instant::now(), false);
        loop {
            let name = |w: usize| to.setup.workers[w].name.clone();
            let waited = to.generation.taking.iter().find(|(_, answer)| answer.is_none());
            let Some((&w, _)) = waited else { break };
            if since.elapsed() > patience {
                return Err(RelinkError::Unready { worker: name(w), patience });
            }
            if again {
                std::thread::sleep(LOOK);
            }
            again = true;
            to.stand_by(WHILE)?;
            // Who of this generation dies meanwhile is mended; the next then has to begin anew.
            self.take_in(Duration::ZERO).map_err(|e| RelinkError::Start(Box::new(e)))??;
        }
        to.all_taken()
    }

    /// Of the next generation: all have answered.
    pub(super) fn all_taken(&mut self) -> Result<(), RelinkError> {
        for (w, refused) in std::mem::take(&mut self.generation.taking) {
            let refused = refused.unwrap_or_default();
            if !refused.is_empty() {
                let (worker, what) = (self.setup.workers[w].name.clone(), refused.join("; "));
                return Err(RelinkError::NotTaken { worker, what });
            }
        }
        Ok(())
    }
}
