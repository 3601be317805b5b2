//! From what an interface gives to packets as a wire carries them.

use crate::Room;
use crate::offload::{Gso, VlanTag, VnetHeader, finish_checksum, write};
use weir_mem::meta::Arrival;
use weir_packet::DropReason;
use weir_packet::headers::ETHERNET_LEN;

/// A frame as it came, and what is still to be done to it.
pub(super) struct Received<'f> {
    pub(super) bytes: &'f [u8],
    pub(super) header: VnetHeader,
    pub(super) vlan: Option<VlanTag>,
    pub(super) time_ns: u64,
}

/// Puts frames into buffers, finished and cut. A super-packet may be more than there is room for:
/// then it goes on where it was.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    /// Next segment of a frame that was begun.
    next: usize,
    head: Vec<u8>,
}

impl Cutter {
    /// One that goes on in the midst of a frame.
    pub(super) fn going_on(next: u64) -> Self {
        Cutter { next: usize::try_from(next).unwrap_or(0), head: Vec::new() }
    }

    /// Which segment of the frame is next; 0 when none was begun.
    pub(super) fn next(&self) -> u64 {
        self.next as u64
    }

    /// The frame that was begun does not go on.
    pub(super) fn forget(&mut self) {
        self.next = 0;
    }

    /// Takes in `frame`. False when room ran out before its end: bring the same frame again.
    pub(super) fn take(&mut self, frame: &Received<'_>, room: &mut Room<'_>) -> bool {
        let bytes = frame.bytes;
        if bytes.len() < ETHERNET_LEN {
            room.refuse(DropReason::Truncated, bytes.len());
            return true;
        }
        match Gso::new(bytes, &frame.header) {
            Ok(None) => whole(frame, room),
            Ok(Some(gso)) => self.segments(frame, &gso, room),
            Err(_) => refuse(bytes, room),
        }
    }

    fn segments(&mut self, frame: &Received<'_>, gso: &Gso, room: &mut Room<'_>) -> bool {
        let tag_len = frame.vlan.map_or(0, |_| VlanTag::LEN);
        while self.next < gso.segments() {
            if room.is_full() {
                return false;
            }
            let Ok(payload) = gso.cut(frame.bytes, self.next, &mut self.head) else {
                self.next = 0;
                return refuse(frame.bytes, room);
            };
            let payload = frame.bytes.get(payload).unwrap_or_default();
            let len = self.head.len() + payload.len() + tag_len;
            let head = &self.head;
            let arrival = arrival(frame.time_ns, len);
            if !room.take(len, &arrival, |b| {
                write(b, frame.vlan, head, payload);
            }) {
                return false;
            }
            self.next += 1;
        }
        self.next = 0;
        true
    }
}

fn whole(frame: &Received<'_>, room: &mut Room<'_>) -> bool {
    let checksum = match frame.header.needs_checksum() {
        true => match finish_checksum(frame.bytes, &frame.header) {
            Ok(finished) => Some(finished),
            Err(_) => return refuse(frame.bytes, room),
        },
        false => None,
    };
    let len = frame.bytes.len() + frame.vlan.map_or(0, |_| VlanTag::LEN);
    room.take(len, &arrival(frame.time_ns, len), |b| {
        let shift = write(b, frame.vlan, frame.bytes, &[]);
        if let Some(c) = checksum {
            b.write(c.at + shift, c.bytes());
        }
    })
}

fn refuse(bytes: &[u8], room: &mut Room<'_>) -> bool {
    room.refuse(DropReason::BadOffload, bytes.len());
    true
}

fn arrival(time_ns: u64, len: usize) -> Arrival {
    // Raw time of code 0 is the nanoseconds themselves (crate::time).
    Arrival { time_ns, raw_time: time_ns, wire_len: len as u32, time_format: 0 }
}
