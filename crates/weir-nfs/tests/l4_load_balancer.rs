//! L4LoadBalancer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

#[path = "common/balancer.rs"]
mod balancer;
mod common;

use balancer::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_nf::checksum::{L4Checksum, verify_l4};
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nf::{Depth, DropReason, Env, check_ip};
use weir_nfs::l4_load_balancer::L4LoadBalancer;
use weir_packet::parse;

#[test]
fn a_connection_goes_to_a_server_and_its_answers_come_from_the_service() {
    for (at_, vlan) in [(SERVICE, false), (SERVICE6, false), (SERVICE, true), (SERVICE6, true)] {
        let tag = |f: Frame<'static>| if vlan { f.tag(0x88a8, 5).vlan(7) } else { f };
        let (service, mut bench) = (end(at_), bench(config(3)));
        let client = client(1, service);
        let make = |from: SocketAddr, to: SocketAddr, flags| {
            tag(frame(from, to)).tcp(from.port(), to.port(), flags).payload(b"odd").build()
        };
        let seen = at(&mut bench, CLIENTS, 0, &make(client, service, SYN));
        let (from, server) = ends(&seen, "servers");
        assert_eq!(from, client);
        // All but the destination and checksums is as it was.
        assert_eq!(seen.bytes, make(client, server, SYN));
        let seen = at(&mut bench, SERVERS, 1, &make(server, client, SYN_ACK));
        assert_eq!(ends(&seen, "clients"), (service, client));
        assert_eq!(seen.bytes, make(service, client, SYN_ACK));
        assert_eq!(server_of(&mut bench, 2, &make(client, service, ACK)), server);
        assert_eq!(reported(&bench, server, "flows"), 1);
        let report = bench.report();
        assert_eq!((&report["there"], &report["back"]), (&json!(2), &json!(1)));
    }
}

#[test]
fn udp_is_balanced_alike_and_one_without_checksum_stays_so() {
    let mut bench = bench(json!({"services": [service("198.51.100.53:53", "udp", 4)]}));
    let (service, client) = (end("198.51.100.53:53"), client(1, end(SERVICE)));
    let mut bare = udp(client, service);
    let l4 = usize::from(parse(&bare[..], Depth::L4).l4);
    bare[l4 + 6..l4 + 8].fill(0);
    let seen = at(&mut bench, CLIENTS, 0, &bare);
    let (_, server) = ends(&seen, "servers");
    assert_eq!(seen.bytes[l4 + 6..l4 + 8], [0, 0]);
    let seen = at(&mut bench, SERVERS, 1, &udp(server, client));
    assert_eq!(ends(&seen, "clients"), (service, client));
    // The same address and port by TCP is no service.
    let other = at(&mut bench, CLIENTS, 2, &tcp(client, service, SYN));
    assert_eq!(ends(&other, "servers").1, service);
}

#[test]
fn connections_are_spread_by_weight() {
    let mut config = config(3);
    config["services"][0]["backends"][0]["weight"] = json!(2);
    let mut bench = bench(config);
    let service = end(SERVICE);
    let mut count: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    for n in 0..2000 {
        let packet = tcp(client(n, service), service, SYN);
        *count.entry(server_of(&mut bench, 0, &packet)).or_default() += 1;
    }
    let shares = [1, 2, 3].map(|n| count[&server(n, service)]);
    assert!((900..1100).contains(&shares[0]), "{shares:?}");
    assert!(shares[1..].iter().all(|n| (430..570).contains(n)), "{shares:?}");
}

#[test]
fn a_new_list_of_servers_moves_no_connection_that_is_known_and_few_that_are_new() {
    let service = end(SERVICE);
    let mut bench = bench(config(10));
    let packet = |n| tcp(client(n, service), service, SYN);
    let before: Vec<_> = (0..1000).map(|n| server_of(&mut bench, 0, &packet(n))).collect();
    let mut fewer = config(10);
    fewer["services"][0]["backends"].as_array_mut().unwrap().remove(3);
    bench.instance().reconfigure(&fewer, &Env::default()).unwrap();
    let gone = server(4, service);
    let after: Vec<_> = (0..1000).map(|n| server_of(&mut bench, 1, &packet(n))).collect();
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || *before == gone, "{before} moved to {after}");
        assert_ne!(*after, gone);
    }
    // Who knows no flow sends nearly all of them to the same.
    let mut new = self::bench(fewer);
    let fresh = (0..1000).map(|n| server_of(&mut new, 0, &packet(n)));
    let moved = before.iter().zip(fresh).filter(|(b, f)| **b != gone && *b != f).count();
    assert!(moved < 100, "{moved} of 1000");
}

