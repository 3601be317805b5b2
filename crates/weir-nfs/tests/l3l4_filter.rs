//! L3L4Filter.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, HOP_BY_HOP_AND_DEST_OPTS, v4, v6};
use serde_json::{Value, json};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{DropReason, registrations};
use weir_nfs::l3l4_filter::L3L4Filter;

/// Which of the frames a filter that drops what matches `rule` drops.
fn dropped(rule: Value, frames: &[Vec<u8>]) -> Vec<bool> {
    let mut rule = rule;
    rule["action"] = json!("drop");
    let mut bench = Bench::new::<L3L4Filter>(json!({"rules": [rule.clone()]})).unwrap();
    let seen = bench.run(frames);
    let verdicts: Vec<_> = seen.iter().map(|s| s.verdict == Err(DropReason::Filtered)).collect();
    assert!(seen.iter().all(|s| s.verdict.is_err() || s.verdict == Ok("pass")));
    let hits = verdicts.iter().filter(|&&d| d).count();
    let passed = frames.len() - hits;
    let rules = json!([[rule.to_string(), hits]]);
    assert_eq!(bench.report(), json!({"rules": rules, "default": passed, "gone": 0}));
    verdicts
}

/// What each rule of a report decided, then the default, then rules that are gone.
fn counts(report: &Value) -> (Vec<u64>, u64, u64) {
    let rules = report["rules"].as_array().unwrap().iter().map(|rule| rule[1].as_u64().unwrap());
    (rules.collect(), report["default"].as_u64().unwrap(), report["gone"].as_u64().unwrap())
}

fn frames() -> Vec<Vec<u8>> {
    let tags = |f: Frame<'static>| [f, f.vlan(7), f.tag(0x88a8, 100).vlan(8)];
    let ext = HOP_BY_HOP_AND_DEST_OPTS;
    let all = [
        v4().tcp(40_000, 80, 2),
        v6().extensions(ext).tcp(40_000, 80, DATA),
        v4().options(&[1; 8]).udp(40_000, 53),
        v6().icmp(128, 0, [0; 4]),
        Frame::other(0x0806).payload(&[0; 28]),
    ];
    all.into_iter().flat_map(tags).map(|f| f.build()).collect()
}

/// One letter per kind of frame of [`frames`] (TCP, TCP6, UDP, ICMPv6, ARP), three tags each.
fn expect(dropped: [[u8; 3]; 5]) -> Vec<bool> {
    dropped.concat().iter().map(|&d| d == 1).collect()
}

#[test]
fn each_field_matches_behind_tags_options_and_extension_headers() {
    const NO: [u8; 3] = [0; 3];
    const ALL: [u8; 3] = [1; 3];
    let cases = [
        (json!({"src": "192.0.2.0/24"}), [ALL, NO, ALL, NO, NO]),
        (json!({"dst": "fd00::2"}), [NO, ALL, NO, ALL, NO]),
        (json!({"dst_port": "79-80"}), [ALL, ALL, NO, NO, NO]),
        (json!({"src_port": 40000}), [ALL, ALL, ALL, NO, NO]),
        (json!({"proto": "udp"}), [NO, NO, ALL, NO, NO]),
        (json!({"tcp_flags": "syn,!ack"}), [ALL, NO, NO, NO, NO]),
        (json!({"icmp_type": 128, "icmp_code": 0}), [NO, NO, NO, ALL, NO]),
        (json!({"ether_type": "arp"}), [NO, NO, NO, NO, ALL]),
        (json!({"vlan": 7}), [[0, 1, 0]; 5]),
        (json!({"vlan": 100}), [[0, 0, 1]; 5]),
        (json!({"vlan": "untagged"}), [[1, 0, 0]; 5]),
        (json!({"src_mac": "02:00:00:00:00:01"}), [ALL; 5]),
        (json!({"dst_mac": "02:00:00:00:00:01"}), [NO; 5]),
        (json!({"fragment": "yes"}), [NO; 5]),
        (json!({}), [ALL; 5]),
    ];
    for (rule, expected) in cases {
        assert_eq!(dropped(rule.clone(), &frames()), expect(expected), "{rule}");
    }
}

