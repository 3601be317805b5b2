//! IcmpError.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{HOP_BY_HOP_AND_DEST_OPTS, v4, v6};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{Depth, DropReason, check_ip};
use weir_nfs::icmp_error::IcmpError;
use weir_packet::checksum::{L4Checksum, verify_l4};
use weir_packet::{FlowKey, parse};

const EXPIRED: u8 = 0;
const TOO_BIG: u8 = 1;
const UNREACHABLE: u8 = 2;

fn bench(more: Value) -> Bench {
    let mut config = json!({"v4": "198.51.100.1", "v6": "fd00::1"});
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    Bench::new::<IcmpError>(config).unwrap()
}

/// The error that answers a frame, if any.
fn answer(more: Value, input: u8, frame: &[u8]) -> Option<Vec<u8>> {
    let mut bench = bench(more);
    let seen = bench.run_by(input, &[(frame, frame.len(), 5)]);
    let reasons = [DropReason::Expired, DropReason::TooBig, DropReason::Unreachable];
    assert_eq!(seen[0].verdict, Err(reasons[usize::from(input)]));
    assert_eq!(seen[0].bytes, frame);
    let mut made = bench.made();
    assert!(made.len() <= 1 && made.iter().all(|m| m.output() == "out"));
    made.pop().map(|m| m.bytes)
}

/// Fails unless `error` is a right ICMP error of this type, code and word that quotes `frame`.
fn assert_error(error: &[u8], frame: &[u8], message: (u8, u8, u32), ttl: u8, longest: usize) {
    let (layers, original) = (parse(error, Depth::L4), parse(frame, Depth::L4));
    assert_eq!(check_ip(error, &layers, error.len()), Ok(()));
    assert_eq!(verify_l4(error, &layers), L4Checksum::Good);
    assert_eq!(layers.icmp_type_code(error), Some((message.0, message.1)));
    let l4 = usize::from(layers.l4);
    assert_eq!(error[l4 + 4..l4 + 8], message.2.to_be_bytes());
    assert_eq!(layers.ttl(error), Some(ttl));
    // Back to where it came from, in the same VLANs.
    assert_eq!((&error[..6], &error[6..12]), (&frame[6..12], &frame[..6]));
    let l3 = usize::from(layers.l3);
    assert_eq!(error[12..l3], frame[12..l3]);
    let (source, destination) = original.ips(frame).unwrap();
    let own: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::new(198, 51, 100, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
    };
    assert_eq!(layers.ips(error), Some((own, source)));
    // As much of the packet as fits, not its padding.
    let datagram = &frame[l3..usize::from(original.end)];
    let quote = &error[l4 + 8..];
    assert_eq!(quote.len(), datagram.len().min(longest - (l4 - l3) - 8));
    assert_eq!(quote, &datagram[..quote.len()]);
    // Its sender finds the connection again.
    let flow = |b: &[u8]| FlowKey::from_packet(b, &parse(b, Depth::L4)).unwrap();
    assert_eq!(flow(error).0, flow(frame).0);
    assert_eq!(flow(error).1, flow(frame).1.reverse());
}

#[test]
fn each_fault_has_its_type_and_code_and_quotes_what_fits() {
    let messages = [
        (EXPIRED, json!({}), (11, 0, 0), (3, 0, 0)),
        (TOO_BIG, json!({"mtu": 1400}), (3, 4, 1400), (2, 0, 1400)),
        (UNREACHABLE, json!({}), (3, 1, 0), (1, 3, 0)),
        (UNREACHABLE, json!({"unreachable": "no_route"}), (3, 0, 0), (1, 0, 0)),
        (UNREACHABLE, json!({"unreachable": "port"}), (3, 3, 0), (1, 4, 0)),
        (UNREACHABLE, json!({"unreachable": "prohibited"}), (3, 13, 0), (1, 1, 0)),
    ];
    for (input, config, four, six) in messages {
        for len in [0, 1, 100, 519, 520, 521, 1191, 1192, 1193, 3000] {
            let payload = vec![7; len];
            for frame in [
                v4().udp(5, 6).payload(&payload).pad_to(60),
                v4().tcp(5, 6, 2).options(&[1; 8]).vlan(7).payload(&payload),
            ] {
                let frame = frame.build();
                let error = answer(config.clone(), input, &frame).unwrap();
                assert_error(&error, &frame, four, 64, 576);
            }
            for frame in [
                v6().udp(5, 6).payload(&payload),
                v6().tcp(5, 6, 2).extensions(HOP_BY_HOP_AND_DEST_OPTS).payload(&payload),
                v6().udp(5, 6).tag(0x88a8, 3).vlan(7).payload(&payload),
            ] {
                let frame = frame.build();
                let error = answer(config.clone(), input, &frame).unwrap();
                assert_error(&error, &frame, six, 255, 1280);
            }
        }
    }
}

