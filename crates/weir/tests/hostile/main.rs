//! Hostile workers: needs the feature `attacks`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../common_crash/mod.rs"]
mod common_crash;

mod letters;
mod workers;