#[test]
fn later_fragments_have_no_ports_but_a_protocol_and_addresses() {
    let udp = v4().udp(40_000, 53).payload(&[1; 100]).fragments(48);
    let udp6 = v6().udp(40_000, 53).payload(&[1; 100]).fragments(48);
    for pieces in [udp, udp6] {
        assert_eq!(dropped(json!({"dst_port": 53}), &pieces), [true, false, false]);
        assert_eq!(dropped(json!({"proto": "udp"}), &pieces), [true; 3]);
        assert_eq!(dropped(json!({"fragment": "later"}), &pieces), [false, true, true]);
        assert_eq!(dropped(json!({"fragment": "first"}), &pieces), [true, false, false]);
    }
}

#[test]
fn a_truncated_header_does_not_match_what_it_has_not() {
    let whole = v4().tcp(1, 80, DATA).build();
    let cuts = [&whole[..36], &whole[..30], &whole[..20], &whole[..13], &whole[..5]];
    let cuts: Vec<_> = cuts.iter().map(|c| c.to_vec()).collect();
    assert_eq!(dropped(json!({"dst_port": 80}), &cuts), [false; 5]);
    assert_eq!(dropped(json!({"src": "192.0.2.10"}), &cuts), [true, false, false, false, false]);
    assert_eq!(dropped(json!({"proto": 0}), &cuts), [false; 5]);
    assert_eq!(dropped(json!({"proto": "tcp"}), &cuts), [true, false, false, false, false]);
}

#[test]
fn the_first_rule_that_matches_decides_and_is_counted() {
    let config = json!({"default": "drop", "rules": [
        {"action": "pass", "dst_port": 80},
        {"action": "drop", "proto": "tcp"},
        {"action": "pass", "ether_type": "arp"},
    ]});
    let mut bench = Bench::new::<L3L4Filter>(config).unwrap();
    // More than a batch, of mixed families.
    let web = v4().tcp(1, 80, DATA).build();
    let ssh = v6().tcp(1, 22, DATA).build();
    let arp = Frame::other(0x0806).build();
    let dns = v4().udp(1, 53).build();
    let packets: Vec<_> = (0..50).flat_map(|_| [&web, &ssh, &arp, &dns]).collect();
    let seen = bench.run(&packets);
    let verdicts: Vec<_> = seen.iter().map(|s| s.verdict.ok()).collect();
    assert_eq!(verdicts, [Some("pass"), None, Some("pass"), None].repeat(50));
    assert_eq!(counts(&bench.report()), (vec![50; 3], 50, 0));
}

#[test]
fn without_rules_the_default_decides_and_that_is_pass_unless_told_otherwise() {
    for (config, passes) in [(json!(null), true), (json!({"default": "drop"}), false)] {
        let seen = Bench::new::<L3L4Filter>(config).unwrap().run(&frames());
        assert!(seen.iter().all(|s| s.verdict.is_ok() == passes));
    }
}

#[test]
fn a_wrong_rule_is_refused_by_its_place() {
    let refuse = |rule: Value| {
        let config = json!({"rules": [{"action": "pass"}, rule]});
        Bench::new::<L3L4Filter>(config).err().unwrap().to_string()
    };
    let error = refuse(json!({"action": "pass", "src": "300.0.0.0"}));
    assert!(error.starts_with("/rules/1: src: '300.0.0.0'"), "{error}");
    let error = refuse(json!({"action": "pass", "sorce": "10.0.0.1"}));
    assert!(error.starts_with("/rules/1: unknown field `sorce`"), "{error}");
    assert!(refuse(json!({"src": "10.0.0.1"})).contains("action"));
}

