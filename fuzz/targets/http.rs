//! Any bytes as a TCP segment's payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use weir_fuzz::planted;
use weir_http::decode::{Place, decode};
use weir_http::{
    Conversation, Event, Inspector, Part, Request, Scope, Side, Span, Verdict, Where, body,
    headers, is_http, request, requests,
};

thread_local! {
    /// Lives on from input to input, as it does in a worker.
    static OLD: RefCell<Inspector> = RefCell::new(Inspector::new());
}

fuzz_target!(|payload: &[u8]| {
    OLD.with_borrow_mut(|old| {
        let all = Scope { cookies: true, body: true };
        assert!(is_http(payload) || request(payload) == Request::None);
        let mut last = 0;
        for (count, found) in requests(payload).enumerate() {
            assert!(count <= payload.len(), "more requests than bytes");
            last = spans_stay_inside_and_go_on(payload, &found, last);
            let verdict = old.request(payload, &found, all);
            // What was judged before leaves no trace.
            assert_eq!(Inspector::new().request(payload, &found, all), verdict);
            let _ = old.request(payload, &found, Scope::default());
            let names = [Where::QueryName, Where::BodyName];
            planted(matches!(verdict, Verdict::Injection { place, .. } if names.contains(&place)));
        }
        for cut in [false, true] {
            let part = Part { bytes: payload, cut };
            let verdict = old.sqli(part, Some(part), &mut std::iter::once(part));
            assert!(!(cut && verdict == Verdict::Clean), "a cut part is never clean");
        }
        for place in [Place::Path, Place::Query] {
            decoding_fits_its_input(payload, place);
        }
        cutting_changes_nothing(payload);
    });
});

/// Up to where a stream is lost, what it tells does not depend on how segments cut it.
fn cutting_changes_nothing(stream: &[u8]) {
    for side in [Side::Requests, Side::Responses] {
        let told = |size: usize| {
            let (mut talk, mut all) = (Conversation::default(), Vec::new());
            for piece in stream.chunks(size) {
                talk.feed(side, piece, &mut |event| all.push(event));
            }
            all.into_iter().take_while(|event| *event != Event::Lost).collect::<Vec<_>>()
        };
        let whole = told(stream.len().max(1));
        for size in [1, 2, 7, 32, 33] {
            assert_eq!(whole, told(size), "{side:?} in pieces of {size}");
        }
    }
}

/// Checks one request's spans; the offset where the next may start.
fn spans_stay_inside_and_go_on(payload: &[u8], found: &Request, last: usize) -> usize {
    let inside = |span: Span| span.end() <= payload.len() && usize::from(span.start) >= last;
    match found {
        Request::None => panic!("the iterator gives no such thing"),
        Request::Cut { target, .. } => {
            assert!(inside(*target));
            payload.len()
        }
        Request::Whole(whole) => {
            assert!(inside(whole.target) && whole.host.is_none_or(inside));
            assert!(whole.target.len > 0 && whole.target.end() < whole.headers_start);
            assert!(whole.headers_start <= payload.len());
            for field in headers(payload, whole.headers_start) {
                assert!(inside(field.name) && inside(field.value));
                assert!(field.name.end() <= usize::from(field.value.start));
            }
            let Some(end) = whole.headers_end else { return payload.len() };
            assert!((whole.headers_start..=payload.len()).contains(&end));
            let body = body(payload, whole).map(|body| body.span);
            assert!(body.is_some_and(|body| inside(body) && usize::from(body.start) == end));
            end
        }
    }
}

fn decoding_fits_its_input(input: &[u8], place: Place) {
    let mut buffer = vec![0xAA; input.len()];
    let length = decode(input, place, &mut buffer).expect("a buffer as long as the input");
    let decoded = &buffer[..length];
    assert!(!decoded.contains(&0), "NUL bytes are removed");
    if let Some(short) = input.len().checked_sub(1) {
        assert!(decode(input, place, &mut buffer[..short]).is_err());
    }
}
