//! How far a TCP connection is, as far as it decides how long it may be idle.

use weir_packet::headers::tcp;

/// For how long flows of TCP may be idle, in nanoseconds, by how far their connection is.
///
/// For [`Descriptor::tcp_idle`](crate::Descriptor::tcp_idle). Flows of other protocols end after `flow_idle_ns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct TcpTimes {
    /// Until both sides have spoken and the first has answered that: half-open connections, scans.
    pub opening_ns: u64,
    /// From then on.
    pub established_ns: u64,
    /// After both sides have closed, or one has reset it.
    pub closing_ns: u64,
}

impl TcpTimes {
    /// The least that RFC 5382 (REQ-5) allows an address translator: two hours and four minutes for an
    /// established connection, four minutes before and after.
    pub const RFC_5382: TcpTimes = TcpTimes {
        opening_ns: 240_000_000_000,
        established_ns: 7_440_000_000_000,
        closing_ns: 240_000_000_000,
    };

    pub(crate) fn shortest(&self) -> u64 {
        self.opening_ns.min(self.established_ns).min(self.closing_ns)
    }
}

/// What the packets of a flow have said about its connection. It follows flags alone, not sequence
/// numbers: for who may end a connection, a firewall has to look closer. Whether a flow of any protocol had a second packet stands in it
/// too: a byte of its own would cost each flow eight.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tcp(u8);

const IS_TCP: u8 = 1;
const ANSWERED: u8 = 2;
const ESTABLISHED: u8 = 4;
const STARTER_CLOSED: u8 = 8;
const OTHER_CLOSED: u8 = 16;
const RESET: u8 = 32;
const CAME_AGAIN: u8 = 64;
const ALL: u8 = 127;

impl Tcp {
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        (bits & !ALL == 0).then_some(Tcp(bits))
    }

    /// Takes in the flags of a packet.
    #[inline]
    pub(crate) fn see(&mut self, flags: u8, from_starter: bool) {
        self.0 |= IS_TCP;
        let has = |flag: u8| flags & flag != 0;
        if has(tcp::SYN) && !has(tcp::ACK) && self.is_closing() {
            // The ports are used again (RFC 9293 §3.6.1).
            self.0 = IS_TCP | self.0 & CAME_AGAIN;
        }
        if has(tcp::RST) {
            self.0 |= RESET;
        }
        if has(tcp::FIN) {
            self.0 |= if from_starter { STARTER_CLOSED } else { OTHER_CLOSED };
        }
        if has(tcp::ACK) && !from_starter {
            self.0 |= ANSWERED;
        }
        if has(tcp::ACK) && !has(tcp::SYN) && from_starter && self.0 & ANSWERED != 0 {
            self.0 |= ESTABLISHED;
        }
    }

    /// The flow has had another packet than its first.
    #[inline]
    pub(crate) fn come_again(&mut self) {
        self.0 |= CAME_AGAIN;
    }

    pub(crate) fn came_again(self) -> bool {
        self.0 & CAME_AGAIN != 0
    }

    fn is_closing(self) -> bool {
        let closed = STARTER_CLOSED | OTHER_CLOSED;
        self.0 & RESET != 0 || self.0 & closed == closed
    }

    /// For how long the flow may be idle; `None` when it is not one of TCP.
    #[inline]
    pub(crate) fn idle(self, times: &TcpTimes) -> Option<u64> {
        Some(match self.0 {
            bits if bits & IS_TCP == 0 => return None,
            _ if self.is_closing() => times.closing_ns,
            bits if bits & ESTABLISHED != 0 => times.established_ns,
            _ => times.opening_ns,
        })
    }
}
