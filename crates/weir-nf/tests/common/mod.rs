//! Flows for the tests of the flow table.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; a test may panic")]

use serde::{Deserialize, Serialize};
use weir_nf::wire::Frame;
use weir_nf::{FlowState, FlowTable};
use weir_packet::{Depth, Direction, FlowKey, parse};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Count(pub u32);
impl FlowState for Count {}

/// State of several lengths.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    pub text: String,
    pub list: Vec<u32>,
}
impl FlowState for Notes {
    const VERSION: u32 = 3;
}

pub const SECOND: u64 = 1_000_000_000;
pub const IDLE: u64 = 120 * SECOND;

pub fn key(frame: &[u8]) -> (FlowKey, Direction) {
    FlowKey::from_packet(frame, &parse(frame, Depth::L4)).unwrap()
}

pub fn udp(flow: u32) -> (FlowKey, Direction) {
    let [_, a, b, c] = flow.to_be_bytes();
    key(&Frame::ipv4([10, a, b, c], [192, 0, 2, 1]).udp(7, 53).build())
}

/// A segment of one connection, from the client or to it.
pub fn tcp(from_client: bool, flags: u8) -> Vec<u8> {
    let (client, server) = ([192, 0, 2, 200], [192, 0, 2, 1]);
    match from_client {
        true => Frame::ipv4(client, server).tcp(40_000, 80, flags).build(),
        false => Frame::ipv4(server, client).tcp(80, 40_000, flags).build(),
    }
}

/// Counts a packet of a frame; what the flow has counted, whether its starter sent it, whether it
/// is the first.
pub fn count(table: &mut FlowTable<Count>, frame: &[u8], now: u64) -> (u32, bool, bool) {
    let layers = parse(frame, Depth::L4);
    let (key, direction) = table.key(frame, &layers, now).unwrap();
    let flow = table.find_by(key, direction, now, layers.tcp_flags(frame)).unwrap();
    flow.state.0 += 1;
    (flow.state.0, flow.from_starter, flow.is_new)
}
