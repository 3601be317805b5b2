//! loom models of everything in this crate that two processes do at once.
//!
//! Run by `ci/mem-proofs.sh`; what they cover and what they do not: docs/decisions/0004-proofs.md.
//! Each model says which mistake (`WEIR_BROKEN`, see [`crate::broken`]) must turn it red.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests, some of them in helpers

use crate::model::{dies_at, explore};

mod doorbell;
mod ends;
mod ledger;
mod mail;
mod origins;
mod replica;
mod ring;
mod state;
mod sweep;
mod watermark;
