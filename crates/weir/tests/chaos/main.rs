//! Random deaths, changes and moves; then the output is what it must be.

#[path = "../common_chaos/mod.rs"]
mod common_chaos;
#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_flows/mod.rs"]
mod common_flows;
#[path = "../common_live/mod.rs"]
mod common_live;
#[path = "../common_moves/mod.rs"]
mod common_moves;
#[path = "../common_oracle/mod.rs"]
mod common_oracle;

mod devices;
mod disturbed;
mod flows;
mod instances;
