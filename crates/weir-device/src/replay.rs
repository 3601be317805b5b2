//! Recorded frames from memory, round and round: what measurements on captures need, which must last longer than
//! a capture does and not wait for a file.

use crate::{DeviceError, Place, Receive, Room, Status};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_mem::meta::Arrival;

/// Frames in turn, as fast as they are taken and without end. It has no text form: measurements bind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaySpec {
    /// The frames as sent, without frame check sequence; none: there is never a packet.
    pub frames: Vec<Vec<u8>>,
    /// Most frames that are given at a time; `None`: as many as are taken.
    pub burst: Option<u64>,
}

impl ReplaySpec {
    /// Length in bytes of the longest frame.
    pub fn longest(&self) -> usize {
        self.frames.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// A source that gives them.
pub struct Replay {
    spec: ReplaySpec,
    /// Frames given so far.
    given: u64,
    base_ns: u64,
}

impl Replay {
    /// The source of `spec`, going on from `place`.
    pub fn new(spec: &ReplaySpec, place: Place) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Replay { spec: spec.clone(), given: place[0], base_ns: since_epoch.as_nanos() as u64 }
    }
}

impl Receive for Replay {
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError> {
        let frames = &self.spec.frames;
        if frames.is_empty() {
            return Ok(Status::Later(u64::MAX));
        }
        let mut next = (self.given % frames.len() as u64) as usize;
        let most = self.spec.burst.unwrap_or(u64::MAX);
        let mut given = 0;
        while given < most {
            let Some(frame) = frames.get(next) else { break };
            let wire_len = frame.len() as u32;
            let arrival = Arrival { time_ns: self.base_ns, wire_len, ..Arrival::default() };
            if !room.take(frame.len(), &arrival, |bytes| {
                bytes.write(0, frame);
            }) {
                break;
            }
            given += 1;
            next = if next + 1 == frames.len() { 0 } else { next + 1 };
        }
        self.given += given;
        Ok(Status::More)
    }

    fn place(&self) -> Place {
        [self.given, 0, 0, 0, 0, 1]
    }
}
