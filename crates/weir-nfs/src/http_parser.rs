//! Follows HTTP through connections.

pub mod order;

use crate::conn_track::segment::Segment;
use crate::payload::{Scratch, may_be_request};
use order::{Came, Order, Piece};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_http::{Conversation, Event, Method, Side, is_http};
use weir_nf::headers::{PlainV4, plain_v4, proto, tcp};
use weir_nf::{
    Affinity, Bytes, ConfigError, Ctx, Depth, Descriptor, Effect, Env, FlowState, Fragment,
    LayerAccess, Merge, Nf, NoConfig, NumberTag, Packets, ReadOnly, TagDecl, TagKind, TextTag,
    Touch,
};

/// Follows HTTP/1.x requests and responses through TCP connections, on whatever port.
///
/// Messages may begin and end anywhere in segments, pipelined, with bodies by length, in chunks or up to the
/// connection's end. *Output:* `out`. *Config:* none. *Tags:* `method` (text) of packets from the client and `status`
/// (number) of those from the server: of the first message that begins in the packet, or else of the one that goes on in
/// it. *Source:* RFC 9112, RFC 9293 §3.4; NFActor's HTTP parser.
///
/// Segments that come early wait for the missing one, up to 8 and 16 KiB per direction, and 16 MiB in all; then what is missing is given up.
/// Inside a body that does no harm, elsewhere the stream is lost until a segment begins with a message. *Limits:*
/// fragmented segments are not looked at. Sequence numbers are believed: put ConnTrack before it.
#[derive(Debug)]
pub struct HttpParser {
    method: Option<TextTag>,
    status: Option<NumberTag>,
    scratch: RefCell<Scratch>,
}

/// Bytes that may wait in all flows for segments that are missing.
const MOST_WAITING: usize = 16 << 20;

/// What is known of a connection.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Connection {
    talk: Conversation,
    /// From who sent the flow's first packet, and from the other end.
    orders: [Order; 2],
    /// Whether the server sent the flow's first packet.
    by_server: bool,
    /// Whether some message was found in it.
    is_http: bool,
    method: Option<Method>,
    status: Option<u16>,
    #[serde(skip)]
    share: Share,
}

/// Bytes that wait, in all flows of a µNF.
#[derive(Debug, Default, Clone)]
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    // A number that its µNF alone changes, and with it nothing else is told: relaxed everywhere.
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A flow's part of what waits: given back when the state goes, whether the flow ends or moves. One that has come is counted
/// with its next segment.
#[derive(Debug, Default)]
struct Share {
    of: Option<Waiting>,
    bytes: usize,
}

impl Share {
    fn set(&mut self, bytes: usize, all: &Waiting) {
        if bytes != self.bytes {
            self.give_back();
            all.0.fetch_add(bytes, Ordering::Relaxed);
            *self = Share { of: Some(all.clone()), bytes };
        }
    }