#[test]
fn a_server_that_drains_keeps_its_connections_and_gets_none_and_one_that_is_down_has_none() {
    let service = end(SERVICE);
    for (state, keeps) in [("drain", true), ("down", false)] {
        let mut bench = bench(config(2));
        let opens = |n| tcp(client(n, service), service, SYN);
        let data = |n| tcp(client(n, service), service, ACK);
        let mut of_first = Vec::new();
        for n in 0..100 {
            let server = server_of(&mut bench, 0, &opens(n));
            at(&mut bench, SERVERS, 1, &tcp(server, client(n, service), SYN_ACK));
            of_first.extend((server == self::server(1, service)).then_some(n));
        }
        assert!(of_first.len() > 20);
        let mut config = config(2);
        config["services"][0]["backends"][0]["state"] = json!(state);
        bench.instance().reconfigure(&config, &Env::default()).unwrap();
        for n in of_first {
            let now = server_of(&mut bench, 2, &data(n));
            assert_eq!(now == server(1, service), keeps, "{state}: {now}");
        }
        for n in 100..200 {
            assert_eq!(server_of(&mut bench, 3, &opens(n)), server(2, service));
        }
    }
}

#[test]
fn a_server_that_refuses_is_out_until_a_trial_is_answered() {
    let mut bench = bench(config(2));
    let (bad, good) = (server(1, end(SERVICE)), server(2, end(SERVICE)));
    let answer = |server| if server == bad { Some(RST_ACK) } else { Some(SYN_ACK) };
    let mut client = 0..;
    let mut open = |bench: &mut Bench, ns: u64, well: bool| {
        let n = client.next().unwrap();
        let server = opens(bench, ns, n, None);
        let flags = if well { Some(SYN_ACK) } else { answer(server) };
        at(bench, SERVERS, ns, &tcp(server, self::client(n, end(SERVICE)), flags.unwrap()));
        server
    };
    let mut refused = 0;
    for _ in 0..100 {
        refused += u32::from(open(&mut bench, 0, false) == bad);
    }
    assert_eq!(refused, 3, "three in a row take it out");
    assert_eq!(reported(&bench, bad, "taken_out"), 1);
    for ns in [1, 9 * SECOND, 10 * SECOND - 1] {
        assert_eq!(open(&mut bench, ns, false), good, "for ten seconds");
    }
    // Then one a second, as long as it refuses: and each refusal is another ten.
    let trials =
        |bench: &mut Bench, open: &mut dyn FnMut(&mut Bench, u64, bool) -> SocketAddr, ns, well| {
            (0..100).filter(|_| open(bench, ns, well) == bad).count()
        };
    assert_eq!(trials(&mut bench, &mut open, 10 * SECOND, false), 1);
    assert_eq!(trials(&mut bench, &mut open, 19 * SECOND, false), 0);
    // It answers: it is as the others again.
    assert!(trials(&mut bench, &mut open, 20 * SECOND, true) > 30);
    assert_eq!(reported(&bench, bad, "refused"), 4);
    assert_eq!(reported(&bench, bad, "out_until_ns"), 0);
}

#[test]
fn a_syn_that_is_asked_again_counts_and_then_goes_to_another_server() {
    let mut config = config(2);
    config["failures"] = json!(2);
    let mut bench = bench(config);
    let service = end(SERVICE);
    let silent = server(1, service);
    let of_silent: Vec<_> =
        (0..50).filter(|n| opens(&mut bench, 0, *n, None) == silent).take(2).collect();
    let [a, b] = of_silent[..] else { panic!("{of_silent:?}") };
    // Sooner than TCP asks again it is no time-out.
    assert_eq!(opens(&mut bench, SECOND / 2, a, None), silent);
    assert_eq!(reported(&bench, silent, "timed_out"), 0);
    assert_eq!(opens(&mut bench, SECOND, a, None), silent);
    assert_eq!(reported(&bench, silent, "timed_out"), 1);
    let other = opens(&mut bench, SECOND, b, None);
    assert_eq!(other, server(2, service), "the second takes it out, and the SYN goes on");
    assert_eq!(opens(&mut bench, 3 * SECOND, a, Some(SYN_ACK)), other);
    // What the first says now is too late.
    let late = at(&mut bench, SERVERS, 3 * SECOND, &tcp(silent, client(a, service), SYN_ACK));
    assert_eq!(late.verdict, Err(DropReason::NoMapping));
    // And back again, when the other one drains.
    assert_eq!(server_of(&mut bench, 4 * SECOND, &tcp(client(a, service), service, ACK)), other);
}

