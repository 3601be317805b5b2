//! What is HTTP, and where its parts are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests may: helper functions too

use proptest::prelude::*;
use weir_http::decode::{Place, decode};
use weir_http::{
    Inspector, Part, Request, Scope, Verdict, body, headers, is_http, request, requests,
};

fn whole(payload: &[u8]) -> weir_http::WholeRequest {
    match request(payload) {
        Request::Whole(whole) => whole,
        other => panic!("{other:?}: {}", String::from_utf8_lossy(payload)),
    }
}

#[test]
fn every_registered_method_starts_a_request() {
    let methods = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK \
        REPORT SEARCH ACL BIND UNBIND REBIND MERGE LABEL UPDATE CHECKIN CHECKOUT UNCHECKOUT MKACTIVITY MKWORKSPACE \
        VERSION-CONTROL BASELINE-CONTROL ORDERPATCH MKCALENDAR MKREDIRECTREF UPDATEREDIRECTREF LINK UNLINK";
    for method in methods.split_whitespace() {
        let line = format!("{method} /x HTTP/1.1\r\n");
        assert!(is_http(line.as_bytes()), "{method}");
        assert_eq!(whole(line.as_bytes()).method.as_str(), method);
    }
}

#[test]
fn other_protocols_are_not_http() {
    let others: [&[u8]; 18] = [
        b"",
        b"G",
        b"GET",
        b"GETX / HTTP/1.1\r\n",
        b"get / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"SSH-2.0-OpenSSH\r\n",
        b"OPTIONS sip:a@b SIP/2.0\r\n",
        b"OPTIONS rtsp://a/b RTSP/1.0\r\n",
        b"OPTIONS sip:a@b",
        b"DELETE FROM t",
        b"HELO a\r\n",
        b"EHLO a\r\n",
        b"GET ring\r\n",
        b"COPY t TO '/x'",
        b"HTTP/2.0 200 OK\r\n",
        b"HTTP",
        b"GET /\r\n",
    ];
    for payload in others {
        assert!(!is_http(payload), "{}", String::from_utf8_lossy(payload));
    }
}

#[test]
fn status_lines_are_http_as_far_as_they_go() {
    for line in
        ["HTTP/1.1 200 OK\r\n", "HTTP/1.0 404 Not Found", "HTTP/1.1 200", "HTTP/1.1 2", "HTTP/1."]
    {
        assert!(is_http(line.as_bytes()), "{line}");
        assert_eq!(request(line.as_bytes()), Request::None);
    }
    for line in ["HTTP/1.x 200", "HTTP/1.1 2x0", "HTTP/1.1-200"] {
        assert!(!is_http(line.as_bytes()), "{line}");
    }
}

#[test]
fn the_parts_of_a_whole_request_are_found() {
    let text = b"GET /a?b=c HTTP/1.1\r\nAccept: */*\r\nhOST:  www.example \r\n\r\nrest";
    let found = whole(text);
    assert_eq!(found.target.of(text), b"/a?b=c");
    assert_eq!(found.host.unwrap().of(text), b"www.example");
    assert_eq!(found.headers_end, Some(text.len() - 4));
    let names: Vec<_> =
        headers(text, found.headers_start).map(|field| field.name.of(text).to_vec()).collect();
    assert_eq!(names, [b"Accept".to_vec(), b"hOST".to_vec()]);
}

#[test]
fn forms_that_lenient_servers_accept_are_requests() {
    for (text, target) in [
        ("GET /a b HTTP/1.1\r\n", "/a b"),
        ("GET\t/a HTTP/1.0\n", "/a"),
        ("\r\nGET /a HTTP/1.1\r\n", "/a"),
        ("GET http://a.example/ HTTP/1.1\r\n", "http://a.example/"),
        ("CONNECT a.example:443 HTTP/1.1\r\n", "a.example:443"),
        ("OPTIONS * HTTP/1.1\r\n", "*"),
    ] {
        assert_eq!(whole(text.as_bytes()).target.of(text.as_bytes()), target.as_bytes(), "{text}");
    }
}

#[test]
fn a_request_cut_anywhere_in_its_line_is_cut_and_later_whole() {
    let text = b"GET /index.html?a=b HTTP/1.1\r\nHost: a\r\n\r\n";
    let line = text.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for end in 0..text.len() {
        let part = &text[..end];
        match request(part) {
            Request::None => assert!(end < 4),
            Request::Cut { target, .. } => {
                assert!((4..line).contains(&end));
                assert!(
                    target.of(part).starts_with(b"/index.html?a=b")
                        || b"/index.html?a=b".starts_with(target.of(part))
                );
            }
            Request::Whole(found) => {
                assert!(end >= line);
                assert_eq!(found.headers_end, None);
                assert_eq!(found.host.is_some(), end >= line + 9);
            }
        }
        assert_eq!(is_http(part), end >= 4);
    }
}

