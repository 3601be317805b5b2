//! Hostile workers: needs the feature `attacks`.

#[path = "../common_crash/mod.rs"]
mod common_crash;

mod letters;
mod workers;
