//! Which inner endpoint has which outer port: the one place that a translator's state stands in.

use super::ports::Ports;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use weir_nf::BATCH;
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
const SECOND: u64 = 1_000_000_000;
const UDP_NS: u64 = 300 * SECOND;
const ICMP_NS: u64 = 60 * SECOND;
const TCP_NS: u64 = 7440 * SECOND;
const TCP_TRANSITORY_NS: u64 = 240 * SECOND;

/// An inner endpoint's outer one, whomever it talks to (endpoint-independent mapping).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mapping {
    proto: u8,
    inner: End,
    outer: End,
    until_ns: u64,
    peers: Vec<Peer>,
}

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

/// Why an inner endpoint gets no mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// All ports are taken, or so many that none was found.
    Ports,
    /// Its host has as many as it may have.
    Quota,
}

/// An end of a protocol in one word, which hashes fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name(u64);

impl Name {
    fn of(proto: u8, end: End) -> Self {
        Name(u64::from(proto) << 48 | u64::from(end.0.to_bits()) << 16 | u64::from(end.1))
    }
}

/// Mappings that are looked at for one that has ended, when an inner host has as many as it may have.
const LOOKS_AT_QUOTA: usize = 64;

/// So many mappings are a part of a MiB, which a processor's own cache holds.
const CACHED: usize = 1 << 12;

/// All mappings.
#[derive(Debug, Default)]
pub struct Table {
    slots: Vec<Option<Mapping>>,
    free: Vec<usize>,
    by_inner: HashMap<Name, usize>,
    by_outer: HashMap<Name, usize>,
    /// Mappings of each inner host.
    of_host: HashMap<Ipv4Addr, u32>,
    /// Where the search for ended mappings goes on.
    hand: usize,
    /// Mappings of other tables, of which only the number is known.
    elsewhere: u64,
}

impl Table {
    /// Mappings.
    pub fn len(&self) -> usize {
        self.by_inner.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.by_inner.is_empty()
    }

    /// The outer end of an inner endpoint that sends a packet; made when it has none, if its host has fewer than `quota`.
    /// `start`: a number by which nobody outside can guess the port.
    pub fn outbound(
        &mut self,
        ports: &Ports,
        inner: End,
        sent: &Sent,
        quota: u32,
        start: impl FnOnce() -> u64,
    ) -> Result<End, NoRoom> {
        let slot = match self.by_inner.get(&Name::of(sent.proto, inner)) {
            Some(&slot) if !self.is_over(slot, ports, sent.now_ns) => slot,
            Some(&slot) => {
                self.remove(slot);
                self.make(ports, inner, sent, quota, start())?
            }
            None => self.make(ports, inner, sent, quota, start())?,
        };
        let mapping = self.slots.get_mut(slot).and_then(Option::as_mut).ok_or(NoRoom::Ports)?;
        mapping.touch(sent, true);
        Ok(mapping.outer)
    }

    /// The inner end of an outer one that a packet is sent to, if the sender may.
    pub fn inbound(
        &mut self,
        ports: &Ports,
        outer: End,
        sent: &Sent,
        filtering: Filtering,
    ) -> Option<End> {
        let slot = *self.by_outer.get(&Name::of(sent.proto, outer))?;
        if self.is_over(slot, ports, sent.now_ns) {
            self.remove(slot);
            return None;
        }
        let mapping = self.slots.get_mut(slot)?.as_mut()?;
        let sent_to = |peer: &Peer| match filtering {
            Filtering::Endpoint => true,
            Filtering::Address => peer.end.0 == sent.peer.0,
            Filtering::Port => peer.end == sent.peer,
        };
        let may = filtering == Filtering::Endpoint
            || mapping.peers.iter().any(|peer| peer.seen & SENT != 0 && sent_to(peer));
        if !may {
            return None;
        }
        mapping.touch(sent, false);
        Some(mapping.inner)
    }

    /// The inner end of an outer one, without a packet: nothing changes.
    pub fn inner_of(&self, ports: &Ports, proto: u8, outer: End, now_ns: u64) -> Option<End> {
        let slot = *self.by_outer.get(&Name::of(proto, outer))?;
        let mapping = self.slots.get(slot)?.as_ref()?;
        (!self.is_over(slot, ports, now_ns)).then_some(mapping.inner)
    }

    /// The outer end of an inner one, without a packet: nothing changes.
    pub fn outer_of(&self, ports: &Ports, proto: u8, inner: End, now_ns: u64) -> Option<End> {
        let slot = *self.by_inner.get(&Name::of(proto, inner))?;
        let mapping = self.slots.get(slot)?.as_ref()?;
        (!self.is_over(slot, ports, now_ns)).then_some(mapping.outer)
    }

