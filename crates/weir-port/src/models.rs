//! loom models of what the ports make of the rings of `weir-mem`, whose own models are beside them.
//!
//! Run by `ci/mem-proofs.sh`; what they cover and what they do not: docs/decisions/0004-proofs.md.
//! Each model says which mistake (`WEIR_BROKEN`, see [`crate::broken`]) must turn it red.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests, some of them in helpers

mod pool;
mod stage;

use crate::doorbell::Doorbell;
use std::rc::Rc;

thread_local! {
    /// A bell that nobody listens to.
    static BELL: Rc<Doorbell> = Rc::new(Doorbell::new().unwrap());
}

fn any_bell() -> Rc<Doorbell> {
    BELL.with(Rc::clone)
}