/// A filter that has gone on from `before` with other rules, as after a change of the policy, and seen packets since.
fn reloaded(before: &Bench, rules: &[&Value], packets: &[Vec<u8>]) -> Bench {
    let mut bench = Bench::new::<L3L4Filter>(json!({"rules": rules})).unwrap();
    bench.restore(&before.save()).unwrap();
    bench.run(packets);
    bench
}

#[test]
fn a_rule_keeps_its_count_wherever_it_stands_after_a_change_of_the_list() {
    let web = json!({"action": "pass", "dst_port": 80});
    let dns = json!({"action": "pass", "dst_port": 53});
    let ssh = json!({"action": "drop", "dst_port": 22});
    let to = |port| v4().udp(1, port).build();
    let mut first = Bench::new::<L3L4Filter>(json!({"rules": [web, dns]})).unwrap();
    first.run(&[to(80), to(80), to(53), to(9)]);
    assert_eq!(counts(&first.report()), (vec![2, 1], 1, 0));
    // One is put in front: those behind it keep what is theirs.
    let second = reloaded(&first, &[&ssh, &web, &dns], &[to(22), to(80)]);
    assert_eq!(counts(&second.report()), (vec![1, 3, 1], 1, 0));
    // One is gone, and the others change places.
    let third = reloaded(&second, &[&dns, &ssh], &[to(53)]);
    assert_eq!(counts(&third.report()), (vec![2, 1], 1, 3));
    // Of two equal ones the first decides, and has the count.
    let fourth = reloaded(&third, &[&ssh, &ssh], &[to(22)]);
    assert_eq!(counts(&fourth.report()), (vec![2, 0], 1, 5));
}

#[test]
fn reports_of_several_instances_add_up_rule_by_rule_though_one_has_other_rules_yet() {
    let all = registrations();
    let filter = all.iter().find(|nf| nf.descriptor.name == "L3L4Filter").unwrap();
    let one = json!({"rules": [["a", 1], ["b", 2]], "default": 3, "gone": 4});
    let other = json!({"rules": [["b", 10], ["c", 20]], "default": 30, "gone": 40});
    let sum = json!({"rules": [["a", 1], ["b", 12], ["c", 20]], "default": 33, "gone": 44});
    assert_eq!(filter.together(&[one, other]), Some(sum));
}

#[test]
fn what_an_earlier_version_counted_by_place_counts_for_rules_that_are_gone() {
    // The version, then two counts by place, 2 and 1, and the default's 7.
    let saved = [1, 0, 0, 0, 2, 2, 1, 7];
    let rule = json!({"action": "pass", "dst_port": 80});
    let mut bench = Bench::new::<L3L4Filter>(json!({"rules": [rule]})).unwrap();
    bench.restore(&saved).unwrap();
    bench.run(&[v4().udp(1, 80).build()]);
    assert_eq!(counts(&bench.report()), (vec![1], 7, 3));
}

#[test]
fn each_packet_of_a_long_batch_gets_its_own_verdict() {
    // Plain packets and others in turn, so that short and general ways mix in a batch.
    let frames: Vec<_> = (0..300_u16)
        .map(|i| match i % 3 {
            0 => v4().udp(i, 53).build(),
            1 => v6().udp(i, 53).build(),
            _ => v4().vlan(5).udp(i, 53).pad_to(60).build(),
        })
        .collect();
    let even: Vec<_> =
        (0..300).step_by(2).map(|port| json!({"src_port": port, "action": "drop"})).collect();
    let mut bench = Bench::new::<L3L4Filter>(json!({"rules": even})).unwrap();
    for (i, seen) in bench.run(&frames).iter().enumerate() {
        let wanted = if i % 2 == 0 { Err(DropReason::Filtered) } else { Ok("pass") };
        assert_eq!(seen.verdict, wanted, "packet {i}");
    }
    assert_eq!(counts(&bench.report()), (vec![1; 150], 150, 0));
}
