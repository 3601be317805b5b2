//! Conversations: streams of HTTP, however they are cut.
#![allow(clippy::unwrap_used, clippy::panic)] // A test.

use proptest::prelude::*;
use weir_http::{Conversation, Event, MAX_HEAD, Side};

fn told(pieces: &[(Side, &[u8])]) -> Vec<String> {
    let mut talk = Conversation::default();
    let mut all = Vec::new();
    for (side, bytes) in pieces {
        talk.feed(*side, bytes, &mut |event| {
            all.push(match event {
                Event::Request(method) => method.to_string(),
                Event::Response(status) => status.to_string(),
                other => format!("{other:?}"),
            });
        });
    }
    all
}

fn asked(text: &str) -> (Side, &[u8]) {
    (Side::Requests, text.as_bytes())
}

fn answered(text: &str) -> (Side, &[u8]) {
    (Side::Responses, text.as_bytes())
}

#[test]
fn bodies_end_where_the_rfc_says() {
    let get = "GET / HTTP/1.1\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (request, response, expected) in [
        (get, "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\nHTTP/1.1 999 body\r\n", 1),
        ("HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n", 1),
        (get, "HTTP/1.1 304 Same\r\nContent-Length: 19\r\n\r\n", 1),
        (get, "HTTP/1.1 204 Nothing\r\n\r\n", 1),
        (get, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 Nothing\r\n\r\n", 2),
        (
            get,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
            1,
        ),
        (get, "HTTP/1.1 200 OK\ncontent-length:3\ncontent-length: 3\n\nabc", 1),
    ] {
        let told = told(&[asked(request), answered(response), answered(ok)]);
        assert_eq!(told.len(), 1 + expected + 1, "{response}: {told:?}");
        assert_eq!(told.last().unwrap(), "200");
    }
    // Up to the connection's end: nothing in it is a message.
    let to_end = ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"];
    for response in to_end {
        assert_eq!(told(&[asked(get), answered(response), answered(ok)]), ["GET", "200"]);
    }
}

#[test]
fn what_cannot_be_framed_is_lost_until_a_message_begins() {
    let next = "GET /next HTTP/1.1\r\n\r\n";
    for bad in [
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length:                        3\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    ] {
        let told = told(&[asked(bad), asked("no message"), asked(next)]);
        assert_eq!(told, ["POST", "Lost", "Regained", "GET"], "{bad}");
    }
    for no_http in
        ["OPTIONS sip:a@b SIP/2.0\r\n\r\n", "hello\r\n", "GET /\r\n", "get / HTTP/1.1\r\n"]
    {
        assert_eq!(told(&[asked(no_http), asked(next)]), ["Lost", "Regained", "GET"], "{no_http}");
    }
    let endless = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(MAX_HEAD as usize / 6 + 1));
    assert_eq!(told(&[asked(&endless), asked(next)])[..2], ["GET", "Lost"]);
}

#[test]
fn other_protocols_begin_where_http_says_so() {
    let connect = "CONNECT a:1 HTTP/1.1\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    let no = "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(told(&[asked(connect), answered(ok), answered(ok)]), ["CONNECT", "200", "Tunnel"]);
    let refused = [asked(connect), answered(no), asked(connect), answered(ok)];
    assert_eq!(told(&refused), ["CONNECT", "403", "CONNECT", "200", "Tunnel"]);
    assert_eq!(told(&[asked("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]), ["Tunnel"]);
}

#[test]
fn answers_find_their_requests_when_these_are_pipelined() {
    let (get, head) = ("GET / HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.1\r\n\r\n");
    let asked_for = [get, head, get].concat();
    let of_head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let of_get = "HTTP/1.1 201 OK\r\nContent-Length: 5\r\n\r\nHTTP/";
    let answers = [of_get, of_head, of_get].concat();
    let all = told(&[asked(&asked_for), answered(&answers)]);
    assert_eq!(all, ["GET", "HEAD", "GET", "201", "200", "201"]);
}

#[test]
fn bytes_that_do_not_come_do_no_harm_in_a_body() {
    let mut talk = Conversation::default();
    let mut all = Vec::new();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    talk.feed(Side::Responses, head, &mut |event| all.push(event));
    talk.skip(Side::Responses, 400, &mut |event| all.push(event));
    talk.feed(Side::Responses, &[b'x'; 100], &mut |event| all.push(event));
    talk.skip(Side::Responses, 500, &mut |event| all.push(event));
    talk.feed(Side::Responses, head, &mut |event| all.push(event));
    talk.skip(Side::Responses, 1001, &mut |event| all.push(event));
    assert_eq!(all, [Event::Response(200), Event::Response(200), Event::Lost]);
}

/// Pieces of HTTP, and of what is none.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "HEAD /x HTTP/1.0\r\n",
        "POST /p HTTP/1.1\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 304 x\r\n",
        "HTTP/1.1 100 c\r\n",
        "Content-Length: 7\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\n",
        "7\r\n",
        "0\r\n",
        "abcdefg",
        "GE",
        "T ",
        "\x00",
        "HTTP/1.1 101 S\r\n",
        "CONNECT a:1 HTTP/1.1\r\n",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Until something is lost (then the next segment counts) cutting changes nothing.
    #[test]
    fn how_a_stream_is_cut_changes_nothing(
        requests in text(),
        responses in text(),
        cuts in prop::collection::vec(1_usize..30, 1..20),
    ) {
        let whole = told(&[(Side::Requests, &requests[..]), (Side::Responses, &responses[..])]);
        let mut pieces: Vec<(Side, &[u8])> = Vec::new();
        for (side, mut rest) in [(Side::Requests, &requests[..]), (Side::Responses, &responses[..])] {
            for cut in cuts.iter().cycle() {
                let (piece, behind) = rest.split_at((*cut).min(rest.len()));
                pieces.push((side, piece));
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
        }
        let cut = told(&pieces);
        let before = |all: &[String]| all.iter().take_while(|e| *e != "Lost").cloned().collect::<Vec<_>>();
        prop_assert_eq!(before(&whole), before(&cut));
    }

    #[test]
    fn any_bytes_are_taken(pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80), 0_u64..50), 0..40)) {
        let mut talk = Conversation::default();
        for (side, bytes, gap) in &pieces {
            let side = if *side { Side::Requests } else { Side::Responses };
            talk.feed(side, bytes, &mut |_| {});
            talk.skip(side, *gap, &mut |_| {});
        }
    }
}
