//! SQL injection in a request's target, cookies and urlencoded body.
//!
//! The judge is libinjection's tokenizer and fingerprint list (Galbreath, Black Hat USA 2012) in its pure-Rust
//! port; `docs/decisions/0003-sql-injection.md` says why. Here is what it needs around it: which parts of a
//! request an application puts into SQL, and which encodings to undo first. Each value is judged as sent and
//! after every decoding round, because the application behind may decode once or more often.

use crate::decode::{MAX_ROUNDS, Place, entities, first_round, next_round, remove_nul};
use crate::head::{body, headers};
use crate::request::Request;
use libinjectionrs::{SqliFlags, SqliState};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes judged per request at most; what is larger is [`Verdict::Unjudged`].
pub const MAX_BYTES: usize = 64 * 1024;

/// Names and values judged per request at most; more is [`Verdict::Unjudged`].
pub const MAX_VALUES: usize = 1024;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All that was to be judged is here and harmless.
    Clean,
    /// An SQL injection.
    Injection {
        /// The part of the request it is in.
        place: Where,
        /// Libinjection's fingerprint of it, for the operator's log.
        fingerprint: Fingerprint,
    },
    /// Nothing evil in what is here, but the part to be judged goes on in another segment or is beyond the limits.
    Unjudged,
}

/// The part of a request an injection is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Where {
    /// The target's path.
    Path,
    /// A parameter's name in the query.
    QueryName,
    /// A parameter's value in the query.
    QueryValue,
    /// A parameter's name in an urlencoded body.
    BodyName,
    /// A parameter's value in an urlencoded body.
    BodyValue,
    /// A cookie's value.
    Cookie,
}

/// Token types of an injection, one letter each, as libinjection prints them (for example `s&sos`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 8]);

impl Fingerprint {
    /// The fingerprint's letters.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        self.0.get(..len).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

/// Bytes of a request and whether they are all of that part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The bytes that are here.
    pub bytes: &'a [u8],
    /// True when the end of the segment cuts them.
    pub cut: bool,
}

/// What to judge beside the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scope {
    /// Cookies too: then a request with a cut head is unjudged.
    pub cookies: bool,
    /// Urlencoded bodies too: then a request with a cut head or a cut urlencoded body is unjudged.
    pub body: bool,
}

/// Judges requests; holds the buffer for decoding, so that no call allocates one.
///
/// (The library itself allocates short strings while it looks words up; only values with something beside
/// letters and digits in them reach it.)
#[derive(Debug)]
pub struct Inspector {
    buffer: Vec<u8>,
    bytes_left: usize,
    values_left: usize,
}

impl Default for Inspector {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends an inspection early: an injection is found, or a limit is reached.
enum Stop {
    Found(Where, Fingerprint),
    Limit,
}

impl Inspector {
    /// An inspector with its decoding buffer ([`MAX_BYTES`]).
    pub fn new() -> Self {
        Inspector { buffer: vec![0; MAX_BYTES], bytes_left: 0, values_left: 0 }
    }

    /// Judges one request that [`crate::request()`] or [`crate::requests`] found in `payload`.
    ///
    /// [`Request::None`] is clean: there is nothing to judge.
    pub fn request(&mut self, payload: &[u8], request: &Request, scope: Scope) -> Verdict {
        let whole = match request {
            Request::None => return Verdict::Clean,
            Request::Cut { target, .. } => {
                return self.sqli(
                    Part { bytes: target.of(payload), cut: true },
                    None,
                    &mut core::iter::empty(),
                );
            }
            Request::Whole(whole) => whole,
        };
        let head_cut = whole.headers_end.is_none() && (scope.cookies || scope.body);
        let form = if scope.body { body(payload, whole) } else { None };
        let form = form
            .filter(|body| body.urlencoded)
            .map(|body| Part { bytes: body.span.of(payload), cut: body.cut });
        let mut cookies = headers(payload, whole.headers_start)
            .filter(|field| scope.cookies && field.is(payload, b"cookie"))
            .map(|field| Part { bytes: field.value.of(payload), cut: false });
        let verdict =
            self.sqli(Part { bytes: whole.target.of(payload), cut: false }, form, &mut cookies);
        if head_cut && verdict == Verdict::Clean { Verdict::Unjudged } else { verdict }
    }

