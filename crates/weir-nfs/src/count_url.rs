//! Counts HTTP requests per URL.

mod urls;

pub use urls::Urls;

use crate::payload::{Scratch, push_escaped};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::RefCell;
use weir_http::{Request, WholeRequest, requests};
use weir_nf::{
    ConfigError, Ctx, Descriptor, Effect, Env, LayerAccess, Nf, Packets, ReadOnly, Touch,
};

/// Counts HTTP requests per URL: host and path, without query.
///
/// *Output:* `out`. *Config:* `max`, how many URLs are told apart (10,000 unless told otherwise);
/// the rest, and URLs longer than [`LONGEST`], count together. *Source:* the µNF paper's CountURL.
/// All requests that are pipelined in one segment count; one whose URL the segment's end cuts (or
/// whose `Host` is still to come) counts as unjudged.
#[derive(Debug)]
pub struct CountUrl {
    max: usize,
    scratch: RefCell<(Scratch, String)>,
}

/// The longest URL that is told apart, in bytes: bounds the table's memory.
pub const LONGEST: usize = 512;

/// URLs that are told apart unless told otherwise.
const MOST: usize = 10_000;

/// Configuration of [`CountUrl`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How many URLs are told apart at most.
    #[schemars(extend("default" = MOST))]
    pub max: Option<usize>,
}

impl Nf for CountUrl {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "CountUrl",
        summary: "Counts HTTP requests per URL",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        cost_cycles: 400,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Urls;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let scratch = RefCell::new((Scratch::new(), String::with_capacity(LONGEST)));
        Ok(CountUrl { max: config.max.unwrap_or(MOST), scratch })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let (scratch, url) = &mut *self.scratch.borrow_mut();
        let counts = ctx.shared();
        counts.max = self.max;
        for packet in packets.iter_mut() {
            let Some(payload) = scratch.requests(&packet) else {
                continue;
            };
            for request in requests(payload) {
                url.clear();
                match request {
                    Request::Whole(whole) => match write_url(url, payload, &whole) {
                        Written::Whole => counts.add(url, 1),
                        Written::TooLong => counts.other += 1,
                        Written::NoHost => counts.unjudged += 1,
                    },
                    Request::Cut { .. } => counts.unjudged += 1,
                    Request::None => {}
                }
            }
        }
    }
}

enum Written {
    Whole,
    TooLong,
    NoHost,
}

/// Writes host and path. The host of an absolute URL goes before the `Host` field (RFC 9112 §3.2.2)
/// and case does not count in it (RFC 3986 §3.2.2).
fn write_url(url: &mut String, payload: &[u8], request: &WholeRequest) -> Written {
    let target = request.target.of(payload);
    let target = target.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
    let scheme =
        target.windows(3).position(|w| w == b"://").filter(|_| target.first() != Some(&b'/'));
    let (host, path) = match scheme.and_then(|at| target.get(at + 3..)) {
        Some(rest) => rest.split_at(rest.iter().position(|&b| b == b'/').unwrap_or(rest.len())),
        // The target of CONNECT is a host and a port.
        None if request.method.as_str() == "CONNECT" => (target, &b""[..]),
        None => match (request.host, request.headers_end) {
            (Some(host), _) => (host.of(payload), target),
            (None, Some(_)) => (&b""[..], target),
            (None, None) => return Written::NoHost,
        },
    };
    let path = if path.is_empty() && scheme.is_some() { b"/" } else { path };
    let whole = push_escaped(url, host, LONGEST);
    url.make_ascii_lowercase();
    if whole && push_escaped(url, path, LONGEST) { Written::Whole } else { Written::TooLong }
}

weir_nf::register!(CountUrl);
