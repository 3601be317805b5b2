//! HttpParser.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, ethernet, root, v4, v6};
use serde_json::{Value, json};
use std::net::Ipv6Addr;

use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nf::{Env, TagPlace, TagSpec, Take, Walk};
use weir_nfs::http_parser::HttpParser;
use weir_nfs::http_parser::order::{Came, MOST_EARLY, MOST_EARLY_BYTES, Order};

const SYN: u8 = 2;
const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// From the client, `at` bytes behind the stream's start.
fn ask(at: usize, payload: &[u8]) -> Vec<u8> {
    v4().tcp(5000, 8080, DATA).seq(1000 + at as u32, 0).payload(payload).build()
}

/// From the server.
fn answer(at: usize, payload: &[u8]) -> Vec<u8> {
    let back = Frame::ipv4([192, 0, 2, 2], [192, 0, 2, 10]);
    back.tcp(8080, 5000, DATA).seq(77 + at as u32, 0).payload(payload).build()
}

fn report(frames: &[Vec<u8>]) -> Value {
    let mut bench = Bench::new::<HttpParser>(json!(null)).unwrap();
    let seen = bench.run(frames);
    assert!(seen.iter().zip(frames).all(|(s, f)| s.verdict == Ok("out") && s.bytes == *f));
    bench.report()
}

/// What is counted of such frames, without what is 0 or nothing.
fn counts(frames: &[Vec<u8>]) -> Value {
    let mut report = report(frames);
    report.as_object_mut().unwrap().retain(|_, v| *v != json!(0) && *v != json!({}));
    report
}

#[test]
fn messages_are_found_however_segments_cut_them() {
    let asked = [GET, b"POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nGET", GET].concat();
    let chunked = b"HTTP/1.1 404 No\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5;x=y\r\nHTTP/\r\n0\r\nA: b\r\n\r\n";
    let answered = [OK, b"HTTP/1.1 100 Continue\r\n\r\n", chunked, OK].concat();
    for size in [1, 2, 3, 7, 20, 64, 2000] {
        let mut frames = vec![v4().tcp(5000, 8080, SYN).seq(999, 0).build()];
        let mut at = 0;
        for piece in asked.chunks(size) {
            frames.push(ask(at, piece));
            at += piece.len();
        }
        let mut at = 0;
        for piece in answered.chunks(size) {
            frames.push(answer(at, piece));
            at += piece.len();
        }
        let expected = json!({
            "requests": {"GET": 2, "POST": 1},
            "responses": {"100": 1, "200": 2, "404": 1},
        });
        assert_eq!(counts(&frames), expected, "segments of {size}");
    }
}

#[test]
fn ipv6_and_vlans_are_looked_into() {
    let end = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    let frames = [
        v6().extensions(common::HOP_BY_HOP_AND_DEST_OPTS).vlan(7).tcp(1, 80, DATA).payload(GET),
        Frame::ipv6(end(2), end(0x10)).vlan(7).tcp(80, 1, DATA).payload(OK),
    ];
    let frames = frames.map(|f| f.build());
    assert_eq!(counts(&frames), json!({"requests": {"GET": 1}, "responses": {"200": 1}}));
}

#[test]
fn segments_that_come_early_wait_and_repeated_ones_count_once() {
    let all: Vec<_> =
        (0..4).map(|i| ask(i * 10, &GET[i * 10..GET.len().min(i * 10 + 10)])).collect();
    let [a, b, c, d] = &all[..] else { panic!() };
    let order = [a, c, d, a, b, c].map(Clone::clone);
    let expected = json!({"requests": {"GET": 1}, "early": 2, "repeated": 2});
    assert_eq!(counts(&order), expected);
    // Cut anew: the second half of one is the first half of another.
    let overlapping = [ask(0, &GET[..20]), ask(10, &GET[10..])];
    assert_eq!(counts(&overlapping), json!({"requests": {"GET": 1}}));
}

#[test]
fn what_is_missing_is_given_up_when_too_much_waits() {
    // The second request's first bytes never come; the fourth begins a segment.
    let mut frames = vec![ask(0, GET)];
    for i in 0..20 {
        frames.push(ask(GET.len() + 10 + i * GET.len(), GET));
    }
    let counts = counts(&frames);
    assert_eq!((&counts["given_up"], &counts["lost"]), (&json!(1), &json!(1)));
    assert_eq!((&counts["regained"], &counts["requests"]), (&json!(1), &json!({"GET": 21})));
    // In a body that is no loss.
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    let mut frames = vec![ask(0, GET), answer(0, head)];
    for i in 0..9 {
        frames.push(answer(head.len() + 1000 + i * 11_000, &[b'x'; 11_000]));
    }
    frames.push(answer(head.len() + 100_000, OK));
    let expected = json!({"requests": {"GET": 1}, "responses": {"200": 2}});
    let mut counts = self::counts(&frames);
    let counts = counts.as_object_mut().unwrap();
    assert_eq!(counts.remove("given_up"), Some(json!(1)));
    counts.remove("early");
    assert_eq!(Value::Object(counts.clone()), expected);
}

