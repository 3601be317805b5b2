//! ValidateUrl.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, v4, v6, wrapped};
use serde_json::{Value, json};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{DropReason, Merge};
use weir_nfs::validate_url::{Judged, ValidateUrl};

const EVIL: &str = "GET /p?id=1'+OR+1=1--+ HTTP/1.1\r\nHost: h\r\n\r\n";
const GOOD: &str = "GET /p?q=O'Reilly HTTP/1.1\r\nHost: h\r\n\r\n";

/// Whether each payload passes, and the report.
fn judge<P: AsRef<[u8]>>(config: Value, payloads: &[P]) -> (Vec<bool>, Value) {
    let tcp = v4().tcp(40_000, 80, DATA);
    let frames: Vec<_> = payloads.iter().map(|p| tcp.payload(p.as_ref()).build()).collect();
    let mut bench = Bench::new::<ValidateUrl>(config).unwrap();
    let passes = bench.run(&frames).iter().map(|s| s.verdict == Ok("out")).collect();
    (passes, bench.report())
}

#[test]
fn an_injection_is_dropped_in_every_wrapping_and_a_harmless_request_passes() {
    let mut bench = Bench::new::<ValidateUrl>(Value::Null).unwrap();
    for seen in bench.run(&wrapped(EVIL.as_bytes())) {
        assert_eq!(seen.verdict, Err(DropReason::Injection));
    }
    assert!(bench.run(&wrapped(GOOD.as_bytes())).iter().all(|s| s.verdict == Ok("out")));
}

#[test]
fn what_is_no_request_passes_unseen() {
    let tcp = v4().tcp(40_000, 80, DATA);
    let mut frames = vec![
        v4().udp(1, 80).payload(EVIL.as_bytes()).build(),
        Frame::other(0x0806).payload(EVIL.as_bytes()).build(),
        tcp.payload(b"HTTP/1.1 200 OK\r\nX: 1' OR 1=1--\r\n\r\n").build(),
        tcp.payload(b"id=1'+OR+1=1--+").build(),
        tcp.build(),
        vec![1; 9],
    ];
    let body = format!("{}{EVIL}", "x".repeat(80));
    for whole in [tcp.payload(body.as_bytes()), v6().tcp(1, 80, DATA).payload(body.as_bytes())] {
        frames.extend(whole.fragments(48).split_off(1));
    }
    let mut bench = Bench::new::<ValidateUrl>(Value::Null).unwrap();
    assert!(bench.run(&frames).iter().all(|s| s.verdict == Ok("out")));
    assert_eq!(bench.report()["requests"], 0);
}

#[test]
fn url_body_and_cookies_are_judged_and_the_report_says_which() {
    let requests = [
        EVIL.to_owned(),
        "GET /a/1'%20OR%201=1--%20 HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://h/p?id=1%2527%2520OR%25201%253D1-- HTTP/1.1\r\n\r\n".to_owned(),
        "GET /p?id=1' OR 1=1 -- HTTP/1.1\r\n\r\n".to_owned(),
        "POST /p HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: 19\r\n\r\nid=1%27+OR+1%3D1--+"
            .to_owned(),
        "GET / HTTP/1.1\r\nCookie: a=b; id=1' OR 1=1--\r\n\r\n".to_owned(),
    ];
    let (passes, report) = judge(json!({}), &requests);
    assert_eq!(passes, [false; 6]);
    let places: Vec<_> =
        report["blocked"].as_array().unwrap().iter().map(|b| b["where"].clone()).collect();
    let query = "query value";
    assert_eq!(places, [query, "path", query, query, "body value", "cookie"]);
}

#[test]
fn every_pipelined_request_is_judged() {
    let (passes, report) = judge(json!({}), &[[GOOD, EVIL, GOOD, EVIL].concat()]);
    assert_eq!(passes, [false]);
    assert_eq!((&report["requests"], &report["injections"]), (&json!(4), &json!(2)));
}

#[test]
fn a_cut_request_is_unjudged_and_passes_unless_the_attack_is_before_the_cut() {
    let cut = [
        "GET /p?id=1'+OR+1=1--",
        "GET /p?id=1'+OR+1=1--+&pad=x",
        "GET /p?id=1'+OR+1=1--+ HTTP/1.1\r\nCookie: a=",
        "GET / HTTP/1.1\r\nCookie: id=1' OR 1=1--",
    ];
    let (passes, report) = judge(json!({}), &cut);
    assert_eq!(passes, [true, false, false, true]);
    let counts = ["requests", "injections", "unjudged"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 2]);
}

#[test]
fn a_blocked_request_is_listed_with_all_an_operator_asks_for() {
    let url = format!("/p?id=1'+OR+1=1--+&x=\u{e9}{}", "y".repeat(300));
    let request = format!("GET {url} HTTP/1.1\r\n\r\n");
    let frame = v6().tcp(40_000, 80, DATA).payload(request.as_bytes()).build();
    let mut bench = Bench::new::<ValidateUrl>(Value::Null).unwrap();
    bench.run_cut(&[(&frame, frame.len(), 1_700_000_000_000_000_000)]);
    let shown = format!("/p?id=1'+OR+1=1--+&x=\\xc3\\xa9{}", "y".repeat(300));
    let expected = json!([{
        "time_ns": 1_700_000_000_000_000_000_u64,
        "src": "[fd00::10]:40000",
        "dst": "[fd00::2]:80",
        "method": "GET",
        "url": &shown[..200],
        "where": "query value",
        "fingerprint": "s&1c",
    }]);
    let mut blocked = bench.report()["blocked"].clone();
    // Which of its fingerprints the library gives is its business.
    assert!(blocked[0]["fingerprint"].as_str().unwrap().starts_with("s&"));
    blocked[0]["fingerprint"] = expected[0]["fingerprint"].clone();
    assert_eq!(blocked, expected);
}

#[test]
fn the_list_is_bounded_and_the_rest_is_counted() {
    let (passes, report) = judge(json!({"keep": 2}), &[EVIL; 100]);
    assert_eq!(passes, [false; 100]);
    assert_eq!(report["blocked"].as_array().unwrap().len(), 2);
    assert_eq!(report["injections"], 100);
}

#[test]
fn merging_adds_the_counts_and_keeps_the_earliest() {
    let (_, report) = judge(json!({"keep": 3}), &[EVIL, EVIL, GOOD]);
    let state = |time: u64| -> Judged {
        let mut state: Judged = serde_json::from_value(report.clone()).unwrap();
        state.blocked.iter_mut().for_each(|b| b.time_ns = time);
        state
    };
    let mut sum = Judged::default();
    sum.merge(state(2));
    sum.merge(state(1));
    assert_eq!((sum.requests, sum.injections, sum.unjudged), (6, 4, 0));
    assert_eq!(sum.blocked.iter().map(|b| b.time_ns).collect::<Vec<_>>(), [1, 1, 2]);
}
