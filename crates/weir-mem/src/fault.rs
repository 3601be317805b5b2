//! Named steps of the claim/publish protocol at which a test can kill a worker.
//!
//! With the feature `faults` a worker that was told to kills itself with SIGKILL at the n-th time
//! it comes by a step; without it [`step`] is empty and the compiler removes it.

/// A place in the protocol where a crash must do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// Entries peeked at, nothing written.
    Peeked = 1,
    /// Some owner words of the batch written, not all.
    HalfOwned,
    /// All owner words written, claim not committed.
    Owned,
    /// Claim committed, nothing processed.
    Claimed,
    /// Packets processed (and possibly modified), nothing staged.
    Processed,
    /// Some output slots written.
    HalfStaged,
    /// All output slots written, ledger not committed.
    Staged,
    /// Ledger's bank written, generation not.
    Banked,
    /// Ledger committed, nothing published.
    Committed,
    /// Some rings published.
    HalfPublished,
    /// All rings published, watermarks not.
    Published,
    /// Everything done, about to look for the next batch.
    Done,
    /// Ready beside the generation that runs, and not told to begin.
    StandingBy,
    /// Told to begin; what was handed over is taken.
    Begun,
    /// Told to hand over, nothing written down.
    HandingOver,
    /// Of a migration of flows: a letter was taken, and nothing done of what it asks for.
    LetterTaken,
    /// A letter was sent, and what is to be done besides was not.
    LetterSent,
    /// A director's markers were sent.
    MarkSent,
    /// A marker was taken, and nothing done.
    MarkTaken,
    /// Some records of the batch written into the replica, not all.
    HalfReplicated,
    /// All records of the batch written into the replica, nothing of it committed.
    Replicated,
    /// Some records of a predecessor's replica taken over, not all.
    Recovering,
    /// Has taken over what the generation before has handed on, and has not said so.
    TakenOver,
    /// What a migration of replicated flows has changed is written into the replica, and not committed.
    MovesWritten,
    /// It is committed, and no letter of it has left.
    MovesKept,
    /// Of a service, when the graph is changed: attached to the next generation's memory, and has not said so.
    Adopting,
    /// Of an Rx service: told to take nothing more from its device.
    Holding,
    /// Of a service: told to go on in the next generation, with its device in the old one's hands.
    GoingOver,
    /// Of a service: has taken its device along, and committed nothing there.
    CarriedOver,
    /// Has copied flows for the next generation while it works, and has not said so.
    Precopied,
    /// Of the next generation: has taken such flows, and has not said so.
    CopyTaken,
    /// Packets go again, and some flows of a predecessor's replica have not been read.
    ReadingOn,
}

impl Step {
    /// Those of a migration of flows.
    pub const MOVES: [Step; 4] =
        [Step::LetterTaken, Step::LetterSent, Step::MarkSent, Step::MarkTaken];

    /// Those of a batch, in the order in which a worker passes.
    pub const ALL: [Step; 12] = [
        Step::Peeked,
        Step::HalfOwned,
        Step::Owned,
        Step::Claimed,
        Step::Processed,
        Step::HalfStaged,
        Step::Staged,
        Step::Banked,
        Step::Committed,
        Step::HalfPublished,
        Step::Published,
        Step::Done,
    ];
}

#[cfg(feature = "faults")]
mod armed {
    use std::sync::atomic::{AtomicU32, Ordering};
    pub(super) static STEP: AtomicU32 = AtomicU32::new(0);
    pub(super) static LEFT: AtomicU32 = AtomicU32::new(0);

    #[cold]
    pub(super) fn hit() {
        // Relaxed: one thread arms and one passes.
        if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            let me = rustix::process::getpid();
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        }
    }
}

/// Says that this process dies at the `nth` (from 1) passing of `step`.
#[cfg(feature = "faults")]
pub fn arm(step: u32, nth: u32) {
    use std::sync::atomic::Ordering;
    armed::LEFT.store(nth.max(1), Ordering::Relaxed);
    armed::STEP.store(step, Ordering::Relaxed);
}

/// Passes a step.
#[inline(always)]
pub fn step(step: Step) {
    #[cfg(loom)]
    crate::model::step(step);
    #[cfg(feature = "faults")]
    if armed::STEP.load(std::sync::atomic::Ordering::Relaxed) == step as u32 {
        armed::hit();
    }
    #[cfg(not(feature = "faults"))]
    let _ = step;
}