#[test]
fn queries_are_answered_errors_are_not() {
    for (kind, answered) in
        [(8, true), (0, true), (3, false), (4, false), (5, false), (11, false), (12, false)]
    {
        let frame = v4().icmp(kind, 0, [0; 4]).payload(&[0; 40]).build();
        assert_eq!(answer(json!({}), EXPIRED, &frame).is_some(), answered, "ICMP {kind}");
    }
    for (kind, answered) in
        [(128, true), (135, true), (1, false), (2, false), (100, false), (137, false)]
    {
        let frame = v6().icmp(kind, 0, [0; 4]).payload(&[0; 60]).build();
        assert_eq!(answer(json!({}), EXPIRED, &frame).is_some(), answered, "ICMPv6 {kind}");
    }
}

#[test]
fn later_fragments_are_not_answered_the_first_is() {
    for frame in [v4(), v6()] {
        let payload = [0; 200];
        let pieces = frame.udp(1, 2).payload(&payload).fragments(80);
        let answers = pieces.iter().map(|p| answer(json!({}), EXPIRED, p).is_some());
        assert_eq!(answers.collect::<Vec<_>>(), [true, false, false]);
    }
}

#[test]
fn groups_and_those_who_cannot_be_hosts_are_not_answered() {
    let host = [192, 0, 2, 10];
    for (source, destination) in [
        (host, [224, 0, 0, 1]),
        (host, [255, 255, 255, 255]),
        ([0, 0, 0, 0], host),
        ([0, 1, 2, 3], host),
        ([127, 0, 0, 1], host),
        ([224, 0, 0, 1], host),
        ([240, 0, 0, 1], host),
        ([255, 255, 255, 255], host),
    ] {
        let frame = Frame::ipv4(source, destination).udp(1, 2).build();
        assert_eq!(answer(json!({}), EXPIRED, &frame), None, "{source:?} {destination:?}");
    }
    let (host, group) =
        ("fd00::10".parse::<Ipv6Addr>().unwrap(), "ff02::1".parse::<Ipv6Addr>().unwrap());
    for (source, destination) in [(host, group), (Ipv6Addr::UNSPECIFIED, host), (group, host)] {
        let frame = Frame::ipv6(source, destination).udp(1, 2).build();
        assert_eq!(answer(json!({}), EXPIRED, &frame), None, "{source} {destination}");
    }
    // To a group of the link layer, and from one.
    let group_mac = [0x33, 0x33, 0, 0, 0, 1];
    for (from, to) in [([2; 6], group_mac), (group_mac, [2; 6])] {
        let frame = v4().udp(1, 2).macs(from, to).build();
        assert_eq!(answer(json!({}), EXPIRED, &frame), None);
    }
    // Path-MTU discovery for groups: RFC 4443 section 2.4 (e.3).
    let payload = [0; 1400];
    let to_group = Frame::ipv6(host, group).macs([2; 6], group_mac).udp(1, 2).payload(&payload);
    let error = answer(json!({}), TOO_BIG, &to_group.build()).unwrap();
    assert_eq!((&error[..6], error[6] & 1), (&[2; 6][..], 0));
    assert_eq!(answer(json!({}), UNREACHABLE, &to_group.build()), None);
}

#[test]
fn a_family_without_an_address_and_what_is_not_ip_are_dropped_without_an_answer() {
    let frame = v4().udp(1, 2).build();
    let arp = Frame::other(0x0806).payload(&[0; 28]).build();
    let mut bench = Bench::new::<IcmpError>(json!({"v6": "fd00::1"})).unwrap();
    bench.run(&[frame, arp, v6().udp(1, 2).build()]);
    assert_eq!(bench.made().len(), 1);
    assert_eq!((&bench.report()["no_source"], &bench.report()["sent"]), (&json!(2), &json!(1)));
}

#[test]
fn a_token_bucket_limits_errors() {
    let mut bench = bench(json!({"rate": 10, "burst": 3}));
    let frame = v4().udp(1, 2).build();
    let mut at = |ns: u64, packets: usize| {
        bench.run_by(EXPIRED, &vec![(&frame[..], frame.len(), ns); packets]);
        bench.made().len()
    };
    let second = 1_000_000_000;
    assert_eq!(at(second, 20), 3, "the burst");
    assert_eq!(at(second + 99_999_999, 20), 0);
    assert_eq!(at(second + 100_000_000, 20), 1, "a token every 100 ms");
    assert_eq!(at(second + 350_000_000, 20), 2);
    assert_eq!(at(100 * second, 20), 3, "no more than the burst after a rest");
    assert_eq!(bench.report()["sent"], 9);
    assert_eq!(bench.report()["limited"], 91);
}

#[test]
fn a_rate_of_more_than_one_a_nanosecond_is_a_limit_all_the_same() {
    let mut bench = bench(json!({"rate": u32::MAX, "burst": 3}));
    let frame = v4().udp(1, 2).build();
    let mut at = |ns: u64| {
        bench.run_by(EXPIRED, &vec![(&frame[..], frame.len(), ns); 20]);
        bench.made().len()
    };
    assert_eq!(at(1_000_000_000), 3, "the burst");
    assert_eq!(at(1_000_000_001), 1, "a token every nanosecond, which is less than asked for");
}

#[test]
fn without_buffers_it_is_counted() {
    let mut bench = bench(json!({}));
    bench.set_buffers(0);
    let seen = bench.run(&[v4().udp(1, 2).build()]);
    assert_eq!(seen[0].verdict, Err(DropReason::Expired));
    assert_eq!(bench.report()["no_buffer"], 1);
}