    fn give_back(&mut self) {
        if let Some(all) = self.of.take() {
            all.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.bytes = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl FlowState for Connection {}

impl Connection {
    fn side(&self, from_starter: bool) -> Side {
        if from_starter != self.by_server { Side::Requests } else { Side::Responses }
    }

    fn waiting(&self) -> usize {
        self.orders.iter().map(Order::waiting).sum()
    }
}

/// What was seen in all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Messages {
    /// Requests by method.
    pub requests: BTreeMap<String, u64>,
    /// Responses by status.
    pub responses: BTreeMap<u16, u64>,
    /// Connections that became something else: upgrades, `CONNECT`, HTTP/2.
    pub tunnels: u64,
    /// Times that a stream of HTTP could not be followed.
    pub lost: u64,
    /// Times that one was taken up again.
    pub regained: u64,
    /// Segments that waited for an earlier one.
    pub early: u64,
    /// Times that a missing one was given up.
    pub given_up: u64,
    /// Segments of which all had been seen.
    pub repeated: u64,
    /// Segments that found no room in the flow table.
    pub no_room: u64,
    #[serde(skip)]
    waiting: Waiting,
}

impl Merge for Messages {
    fn merge(&mut self, other: Self) {
        for (method, requests) in other.requests {
            *self.requests.entry(method).or_default() += requests;
        }
        for (status, responses) in other.responses {
            *self.responses.entry(status).or_default() += responses;
        }
        self.tunnels += other.tunnels;
        self.lost += other.lost;
        self.regained += other.regained;
        self.early += other.early;
        self.given_up += other.given_up;
        self.repeated += other.repeated;
        self.no_room += other.no_room;
    }
}

/// What one segment told.
#[derive(Default)]
struct Told {
    method: Option<Method>,
    status: Option<u16>,
}

impl HttpParser {
    /// Takes a segment in.
    fn segment(
        &self,
        connection: &mut Connection,
        from_starter: bool,
        segment: &Segment,
        payload: &[u8],
        shared: &mut Messages,
    ) -> Told {
        let mut told = Told::default();
        let seq = segment.seq.wrapping_add(u32::from(segment.has(tcp::SYN)));
        if segment.has(tcp::SYN) {
            if !segment.has(tcp::ACK) {
                *connection = Connection::default();
                connection.by_server = !from_starter;
            }
            let [ours, theirs] = &mut connection.orders;
            if from_starter { ours.begin(seq) } else { theirs.begin(seq) }
        }
        let between = connection.talk.is_between(connection.side(from_starter));
        if !connection.is_http && between && is_http(payload) {
            let by_client = !payload.starts_with(b"HTTP/");
            if by_client != (connection.side(from_starter) == Side::Requests) {
                connection.by_server = !connection.by_server;
                connection.talk = Conversation::default();
            }
        }
        let side = connection.side(from_starter);
        let Connection { talk, orders: [ours, theirs], is_http, method, status, .. } = connection;
        let order = if from_starter { ours } else { theirs };
        let cut = segment.len.saturating_sub(payload.len() as u32);
        let room = MOST_WAITING.saturating_sub(shared.waiting.bytes());
        let mut hear = |event: Event, shared: &mut Messages| match event {
            Event::Request(asked) => {
                *is_http = true;
                *method = Some(asked);
                told.method.get_or_insert(asked);
                match shared.requests.get_mut(asked.as_str()) {
                    Some(count) => *count += 1,
                    None => drop(shared.requests.insert(asked.as_str().to_owned(), 1)),
                }
            }
            Event::Response(code) => {
                *is_http = true;
                *status = Some(code);
                told.status.get_or_insert(code);
                *shared.responses.entry(code).or_default() += 1;
            }
            Event::Tunnel => {
                (*method, *status) = (None, None);
                shared.tunnels += 1;
            }
            Event::Lost => {
                if side == Side::Requests {
                    *method = None
                } else {
                    *status = None
                }
                shared.lost += u64::from(*is_http);
            }
            Event::Regained => shared.regained += u64::from(*is_http),
        };
        let came = order.take(seq, payload, cut, room, &mut |piece| match piece {
            Piece::Bytes(bytes) => talk.feed(side, bytes, &mut |event| hear(event, shared)),
            Piece::Gap(bytes) => talk.skip(side, bytes.into(), &mut |event| hear(event, shared)),
        });
        match came {
            Came::InOrder => {}
            Came::Repeated => shared.repeated += 1,
            Came::Early => shared.early += 1,
            Came::GivenUp => shared.given_up += 1,
        }
        connection.share.set(connection.waiting(), &shared.waiting);
        match side {
            Side::Requests => told.method = told.method.or(connection.method),
            Side::Responses => told.status = told.status.or(connection.status),
        }
        told
    }
}

/// True for what most packets are that no message is in: neither data nor the beginning of a connection.
#[inline]
fn says_nothing(plain: &PlainV4) -> bool {
    plain.tcp_flags.is_none_or(|flags| plain.payload >= plain.end && flags & tcp::SYN == 0)
}

impl Nf for HttpParser {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "HttpParser",
        summary: "Follows HTTP requests and responses through connections, on any port",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        effect: Effect::Stateful,
        affinity: Affinity::Flow,
        cost_cycles: 500,
        tags: &[
            TagDecl { name: "method", kind: TagKind::Text },
            TagDecl { name: "status", kind: TagKind::Number },
        ],
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = Connection;
    type Shared = Messages;

    fn build(_: NoConfig, env: &Env) -> Result<Self, ConfigError> {
        let scratch = RefCell::new(Scratch::new());
        Ok(HttpParser { method: env.text("method"), status: env.number("status"), scratch })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let scratch = &mut *self.scratch.borrow_mut();
        for packet in packets.iter_mut() {
            let bytes = packet.bytes();
            if plain_v4(&bytes).is_some_and(|plain| says_nothing(&plain)) {
                continue;
            }
            let layers = packet.layers(Depth::L4);
            if layers.proto != proto::TCP || layers.fragment() != Fragment::Whole {
                continue;
            }
            let Some(segment) = Segment::read(&bytes, &layers) else { continue };
            if segment.len == 0 && !segment.has(tcp::SYN) {
                continue;
            }
            let (flow, shared) = ctx.flow_of_and_shared(&packet);
            let Some(flow) = flow else {
                shared.no_room += 1;
                continue;
            };
            if flow.state.talk.is_tunnel() && !segment.has(tcp::SYN) {
                continue;
            }
            let range = usize::from(layers.payload)..usize::from(layers.end);
            let lost = flow.state.talk.is_lost(flow.state.side(flow.from_starter));
            let first = bytes.u8(range.start);
            // Nothing but the beginning of a message is looked for: then the rest is as good as cut off.
            let payload = match lost && !first.is_some_and(may_be_request) {
                true => &[],
                false => scratch.copy(&bytes, range).unwrap_or_default(),
            };
            let told = self.segment(flow.state, flow.from_starter, &segment, payload, shared);
            if segment.len == 0 {
                continue;
            }
            if let (Some(tag), Some(method)) = (&self.method, told.method) {
                tag.set(&packet, method.as_str().as_bytes());
            }
            if let (Some(tag), Some(status)) = (&self.status, told.status) {
                tag.set(&packet, status.into());
            }
        }
    }
}

weir_nf::register!(HttpParser);
