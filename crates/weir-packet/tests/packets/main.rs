//! Headers, flows and checksums of packets, well-formed or not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../common/mod.rs"]
mod common;

mod against_etherparse;
mod any_bytes;
mod check_ip;
mod flow_bytes;
mod flow_fields;
mod flow_keys;
mod fragment_table;
mod l4_checksums;
mod layers;
mod layers_ipv6;
mod on_captures;
mod plain;