    /// Brings the mappings of a batch's packets into the processor's caches, so that finding them one after the other does not
    /// wait for memory each time. Nothing is done while there are so few that caches hold them.
    pub fn ready(&self, inside: bool, ends: impl Iterator<Item = (u8, End)>) {
        if self.by_inner.len() < CACHED {
            return;
        }
        let names = if inside { &self.by_inner } else { &self.by_outer };
        let mut slots = [usize::MAX; BATCH];
        // Loads that do not depend on each other: the processor has many under way at a time.
        for (slot, (proto, end)) in slots.iter_mut().zip(ends) {
            *slot = names.get(&Name::of(proto, end)).copied().unwrap_or(usize::MAX);
        }
        let seen = slots.iter().filter_map(|slot| self.slots.get(*slot)?.as_ref());
        let first = seen.filter_map(|mapping| mapping.peers.first());
        std::hint::black_box(first.fold(0, |all, peer| all ^ peer.until_ns));
    }

    /// Looks at the next few mappings, and ends those that were idle for too long or are of another configuration.
    pub fn sweep(&mut self, ports: &Ports, now_ns: u64, looks: usize) {
        for _ in 0..looks.min(self.slots.len()) {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            if self.is_over(self.hand, ports, now_ns) {
                self.remove(self.hand);
            }
        }
    }

    fn make(
        &mut self,
        ports: &Ports,
        inner: End,
        sent: &Sent,
        quota: u32,
        start: u64,
    ) -> Result<usize, NoRoom> {
        // Never so many that the search for a port takes long: what has ended gives its own back meanwhile.
        self.sweep(ports, sent.now_ns, 8);
        let has = |table: &Self| table.of_host.get(&inner.0).is_some_and(|n| *n >= quota);
        if has(self) {
            self.sweep(ports, sent.now_ns, LOOKS_AT_QUOTA);
            if has(self) {
                return Err(NoRoom::Quota);
            }
        }
        let is_free = |end: End| !self.by_outer.contains_key(&Name::of(sent.proto, end));
        let outer = ports.choose(inner, sent.proto, start, is_free).ok_or(NoRoom::Ports)?;
        let mapping = Mapping { proto: sent.proto, inner, outer, until_ns: 0, peers: Vec::new() };
        Ok(self.insert(mapping))
    }

    fn insert(&mut self, mapping: Mapping) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_inner.insert(mapping.inner_name(), slot);
        self.by_outer.insert(mapping.outer_name(), slot);
        *self.of_host.entry(mapping.inner.0).or_default() += 1;
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(mapping);
        }
        slot
    }

    /// True when it was idle for too long, or its outer end is not this block's: the configuration has changed since.
    fn is_over(&self, slot: usize, ports: &Ports, now_ns: u64) -> bool {
        let mapping = self.slots.get(slot).and_then(Option::as_ref);
        mapping.is_some_and(|m| m.until_ns <= now_ns || !ports.owns(m.outer))
    }

    fn remove(&mut self, slot: usize) {
        if let Some(mapping) = self.slots.get_mut(slot).and_then(Option::take) {
            self.by_inner.remove(&mapping.inner_name());
            self.by_outer.remove(&mapping.outer_name());
            if let Entry::Occupied(mut host) = self.of_host.entry(mapping.inner.0) {
                *host.get_mut() -= 1;
                if *host.get() == 0 {
                    host.remove();
                }
            }
            self.free.push(slot);
        }
    }

    /// Takes over another's mappings, but for those that contradict its own.
    pub fn merge(&mut self, other: Self) {
        self.elsewhere += other.elsewhere;
        for mapping in other.slots.into_iter().flatten() {
            let is_new = !self.by_inner.contains_key(&mapping.inner_name())
                && !self.by_outer.contains_key(&mapping.outer_name());
            if is_new {
                self.insert(mapping);
            }
        }
    }
}

impl Mapping {
    fn inner_name(&self) -> Name {
        Name::of(self.proto, self.inner)
    }

    fn outer_name(&self) -> Name {
        Name::of(self.proto, self.outer)
    }

    /// A packet passed: it goes on for longer. What comes from outside keeps no UDP mapping alive (RFC 4787 REQ-6), and
    /// who was never sent to from inside changes nothing.
    fn touch(&mut self, sent: &Sent, from_inside: bool) {
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

/// Written down as the list of mappings; in a report, as their number.
impl Serialize for Table {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            return to.serialize_u64(self.elsewhere + self.len() as u64);
        }
        let list: Vec<&Mapping> = self.slots.iter().flatten().collect();
        list.serialize(to)
    }
}

impl<'d> Deserialize<'d> for Table {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        let mut table = Table::default();
        if from.is_human_readable() {
            table.elsewhere = u64::deserialize(from)?;
            return Ok(table);
        }
        let slots = Vec::<Mapping>::deserialize(from)?.into_iter().map(Some).collect();
        table.merge(Table { slots, ..Table::default() });
        Ok(table)
    }
}
