//! libpcap's offsets: where the next primitive looks, given what stands left of it.

use thiserror::Error;

use crate::primitive::Primitive;

/// Length of an Ethernet header, in bytes.
const ETHERNET: u32 = 14;
/// Of PPPoE's header (RFC 2516 §4), in bytes.
const PPPOE: u32 = 6;

/// A primitive that cannot stand right of another: libpcap refuses it too.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Misplaced {
    /// Behind a label only IPv4 and IPv6 can be told.
    #[error("behind `mpls` only `ip`, `ip6` and what they carry can be told")]
    BehindLabel,
    /// No VLAN tag follows a label.
    #[error("`vlan` cannot stand right of `mpls`")]
    TagBehindLabel,
    /// PPP carries no Ethernet.
    #[error("behind `pppoes` there are no Ethernet addresses, no `vlan` and no `llc`")]
    BehindPpp,
}

impl Misplaced {
    /// What to write instead, to be read after "write".
    #[must_use]
    pub fn instead(self) -> &'static str {
        match self {
            Misplaced::BehindLabel => {
                "it left of `mpls`, or say `ip` or `ip6` and the bytes, as in `mpls and ip[9] = 47`"
            }
            Misplaced::TagBehindLabel => "`vlan` left of `mpls`",
            Misplaced::BehindPpp => "it left of `pppoes`",
        }
    }
}

/// Where things are, in bytes from the frame's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// The link layer's header.
    pub(crate) link: u32,
    /// The EtherType, or PPP's protocol number.
    pub(crate) kind: u32,
    /// What follows it.
    pub(crate) payload: u32,
    /// MPLS labels between that and the network layer.
    pub(crate) labels: u32,
    /// Inside PPP.
    pub(crate) ppp: bool,
}

impl Offsets {
    pub(crate) fn new() -> Self {
        Self { link: 0, kind: ETHERNET - 2, payload: ETHERNET, labels: 0, ppp: false }
    }

    /// The network layer's header.
    pub(crate) fn network(&self) -> u32 {
        self.payload.saturating_add(self.labels.saturating_mul(4))
    }

    /// The last label's byte with the bottom-of-stack bit (RFC 3032 §2.1).
    pub(crate) fn bottom(&self) -> u32 {
        self.network().saturating_sub(2)
    }

    /// Moves on as `primitive` moves all that stands right of it.
    pub(crate) fn pass(&mut self, primitive: &Primitive) {
        match primitive {
            Primitive::Vlan { .. } => {
                self.kind = self.kind.saturating_add(4);
                self.payload = self.payload.saturating_add(4);
            }
            Primitive::Mpls { .. } => self.labels = self.labels.saturating_add(1),
            Primitive::Pppoes { .. } => {
                let link = self.network().saturating_add(PPPOE);
                let payload = link.saturating_add(2);
                *self = Self { link, kind: link, payload, labels: 0, ppp: true };
            }
            _ => {}
        }
    }
}
