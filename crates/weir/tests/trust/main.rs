//! Trust domains, sandboxes, and programs from elsewhere.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_oracle/mod.rs"]
mod common_oracle;
#[path = "../common_outside/mod.rs"]
mod common_outside;
#[path = "../common_sandbox/mod.rs"]
mod common_sandbox;

mod domains;
mod hostile_replica;
mod outside;
mod reserve;
mod sandbox;
mod sandbox_rights;
mod update;
