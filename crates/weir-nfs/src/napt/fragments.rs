//! Which way the first fragment of a datagram took.

use super::{Datagram, Way};
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use weir_nf::flow::LIFETIME_NS;

/// Datagrams that are remembered at most.
const MOST: usize = 1024;

/// By what fragments of a datagram are known (RFC 791): addresses, identification, protocol; and where they came in.
type Id = (Ipv4Addr, Ipv4Addr, u16, u8, u8);

/// Ways of datagrams whose first fragment was seen.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    ways: HashMap<Id, (u64, Way)>,
    /// Those that were noted, the oldest first; some may be forgotten since, or noted again.
    noted: VecDeque<(Id, u64)>,
}

fn id(datagram: &Datagram, input: u8) -> Id {
    let proto = datagram.headers.proto;
    (datagram.source, datagram.destination, datagram.id, proto, input)
}

impl Fragments {
    /// The first fragment took this way.
    pub(super) fn note(&mut self, datagram: &Datagram, input: u8, now_ns: u64, way: Way) {
        while self.noted.len() >= MOST
            && let Some((oldest, at)) = self.noted.pop_front()
        {
            if self.ways.get(&oldest).is_some_and(|(since, _)| *since == at) {
                self.ways.remove(&oldest);
            }
        }
        let id = id(datagram, input);
        self.ways.insert(id, (now_ns, way));
        self.noted.push_back((id, now_ns));
    }

    /// The first fragment was dropped: later ones have no way, not that of an older datagram with the same identification either.
    pub(super) fn forget(&mut self, datagram: &Datagram, input: u8) {
        self.ways.remove(&id(datagram, input));
    }

    /// The way of a later one.
    pub(super) fn find(&self, datagram: &Datagram, input: u8, now_ns: u64) -> Option<Way> {
        let (since, way) = self.ways.get(&id(datagram, input))?;
        (now_ns.saturating_sub(*since) < LIFETIME_NS).then_some(*way)
    }
}
