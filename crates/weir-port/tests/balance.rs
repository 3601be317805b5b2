//! One NF's packets over several instances.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use weir_packet::flow::Side;
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowFields, FlowKey, parse};
use weir_port::balance::{BUCKETS, Balance, Rule};

const SEED: u128 = 7;

const FLOW: Rule = Rule::Flow { fields: FlowFields::FLOW };

fn over(rule: Rule, weights: &[u32]) -> Balance {
    Balance::new(rule, weights, SEED).unwrap()
}

fn goes(balance: &mut Balance, bytes: &[u8], now_ns: u64, waiting: &[usize]) -> u8 {
    balance.instance(bytes, &parse(bytes, Depth::L4), now_ns, waiting)
}

/// Packet of TCP connection `n`; `back`: from the server.
fn packet(n: u16, back: bool) -> Vec<u8> {
    let [high, low] = n.to_be_bytes();
    let (client, server) = ([10, 0, high, low], [192, 0, 2, 80]);
    if back {
        Frame::ipv4(server, client).tcp(80, 1024 + n, 0).build()
    } else {
        Frame::ipv4(client, server).tcp(1024 + n, 80, 0).build()
    }
}

/// Where connections 0 to n - 1 go.
fn all(balance: &mut Balance, n: u16, now_ns: u64) -> Vec<u8> {
    (0..n).map(|i| goes(balance, &packet(i, false), now_ns, &[])).collect()
}

#[test]
fn both_directions_of_a_connection_and_errors_about_it_meet_one_instance() {
    let mut balance = over(FLOW, &[1, 1, 1]);
    let mut used = BTreeSet::new();
    for n in 0..300 {
        let there = goes(&mut balance, &packet(n, false), 0, &[]);
        assert_eq!(goes(&mut balance, &packet(n, true), 0, &[]), there);
        used.insert(there);
    }
    assert_eq!(used.len(), 3);
}

#[test]
fn all_that_a_client_says_and_hears_meets_whatever_the_other_end_is() {
    let mut balance = over(Rule::Client, &[1; 5]);
    let placer = balance.placer();
    let mut hash = |bytes: &[u8], side| {
        let layers = parse(bytes, Depth::L4);
        balance.end_hash(bytes, &layers, 0, side)
    };
    let mut hashes = BTreeSet::new();
    for n in 0..500_u16 {
        let [high, low] = n.to_be_bytes();
        let (client, v6) =
            ([10, 0, high, low], std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n));
        // One end is below some of the others, and above others.
        for other in [[1, 0, 0, 1], [192, 0, 2, 80]] {
            let asks = Frame::ipv4(client, other).vlan(3).tcp(4000 + n, 80, 2);
            let asked = hash(&asks.clone().build(), Side::Inside);
            hashes.insert(asked);
            let answer =
                Frame::ipv4([192, 0, 2, 81], client).vlan(3).tcp(8080, 4000 + n, 18).build();
            assert_eq!(hash(&answer, Side::Outside), asked);
            // An error about what it sent, from whoever is on the way; and one of its own, about what it heard.
            let quoted = asks.build();
            let error = Frame::ipv4([198, 51, 100, 1], client).vlan(3).icmp(11, 0, [0; 4]);
            let error = error.payload(&quoted[18..]).build();
            assert_eq!(hash(&error, Side::Outside), asked);
            let own = Frame::ipv4(client, [192, 0, 2, 81]).vlan(3).icmp(3, 3, [0; 4]);
            assert_eq!(hash(&own.payload(&answer[18..]).build(), Side::Inside), asked);
            // What is remembered of it says so, too: by its key, and which way the client's packets go by that.
            let (key, direction) =
                FlowKey::from_packet(&quoted[..], &parse(&quoted[..], Depth::L4)).unwrap();
            assert_eq!(placer.hash(&key, direction), asked);
            assert_ne!(placer.hash(&key, direction.reverse()), asked);
        }
        let asked = hash(&Frame::ipv6(v6, v6).udp(53, 54).build(), Side::Inside);
        assert_eq!(hash(&Frame::ipv6(v6, v6).udp(55, 53).build(), Side::Outside), asked);
        hashes.insert(asked);
        // Another protocol, or other tags, are of another client.
        let other = Frame::ipv4(client, [192, 0, 2, 80]).vlan(3).udp(4000 + n, 80).build();
        hashes.insert(hash(&other, Side::Inside));
        hashes.insert(hash(&packet(n, false), Side::Inside));
    }
    assert_eq!(hashes.len(), 4 * 500);
    assert_eq!(placer.hash_of(&FlowKey::NOTHING), None, "nobody knows which end is the client");
}

