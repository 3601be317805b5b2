//! What policies mean, on packets small enough to see the outcome at a glance.
#![allow(clippy::unwrap_used)] // A test.

use std::collections::BTreeMap;
use weir_capture::{LinkType, RawTime, TimeFormat, Timestamp};
use weir_control::library::Library;
use weir_nf::wire::Frame;
use weir_nfs as _;
use weir_oracle::{Counts, Input, Oracle, OracleError, Outcome};

fn tcp(port: u16) -> Vec<u8> {
    Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).tcp(40_000, port, 0x18).payload(b"hello").build()
}

fn udp() -> Vec<u8> {
    Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).udp(5, 6).payload(b"hello").build()
}

fn arp() -> Vec<u8> {
    Frame::other(0x0806).payload(&[0; 28]).build()
}

fn input(port: u16, bytes: &[u8]) -> Input {
    Input {
        port,
        bytes: bytes.to_vec(),
        wire_len: bytes.len() as u32 + 7,
        time: Timestamp { raw: RawTime::from_fields(3, 2_000_000), format: TimeFormat::PcapMicros },
        link: LinkType::ETHERNET,
    }
}

fn try_run(policy: &str, packets: &[Input]) -> Result<Outcome, OracleError> {
    let graph = weir_plan::check(policy, &Library).unwrap().graph;
    Oracle::new(&graph, &[0, 1])?.run(packets)
}

fn run(policy: &str, packets: &[Vec<u8>]) -> Outcome {
    let packets: Vec<_> = packets.iter().map(|p| input(0, p)).collect();
    try_run(policy, &packets).unwrap()
}

fn counts(packets: u64, bytes: usize, drops: &[(&'static str, u64)]) -> Counts {
    Counts { packets, bytes: bytes as u64, drops: drops.iter().copied().collect() }
}

fn bytes(outcome: &Outcome, port: u16) -> Vec<Vec<u8>> {
    outcome.sent[&port].iter().map(|s| s.bytes.clone()).collect()
}

const PORTS: &str = "Port<0> lan; Port<1> wan; ";

#[test]
fn under_first_match_a_packet_takes_the_first_edge_whose_filter_matches() {
    let policy = format!(
        "{PORTS} MacSwap a; MacSwap b; first match; pipelet {{ lan [tcp port 80] -> a; lan [tcp] -> b; \
         lan -> wan; a -> wan; b -> wan; }}"
    );
    let packets = [tcp(80), tcp(22), udp(), tcp(80)];
    let outcome = run(&policy, &packets);
    let (tcp, udp) = (tcp(80).len(), udp().len());
    let edges: BTreeMap<_, _> = [
        ("lan -> a", counts(2, 2 * tcp, &[])),
        ("lan -> b", counts(1, tcp, &[])),
        ("lan -> wan", counts(1, udp, &[])),
        ("a -> wan", counts(2, 2 * tcp, &[])),
        ("b -> wan", counts(1, tcp, &[])),
    ]
    .map(|(name, counts)| (name.to_owned(), counts))
    .into();
    assert_eq!(outcome.edges, edges);
    assert_eq!(outcome.nodes["rx:lan"], counts(4, 3 * tcp + udp, &[]));
    assert_eq!(outcome.nodes["tx:wan"], counts(4, 3 * tcp + udp, &[]));
    assert_eq!(outcome.nodes["a"], counts(2, 2 * tcp, &[]));
    assert_eq!(outcome.dropped(), 0);
    let swapped = |p: &[u8]| [&p[6..12], &p[..6], &p[12..]].concat();
    let [a, b, c, d] = &packets;
    assert_eq!(bytes(&outcome, 1), [swapped(a), swapped(b), c.clone(), swapped(d)]);
}

#[test]
fn what_no_edge_takes_is_dropped_where_it_is_by_policy() {
    let policy = |text: &str| format!("{PORTS} pipelet {{ {text} }}");
    let packets = [tcp(80), udp(), arp()];
    let all = packets.iter().map(Vec::len).sum();
    for (text, drops) in [
        ("lan [tcp] -> wan; default drop;", &[("policy", 2)][..]),
        ("lan [tcp] -> wan; lan [udp] -> Drop; default drop;", &[("policy", 2)]),
        ("lan [tcp] -> wan; lan [!tcp] -> Drop;", &[("policy", 2)]),
        ("first match; lan [tcp] -> wan; lan -> Drop;", &[("policy", 2)]),
    ] {
        let outcome = run(&policy(text), &packets);
        assert_eq!(outcome.nodes["rx:lan"], counts(3, all, drops), "{text}");
        assert_eq!(bytes(&outcome, 1), [tcp(80)], "{text}");
    }
}

#[test]
fn an_nf_chooses_the_output_and_a_drop_of_its_own_is_counted_there() {
    let policy = format!(
        "{PORTS} CheckIpHeader c; L3L4Filter f {{ rules: [{{ action: \"drop\", proto: \"udp\" }}] }}; \
         pipelet {{ lan -> c; c [c.ip] -> f -> wan; c [c.non_ip] -> wan; }}"
    );
    let mut bad = tcp(80);
    bad[24] ^= 1; // The header checksum.
    let outcome = run(&policy, &[arp(), udp(), bad.clone(), tcp(80)]);
    assert_eq!(bytes(&outcome, 1), [arp(), tcp(80)]);
    assert_eq!(outcome.nodes["c"].drops, [("bad-checksum", 1)].into());
    assert_eq!(outcome.nodes["f"].drops, [("filtered", 1)].into());
    assert_eq!(outcome.edges["c -> wan"].packets, 1);
    assert_eq!(outcome.reports["f"]["rules"][0][1], 1);
}

#[test]
fn a_record_keeps_its_time_and_wire_length_and_knows_where_it_came_from() {
    let policy = "Port<0> lan; Port<1> wan; pipelet { lan -> wan; wan -> lan; }";
    let packets = [input(1, &tcp(1)), input(0, &tcp(2)), input(1, &tcp(3))];
    let outcome = try_run(policy, &packets).unwrap();
    let sent = |port: u16| -> Vec<_> {
        let sent = outcome.sent[&port].iter();
        sent.map(|s| (s.source, s.place, s.wire_len, s.time, s.bytes.clone())).collect()
    };
    let expected = |source, place, i: usize| {
        let p: &Input = &packets[i];
        (source, place, p.wire_len, p.time, p.bytes.clone())
    };
    assert_eq!(sent(0), [expected(1, 0, 0), expected(1, 1, 2)]);
    assert_eq!(sent(1), [expected(0, 0, 1)]);
}

#[test]
fn what_is_not_ethernet_or_too_long_is_refused_where_it_comes_in() {
    let policy = format!("{PORTS} pipelet {{ lan -> wan; }}");
    let raw = Input { link: LinkType::RAW, ..input(0, &tcp(1)) };
    let packets = [raw, input(0, &[0; 65_345]), input(0, &[0; 65_344])];
    let outcome = try_run(&policy, &packets).unwrap();
    assert_eq!(outcome.nodes["rx:lan"], counts(3, 65_344, &[("link-type", 1), ("oversize", 1)]));
    assert_eq!(outcome.sent[&1].len(), 1);
    assert_eq!(outcome.sent[&1][0].place, 2);
}

#[test]
fn a_packet_by_a_port_that_the_policy_does_not_have_is_an_error() {
    let policy = format!("{PORTS} pipelet {{ lan -> wan; }}");
    let error = try_run(&policy, &[input(9, &tcp(1))]).unwrap_err();
    assert_eq!(error.to_string(), "the policy has no port 9");
}