    /// Judges a target, an urlencoded body and the values of `Cookie` fields.
    ///
    /// Of a cut part the parameters that are whole are judged (their end is seen): an injection in one of them
    /// is reported; otherwise the answer is [`Verdict::Unjudged`]. The parameter that is cut is never guessed at.
    pub fn sqli(
        &mut self,
        target: Part<'_>,
        body: Option<Part<'_>>,
        cookies: &mut dyn Iterator<Item = Part<'_>>,
    ) -> Verdict {
        self.bytes_left = MAX_BYTES;
        self.values_left = MAX_VALUES;
        let mut cut = target.cut;
        let judged = self.target(target).and_then(|()| {
            if let Some(body) = body {
                cut |= body.cut;
                self.pairs(body, Where::BodyName, Where::BodyValue)?;
            }
            for cookie in cookies {
                cut |= cookie.cut;
                self.cookie(cookie)?;
            }
            Ok(())
        });
        match judged {
            Err(Stop::Found(place, fingerprint)) => Verdict::Injection { place, fingerprint },
            Err(Stop::Limit) => Verdict::Unjudged,
            Ok(()) if cut => Verdict::Unjudged,
            Ok(()) => Verdict::Clean,
        }
    }

    fn target(&mut self, target: Part<'_>) -> Result<(), Stop> {
        let origin = origin_form(target.bytes);
        let query = origin.iter().position(|&byte| byte == b'?');
        let path = origin.get(..query.unwrap_or(origin.len())).unwrap_or_default();
        self.path(Part { bytes: path, cut: target.cut && query.is_none() })?;
        match query.and_then(|at| origin.get(at.saturating_add(1)..)) {
            Some(bytes) => {
                self.pairs(Part { bytes, cut: target.cut }, Where::QueryName, Where::QueryValue)
            }
            None => Ok(()),
        }
    }

    /// Applications take identifiers from path segments; comments (`/**/`) make an attack span several.
    fn path(&mut self, path: Part<'_>) -> Result<(), Stop> {
        let whole = whole_parts(path, b'/');
        for segment in whole.split(|&byte| byte == b'/') {
            self.value(segment, Place::Path, Where::Path)?;
        }
        if path.cut || !whole.windows(2).any(|pair| pair == b"/*") {
            return Ok(());
        }
        let first = whole.windows(2).position(|pair| pair == b"/*").unwrap_or(0);
        let before = whole.get(..first).unwrap_or_default();
        let start =
            before.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at.saturating_add(1));
        self.value(whole.get(start..).unwrap_or_default(), Place::Path, Where::Path)
    }

    fn pairs(&mut self, part: Part<'_>, name_at: Where, value_at: Where) -> Result<(), Stop> {
        for pair in whole_parts(part, b'&').split(|&byte| byte == b'&') {
            let (name, value) = match pair.iter().position(|&byte| byte == b'=') {
                Some(at) => (pair.get(..at), pair.get(at.saturating_add(1)..)),
                None => (Some(pair), None),
            };
            self.value(name.unwrap_or_default(), Place::Query, name_at)?;
            self.value(value.unwrap_or_default(), Place::Query, value_at)?;
        }
        Ok(())
    }

    fn cookie(&mut self, part: Part<'_>) -> Result<(), Stop> {
        for pair in whole_parts(part, b';').split(|&byte| byte == b';') {
            let at =
                pair.iter().position(|&byte| byte == b'=').map_or(0, |at| at.saturating_add(1));
            let value = pair.get(at..).unwrap_or_default().trim_ascii();
            let value =
                value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
            self.value(value, Place::Path, Where::Cookie)?;
        }
        Ok(())
    }

