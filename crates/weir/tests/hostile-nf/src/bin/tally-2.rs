//! The second version of `Tally`, which goes on from what the first knew.

#[path = "../tally.rs"]
mod tally;

use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    packets: u64,
    bytes: u64,
}

impl weir_nf::FlowState for Seen {
    const VERSION: u32 = 2;

    fn from_version(version: u32, bytes: &[u8]) -> Option<Self> {
        match version {
            1 => Some(Seen { packets: weir_nf::read_state(bytes).ok()?, bytes: 0 }),
            _ => None,
        }
    }
}

impl tally::Seen for Seen {
    fn count(&mut self, len: u64) -> (u64, u64) {
        (self.packets, self.bytes) = (self.packets + 1, self.bytes + len);
        (self.packets, self.bytes)
    }
}

tally!(2, Seen);