#[test]
fn fragments_of_what_a_client_says_and_hears_follow_their_first() {
    let mut balance = over(Rule::Client, &[1; 5]);
    let mut all = |frames: Vec<Vec<u8>>, side| -> BTreeSet<u64> {
        let hash =
            |bytes: &Vec<u8>| balance.end_hash(&bytes[..], &parse(&bytes[..], Depth::L4), 0, side);
        frames.iter().map(hash).collect()
    };
    for n in 0..50 {
        let (client, server) = ([10, 0, 0, n], [192, 0, 2, 80]);
        let frames = |from, to, ports: (u16, u16)| {
            Frame::ipv4(from, to).id(7).udp(ports.0, ports.1).payload(&[1; 200]).fragments(48)
        };
        let asked = all(frames(client, server, (4000, 53)), Side::Inside);
        assert_eq!(asked.len(), 1);
        assert_eq!(all(frames(server, client, (53, 4000)), Side::Outside), asked);
    }
}

#[test]
fn fragments_follow_their_first() {
    let mut balance = over(FLOW, &[1; 16]);
    for n in 0..100_u16 {
        let [high, low] = n.to_be_bytes();
        let payload = [0; 100];
        let frame =
            Frame::ipv4([10, 0, high, low], [192, 0, 2, 53]).udp(1024 + n, 53).payload(&payload);
        let there = goes(&mut balance, &frame.build(), 0, &[]);
        let fragments = frame.fragments(48);
        assert!(fragments.len() > 1);
        for fragment in fragments {
            assert_eq!(goes(&mut balance, &fragment, 0, &[]), there);
        }
    }
}

/// A first fragment says its ports to whoever sends it only. Others that send to the same instances go by what every
/// fragment has.
#[test]
fn later_fragments_whose_first_another_sent_go_by_their_addresses_and_protocol() {
    let mut used = BTreeSet::new();
    for host in 0..100 {
        let payload = [0; 100];
        let later = |n: u16| {
            let frame = Frame::ipv4([10, 0, 0, host], [192, 0, 2, 53]).udp(1024 + n, 53);
            frame.payload(&payload).fragments(48).pop().unwrap()
        };
        // Whoever sends them, and of whichever flow between the two: they meet each other.
        let there = goes(&mut over(FLOW, &[1; 16]), &later(0), 0, &[]);
        for n in 1..10 {
            assert_eq!(goes(&mut over(FLOW, &[1; 16]), &later(n), 0, &[]), there);
        }
        used.insert(there);
    }
    assert!(used.len() > 8, "{used:?}");
}

#[test]
fn what_is_not_ip_goes_by_its_stations() {
    let mut balance = over(FLOW, &[1; 8]);
    let arp = |from: u8, to: u8| {
        let mut frame = vec![0; 60];
        frame[5] = to;
        frame[11] = from;
        frame[12..14].copy_from_slice(&[8, 6]);
        frame
    };
    let there: Vec<u8> = (0..40).map(|n| goes(&mut balance, &arp(n, 99), 0, &[])).collect();
    let back: Vec<u8> = (0..40).map(|n| goes(&mut balance, &arp(99, n), 0, &[])).collect();
    assert_eq!(there, back);
    assert!(there.iter().collect::<BTreeSet<_>>().len() > 1);
    // Too short for anything: still somewhere.
    goes(&mut balance, &[1, 2, 3], 0, &[]);
}

#[test]
fn from_n_instances_to_one_more_only_flows_of_moved_buckets_move() {
    let mut balance = over(FLOW, &[1; 3]);
    let before = all(&mut balance, 3_000, 0);
    assert!(balance.reweigh(&[1; 4]).unwrap().abs_diff(BUCKETS / 4) <= 1);
    let after = all(&mut balance, 3_000, 0);
    let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
    assert!(moved.iter().all(|(_, a)| **a == 3), "moved between old instances");
    assert!((600..900).contains(&moved.len()), "{} of 3000", moved.len());
}

#[test]
fn in_turn_each_instance_gets_its_weights_share_of_any_stretch() {
    let mut balance = over(Rule::RoundRobin, &[3, 1]);
    let bytes = packet(1, false);
    for stretch in 0..100 {
        let got = (0..64).filter(|_| goes(&mut balance, &bytes, 0, &[]) == 1).count();
        assert!((14..=18).contains(&got), "{got} of 64 in stretch {stretch}");
    }
}

#[test]
fn the_instance_with_the_least_waiting_for_its_weight_is_next() {
    let mut balance = over(Rule::LeastLoaded, &[1, 2, 0]);
    let bytes = packet(1, false);
    for (waiting, expected) in [([5, 5, 0], 1), ([5, 10, 0], 0), ([5, 11, 0], 0), ([6, 11, 0], 1)] {
        assert_eq!(goes(&mut balance, &bytes, 0, &waiting), expected, "{waiting:?}");
    }
    // Nobody knows what waits: the first.
    assert_eq!(goes(&mut balance, &bytes, 0, &[]), 0);
}

#[test]
fn equal_seeds_distribute_alike_and_others_differently() {
    let mut one = over(FLOW, &[1; 5]);
    let mut same = over(FLOW, &[1; 5]);
    let mut other = Balance::new(FLOW, &[1; 5], SEED + 1).unwrap();
    let there = all(&mut one, 100, 0);
    assert_eq!(there, all(&mut same, 100, 0));
    assert_ne!(there, all(&mut other, 100, 0));
}
