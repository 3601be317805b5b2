//! Memory for a single packet, in which a µNF is run on it.

use weir_mem::arena::HEADROOM;
use weir_mem::meta::Arrival;
use weir_mem::{Arena, ArenaShape, Entry, RegionError, Seq};
use weir_nf::{Clock, Instance};
use weir_packet::{Packet, Verdict};

use crate::Input;

/// Longest packet that Weir takes in, in bytes.
pub(crate) const LONGEST: usize = ArenaShape::MAX_PACKET as usize;

/// Room for one packet.
pub(crate) struct Bench {
    arena: Arena,
    clock: Clock,
}

impl Bench {
    pub(crate) fn new() -> Result<Self, RegionError> {
        let arena = Arena::private(ArenaShape::new(1, ArenaShape::MAX_PACKET))?;
        Ok(Bench { arena, clock: Clock::default() })
    }

    /// Runs `nf` on the packet that came in as `input` and is now `bytes`. What another µNF found out
    /// about its headers is forgotten before; tags are kept, and cleared when it is `fresh`.
    pub(crate) fn process(
        &mut self,
        nf: &mut dyn Instance,
        nf_input: u8,
        input: &Input,
        bytes: &mut Vec<u8>,
        fresh: bool,
    ) -> Verdict {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let mut entry = Entry::packet(0, HEADROOM, len, Seq::new(0), 0);
        if let Some(mut memory) = self.arena.bytes_mut(&mut entry) {
            memory.write(0, bytes);
        }
        if let Some(meta) = self.arena.meta(&entry) {
            let arrival = Arrival {
                time_ns: input.time.to_ns(),
                wire_len: input.wire_len,
                ..Arrival::default()
            };
            meta.arrive(&arrival, input.port, fresh);
        }
        let Some(packet) = Packet::admit(entry, self.arena.view()) else {
            return Verdict::drop(weir_packet::DropReason::BadEntry);
        };
        let mut packets = [packet];
        let mut verdicts = [Verdict::FIRST];
        nf.process(&mut packets, &mut verdicts, &self.arena, nf_input, &mut self.clock);
        let after = self.arena.bytes(packets[0].entry());
        bytes.resize(after.len(), 0);
        after.copy_to(0, bytes);
        verdicts[0]
    }
}
