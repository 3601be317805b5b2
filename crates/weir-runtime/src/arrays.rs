//! Arrays of ports: which flows came in by which of them, and by which of them a packet leaves.
//!
//! A packet leaves by the port that the last packet of its flow's other direction came in by (E2,
//! appendix: `Port<0-7> int`); where none is known, by the port that the station it is for was heard at last; else by the
//! port that a hash of the flow chooses; and by the lowest port when it is of no flow. ARP and IPv6's neighbour discovery are
//! of stations, not of flows: where the station was not heard, or they are for several, a copy leaves by every port but the
//! one they came in by, or nobody behind the others could ever be found.
//!
//! The Rx services of the array's ports write down what comes in; only they can. Read it those who choose, who are all of
//! the graph's own domain: an edge from another domain ends at a gate, which chooses for it.

use crate::spec::ArraySpec;
use rustix::time::{ClockId, clock_gettime};
use std::rc::Rc;
use weir_mem::{Arena, Entry, Origins};
use weir_packet::headers::Mac;
use weir_packet::{
    Bytes, Depth, Direction, FlowHasher, FragmentTable, Layers, Packet, Stations, is_discovery,
    parse,
};

/// Datagrams whose first fragment is remembered.
const DATAGRAMS: usize = 1024;

/// The secret of a table as a hasher.
fn hasher(origins: &Origins) -> FlowHasher {
    FlowHasher::new(origins.secret())
}

/// Stations are written down as flows are, and have but one direction.
const FROM_STATION: bool = true;
/// Stations whose hash an Rx service remembers.
const STATIONS: usize = 256;

fn time_ns(arena: &Arena, packet: &Packet) -> u64 {
    arena.meta(packet.entry()).map_or(0, |meta| meta.time_ns.get())
}

/// What an Rx service does for the array that its port is of.
pub(crate) struct Learner {
    origins: Rc<Origins>,
    hasher: FlowHasher,
    fragments: FragmentTable,
    source: u8,
    /// Stations that were heard, by their last bits: zone, address, and their hash.
    stations: Box<[(u64, Mac, u64); STATIONS]>,
}

impl Learner {
    /// None for a source that the table cannot tell from others.
    pub(crate) fn new(origins: Rc<Origins>, source: usize) -> Option<Self> {
        let source = u8::try_from(source).ok().filter(|source| *source < Origins::SOURCES)?;
        let hasher = hasher(&origins);
        let fragments = FragmentTable::new(DATAGRAMS, hasher);
        let stations = Box::new([(0, Mac::default(), 0); STATIONS]);
        Some(Learner { origins, hasher, fragments, source, stations })
    }

    /// Says how late it is; to be called whenever the service has looked for packets, also in vain.
    pub(crate) fn see_time(&self) {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        self.origins.see(u64::try_from(now.tv_sec).unwrap_or(0));
    }

    /// Packets have come in. To be called before they are published.
    pub(crate) fn learn(&mut self, packets: &[Packet], arena: &Arena) {
        for packet in packets {
            self.learn_of(&arena.bytes(packet.entry()), time_ns(arena, packet));
        }
    }

    fn learn_of<B: Bytes + ?Sized>(&mut self, bytes: &B, time_ns: u64) {
        // From the bytes anew: what the metadata says of them is somebody else's word.
        let layers = parse(bytes, Depth::L4);
        if let Some(stations) = Stations::of(bytes, &layers)
            && let Some(mac) = stations.sender()
        {
            let station = self.station(stations.zone, mac);
            self.origins.learn(station, FROM_STATION, self.source);
        }
        if !is_discovery(bytes, &layers)
            && let Some((key, direction)) = self.fragments.key(bytes, &layers, time_ns)
        {
            self.origins.learn(self.hasher.hash(&key), direction == Direction::Up, self.source);
        }
    }

