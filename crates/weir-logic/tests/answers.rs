//! Answers that can be checked by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests count as code to clippy.

use weir_filter::{Expr, Primitive, parse};
use weir_logic::{Class, Limits, Reason, Spent, Universe, Verdict, Witness};

fn class(universe: &mut Universe, text: &str) -> Class {
    let filter = parse(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    universe.class(&filter)
}

fn example(verdict: Verdict) -> Witness {
    match verdict {
        Verdict::Example(witness) => *witness,
        other => panic!("no example: {other:?}"),
    }
}

#[test]
fn filters_that_no_packet_matches_together_are_disjoint() {
    for (a, b) in [
        ("tcp", "not tcp"),
        ("tcp", "udp"),
        ("ip", "ip6"),
        ("ip", "vlan"),
        ("vlan 5", "vlan 6"),
        ("tcp dst port 80", "tcp dst port 443"),
        ("tcp dst port 80", "udp dst port 80"),
        ("dst portrange 0-1023", "dst portrange 1024-65535"),
        ("src net 10.0.0.0/8", "src net 11.0.0.0/8"),
        ("src net 10.1.2.0/24 and tcp dst port 22", "not (src net 10.0.0.0/8)"),
        ("src net 2001:db8::/32", "src net 2001:db9::/32"),
        ("src net 10.0.0.0/8", "src net 2001:db8::/32"),
        ("ip proto 47", "icmp"),
        ("ether src 02:00:00:00:00:01", "ether src 02:00:00:00:00:02"),
        ("fw.safe", "not fw.safe"),
        ("fw.safe and tcp", "tcp and not fw.safe"),
        // Tagged packets are something else to `tcp`.
        ("tcp dst port 80", "vlan and tcp dst port 80"),
        // A `vlan` that is not there still moves what follows it: bytes 30 to 33 are the source of a
        // header at 18 and the destination of one at 14.
        ("not vlan and ip src host 192.0.2.1", "ip dst host 192.0.2.2"),
    ] {
        let mut universe = Universe::default();
        let (x, y) = (class(&mut universe, a), class(&mut universe, b));
        assert_eq!(universe.disjoint(x, y), Verdict::Empty, "{a} | {b}");
    }
}

#[test]
fn an_overlap_comes_with_a_packet_that_both_match() {
    for (a, b) in [
        ("tcp", "port 80"),
        ("tcp dst port 80", "src port 80"),
        ("ip host 10.0.0.1", "ip host 10.0.0.2"),
        ("portrange 0-1023", "portrange 1024-65535"),
        ("dst net 10.0.0.0/8", "dst net 10.1.0.0/16"),
        ("ip6", "tcp dst port 80"),
        ("host 10.0.0.1", "arp"),
        ("host 10.0.0.1", "rarp"),
        ("vlan 5", "vlan and tcp dst port 80"),
        ("vlan 5 and vlan 6", "vlan and vlan and sctp"),
        ("not ip", "not ip6"),
        ("tcp", "not port 80"),
        ("tcp", "not portrange 0-65535"),
        ("ip6 proto 44", "tcp"),
        ("fw.safe", "tcp"),
        // Headers at 14 and at 18 in the same bytes, each with a length of its own.
        ("not vlan and tcp dst port 80", "tcp dst port 443"),
        ("not vlan and tcp dst port 80", "udp src port 53"),
    ] {
        let mut universe = Universe::default();
        let (x, y) = (class(&mut universe, a), class(&mut universe, b));
        let witness = example(universe.disjoint(x, y));
        for c in [x, y] {
            let said =
                &mut |_: &str, name: &str| witness.tags.iter().any(|t| t.name == name && t.value);
            assert!(universe.contains(c, &witness.packet, said), "{a} | {b}: {witness}");
        }
    }
}

#[test]
fn filters_cover_everything_or_a_packet_falls_through() {
    let cases: [(&[&str], Option<&str>); 11] = [
        (&["true"], None),
        (&["tcp", "not tcp"], None),
        (&["tcp dst port 80", "tcp and not dst port 80", "not tcp"], None),
        (&["fw.safe and tcp", "fw.safe and not tcp", "not fw.safe"], None),
        (&["ip", "not ip and ip6", "not (ip or ip6)"], None),
        (&["src net 10.0.0.0/9", "src net 10.128.0.0/9", "not (src net 10.0.0.0/8)"], None),
        (&[], Some("ip src host 192.0.2.1, ip dst host 198.51.100.2, tcp src port 1024")),
        (&["ip", "ip6"], Some("ether proto")),
        (&["tcp", "udp"], Some("ip proto")),
        // Only first fragments have ports.
        (
            &["tcp dst portrange 0-1023", "tcp dst portrange 1024-65535", "not tcp"],
            Some("fragment at byte"),
        ),
        // A packet may end anywhere.
        (&["src net 0.0.0.0/0", "not ip and not arp and not rarp"], Some(", 29 bytes")),
    ];
    for (list, hole) in cases {
        let mut universe = Universe::default();
        let classes: Vec<Class> = list.iter().map(|t| class(&mut universe, t)).collect();
        match (universe.covers(&classes), hole) {
            (Verdict::Empty, None) => {}
            (Verdict::Example(witness), Some(text)) => {
                assert!(witness.to_string().contains(text), "{list:?}: {witness}");
                for c in &classes {
                    assert!(!universe.contains(*c, &witness.packet, &mut |_, _| false));
                }
            }
            (verdict, _) => panic!("{list:?}: {verdict:?}"),
        }
    }
}

#[test]
fn a_smaller_class_is_a_subset_and_the_other_way_round_there_is_an_example() {
    let mut universe = Universe::default();
    let small = class(&mut universe, "src net 10.1.0.0/16 and tcp dst port 80");
    let large = class(&mut universe, "ip and src net 10.0.0.0/8");
    assert_eq!(universe.subset(small, large), Verdict::Empty);
    let witness = example(universe.subset(large, small));
    assert!(universe.contains(large, &witness.packet, &mut |_, _| false));
    assert!(!universe.contains(small, &witness.packet, &mut |_, _| false));
}

#[test]
fn other_words_for_the_same_are_equal() {
    for (a, b, same) in [
        ("host 10.0.0.1", "src host 10.0.0.1 or dst host 10.0.0.1", true),
        ("not (tcp or udp)", "not udp and not tcp", true),
        ("tcp dst portrange 80-81", "tcp dst port 80 or tcp dst port 81", true),
        ("dst net 10.0.0.0/8", "dst net 10.0.0.0/9 or dst net 10.128.0.0/9", true),
        ("ip proto 6", "tcp", false),
        ("port 80", "tcp port 80 or udp port 80", false),
        // The left side has no source when a packet ends behind the destination's address.
        (
            "ether host 02:00:00:00:00:01",
            "ether dst 02:00:00:00:00:01 or ether src 02:00:00:00:00:01",
            false,
        ),
    ] {
        let mut universe = Universe::default();
        let (x, y) = (class(&mut universe, a), class(&mut universe, b));
        assert_eq!(universe.equal(x, y), same, "{a} | {b}");
    }
}

#[test]
fn an_example_is_printed_as_fields_and_bytes() {
    let mut universe = Universe::default();
    let web =
        class(&mut universe, "vlan 7 and src net 10.0.0.0/8 and tcp dst port 8080 and ids.safe");
    let witness = example(universe.is_empty(web));
    assert_eq!(
        witness.to_string(),
        "ether src 02:00:00:00:00:01, ether dst 02:00:00:00:00:02, vlan 7, ip src host 10.0.2.1, \
         ip dst host 198.51.100.2, tcp src port 1024, tcp dst port 8080, ids.safe, 60 bytes\n\
         0x0000:  0200 0000 0002 0200 0000 0001 8100 0007\n\
         0x0010:  0800 4500 0028 0000 0000 4006 0000 0a00\n\
         0x0020:  0201 c633 6402 0400 1f90 0000 0000 0000\n\
         0x0030:  0000 5002 ffff 0000 0000 0000"
    );
    assert_eq!(witness.wire_len, 60);
}

#[test]
fn a_limit_makes_the_answer_unknown_and_later_questions_are_answered() {
    for (limits, spent) in [
        (Limits { nodes: 300, ..Limits::default() }, Spent::Nodes),
        (Limits { steps: 100, ..Limits::default() }, Spent::Steps),
        (Limits { variables: 40, ..Limits::default() }, Spent::Variables),
    ] {
        let mut universe = Universe::new(limits);
        let easy = class(&mut universe, "ip");
        let hard = class(
            &mut universe,
            "src net 10.1.2.0/24 and dst net 10.3.4.0/24 and (port 80 or port 443 or port 22)",
        );
        let both = universe.and(easy, hard);
        for c in [hard, both] {
            assert_eq!(universe.is_empty(c), Verdict::Unknown(Reason::Spent(spent)));
        }
        assert_eq!(universe.disjoint(hard, easy), Verdict::Unknown(Reason::Spent(spent)));
        let other = class(&mut universe, "ip6");
        assert_eq!(universe.disjoint(easy, other), Verdict::Empty, "{spent}");
    }
}

/// An EtherType that libpcap looks for in LLC frames, too; so it is not looked into.
fn opaque(universe: &mut Universe, number: u16) -> Class {
    universe.class(&Expr::Primitive(Primitive::EtherProto(number)))
}

#[test]
fn an_opaque_term_is_the_same_everywhere_and_otherwise_whatever_it_likes() {
    let mut universe = Universe::default();
    let (a, b) = (opaque(&mut universe, 0x8137), opaque(&mut universe, 0x809b));
    let tcp = class(&mut universe, "tcp");
    let both = universe.and(a, tcp);
    let not_a = universe.not(a);
    assert_eq!(universe.disjoint(both, not_a), Verdict::Empty);
    assert_eq!(universe.covers(&[a, not_a]), Verdict::Empty);
    assert_eq!(universe.subset(both, tcp), Verdict::Empty);
    // An ordinary packet is an example, so it is known what it is.
    example(universe.subset(tcp, a));
    // These are disjoint, but that is not looked into.
    let terms = vec![
        "ether proto 0x809b at byte 14".to_owned(),
        "ether proto 0x8137 at byte 14".to_owned(),
    ];
    assert_eq!(universe.disjoint(a, b), Verdict::Unknown(Reason::Opaque { terms }));
    assert!(!universe.equal(a, b));
}

#[test]
fn what_stands_right_of_an_opaque_term_is_opaque_too() {
    let mut universe = Universe::default();
    let ip = |number| {
        let ip = parse("ip").unwrap();
        Expr::And(vec![Expr::not(Expr::Primitive(Primitive::EtherProto(number))), ip])
    };
    // The term might move offsets: then `ip` looks elsewhere than in the other filters.
    let [a, b] = [0x8137, 0x809b].map(|n| universe.class(&ip(n)));
    let ip6 = class(&mut universe, "ip6");
    assert!(matches!(universe.disjoint(a, ip6), Verdict::Unknown(Reason::Opaque { .. })));
    let not_b = universe.not(b);
    assert!(matches!(universe.disjoint(a, not_b), Verdict::Unknown(Reason::Opaque { .. })));
    let not_a = universe.not(a);
    assert_eq!(universe.disjoint(a, not_a), Verdict::Empty);
}

#[test]
fn a_class_of_another_universe_is_not_known() {
    let mut other = Universe::default();
    let tcp = class(&mut other, "tcp");
    let mut universe = Universe::default();
    assert!(matches!(universe.is_empty(tcp), Verdict::Unknown(_)));
    assert!(!universe.contains(tcp, &[0; 60], &mut |_, _| true));
}
