//! L4LoadBalancer against clients that mean harm, lost flows, and floods.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

#[path = "common/balancer.rs"]
mod balancer;
mod common;

use balancer::*;
use serde_json::json;
use std::net::SocketAddr;
use weir_nf::DropReason;
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;

const SERVICE_UDP: &str = "198.51.100.53:53";
const RST: u8 = 4;

/// UDP servers that one failure takes out.
fn datagrams(count: u16) -> Bench {
    bench(json!({"services": [service(SERVICE_UDP, "udp", count)], "failures": 1}))
}

/// Sends what cannot be reached, and says so; the server that this took out.
fn take_out(bench: &mut Bench, ns: u64, n: u16) -> SocketAddr {
    let service = end(SERVICE_UDP);
    let sent = at(bench, CLIENTS, ns, &udp(client(n, service), service));
    let (client, server) = ends(&sent, "servers");
    at(bench, SERVERS, ns, &error(server, client, true, &sent.bytes));
    assert_ne!(reported(bench, server, "out_until_ns"), 0);
    server
}

#[test]
fn what_fails_while_others_are_answered_is_no_failure_of_the_server() {
    let mut bench = bench(config(2));
    let (service, one) = (end(SERVICE), server(1, end(SERVICE)));
    // SYNs that no server can answer, and one that is.
    let bad: Vec<_> = (0..40).filter(|n| opens(&mut bench, 0, *n, None) == one).collect();
    assert!(bad.len() > 5);
    let well =
        (100..).find(|n| server_of(&mut bench, 1, &tcp(client(*n, service), service, SYN)) == one);
    at(&mut bench, SERVERS, 2, &tcp(one, client(well.unwrap(), service), SYN_ACK));
    for n in &bad {
        assert_eq!(opens(&mut bench, SECOND, *n, None), one);
    }
    assert_eq!(reported(&bench, one, "timed_out"), bad.len());
    assert_eq!(reported(&bench, one, "taken_out"), 0);
}

#[test]
fn nobody_can_take_all_servers_out() {
    let mut bench = bench(config(3));
    let service = end(SERVICE);
    for round in 0..4 {
        for n in 0..60 {
            opens(&mut bench, round * SECOND, n, None);
        }
    }
    for n in 1..=3 {
        assert_eq!(reported(&bench, server(n, service), "taken_out"), 1);
    }
    // All are out: new clients are sent on as if none were, and their answers show that the servers are well.
    let open = |bench: &mut Bench, n| opens(bench, 5 * SECOND, n, Some(SYN_ACK));
    for n in 100..160 {
        open(&mut bench, n);
    }
    assert_eq!(bench.report()["unavailable"], 0);
    assert!((1..=3).any(|n| reported(&bench, server(n, service), "out_until_ns") == 0));
}

#[test]
fn a_trial_is_not_spent_on_what_opens_nothing() {
    let mut bench = bench(config(2));
    let (service, bad) = (end(SERVICE), server(1, end(SERVICE)));
    for n in 0..40 {
        let server = opens(&mut bench, 0, n, None);
        let flags = if server == bad { RST_ACK } else { SYN_ACK };
        at(&mut bench, SERVERS, 0, &tcp(server, client(n, service), flags));
    }
    assert_eq!(reported(&bench, bad, "taken_out"), 1);
    for n in 100..140 {
        let stray = tcp(client(n, service), service, ACK);
        assert_ne!(server_of(&mut bench, 10 * SECOND, &stray), bad);
    }
    assert!((200..240).any(|n| opens(&mut bench, 10 * SECOND, n, None) == bad));
}

#[test]
fn that_somebody_may_not_talk_to_a_server_is_no_failure_of_it() {
    for (at_, kind, codes) in [(SERVICE, 3, [9, 10, 13]), (SERVICE6, 1, [1, 5, 6])] {
        let (mut bench, service) = (bench(config(1)), end(at_));
        let sent = at(&mut bench, CLIENTS, 0, &tcp(client(1, service), service, SYN));
        let (client, server) = ends(&sent, "servers");
        for code in codes {
            let icmp = frame(server, client).icmp(kind, code, [0; 4]);
            let seen = at(&mut bench, SERVERS, 1, &icmp.payload(&sent.bytes[14..]).build());
            assert_eq!(seen.verdict, Ok("clients"));
        }
        assert_eq!(reported(&bench, server, "unreachable"), 0);
    }
}

#[test]
fn what_a_server_sends_of_an_unknown_connection_comes_from_its_service() {
    for at_ in [SERVICE, SERVICE6] {
        // The flow was lost with the worker.
        let (mut bench, service) = (bench(config(3)), end(at_));
        let (client, server) = (client(1, service), server(2, service));
        let data = |from: SocketAddr| frame(from, client).tcp(from.port(), client.port(), ACK);
        let seen = at(&mut bench, SERVERS, 0, &data(server).payload(b"odd").build());
        assert_eq!(ends(&seen, "clients"), (service, client));
        assert_eq!(seen.bytes, data(service).payload(b"odd").build());
        assert_eq!(bench.flows().0, 0, "it takes no place");
        for piece in data(server).id(5).payload(&[7; 100]).fragments(48) {
            let seen = at(&mut bench, SERVERS, 1, &piece);
            let layers = weir_packet::parse(&seen.bytes[..], weir_nf::Depth::L4);
            assert_eq!(seen.verdict, Ok("clients"));
            assert_eq!(layers.ips(&seen.bytes[..]).unwrap().0, service.ip());
        }
        // What it sends from another port is its own affair.
        let own = tcp(SocketAddr::new(server.ip(), 22), client, ACK);
        let seen = at(&mut bench, SERVERS, 2, &own);
        assert_eq!((seen.verdict, seen.bytes), (Ok("clients"), own));
    }
    // Of several services nobody knows which.
    let two = [SERVICE, "198.51.100.81:80"].map(|at| service(at, "tcp", 2));
    let mut bench = bench(json!({"services": two}));
    let service = end(SERVICE);
    let seen = at(&mut bench, SERVERS, 0, &tcp(server(1, service), client(1, service), ACK));
    assert_eq!(seen.verdict, Err(DropReason::NoMapping));
}

