//! What goes into a run, and what comes out.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_capture::{LinkType, Timestamp};
use weir_packet::DropReason;

/// A packet that a device received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The policy's port number.
    pub port: u16,
    /// As far as captured.
    pub bytes: Vec<u8>,
    /// Length on the wire in bytes, as the source states it.
    pub wire_len: u32,
    /// When, as the source states it.
    pub time: Timestamp,
    /// What the first byte belongs to; what is not Ethernet is dropped where it comes in.
    pub link: LinkType,
}

/// A packet that left by a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port number that it came in by.
    pub source: u16,
    /// Its place among the packets of that source, counted from 0.
    pub place: usize,
    /// As sent.
    pub bytes: Vec<u8>,
    /// As received; of a packet that a µNF made, its length.
    pub wire_len: u32,
    /// As received; of a packet that a µNF made, that of the packet it follows from.
    pub time: Timestamp,
}

/// A packet that was dropped after it had come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// Name of the node that dropped it, as in [`Outcome::nodes`].
    pub by: String,
    /// Why.
    pub reason: &'static str,
    /// As it was then.
    pub packet: Sent,
}

/// A node's or an edge's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets in, those refused at once among them.
    pub packets: u64,
    /// Bytes in, without those of packets refused at once.
    pub bytes: u64,
    /// Packets dropped there, by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub(crate) fn count(&mut self, bytes: usize) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        let count = self.drops.entry(reason.name()).or_default();
        *count = count.saturating_add(1);
    }
}

/// What a run must give.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What each port sent, by number: for each source in the order of its packets.
    pub sent: BTreeMap<u16, Vec<Sent>>,
    /// What was dropped, but for what was refused at once.
    pub discarded: Vec<Discarded>,
    /// Counters by name of the node as in Weir's report: `rx:lan`, an NF's name, `tx:wan`.
    pub nodes: BTreeMap<String, Counts>,
    /// Counters of all edges by name.
    pub edges: BTreeMap<String, Counts>,
    /// What the µNFs have to say in the end, by name.
    pub reports: BTreeMap<String, Value>,
    /// Packets that µNFs made.
    pub created: u64,
    /// Copies that µNFs made.
    pub copied: u64,
}

impl Outcome {
    /// Packets dropped, for all reasons.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.nodes.values().flat_map(|node| node.drops.values()).sum()
    }
}
