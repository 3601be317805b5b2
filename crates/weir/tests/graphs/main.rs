//! What policies mean, on captures: every kind of port and edge, and the oracle.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_live/mod.rs"]
mod common_live;
#[path = "../common_oracle/mod.rs"]
mod common_oracle;
#[path = "../common_relink/mod.rs"]
mod common_relink;

mod arrays;
mod conformance;
mod consolidate;
mod cycles;
mod drop_when_full;
mod e2;
mod early_drop;
mod fragments;
mod instances;
mod oracle;
mod parallel;
mod ports;
mod random_vnfs;
mod tags;
mod tees;
