//! Changes of a running graph.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_relink/mod.rs"]
mod common_relink;

mod changes;
mod deaths;
mod flows;
