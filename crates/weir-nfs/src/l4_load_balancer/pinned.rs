//! What is remembered of a flow.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use weir_nf::headers::{proto, tcp};
use weir_nf::{FlowState, Layers};

/// Where a flow's packets go, and how far it is.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Pinned {
    pub(super) to: Option<Target>,
    pub(super) stage: Stage,
    /// It was begun by a SYN: a reset says that nobody listens.
    pub(super) by_syn: bool,
    /// When its first packet was sent to the server (or its last datagram that followed an answer), in nanoseconds.
    pub(super) sent_ns: u64,
    /// Sides that sent a FIN: 1 the client, 2 the server.
    pub(super) fins: u8,
}

impl FlowState for Pinned {}

/// The service that a flow is for, and the server that it was given.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) service: SocketAddr,
    pub(super) server: SocketAddr,
    /// Its place in the configuration: a hint, checked before use.
    pub(super) place: u32,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// The server has not answered.
    #[default]
    Opening,
    /// It has.
    Answered,
    /// And the client has said that it knows. UDP: an answer is enough.
    Established,
    /// Reset, or closed by both.
    Closed,
}

/// In nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;
/// For how long what is not answered is known. Forgotten, it finds the same server again by its hash, and its answer the
/// service: a flood must not hold all places for the four minutes of RFC 5382 REQ-5, which is about mappings that cannot be
/// made again.
pub(super) const UNANSWERED_NS: u64 = 30 * SECOND;

impl Pinned {
    /// For how long it may be idle, in nanoseconds.
    pub(super) fn idle_ns(&self, proto: u8) -> u64 {
        match (proto, self.stage) {
            (_, Stage::Opening) => UNANSWERED_NS,
            (proto::TCP, Stage::Established) => 7440 * SECOND,
            (proto::TCP, _) => 240 * SECOND,
            _ => 300 * SECOND,
        }
    }

    /// A packet with these flags, before [`Pinned::close`]: data after a reset say that nobody took it to be one (RFC 7857 §2.2).
    pub(super) fn reopen(&mut self, layers: &Layers, flags: u8) {
        let is_data = flags & (tcp::SYN | tcp::RST) == 0 && layers.payload < layers.end;
        if is_data && self.stage == Stage::Closed && self.fins != 3 {
            self.stage = Stage::Established;
        }
    }

    /// A packet with these flags of side 1, the client, or 2, the server.
    pub(super) fn close(&mut self, flags: u8, side: u8) {
        if flags & tcp::FIN != 0 {
            self.fins |= side;
        }
        if self.fins == 3 || flags & tcp::RST != 0 {
            self.stage = Stage::Closed;
        }
    }
}
