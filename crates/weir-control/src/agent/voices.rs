//! What workers say to the operator, as far as they may.

use super::{Agent, Event, State};
use crate::process::Leaving;
use crate::voice::shortened;

impl Agent {
    /// Takes in what worker `w` has written to its standard error.
    pub(super) fn hear_words(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        if let State::Running(process) | State::Done(process) = &mut worker.state {
            let lines = process.ear.hear(&mut worker.allowance);
            self.said(w, lines, false);
        }
    }

    /// The same of one that has ended: all that there is.
    pub(super) fn hear_last_words(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        if let State::Running(process) | State::Done(process) = &mut worker.state {
            let lines = process.ear.last_words(&mut worker.allowance);
            self.said(w, lines, true);
        }
    }

    /// Waits until a worker that was told to leave has, hearing it out; true as [`Leaving::wait`].
    pub(super) fn see_off(&mut self, w: usize, mut leaving: Leaving) -> bool {
        let mut lines = Vec::new();
        let left = leaving.wait(&mut self.workers[w].allowance, &mut lines);
        self.said(w, lines, true);
        left
    }

    /// Worker `w` wants the operator to know something.
    pub(super) fn heard_warning(&mut self, w: usize, text: String) {
        let text = shortened(text);
        if self.workers[w].allowance.admits(text.len()) {
            self.events.push_back(Event::Warning { worker: w, text });
        }
        self.tell_omitted(w, false);
    }

    fn said(&mut self, w: usize, lines: Vec<String>, ended: bool) {
        let name = &self.setup.workers[w].name;
        let said = |text| Event::Said { worker: name.clone(), text };
        self.events.extend(lines.into_iter().map(said));
        self.tell_omitted(w, ended);
    }

    fn tell_omitted(&mut self, w: usize, ended: bool) {
        if let Some(bytes) = self.workers[w].allowance.omitted(ended) {
            let worker = self.setup.workers[w].name.clone();
            self.events.push_back(Event::Omitted { worker, bytes });
        }
    }

    /// What the workers of a generation that does not begin, or has ended, have said is told all the same.
    pub(super) fn take_words_of(&mut self, other: &mut Agent) {
        let events = std::mem::take(&mut other.events).into_iter();
        self.events
            .extend(events.filter(|e| matches!(e, Event::Said { .. } | Event::Omitted { .. })));
    }
}
