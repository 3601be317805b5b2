//! A traffic generator for given flows: what measurements need whose packets must hit rules.

use crate::generator::mix;
use crate::segments::{renumber, tcp_at};
use crate::{DeviceError, Place, Receive, Room, Status};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_mem::meta::Arrival;
use weir_packet::headers::proto;
use weir_packet::wire::Frame;

/// A flow to make packets of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFlow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same IP version.
    pub destination: IpAddr,
    /// IP protocol; TCP and UDP get ports, ICMP and ICMPv6 are echo requests.
    pub proto: u8,
    /// Source and destination port.
    pub ports: (u16, u16),
}

/// Packets of listed flows, in turn or at random, and as fast as they are taken. It has no text form: measurements bind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSpec {
    /// The flows.
    pub flows: Vec<ListedFlow>,
    /// What packets carry, by flow in turn; empty: nothing. TCP's sequence numbers go on by what a flow has sent; behind 16 million shuffled packets a restarted source
    /// begins them anew.
    pub payloads: Vec<Vec<u8>>,
    /// Bytes per packet at least, without the frame check sequence; shorter ones are padded with zeros as Ethernet
    /// does.
    pub size: u16,
    /// How many packets; `None` is without end.
    pub packets: Option<u64>,
    /// Most packets that are given at a time; `None`: as many as are taken.
    pub burst: Option<u64>,
    /// After the last packet the source is quiet, as an interface to which nobody sends, and does not end.
    pub stays: bool,
    /// After the first round flows come at random, each as likely as any other: what remembers flows in the order in which they
    /// began does not find them in that order again.
    pub shuffled: bool,
}

impl ListedSpec {
    /// Length in bytes that no packet exceeds.
    pub fn longest(&self) -> usize {
        let payload = self.payloads.iter().map(Vec::len).max().unwrap_or(0);
        // Ethernet, IP and the longest transport header, TCP's.
        let heads = if self.flows.iter().any(|flow| flow.source.is_ipv6()) { 74 } else { 54 };
        payload.saturating_add(heads).max(self.size.into())
    }
}

/// Shuffled packets that a source counts again by flow when it goes on: some tenths of a second of work.
const MOST_COUNTED: u64 = 1 << 24;

/// What the packets of a flow are put together from.
struct Parts {
    /// Where its head starts in the heads of all.
    head: u32,
    /// Which payload follows it.
    payload: u32,
    /// Where its TCP header is in the head, if its sequence numbers go on.
    tcp: Option<u8>,
}

/// The packets, made in advance.
pub struct Listed {
    packets: Option<u64>,
    burst: u64,
    stays: bool,
    shuffled: bool,
    /// All heads, one behind the other: what is before the payload, or the whole packet when there is none.
    heads: Vec<u8>,
    flows: Vec<Parts>,
    payloads: Vec<Vec<u8>>,
    made: u64,
    base_ns: u64,
}

