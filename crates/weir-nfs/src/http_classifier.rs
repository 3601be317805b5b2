//! Recognises HTTP by payload.

use crate::payload::{Scratch, may_be_request, plain_tcp_payload, tcp_payload};
use std::cell::RefCell;
use std::ops::Range;
use weir_http::{Request, is_http, request};
use weir_nf::headers::plain_v4;
use weir_nf::{
    Bytes, ConfigError, Ctx, Depth, Descriptor, Effect, Env, LayerAccess, Nf, NoConfig, Packets,
    ReadOnly, TagDecl, TagKind, TextTag, Touch,
};

/// Tells HTTP/1.x from everything else by what TCP segments begin with, on whatever port.
///
/// *Outputs:* `http` (segments that begin with a request or status line, whole or cut); `other`
/// (the rest: not IP, not TCP, no payload, the middle of a body). *Config:* none. *Tags:* `url` and
/// `method` (texts), target and method of the first request when its request line is whole.
/// *Source:* RFC 9112 §3 and §4; the µNF paper's HTTPClassifier. Segments are judged one by one, without reassembly.
#[derive(Debug)]
pub struct HttpClassifier {
    url: Option<TextTag>,
    method: Option<TextTag>,
    scratch: RefCell<Scratch>,
}

const HTTP: u8 = 0;
const OTHER: u8 = 1;

/// How much of a payload is copied first, then: most first lines are whole in it.
const STEPS: [usize; 3] = [64, 512, usize::MAX];

impl Nf for HttpClassifier {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "HttpClassifier",
        summary: "Tells HTTP from other traffic by payload, on any port",
        outputs: &["http", "other"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        cost_cycles: 100,
        tags: &[
            TagDecl { name: "url", kind: TagKind::Text },
            TagDecl { name: "method", kind: TagKind::Text },
        ],
        effect: Effect::Pure,
        affinity: weir_nf::Affinity::None,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, env: &Env) -> Result<Self, ConfigError> {
        let scratch = RefCell::new(Scratch::new());
        Ok(HttpClassifier { url: env.text("url"), method: env.text("method"), scratch })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, _: &mut Ctx<'_, Self>) {
        let scratch = &mut *self.scratch.borrow_mut();
        for mut packet in packets.iter_mut() {
            let payload = match plain_v4(&packet.bytes()) {
                Some(plain) => plain_tcp_payload(&plain),
                None => tcp_payload(&packet.layers(Depth::L4)),
            };
            let Some(payload) = payload else {
                packet.send(OTHER);
                continue;
            };
            let head = http_head(scratch, &packet.bytes(), payload.clone());
            packet.send(if head.is_some() { HTTP } else { OTHER });
            if (self.url.is_some() || self.method.is_some())
                && let Some(head) = head
                && let Request::Whole(first) = request(head)
            {
                if let Some(url) = &self.url {
                    url.set(&packet, first.target.of(head));
                }
                if let Some(method) = &self.method {
                    method.set(&packet, first.method.as_str().as_bytes());
                }
            }
        }
    }
}

/// As much of the payload as decides, when it decides for HTTP.
fn http_head<'s>(
    scratch: &'s mut Scratch,
    bytes: &impl Bytes,
    payload: Range<usize>,
) -> Option<&'s [u8]> {
    // A status line begins with a capital letter too.
    if !bytes.u8(payload.start).is_some_and(may_be_request) {
        return None;
    }
    let mut size = 0;
    for step in STEPS {
        size = step.min(payload.len());
        let head = scratch.copy(bytes, payload.start..payload.start + size)?;
        if size == payload.len() || decides(head) {
            break;
        }
    }
    scratch.copied(size).filter(|head| is_http(head))
}

/// True when more bytes behind `head` cannot change what [`is_http`] says of it: the first line is
/// whole, or its first word is no method.
fn decides(head: &[u8]) -> bool {
    let empty = head.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    let line = head.get(empty..).unwrap_or_default();
    let word = line.split(|b| matches!(b, b' ' | b'\t')).next().unwrap_or_default();
    let method =
        word.len() < line.len() && word.iter().all(|&b| b == b'-' || b.is_ascii_uppercase());
    line.contains(&b'\n') || !method && !line.is_empty()
}

weir_nf::register!(HttpClassifier);
