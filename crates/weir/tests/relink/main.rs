//! Changes of a running graph.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_relink/mod.rs"]
mod common_relink;

mod changes;
mod deaths;
mod flows;