impl Listed {
    /// Makes the packets of `spec`, going on from `place`.
    pub fn new(spec: &ListedSpec, place: Place) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut payloads = spec.payloads.clone();
        if payloads.is_empty() {
            payloads.push(Vec::new());
        }
        let mut listed = Listed {
            packets: spec.packets,
            burst: spec.burst.unwrap_or(u64::MAX),
            stays: spec.stays,
            shuffled: spec.shuffled,
            heads: Vec::new(),
            flows: Vec::new(),
            payloads: Vec::new(),
            made: place[0],
            base_ns: since_epoch.as_nanos() as u64,
        };
        for (flow, turn) in spec.flows.iter().zip((0..payloads.len()).cycle()) {
            let payload = payloads.get(turn).map(Vec::as_slice).unwrap_or_default();
            let packet = packet(flow, payload, spec.size.into());
            let head = if payload.is_empty() {
                packet.len()
            } else {
                // Padding is behind the payload and part of neither; only short packets have any.
                packet.len().saturating_sub(payload.len())
            };
            let start = u32::try_from(listed.heads.len()).unwrap_or(u32::MAX);
            listed.heads.extend_from_slice(packet.get(..head).unwrap_or_default());
            let tcp = tcp_at(flow.proto, flow.source.is_ipv6() || flow.destination.is_ipv6());
            let tcp = tcp.filter(|_| !payload.is_empty()).and_then(|at| u8::try_from(at).ok());
            let payload = u32::try_from(turn).unwrap_or(0);
            listed.flows.push(Parts { head: start, payload, tcp });
        }
        listed.payloads = payloads;
        listed.catch_up();
        listed
    }

    /// Brings sequence numbers to where they are after what was made. Of shuffled flows how many packets each has had is only known by going
    /// through all: after very many sequence numbers begin anew, in the place of a start that takes seconds.
    fn catch_up(&mut self) {
        if self.flows.iter().all(|flow| flow.tcp.is_none()) {
            return;
        }
        let flows = self.flows.len() as u64;
        if self.shuffled {
            let most = if self.made > MOST_COUNTED { 0 } else { self.made };
            (0..most).for_each(|number| self.go_on(self.at(number), 1));
            return;
        }
        let (rounds, more) = (self.made / flows, self.made % flows);
        (0..self.flows.len()).for_each(|at| self.go_on(at, rounds + u64::from((at as u64) < more)));
    }

    /// So many packets of flow `at` are made.
    #[inline]
    fn go_on(&mut self, at: usize, packets: u64) {
        let Some(Parts { head, payload, tcp: Some(tcp) }) = self.flows.get(at) else { return };
        let len = self.payloads.get(*payload as usize).map_or(0, Vec::len) as u64;
        let Some(head) = self.heads.get_mut(*head as usize..) else { return };
        // Modulo 2^32, as sequence numbers are.
        renumber(head, usize::from(*tcp), |seq| seq.wrapping_add(packets.wrapping_mul(len) as u32));
    }

    /// Which flow packet `number` is of.
    #[inline]
    fn at(&self, number: u64) -> usize {
        let flows = self.flows.len() as u64;
        if self.shuffled && number >= flows {
            // Multiply and shift, as in `FlowHasher::choose`.
            return ((u128::from(mix(number)) * u128::from(flows)) >> 64) as usize;
        }
        number.checked_rem(flows).unwrap_or(0) as usize
    }

    /// Head and payload of flow `at`.
    #[inline]
    fn parts(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let Parts { head, payload, .. } = self.flows.get(at)?;
        let end = self.flows.get(at + 1).map_or(self.heads.len(), |next| next.head as usize);
        let payload = self.payloads.get(*payload as usize)?;
        Some((self.heads.get(*head as usize..end)?, payload))
    }
}

/// The flow's packet with right lengths and checksums.
fn packet(flow: &ListedFlow, payload: &[u8], size: usize) -> Vec<u8> {
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let frame = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Frame::ipv4(source, destination),
        (source, destination) => Frame::ipv6(v6(source), v6(destination)),
    };
    let (source, destination) = flow.ports;
    let frame = match flow.proto {
        proto::TCP => frame.tcp(source, destination, weir_packet::headers::tcp::ACK),
        proto::UDP => frame.udp(source, destination),
        proto::ICMP => frame.icmp(8, 0, [0; 4]),
        proto::ICMPV6 => frame.icmp(128, 0, [0; 4]),
        other => frame.proto(other),
    };
    // Padding would come between payload and end: with a payload the packet is as long as that makes it.
    let pad = if payload.is_empty() { size } else { 0 };
    frame.payload(payload).pad_to(pad).build()
}

impl Receive for Listed {
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError> {
        let left = self.packets.map_or(u64::MAX, |n| n.saturating_sub(self.made));
        let flows = self.flows.len() as u64;
        if left == 0 || flows == 0 {
            return Ok(if self.stays { Status::Later(u64::MAX) } else { Status::End });
        }
        let left = left.min(self.burst);
        let mut made = 0;
        let mut at = self.at(self.made);
        while made < left {
            let Some((head, payload)) = self.parts(at) else { break };
            let len = head.len() + payload.len();
            let arrival =
                Arrival { time_ns: self.base_ns, wire_len: len as u32, ..Arrival::default() };
            let taken = room.take(len, &arrival, |bytes| {
                bytes.write(0, head);
                if !payload.is_empty() {
                    bytes.write(head.len(), payload);
                }
            });
            if !taken {
                break;
            }
            self.go_on(at, 1);
            made += 1;
            at = if self.shuffled { self.at(self.made + made) } else { at + 1 };
            if at == self.flows.len() {
                at = 0;
            }
        }
        self.made += made;
        Ok(Status::More)
    }

