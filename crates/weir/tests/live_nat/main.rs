//! A firewall and a translator of addresses, each of two instances, between real hosts. In two graphs behind each other, or in one, where each
//! translator shares a worker with its firewall and packets meet that again.

#[path = "../common_crash/mod.rs"]
mod common_crash;
#[path = "../common_live/mod.rs"]
mod common_live;

mod datagrams;
mod site;
mod streams;
