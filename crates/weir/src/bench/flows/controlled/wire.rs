//! What the parts say to each other, and how it goes over a socket: each message by a write of its own, as OpenNF's do.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A packet under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// How many were made before it.
    pub number: u64,
    pub bytes: Vec<u8>,
}

/// What an instance does with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Processes them.
    Process,
    /// Gives them to the controller, unprocessed.
    HandOver,
    /// Keeps them until it processes again, but those that the controller forwarded.
    Keep,
}

/// Where the switch sends packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    Source,
    /// And a copy of each to the controller.
    SourceAndController,
    Target,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Switch to instance.
    Packets(Vec<Packet>),
    /// Switch to target: one that the controller had forwarded, which is processed at once.
    Forwarded(Packet),
    /// Controller to instance; it is done when the answer is there.
    Mode(Mode),
    /// Controller to source: take all flows out and send them.
    Get,
    /// Source to controller, for each flow: what is remembered of it.
    Flow(Vec<u8>),
    /// Controller to target.
    Put(Vec<u8>),
    /// Instance to controller: a packet that it did not process.
    Event(Packet),
    /// Target to controller: a forwarded packet is processed.
    Processed(u64),
    /// Controller to switch; it is done when the answer is there.
    Way(Way),
    /// Switch to controller: a copy.
    Copy(Packet),
    /// Controller to switch: give it to the target.
    Forward(Packet),
    /// To whomever: is everything done that was said before?
    Ask,
    /// Done so far: packets made or processed, and flows that are there.
    Done { packets: u64, flows: u64 },
}

/// Writes a message.
pub fn write(mut stream: &UnixStream, message: &Message) -> io::Result<()> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len().saturating_sub(4)).map_err(io::Error::other)?;
    if let Some(head) = frame.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    stream.write_all(&frame)
}

/// Reads messages.
pub struct Inbox {
    stream: UnixStream,
    /// What one read brings.
    piece: Box<[u8]>,
    /// What has come of messages that are not whole yet.
    begun: Vec<u8>,
}

impl Inbox {
    pub fn new(stream: UnixStream) -> Self {
        let piece = vec![0; 1 << 16].into_boxed_slice();
        Inbox { stream, piece, begun: Vec::new() }
    }

    /// What one read brings; `None` when the other end is gone.
    pub fn read(&mut self) -> io::Result<Option<Vec<Message>>> {
        let read = self.stream.read(&mut self.piece)?;
        self.begun.extend_from_slice(self.piece.get(..read).unwrap_or_default());
        if read == 0 {
            return Ok(None);
        }
        let (mut messages, mut used) = (Vec::new(), 0);
        while let Some(frame) = frame(self.begun.get(used..).unwrap_or_default()) {
            used += 4 + frame.len();
            messages.push(message(frame)?);
        }
        self.begun.drain(..used);
        Ok(Some(messages))
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

fn message<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    postcard::from_bytes(frame).map_err(io::Error::other)
}
