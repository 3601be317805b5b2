//! How large packet buffers, pools and rings are.

use super::RunOptions;
use crate::devices::Captures;
use crate::setup::Sizes;
use std::collections::BTreeMap;
use weir_device::DeviceSpec;
use weir_mem::ArenaShape;
use weir_plan::{EdgeId, NodeKind, Plan, Segment, SegmentKind};

/// Longest packet that is expected where nothing says how long packets can be, in bytes.
const USUAL_PACKET: u32 = 1_920;

/// Length of the shortest frame, which every buffer holds.
const MIN_PACKET: u32 = 64;
/// Packet memory that a pool takes at most, in bytes.
const POOL_BYTES: u32 = 64 << 20;

/// Buffers hold the largest record of any capture; pools are as large as a budget allows. Buffers
/// are no larger than they must be: a process that touches each packet's first bytes touches as many
/// pages as packets lie on, and the processor remembers some thousand of them for all processes
/// together (docs/performance.md, "Findings").
pub(super) fn sizes(
    plan: &Plan,
    binds: &BTreeMap<u16, DeviceSpec>,
    captures: &Captures,
    options: &RunOptions,
) -> Sizes {
    let recorded = captures.values().map(|s| s.largest);
    let longest = |d: &DeviceSpec| match d {
        DeviceSpec::Generator(g) => u32::from(g.longest()),
        DeviceSpec::Listed(l) => u32::try_from(l.longest()).unwrap_or(u32::MAX),
        DeviceSpec::Replay(r) => u32::try_from(r.longest()).unwrap_or(u32::MAX),
        DeviceSpec::Afp(_) | DeviceSpec::Tap(_) => weir_device::longest_packet(d).max(USUAL_PACKET),
        DeviceSpec::Pcap { .. } | DeviceSpec::Null => 0,
    };
    let grows = plan.graph.nodes().iter().any(|node| match &node.kind {
        NodeKind::Nf { info, .. } => info.resizes || info.creates > 0,
        NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => false,
    });
    let grown = if grows { USUAL_PACKET } else { 0 };
    let packet = recorded
        .chain(binds.values().map(longest))
        .chain([grown, MIN_PACKET])
        .max()
        .unwrap_or(MIN_PACKET);
    let packet = packet.min(ArenaShape::MAX_PACKET);
    let pool = options.pool.unwrap_or_else(|| (POOL_BYTES / packet).clamp(512, 4096));
    let pool_bits = pool.clamp(64, 1 << 20).next_power_of_two().trailing_zeros();
    Sizes { packet, pool_bits, ring: options.ring }
}

/// Most buffers of its own that a segment may need for one packet that comes to it: for what its µNFs make of it, along the longest
/// way. `copies` says how many are made where an edge leads to an array of ports. What is made is taken to go
/// every way that its NF has, so this may be some more than is ever made.
pub(super) fn needs(plan: &Plan, segment: &Segment, copies: impl Fn(EdgeId) -> u32) -> u32 {
    if let SegmentKind::Gate { edge } = segment.kind {
        return copies(edge).saturating_add(1);
    }
    let mut made = BTreeMap::new();
    for node in segment.nodes.iter().rev() {
        let leaves = plan.edges.iter().filter(|edge| edge.from == *node);
        let behind = |to| made.get(&to).copied().unwrap_or(0);
        let next = leaves.map(|edge| behind(edge.to).max(copies(edge.id))).max().unwrap_or(0);
        let own = match plan.graph.node(*node).map(|node| &node.kind) {
            Some(NodeKind::Nf { info, .. }) => u32::from(info.creates),
            _ => 0,
        };
        made.insert(*node, own.saturating_mul(next.saturating_add(1)).saturating_add(next));
    }
    made.into_values().max().unwrap_or(0)
}
