//! How operators write rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests may: helper functions too

use weir_classify::*;

fn rule(json: &str) -> Rule {
    Rule::try_from(&serde_json::from_str::<RuleSpec>(json).unwrap()).unwrap()
}

fn error(json: &str) -> String {
    Rule::try_from(&serde_json::from_str::<RuleSpec>(json).unwrap()).unwrap_err().to_string()
}

#[test]
fn every_field_has_a_friendly_form() {
    let rule = rule(
        r#"{"action":"drop","src":"10.0.0.0/8","dst":"192.0.2.1","src_port":"1024-","dst_port":80,"proto":"tcp",
            "tcp_flags":"syn,!ack","src_mac":"aa:bb:cc:dd:ee:ff","dst_mac":"02:00:00:00:00:00/ff:00:00:00:00:00",
            "ether_type":"ipv4","vlan":"untagged","fragment":"no"}"#,
    );
    let wanted = Rule {
        src: Prefix::V4 { addr: 0x0A00_0000, len: 8 },
        dst: Prefix::V4 { addr: 0xC000_0201, len: 32 },
        sport: 1024..=65535,
        dport: 80..=80,
        proto: Some(6),
        tcp_flags: Some(FlagMatch { mask: 0x12, value: 0x02 }),
        icmp_type: None,
        icmp_code: None,
        src_mac: Some(MacMatch { addr: [0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF], mask: [0xFF; 6] }),
        dst_mac: Some(MacMatch { addr: [2, 0, 0, 0, 0, 0], mask: [0xFF, 0, 0, 0, 0, 0] }),
        ether_type: Some(0x0800),
        vlan: Some(VlanMatch::Untagged),
        fragment: Some(FragmentMatch::No),
    };
    assert_eq!(rule, wanted);
}

#[test]
fn a_rule_with_only_an_action_accepts_any_packet() {
    assert_eq!(rule(r#"{"action":"pass"}"#), Rule::default());
    assert_eq!(
        rule(r#"{"action":"pass","src":"any","src_port":"any","proto":"any"}"#),
        Rule::default()
    );
}

#[test]
fn ports_may_be_numbers_texts_and_open_ranges() {
    for (written, wanted) in [
        ("80", 80..=80),
        ("\"80\"", 80..=80),
        ("\"80-90\"", 80..=90),
        ("\"-1023\"", 0..=1023),
        ("\"9-\"", 9..=65535),
    ] {
        assert_eq!(
            rule(&format!(r#"{{"action":"drop","proto":"udp","dst_port":{written}}}"#)).dport,
            wanted
        );
    }
}

#[test]
fn icmp_ipv6_and_vlan_forms_are_understood() {
    let rule = rule(
        r#"{"action":"drop","src":"2001:db8::/32","proto":"icmp6","icmp_type":128,"icmp_code":0,"vlan":7}"#,
    );
    assert_eq!(rule.src, Prefix::V6 { addr: 0x2001_0DB8 << 96, len: 32 });
    assert_eq!(
        (rule.proto, rule.icmp_type, rule.icmp_code, rule.vlan),
        (Some(58), Some(128), Some(0), Some(VlanMatch::Id(7)))
    );
}

#[test]
fn each_mistake_names_its_field_and_quotes_what_was_written() {
    for (field, value, quoted) in [
        ("src", "\"10.0.0.0/33\"", "src: '10.0.0.0/33'"),
        ("dst", "\"10.0.0\"", "dst: '10.0.0'"),
        ("src", "\"10.0.0.0/+8\"", "src: '10.0.0.0/+8'"),
        ("src_port", "\"90-80\"", "src_port: '90-80'"),
        ("dst_port", "\"65536\"", "dst_port: '65536'"),
        ("dst_port", "\"-\"", "dst_port: '-'"),
        ("proto", "\"tpc\"", "proto: 'tpc'"),
        ("proto", "256", "proto: '256'"),
        ("tcp_flags", "\"syn,foo\"", "tcp_flags: 'foo'"),
        ("tcp_flags", "\"syn,!syn\"", "'syn' is asked for both ways"),
        ("src_mac", "\"aa:bb\"", "src_mac: 'aa:bb'"),
        ("dst_mac", "\"aa:bb:cc:dd:ee:ff:00\"", "dst_mac: 'aa:bb:cc:dd:ee:ff:00'"),
        ("ether_type", "\"0xzz\"", "ether_type: '0xzz'"),
        ("vlan", "4096", "vlan: '4096'"),
    ] {
        let message = error(&format!(r#"{{"action":"drop","{field}":{value}}}"#));
        assert!(message.contains(quoted), "{message}");
    }
}

#[test]
fn rules_that_no_packet_can_match_are_refused() {
    assert!(
        error(r#"{"action":"drop","src":"10.0.0.1","dst":"::1"}"#)
            .contains("different IP versions")
    );
    assert!(error(r#"{"action":"drop","proto":"icmp","dst_port":80}"#).contains("no ports"));
}

#[test]
fn unknown_fields_and_actions_are_refused() {
    let parse = |json: &str| serde_json::from_str::<RuleSpec>(json).unwrap_err().to_string();
    assert!(parse(r#"{"action":"drop","dport":80}"#).contains("unknown field `dport`"));
    assert!(parse(r#"{"action":"reject"}"#).contains("unknown variant `reject`"));
    assert!(parse(r#"{"proto":"tcp"}"#).contains("missing field `action`"));
}

#[test]
fn the_schema_describes_every_field() {
    let schema = serde_json::to_value(schemars::schema_for!(RuleSpec)).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties.len(), 14);
    for (name, property) in properties {
        assert!(property.get("description").is_some(), "{name}");
    }
    assert_eq!(schema["additionalProperties"], false);
}
