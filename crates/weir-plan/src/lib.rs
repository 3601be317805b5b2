//! Policies to plans: pure functions, no I/O.
//!
//! ```text
//! text ── parse ──▶ Policy ── check (with a Catalog) ──▶ Graph ── Plan::build ──▶ Plan
//! ```
//!
//! Service requests and VNF templates, which are JSON or YAML, are in [`service`]; they end in the
//! same [`Graph`].
//!
//! - [`PolicyFiles`] reads a policy with what it includes, through a [`Loader`].
//! - [`parse`] reads E2's policy language (E2 §3.1 and appendix) with typed NF configuration.
//! - [`check`] merges the pipelets into one [`Graph`] and resolves every name.
//! - [`consolidate`] leaves out what is done already and merges equal work; [`Plan::consolidated`].
//! - [`Plan::build`] divides the graph into segments and lays the rings between them.
//! - [`render`] shows errors with their place; `to_text` and `to_dot` show graphs and plans.
//!
//! # The language
//!
//! ```text
//! // comment            /* comment */
//! include "ports.weir";                            // relative to this file
//! Port<0> lan;  Port<8-15> ext;                    // port numbers of the policy
//! Address my_net 10.12.30.0/24;                    // for filters: [dst net my_net]
//! MacSwap x;                                       // an NF instance: type and name
//! L3L4Filter fw { default: "pass", rules: [] };    // with its configuration (JSON5)
//! pipelet inside {                                 // any number of them; the name may be left out
//!   lan [tcp port 80] -> (5 Mpps) fw -> x -> ext;  // [filter_out] -> (bandwidth) [filter_in] node
//!   lan [!(tcp port 80)] -> Drop;
//!   fw [fw.safe && ip] -> x;                       // an output of the source, by instance or type
//!   x -> [prio0] r;                                // an input of the destination
//!   default drop;                                  // what these nodes' edges do not take: drop
//!   first match;                                   // edges of these nodes in the text's order
//! }
//! default drop;                                    // the same for all nodes
//! first match;
//! ```
//!
//! # Meaning
//!
//! Each packet that leaves a node takes exactly one edge (E2, appendix). [`check`] proves that the
//! edges' filters are pairwise disjoint and take everything, or refuses the policy with an example
//! packet. `first match;` lets the order of the text decide instead, so that filters may overlap;
//! `default drop;` drops what no edge takes. An edge without a named output takes packets of all
//! outputs. An edge that several pipelets have in common is one edge.
//!
//! Where edges of different pipelets overlap, the pipelets' traffic classes are added to them: the
//! ports that a pipelet's packets come in by, and its filters there if pipelets share a port. Behind an NF
//! that may write these say nothing any more: packets then carry the edge that they left their port by, as
//! a tag. [`Warning::ClassAdded`] and [`Warning::EntryAdded`] say so.
//!
//! A filter may ask for tags of any NF: what nobody has said of a packet is false ([`Tags`]).
//!
//! A packet takes all edges out of a `Tee` that match. `-> [name] x` leads to that input of `x`, or gives
//! the packet an automatic tag that edges from `x` on ask for as `x.name`. NFs may form cycles, and
//! edges may lead to several ports: [`Graph::not_run`] says what of that does not run yet.

mod ast;
mod auto;
mod auto_tags;
mod bandwidth;
mod catalog;
mod check;
mod config;
mod cores;
mod cost;
mod declare;
mod describe;
mod diff;
mod domains;
mod draw;
mod draw_stages;
mod edges;
mod error;
mod exact;
mod explain;
mod fields;
mod graph;
mod lanes;
mod lexer;
mod merge;
mod nearest;
mod optimise;
mod parallel;
mod parse;
mod plan;
mod reach;
mod remedy;
mod render;
mod runs;
mod said;
pub mod service;
mod size;
mod span;
mod tags;
mod tee;
mod texts;
mod topo;
mod topology;
mod warn;
mod warning;
mod why;

pub use ast::{
    AddressDecl, Chain, Hop, Include, InstanceDecl, Item, Pipelet, Policy, PortDecl, Statement,
};
pub use bandwidth::Bandwidth;
pub use catalog::{Around, Catalog, ConfigProblem, NfInfo, ProgramId, TagInfo, TagKind};
pub use check::{Checked, MAX_PORTS, check};
pub use config::{Config, MAX_CONFIG_DEPTH};
pub use cost::{BRANCH_CYCLES, RING_CYCLES, latency_cycles, saved_percent};
pub use describe::{Access, Affinity, Effect, Touch, Work};
pub use diff::{
    Action, GroupFacts, NfFacts, RingFacts, RingUse, RouteFacts, Routes, State, WorkerFacts,
    between, diff,
};
pub use error::{MAX_ERRORS, MAX_WARNINGS, PolicyError, PolicyWarning};
pub use fields::{Field, FieldSet, Touched};
pub use graph::{Branch, Edge, EdgeId, Graph, InstanceOf, Node, NodeId, NodeKind, Output, Share};
pub use nearest::nearest;
pub use optimise::{
    Change, Consolidated, Done, Kept, Layer, PassedOver, Tallied, Tally, VnfTally, consolidate,
};
pub use parallel::{
    Against, Allowed, Apart, Conflict, InSequence, Parallel, Running, SideBySide, Stage, Verdict,
    WORTH_PERCENT, judge, pairs_table, parallelise,
};
pub use parse::{MAX_DECLARATIONS, MAX_EDGES, MAX_NAME, MAX_TEXT, parse};
pub use plan::{
    Carries, EdgeKind, Isolate, Lane, MAX_LANES, Options, Plan, PlanEdge, PlanError, Segment,
    SegmentId, SegmentKind, Source, SourceId,
};
pub use remedy::NoClass;
pub use render::{render, render_warnings};
pub use runs::NotRun;
pub use size::{
    Asked, Estimate, Group, Instances, Key, MAX_INSTANCES, MEAN_PACKET_BYTES, Over, SizedEdge,
    SizedNf, Sizing, Split, Spread, Way, size,
};
pub use span::{Line, Name, Span, Spanned};
pub use tags::{Mark, Place, Setting, TAG_SLOTS, Tags, TagsError};
pub use texts::{
    Document, LoadError, Loader, MAX_FILES, MAX_INCLUDE_DEPTH, MAX_TEXTS, NoFiles, PolicyFiles,
    Texts,
};
pub use topology::Topology;
pub use warning::Warning;
pub use why::Why;
