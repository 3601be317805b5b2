//! The tags that HttpClassifier attaches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use serde_json::Value;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{Env, TagPlace, TagSpec};
use weir_nfs::http_classifier::HttpClassifier;

fn text(name: &str, bit: u8, patterns: &[&str]) -> TagSpec {
    let patterns = patterns.iter().map(ToString::to_string).collect();
    TagSpec { name: name.to_owned(), place: TagPlace::Text { slot: 3, bit, patterns } }
}

fn tags_of(payload: &[u8]) -> u64 {
    let specs = [
        text("url", 8, &["^/admin", "\\.php$"]),
        text("method", 10, &["^GET$"]),
        text("url", 60, &["q=[0-9]"]),
    ];
    let env = Env::new(&specs, 0).unwrap();
    let mut bench = Bench::with_env::<HttpClassifier>(Value::Null, &env).unwrap();
    let frame = Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).tcp(1, 80, 24).vlan(7);
    let seen = bench.run(&[frame.payload(payload).build()]);
    let tags = seen.first().unwrap().tags;
    assert!(tags.iter().enumerate().all(|(slot, word)| slot == 3 || *word == 0), "{tags:?}");
    tags[3]
}

const ADMIN: u64 = 1 << 8;
const PHP: u64 = 1 << 9;
const GET: u64 = 1 << 10;
const QUERY: u64 = 1 << 60;

#[test]
fn url_and_method_are_those_of_the_first_whole_request_line() {
    let long = format!("\r\nGET /admin{}?q=1 HTTP/1.1\r\n\r\n", "x".repeat(900));
    assert_eq!(tags_of(long.as_bytes()), ADMIN | GET | QUERY);
    assert_eq!(tags_of(b"POST /admin/a.php HTTP/1.0\r\n\r\nGET /b HTTP/1.0\r\n\r\n"), ADMIN | PHP);
    assert_eq!(tags_of(b"GET http://h/admin HTTP/1.0\r\n\r\n"), GET);
    // Cut, an answer, something else.
    assert_eq!(tags_of(b"GET /admin"), 0);
    assert_eq!(tags_of(b"HTTP/1.1 200 OK\r\n\r\n/admin"), 0);
    assert_eq!(tags_of(b"something else /admin"), 0);
}

#[test]
fn without_a_place_no_tag_is_set() {
    let mut bench = Bench::new::<HttpClassifier>(Value::Null).unwrap();
    let frame = Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).tcp(1, 80, 24);
    let seen = bench.run(&[frame.payload(b"GET /admin HTTP/1.0\r\n\r\n").build()]);
    assert_eq!((seen[0].output(), seen[0].tags), ("http", [0; 8]));
}

#[test]
fn a_pattern_or_a_place_that_there_is_not_is_an_error() {
    let error = Env::new(&[text("url", 0, &["("])], 0).unwrap_err();
    assert!(error.to_string().contains("tag `url`"), "{error}");
    assert!(Env::new(&[text("url", 63, &["a", "b"])], 0).is_err());
    let place = TagPlace::Number { slot: 8 };
    assert!(Env::new(&[TagSpec { name: "n".to_owned(), place }], 0).is_err());
}
