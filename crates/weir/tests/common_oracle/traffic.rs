//! Made-up traffic of many kinds, whole and damaged, with addresses, ports and requests that policies ask for.

use super::random::Choices;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_capture::{LinkType, RawTime, TimeFormat, Timestamp};
use weir_oracle::Input;
use weir_packet::headers::tcp;
use weir_packet::wire::Frame;

const V4: [[u8; 4]; 12] = [
    [10, 1, 0, 7],
    [10, 1, 200, 5],
    [10, 12, 30, 9],
    [192, 0, 2, 1],
    [192, 0, 2, 130],
    [198, 51, 100, 7],
    [203, 0, 113, 9],
    [203, 0, 113, 200],
    [172, 16, 1, 1],
    [224, 0, 0, 5],
    [239, 1, 2, 3],
    [255, 255, 255, 255],
];
const V6: [&str; 7] =
    ["2001:db8:1::5", "2001:db8::9", "fd00::2", "fd00:1::1", "fe80::1", "ff02::1", "ff05::5"];
const PORTS: [u16; 16] =
    [80, 80, 443, 8080, 8042, 53, 53, 25, 22, 23, 67, 137, 445, 5060, 1024, 40_000];
const FLAGS: [u8; 6] =
    [tcp::SYN, tcp::ACK, tcp::ACK, tcp::ACK | tcp::PSH, tcp::SYN | tcp::FIN, tcp::RST];
const VLANS: [u16; 4] = [10, 20, 30, 7];
const TYPES: [u16; 3] = [0x0806, 0x8035, 0x88cc];

const REQUESTS: [&str; 7] = [
    "GET /product?id=1 HTTP/1.1\r\nHost: www.example\r\n\r\n",
    "GET /product?id=1'%20OR%201=1%20--%20 HTTP/1.1\r\nHost: www.example\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\nGET /b HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "POST /login HTTP/1.1\r\nHost: b.example\r\nContent-Type: application/x-www-form-urlencoded\r\n\
     Content-Length: 27\r\n\r\nuser=x&pass=1'%20OR%201=1--",
    "GET /cut HTTP/1.1\r\nHos",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "SSH-2.0-OpenSSH_9.6\r\n",
];

/// So many packets.
pub fn packets(choices: &mut Choices, count: usize) -> Vec<Input> {
    let mut packets = Vec::new();
    while packets.len() < count {
        packets.extend(some(choices).into_iter().map(|bytes| Input {
            port: 0,
            wire_len: bytes.len() as u32,
            bytes,
            time: Timestamp { raw: RawTime::from_fields(0, 0), format: TimeFormat::PcapMicros },
            link: LinkType::ETHERNET,
        }));
    }
    packets.truncate(count);
    packets
}

/// A packet, or the fragments of one.
fn some(choices: &mut Choices) -> Vec<Vec<u8>> {
    let noise: Vec<u8> = (0..choices.below(1460)).map(|_| choices.next() as u8).collect();
    let payload = match choices.below(4) {
        0 => &[],
        1 => noise.as_slice(),
        _ => choices.of(&REQUESTS).as_bytes(),
    };
    let extensions: [(u8, &[u8]); 1] = [(0, &[1, 4, 0, 0, 0, 0])];
    let mut frame = if choices.one_in(12) {
        Frame::other(choices.of(&TYPES))
    } else if choices.one_in(3) {
        let mut address = || -> Ipv6Addr { choices.of(&V6).parse().unwrap() };
        let frame = Frame::ipv6(address(), address());
        if choices.one_in(6) { frame.extensions(&extensions) } else { frame }
    } else {
        let mut address = || Ipv4Addr::from(choices.of(&V4));
        let frame = Frame::ipv4(address(), address());
        if choices.one_in(8) { frame.options(&[1, 1, 1, 0]) } else { frame }
    };
    let (from, to) = (choices.of(&PORTS), choices.of(&PORTS));
    frame = match choices.below(8) {
        0 => frame.icmp(8, 0, [0; 4]),
        1 => frame.proto(choices.of(&[47, 50, 132])),
        2 | 3 => frame.udp(from, to),
        _ => frame.tcp(from, to, choices.of(&FLAGS)),
    };
    for _ in 0..2 {
        if choices.one_in(4) {
            frame = frame.vlan(choices.of(&VLANS));
        }
    }
    frame = frame.payload(payload).ttl(choices.of(&[64, 64, 64, 2, 1, 0]));
    let mut packets = if choices.one_in(10) { frame.fragments(512) } else { vec![frame.build()] };
    for packet in &mut packets {
        if choices.one_in(12)
            && let Some(at) = packet.len().checked_sub(1)
        {
            packet[at.min(12 + choices.below(40))] ^= 1 << choices.below(8);
        }
        if choices.one_in(20) {
            packet.truncate(choices.below(80));
        }
    }
    packets
}
