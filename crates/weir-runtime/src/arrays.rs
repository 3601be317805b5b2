//! Arrays of ports: which flows came in by which of them, and by which of them a packet leaves.
//!
//! A packet leaves by the port that the last packet of its flow's other direction came in by (E2,
//! appendix: `Port<0-7> int`); where none is known, by the port that a hash of the flow chooses; and by
//! the lowest port when it is of no flow. The Rx services of the array's ports write down what comes in;
//! only they can. Read it those who choose, who are all of the graph's own domain: an edge from another
//! domain ends at a gate, which chooses for it.

use crate::spec::ArraySpec;
use rustix::time::{ClockId, clock_gettime};
use std::rc::Rc;
use weir_mem::{Arena, Origins};
use weir_packet::{Bytes, Depth, Direction, FlowHasher, FlowKey, FragmentTable, Packet, parse};

/// Datagrams whose first fragment is remembered.
const DATAGRAMS: usize = 1024;

/// The secret of a table as a hasher.
fn hasher(origins: &Origins) -> FlowHasher {
    FlowHasher::new(origins.secret())
}

/// A packet's flow and direction, of a later fragment its first one's.
#[inline]
fn flow<B: Bytes + ?Sized>(
    fragments: &mut FragmentTable,
    bytes: &B,
    time_ns: u64,
) -> Option<(FlowKey, Direction)> {
    // From the bytes anew: what the metadata says of them is somebody else's word.
    let layers = parse(bytes, Depth::L4);
    fragments.key(bytes, &layers, time_ns)
}

fn time_ns(arena: &Arena, packet: &Packet) -> u64 {
    arena.meta(packet.entry()).map_or(0, |meta| meta.time_ns.get())
}

/// What an Rx service does for the array that its port is of.
pub(crate) struct Learner {
    origins: Rc<Origins>,
    hasher: FlowHasher,
    fragments: FragmentTable,
    source: u8,
}

impl Learner {
    /// None for a source that the table cannot tell from others.
    pub(crate) fn new(origins: Rc<Origins>, source: usize) -> Option<Self> {
        let source = u8::try_from(source).ok().filter(|source| *source < Origins::SOURCES)?;
        let hasher = hasher(&origins);
        Some(Learner { origins, hasher, fragments: FragmentTable::new(DATAGRAMS, hasher), source })
    }

    /// Says how late it is; to be called whenever the service has looked for packets, also in vain.
    pub(crate) fn see_time(&self) {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        self.origins.see(u64::try_from(now.tv_sec).unwrap_or(0));
    }

    /// Packets have come in. To be called before they are published.
    pub(crate) fn learn(&mut self, packets: &[Packet], arena: &Arena) {
        for packet in packets {
            let bytes = arena.bytes(packet.entry());
            let flow = flow(&mut self.fragments, &bytes, time_ns(arena, packet));
            if let Some((key, direction)) = flow {
                self.origins.learn(self.hasher.hash(&key), direction == Direction::Up, self.source);
            }
        }
    }
}

/// The choice of a port, for one edge.
pub(crate) struct Pick {
    /// Edge numbers of the lanes to the array's ports: the first, and how many.
    first: usize,
    ports: usize,
    /// By source: which of the ports its packets come in by, if it is one of them.
    places: Vec<Option<u16>>,
    known: Option<(Rc<Origins>, FlowHasher)>,
    /// For flows that nothing is known of.
    rule: FlowHasher,
    fragments: FragmentTable,
}

impl Pick {
    /// `first`: edge number of the lane to the first port.
    pub(crate) fn new(array: &ArraySpec, first: usize, seed: u64) -> Self {
        let rule = FlowHasher::for_ports(seed);
        Pick {
            first,
            ports: usize::from(array.ports).max(1),
            places: array.places.clone(),
            known: None,
            rule,
            fragments: FragmentTable::new(DATAGRAMS, rule),
        }
    }

    /// Where it is written which flows came in by the array.
    pub(crate) fn know(&mut self, origins: Option<Rc<Origins>>) {
        self.known = origins.map(|origins| {
            let hasher = hasher(&origins);
            (origins, hasher)
        });
    }

    /// The edge number of the lane to the port that the packet leaves by.
    pub(crate) fn edge(&mut self, packet: &Packet, arena: &Arena) -> usize {
        let bytes = arena.bytes(packet.entry());
        self.first + self.port(&bytes, time_ns(arena, packet))
    }

