//! Packet classification: an ordered list of [`Rule`]s compiled to a [`Classifier`] whose lookup does not walk it.
//!
//! The first rule that matches wins. [`Rule::matches`] defines what that means; [`Classifier::classify`] gives
//! the same answer fast (see [`Classifier`] for the algorithm, its bounds and its worst case).
//! [`RuleSpec`] is the form operators write; [`generate`](mod@generate) makes ClassBench-like rule sets for
//! tests and benches.

mod addresses;
mod batch;
mod bitvectors;
mod classifier;
mod compiled;
mod cross;
pub mod generate;
mod headers;
mod ports;
mod rule;
mod spec;
mod tree;
mod trees;

pub use batch::{HeaderBatch, LANES};
pub use classifier::{BuildError, Classifier, MAX_RULES, NO_RULE, Shape};
pub use headers::{Fragment, Headers, Net};
pub use rule::{FlagMatch, FragmentMatch, MacMatch, Prefix, Rule, VlanMatch};
pub use spec::{Action, FragmentSpec, NumberOrText, RuleSpec, SpecError};
