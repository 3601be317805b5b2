//! What the commands of the program do, and say.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_moves/mod.rs"]
mod common_moves;
#[path = "../common_oracle/mod.rs"]
mod common_oracle;

mod checked;
mod cli;
mod cli_run;
mod dump_drops;
mod ending;
mod examples;
mod ingress;
mod requests;
mod service;
mod set;
mod traces;