#[test]
fn pipelined_requests_are_found_behind_bodies() {
    let text = b"GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 17\r\n\r\nGET /x HTTP/1.1\r\nPOST /3 HTTP/1.1\r\n\
        Transfer-Encoding: chunked\r\n\r\n5;ext\r\nhello\r\n0\r\nTrailer: 1\r\n\r\nGET /4 HTTP/1.1\r\nHost: a\r\n\r\nGET /5";
    let targets: Vec<String> = requests(text)
        .map(|found| match found {
            Request::Whole(whole) => String::from_utf8_lossy(whole.target.of(text)).into_owned(),
            Request::Cut { target, .. } => {
                format!("cut {}", String::from_utf8_lossy(target.of(text)))
            }
            Request::None => panic!(),
        })
        .collect();
    assert_eq!(targets, ["/1", "/2", "/3", "/4", "cut /5"]);
}

#[test]
fn a_body_that_goes_on_in_the_next_segment_is_cut() {
    for text in [
        "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    ] {
        let found = body(text.as_bytes(), &whole(text.as_bytes())).unwrap();
        assert!(found.cut);
        assert_eq!(requests(text.as_bytes()).count(), 1);
    }
}

#[test]
fn encodings_are_undone() {
    let plain = |text: &[u8], place| {
        let mut buffer = [0; 64];
        let len = decode(text, place, &mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    for (text, wanted) in [
        (&b"a%20b"[..], "a b"),
        (b"a+b", "a b"),
        (b"a%2Bb", "a+b"),
        (b"%2527", "'"),
        (b"%252527", "'"),
        (b"%25252527", "%27"),
        (b"%u0027", "'"),
        (b"%uff07", "'"),
        (b"%u20AC", "\u{20AC}"),
        (b"%c0%a7", "'"),
        (b"%e0%80%a7", "'"),
        (b"%f0%80%80%a7", "'"),
        ("\u{FF35}\u{FF2E}\u{FF49}\u{FF4F}\u{FF4E}".as_bytes(), "UNion"),
        (b"un%00ion", "union"),
        (b"100%", "100%"),
        (b"%zz%4", "%zz%4"),
        ("\u{E9}".as_bytes(), "\u{E9}"),
    ] {
        assert_eq!(plain(text, Place::Query), wanted, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(plain(b"a+b", Place::Path), "a+b");
    assert!(decode(b"abc", Place::Path, &mut [0; 2]).is_err());
}

/// Bytes that come near to requests and attacks, so that the interesting code is reached.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"GET ",
        b"POST ",
        b"/",
        b"?",
        b"&",
        b"=",
        b" HTTP/1.1\r\n",
        b"Host: a\r\n",
        b"Cookie: ",
        b"Content-Length: 5\r\n",
        b"\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Type: application/x-www-form-urlencoded\r\n",
        b"5\r\n",
        b"'",
        b"\"",
        b"--",
        b"/*",
        b"*/",
        b"/*!",
        b"#",
        b"union ",
        b"select ",
        b"or ",
        b"1",
        b"1.e",
        b"0x",
        b"(",
        b")",
        b";",
        b"@",
        b"@@",
        b"`",
        b"[",
        b"]",
        b"{",
        b"}",
        b"$",
        b"$a$",
        b"q'[",
        b"nq'",
        b"x'",
        b"b'",
        b"e'",
        b"u&'",
        b"n'",
        b"%27",
        b"%2527",
        b"%u0027",
        b"%00",
        b"%",
        b"&#39;",
        b"\\",
        b"||",
        b"&&",
        b"<=>",
        b":=",
        b"!",
        b"~",
        b"+",
        b"-",
        b"sp_password",
        b",",
        b".",
        b"in ",
        b"like ",
        b"not ",
        b"case when ",
        b"\xC0\xA7",
        b"\xFF",
    ];
    prop::collection::vec(prop_oneof![9 => prop::sample::select(words).prop_map(<[u8]>::to_vec), 1 => any::<[u8; 2]>().prop_map(|b| b.to_vec())], 0..40)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_payloads_never_panic_and_spans_stay_inside(payload in hostile()) {
        let mut inspector = Inspector::new();
        for found in requests(&payload) {
            inspector.request(&payload, &found, Scope { cookies: true, body: true });
            if let Request::Whole(whole) = found {
                prop_assert!(whole.target.end() <= payload.len());
                prop_assert!(whole.headers_end.is_none_or(|end| end <= payload.len()));
            }
        }
        let target = Part { bytes: &payload, cut: false };
        inspector.sqli(target, Some(target), &mut std::iter::once(target));
        prop_assert!(is_http(&payload) || request(&payload) == Request::None);
    }

    #[test]
    fn the_library_itself_never_panics_on_sql_like_bytes(value in hostile()) {
        libinjectionrs::detect_sqli(&value);
    }

    #[test]
    fn values_that_are_kept_from_the_library_are_none_it_would_flag(value in "([a-zA-Z0-9_.]|union|select|or|1e1|0x1|sp_password){0,24}") {
        prop_assert!(!libinjectionrs::detect_sqli(value.as_bytes()).is_injection());
        prop_assert_eq!(Inspector::new().sqli(Part { bytes: value.as_bytes(), cut: false }, None, &mut std::iter::empty()), Verdict::Clean);
    }

    #[test]
    fn decoding_never_grows_and_is_stable_on_plain_text(text in "[ -$&-~]{0,60}") {
        let mut buffer = [0; 64];
        let len = decode(text.as_bytes(), Place::Path, &mut buffer).unwrap();
        prop_assert_eq!(&buffer[..len], text.as_bytes());
    }
}
