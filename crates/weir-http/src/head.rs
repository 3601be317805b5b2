//! Header fields and message bodies, as far as one payload holds them.

use crate::request::WholeRequest;
use crate::span::Span;

/// One header field line; spans count from the start of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The field's name as sent.
    pub name: Span,
    /// The field's value without surrounding blanks.
    pub value: Span,
}

impl Header {
    /// True when the field's name is `name`, whatever its case; `payload` is the one it was found in.
    pub fn is(&self, payload: &[u8], name: &[u8]) -> bool {
        self.name.of(payload).eq_ignore_ascii_case(name)
    }
}

/// The whole header field lines of `payload` from offset `at` on, up to the blank line that ends the head.
pub fn headers(payload: &[u8], at: usize) -> Headers<'_> {
    let payload = payload.get(..usize::from(u16::MAX)).unwrap_or(payload);
    Headers { payload, at, end: None, done: false }
}

/// Iterator of [`headers`].
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    payload: &'a [u8],
    at: usize,
    end: Option<usize>,
    done: bool,
}

impl Headers<'_> {
    /// Offset behind the blank line that ends the head, once the iterator has run out; `None` when the payload
    /// ends first.
    pub fn end(&self) -> Option<usize> {
        self.end
    }
}

impl Iterator for Headers<'_> {
    type Item = Header;

    fn next(&mut self) -> Option<Header> {
        while !self.done {
            let start = self.at;
            let rest = self.payload.get(start..).unwrap_or_default();
            let Some(newline) = rest.iter().position(|&byte| byte == b'\n') else {
                self.done = true;
                break;
            };
            self.at = start.saturating_add(newline).saturating_add(1);
            let line = rest.get(..newline).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                self.end = Some(self.at);
                self.done = true;
                break;
            }
            // Lines without a colon (and obsolete folded ones) hold no field of their own: skipped.
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let name = line.get(..colon).unwrap_or_default().trim_ascii_end();
            let value = line.get(colon.saturating_add(1)..).unwrap_or_default();
            let blanks = value.len().saturating_sub(value.trim_ascii_start().len());
            let from = start.saturating_add(colon).saturating_add(1).saturating_add(blanks);
            let len = value.trim_ascii().len();
            return Some(Header {
                name: Span::new(start, start.saturating_add(name.len())),
                value: Span::new(from, from.saturating_add(len)),
            });
        }
        None
    }
}

/// A request's body as far as the payload holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    /// The bytes that are here (empty when the request has no body).
    pub span: Span,
    /// True when more of it follows in a later segment.
    pub cut: bool,
    /// True when it is declared `application/x-www-form-urlencoded`.
    pub urlencoded: bool,
    /// True for chunked transfer coding: then the span holds chunk sizes too.
    pub chunked: bool,
}

/// The body of `request`; `None` when its head is cut, so that the body's place is unknown.
pub fn body(payload: &[u8], request: &WholeRequest) -> Option<Body> {
    let start = request.headers_end?;
    let (mut length, mut urlencoded, mut chunked) = (0_usize, false, false);
    for field in headers(payload, request.headers_start) {
        let value = field.value.of(payload);
        if field.is(payload, b"content-length") {
            // A length that is no number is treated as 'without end': nothing behind it is taken for a request.
            length = parse(value, 10).unwrap_or(usize::MAX);
        } else if field.is(payload, b"transfer-encoding") {
            chunked = value.len() >= 7
                && value
                    .get(value.len().saturating_sub(7)..)
                    .is_some_and(|end| end.eq_ignore_ascii_case(b"chunked"));
        } else if field.is(payload, b"content-type") {
            const FORM: &[u8] = b"application/x-www-form-urlencoded";
            urlencoded = value.get(..FORM.len()).is_some_and(|v| v.eq_ignore_ascii_case(FORM));
        }
    }
    let here = payload.len().min(usize::from(u16::MAX));
    let (end, cut) = if chunked {
        match chunks_end(payload, start) {
            Some(end) => (end, false),
            None => (here, true),
        }
    } else {
        let end = start.saturating_add(length);
        (end.min(here), end > here)
    };
    Some(Body { span: Span::new(start, end), cut, urlencoded, chunked })
}

/// Offset behind the message of `request`; `None` when the message goes on in a later segment.
pub(crate) fn message_end(payload: &[u8], request: &WholeRequest) -> Option<usize> {
    let body = body(payload, request)?;
    let end = body.span.end();
    (!body.cut && end < payload.len()).then_some(end)
}

/// Offset behind a chunked body that starts at `at` (RFC 9112 §7.1); `None` when it is cut or malformed.
fn chunks_end(payload: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let rest = payload.get(at..)?;
        let newline = rest.iter().position(|&byte| byte == b'\n')?;
        let line = rest.get(..newline)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = parse(line.get(..digits)?, 16)?;
        at = at.checked_add(newline)?.checked_add(1)?;
        if size == 0 {
            // Trailer fields, then a blank line: the same shape as a head.
            let mut trailer = headers(payload, at);
            trailer.by_ref().for_each(drop);
            return trailer.end();
        }
        at = at.checked_add(size)?;
        at = match payload.get(at..)? {
            [b'\r', b'\n', ..] => at.checked_add(2)?,
            [b'\n', ..] => at.checked_add(1)?,
            _ => return None,
        };
    }
}

fn parse(digits: &[u8], radix: u32) -> Option<usize> {
    let text = core::str::from_utf8(digits).ok()?;
    if text.starts_with('+') {
        return None;
    }
    usize::from_str_radix(text, radix).ok()
}