#[test]
fn datagrams_of_one_message_stay_together_on_trial() {
    let (mut bench, service) = (datagrams(2), end(SERVICE_UDP));
    let bad = take_out(&mut bench, 0, 1);
    let mut tried = None;
    for n in 10..60 {
        let packet = udp(client(n, service), service);
        let server = server_of(&mut bench, 10 * SECOND, &packet);
        assert_eq!(server_of(&mut bench, 10 * SECOND + 1, &packet), server);
        tried = tried.or((server == bad).then_some(n));
    }
    let seen = at(&mut bench, SERVERS, 10 * SECOND + 2, &udp(bad, client(tried.unwrap(), service)));
    assert_eq!(ends(&seen, "clients").0, service);
    assert_eq!(reported(&bench, bad, "out_until_ns"), 0);
}

#[test]
fn a_server_that_answers_no_datagrams_is_well_a_second_after_its_trial() {
    let (mut bench, service) = (datagrams(2), end(SERVICE_UDP));
    let bad = take_out(&mut bench, 0, 1);
    let mut of_bad = |ns, from| {
        let packet = |n| udp(client(n, service), service);
        (from..from + 50).filter(|n| server_of(&mut bench, ns, &packet(*n)) == bad).count()
    };
    assert_eq!(of_bad(10 * SECOND, 100), 1, "the trial");
    assert!(of_bad(11 * SECOND, 200) > 10);
}

#[test]
fn a_reset_that_the_ends_ignore_closes_nothing() {
    for side in [CLIENTS, SERVERS] {
        let mut bench = bench(config(2));
        let service = end(SERVICE);
        let (client, server) = (client(7, service), opens(&mut bench, 0, 7, Some(SYN_ACK)));
        at(&mut bench, CLIENTS, 1, &tcp(client, service, ACK));
        at(&mut bench, CLIENTS, 2, &tcp(client, service, RST));
        let (from, to) = if side == CLIENTS { (client, service) } else { (server, client) };
        let data = frame(from, to).tcp(from.port(), to.port(), ACK).payload(b"odd").build();
        at(&mut bench, side, 3, &data);
        let mut config = config(2);
        let place = usize::from(server == self::server(2, service));
        config["services"][0]["backends"][place]["state"] = json!("drain");
        bench.instance().reconfigure(&config, &weir_nf::Env::default()).unwrap();
        // It is known for as long as one that is open, and nobody's SYN moves it.
        let late = 3 + 7000 * SECOND;
        assert_eq!(server_of(&mut bench, late, &tcp(client, service, SYN)), server);
    }
}

#[test]
fn a_flow_may_leave_any_number_of_servers() {
    let (mut bench, service) = (datagrams(20), end(SERVICE_UDP));
    let mut left = Vec::new();
    for n in 0..20 {
        left.push(take_out(&mut bench, n, 1));
    }
    left.sort_unstable();
    left.dedup();
    assert_eq!(left.len(), 20);
    let sent = at(&mut bench, CLIENTS, 30, &udp(client(1, service), service));
    let (client, server) = ends(&sent, "servers");
    let seen: Seen = at(&mut bench, SERVERS, 31, &udp(server, client));
    assert_eq!(ends(&seen, "clients").0, service);
}

#[test]
fn fragments_whose_first_found_no_server_get_no_further() {
    let mut config = json!({"services": [service(SERVICE_UDP, "udp", 1)]});
    config["services"][0]["backends"][0]["state"] = json!("down");
    let (mut bench, service) = (bench(config), end(SERVICE_UDP));
    let client = client(1, service);
    let packet = Frame::id(frame(client, service), 77).udp(client.port(), service.port());
    let pieces = packet.payload(&[7; 100]).fragments(48);
    let seen: Vec<_> = pieces.iter().map(|p| at(&mut bench, CLIENTS, 0, p).verdict).collect();
    assert_eq!(seen[0], Ok("unavailable"));
    assert!(
        seen.len() > 1 && seen[1..].iter().all(|v| *v == Err(DropReason::Fragment)),
        "{seen:?}"
    );
}

#[test]
fn what_is_not_answered_gives_its_place_back_soon() {
    let mut bench = bench(config(2));
    let service = end(SERVICE);
    for n in 0..50 {
        opens(&mut bench, 0, n, (n < 10).then_some(SYN_ACK));
    }
    assert_eq!(bench.flows().0, 50);
    for n in 0..40 {
        at(&mut bench, SERVERS, 33 * SECOND + n, &tcp(client(1, service), client(2, service), ACK));
    }
    assert_eq!(bench.flows().0, 10);
}