    fn port<B: Bytes + ?Sized>(&mut self, bytes: &B, time_ns: u64) -> usize {
        let Some((key, direction)) = flow(&mut self.fragments, bytes, time_ns) else {
            return 0;
        };
        if let Some((origins, hasher)) = &self.known {
            let other = direction.reverse() == Direction::Up;
            let source = origins.find(hasher.hash(&key), other);
            let place = source.and_then(|s| self.places.get(usize::from(s)).copied().flatten());
            if let Some(place) = place.map(usize::from).filter(|place| *place < self.ports) {
                return place;
            }
        }
        self.rule.choose(&key, self.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use weir_mem::Region;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// UDP from one end to the other; `fragment`: identification, and offset in units of 8 bytes.
    fn udp(from: Ipv4Addr, to: Ipv4Addr, ports: [u16; 2], fragment: Option<(u16, u16)>) -> Vec<u8> {
        let mut bytes = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 36]].concat();
        let (id, more, offset) = match fragment {
            None => (0, 0, 0),
            Some((id, 0)) => (id, 0x2000, 0),
            Some((id, offset)) => (id, 0, offset),
        };
        bytes.extend(u16::to_be_bytes(id));
        bytes.extend(u16::to_be_bytes(more | offset));
        bytes.extend([64, 17, 0, 0]);
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes.extend(ports[0].to_be_bytes());
        bytes.extend(ports[1].to_be_bytes());
        bytes.extend([0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    /// An array of four ports, of which sources 5 and 2 are the second and the last.
    fn pick() -> (Rc<Origins>, Pick, FlowHasher) {
        let region = Region::create("weir-test", Origins::LEN).unwrap();
        let origins = Rc::new(Origins::attach(&region, true).unwrap());
        origins.set_secret([1, 2]);
        let mut places = vec![None; 6];
        (places[5], places[2]) = (Some(1), Some(3));
        let mut pick = Pick::new(&ArraySpec { ports: 4, places, origins: None }, 10, 0);
        pick.know(Some(origins.clone()));
        let hasher = hasher(&origins);
        (origins, pick, hasher)
    }

    fn learn(origins: &Origins, hasher: &FlowHasher, bytes: &[u8], source: u8) {
        let (key, direction) = FlowKey::from_packet(bytes, &parse(bytes, Depth::L4)).unwrap();
        origins.learn(hasher.hash(&key), direction == Direction::Up, source);
    }

    #[test]
    fn an_answer_leaves_by_the_port_its_question_came_in_by_last() {
        let (origins, mut pick, hasher) = pick();
        for ports in [[1000, 53], [53, 1000]] {
            let question = udp(HERE, THERE, ports, None);
            let answer = udp(THERE, HERE, [ports[1], ports[0]], None);
            let by_rule = pick.port(answer.as_slice(), 0);
            for (source, port) in [(5, 1), (2, 3), (5, 1)] {
                learn(&origins, &hasher, &question, source);
                assert_eq!(pick.port(answer.as_slice(), 0), port);
                assert_eq!(pick.port(question.as_slice(), 0), by_rule, "no answer came in");
            }
        }
    }

    #[test]
    fn what_came_in_by_a_source_that_is_no_port_of_the_array_goes_by_the_rule() {
        let (origins, mut pick, hasher) = pick();
        let answer = udp(THERE, HERE, [53, 1000], None);
        let by_rule = pick.port(answer.as_slice(), 0);
        for source in [0, 63, 100] {
            learn(&origins, &hasher, &udp(HERE, THERE, [1000, 53], None), source);
            assert_eq!(pick.port(answer.as_slice(), 0), by_rule);
        }
    }

    #[test]
    fn both_directions_of_a_flow_have_one_port_by_rule_and_flows_are_spread() {
        let (_, mut pick, _) = pick();
        let mut seen = [0; 4];
        for port in 0..400 {
            let there = pick.port(udp(HERE, THERE, [port, 53], None).as_slice(), 0);
            let back = pick.port(udp(THERE, HERE, [53, port], None).as_slice(), 0);
            assert_eq!(there, back);
            seen[there] += 1;
        }
        assert!(seen.iter().all(|n| (50..150).contains(n)), "{seen:?}");
        let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
        assert_eq!(pick.port(arp.as_slice(), 0), 0, "of no flow");
    }

    #[test]
    fn a_later_fragment_leaves_by_the_port_of_its_first() {
        let (origins, mut pick, hasher) = pick();
        learn(&origins, &hasher, &udp(HERE, THERE, [1000, 53], None), 2);
        let first = udp(THERE, HERE, [53, 1000], Some((7, 0)));
        assert_eq!(pick.port(first.as_slice(), 0), 3);
        assert_eq!(pick.port(udp(THERE, HERE, [9, 9], Some((7, 2))).as_slice(), 0), 3);
    }
}
