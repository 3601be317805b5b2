//! What is remembered of an inner endpoint: its outer one, whom it talks to, and for how long.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use weir_nf::FlowState;
use weir_nf::headers::{proto, tcp};

/// An address with a port, or with the identifier of an ICMP query.
pub type End = (Ipv4Addr, u16);

/// Who may send to a mapping (RFC 4787 §5).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Filtering {
    /// Anybody: endpoint-independent.
    #[default]
    Endpoint,
    /// Addresses that the inner endpoint has sent to.
    Address,
    /// Addresses with ports that it has sent to.
    Port,
}

/// Who an inner endpoint talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Peer {
    end: End,
    until_ns: u64,
    seen: u8,
}

const SENT: u8 = 1;
const ANSWERED: u8 = 2;
const ESTABLISHED: u8 = 4;
const INNER_CLOSED: u8 = 8;
const OUTER_CLOSED: u8 = 16;
const RESET: u8 = 32;

/// Peers that are told apart per mapping; of more, the one that was idle longest is forgotten.
const MOST_PEERS: usize = 64;
/// How long a mapping may be idle, in nanoseconds: RFC 4787 REQ-5, RFC 5508 REQ-1, RFC 5382 REQ-5.
pub(super) const SECOND: u64 = 1_000_000_000;
const UDP_NS: u64 = 300 * SECOND;
const ICMP_NS: u64 = 60 * SECOND;
const TCP_NS: u64 = 7440 * SECOND;
const TCP_TRANSITORY_NS: u64 = 240 * SECOND;

/// An inner endpoint's outer one, whomever it talks to (endpoint-independent mapping).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub(super) inner: End,
    pub(super) outer: End,
    /// Until when it is kept.
    pub(super) until_ns: u64,
    peers: Vec<Peer>,
}

impl Default for Mapping {
    fn default() -> Self {
        Mapping::new((Ipv4Addr::UNSPECIFIED, 0), (Ipv4Addr::UNSPECIFIED, 0))
    }
}

impl FlowState for Mapping {}

/// A packet, as far as mappings depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// IP protocol: TCP, UDP or ICMP.
    pub proto: u8,
    /// The other end.
    pub peer: End,
    /// TCP's flags, otherwise 0.
    pub flags: u8,
    /// Whether it has payload.
    pub has_data: bool,
    /// When, in nanoseconds.
    pub now_ns: u64,
}

impl Mapping {
    /// One that nothing has passed by yet.
    pub fn new(inner: End, outer: End) -> Self {
        Mapping { inner, outer, until_ns: 0, peers: Vec::new() }
    }

    /// Whether an outer end may send to the inner one.
    pub fn lets_in(&self, from: End, filtering: Filtering) -> bool {
        let sent_to = |peer: &Peer| match filtering {
            Filtering::Endpoint => true,
            Filtering::Address => peer.end.0 == from.0,
            Filtering::Port => peer.end == from,
        };
        filtering == Filtering::Endpoint
            || self.peers.iter().any(|peer| peer.seen & SENT != 0 && sent_to(peer))
    }

    /// A packet passed: it goes on for longer. What comes from outside keeps no UDP mapping alive (RFC 4787 REQ-6), and
    /// who was never sent to from inside changes nothing.
    pub fn touch(&mut self, sent: &Sent, from_inside: bool) {
        let idle = match sent.proto {
            proto::UDP => UDP_NS,
            proto::ICMP => ICMP_NS,
            _ => TCP_TRANSITORY_NS,
        };
        let found = self.peers.iter().position(|peer| peer.end == sent.peer);
        if !from_inside && found.is_none() {
            return;
        }
        let index = found.unwrap_or_else(|| {
            if self.peers.len() >= MOST_PEERS {
                let oldest = self.peers.iter().enumerate().min_by_key(|(_, peer)| peer.until_ns);
                if let Some((oldest, _)) = oldest {
                    self.peers.swap_remove(oldest);
                }
            }
            self.peers.push(Peer { end: sent.peer, until_ns: 0, seen: 0 });
            self.peers.len() - 1
        });
        let Some(peer) = self.peers.get_mut(index) else { return };
        peer.seen |= if from_inside { SENT } else { 0 };
        if sent.proto != proto::TCP {
            if from_inside {
                peer.until_ns = sent.now_ns.saturating_add(idle);
                self.until_ns = self.until_ns.max(peer.until_ns);
            }
            return;
        }
        let has = |flag: u8| sent.flags & flag != 0;
        if has(tcp::SYN) && !has(tcp::ACK) && peer.is_closed() {
            peer.seen &= SENT;
        }
        if !from_inside && has(tcp::ACK) {
            peer.seen |= ANSWERED;
        }
        if from_inside && has(tcp::ACK) && peer.seen & ANSWERED != 0 {
            peer.seen |= ESTABLISHED;
        }
        if has(tcp::RST) {
            peer.seen |= RESET;
        } else if sent.has_data {
            // The reset was none that its receiver believed (RFC 7857 §2.2).
            peer.seen &= !RESET;
        }
        if has(tcp::FIN) {
            peer.seen |= if from_inside { INNER_CLOSED } else { OUTER_CLOSED };
        }
        let is_open = peer.seen & ESTABLISHED != 0 && !peer.is_closed();
        let before = peer.until_ns;
        peer.until_ns = sent.now_ns.saturating_add(if is_open { TCP_NS } else { idle });
        if peer.until_ns >= self.until_ns {
            self.until_ns = peer.until_ns;
        } else if before == self.until_ns {
            // It may have been the last one.
            self.until_ns = self.peers.iter().map(|peer| peer.until_ns).max().unwrap_or(0);
        }
    }
}

impl Peer {
    fn is_closed(&self) -> bool {
        const BOTH: u8 = INNER_CLOSED | OUTER_CLOSED;
        self.seen & BOTH == BOTH || self.seen & RESET != 0
    }
}
