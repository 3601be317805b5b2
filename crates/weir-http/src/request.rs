//! Request lines and pipelined requests.
//!
//! Own code instead of the `httparse` crate, for two reasons. It refuses request lines that real servers accept
//! (raw blanks or quotes in the target, a tab after the method), which is just what an attacker sends. And for a
//! head that goes on in the next segment it answers `Partial` without the header fields that are already there,
//! while `Host` and `Cookie` of the segment at hand are what counts here.

use crate::head::{self, headers};
use crate::method::{Method, method};
use crate::span::Span;

/// What stands at the start of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A request whose request line is whole.
    Whole(WholeRequest),
    /// A request whose request line is cut by the end of the payload.
    Cut {
        /// The method.
        method: Method,
        /// The target as far as it is here.
        target: Span,
    },
    /// Not a request.
    None,
}

/// A request whose request line is whole; its head need not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeRequest {
    /// The method.
    pub method: Method,
    /// The request target as sent: origin, absolute, authority or asterisk form (RFC 9112 §3.2), undecoded.
    pub target: Span,
    /// Value of the first `Host` field, when its line is whole.
    pub host: Option<Span>,
    /// Offset of the first header field.
    pub headers_start: usize,
    /// Offset behind the blank line that ends the head; `None` when the payload ends before it.
    pub headers_end: Option<usize>,
}

/// True when `payload` starts with an HTTP/1.x request or status line, whole or cut by the payload's end.
///
/// A payload that ends inside the method's name, or before a status line's version, is not recognised: too
/// little to tell. A cut request line counts when its target looks like one; a whole one must end in `HTTP/x.y`
/// (so RTSP and SIP, which share method names, are refused).
pub fn is_http(payload: &[u8]) -> bool {
    match payload.first() {
        Some(b'H') if is_status_line(payload) => true,
        Some(b'A'..=b'Z' | b'\r' | b'\n') => !matches!(line_at(payload, 0), Line::None),
        _ => false,
    }
}

/// The request at the start of `payload`.
pub fn request(payload: &[u8]) -> Request {
    request_at(payload, 0)
}

/// All requests in `payload`, one behind the other (pipelining, RFC 9112 §9.3.2).
///
/// Bodies are skipped by `Content-Length` or chunked coding. Ends behind a cut request, a body that goes on in
/// the next segment, or bytes that are no request. All spans count from the start of `payload`.
pub fn requests(payload: &[u8]) -> Requests<'_> {
    Requests { payload, next: Some(0) }
}

/// Iterator of [`requests`]; yields [`Request::Whole`] and, last, [`Request::Cut`].
#[derive(Debug, Clone)]
pub struct Requests<'a> {
    payload: &'a [u8],
    next: Option<usize>,
}

impl Iterator for Requests<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let at = self.next.take()?;
        let found = request_at(self.payload, at);
        match &found {
            Request::None => return None,
            Request::Cut { .. } => {}
            Request::Whole(whole) => {
                self.next = head::message_end(self.payload, whole);
            }
        }
        Some(found)
    }
}

/// Line ends that servers skip before a request line (RFC 9112 §2.2).
const MAX_LEADING_NEWLINES: usize = 4;

enum Line {
    Whole { method: Method, target: Span, end: usize },
    Cut { method: Method, target: Span },
    None,
}

fn request_at(payload: &[u8], at: usize) -> Request {
    match line_at(payload, at) {
        Line::None => Request::None,
        Line::Cut { method, target } => Request::Cut { method, target },
        Line::Whole { method, target, end } => {
            let mut host = None;
            let mut fields = headers(payload, end);
            for field in fields.by_ref() {
                if host.is_none() && field.is(payload, b"host") {
                    host = Some(field.value);
                }
            }
            Request::Whole(WholeRequest {
                method,
                target,
                host,
                headers_start: end,
                headers_end: fields.end(),
            })
        }
    }
}

/// The request line that starts at `at`, leading empty lines skipped.
fn line_at(payload: &[u8], at: usize) -> Line {
    // Spans have 16 bits: what lies beyond is cut off here, so a line that reaches there is a cut one.
    let payload = payload.get(..usize::from(u16::MAX)).unwrap_or(payload);
    let Some(rest) = payload.get(at..) else { return Line::None };
    let skip = rest
        .iter()
        .take(MAX_LEADING_NEWLINES)
        .take_while(|&&byte| byte == b'\r' || byte == b'\n')
        .count();
    let Some(line) = rest.get(skip..) else { return Line::None };
    let Some((method, behind)) = method(line) else { return Line::None };
    let Some(after) = line.get(behind..) else { return Line::None };
    let blanks = after.iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
    let start = at.saturating_add(skip).saturating_add(behind).saturating_add(blanks);
    let Some(tail) = payload.get(start..) else { return Line::None };

    let Some(newline) = tail.iter().position(|&byte| byte == b'\n') else {
        return if looks_like_target(method, tail) {
            Line::Cut { method, target: Span::new(start, start.saturating_add(tail.len())) }
        } else {
            Line::None
        };
    };
    let line = tail.get(..newline).unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // The *last* blank ends the target: raw blanks inside it are wrong but accepted by lenient servers.
    let Some(last) = line.iter().rposition(|&byte| byte == b' ' || byte == b'\t') else {
        return Line::None;
    };
    if !line.get(last.saturating_add(1)..).is_some_and(is_version) {
        return Line::None;
    }
    let target = line.get(..last).unwrap_or_default().trim_ascii_end();
    if target.is_empty() {
        return Line::None;
    }
    Line::Whole {
        method,
        target: Span::new(start, start.saturating_add(target.len())),
        end: start.saturating_add(newline).saturating_add(1),
    }
}

/// `HTTP/x.y`; RFC 9112 has capitals, and servers accept nothing else.
fn is_version(text: &[u8]) -> bool {
    matches!(text, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// Whether the rest of a line that the segment cuts may be a target: other text protocols share method names.
fn looks_like_target(method: Method, tail: &[u8]) -> bool {
    let tail = tail.strip_suffix(b"\r").unwrap_or(tail);
    if tail.iter().any(|&byte| byte < b' ' && byte != b'\t') {
        return false;
    }
    match tail.first() {
        None | Some(b'/') => true,
        Some(b'*') => matches!(method.as_str(), "OPTIONS" | "PRI"),
        Some(_) if method.as_str() == "CONNECT" => true,
        Some(_) => {
            let scheme = |name: &[u8]| {
                let len = name.len().min(tail.len());
                tail.get(..len)
                    .zip(name.get(..len))
                    .is_some_and(|(is, want)| is.eq_ignore_ascii_case(want))
            };
            scheme(b"http://") || scheme(b"https://")
        }
    }
}

/// `HTTP/1.x NNN`, as far as the payload goes; at least `HTTP/1.` must be there.
fn is_status_line(payload: &[u8]) -> bool {
    let Some(rest) = payload.strip_prefix(b"HTTP/1.") else { return false };
    rest.iter().zip(0..5).all(|(byte, at)| match at {
        0 | 2..5 => byte.is_ascii_digit(),
        _ => *byte == b' ',
    })
}
