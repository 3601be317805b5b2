//! What the text means, and what is said about text that means nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use proptest::prelude::*;
use weir_filter::{Expr, Filter, MAX_DEPTH, MAX_TEXT, Net, ParseError, Why, parse, parse_with};

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
        ("igmp", "igmp", "`ip proto 2`"),
        ("net 10/8", "10/8", "all four bytes"),
        ("ether", "ether", "`ether host`"),
        ("tcp[13] = 2", "[", "terms like"),
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
        let expr = common::expression(&mut common::Random(seed), 4);
        prop_assert_eq!(parse(&expr.to_string()), Ok(expr));
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
        let folded = e.resolve_tags(&mut |_, _| Some(value));
        // The same with a constant that no folding sees: every frame has, or has not, these bytes.
        let constant = if value { "(ip or not ip)" } else { "(ip and not ip)" };
        let plain = parse(&e.to_string().replace("a.b", constant)).unwrap();
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
