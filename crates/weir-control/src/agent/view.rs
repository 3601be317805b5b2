//! What whoever holds the agent can see of the graph.

use super::{Agent, Recovered, State};
use crate::setup::Setup;

impl Agent {
    /// What is running.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Process number of a worker, while it has one.
    pub fn pid(&self, worker: usize) -> Option<u32> {
        match &self.workers.get(worker)?.state {
            State::Running(p) | State::Done(p) => Some(p.pid().as_raw_nonzero().get() as u32),
            State::Waiting | State::Restarting(_) | State::Gone => None,
        }
    }

    /// One line on the sandbox that workers are in.
    pub fn sandbox(&self) -> String {
        self.programs.summary()
    }

    /// True when packet bytes are on huge pages.
    pub fn huge_pages(&self) -> bool {
        self.memory.huge()
    }

    /// Bytes of packet memory, and of one buffer.
    pub fn memory_size(&self) -> (usize, usize) {
        self.memory.size()
    }

    /// The ledger words of worker `w` as they are now.
    pub fn words(&self, w: usize) -> Option<Vec<u64>> {
        self.memory.workers.get(w)?.ledger.read()
    }

    /// What worker `w`'s µNFs remembered when it was last written down: for each that remembers
    /// anything its name, which instance it is, its type, and its state as `Instance::save` gives it.
    pub fn kept(&self, w: usize) -> Option<Vec<weir_runtime::Kept>> {
        self.memory.kept(w)
    }

    /// The layout of worker `w`'s words.
    pub fn layout(&self, w: usize) -> Option<weir_runtime::layout::Layout> {
        self.memory.workers.get(w).map(|m| m.layout)
    }

    /// How often worker `w` was named for nonsense.
    pub fn offences(&self, w: usize) -> u32 {
        self.trust.offences(w)
    }

    /// True when somebody has written nonsense, whether or not it is known who.
    pub fn has_seen_nonsense(&self) -> bool {
        self.trust.has_seen_nonsense()
    }

    /// Buffers that were found missing while the graph ran, and nobody was named for it.
    pub fn missing(&self) -> u64 {
        self.missing_unnamed()
    }

    /// How often worker `w`'s successor had to begin without what its µNFs had remembered.
    pub fn forgotten(&self, w: usize) -> u32 {
        self.workers.get(w).map_or(0, |w| w.forgotten)
    }

    /// How often another waited no longer for flows that worker `w` had announced.
    pub fn unsent(&self, w: usize) -> u32 {
        self.workers.get(w).map_or(0, |w| w.unsent)
    }

    /// What worker `w`'s successors have got back from the replica.
    pub fn recovered(&self, w: usize) -> Recovered {
        self.workers.get(w).map_or_else(Recovered::default, |w| w.recovered)
    }

    /// Packets lost with worker `w`'s deaths, and how often it was restarted.
    pub fn toll(&self, w: usize) -> (u64, u32) {
        self.workers.get(w).map_or((0, 0), |w| (w.lost, w.restarts))
    }

    /// What worker `w`'s µNFs reported when they ended: JSON, by node.
    pub fn reports(&self, w: usize) -> &[String] {
        self.workers.get(w).map_or(&[], |w| &w.report)
    }
}