    /// The hash of a station: mostly one of few.
    #[inline]
    fn station(&mut self, zone: u64, mac: Mac) -> u64 {
        let at = usize::from(mac[5] ^ mac[4]) % STATIONS;
        match self.stations.get_mut(at) {
            Some((z, m, hash)) if (*z, *m) == (zone, mac) => *hash,
            known => {
                let hash = self.hasher.hash_station(zone, mac);
                if let Some(known) = known {
                    *known = (zone, mac, hash);
                }
                hash
            }
        }
    }
}

/// The ports of an array that a packet leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    One(usize),
    /// All but the one it came in by, a copy by each.
    Others,
}

/// The edge numbers of the lanes that one packet leaves by.
pub(crate) struct Ways {
    first: usize,
    ports: std::ops::Range<usize>,
    but: Option<usize>,
}

impl Iterator for Ways {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let port = self.ports.find(|port| Some(*port) != self.but)?;
        Some(self.first + port)
    }
}

/// The choice of a port, for one edge.
pub(crate) struct Pick {
    /// Edge numbers of the lanes to the array's ports: the first, and how many.
    first: usize,
    ports: usize,
    /// By source: which of the ports its packets come in by, if it is one of them.
    places: Vec<Option<u16>>,
    /// By source: the policy's port that its packets come in by.
    source_ports: Vec<u16>,
    known: Option<(Rc<Origins>, FlowHasher)>,
    /// For flows that nothing is known of.
    rule: FlowHasher,
    fragments: FragmentTable,
}

