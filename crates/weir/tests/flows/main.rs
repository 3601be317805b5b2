//! Flows that move, are replicated, recover and scale.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_moves/mod.rs"]
mod common_moves;
#[path = "../common_oracle/mod.rs"]
mod common_oracle;

mod ended;
mod leave;
mod moves;
mod moves_deaths;
mod moves_replicated;
mod nat_moves;
mod replica_calls;
mod replication;
mod scaling;
mod seen;
