//! Edges to arrays of ports: a packet leaves by the port that its flow's other direction came in by,
//! else by a stated rule.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, places, seed, stamped, write_capture};
use crate::common_oracle::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_oracle::{Input, Outcome, Sent, read_capture};
use weir_packet::Direction;

/// Policies a run.
const POLICIES: u64 = 6;
/// Ports of the array `int`, from 0 on; behind them are two of `ext` and `off`.
const INT: u16 = 4;
const EXT: [u16; 2] = [4, 5];
const OFF: u16 = 6;
/// Source addresses of Ethernet of packets from which only the way back is to be learned, and of the others, which have
/// one of each port: who is heard at several ports is heard last now at one, now at the other.
const TEACH: u8 = 0x71;
const ASK: u8 = 0x80;

/// NF types that leave alone what makes a flow, with their outputs.
const TYPES: [(&str, &[&str]); 7] = [
    ("MacSwap", &["out"]),
    ("CheckIpHeader", &["ip", "non_ip"]),
    ("HttpClassifier", &["http", "other"]),
    ("Null", &["out"]),
    ("TtlDecrement", &["out", "expired", "too_big", "other"]),
    ("CountSubnet", &["out"]),
    ("Tee", &["out", "copy"]),
];

/// Packets from the array that teach leave by `off`; others go through NFs, each of whose ways out leads
/// to a later one or to an array.
fn policy(choices: &mut Choices, nfs: usize) -> String {
    let mut text = String::from("Port<0-3> int; Port<4-5> ext; Port<6> off;\n");
    let mut tees = 0;
    let kinds: Vec<_> = (0..nfs)
        .map(|i| {
            let mut kind = choices.of(&TYPES);
            tees += usize::from(kind.0 == "Tee");
            if tees > 2 {
                kind = TYPES[0];
            }
            let config = match kind.0 {
                "CountSubnet" => "{ prefixes: [\"192.0.2.0/24\"], by: \"src\" }",
                _ => "",
            };
            writeln!(text, "{} n{i} {config};", kind.0).unwrap();
            kind.1
        })
        .collect();
    let to = if nfs == 0 { "int" } else { "n0" };
    writeln!(
        text,
        "pipelet {{\n  int [ether src 02:00:00:00:00:71] -> off;\n  \
         int [!(ether src 02:00:00:00:00:71)] -> {to};\n  \
         ext [tcp && udp] -> ext;\n  ext -> {to};"
    )
    .unwrap();
    for (i, outputs) in kinds.iter().enumerate() {
        for out in *outputs {
            let mut target = || match choices.below(4) {
                0 => "ext".to_owned(),
                1 | 2 if i + 1 < nfs => format!("n{}", i + 1 + choices.below(nfs - i - 1)),
                _ => "int".to_owned(),
            };
            let (one, other) = (target(), target());
            let own = (outputs.len() > 1).then(|| format!("n{i}.{out}"));
            for (filter, to) in [("tcp", one), ("!tcp", other)] {
                let own = own.as_ref().map_or_else(String::new, |own| format!("{own} && "));
                writeln!(text, "  n{i} [{own}{filter}] -> {to};").unwrap();
            }
        }
    }
    text += "}\nfirst match;\ndefault drop;\n";
    text
}

/// The recorded packets by the two hosts that they go between: so a later fragment is with its first. What
/// is of no flow is one.
fn flows(all: &[Input]) -> Vec<Vec<(Input, Option<Direction>)>> {
    let mut flows: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for packet in all {
        let bytes = packet.bytes.as_slice();
        let layers = weir_packet::parse(bytes, weir_packet::Depth::L4);
        let flow = weir_packet::FlowKey::from_packet(bytes, &layers);
        let name = flow.map_or_else(String::new, |(key, _)| {
            format!("{} {} {}", key.zone(), key.lower().0, key.upper().0)
        });
        flows.entry(name).or_default().push((packet.clone(), flow.map(|(_, d)| d)));
    }
    flows.into_values().collect()
}

/// A packet from this Ethernet address.
fn from(packet: &Input, address: u8) -> Input {
    let mut packet = packet.clone();
    packet.bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, address]);
    packet
}