impl Pick {
    /// `first`: edge number of the lane to the first port.
    pub(crate) fn new(array: &ArraySpec, first: usize, source_ports: &[u16], seed: u64) -> Self {
        let rule = FlowHasher::for_ports(seed);
        Pick {
            first,
            ports: usize::from(array.ports).max(1),
            places: array.places.clone(),
            source_ports: source_ports.to_vec(),
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

    /// What it remembers of datagrams that have not come whole.
    pub(crate) fn fragments(&mut self) -> &mut FragmentTable {
        &mut self.fragments
    }

    /// How many copies of a packet are made at most.
    pub(crate) fn copies(&self) -> usize {
        self.ports - 1
    }

    /// The edge numbers of the lanes to the ports that the packet leaves by: one at least.
    pub(crate) fn ways(&mut self, packet: &Packet, arena: &Arena) -> Ways {
        let entry = packet.entry();
        let (ports, but) = match self.choose(&arena.bytes(entry), time_ns(arena, packet)) {
            Choice::One(port) => (port..port + 1, None),
            Choice::Others => (0..self.ports, self.came_in_by(entry, arena)),
        };
        Ways { first: self.first, ports, but }
    }

    /// The port of the array that a packet came in by itself, whoever's stream it travels in: an NF may have held it.
    fn came_in_by(&self, entry: &Entry, arena: &Arena) -> Option<usize> {
        let port = arena.meta(entry)?.source_port.get();
        self.place(self.source_ports.iter().position(|p| *p == port)?)
    }

    fn choose<B: Bytes + ?Sized>(&mut self, bytes: &B, time_ns: u64) -> Choice {
        // From the bytes anew: what the metadata says of them is somebody else's word.
        let layers = parse(bytes, Depth::L4);
        if is_discovery(bytes, &layers) {
            return self.heard(bytes, &layers).map_or(Choice::Others, Choice::One);
        }
        let Some((key, direction)) = self.fragments.key(bytes, &layers, time_ns) else {
            return Choice::One(0);
        };
        let came_in = self.known.as_ref().and_then(|(origins, hasher)| {
            origins.find(hasher.hash(&key), direction.reverse() == Direction::Up)
        });
        let known = came_in.and_then(|source| self.place(source.into()));
        let known = known.or_else(|| self.heard(bytes, &layers));
        Choice::One(known.unwrap_or_else(|| self.rule.choose(&key, self.ports)))
    }

    /// The port that the station was heard at last which a packet is for.
    fn heard<B: Bytes + ?Sized>(&self, bytes: &B, layers: &Layers) -> Option<usize> {
        let (origins, hasher) = self.known.as_ref()?;
        let stations = Stations::of(bytes, layers)?;
        let station = hasher.hash_station(stations.zone, stations.addressee()?);
        self.place(origins.find(station, FROM_STATION)?.into())
    }

    /// Which port of the array packets of a source come in by.
    fn place(&self, source: usize) -> Option<usize> {
        let place = self.places.get(source).copied().flatten().map(usize::from);
        place.filter(|place| *place < self.ports)
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
        // From a station that nothing is for.
        let mut bytes = [&[2; 6][..], &[4; 6], &[8, 0, 0x45, 0, 0, 36]].concat();
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
    fn pick() -> (Rc<Origins>, Pick) {
        let region = Region::create("weir-test", Origins::LEN).unwrap();
        let origins = Rc::new(Origins::attach(&region, true).unwrap());
        origins.set_secret([1, 2]);
        let mut places = vec![None; 6];
        (places[5], places[2]) = (Some(1), Some(3));
        let array = ArraySpec { ports: 4, places, origins: None };
        let mut pick = Pick::new(&array, 10, &[0, 1, 2, 3, 4, 5], 0);
        pick.know(Some(origins.clone()));
        (origins, pick)
    }

    fn learn(origins: &Rc<Origins>, bytes: &[u8], source: usize) {
        Learner::new(origins.clone(), source).unwrap().learn_of(bytes, 0);
    }

    /// The one port that a packet leaves by.
    fn leaves(pick: &mut Pick, bytes: &[u8]) -> usize {
        match pick.choose(bytes, 0) {
            Choice::One(port) => port,
            Choice::Others => panic!("by several"),
        }
    }

    #[test]
    fn an_answer_leaves_by_the_port_its_question_came_in_by_last() {
        let (origins, mut pick) = pick();
        for ports in [[1000, 53], [53, 1000]] {
            let question = udp(HERE, THERE, ports, None);
            let answer = udp(THERE, HERE, [ports[1], ports[0]], None);
            let by_rule = leaves(&mut pick, &answer);
            for (source, port) in [(5, 1), (2, 3), (5, 1)] {
                learn(&origins, &question, source);
                assert_eq!(leaves(&mut pick, &answer), port);
                assert_eq!(leaves(&mut pick, &question), by_rule, "no answer came in");
            }
        }
    }

    #[test]
    fn what_came_in_by_a_source_that_is_no_port_of_the_array_goes_by_the_rule() {
        let (origins, mut pick) = pick();
        let answer = udp(THERE, HERE, [53, 1000], None);
        let by_rule = leaves(&mut pick, &answer);
        for source in [0, 63, 100] {
            learn(&origins, &udp(HERE, THERE, [1000, 53], None), source);
            assert_eq!(leaves(&mut pick, &answer), by_rule);
        }
    }

    #[test]
    fn both_directions_of_a_flow_have_one_port_by_rule_and_flows_are_spread() {
        let (_, mut pick) = pick();
        let mut seen = [0; 4];
        for port in 0..400 {
            let there = leaves(&mut pick, &udp(HERE, THERE, [port, 53], None));
            let back = leaves(&mut pick, &udp(THERE, HERE, [53, port], None));
            assert_eq!(there, back);
            seen[there] += 1;
        }
        assert!(seen.iter().all(|n| (50..150).contains(n)), "{seen:?}");
        let lldp = [&[2; 12][..], &[0x88, 0xcc], &[0; 28]].concat();
        assert_eq!(leaves(&mut pick, &lldp), 0, "of no flow");
    }

    #[test]
    fn a_later_fragment_leaves_by_the_port_of_its_first() {
        let (origins, mut pick) = pick();
        learn(&origins, &udp(HERE, THERE, [1000, 53], None), 2);
        let first = udp(THERE, HERE, [53, 1000], Some((7, 0)));
        assert_eq!(leaves(&mut pick, &first), 3);
        assert_eq!(leaves(&mut pick, &udp(THERE, HERE, [9, 9], Some((7, 2)))), 3);
    }

    /// Stations with these last bytes of their Ethernet addresses; 255: all.
    fn arp(from: u8, to: u8) -> Vec<u8> {
        let mac = |last: u8| if last == 255 { [255; 6] } else { [2, 0, 0, 0, 0, last] };
        [&mac(to)[..], &mac(from), &[8, 6], &[0; 28]].concat()
    }

    /// A neighbour solicitation (135) or advertisement (136).
    fn neighbour(from: u8, to: u8, kind: u8) -> Vec<u8> {
        let mac =
            |last: u8| if last == 255 { [0x33, 0x33, 0, 0, 0, 1] } else { [2, 0, 0, 0, 0, last] };
        let address = |last: u8| [&[0xfe, 0x80][..], &[0; 13], &[last]].concat();
        let header = [0x60, 0, 0, 0, 0, 24, 58, 255];
        let l2 = [&mac(to)[..], &mac(from), &[0x86, 0xdd]].concat();
        [&l2[..], &header, &address(from), &address(to), &[kind, 0, 0, 0], &[0; 20]].concat()
    }

    #[test]
    fn who_is_looked_for_is_asked_at_every_port_but_that_of_who_asks() {
        let (_, mut pick) = pick();
        for packet in [arp(1, 255), neighbour(1, 255, 135), neighbour(1, 255, 133), arp(1, 2)] {
            assert_eq!(pick.choose(&packet[..], 0), Choice::Others);
        }
        let ports = |but| Ways { first: 10, ports: 0..4, but }.collect::<Vec<_>>();
        assert_eq!((ports(None), ports(Some(1))), (vec![10, 11, 12, 13], vec![10, 12, 13]));
    }

    #[test]
    fn what_is_for_a_station_leaves_by_the_port_it_was_heard_at_last() {
        type Make = fn(u8, u8) -> Vec<u8>;
        let makes: [Make; 2] = [arp, |from, to| neighbour(from, to, 136)];
        for (make, other) in [(makes[0], makes[1]), (makes[1], makes[0])] {
            let (origins, mut pick) = pick();
            for (source, place) in [(5, 1), (2, 3), (5, 1)] {
                learn(&origins, &make(1, 255), source);
                assert_eq!(leaves(&mut pick, &make(7, 1)), place);
                assert_eq!(leaves(&mut pick, &other(7, 1)), place, "a station, whatever is spoken");
            }
            // What is of a flow of which nothing is known goes to the station, too.
            let to = |last: u8| {
                let mut packet = udp(THERE, HERE, [53, 1000], None);
                packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, last]);
                packet
            };
            assert_eq!(leaves(&mut pick, &to(1)), 1);
            learn(&origins, &udp(HERE, THERE, [1000, 53], None), 2);
            assert_eq!(leaves(&mut pick, &to(1)), 3, "its flow is known");
            // Another station, another VLAN, a source that is no port of the array.
            let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 9], &frame[12..]].concat();
            learn(&origins, &make(3, 255), 0);
            for unknown in [make(7, 2), tagged(&make(7, 1)), make(7, 3)] {
                assert_eq!(pick.choose(&unknown[..], 0), Choice::Others);
            }
            learn(&origins, &tagged(&make(1, 255)), 2);
            assert_eq!(leaves(&mut pick, &tagged(&make(7, 1))), 3);
            assert_eq!(leaves(&mut pick, &make(7, 1)), 1);
        }
    }

    #[test]
    fn who_calls_itself_all_stations_or_none_is_not_remembered() {
        let (origins, mut pick) = pick();
        let mut nobody = arp(0, 255);
        nobody[6..12].fill(0);
        learn(&origins, &nobody, 5);
        learn(&origins, &arp(255, 255), 5);
        let mut to_nobody = arp(7, 255);
        assert_eq!(pick.choose(&to_nobody[..], 0), Choice::Others);
        to_nobody[..6].fill(0);
        assert_eq!(pick.choose(&to_nobody[..], 0), Choice::Others);
    }
}
