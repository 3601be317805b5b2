//! loom models of everything in this crate that two processes do at once.
//!
//! Run by `ci/mem-proofs.sh`; what they cover and what they do not: docs/decisions/0004-proofs.md.
//! Each model says which `broken-*` feature must turn it red.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests, some of them in helpers

mod doorbell;
mod ledger;
mod mail;
mod origins;
mod replica;
mod ring;
mod state;
mod sweep;
mod watermark;

/// Explores every interleaving of `model` with at most `LOOM_MAX_PREEMPTIONS` (by default
/// `preemptions`) involuntary switches per execution, and every value that a load may return.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}