#[test]
fn what_is_established_stays_when_its_server_is_out() {
    let mut config = config(2);
    config["failures"] = json!(1);
    let mut bench = bench(config);
    let service = end(SERVICE);
    let bad = server(1, service);
    let open: Vec<_> = (0..50).filter(|n| opens(&mut bench, 0, *n, Some(SYN_ACK)) == bad).collect();
    let refused = (50..100).find(|n| opens(&mut bench, 1, *n, Some(RST_ACK)) == bad);
    assert!(refused.is_some() && open.len() > 5);
    for n in open {
        assert_eq!(server_of(&mut bench, 2, &tcp(client(n, service), service, ACK)), bad);
    }
    // A reset of an open connection is no failure of the server, nor is one to a stray segment.
    let stray = client(1000, service);
    let server = server_of(&mut bench, 3, &tcp(stray, service, ACK));
    at(&mut bench, SERVERS, 4, &tcp(server, stray, RST_ACK));
    assert_eq!(reported(&bench, server, "refused"), u64::from(server == bad));
}

#[test]
fn without_failures_only_the_configuration_takes_a_server_out() {
    let mut config = config(1);
    config["failures"] = json!(0);
    let mut bench = bench(config);
    for n in 0..50 {
        opens(&mut bench, 0, n, Some(RST_ACK));
    }
    assert_eq!(reported(&bench, server(1, end(SERVICE)), "refused"), 50);
}

#[test]
fn when_no_server_takes_connections_packets_leave_as_they_came() {
    let mut config = config(2);
    for n in 0..2 {
        config["services"][0]["backends"][n]["state"] = json!("down");
    }
    let mut bench = bench(config);
    let packet = tcp(client(1, end(SERVICE)), end(SERVICE), SYN);
    let seen = at(&mut bench, CLIENTS, 0, &packet);
    assert_eq!((seen.verdict, seen.bytes), (Ok("unavailable"), packet));
    assert_eq!(bench.report()["unavailable"], 1);
    assert_eq!(bench.flows().0, 0, "it takes no place");
    // The other service is another matter.
    let packet = tcp(client(1, end(SERVICE6)), end(SERVICE6), SYN);
    assert_eq!(at(&mut bench, CLIENTS, 0, &packet).verdict, Ok("servers"));
}

#[test]
fn a_client_port_that_talks_to_a_server_by_one_service_goes_to_another_by_the_other() {
    let mut second = service("198.51.100.81:80", "tcp", 2);
    let mut bench = bench(json!({"services": [service(SERVICE, "tcp", 2), second.clone()]}));
    let other = end("198.51.100.81:80");
    for n in 0..50 {
        let client = client(n, other);
        let one = server_of(&mut bench, 0, &tcp(client, end(SERVICE), SYN));
        let two = server_of(&mut bench, 0, &tcp(client, other, SYN));
        assert_ne!(one, two);
        assert_eq!(
            ends(&at(&mut bench, SERVERS, 1, &tcp(one, client, SYN_ACK)), "clients").0,
            end(SERVICE)
        );
        assert_eq!(
            ends(&at(&mut bench, SERVERS, 1, &tcp(two, client, SYN_ACK)), "clients").0,
            other
        );
    }
    // With one server there is none left.
    second["backends"].as_array_mut().unwrap().pop();
    let mut bench = self::bench(json!({"services": [service(SERVICE, "tcp", 1), second]}));
    let client = client(1, other);
    server_of(&mut bench, 0, &tcp(client, end(SERVICE), SYN));
    let seen = at(&mut bench, CLIENTS, 0, &tcp(client, other, SYN));
    assert_eq!(seen.verdict, Err(DropReason::NoPort));
}

#[test]
fn a_port_that_is_used_again_is_a_new_connection() {
    let mut bench = bench(config(2));
    let service = end(SERVICE);
    let server = opens(&mut bench, 0, 7, Some(SYN_ACK));
    for (input, from, to) in
        [(CLIENTS, client(7, service), service), (SERVERS, server, client(7, service))]
    {
        at(&mut bench, input, 1, &tcp(from, to, FIN_ACK));
    }
    let mut config = config(2);
    let place = usize::from(server == self::server(2, service));
    config["services"][0]["backends"][place]["state"] = json!("drain");
    bench.instance().reconfigure(&config, &Env::default()).unwrap();
    // What is left of the old one goes where it was; a SYN does not.
    assert_eq!(server_of(&mut bench, 2, &tcp(client(7, service), service, ACK)), server);
    assert_ne!(opens(&mut bench, 3, 7, Some(SYN_ACK)), server);
}

