//! The µNFs that come with Weir, one self-registering file each. Linking this crate is enough:
//! `weir nf list` shows them. `docs/writing-a-nf.md` is the tour for writing another.
#![forbid(unsafe_code)]

pub mod busy;
pub mod check_ip_header;
pub mod conn_track;
pub mod count_subnet;
pub mod count_url;
pub mod drop;
pub mod flow_monitor;
pub mod http_classifier;
pub mod http_parser;
pub mod icmp_error;
pub mod l3l4_filter;
pub mod l4_load_balancer;
pub mod load_balancer;
pub mod mac_swap;
pub mod napt;
pub mod null;
pub mod order_fragments;
pub mod packet_size_histogram;
mod payload;
pub mod policer;
mod rewrite;
mod rules;
pub mod tee;
pub mod ttl_decrement;
pub mod validate_url;
