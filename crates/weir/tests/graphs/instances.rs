//! Several instances of an NF at run time: which packets each gets, when there are several, and what is refused.
//! That outputs, order and reports are those of one instance: `graphs/oracle.rs` and `commands/traces.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, seed, stamped, write_capture};
use crate::common_oracle::{Scratch, assert_sound, demo_rx, traffic, weir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use weir_oracle::Input;
use weir_packet::wire::Frame;
use weir_packet::{Depth, FlowFields, parse};
use weir_port::balance::{Balance, Rule};

const WEIGHTS: [u32; 3] = [1, 2, 1];

/// Packets of each instance of `nf`.
fn parts(report: &Value, nf: &str) -> Vec<u64> {
    let nodes = report["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == nf).unwrap();
    let packets = |one: &Value| one["packets"].as_u64().unwrap();
    node["instances"].as_array().map_or(Vec::new(), |all| all.iter().map(packets).collect())
}

/// Which instance the balance port's own code gives each packet that one sender sends.
fn instances(packets: &[Input]) -> Vec<u8> {
    let rule = Rule::Flow { fields: FlowFields::FLOW };
    let mut balance = Balance::new(rule, &WEIGHTS, 7).unwrap();
    let instance = |packet: &Input| {
        let layers = parse(packet.bytes.as_slice(), Depth::L4);
        balance.instance(packet.bytes.as_slice(), &layers, 0, &[])
    };
    packets.iter().map(instance).collect()
}

/// Ten packets of each of 300 flows, of either direction.
fn flows(choices: &mut Choices) -> Vec<Input> {
    let mut packets = traffic::packets(choices, 3000);
    for (i, packet) in packets.iter_mut().enumerate() {
        let (client, server) = (Ipv4Addr::from(0x0a00_0000 + i as u32 % 300), Ipv4Addr::LOCALHOST);
        packet.bytes = match choices.one_in(2) {
            true => Frame::ipv4(client, server).udp(4000, 53).build(),
            false => Frame::ipv4(server, client).udp(53, 4000).build(),
        };
        packet.wire_len = packet.bytes.len() as u32;
    }
    packets
}

#[test]
fn packets_of_a_flow_meet_at_one_instance_whoever_sends_them() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same packets");
    let packets = stamped(&flows(&mut Choices(seed)), 0);
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    write_capture(&file, &packets);
    let policy = scratch.write(
        "policy.weir",
        "Port<0> lan; Port<1> wan; LoadBalancer lb { backends: [0] }; pipelet { lan -> lb -> wan; }",
    );
    let mut want = vec![0; WEIGHTS.len()];
    instances(&packets).into_iter().for_each(|instance| want[usize::from(instance)] += 1);
    assert!(want.iter().all(|n| *n > 300), "{want:?}");
    let rx = format!("0=pcap:rx={}", file.display());
    for isolate in ["each", "none"] {
        // The checks before it take packets in turn, so any of them sends any flow's.
        let ended = weir(&[
            "run",
            &policy,
            "--bind",
            &rx,
            "--bind",
            "1=null",
            "--isolate",
            isolate,
            "--instances",
            "lb/spread=1:2:1",
            "--instances",
            "lb/check=2",
            "--seed",
            "7",
            "--json",
            "-q",
        ]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        assert_sound(isolate, &report);
        assert!(parts(&report, "lb/check").iter().all(|n| *n > 1400), "{report}");
        assert_eq!(parts(&report, "lb/spread"), want, "--isolate {isolate}");
    }
}

#[test]
fn packets_that_need_not_meet_take_turns_by_weights() {
    let scratch = Scratch::new();
    let policy = scratch
        .write("policy.weir", "Port<0> lan; Port<1> wan; MacSwap x; pipelet { lan -> x -> wan; }");
    let rx = demo_rx();
    let args = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--json", "-q"];
    for (asked, weights) in
        [("x=2", [1, 1].as_slice()), ("x=3:1", &[3, 1]), ("x=1:0:1", &[1, 0, 1])]
    {
        let ended = weir(&[args.as_slice(), &["--instances", asked]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let parts = parts(&ended.json(), "x");
        let (all, sum) = (parts.iter().sum::<u64>(), weights.iter().sum::<u64>());
        for (part, weight) in parts.iter().zip(weights) {
            let share = all * weight / sum;
            assert!(part.abs_diff(share) <= all / 50, "{asked}: {parts:?}");
        }
    }
}

/// By instance of `nf`: packets by subnet, of those that it has any of.
fn subnets(report: &Value, nf: &str) -> Vec<BTreeMap<String, u64>> {
    let nodes = report["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == nf).unwrap();
    let counted = |one: &Value| {
        let subnets = one["report"]["subnets"].as_array().unwrap().iter();
        let count = |row: &Value| {
            (row[0].as_str().unwrap().to_owned(), row[1]["packets"].as_u64().unwrap())
        };
        let counts = subnets.map(count);
        counts.filter(|(_, packets)| *packets > 0).collect()
    };
    node["instances"].as_array().unwrap().iter().map(counted).collect()
}

#[test]
fn packets_that_agree_in_the_fields_that_were_named_meet_at_one_instance() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same packets");
    // Thirty hosts to seven, by thousands of ports, and back.
    let mut packets = traffic::packets(&mut Choices(seed), 3000);
    for (i, packet) in packets.iter_mut().enumerate() {
        let host = |net: u32, n: usize| Ipv4Addr::from(net + n as u32);
        let (client, server) = (host(0x0a00_0000, i / 2 % 30), host(0x0a01_0000, i / 2 % 7));
        let frame = match i % 2 {
            0 => Frame::ipv4(client, server).udp(4000 + i as u16, 53),
            _ => Frame::ipv4(server, client).udp(53, 4000 + i as u16),
        };
        packet.bytes = frame.build();
        packet.wire_len = packet.bytes.len() as u32;
    }
    let packets = stamped(&packets, 0);
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    write_capture(&file, &packets);
    let hosts = (0..30).map(|n| format!("'10.0.0.{n}/32'"));
    let hosts: Vec<_> = hosts.chain((0..7).map(|n| format!("'10.1.0.{n}/32'"))).collect();
    let rx = format!("0=pcap:rx={}", file.display());
    for (by, address, meets) in [
        ("by=src_ip", "src", true),
        ("by=dst_ip", "dst", true),
        // Of other fields an address has not all.
        ("by=src_port+dst_port", "src", false),
        ("by=src_ip+dst_ip,symmetric", "src", false),
        ("rr", "dst", false),
    ] {
        let policy = scratch.write(
            "policy.weir",
            format!(
                "Port<0> lan; Port<1> wan; CountSubnet c {{ by: '{address}', prefixes: [{}] }};
                 pipelet {{ lan -> c -> wan; }}",
                hosts.join(", ")
            ),
        );
        let asked = format!("c=1:2:1,{by}");
        let rest = ["--instances", &asked, "--json", "-q"];
        let args = ["run", &policy, "--bind", &rx, "--bind", "1=null"];
        let ended = weir(&[&args[..], &rest].concat());
        assert_eq!(ended.code, Some(0), "{by}: {ended:?}");
        let report = ended.json();
        assert_sound(by, &report);
        assert!(parts(&report, "c").iter().all(|n| *n > 100), "{by}: {report}");
        let mut at: BTreeMap<String, u64> = BTreeMap::new();
        let each = subnets(&report, "c");
        each.iter()
            .flat_map(BTreeMap::keys)
            .for_each(|host| *at.entry(host.clone()).or_default() += 1);
        assert_eq!(at.len(), 37, "{by}: {each:?}");
        assert_eq!(at.values().all(|n| *n == 1), meets, "{by}: {each:?}");
    }
}

/// What two hosts send to each other, whichever of them and by whichever ports, is at one instance: of each pair it has both ways,
/// so as many packets to each host as from it.
#[test]
fn with_symmetric_both_directions_meet() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same packets");
    let mut packets = traffic::packets(&mut Choices(seed), 3000);
    for (i, packet) in packets.iter_mut().enumerate() {
        let (a, b) = (Ipv4Addr::from(0x0a00_0000 + i as u32 / 2 % 30), Ipv4Addr::from(0x0a01_0000));
        let frame = match i % 2 {
            0 => Frame::ipv4(a, b).udp(4000 + i as u16, 53),
            _ => Frame::ipv4(b, a).udp(99, 4000 + i as u16),
        };
        packet.bytes = frame.build();
        packet.wire_len = packet.bytes.len() as u32;
    }
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    write_capture(&file, &stamped(&packets, 0));
    let hosts: Vec<_> = (0..30).map(|n| format!("'10.0.0.{n}/32'")).collect();
    let hosts = hosts.join(", ");
    let policy = scratch.write(
        "policy.weir",
        format!(
            "Port<0> lan; Port<1> wan; CountSubnet from {{ prefixes: [{hosts}] }};
             CountSubnet to {{ by: 'dst', prefixes: [{hosts}] }};  pipelet {{ lan -> from -> to -> wan; }}"
        ),
    );
    let rx = format!("0=pcap:rx={}", file.display());
    for (symmetric, meets) in [(",symmetric", true), ("", false)] {
        // In one worker each: what the second has is what the first had.
        let asked = format!("from+to=3,by=src_ip+dst_ip{symmetric}");
        let rest = ["--instances", &asked, "--json", "-q"];
        let args = ["run", &policy, "--bind", &rx, "--bind", "1=null"];
        let ended = weir(&[&args[..], &rest].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        assert_sound("symmetric", &report);
        let (from, to) = (subnets(&report, "from"), subnets(&report, "to"));
        assert!(from.iter().all(|hosts| !hosts.is_empty()), "{from:?}");
        assert_eq!(from == to, meets, "{from:?}\n{to:?}");
    }
}

#[test]
fn stated_traffic_makes_instances_where_there_are_cores() {
    let scratch = Scratch::new();
    let policy = scratch.write(
        "policy.weir",
        "Port<0> lan; Port<1> wan; Busy b; pipelet { lan -> (100 Mpps) b -> wan; }",
    );
    let rx = demo_rx();
    for (cores, count) in [(2, 0), (4, 3)] {
        let hardware = scratch.write(
            "hardware.yaml",
            format!("servers:\n  - {{ name: s, cores: {cores}, ghz: 1 }}\n"),
        );
        let ended = weir(&[
            "run",
            &policy,
            "--bind",
            &rx,
            "--bind",
            "1=null",
            "--hardware",
            &hardware,
            "--json",
            "-q",
        ]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(parts(&ended.json(), "b").len(), count);
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_cure() {
    let scratch = Scratch::new();
    let policy = scratch.write(
        "policy.weir",
        "Port<0> lan; Port<1> wan; MacSwap x; FlowMonitor m; IcmpError e; pipelet { lan [ip] -> x -> m -> wan; lan [!ip] -> [unreachable] e -> wan; }",
    );
    for (asked, said) in [
        (["x=0", "x=1"], "0 instances: 1 to 64 can be"),
        (["x=many", "x=1"], "`many` is not a number: write NF=NUMBER, such as fw=2"),
        (["x=0:0", "x=1"], "no instance has a weight above 0"),
        (["x=2,most", "x=1"], "only `least`, for the least loaded, `rr`"),
        (["x=2,by=mac", "x=1"], "`mac` is no field that packets are divided by"),
        (["x=2,by=src_ip,symmetric", "x=1"], "name both addresses or none"),
        (["m=2,least", "x=1"], "FlowMonitor needs its packets divided by flow"),
        (["m=2,rr", "x=1"], "in turn they would not"),
        (["m=2,by=src_ip", "x=1"], "by source address they would not"),
        (["x", "x=1"], "write NF=NUMBER"),
        (["x=2", "x=2"], "x is given a number of instances twice"),
        (["y=2", "x=2"], "the policy has no NF y; it has x, m, e"),
        (["e=2", "x=2"], "the description of IcmpError allows one instance"),
    ] {
        let ended = weir(&["check", &policy, "--instances", asked[0], "--instances", asked[1]]);
        assert_eq!(ended.code, Some(2), "{asked:?}: {ended:?}");
        assert!(ended.stderr.contains(said), "{asked:?}: {}", ended.stderr);
    }
}
