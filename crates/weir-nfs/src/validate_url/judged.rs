//! What ValidateUrl remembers.

use crate::payload::push_escaped;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use weir_http::{Request, Where};
use weir_nf::{Access, Depth, Merge, Pkt};

/// The longest piece of a URL that is listed, in bytes.
pub const URL_SHOWN: usize = 200;

/// A request that was blocked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Who sent it.
    pub src: Option<SocketAddr>,
    /// Whom to.
    pub dst: Option<SocketAddr>,
    /// Its method.
    pub method: String,
    /// The start of its target, at most [`URL_SHOWN`] bytes; what is not printable is escaped.
    pub url: String,
    /// The part that the injection is in.
    #[serde(rename = "where")]
    pub place: String,
    /// What kind it is: libinjection's fingerprint.
    pub fingerprint: String,
}

/// What was judged.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Judged {
    /// Requests seen.
    pub requests: u64,
    /// Of these, those with an injection.
    pub injections: u64,
    /// Of these, those not wholly in their segment (and without an injection in what is there).
    pub unjudged: u64,
    /// The first requests with an injection.
    pub blocked: Vec<Blocked>,
    /// How many are listed at most.
    pub keep: usize,
}

impl Merge for Judged {
    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.injections += other.injections;
        self.unjudged += other.unjudged;
        self.keep = self.keep.max(other.keep);
        self.blocked.extend(other.blocked);
        self.blocked.sort_by_key(|b| b.time_ns);
        self.blocked.truncate(self.keep);
    }
}

/// Takes down a request with an injection.
#[cold]
pub(super) fn note<A: Access>(
    packet: &Pkt<'_, A>,
    payload: &[u8],
    request: &Request,
    place: Where,
    fingerprint: &str,
) -> Blocked {
    let bytes = packet.bytes();
    let layers = packet.layers(Depth::L4);
    let ends = layers.ips(&bytes).zip(layers.ports(&bytes));
    let (method, target) = match request {
        Request::Whole(whole) => (whole.method.as_str(), whole.target),
        Request::Cut { method, target } => (method.as_str(), *target),
        Request::None => ("", Default::default()),
    };
    let mut url = String::new();
    push_escaped(&mut url, target.of(payload), URL_SHOWN);
    let place = match place {
        Where::Path => "path",
        Where::QueryName => "query name",
        Where::QueryValue => "query value",
        Where::BodyName => "body name",
        Where::BodyValue => "body value",
        Where::Cookie => "cookie",
    };
    Blocked {
        time_ns: packet.time_ns(),
        src: ends.map(|((ip, _), (port, _))| SocketAddr::new(ip, port)),
        dst: ends.map(|((_, ip), (_, port))| SocketAddr::new(ip, port)),
        method: method.to_owned(),
        url,
        place: place.to_owned(),
        fingerprint: fingerprint.to_owned(),
    }
}
