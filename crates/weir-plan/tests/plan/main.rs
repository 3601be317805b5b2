//! Policies: what is read, refused, planned and drawn, and how plans differ.

#[path = "../common/mod.rs"]
mod common;

mod auto;
mod auto_tags;
mod bad;
mod cyclic;
mod descriptions;
mod diff_options;
mod diffs;
mod includes;
mod instances;
mod meetings;
mod numa;
mod objectives;
mod parallel;
mod plans;
mod policies;
mod remedy;
mod service;
mod size;
mod surprises;
mod tags;
mod tees;
mod texts;
