//! Real devices, clients and servers, in network namespaces of the tests; as root.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_live/mod.rs"]
mod common_live;

mod arrays;
mod balancer;
mod chain;
mod conformance;
mod death;
mod interfaces;
mod nat;
mod offload;
mod paths;
mod relink;
mod tap;