#[test]
fn fragments_follow_their_first_both_ways() {
    for at_ in [SERVICE, SERVICE6] {
        let service = json!({"services": [service(at_, "udp", 2)]});
        let (mut bench, service) = (bench(service), end(at_));
        let client = client(1, service);
        let pieces = |from: SocketAddr, to: SocketAddr| {
            frame(from, to).id(77).udp(from.port(), to.port()).payload(&[7; 100]).fragments(48)
        };
        let there: Vec<_> =
            pieces(client, service).iter().map(|p| at(&mut bench, CLIENTS, 0, p)).collect();
        let to = parse(&there[0].bytes[..], Depth::L4).ips(&there[0].bytes[..]).unwrap().1;
        let server = SocketAddr::new(to, 8080);
        let bytes = |seen: Vec<Seen>| seen.into_iter().map(|s| s.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(there), pieces(client, server));
        let back = pieces(server, client);
        let back: Vec<_> = back.iter().map(|p| at(&mut bench, SERVERS, 1, p)).collect();
        assert!(back.iter().all(|s| s.verdict == Ok("clients")));
        assert_eq!(bytes(back), pieces(service, client));
        // Without a first one nobody knows what it is part of.
        let late = |from: SocketAddr, to: SocketAddr| {
            frame(from, to).id(78).udp(from.port(), to.port()).payload(&[7; 100]).fragments(48)
        };
        let seen = at(&mut bench, CLIENTS, 2, &late(client, service)[1]);
        assert_eq!(seen.verdict, Err(DropReason::Fragment));
        let seen = at(&mut bench, SERVERS, 2, &late(server, client)[1]);
        assert_eq!(seen.verdict, Err(DropReason::Fragment));
        // What has nothing to do with a service passes, whole or not.
        let stranger = self::client(9, service);
        for piece in late(stranger, client) {
            let seen = at(&mut bench, SERVERS, 3, &piece);
            assert_eq!((seen.verdict, seen.bytes), (Ok("clients"), piece));
        }
        let echo = frame(client, service).id(79);
        let echo =
            if service.is_ipv4() { echo.icmp(8, 0, [0; 4]) } else { echo.icmp(128, 0, [0; 4]) };
        for piece in echo.payload(&[1; 100]).fragments(48) {
            let seen = at(&mut bench, CLIENTS, 4, &piece);
            assert_eq!((seen.verdict, seen.bytes), (Ok("servers"), piece));
        }
    }
}

