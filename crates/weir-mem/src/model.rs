//! What models are made with, here and in crates that build on this one.

pub use crate::ring::heap_successors;

use crate::fault::Step;
use loom::thread::{self, ThreadId};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Explores every interleaving of `model` with at most `LOOM_MAX_PREEMPTIONS` (by default
/// `preemptions`) involuntary switches per execution, and every value that a load may return.
pub fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

thread_local! {
    // Not loom's: all threads of a model run on one. Others than the one that is to die pass steps, too.
    static DIES: Cell<Option<(Step, ThreadId)>> = const { Cell::new(None) };
}

struct Killed;

/// Runs `work` until it passes `step`; true when it came there and died: the thread's stack is unwound from
/// the step on. One thread of a model may.
pub fn dies_at(step: Step, work: impl FnOnce()) -> bool {
    DIES.set(Some((step, thread::current().id())));
    let end = catch_unwind(AssertUnwindSafe(work));
    DIES.set(None);
    match end {
        Ok(()) => false,
        Err(killed) if killed.is::<Killed>() => true,
        Err(failure) => resume_unwind(failure),
    }
}

pub(crate) fn step(step: Step) {
    let dies = DIES.get().filter(|(at, _)| *at == step);
    if dies.is_some_and(|(_, who)| who == thread::current().id()) {
        // Not `panic!`: nothing is wrong, so nothing is to be printed.
        resume_unwind(Box::new(Killed));
    }
}
