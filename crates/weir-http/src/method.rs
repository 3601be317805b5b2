//! Request methods.

use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A registered request method (IANA HTTP Method Registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(&'static str);

impl Method {
    /// The method's name as it stands on the wire, for example `GET`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// True when a line that begins with `text` may begin with a method.
    pub(crate) fn may_begin(text: &[u8]) -> bool {
        let fits = |name: &&str| match text.get(name.len()) {
            Some(byte) => matches!(byte, b' ' | b'\t') && text.starts_with(name.as_bytes()),
            None => name.as_bytes().starts_with(text),
        };
        text.first().is_some_and(|first| starting_with(*first).iter().any(fits))
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'d> Deserialize<'d> for Method {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let known = name.bytes().next().map_or(&[][..], starting_with);
        let found = known.iter().find(|known| **known == name);
        found.map(|name| Method(name)).ok_or_else(|| serde::de::Error::custom("no HTTP method"))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The registered methods that start with `first`; none for the bytes that start other protocols, so that
/// most payloads which are not HTTP are refused after one byte.
fn starting_with(first: u8) -> &'static [&'static str] {
    match first {
        // RFC 9110 §9, PATCH of RFC 5789, PRI of RFC 9113; WebDAV: RFC 4918, 3253, 3648, 3744, 5323, 5842, 4437, 4791.
        b'G' => &["GET"],
        b'P' => &["POST", "PUT", "PATCH", "PROPFIND", "PROPPATCH", "PRI"],
        b'H' => &["HEAD"],
        b'D' => &["DELETE"],
        b'O' => &["OPTIONS", "ORDERPATCH"],
        b'C' => &["CONNECT", "COPY", "CHECKOUT", "CHECKIN"],
        b'T' => &["TRACE"],
        b'M' => {
            &["MOVE", "MKCOL", "MERGE", "MKACTIVITY", "MKWORKSPACE", "MKCALENDAR", "MKREDIRECTREF"]
        }
        b'L' => &["LOCK", "LABEL", "LINK"],
        b'U' => &["UNLOCK", "UPDATE", "UNBIND", "UNLINK", "UNCHECKOUT", "UPDATEREDIRECTREF"],
        b'R' => &["REPORT", "REBIND"],
        b'S' => &["SEARCH"],
        b'A' => &["ACL"],
        b'B' => &["BIND", "BASELINE-CONTROL"],
        b'V' => &["VERSION-CONTROL"],
        _ => &[],
    }
}

/// The method that starts `line` and is followed by a blank, with the offset behind that blank.
///
/// A method cut by the end of the payload is not recognised: `GE` says nothing.
pub(crate) fn method(line: &[u8]) -> Option<(Method, usize)> {
    let first = *line.first()?;
    for name in starting_with(first) {
        // RFC 9112 §3: a recipient may accept HTAB where the grammar has SP, and servers do.
        if line.starts_with(name.as_bytes()) && matches!(line.get(name.len()), Some(b' ' | b'\t')) {
            return Some((Method(name), name.len().saturating_add(1)));
        }
    }
    None
}