    /// Judges one value as sent and in each of its decoded forms.
    fn value(&mut self, raw: &[u8], place: Place, at: Where) -> Result<(), Stop> {
        if raw.is_empty() {
            return Ok(());
        }
        self.values_left = self.values_left.checked_sub(1).ok_or(Stop::Limit)?;
        self.bytes_left = self.bytes_left.checked_sub(raw.len()).ok_or(Stop::Limit)?;
        if is_plain(raw) {
            return Ok(());
        }
        let buffer = &mut self.buffer;
        let (mut len, mut changed) = first_round(raw, place, buffer).map_err(|_| Stop::Limit)?;
        for round in 1..=MAX_ROUNDS {
            if !changed {
                break;
            }
            let form = buffer.get(..len).unwrap_or_default();
            judge(form, at)?;
            // NUL may stand for nothing or for a blank: the library takes it as a blank.
            if form.contains(&0) {
                len = remove_nul(buffer, len);
                judge(buffer.get(..len).unwrap_or_default(), at)?;
            }
            if round < MAX_ROUNDS {
                (len, changed) = next_round(buffer, len);
            }
        }
        if let (len, true) = entities(buffer, len) {
            judge(buffer.get(..len).unwrap_or_default(), at)?;
        }
        // Last, because the decoded forms give the telling fingerprint.
        judge(raw, at)
    }
}

/// The part of `part` whose pieces (ended by `separator`) are whole.
fn whole_parts<'a>(part: Part<'a>, separator: u8) -> &'a [u8] {
    if !part.cut {
        return part.bytes;
    }
    let end = part.bytes.iter().rposition(|&byte| byte == separator).unwrap_or(0);
    part.bytes.get(..end).unwrap_or_default()
}

/// Path and query of a target in absolute form (RFC 9112 §3.2.2); any other form as it is.
fn origin_form(target: &[u8]) -> &[u8] {
    let Some(scheme) = target.windows(3).take(8).position(|three| three == b"://") else {
        return target;
    };
    if target.first() == Some(&b'/') {
        return target;
    }
    let authority = target.get(scheme.saturating_add(3)..).unwrap_or_default();
    match authority.iter().position(|byte| matches!(byte, b'/' | b'?')) {
        Some(at) => authority.get(at..).unwrap_or_default(),
        None => &[],
    }
}

/// Letters, digits, `_` and `.` alone are at most a few tokens that no fingerprint lists: the library need not
/// see them (a property test compares).
fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
}

/// A quote that closes the application's string and a comment that swallows the rest of its statement
/// (`admin'-- `, `admin'#`, `x') --`): libinjection's exceptions for plain text let this login bypass through when
/// the comment is a `#` or has a blank behind it. Plain text does not end like this.
fn closes_and_comments(value: &[u8]) -> bool {
    let value = value.trim_ascii_end();
    let Some(before) = value
        .strip_suffix(b"#")
        .or_else(|| value.strip_suffix(b"--"))
        .or_else(|| value.strip_suffix(b"-- -"))
    else {
        return false;
    };
    let inner = before.iter().rposition(|byte| !matches!(byte, b' ' | b')' | b'\t' | b';'));
    inner.is_some_and(|at| at > 0 && matches!(before.get(at), Some(b'\'' | b'"')))
}

/// Asks the library.
///
/// It is safe code but indexes slices; should a value ever make it panic, that one request counts as unjudged
/// and the worker lives on.
fn judge(value: &[u8], at: Where) -> Result<(), Stop> {
    if closes_and_comments(value) {
        return Err(Stop::Found(at, Fingerprint(*b"sc\0\0\0\0\0\0")));
    }
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let mut state = SqliState::new(value, SqliFlags::FLAG_NONE);
        state.detect().then_some(state.fingerprint)
    }));
    match judged {
        Ok(None) => Ok(()),
        Ok(Some(fingerprint)) => Err(Stop::Found(at, Fingerprint(fingerprint))),
        Err(_) => Err(Stop::Limit),
    }
}
