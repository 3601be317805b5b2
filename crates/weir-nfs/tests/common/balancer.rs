//! Clients, servers and services of L4LoadBalancer's tests.
#![allow(dead_code, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use crate::common::left_by;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nfs::l4_load_balancer::L4LoadBalancer;

pub const CLIENTS: u8 = 0;
pub const SERVERS: u8 = 1;
pub const SECOND: u64 = 1_000_000_000;
pub const SYN: u8 = 2;
pub const SYN_ACK: u8 = 18;
pub const ACK: u8 = 16;
pub const RST_ACK: u8 = 20;
pub const FIN_ACK: u8 = 17;
pub const SERVICE: &str = "198.51.100.80:80";
pub const SERVICE6: &str = "[fd00:80::1]:80";

pub fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The client that is number `n`, of the other end's family.
pub fn client(n: u16, other: SocketAddr) -> SocketAddr {
    let [a, b] = n.to_be_bytes();
    let ip: IpAddr = match other {
        SocketAddr::V4(_) => [192, 0, 2 + a, b].into(),
        SocketAddr::V6(_) => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, n).into(),
    };
    SocketAddr::new(ip, 40_000)
}

pub fn frame(from: SocketAddr, to: SocketAddr) -> Frame<'static> {
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Frame::ipv4(from, to),
        (IpAddr::V6(from), IpAddr::V6(to)) => Frame::ipv6(from, to),
        _ => panic!("{from} and {to}"),
    }
}

pub fn tcp(from: SocketAddr, to: SocketAddr, flags: u8) -> Vec<u8> {
    frame(from, to).tcp(from.port(), to.port(), flags).build()
}

pub fn udp(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    frame(from, to).udp(from.port(), to.port()).payload(b"odd").build()
}

/// `count` servers behind a service: 10.0.0.1:8080, 10.0.0.2:8080, or the like in IPv6.
pub fn service(at: &str, proto: &str, count: u16) -> Value {
    let at = end(at);
    let backends: Vec<_> =
        (1..=count).map(|n| json!({"address": server(n, at).ip(), "port": 8080})).collect();
    json!({"address": at.ip(), "port": at.port(), "proto": proto, "backends": backends})
}

pub fn server(n: u16, service: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match service {
        SocketAddr::V4(_) => [10, 0, 0, n as u8].into(),
        SocketAddr::V6(_) => Ipv6Addr::new(0xfd00, 10, 0, 0, 0, 0, 0, n).into(),
    };
    SocketAddr::new(ip, 8080)
}

pub fn config(count: u16) -> Value {
    json!({"services": [service(SERVICE, "tcp", count), service(SERVICE6, "tcp", count)]})
}

pub fn bench(config: Value) -> Bench {
    Bench::new::<L4LoadBalancer>(config).unwrap()
}

pub fn at(bench: &mut Bench, input: u8, ns: u64, frame: &[u8]) -> Seen {
    bench.run_by(input, &[(frame, frame.len(), SECOND + ns)]).remove(0)
}

/// Source and destination of what left by `output`, after a look at all checksums.
pub fn ends(seen: &Seen, output: &str) -> (SocketAddr, SocketAddr) {
    let (bytes, layers) = (&seen.bytes[..], left_by(seen, output));
    let (from, to) = layers.ips(bytes).unwrap();
    let (a, b) = layers.ports(bytes).unwrap();
    (SocketAddr::new(from, a), SocketAddr::new(to, b))
}

/// Which server a packet of a client goes to.
pub fn server_of(bench: &mut Bench, ns: u64, packet: &[u8]) -> SocketAddr {
    ends(&at(bench, CLIENTS, ns, packet), "servers").1
}

/// What the report says of a server.
pub fn reported(bench: &Bench, server: SocketAddr, key: &str) -> Value {
    let report = bench.report();
    let servers = report["servers"].as_array().unwrap();
    let it = servers.iter().find(|s| s["server"] == json!(server)).unwrap();
    it[key].clone()
}

/// A client's SYN and its server's answer, if it gives one.
pub fn opens(bench: &mut Bench, ns: u64, n: u16, answer: Option<u8>) -> SocketAddr {
    let service = end(SERVICE);
    let client = client(n, service);
    let server = server_of(bench, ns, &tcp(client, service, SYN));
    if let Some(flags) = answer {
        at(bench, SERVERS, ns, &tcp(server, client, flags));
    }
    server
}

/// An ICMP error of `from` to `to` that quotes `packet`.
pub fn error(from: SocketAddr, to: SocketAddr, unreachable: bool, packet: &[u8]) -> Vec<u8> {
    let (kind, code) = match (from.is_ipv4(), unreachable) {
        (true, true) => (3, 1),
        (true, false) => (11, 0),
        (false, true) => (1, 3),
        (false, false) => (3, 0),
    };
    frame(from, to).icmp(kind, code, [0; 4]).payload(&packet[14..]).build()
}
