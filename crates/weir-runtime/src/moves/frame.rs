//! A packet that a flow key could be of, so that filters over packets choose flows.

use std::net::IpAddr;
use weir_packet::flow::PortKind;
use weir_packet::headers::proto;
use weir_packet::{Direction, FlowKey};

/// VLAN tags that a key tells apart.
const TAGS: u32 = 5;

/// The headers of a packet of the flow that goes in a direction: Ethernet, VLAN tags, IP, and as much of the transport's as says the ports.
/// All else is 0.
pub(super) fn frame(key: &FlowKey, direction: Direction) -> Vec<u8> {
    let [(source, source_port), (destination, destination_port)] = key.ends(direction);
    let mut frame = vec![0; 12];
    for tag in (0..TAGS).rev() {
        let id = (key.zone() >> (12 * tag)) & 0xfff;
        if id != 0 {
            frame.extend([0x81, 0]);
            frame.extend((id as u16).to_be_bytes());
        }
    }
    let l4 = transport(key, source_port, destination_port);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + l4.len() as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, key.proto(), 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((l4.len() as u16).to_be_bytes());
            frame.extend([key.proto(), 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        // No key has one of each.
        _ => {}
    }
    frame.extend(l4);
    frame
}

fn transport(key: &FlowKey, source_port: u16, destination_port: u16) -> Vec<u8> {
    let mut l4 = Vec::new();
    match key.port_kind() {
        PortKind::Ports | PortKind::Inner | PortKind::Outer if key.proto() != proto::ICMP => {
            l4.extend(source_port.to_be_bytes());
            l4.extend(destination_port.to_be_bytes());
            match key.proto() {
                // Data offset: five words.
                proto::TCP => l4.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]),
                proto::UDP => l4.extend([0, 8, 0, 0]),
                _ => l4.extend([0; 8]),
            }
        }
        PortKind::Ports | PortKind::QueryId | PortKind::Inner | PortKind::Outer => {
            // An echo request.
            l4.extend([if key.version() == 4 { 8 } else { 128 }, 0, 0, 0]);
            l4.extend(source_port.to_be_bytes());
            l4.extend([0, 0]);
        }
        PortKind::None | PortKind::LaterFragment => {}
    }
    l4
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::{Filter, parse};
    use weir_packet::headers::{Depth, parse as layers};

    fn key(source: &str, destination: &str, proto: u8, kind: PortKind, zone: u64) -> FlowKey {
        let end = |text: &str| {
            let (address, port) = text.rsplit_once('/').unwrap();
            (address.parse().unwrap(), port.parse().unwrap())
        };
        FlowKey::between(end(source), end(destination), proto, kind, zone).unwrap().0
    }

    #[test]
    fn the_packet_of_a_key_has_that_key_and_that_direction() {
        let ports = PortKind::Ports;
        for key in [
            key("10.0.0.1/1000", "192.0.2.7/80", 6, ports, 0),
            key("10.0.0.1/1000", "192.0.2.7/80", 17, ports, 0x12c),
            key("2001:db8::1/1000", "2001:db8::2/80", 132, ports, 0x12c << 12 | 0x00f),
            key("2001:db8::1/7", "2001:db8::2/7", 58, PortKind::QueryId, 0),
            key("10.0.0.1/7", "192.0.2.7/7", 1, PortKind::QueryId, 0),
            key("10.0.0.1/0", "192.0.2.7/0", 47, PortKind::None, 0),
        ] {
            for direction in [Direction::Up, Direction::Down] {
                let frame = frame(&key, direction);
                let found =
                    FlowKey::from_packet(frame.as_slice(), &layers(frame.as_slice(), Depth::L4));
                // The two ends of a query have the same number, and it may be an answer.
                assert_eq!(found.map(|found| found.0), Some(key), "{key:?}");
                if key.port_kind() == PortKind::Ports {
                    assert_eq!(found.map(|found| found.1), Some(direction), "{key:?}");
                }
            }
        }
    }

    #[test]
    fn filters_choose_flows_by_what_their_keys_have() {
        let key = key("10.0.0.1/1000", "192.0.2.7/80", 6, PortKind::Ports, 0);
        let matches = |text: &str| {
            let filter = Filter::compile(&parse(text).unwrap()).unwrap();
            let of = |direction| filter.matches(frame(&key, direction).as_slice());
            of(Direction::Up) || of(Direction::Down)
        };
        for text in [
            "tcp",
            "dst port 80",
            "src host 192.0.2.7",
            "net 10.0.0.0/8",
            "host 10.0.0.1 and port 1000",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in ["udp", "port 81", "ip6", "dst host 10.0.0.1 and dst port 80"] {
            assert!(!matches(text), "{text}");
        }
    }
}