/// What each source receives: first what teaches where flows come in, then what asks for it. A flow
/// comes in by one port only, and no packet that asks comes before one that it would have to know of: what
/// different services do at the same moment has no order.
fn inputs(choices: &mut Choices, all: &[Input]) -> BTreeMap<u16, Vec<Input>> {
    let ports: Vec<u16> = (0..INT).chain(EXT).collect();
    let mut teach: BTreeMap<u16, Vec<Input>> = BTreeMap::new();
    let mut ask: BTreeMap<u16, Vec<Input>> = BTreeMap::new();
    for flow in flows(all) {
        let port = choices.of(&ports);
        let asks = ASK + port as u8;
        let of = |direction: Option<Direction>, address: u8| {
            let packets = flow.iter().filter(move |(_, d)| direction.is_none() || *d == direction);
            packets.map(|(packet, _)| from(packet, address)).collect::<Vec<_>>()
        };
        let (t, a) = (teach.entry(port).or_default(), ask.entry(port).or_default());
        // What comes in by `ext` is not taught, so only one direction of it may come at all.
        let one = if choices.one_in(2) { Direction::Up } else { Direction::Down };
        match choices.below(3) {
            _ if EXT.contains(&port) => a.extend(of(Some(one), asks)),
            // The way of both is known; of one, as the other never comes; of none.
            0 => {
                t.extend(of(None, TEACH));
                a.extend(of(None, asks));
            }
            1 => {
                t.extend(of(Some(one), TEACH));
                a.extend(of(Some(one.reverse()), asks));
            }
            _ => a.extend(of(Some(one), asks)),
        }
    }
    let stream = |port: &u16| {
        let parts = [teach.remove(port), ask.remove(port)];
        let packets: Vec<Input> = parts.into_iter().flatten().flatten().collect();
        (*port, stamped(&packets, *port))
    };
    ports.iter().map(stream).collect()
}

/// Runs a policy on what its ports receive, in several ways, and compares with what it has to do.
fn run(what: &str, policy: &str, inputs: &BTreeMap<u16, Vec<Input>>, ways: &[&[&str]]) -> Outcome {
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", policy);
    let all: Vec<Input> = inputs.values().flatten().cloned().collect();
    let ports: Vec<u16> = (0..=OFF).collect();
    let expected = oracle(policy, &ports, &all);
    for (port, packets) in inputs {
        write_capture(&scratch.file(&format!("in{port}.pcap")), packets);
    }
    let bind = |port: u16| {
        let mut parts = Vec::new();
        if inputs.contains_key(&port) {
            parts.push(format!("rx={}", scratch.file(&format!("in{port}.pcap")).display()));
        }
        if expected.sent.contains_key(&port) {
            parts.push(format!("tx={}", scratch.file(&format!("out{port}.pcap")).display()));
        }
        format!("{port}=pcap:{}", parts.join(","))
    };
    let binds: Vec<String> = ports.iter().map(|port| bind(*port)).collect();
    for way in ways {
        let what = format!("{what} {way:?}\n{policy}");
        let mut args = vec!["run", &file, "--spin", "20", "--no-real-time", "--json", "-q"];
        binds.iter().for_each(|bind| args.extend(["--bind", bind]));
        args.extend(*way);
        let ended = weir(&args);
        assert_eq!(ended.code, Some(0), "{what}{ended:?}");
        let report = ended.json();
        if !way.contains(&"--domain") {
            assert_report(&what, &report, &expected, false);
        }
        assert_sound(&what, &report);
        for (port, sent) in &expected.sent {
            let got = records(&scratch.file(&format!("out{port}.pcap")));
            let sent: Vec<_> = sent.iter().map(|s: &Sent| written(s)).collect();
            assert_same_records(&format!("port {port}: {what}"), &got, &sent);
            for &source in inputs.keys() {
                let (got, sent) = (places(&got, source), places(&sent, source));
                assert!(got == sent, "order of source {source} at port {port}: {what}");
            }
        }
    }
    expected
}

#[test]
fn random_policies_with_arrays_do_isolated_fused_and_behind_gates_what_the_rule_says() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same {POLICIES} policies");
    let (all, _) = read_capture(&demo_capture(), 0).unwrap();
    for i in 0..POLICIES {
        let seed = seed.wrapping_add(i);
        let choices = &mut Choices(seed);
        let nfs = choices.below(5);
        let policy = policy(choices, nfs);
        let inputs = inputs(choices, &all);
        let guest = format!("n{}=guest", nfs.saturating_sub(1));
        let apart = ["--isolate", "each", "--domain", guest.as_str()];
        let mut ways: Vec<&[&str]> =
            vec![&["--isolate", "each"], &["--isolate", "none", "--ring", "64"]];
        if nfs > 0 {
            ways.push(&apart);
        }
        run(&format!("seed {seed}"), &policy, &inputs, &ways);
    }
}

#[test]
fn answers_go_back_by_the_port_that_questions_came_in_by_and_others_are_spread() {
    let (all, _) = read_capture(&demo_capture(), 0).unwrap();
    let policy = "Port<0-3> int; Port<4-5> ext; Port<6> off; Null x; first match;
        pipelet { int [ether src 02:00:00:00:00:71] -> off;  int -> x;  x [tcp] -> int;
          x [!tcp] -> ext;  ext -> Drop; }";
    // By port 2 come both directions of all flows, taught before they are asked for.
    let both = all.iter().map(|p| from(p, TEACH)).chain(all.iter().map(|p| from(p, ASK)));
    let inputs = BTreeMap::from([(2, stamped(&both.collect::<Vec<_>>(), 2))]);
    let ways: [&[&str]; 2] = [&["--isolate", "each"], &["--isolate", "none"]];
    let sent = |outcome: &Outcome, port: u16| outcome.sent[&port].len();
    let known = run("known", policy, &inputs, &ways);
    assert!(sent(&known, 2) > 0);
    assert_eq!([0, 1, 3].map(|port| sent(&known, port)), [0; 3], "all went back");
    // Nobody has sent anything by `ext`: flows are spread over both of its ports.
    assert!(EXT.iter().all(|port| sent(&known, *port) > 0));

    // Of only one direction nothing is known: the same flow all by one port, flows by all.
    let requests = all.iter().filter(|p| {
        let layers = weir_packet::parse(p.bytes.as_slice(), weir_packet::Depth::L4);
        let flow = weir_packet::FlowKey::from_packet(p.bytes.as_slice(), &layers);
        flow.is_none_or(|(_, direction)| direction == Direction::Up)
    });
    let asks: Vec<Input> = requests.map(|p| from(p, ASK)).collect();
    let unknown = run("unknown", policy, &BTreeMap::from([(2, stamped(&asks, 2))]), &ways);
    assert!((0..INT).all(|port| sent(&unknown, port) > 0), "spread");
}

