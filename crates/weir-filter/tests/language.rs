//! What the text means, and what is said about text that means nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use proptest::prelude::*;
use weir_filter::{
    CompileError, Expr, Filter, MAX_DEPTH, MAX_TEXT, Net, ParseError, Why, parse, parse_with,
    warnings,
};

fn canonical(text: &str) -> String {
    parse(text).unwrap_or_else(|e| panic!("`{text}`: {e:?}")).to_string()
}

/// The only error of `text`, with the part of the text it points at.
fn error(text: &str) -> (&str, ParseError) {
    let errors = parse(text).expect_err(text);
    assert_eq!(errors.len(), 1, "`{text}`: {errors:?}");
    (&text[errors[0].span.clone()], errors[0].clone())
}

#[test]
fn and_and_or_bind_equally_from_left_to_right_and_not_binds_tightest() {
    assert_eq!(canonical("tcp or udp and ip"), "(tcp or udp) and ip");
    assert_eq!(canonical("tcp and udp or ip && arp"), "((tcp and udp) or ip) and arp");
    assert_eq!(canonical("!tcp and udp"), "not tcp and udp");
    assert_eq!(canonical("tcp and (udp or ip)"), "tcp and (udp or ip)");
}

#[test]
fn a_bare_value_repeats_the_qualifiers_before_it() {
    assert_eq!(canonical("tcp src port 80 or 443"), "tcp src port 80 or tcp src port 443");
    assert_eq!(canonical("host 10.0.0.1 and not 10.0.0.2"), "host 10.0.0.1 and not host 10.0.0.2");
    assert_eq!(canonical("port (80 or 443)"), "port 80 or port 443");
    assert_eq!(canonical("port 22 or (tcp) or 443"), "port 22 or tcp or port 443");
    assert_eq!(canonical("port not 80"), "not port 80");
}

#[test]
fn addresses_are_read_as_libpcap_reads_them() {
    assert_eq!(canonical("net 10.1"), "net 10.1.0.0/16");
    assert_eq!(canonical("net 10"), "net 10.0.0.0/8");
    assert_eq!(canonical("host 10"), "host 0.0.0.10");
    assert_eq!(canonical("net 10.1 mask 255.255.0.0"), "net 10.1.0.0/16");
    assert_eq!(canonical("portrange 10-5"), "portrange 5-10");
    assert_eq!(canonical("port 010"), "port 8");
    assert_eq!(canonical("ether src aabb.ccdd.eeff"), "ether src host aa:bb:cc:dd:ee:ff");
    assert_eq!(canonical("vlan(5)"), "vlan 5");
    assert_eq!(canonical("src or dst host 10.0.0.1"), "host 10.0.0.1");
}

#[test]
fn extensions_take_named_addresses_and_tags() {
    let lookup =
        |name: &str| (name == "my_net").then(|| Net::new([10, 12, 30, 0].into(), 24).unwrap());
    for text in
        ["dst ip my_net", "dst net my_net", "dst host my_net", "dst my_net", "dst ip 10.12.30.0/24"]
    {
        assert_eq!(
            parse_with(text, &lookup).unwrap().to_string(),
            "dst net 10.12.30.0/24",
            "{text}"
        );
    }
    assert_eq!(parse("chk.ip and tcp").unwrap().tags(), [("chk", "ip")]);
    assert_eq!(parse("").unwrap(), Expr::True);
}

#[test]
fn numbers_are_read_as_libpcap_reads_them() {
    assert_eq!(canonical("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn"), "tcp[13] & (2 | 16) = 2");
    assert_eq!(canonical("ip[2:2]-20*2>len"), "ip[2:2] - (20 * 2) > len");
    assert_eq!(canonical("len & 3 | 4 + 1 = 0"), "(len & 3) | (4 + 1) = 0");
    // These two have no rank there: they take all that follows.
    assert_eq!(canonical("len % 3 + 1 = 0"), "len % (3 + 1) = 0");
    assert_eq!(canonical("2 * len ^ 3 + 1 = 0"), "2 * (len ^ (3 + 1)) = 0");
    assert_eq!(canonical("(len - 14) * 2 <= 0x20 and (tcp)"), "(len - 14) * 2 <= 32 and tcp");
    assert_eq!(canonical("port 80 or (5 < len)"), "port 80 or 5 < len");
    assert_eq!(canonical("less 64 or greater 1500"), "len <= 64 or len >= 1500");
    assert_eq!(canonical("ip[4-2:2] = 1"), "ip[4 - 2:2] = 1");
}

