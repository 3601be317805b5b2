//! HttpClassifier and CountUrl.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, v4, v6, wrapped};
use proptest::prelude::*;
use serde_json::json;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{Merge, serde_json::Value};
use weir_nfs::count_url::{CountUrl, LONGEST, Urls};
use weir_nfs::http_classifier::HttpClassifier;

fn outputs(frames: &[Vec<u8>]) -> Vec<&'static str> {
    let mut bench = Bench::new::<HttpClassifier>(Value::Null).unwrap();
    bench.run(frames).iter().map(|s| s.output()).collect()
}

fn segment(payload: &[u8]) -> Vec<u8> {
    v4().tcp(40_000, 80, DATA).payload(payload).build()
}

#[test]
fn requests_and_answers_are_http_in_every_wrapping_and_on_any_port() {
    let long = [b"GET /".to_vec(), vec![b'x'; 1400]].concat();
    for http in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"HTTP/1.1 404 Not", &long] {
        assert!(outputs(&wrapped(http)).iter().all(|&o| o == "http"));
    }
}

#[test]
fn everything_else_is_other() {
    let tcp = v4().tcp(40_000, 80, DATA);
    let request = b"GET / HTTP/1.1\r\n\r\n";
    let mut frames = vec![
        tcp.build(),
        tcp.pad_to(80).build(),
        v4().udp(1, 80).payload(request).build(),
        Frame::other(0x0806).payload(request).build(),
        Frame::other(0x88cc).vlan(7).payload(request).build(),
        tcp.payload(b"GET me RTSP/1.0\r\n\r\n").build(),
        tcp.payload(b"EHLO example.org\r\n").build(),
        tcp.payload(&[0x16, 3, 1, 2, 0, 1]).build(),
        tcp.payload(request).build()[..50].to_vec(),
        vec![],
    ];
    let body = [vec![b'a'; 100], b"GET / HTTP/1.1\r\n\r\n".to_vec()].concat();
    frames.extend(wrapped(&body));
    for pieces in [tcp.payload(&body), v6().tcp(1, 80, DATA).payload(&body)] {
        frames.extend(pieces.fragments(64).split_off(1));
    }
    assert_eq!(outputs(&frames), vec!["other"; frames.len()]);
}

#[test]
fn a_first_fragment_is_judged_by_the_payload_it_has() {
    let whole = v4().tcp(1, 80, DATA).payload(b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(outputs(&whole.fragments(40)), ["http", "other"]);
}

proptest! {
    /// Looking at the first bytes only must not change the answer.
    #[test]
    fn the_answer_is_that_of_the_whole_payload(
        start in "(\r?\n){0,6}(GET|PUT|PROPFIND|HTTP/1.1|get|GE|X)?[ \t]{0,2}(/|http://|foo|200)?",
        middle in prop::collection::vec(b' '..b'z', 0..700),
        end in "( HTTP/1.1| RTSP/1.0|)?(\r\n\r\n|)",
    ) {
        let payload = [start.as_bytes(), &middle, end.as_bytes()].concat();
        let expected = if weir_http::is_http(&payload) { "http" } else { "other" };
        prop_assert_eq!(outputs(&[segment(&payload)]), [expected]);
    }
}

fn count(config: Value, payloads: &[&[u8]]) -> Value {
    let mut bench = Bench::new::<CountUrl>(config).unwrap();
    let frames: Vec<_> = payloads.iter().map(|p| segment(p)).collect();
    let seen = bench.run(&frames);
    assert!(seen.iter().zip(&frames).all(|(s, f)| s.output() == "out" && s.bytes == *f));
    bench.report()
}

#[test]
fn urls_are_counted_by_host_and_path_without_query_the_most_frequent_first() {
    let report = count(
        json!(null),
        &[
            b"GET /b HTTP/1.1\r\nHost: Example.org\r\n\r\n",
            b"GET /a?q=1 HTTP/1.1\r\nHost: example.org\r\n\r\n",
            b"POST /a?q=2 HTTP/1.1\r\nhost:EXAMPLE.org\r\nContent-Length: 2\r\n\r\nhi",
            b"GET http://example.org/a?x HTTP/1.1\r\nHost: proxy\r\n\r\n",
            b"GET http://example.org?x HTTP/1.1\r\nHost: proxy\r\n\r\n",
            b"GET /A HTTP/1.0\r\n\r\n",
            b"CONNECT example.org:443 HTTP/1.1\r\nHost: proxy\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"not http",
        ],
    );
    let urls = json!([
        ["example.org/a", 3],
        ["/A", 1],
        ["example.org/", 1],
        ["example.org/b", 1],
        ["example.org:443", 1]
    ]);
    assert_eq!(report, json!({"urls": urls, "(other)": 0, "unjudged": 0, "max": 10_000}));
}

#[test]
fn all_pipelined_requests_count_and_a_cut_one_is_unjudged() {
    let one = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let pipelined = [one, one, "GET /b HTT"].concat();
    let report = count(json!({}), &[pipelined.as_bytes()]);
    assert_eq!((&report["urls"], &report["unjudged"]), (&json!([["h/a", 2]]), &json!(1)));
    let report = count(json!({}), &[b"GET /a HTTP/1.1\r\nAccept: */*\r\nHos"]);
    assert_eq!((&report["urls"], &report["unjudged"]), (&json!([]), &json!(1)));
}

#[test]
fn the_table_is_bounded_in_entries_and_in_their_length() {
    let request = |path: &str| format!("GET {path} HTTP/1.0\r\n\r\n");
    let (fits, long) = ("/".repeat(LONGEST), "/".repeat(LONGEST + 1));
    let all = [request("/1"), request(&fits), request("/3"), request("/1"), request(&long)];
    let all: Vec<_> = all.iter().map(|r| r.as_bytes()).collect();
    let report = count(json!({"max": 2}), &all);
    assert_eq!(report["urls"], json!([["/1", 2], [fits, 1]]));
    assert_eq!(report["(other)"], 2);
}

#[test]
fn merging_adds_and_stays_bounded_and_a_report_can_be_read_back() {
    let state = |pairs: &[(&str, u64)]| -> Urls {
        let report = json!({"urls": pairs, "(other)": 1, "unjudged": 2, "max": 2});
        serde_json::from_value(report).unwrap()
    };
    let mut sum = Urls::default();
    sum.merge(state(&[("a", 1), ("b", 2)]));
    sum.merge(state(&[("b", 3), ("c", 4)]));
    let expected = json!({"urls": [["b", 5], ["a", 1]], "(other)": 6, "unjudged": 4, "max": 2});
    assert_eq!(serde_json::to_value(&sum).unwrap(), expected);
}
