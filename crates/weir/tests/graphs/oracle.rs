//! Random policies on recorded packets: what Weir does, isolated and fused, is what the oracle does.
//!
//! Packets carry their source and place as time stamp, so that each can be followed to where it left.
//! Copies and answers carry that of the packet they follow from.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, places, seed, stamped, write_capture};
use crate::common_oracle::*;
use std::fmt::Write;
use weir_oracle::{Input, Sent, read_capture};

/// Policies a run.
const POLICIES: u64 = 20;

const PRIMITIVES: [&str; 20] = [
    "ingress == 0",
    "ingress == 1",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "arp",
    "vlan",
    "tcp port 80",
    "dst port 8080",
    "src port 80",
    "portrange 1-8000",
    "src net 192.0.2.0/24",
    "dst host 192.0.2.2",
    "host fd00::2",
    "vlan and tcp port 80",
    "vlan 7",
    "net fd00::/16",
];

/// A filter of some of `PRIMITIVES`.
fn filter(choices: &mut Choices, primitives: &[&str], depth: usize) -> String {
    if depth == 0 || choices.one_in(2) {
        return choices.of(primitives).to_owned();
    }
    let mut inner = || filter(choices, primitives, depth - 1);
    let (a, b) = (inner(), inner());
    match choices.below(3) {
        0 => format!("!({a})"),
        1 => format!("({a}) && ({b})"),
        _ => format!("({a}) || ({b})"),
    }
}

fn rules(choices: &mut Choices) -> String {
    const MATCHES: [&str; 9] = [
        "proto: \"tcp\"",
        "proto: \"udp\"",
        "dst_port: 80",
        "src_port: \"1024-\"",
        "src: \"192.0.2.0/24\"",
        "dst: \"fd00::/64\"",
        "tcp_flags: \"syn,!ack\"",
        "ether_type: \"arp\"",
        "vlan: 7",
    ];
    let rules: Vec<_> = (0..choices.below(5))
        .map(|_| {
            let (action, what) = (choices.of(&["pass", "drop"]), choices.of(&MATCHES));
            format!("{{ action: \"{action}\", {what} }}")
        })
        .collect();
    let default = choices.of(&["pass", "pass", "drop"]);
    format!("{{ default: \"{default}\", rules: [{}] }}", rules.join(", "))
}

/// The NF types with their outputs; the last two end things.
const TYPES: [(&str, &[&str]); 18] = [
    ("MacSwap", &["out"]),
    ("CheckIpHeader", &["ip", "non_ip"]),
    ("HttpClassifier", &["http", "other"]),
    ("L3L4Filter", &["pass"]),
    ("CountUrl", &["out"]),
    ("ValidateUrl", &["out"]),
    ("Busy", &["out"]),
    ("Null", &["out"]),
    ("TtlDecrement", &["out", "expired", "too_big", "other"]),
    ("CountSubnet", &["out"]),
    ("PacketSizeHistogram", &["out"]),
    ("FlowMonitor", &["out"]),
    ("ConnTrack", &["pass"]),
    ("HttpParser", &["out"]),
    ("Policer", &["out"]),
    ("Tee", &["out", "copy"]),
    ("IcmpError", &["out"]),
    ("Drop", &["out"]),
];

/// Most NFs of a policy that make packets: one worker's pool must do for all copies of one packet.
const MAKERS: usize = 2;

/// Whether an NF of this type makes packets.
fn makes(kind: &str) -> bool {
    matches!(kind, "Tee" | "IcmpError")
}

/// Whether what an NF of this type does to a packet depends on those before it: then their order must not be open.
fn remembers(kind: &str) -> bool {
    matches!(kind, "ConnTrack" | "HttpParser" | "Policer")
}

