//! Workers and agents die at any moment and at every step.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_outside/mod.rs"]
mod common_outside;

mod agent;
mod cycles;
mod hung;
mod idle;
mod instances;
mod random;
mod report;
mod steps;
mod stuck;
mod words;
