//! Who does harm again and again is not started again: a drain takes its place.

use crate::agent::{Agent, Event};
use std::time::Instant;
use weir_runtime::spec::EndSpec;

impl Agent {
    /// One more offence of `w`: true when it was one too many, and a drain takes its place.
    pub(in crate::agent) fn quarantine(&mut self, w: usize) -> bool {
        let window = self.policy.window;
        let offences = &mut self.trust.records[w].offences;
        offences.retain(|at| at.elapsed() < window);
        offences.push(Instant::now());
        if offences.len() < self.policy.offences.max(1) as usize {
            return false;
        }
        self.close(w);
        true
    }

    /// Worker `w` was ended for hanging, at no packet: true when it has hung so often that a drain takes its
    /// place, as often as one may be named, in that time or in what hanging so often takes.
    pub(in crate::agent) fn hangs_again(&mut self, w: usize) -> bool {
        let most = self.policy.offences.max(1);
        let patience = self.policy.patience.unwrap_or_default();
        let window = self.policy.window.max(patience.saturating_mul(most.saturating_mul(4)));
        let hangs = &mut self.trust.records[w].hangs;
        hangs.retain(|at| at.elapsed() < window);
        hangs.push(Instant::now());
        if !self.setup.workers[w].runs_nfs() || hangs.len() < most as usize {
            return false;
        }
        hangs.clear();
        self.close(w);
        true
    }

    /// Puts a drain in the place of worker `w`, from its next start on.
    pub(in crate::agent) fn close(&mut self, w: usize) {
        let setup = &mut self.setup.workers[w];
        setup.end = EndSpec::Drain;
        // From now on it counts as one of ours: the offender's program must not run in it again.
        setup.program = None;
        setup.writable = false;
        setup.careful.clear();
        setup.schedule.real_time = false;
        setup.attack = None;
        setup.nodes.iter_mut().for_each(|node| node.nf = None);
        self.events.push_back(Event::Quarantined { worker: w });
        self.flows_of_gone(w);
    }
}