#[test]
fn tags_ports_and_extension_headers_stand_beside_libpcaps_language() {
    let text = r#"http.url ~ "^/admin\d" and ids.score >= 0x10 or not ingress == 2-5 and fw.safe"#;
    let expr = parse(text).unwrap();
    assert_eq!(
        expr.to_string(),
        r#"((http.url ~ "^/admin\d" and ids.score >= 16) or not ingress == 2-5) and fw.safe"#
    );
    assert_eq!(expr.tags(), [("fw", "safe")]);
    let tests: Vec<_> = expr.tag_tests().iter().map(|(s, n, _)| format!("{s}.{n}")).collect();
    assert_eq!(tests, ["http.url", "ids.score"]);
    assert_eq!(canonical(r#"a.b ~ "\"x\"""#), r#"a.b ~ "\"x\"""#);
    assert_eq!(
        canonical("any tcp or any udp port 53 or 67"),
        "any proto 6 or any udp port 53 or any udp port 67"
    );
    assert_eq!(canonical("any src portrange 5-1"), "any src portrange 1-5");
    assert_eq!(canonical("any ip or any ip6 or any arp"), "any ip or any ip6 or any arp");
    assert_eq!(
        canonical("any src net 10.0.0.0/8 or 10.0.0.1 or any dst ip 2001:db8::/32"),
        "any src net 10.0.0.0/8 or any src host 10.0.0.1 or any dst net 2001:db8::/32"
    );
    assert_eq!(canonical("any ip src 10.0.0.1"), "any ip src host 10.0.0.1");
    assert_eq!(canonical("tos 0xb8 and any proto gre"), "tos 184 and any proto 47");
}

#[test]
fn a_test_of_a_tag_without_a_place_is_refused_by_name() {
    for (text, test) in
        [("ids.score == 3", "ids.score == 3"), ("tcp and not http.url ~ \"x\"", "http.url ~ \"x\"")]
    {
        let expr = parse(text).unwrap();
        let resolved = expr.resolve_tags(&mut |_, _| Some(true));
        let error = Filter::compile(&resolved).unwrap_err();
        assert!(matches!(error, CompileError::Value { .. }), "{text}: {error}");
        assert!(error.to_string().contains(test), "{text}: {error}");
    }
}

#[test]
fn a_filter_that_asks_for_the_port_is_compiled_for_each_port() {
    let expr = parse("(ingress == 2-5 and tcp) or (ingress == 1 and udp)").unwrap();
    assert!(expr.asks_ingress());
    assert!(matches!(Filter::compile(&expr), Err(CompileError::Value { .. })));
    for (port, same) in [(0, "false"), (1, "udp"), (2, "tcp"), (5, "tcp"), (6, "false")] {
        let here = expr.resolve_ingress(port);
        assert!(!here.asks_ingress(), "{here}");
        assert_eq!(here.to_string(), same, "port {port}");
        assert!(Filter::compile(&here).is_ok());
    }
    // A known port does not move what `vlan` has moved.
    let expr = parse("(ingress == 1 or vlan) and tcp").unwrap();
    assert_eq!(expr.resolve_ingress(1).to_string(), "(true or vlan) and tcp");
    assert_eq!(expr.resolve_ingress(2).to_string(), "vlan and tcp");
}

/// Frames of tcp from port 80 behind whatever `any` looks through.
fn wrapped(before: &[u8], ip6_chain: &[(u8, &[u8])]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend(before);
    let next = |i: usize| ip6_chain.get(i).map_or(6, |(kind, _)| *kind);
    frame.extend([0x60, 0, 0, 0, 0, 40, next(0), 64]);
    frame.extend([0; 32]);
    for (i, (_, rest)) in ip6_chain.iter().enumerate() {
        frame.push(next(i + 1));
        frame.extend(*rest);
    }
    frame.extend([0, 80, 1, 2, 0, 0, 0, 0]);
    frame
}

#[test]
fn any_looks_through_tags_labels_sessions_and_extension_headers() {
    let (ip6, hop): (&[u8], (u8, &[u8])) = (&[0x86, 0xdd], (0, &[0, 0, 0, 0, 0, 0, 0]));
    let tagged = [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xdd];
    let labelled = [0x88, 0x47, 0, 1, 0x20, 64, 0, 1, 0x31, 64];
    let session = [0x81, 0, 0, 1, 0x88, 0x64, 0x11, 0, 0, 7, 0, 50, 0, 0x57];
    let routing: (u8, &[u8]) = (43, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let authentication: (u8, &[u8]) = (51, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let first: (u8, &[u8]) = (44, &[0, 0, 1, 0, 0, 0, 1]);
    let later: (u8, &[u8]) = (44, &[0, 0, 8, 0, 0, 0, 1]);
    let (any_tcp, any_port) = (parse("any tcp").unwrap(), parse("any tcp src port 80").unwrap());
    let has_port = |frame: &[u8]| Filter::compile(&any_port).unwrap().matches(frame);
    let has_tcp = |frame: &[u8]| Filter::compile(&any_tcp).unwrap().matches(frame);
    for frame in [
        wrapped(ip6, &[]),
        wrapped(&tagged, &[]),
        wrapped(&labelled, &[hop]),
        wrapped(&session, &[]),
        wrapped(ip6, &[hop, routing, authentication, first]),
        wrapped(&tagged, &[(60, &[0, 0, 0, 0, 0, 0, 0]), (135, &[0, 0, 0, 0, 0, 0, 0])]),
    ] {
        assert!(has_tcp(&frame) && has_port(&frame), "{frame:02x?}");
        assert!(!has_tcp(&frame[..20]), "cut: {frame:02x?}");
    }
    let later = wrapped(ip6, &[later]);
    assert!(has_tcp(&later) && !has_port(&later), "a later fragment has a protocol and no ports");
    let esp: &[u8] = &[0, 0, 0, 0, 0, 0, 0];
    assert!(!has_tcp(&wrapped(ip6, &[(50, esp)])), "what is encrypted is not seen");
    // More layers than are looked through.
    let deep: Vec<u8> = [0x81, 0, 0, 1].repeat(40).into_iter().chain(ip6.iter().copied()).collect();
    assert!(!has_tcp(&wrapped(&deep, &[])));
}

#[test]
fn any_finds_ip_arp_and_addresses_behind_tags_labels_and_sessions() {
    let arp: &[u8] =
        &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    let four: &[u8] = &[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 224, 0, 0, 5];
    let mut six = vec![0x60, 0, 0, 0, 0, 0, 59, 64, 0x20, 1, 0x0d, 0xb8];
    six.extend([0; 11].iter().chain(&[1, 0xff, 2]).chain(&[0; 14]));
    let tag: &[u8] = &[0x81, 0, 0, 5];
    let label: &[u8] = &[0x88, 0x47, 0, 1, 0x21, 64];
    let session = |ppp: u8| vec![0x88, 0x64, 0x11, 0, 0, 7, 0, 50, 0, ppp];
    let frame = |parts: &[&[u8]]| {
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], parts.concat().as_slice()].concat()
    };
    let ip: &[u8] = &[8, 0];
    let fours = [
        frame(&[ip, four]),
        frame(&[tag, tag, ip, four]),
        frame(&[tag, label, four]),
        frame(&[tag, &session(0x21), four]),
    ];
    let sixes = [
        frame(&[&[0x86, 0xdd], &six]),
        frame(&[tag, &[0x86, 0xdd], &six]),
        frame(&[label, &six]),
        frame(&[&session(0x57), &six]),
    ];
    let arps = [frame(&[&[8, 6], arp]), frame(&[tag, &[8, 6], arp])];
    let (of4, of6, of_arp) = (1, 2, 4);
    for (text, wanted) in [
        ("any ip", of4),
        ("any ip6", of6),
        ("any arp", of_arp),
        ("any rarp", 0),
        ("any host 10.0.0.1", of4 | of_arp),
        ("any ip src host 10.0.0.1", of4),
        ("any arp src 10.0.0.1", of_arp),
        ("any dst net 10.0.0.0/8", of_arp),
        ("any ip dst net 224.0.0.0/3", of4),
        ("any src net 2001:db8::/32", of6),
        ("any dst host 2001:db8::1", 0),
        ("any ip6 dst net ff00::/8", of6),
        ("any net 0.0.0.0/0", of4 | of_arp),
    ] {
        let filter = Filter::compile(&parse(text).unwrap()).unwrap();
        for (list, bit) in [(&fours[..], of4), (&sixes, of6), (&arps, of_arp)] {
            for frame in list {
                let matches = filter.matches(frame.as_slice());
                assert_eq!(matches, wanted & bit != 0, "`{text}`: {frame:02x?}");
            }
        }
    }
    let host = Filter::compile(&parse("any host 10.0.0.1").unwrap()).unwrap();
    assert!(!host.matches(&fours[1][..36]), "a packet that ends in an address has none");
}

#[test]
fn warnings_name_the_term_and_what_to_write() {
    let said = |text: &str| -> Vec<String> {
        warnings(&parse(text).unwrap()).iter().map(ToString::to_string).collect()
    };
    for (text, term, instead) in [
        ("tcp", "`tcp` misses packets with a VLAN tag", "`any tcp`"),
        ("udp dst port 53", "`udp dst port 53` misses IPv6", "`any udp dst port 53`"),
        ("port 80", "`port 80` misses all fragments", "the first"),
        ("vlan 5 or ip", "`vlan 5` moves where `ip` looks", "left of it"),
        ("not (mpls and ip) and ip6", "`mpls` moves where `ip6` looks", "left of it"),
        ("tcp[13] & 2 != 0", "looks at IPv4 only", "IPv6"),
        ("2 + tcp[0] = 1", "only the left operand", "`tcp and`"),
        ("ip protochain 6", "authentication header", "`any proto N`"),
        ("carp", "CARP and VRRP alike", "112"),
        ("ip", "`ip` misses packets with a VLAN tag", "`any ip`"),
        ("ip6", "`ip6` misses packets with a VLAN tag", "`any ip6`"),
        ("arp", "`arp` misses packets with a VLAN tag", "`any arp`"),
        ("host 10.0.0.1", "`host 10.0.0.1` misses packets with a VLAN", "`any host 10.0.0.1`"),
        ("src 10.0.0.1", "`src host 10.0.0.1` misses", "`any src host 10.0.0.1`"),
        ("ip6 dst net 2001:db8::/32", "misses packets", "`any ip6 dst net 2001:db8::/32`"),
        ("ip multicast", "misses packets with a VLAN tag", "`any ip dst net 224.0.0.0/3`"),
        ("ip6 multicast", "misses packets with a VLAN tag", "`any ip6 dst net ff00::/8`"),
        ("tos 184", "`tos 184` misses packets", "`(tos 184) or (vlan and (tos 184))`"),
        ("ip[8] < 5", "`ip[8] < 5` misses packets", "`(ip[8] < 5) or (vlan and (ip[8] < 5))`"),
        // `vlan` moves what stands right of it.
        (
            "tos 184 and len > 5",
            "`tos 184` misses packets",
            "`(tos 184 and len > 5) or (vlan and (tos 184 and len > 5))`",
        ),
    ] {
        let said = said(text);
        assert!(said.iter().any(|w| w.contains(term) && w.contains(instead)), "`{text}`: {said:?}");
    }
    for text in [
        "any ip",
        "any tcp",
        "any src net 10.0.0.0/8",
        "vlan 5 and ip",
        "ether src 2:0:0:0:0:1",
        "ether[0] = 2",
        "len > 5",
        "mpls and ip[0] = 1",
        // What is told to be written is not told of again.
        "(tos 184) or (vlan and (tos 184))",
        "any ip6 dst net ff00::/8",
    ] {
        assert_eq!(said(text), Vec::<String>::new(), "{text}");
    }
    assert!(
        !said("vlan and tcp").iter().any(|w| w.contains("VLAN tag")),
        "who writes `vlan` knows of tags"
    );
}

#[test]
fn errors_point_at_the_text_and_say_what_to_write() {
    for (text, at, instead) in [
        ("tpc and udp", "tpc", "`tcp`"),
        ("tcp prot 80", "prot", "`port`"),
        ("host example.com", "example.com", "the address itself"),
        ("port http", "http", "the port's number"),
        ("net 10.1.2.3/24", "10.1.2.3/24", "`net 10.1.2.0/24`"),
        ("host 10.0.0.0/8", "10.0.0.0/8", "`net`"),
        ("tcp host 10.0.0.1", "tcp host", "`ip`, `ip6`"),
        ("ip6 host 10.0.0.1", "10.0.0.1", "`ip`"),
        ("port 65536", "65536", "a number from 0 to 65535"),
        ("port 80-90", "80-90", "`portrange A-B`"),
        ("vlan 4096", "4096", "a number from 0 to 4095"),
        ("vlan 5 or 6", "6", "what it is"),
        ("(tcp or udp", "(", "a `)`"),
        ("tcp)", ")", "a `(`"),
        ("tcp and", "", "a term"),
        ("tcp udp", "udp", "`and` or `or`"),
        ("gateway 10.0.0.1", "gateway", "names are never looked up"),
        ("byte 3 & 5", "byte", "`ether[3] & 5 != 0`"),
        ("inbound", "inbound", "`ingress == N`"),
        ("ip broadcast", "ip broadcast", "`dst host 10.0.0.255`"),
        ("tcp[13 = 2", "[", "`]`"),
        ("tcp[13:3] = 2", "3", "1, 2 or 4"),
        ("tcp[13]", "", "a comparison"),
        ("iso[0] = 1", "iso", "`ether`"),
        ("ip[0] / 0 = 1", "0", "not 0"),
        ("ip[0] << 32 = 1", "32", "0 to 31"),
        ("mpls 1048576", "1048576", "a number from 0 to 1048575"),
        ("mpls and arp", "arp", "left of `mpls`"),
        ("tcp or mpls and vlan 5", "vlan 5", "`vlan` left of `mpls`"),
        ("pppoes and (ip or ether src 2:0:0:0:0:1)", "2:0:0:0:0:1", "left of `pppoes`"),
        ("decnet host 64.1", "64.1", "0.0 to 63.1023"),
        ("tos 256", "256", "0 to 255"),
        ("any ether", "any ether", "`any tcp`"),
        ("any tcp host 10.0.0.1", "any tcp host", "`any src net 10.0.0.0/8`"),
        ("any ip port 80", "any ip port", "`any udp port 53`"),
        ("any ip6 host 10.0.0.1", "10.0.0.1", "`ip`"),
        ("any net 10.0.0.1/8", "10.0.0.1/8", "`net 10.0.0.0/8`"),
        ("http.url ~ \"(\"", "\"(\"", "crate `regex`"),
        ("http.url ~ 3", "3", "in quotes"),
        ("ids.score > high", "high", "a number"),
        ("ingress = high", "high", "`ingress == 2`"),
        ("net 10/8", "10/8", "all four bytes"),
        ("ether", "ether", "`ether host`"),
        ("tcp & udp", "&", "`and`"),
        ("host 02:00:00:00:00:01", "02:00:00:00:00:01", "`ether` before"),
    ] {
        let (span, e) = error(text);
        assert_eq!(span, at, "`{text}`: {e}");
        assert!(e.instead().contains(instead), "`{text}`: {e}");
    }
}

#[test]
fn several_errors_are_told_in_one_pass() {
    let errors = parse("tpc and port http or vlan 9999").unwrap_err();
    assert_eq!(errors.iter().map(|e| e.span.start).collect::<Vec<_>>(), [0, 13, 26]);
}

#[test]
fn hostile_text_is_refused_and_never_overflows() {
    for text in [
        "(".repeat(30_000),
        "!".repeat(30_000) + "tcp",
        "tcp and udp or ".repeat(3_000) + "ip",
        "port 1 or (".repeat(3_000),
        "ip[".repeat(15_000),
        "len + ".repeat(9_000) + "1 = 2",
        "len % ".repeat(9_000) + "1 = 2",
        "-".repeat(30_000) + "1 = 2",
        "len = ".to_owned() + &"(".repeat(30_000),
        "any tcp or (".repeat(3_000),
    ] {
        let errors = parse(&text).unwrap_err();
        assert!(errors.iter().any(|e| e.why == Why::TooDeep), "{:?}", errors[0]);
    }
    let deep = "(".repeat(MAX_DEPTH) + "tcp" + &")".repeat(MAX_DEPTH);
    assert_eq!(canonical(&deep), "tcp");
    let long = "x".repeat(MAX_TEXT + 1);
    assert!(matches!(parse(&long).unwrap_err()[0].why, Why::TooLong { .. }));
    assert!(parse(&"port 1 or ".repeat(6_000)).unwrap_err().len() == 1);
}

#[test]
fn resolving_tags_folds_constants_but_keeps_the_shift_of_a_vlan() {
    let resolved =
        |text: &str, value| parse(text).unwrap().resolve_tags(&mut |_, _| Some(value)).to_string();
    assert_eq!(resolved("fw.safe and tcp", true), "tcp");
    assert_eq!(resolved("fw.safe and tcp", false), "false");
    assert_eq!(resolved("not fw.safe or tcp", false), "true");
    assert_eq!(resolved("(fw.safe or vlan) and tcp", true), "(true or vlan) and tcp");
    assert_eq!(
        resolved("(fw.safe or vlan) and ether src 02:00:00:00:00:01", true),
        "ether src host 02:00:00:00:00:01"
    );
    let kept =
        parse("a.b or c.d").unwrap().resolve_tags(&mut |scope, _| (scope == "a").then_some(false));
    assert_eq!(kept.to_string(), "c.d");
    assert!(Filter::compile(&kept).is_err());
}

#[test]
fn a_filter_survives_serialisation() {
    let filter = Filter::compile(&parse("vlan 5 and tcp port 80 or net 10").unwrap()).unwrap();
    let text = serde_json::to_string(&filter).unwrap();
    assert_eq!(serde_json::from_str::<Filter>(&text).unwrap(), filter);
}

proptest! {
    #[test]
    fn printing_and_parsing_again_changes_nothing(seed: u64) {
        let expr = common::extended(&mut common::Random(seed), 4);
        prop_assert_eq!(parse(&expr.to_string()), Ok(expr));
    }

    #[test]
    fn extensions_compiled_equal_the_naive_meaning(seed: u64) {
        let mut r = common::Random(seed);
        let expr = common::extended(&mut r, 3);
        let filter = Filter::compile(&expr).unwrap();
        for _ in 0..16 {
            let packet = common::frames::frame(&mut r);
            prop_assert_eq!(filter.matches(&packet[..]), weir_filter::naive_matches(&expr, &packet), "{}", expr);
        }
    }

    #[test]
    fn folding_never_changes_what_matches(seed: u64, value: bool) {
        let mut r = common::Random(seed);
        let tag = Expr::Tag { scope: "a".to_owned(), name: "b".to_owned() };
        let e = Expr::and(vec![
            Expr::or(vec![common::expression(&mut r, 2), tag.clone(), common::expression(&mut r, 2)]),
            Expr::not(Expr::and(vec![tag, common::expression(&mut r, 2)])),
            common::expression(&mut r, 2),
        ]);
        // Offsets may end up where nothing of the rest can stand.
        if Filter::compile(&e.resolve_tags(&mut |_, _| Some(value))).is_err() {
            return Ok(());
        }
        let folded = e.resolve_tags(&mut |_, _| Some(value));
        // The same with a constant that no folding sees: every frame has, or has not, these bytes.
        let constant = if value { "(ip or not ip)" } else { "(ip and not ip)" };
        let Ok(plain) = parse(&e.to_string().replace("a.b", constant)) else {
            return Ok(());
        };
        for _ in 0..8 {
            let packet = common::frames::frame(&mut r);
            prop_assert_eq!(
                Filter::compile(&folded).unwrap().matches(&packet[..]),
                weir_filter::naive_matches(&plain, &packet)
            );
        }
    }

    #[test]
    fn parsing_arbitrary_text_never_panics(text in "\\PC{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn parsing_arbitrary_words_never_panics(
        words in proptest::collection::vec(proptest::sample::select(vec![
            "ip", "tcp", "src", "dst", "or", "and", "not", "(", ")", "host", "net", "port", "portrange", "ether",
            "proto", "vlan", "10.1", "10", "80", "1-2", "/", "mask", "::1", "a.b", "name", "é", "[", "!", "2:0:0:0:0:1",
            "]", "=", "<", "&", "%", "-", "len", "mpls", "pppoes", "any", "tos", "ingress", "~", "\"x\"", "\\tcp", "llc",
            "multicast", "protochain", "decnet", "iso", "tcp-syn", "less",
        ]), 0..16),
    ) {
        let text = words.join(" ");
        match parse(&text) {
            // Whatever parses, prints as something that parses to the same.
            Ok(e) => prop_assert_eq!(parse(&e.to_string()), Ok(e)),
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for e in errors {
                    prop_assert!(text.get(e.span.clone()).is_some(), "{:?}", e);
                    prop_assert!(!e.instead().is_empty());
                }
            }
        }
    }
}
