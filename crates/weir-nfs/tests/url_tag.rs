//! The tag that HttpClassifier attaches.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use serde_json::Value;
use weir_mem::arena::HEADROOM;
use weir_mem::{Arena, ArenaShape, Entry, Seq};
use weir_nf::wire::Frame;
use weir_nf::{Env, Pool, Site, Verdict, find};
use weir_nfs as _;
use weir_packet::Packet;

/// The bytes that `http.url` in slot 3 points to after HttpClassifier saw the frame.
fn tagged(frame: &[u8], env: &Env) -> Vec<u8> {
    let arena = Arena::private(ArenaShape::new(1, 2048)).unwrap();
    let mut entry = Entry::packet(0, HEADROOM, frame.len() as u16, Seq::new(0), 0);
    assert!(arena.bytes_mut(&mut entry).unwrap().write(0, frame));
    let mut packets = [Packet::admit(entry, arena.view()).unwrap()];
    let mut nf = find("HttpClassifier").unwrap().make(&Value::Null, env).unwrap();
    let pool = Pool::default();
    let site = Site { arena: &arena, pool: &pool };
    nf.process(&mut packets, &mut [Verdict::FIRST], 0, site);
    let tag = arena.meta(packets[0].entry()).unwrap().tags[3].get();
    let (start, len) = (tag as u32 as usize, (tag >> 32) as usize);
    frame[start..start + len].to_vec()
}

#[test]
fn http_url_spans_the_target_of_a_whole_request_line_and_nothing_else() {
    let env = Env { tags: vec![("http.url".to_owned(), 3)], seed: 0 };
    let frame = Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).tcp(1, 80, 24);
    let tag = |payload: &'static [u8]| tagged(&frame.vlan(7).payload(payload).build(), &env);
    let long = format!("/{}?q=1", "x".repeat(900));
    let request = format!("\r\nGET {long} HTTP/1.1\r\n\r\n");
    assert_eq!(tagged(&frame.payload(request.as_bytes()).build(), &env), long.as_bytes());
    assert_eq!(tag(b"GET http://h/a HTTP/1.0\r\n\r\nGET /b HTTP/1.0\r\n\r\n"), b"http://h/a");
    assert_eq!(tag(b"GET /cut"), b"");
    assert_eq!(tag(b"HTTP/1.1 200 OK\r\n\r\n"), b"");
    assert_eq!(tag(b"something else"), b"");
    let untagged = tagged(&frame.payload(b"GET / HTTP/1.0\r\n\r\n").build(), &Env::default());
    assert_eq!(untagged, b"");
}