#[test]
fn what_waits_is_within_its_bounds_after_every_segment_whatever_comes() {
    let mut order = Order::default();
    order.begin(0);
    // Small ones with gaps between, then one that takes nearly all: several gaps must go.
    for i in 1..=7 {
        assert_eq!(order.take(i * 3000, &[b'x'; 2000], 0, usize::MAX, &mut |_| ()), Came::Early);
    }
    order.take(100_000, &[b'x'; 16_000], 0, usize::MAX, &mut |_| ());
    assert!(order.waiting() <= MOST_EARLY_BYTES, "{} bytes wait", order.waiting());
    // No room: what waits must not become more.
    let mut order = Order::default();
    order.begin(0);
    order.take(10, &[b'x'; 100], 0, 1000, &mut |_| ());
    let before = order.waiting();
    let came = order.take(1_000_000, &[b'x'; 5000], 0, 0, &mut |_| ());
    assert!(order.waiting() <= before, "{} bytes wait", order.waiting());
    assert_eq!(came, Came::GivenUp);
    // Segments of which the capture has no byte take memory too.
    let mut order = Order::default();
    order.begin(0);
    assert_eq!(order.take(10, &[], 5, 0, &mut |_| ()), Came::GivenUp);
    for i in 1..100 {
        order.take(i * 100, &[], 5, usize::MAX, &mut |_| ());
    }
    assert!(order.waiting() <= MOST_EARLY * 64);
}

#[test]
fn what_waits_in_flows_that_move_away_gives_its_room_back() {
    let mut bench = Bench::new::<HttpParser>(json!(null)).unwrap();
    let early = |port: u16| {
        let from = |seq| v4().tcp(port, 8080, DATA).seq(seq, 0);
        [from(0).payload(b"G").build(), from(1000).payload(&[b'x'; 8000]).build()]
    };
    // Much more in all than may wait at a time: each half is taken away, as a worker's flows are.
    for round in 0..4u16 {
        for port in 1..=1000 {
            bench.run(&early(round * 1000 + port));
        }
        let mut walk = Walk::default();
        let take = |bench: &mut Bench, walk: &mut Walk| {
            let (mut chosen, mut to) = (|_: &_, _| true, |_: &_, _: &[u8]| ());
            let take = Take { look: 64, take: 64, chosen: &mut chosen, to: &mut to };
            bench.instance().take_flows(walk, take).unwrap()
        };
        while take(&mut bench, &mut walk) {}
    }
    assert_eq!(bench.report()["given_up"], 0);
}

#[test]
fn a_connection_that_is_seen_from_its_middle_is_taken_up_whoever_speaks_first() {
    for (first, behind) in
        [(answer(0, b"middle of a body"), (0, 16)), (ask(0, b"\x16\x03 none"), (7, 0))]
    {
        let (asked, answered) = behind;
        let next = [answer(answered, OK), ask(asked, GET), answer(answered + OK.len(), OK)];
        let counts = counts(&[&[first][..], &next[..]].concat());
        assert_eq!(counts["requests"], json!({"GET": 1}));
        assert_eq!(counts["responses"], json!({"200": 2}));
    }
}

#[test]
fn other_protocols_and_what_http_becomes_are_left_alone() {
    let tls = [ask(0, b"\x16\x03\x01\x02\x00"), answer(0, b"\x16\x03\x03"), ask(5, b"GARBAGE")];
    assert_eq!(counts(&tls), json!({}));
    let upgrade = [
        ask(0, b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
        answer(0, b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        answer(36, OK),
    ];
    let expected = json!({"requests": {"GET": 1}, "responses": {"101": 1}, "tunnels": 1});
    assert_eq!(counts(&upgrade), expected);
}

#[test]
fn tags_say_what_begins_in_a_packet_or_goes_on_in_it() {
    let text = |name: &str, slot, patterns: &[&str]| TagSpec {
        name: name.to_owned(),
        place: TagPlace::Text {
            slot,
            bit: 0,
            patterns: patterns.iter().map(|p| (*p).to_owned()).collect(),
        },
    };
    let number = TagSpec { name: "status".to_owned(), place: TagPlace::Number { slot: 1 } };
    let env = Env::new(&[text("method", 0, &["^GET$", "^POST$"]), number], 1).unwrap();
    let mut bench = Bench::with_env::<HttpParser>(json!(null), &env).unwrap();
    let post = b"POST /b HTTP/1.1\r\nContent-Length: 10\r\n\r\n";
    let frames = [
        ask(0, GET),
        ask(GET.len(), post),
        ask(GET.len() + post.len(), b"0123456789"),
        answer(0, &OK[..OK.len() - 2]),
        answer(OK.len() - 2, b"loHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    ];
    let seen: Vec<Seen> = bench.run(&frames);
    let tags: Vec<_> = seen.iter().map(|s| (s.tags[0], s.tags[1])).collect();
    // A number tag holds its number plus one.
    assert_eq!(tags, [(1, 0), (2, 0), (2, 0), (0, 201), (0, 501)]);
}

/// Against what tshark says of them (`../shared/traces/MANIFEST.md`).
#[test]
fn requests_of_captures_are_all_found() {
    for (name, requests) in [
        ("http-browsing-337req.pcap", 337),
        ("http-pipelined-retransmissions.pcap", 287),
        ("http-chunked-responses.pcap", 112),
        ("http-attack-urls-797req.pcap", 797),
        ("http-requests-split.pcapng", 37),
    ] {
        let path = root().join("../shared/traces").join(name);
        if !path.exists() {
            println!("skipped: no {}", path.display());
            continue;
        }
        let packets = ethernet(&path);
        let cut: Vec<_> = packets.iter().map(|(bytes, wire)| (&bytes[..], *wire, 7)).collect();
        let mut bench = Bench::new::<HttpParser>(json!(null)).unwrap();
        bench.run_cut(&cut);
        let report = bench.report();
        let found: u64 =
            report["requests"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        println!("{name}: {report}");
        assert_eq!(found, requests, "{name}");
    }
}