fn icmp_error(choices: &mut Choices, one_order: bool) -> String {
    let (v4, v6) = (["", "v4: \"192.0.2.254\", "], ["", "v6: \"fd00::fe\", "]);
    let (v4, v6) = (choices.of(&v4), choices.of(&v6));
    // When packets may come in several orders it is open who gets the last of a limit.
    let limit = match one_order {
        true => format!("rate: {}, burst: {}", 1 + choices.below(5000), 1 + choices.below(100)),
        false => "burst: 1000000".to_owned(),
    };
    format!("{{ {v4}{v6}{limit} }}")
}

/// Filters for the ways out of one place, the last of which may be for the rest.
fn ways_out(choices: &mut Choices, disjoint: bool, rest: bool) -> Vec<Option<String>> {
    // A `vlan` moves what follows it in a filter: of those, complements are not written so easily.
    let primitives: Vec<&str> =
        PRIMITIVES.into_iter().filter(|p| !disjoint || !p.contains("vlan")).collect();
    let n = choices.below(3);
    let filters: Vec<String> = (0..n).map(|_| filter(choices, &primitives, 2)).collect();
    let not = |filters: &[String]| {
        let not: Vec<String> = filters.iter().map(|f| format!("!({f})")).collect();
        (disjoint && !not.is_empty()).then(|| not.join(" && "))
    };
    let mut ways: Vec<Option<String>> = Vec::new();
    for (i, filter) in filters.iter().enumerate() {
        let before = not(&filters[..i]).map(|not| format!("{not} && ")).unwrap_or_default();
        ways.push(Some(format!("{before}({filter})")));
    }
    if rest {
        ways.push(not(&filters));
    }
    ways
}

/// A policy: NFs in a random order, each with random ways to later ones, to a port or to `Drop`, so
/// that ways divide and meet again. Either filters exclude each other, or the order decides.
/// Also gives the types of `n0`, `n1`...
fn policy(choices: &mut Choices, sources: &[&str]) -> (String, Vec<&'static str>) {
    let n = 1 + choices.below(7);
    let mut text = String::from("Port<0> lan; Port<1> wan;\n");
    let mut outputs: Vec<&[&str]> = Vec::new();
    // Every other policy of few types, so that the same work comes again and can be left out.
    let few: [_; 3] = std::array::from_fn(|_| TYPES[choices.below(TYPES.len() - 2)]);
    let is_few = choices.one_in(2);
    let mut kinds_of: Vec<&'static str> = Vec::new();
    for i in 0..n {
        let kinds = if choices.one_in(4) { TYPES.len() } else { TYPES.len() - 2 };
        let (mut kind, mut outs) =
            if is_few { choices.of(&few) } else { TYPES[choices.below(kinds)] };
        if makes(kind) && kinds_of.iter().filter(|kind| makes(kind)).count() == MAKERS {
            (kind, outs) = TYPES[0];
        }
        let one_order = sources.len() == 1 && !kinds_of.iter().any(|kind| makes(kind));
        if remembers(kind) && !one_order {
            (kind, outs) = TYPES[0];
        }
        let config = match kind {
            "L3L4Filter" | "ConnTrack" => rules(choices),
            "Busy" => format!("{{ cycles: {} }}", choices.below(2000)),
            "TtlDecrement" if choices.one_in(2) => "{ mtu: 1300 }".to_owned(),
            "Policer" => "{ flow: { rate: 8000000, burst: 9000, excess: 3000 } }".to_owned(),
            "CountSubnet" => {
                let by = choices.of(&["src", "dst"]);
                format!("{{ prefixes: [\"192.0.2.0/24\", \"fd00::/16\"], by: \"{by}\" }}")
            }
            "PacketSizeHistogram" if choices.one_in(2) => "{ bounds: [60, 600] }".to_owned(),
            "IcmpError" => icmp_error(choices, one_order),
            _ => String::new(),
        };
        kinds_of.push(kind);
        writeln!(text, "{kind} n{i} {config};").unwrap();
        outputs.push(outs);
    }
    text += "pipelet {\n";
    let mut seen = std::collections::HashSet::new();
    let mut edge = |text: &mut String, from: &str, filter: Option<String>, to: &str| {
        let filter = filter.map(|f| format!("[{f}] ")).unwrap_or_default();
        let edge = format!("  {from} {filter}-> {to};\n");
        if seen.insert(edge.clone()) {
            *text += &edge;
        }
    };
    let target = |choices: &mut Choices, after: usize| {
        if after < n && !choices.one_in(4) {
            let to = after + choices.below((n - after).min(3));
            match kinds_of[to] {
                "IcmpError" => {
                    format!("[{}] n{to}", choices.of(&["expired", "too_big", "unreachable"]))
                }
                _ => format!("n{to}"),
            }
        } else if choices.one_in(6) {
            "Drop".to_owned()
        } else if sources.len() > 1 {
            choices.of(&["lan", "wan"]).to_owned()
        } else {
            "wan".to_owned()
        }
    };
    let disjoint = choices.one_in(2);
    let mut holes = false;
    // What comes in goes to an NF, some of it elsewhere.
    for source in sources {
        let ways = ways_out(choices, disjoint, true);
        let last = ways.len() - 1;
        let first = if kinds_of[0] == "IcmpError" { "[unreachable] n0" } else { "n0" };
        for (i, filter) in ways.into_iter().enumerate() {
            let to = if i == last { first.to_owned() } else { target(choices, 0) };
            edge(&mut text, source, filter, &to);
        }
    }
    for (i, outs) in outputs.iter().enumerate() {
        let name = format!("n{i}");
        for out in *outs {
            let tag = (outs.len() > 1).then(|| format!("{name}.{out}"));
            let rest = !choices.one_in(5);
            holes |= !rest;
            for filter in ways_out(choices, disjoint, rest) {
                let to = target(choices, i + 1);
                let filter = match (&tag, filter) {
                    (Some(tag), Some(filter)) => Some(format!("{tag} && ({filter})")),
                    (tag, filter) => filter.or(tag.clone()),
                };
                edge(&mut text, &name, filter, &to);
            }
        }
    }
    // Somebody sends to every port.
    edge(&mut text, &format!("n{}", n - 1), Some("tcp && udp".to_owned()), "wan");
    if sources.len() > 1 {
        edge(&mut text, &format!("n{}", n - 1), Some("tcp && udp".to_owned()), "lan");
    }
    text += "}\n";
    if holes || choices.one_in(3) {
        text += "default drop;\n";
    }
    if !disjoint {
        text += "first match;\n";
    }
    (text, kinds_of)
}