    fn place(&self) -> Place {
        [self.made, 0, 0, 0, 0, 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::tests::sound;
    use weir_packet::{Depth, check_ip, parse};

    #[test]
    fn each_flow_becomes_a_sound_packet_with_its_payload() {
        let flow = |source: &str, destination: &str, proto| ListedFlow {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            proto,
            ports: (1000, 80),
        };
        let flows = vec![
            flow("10.0.0.1", "10.0.0.2", 6),
            flow("10.0.0.1", "10.0.0.2", 17),
            flow("10.0.0.1", "10.0.0.2", 1),
            flow("fd00::1", "fd00::2", 6),
            flow("fd00::1", "fd00::2", 47),
        ];
        for payloads in [vec![], vec![b"GET / HTTP/1.1\r\n".to_vec(), vec![7; 900]]] {
            let spec = ListedSpec {
                flows: flows.clone(),
                payloads,
                size: 64,
                packets: None,
                burst: None,
                stays: false,
                shuffled: false,
            };
            let listed = Listed::new(&spec, [0; 6]);
            for (at, flow) in flows.iter().enumerate() {
                let (head, payload) = listed.parts(at).unwrap();
                let packet = [head, payload].concat();
                assert!(packet.len() <= spec.longest());
                let layers = parse(&packet[..], Depth::L4);
                assert_eq!(check_ip(&packet[..], &layers, packet.len()), Ok(()));
                let (source, destination) = layers.ips(&packet[..]).unwrap();
                assert_eq!((source, destination), (flow.source, flow.destination));
                if matches!(flow.proto, 6 | 17) {
                    assert_eq!(layers.ports(&packet[..]), Some(flow.ports));
                }
                match spec.payloads.get(at % 2) {
                    Some(payload) => assert!(packet.ends_with(payload)),
                    None => assert!(packet.len() >= 64),
                }
            }
            assert!(listed.parts(flows.len()).is_none());
        }
    }

    #[test]
    fn segments_of_a_flow_follow_each_other_also_after_a_restart() {
        let flow = |source: &str, destination: &str, proto| ListedFlow {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            proto,
            ports: (1000, 80),
        };
        for shuffled in [false, true] {
            let spec = ListedSpec {
                flows: vec![
                    flow("10.0.0.1", "10.0.0.2", 6),
                    flow("10.0.0.3", "10.0.0.2", 17),
                    flow("fd00::1", "fd00::2", 6),
                ],
                payloads: vec![vec![1; 7], vec![2; 100]],
                size: 60,
                packets: None,
                burst: None,
                stays: false,
                shuffled,
            };
            let mut listed = Listed::new(&spec, [0; 6]);
            let mut sent = [0; 3];
            for number in 0..500 {
                // Whoever begins here sends what would have come.
                let anew = Listed::new(&spec, [number, 0, 0, 0, 0, 1]);
                let at = listed.at(number);
                let (head, payload) = listed.parts(at).unwrap();
                let packet = [head, payload].concat();
                let (anew_head, _) = anew.parts(at).unwrap();
                assert_eq!(anew_head, head, "packet {number}, shuffled: {shuffled}");
                if spec.flows[at].proto == proto::TCP {
                    assert_eq!(sound(&packet), (sent[at], payload));
                }
                sent[at] += payload.len() as u32;
                listed.go_on(at, 1);
            }
            assert!(sent.iter().all(|bytes| *bytes > 0), "{sent:?}");
        }
    }

    #[test]
    fn whoever_goes_on_behind_more_packets_than_can_be_counted_begins_at_once() {
        let flow = ListedFlow {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            proto: proto::TCP,
            ports: (1000, 80),
        };
        for shuffled in [false, true] {
            let spec = ListedSpec {
                flows: vec![flow; 3],
                payloads: vec![vec![1; 7]],
                size: 60,
                packets: None,
                burst: None,
                stays: false,
                shuffled,
            };
            // Any number may stand where the place was kept: to go through as many would never end.
            let listed = Listed::new(&spec, [u64::MAX, 0, 0, 0, 0, 1]);
            let (head, payload) = listed.parts(0).unwrap();
            sound(&[head, payload].concat());
        }
    }

    #[test]
    fn shuffled_flows_come_in_turn_once_and_then_evenly_in_no_order() {
        let flow = |n: u16| ListedFlow {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            proto: 17,
            ports: (n, 53),
        };
        let spec = ListedSpec {
            flows: (0..100).map(flow).collect(),
            payloads: Vec::new(),
            size: 64,
            packets: None,
            burst: None,
            stays: false,
            shuffled: true,
        };
        let listed = Listed::new(&spec, [0; 6]);
        assert!((0..100).all(|n| listed.at(n as u64) == n));
        let mut counts = vec![0; 100];
        (100..100_100).for_each(|n| counts[listed.at(n)] += 1);
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
        assert!((100..200).any(|n| listed.at(n + 1) != (listed.at(n) + 1) % 100));
    }
}