#[test]
fn icmp_errors_are_translated_with_what_they_quote_both_ways() {
    for at_ in [SERVICE, SERVICE6] {
        let (mut bench, service) = (bench(config(2)), end(at_));
        let client = client(1, service);
        let router = self::client(500, service);
        let asked = tcp(client, service, SYN);
        let sent = at(&mut bench, CLIENTS, 0, &asked);
        let (_, server) = ends(&sent, "servers");
        let good = |seen: &Seen| {
            let layers = parse(&seen.bytes[..], Depth::L4);
            assert_eq!(check_ip(&seen.bytes[..], &layers, seen.bytes.len()), Ok(()));
            assert_eq!(verify_l4(&seen.bytes[..], &layers), L4Checksum::Good);
        };
        // From a router behind the balancer, and from the server itself.
        let seen = at(&mut bench, SERVERS, 1, &error(router, client, false, &sent.bytes));
        assert_eq!(
            (seen.verdict, &seen.bytes),
            (Ok("clients"), &error(router, client, false, &asked))
        );
        good(&seen);
        let seen = at(&mut bench, SERVERS, 1, &error(server, client, false, &sent.bytes));
        assert_eq!(
            (seen.verdict, &seen.bytes),
            (Ok("clients"), &error(service, client, false, &asked))
        );
        good(&seen);
        // From the client's side, about an answer.
        let answer = tcp(server, client, SYN_ACK);
        let answered = at(&mut bench, SERVERS, 2, &answer);
        let seen = at(&mut bench, CLIENTS, 3, &error(client, service, false, &answered.bytes));
        assert_eq!(
            (seen.verdict, &seen.bytes),
            (Ok("servers"), &error(client, server, false, &answer))
        );
        good(&seen);
        assert_eq!(bench.report()["errors"], 3);
        // What quotes no connection of a service passes as it is.
        let other = error(router, client, true, &tcp(client, router, SYN));
        let seen = at(&mut bench, SERVERS, 4, &other);
        assert_eq!((seen.verdict, seen.bytes), (Ok("clients"), other));
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_out_and_datagrams_go_to_another() {
    let mut config = json!({"services": [service("198.51.100.53:53", "udp", 2)]});
    config["failures"] = json!(1);
    let (mut bench, service) = (bench(config), end("198.51.100.53:53"));
    let client = client(3, service);
    let sent = at(&mut bench, CLIENTS, 0, &udp(client, service));
    let (_, server) = ends(&sent, "servers");
    at(&mut bench, SERVERS, 1, &udp(server, client));
    assert_eq!(server_of(&mut bench, 2, &udp(client, service)), server);
    at(&mut bench, SERVERS, 3, &error(server, client, true, &sent.bytes));
    assert_eq!(reported(&bench, server, "unreachable"), 1);
    assert_ne!(server_of(&mut bench, 4, &udp(client, service)), server);
}

#[test]
fn flows_and_health_survive_their_worker() {
    let mut old = bench(config(2));
    let service = end(SERVICE);
    let bad = server(1, service);
    let known: Vec<_> = (0..20).map(|n| opens(&mut old, 0, n, Some(SYN_ACK))).collect();
    let mut n = 20;
    while reported(&old, bad, "taken_out") == 0 {
        let server = opens(&mut old, 1, n, None);
        let flags = if server == bad { RST_ACK } else { SYN_ACK };
        at(&mut old, SERVERS, 1, &tcp(server, client(n, service), flags));
        n += 1;
    }
    let mut flows = Vec::new();
    old.instance().save_flows(&mut flows).unwrap();
    // Another list: the places are others.
    let mut config = config(3);
    config["services"][0]["backends"].as_array_mut().unwrap().rotate_left(1);
    let mut new = bench(config);
    new.restore(&old.save()).unwrap();
    new.instance().restore_flows(&flows).unwrap();
    for (n, server) in (0..).zip(known) {
        let (client, flags) = (client(n, service), ACK);
        assert_eq!(server_of(&mut new, 2, &tcp(client, service, flags)), server);
        let seen = at(&mut new, SERVERS, 2, &tcp(server, client, flags));
        assert_eq!(ends(&seen, "clients").0, service);
    }
    assert!((1000..1050).all(|n| opens(&mut new, 3, n, None) != bad));
}

#[test]
fn without_services_everything_passes() {
    let mut bench = bench(json!({}));
    let (a, b) = (client(1, end(SERVICE)), end(SERVICE));
    let arp = Frame::other(0x0806).payload(&[0; 28]).build();
    for (input, output) in [(CLIENTS, "servers"), (SERVERS, "clients")] {
        for packet in [tcp(a, b, SYN), udp(b, a), arp.clone()] {
            let seen = at(&mut bench, input, 0, &packet);
            assert_eq!((seen.verdict, seen.bytes), (Ok(output), packet));
        }
    }
    assert_eq!(bench.report()["passed"], 6);
}

#[test]
fn configurations_that_cannot_be_are_refused_by_place() {
    let with = |pointer: &str, value: Value| {
        let mut config = config(2);
        *config.pointer_mut(pointer).unwrap() = value;
        config
    };
    let backend = |extra: Value| {
        let mut backend = json!({"address": "10.0.0.1", "port": 8080});
        backend.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        backend
    };
    let first = "/services/0/backends/0";
    for (config, place) in [
        (with("/services/1", service(SERVICE, "tcp", 1)), "/services/1:"),
        (with("/services/0/backends", json!([])), "/services/0/backends:"),
        (with("/services/0/port", json!(0)), "/services/0/port:"),
        (with("/services/0/address", json!("224.0.0.1")), "/services/0/address:"),
        (with(first, backend(json!({"weight": 0}))), "/services/0/backends/0/weight:"),
        (with(first, backend(json!({"address": "fd00::1"}))), "/services/0/backends/0/address:"),
        (with(first, backend(json!({"address": "10.0.0.2"}))), "/services/0/backends/1:"),
        (with(first, json!({"address": "198.51.100.80"})), "/services/0/backends/0:"),
        (with(first, backend(json!({"state": "gone"}))), "/services/0/backends/0/state:"),
        (json!({"cool_down": 0}), "/cool_down:"),
    ] {
        let error = Bench::new::<L4LoadBalancer>(config).err().unwrap().to_string();
        assert!(error.starts_with(place), "{place} {error}");
    }
}