/// A run of the demo's packets, as received by `port`, stamped with port and place.
fn packets(choices: &mut Choices, all: &[Input], port: u16) -> Vec<Input> {
    let n = choices.below(1500);
    let first = choices.below(all.len() - n);
    stamped(&all[first..first + n], port)
}

/// Runs one random policy isolated and fused; `sources` are the ports that receive.
fn one(seed: u64, sources: &[u16]) {
    let choices = &mut Choices(seed);
    let (all, _) = read_capture(&demo_capture(), 0).unwrap();
    let names = ["lan", "wan"];
    let (policy, kinds) = policy(choices, &names[..sources.len()]);
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", &policy);
    let mut input = Vec::new();
    for &port in sources {
        let packets = packets(choices, &all, port);
        write_capture(&scratch.file(&format!("in{port}.pcap")), &packets);
        input.extend(packets);
    }
    // Little room makes packets wait everywhere.
    let ring = choices.of(&["64", "128", "1024"]);
    let pool = choices.of(&["64", "256", "4096"]);
    let expected = oracle(&policy, &[0, 1], &input);
    // On one core workers of equal work are merged whatever the machine has.
    let pinned = choices.one_in(2).then(first_core);
    let other = choices.of(&["each", "none", "auto"]);
    // To `auto` one core named four times is one for devices and three to share NFs among.
    let three = vec![first_core(); 4].join(",");
    // Several instances of some NFs, which take what belongs to them of every edge.
    let (mut instances, used) = (Vec::new(), graph(&policy));
    for (i, kind) in kinds.iter().enumerate() {
        // One that no edge leads to is not there.
        let there = used.find(&format!("n{i}")).is_some();
        // Who knows flows may not meet a later fragment at the instance of the first: when that came by another
        // sender it is divided by what it has itself (docs/planning.md).
        let apart = ["IcmpError", "Policer", "ConnTrack", "FlowMonitor", "HttpParser"];
        if there && !apart.contains(kind) && choices.one_in(2) {
            instances.push(format!(
                "n{i}={}",
                choices.of(&[
                    "2",
                    "3",
                    "1:3",
                    "2,least",
                    "3,rr",
                    "3,by=src_ip",
                    "2,by=proto+dst_port",
                    "3:1,by=src_ip+dst_ip,symmetric",
                ])
            ));
        }
    }
    let none = Vec::new();
    let runs = [
        ("each", "on", &none),
        ("none", "on", &none),
        ("auto", "on", &none),
        (other, "off", &none),
        ("each", "on", &instances),
        (other, "off", &instances),
    ];
    for (isolate, consolidate, instances) in runs {
        let pinned = if isolate == "auto" { Some(&three) } else { pinned.as_ref() };
        let what = format!(
            "seed {seed}, {} sources, --isolate {isolate} --consolidate {consolidate} --cores {pinned:?} \
             --instances {instances:?} --ring {ring} --pool {pool}\n{policy}",
            sources.len()
        );
        let bind = |port: u16| {
            let rx = format!("rx={}", scratch.file(&format!("in{port}.pcap")).display());
            let tx = format!("tx={}", scratch.file(&format!("out{port}.pcap")).display());
            let parts = [(sources.contains(&port), rx), (expected.sent.contains_key(&port), tx)];
            let parts: Vec<_> = parts.into_iter().filter(|p| p.0).map(|p| p.1).collect();
            format!("{port}=pcap:{}", parts.join(","))
        };
        // Few chains of random policies are long enough for several stages: so all that may be are.
        let parallel = if consolidate == "off" || isolate == "auto" { "always" } else { "auto" };
        let (lan, wan) = (bind(0), bind(1));
        let mut args = vec!["run", &file, "--bind", &lan, "--bind", &wan];
        args.extend(["--isolate", isolate, "--consolidate", consolidate, "--spin", "20"]);
        args.extend(["--parallel", parallel]);
        args.extend(["--ring", ring, "--pool", pool, "--no-real-time", "--json", "-q"]);
        args.extend(pinned.into_iter().flat_map(|core| ["--cores", core.as_str()]));
        args.extend(instances.iter().flat_map(|nf| ["--instances", nf.as_str()]));
        let ended = weir(&args);
        assert_eq!(ended.code, Some(0), "{what}{ended:?}");
        // With several sources, or copies that meet, the order in which an NF sees packets is open, and
        // so is what it lists.
        let in_order = sources.len() == 1 && expected.copied == 0 && expected.created == 0;
        assert_report(&what, &ended.json(), &expected, in_order);
        for (port, sent) in &expected.sent {
            let got = records(&scratch.file(&format!("out{port}.pcap")));
            let sent: Vec<_> = sent.iter().map(|s: &Sent| written(s)).collect();
            assert_same_records(&what, &got, &sent);
            for &source in sources {
                let (got, sent) = (places(&got, source), places(&sent, source));
                assert!(got == sent, "order of source {source} at port {port}: {what}");
            }
        }
    }
}

fn many(sources: &[u16], policies: u64) {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same {policies} policies");
    for i in 0..policies {
        one(seed.wrapping_add(i), sources);
    }
}

#[test]
fn random_policies_give_the_same_records_in_the_same_order_isolated_and_fused() {
    many(&[0], POLICIES);
}

#[test]
fn with_two_sources_in_both_directions_the_order_of_each_is_kept() {
    many(&[0, 1], POLICIES / 2);
}
