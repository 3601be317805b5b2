//! Answers that can be checked by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of tests count as code to clippy.

use weir_filter::parse;
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

#[test]
fn an_opaque_number_is_the_same_everywhere_and_otherwise_whatever_it_likes() {
    let mut universe = Universe::default();
    let a = class(&mut universe, "ip protochain 51 and ip[2:2] * 3 = 7");
    let tcp = class(&mut universe, "tcp");
    let both = universe.and(a, tcp);
    let not_a = universe.not(a);
    assert_eq!(universe.disjoint(both, not_a), Verdict::Empty);
    assert_eq!(universe.covers(&[a, not_a]), Verdict::Empty);
    assert_eq!(universe.subset(both, tcp), Verdict::Empty);
    // An ordinary packet is an example, so it is known what it is.
    example(universe.subset(tcp, a));
    // Only half of it can be decided.
    let Verdict::Unknown(Reason::Opaque { terms }) = universe.is_empty(a) else { panic!() };
    assert_eq!(terms, ["ip protochain 51", "ip[2:2] * 3 = 7"]);
    // The same number is one of them, whatever it is.
    for (x, y) in [
        ("any tcp", "any udp"),
        ("any tcp port 80", "any proto 47"),
        ("ip[2:2] * 3 = 7", "ip[2:2] * 3 > 7"),
        ("http.url ~ \"^/admin\"", "not http.url ~ \"^/admin\""),
    ] {
        let (c, d) = (class(&mut universe, x), class(&mut universe, y));
        assert_eq!(universe.disjoint(c, d), Verdict::Empty, "{x} | {y}");
    }
    let (admin, login) = (r#"http.url ~ "^/admin""#, r#"http.url ~ "^/login""#);
    let (c, d) = (class(&mut universe, admin), class(&mut universe, login));
    let Verdict::Unknown(Reason::Opaque { terms }) = universe.disjoint(c, d) else { panic!() };
    assert_eq!(terms, [admin, login]);
}

#[test]
fn flags_bytes_lengths_labels_and_sessions_are_exact() {
    for (a, b, disjoint) in [
        ("tcp[tcpflags] & tcp-syn != 0", "tcp[13] & 2 = 0", true),
        ("tcp[tcpflags] = tcp-syn", "tcp[tcpflags] & tcp-ack != 0", true),
        ("tcp[tcpflags] & tcp-syn != 0", "tcp[tcpflags] & tcp-ack != 0", false),
        ("tcp[0:2] = 80", "tcp src port 443", true),
        ("tcp[0:2] = 80", "tcp src port 80", false),
        ("ip[9] = 6", "udp and ip", true),
        ("ip[8] < 5", "ip[8] > 4", true),
        ("less 100", "greater 101", true),
        ("less 100", "greater 100", false),
        ("len > 1000", "ip and len < 64", true),
        ("mpls 5", "mpls 6", true),
        ("mpls 5", "mpls and ip", false),
        ("mpls", "tcp dst port 80", true),
        ("pppoes 7", "pppoes 8", true),
        ("pppoes and tcp dst port 80", "pppoes 8", false),
        ("ether multicast", "ether broadcast", false),
        ("ip multicast", "ip dst net 10.0.0.0/8", true),
        ("tos 3", "tos 4", true),
        // Bytes 20 and 21 of a header without options are no longer at a fixed place with options.
        ("ip[0] & 15 = 5 and ip[20:2] = 80", "tcp src port 443", true),
        ("ip[0] & 15 = 6 and ip[20:2] = 80", "tcp src port 443", false),
        ("ip[20:2] = 80", "tcp src port 443", false),
        ("fw.prio == 3", "fw.prio == 4", true),
        ("fw.prio >= 3", "fw.prio < 5 and tcp", false),
        ("ingress == 1", "ingress == 2", true),
        ("ingress == 1", "tcp", false),
    ] {
        let mut universe = Universe::default();
        let (x, y) = (class(&mut universe, a), class(&mut universe, b));
        match universe.disjoint(x, y) {
            Verdict::Empty => assert!(disjoint, "{a} | {b}"),
            Verdict::Example(_) => assert!(!disjoint, "{a} | {b}"),
            Verdict::Unknown(reason) => panic!("{a} | {b}: {reason}"),
        }
    }
}

#[test]
fn an_example_says_which_numbers_were_said() {
    let mut universe = Universe::default();
    let c = class(
        &mut universe,
        "fw.prio >= 3 and fw.prio < 5 and fw.prio != 3 and ingress == 2 and udp",
    );
    let witness = example(universe.is_empty(c));
    assert!(witness.to_string().contains("fw.prio == 4, ingress == 2, 60 bytes"), "{witness}");
}

#[test]
fn a_class_of_another_universe_is_not_known() {
    let mut other = Universe::default();
    let tcp = class(&mut other, "tcp");
    let mut universe = Universe::default();
    assert!(matches!(universe.is_empty(tcp), Verdict::Unknown(_)));
    assert!(!universe.contains(tcp, &[0; 60], &mut |_, _| true));
}

#[test]
fn trying_packets_takes_steps_too() {
    let limits = Limits { steps: 199, ..Limits::default() };
    let mut universe = Universe::new(limits);
    let (one, two) = (class(&mut universe, "ether[0] = 1"), class(&mut universe, "ether[0] = 2"));
    // The diagrams are small enough for what can be had without a packet.
    assert_eq!(universe.disjoint(one, two), Verdict::Empty);
    assert_eq!(universe.is_empty(one), Verdict::Unknown(Reason::Spent(Spent::Steps)));
    let mut universe = Universe::default();
    let one = class(&mut universe, "ether[0] = 1");
    assert!(matches!(universe.is_empty(one), Verdict::Example(_)));
}

#[test]
fn of_a_long_packet_the_dump_shows_the_first_256_bytes_and_counts_the_rest() {
    let witness = |length: usize| Witness {
        packet: (0..length).map(|i| i.to_le_bytes()[0]).collect(),
        wire_len: 0,
        tags: Vec::new(),
        numbers: Vec::new(),
    };
    let lines = |length: usize| -> Vec<String> {
        witness(length).hex_dump().lines().map(str::to_owned).collect()
    };
    let whole = lines(256);
    assert_eq!(whole.len(), 16);
    assert_eq!(whole[15], "0x00f0:  f0f1 f2f3 f4f5 f6f7 f8f9 fafb fcfd feff");
    let cut = lines(257);
    assert_eq!(cut[..16], whole);
    assert_eq!(cut[16..], ["… 1 more bytes".to_owned()]);
    assert_eq!(lines(65_535).last().unwrap(), "… 65279 more bytes");
    // One that a question needs: only a packet of so many bytes answers it.
    let mut universe = Universe::default();
    let long = class(&mut universe, "len >= 1000");
    let dump = example(universe.is_empty(long)).hex_dump();
    assert!(dump.ends_with("more bytes") && dump.lines().count() == 17, "{dump}");
}