/// An Ethernet frame between stations with these last bytes of their addresses.
fn frame(from: u8, to: [u8; 6], rest: &[u8]) -> Vec<u8> {
    [&to[..], &[2, 0, 0, 0, 0, from], rest].concat()
}

fn station(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

/// ARP: a request to all, or an answer (2) to one.
fn arp(from: u8, to: [u8; 6], operation: u8) -> Vec<u8> {
    let mut packet =
        vec![8, 6, 0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, from, 10, 0, 0, from];
    packet.resize(48, 0);
    frame(from, to, &packet)
}

/// ICMPv6 of this type: 135 solicits a neighbour, 136 is its answer, 128 is an echo request.
fn icmp6(from: u8, to: [u8; 6], kind: u8) -> Vec<u8> {
    let address = |last: u8| [&[0xfe, 0x80][..], &[0; 13], &[last]].concat();
    let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255];
    let message = [&[kind, 0, 0, 0][..], &[0; 20]].concat();
    let packet = [&header[..], &address(from), &address(to[5]), &message].concat();
    frame(from, to, &packet)
}

/// Behind the second VLAN tag.
fn tagged(packet: &[u8]) -> Vec<u8> {
    [&packet[..12], &[0x81, 0, 0, 2], &packet[12..]].concat()
}

#[test]
fn who_is_looked_for_is_asked_at_all_other_ports_and_answers_go_where_a_station_was_heard() {
    const ALL: [u8; 6] = [255; 6];
    const GROUP: [u8; 6] = [0x33, 0x33, 0xff, 0, 0, 1];
    let (all, _) = read_capture(&demo_capture(), 0).unwrap();
    let input = |bytes: Vec<u8>| Input { wire_len: bytes.len() as u32, bytes, ..all[0].clone() };
    let stream = |port: u16, packets: Vec<Vec<u8>>| {
        let packets: Vec<Input> = packets.into_iter().map(input).collect();
        (port, stamped(&packets, port))
    };
    // Behind each port stations look for others, answer one another, and say something to who is not there.
    let looking = |own: u8| {
        vec![
            arp(own, ALL, 1),
            icmp6(own, GROUP, 135),
            icmp6(own, GROUP, 133),
            tagged(&arp(own, ALL, 1)),
        ]
    };
    let to_own = |own: u8| {
        let echo = icmp6(own + 1, station(own), 128);
        vec![arp(own + 1, station(own), 2), icmp6(own + 1, station(own), 136), echo]
    };
    let to_nobody =
        |own: u8| vec![arp(own, station(99), 1), tagged(&arp(own, station(own + 1), 2))];
    let said = |own: u8| [looking(own), to_own(own), to_nobody(own)].concat();
    let echo = icmp6(10, station(50), 128);
    let inputs = BTreeMap::from([
        stream(1, [said(10), vec![echo.clone()]].concat()),
        stream(2, said(20)),
        stream(4, [looking(30), to_nobody(30)].concat()),
    ]);
    let policy = "Port<0-3> int; Port<4-5> ext; Port<6> off; Null x; Null y; first match;
        pipelet { int -> x; ext -> y -> x; x -> int; y [false] -> ext; int [false] -> off; }";
    let ways: [&[&str]; 4] = [
        &["--isolate", "each"],
        &["--isolate", "none"],
        &["--isolate", "each", "--domain", "x=guest"],
        &["--isolate", "each", "--pool", "64", "--ring", "64"],
    ];
    let expected = run("stations", policy, &inputs, &ways);
    // Six packets of each port look for somebody and are copied; three are for a station and go where that was heard. The
    // echo request for who was not heard goes where the hash of its flow says. By ports 0 and 3 nobody is heard.
    assert_eq!(expected.copied, 6 * 2 + 6 * 2 + 6 * 3);
    let sent = |port: u16| {
        let other = |sent: &&Sent| sent.bytes != echo;
        (expected.sent[&port].iter().filter(other).count(), expected.sent[&port].len())
    };
    assert_eq!([0, 1, 2, 3].map(|port| sent(port).0), [18, 6 + 6 + 3, 6 + 6 + 3, 18]);
    assert_eq!((0..INT).map(|port| sent(port).1 - sent(port).0).sum::<usize>(), 1);
}
