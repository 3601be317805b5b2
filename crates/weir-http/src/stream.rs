//! HTTP/1.x as a stream of bytes: messages across segment boundaries, pipelined, with bodies of every form.
//!
//! Nothing is buffered but the first bytes of the line at hand, so a conversation's state has a fixed size,
//! whatever is sent. Framing is that of RFC 9112 §6. What cannot be framed is *lost*: the stream is
//! taken up again at the next segment that begins with a message.

use crate::method::Method;
use crate::request::is_http;
use serde::{Deserialize, Serialize};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From the client.
    Requests,
    /// From the server.
    Responses,
}

/// What a stream told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request line is whole.
    Request(Method),
    /// A status line is whole.
    Response(u16),
    /// What follows is no HTTP/1.x any more, both ways: an upgrade, `CONNECT`, HTTP/2.
    Tunnel,
    /// What came cannot be framed.
    Lost,
    /// A segment begins with a message: taken up again.
    Regained,
}

/// Most bytes of a message's head, and of a trailer.
pub const MAX_HEAD: u32 = 1 << 16;
/// Requests that may wait for their answers; of more, what their answers look like is not known.
pub const MAX_WAITING: u8 = 64;

const START: usize = 32;
const TAIL: usize = 12;

/// The line at hand: its first and last bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    start: [u8; START],
    tail: [u8; TAIL],
    /// Bytes so far, without the newline.
    len: u32,
}

impl Line {
    fn push(&mut self, piece: &[u8]) {
        let have = (self.len as usize).min(START);
        let room = self.start.get_mut(have..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(piece) {
            *to = *from;
        }
        let keep = TAIL.saturating_sub(piece.len());
        self.tail.rotate_left(TAIL - keep);
        let last = piece.get(piece.len().saturating_sub(TAIL)..).unwrap_or_default();
        for (to, from) in self.tail.iter_mut().skip(keep).zip(last) {
            *to = *from;
        }
        self.len = self.len.saturating_add(u32::try_from(piece.len()).unwrap_or(u32::MAX));
    }

    /// The line's first bytes, without a carriage return at its end.
    fn text(&self) -> &[u8] {
        let text = self.start.get(..(self.len as usize).min(START)).unwrap_or_default();
        if self.is_cut() { text } else { text.strip_suffix(b"\r").unwrap_or(text) }
    }

    fn is_cut(&self) -> bool {
        self.len as usize > START
    }

    /// The line's last bytes, without a carriage return.
    fn end(&self) -> &[u8] {
        let have = TAIL.saturating_sub(self.len as usize);
        let tail = self.tail.get(have..).unwrap_or_default();
        tail.strip_suffix(b"\r").unwrap_or(tail)
    }
}

/// Where a side's stream is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum At {
    /// Before or in a request or status line.
    #[default]
    Start,
    /// In the head's fields.
    Fields,
    /// In a body with so many bytes to come.
    Body(u64),
    ChunkSize,
    /// In a chunk with so many bytes to come.
    Chunk(u64),
    /// At the line end behind a chunk.
    ChunkEnd,
    Trailer,
    /// In a body that goes on until the connection's end.
    ToEnd,
    Tunnel,
    Lost,
}

/// How the head at hand frames its body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Framing {
    length: Option<u64>,
    is_coded: bool,
    is_chunked: bool,
    /// Lengths that contradict each other, or are none.
    is_bad: bool,
}

/// One direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stream {
    at: At,
    line: Line,
    framing: Framing,
    /// Bytes of the head so far.
    head: u32,
    /// The status at hand; requests: 0.
    status: u16,
    /// Of the request at hand.
    asks: Asks,
}

/// What decides how a request's answer ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Asks {
    #[default]
    Anything,
    Head,
    Connect,
}

/// Both directions of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    streams: [Stream; 2],
    /// What the requests asked for that have no answer yet, the oldest lowest: two bits each.
    waiting: u128,
    count: u8,
}

enum Next {
    At(At),
    Tunnel,
    Lost,
}

impl Conversation {
    /// Takes the next bytes of a side, in order: a segment's payload. `told` hears what they say.
    pub fn feed(&mut self, side: Side, bytes: &[u8], told: &mut impl FnMut(Event)) {
        if self.at(side) == At::Lost {
            if !begins(side, bytes) {
                return;
            }
            self.stream(side).restart(At::Start);
            told(Event::Regained);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = self.step(side, rest, told);
            rest = rest.get(used.max(1)..).unwrap_or_default();
        }
    }

    /// So many bytes of a side will not come. Inside a body that does no harm.
    pub fn skip(&mut self, side: Side, bytes: u64, told: &mut impl FnMut(Event)) {
        let stream = self.stream(side);
        match stream.at {
            At::Body(left) if bytes < left => stream.at = At::Body(left - bytes),
            At::Body(left) if bytes == left => stream.restart(At::Start),
            At::Chunk(left) if bytes < left => stream.at = At::Chunk(left - bytes),
            At::ToEnd | At::Tunnel | At::Lost => {}
            _ => self.lose(side, told),
        }
    }

    /// True when nothing that comes on this side is looked at, unless it begins a message.
    pub fn is_lost(&self, side: Side) -> bool {
        self.at(side) == At::Lost
    }

    /// True when a message may begin with the next byte of a side.
    pub fn is_between(&self, side: Side) -> bool {
        let [requests, responses] = &self.streams;
        let stream = if side == Side::Requests { requests } else { responses };
        stream.at == At::Lost || stream.at == At::Start && stream.line.len == 0
    }

    /// True when nothing that comes is looked at.
    pub fn is_tunnel(&self) -> bool {
        self.at(Side::Requests) == At::Tunnel
    }

    fn at(&self, side: Side) -> At {
        let [requests, responses] = &self.streams;
        if side == Side::Requests { requests.at } else { responses.at }
    }

    fn stream(&mut self, side: Side) -> &mut Stream {
        let [requests, responses] = &mut self.streams;
        if side == Side::Requests { requests } else { responses }
    }

    fn lose(&mut self, side: Side, told: &mut impl FnMut(Event)) {
        self.stream(side).restart(At::Lost);
        // Which answer belongs to which request is not known any more.
        (self.waiting, self.count) = (0, 0);
        told(Event::Lost);
    }

    fn step(&mut self, side: Side, bytes: &[u8], told: &mut impl FnMut(Event)) -> usize {
        let stream = self.stream(side);
        let takes = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        match stream.at {
            At::Body(left) => {
                let used = takes(left);
                match left - used as u64 {
                    0 => stream.restart(At::Start),
                    left => stream.at = At::Body(left),
                }
                used
            }
            At::Chunk(left) => {
                let used = takes(left);
                stream.at = match left - used as u64 {
                    0 => At::ChunkEnd,
                    left => At::Chunk(left),
                };
                used
            }
            At::ToEnd | At::Tunnel | At::Lost => bytes.len(),
            At::Start | At::Fields | At::ChunkSize | At::ChunkEnd | At::Trailer => {
                self.line(side, bytes, told)
            }
        }
    }

    /// Goes on in the line at hand.
    fn line(&mut self, side: Side, bytes: &[u8], told: &mut impl FnMut(Event)) -> usize {
        let stream = self.stream(side);
        let newline = bytes.iter().position(|&byte| byte == b'\n');
        let piece = newline.map_or(bytes, |at| bytes.get(..at).unwrap_or_default());
        let used = piece.len() + usize::from(newline.is_some());
        stream.line.push(piece);
        stream.head = stream.head.saturating_add(u32::try_from(used).unwrap_or(u32::MAX));
        if stream.head > MAX_HEAD || stream.at == At::Start && !may_begin(side, stream.line.text())
        {
            self.lose(side, told);
            return used;
        }
        if newline.is_some() {
            let line = std::mem::take(&mut stream.line);
            match self.whole(side, &line, told) {
                Next::At(At::Start) => self.stream(side).restart(At::Start),
                Next::At(at) => self.stream(side).at = at,
                Next::Lost => self.lose(side, told),
                Next::Tunnel => {
                    self.streams.iter_mut().for_each(|stream| stream.restart(At::Tunnel));
                    told(Event::Tunnel);
                }
            }
        }
        used
    }

    /// A line is whole.
    fn whole(&mut self, side: Side, line: &Line, told: &mut impl FnMut(Event)) -> Next {
        let text = line.text();
        match (self.at(side), side) {
            // Servers skip empty lines before a message (RFC 9112 §2.2).
            (At::Start, _) if text.is_empty() => Next::At(At::Start),
            (At::Start, Side::Requests) => self.request_line(line, told),
            (At::Start, Side::Responses) => {
                let Some(status) = status(text) else { return Next::Lost };
                self.stream(side).status = status;
                told(Event::Response(status));
                Next::At(At::Fields)
            }
            (At::Fields, _) if text.is_empty() => self.end_of_head(side),
            (At::Fields, _) => {
                self.stream(side).framing.field(line);
                Next::At(At::Fields)
            }
            (At::ChunkSize, _) => match chunk_size(text) {
                None => Next::Lost,
                Some(0) => {
                    self.stream(side).head = 0;
                    Next::At(At::Trailer)
                }
                Some(size) => Next::At(At::Chunk(size)),
            },
            (At::ChunkEnd, _) if text.is_empty() => {
                self.stream(side).head = 0;
                Next::At(At::ChunkSize)
            }
            (At::Trailer, _) if text.is_empty() => {
                self.stream(side).restart(At::Start);
                Next::At(At::Start)
            }
            (At::Trailer, _) => Next::At(At::Trailer),
            _ => Next::Lost,
        }
    }

    fn request_line(&mut self, line: &Line, told: &mut impl FnMut(Event)) -> Next {
        let Some((method, _)) = crate::method::method(line.text()) else { return Next::Lost };
        let end = line.end();
        let version = end.get(end.len().saturating_sub(9)..).unwrap_or_default();
        let [b' ' | b'\t', b'H', b'T', b'T', b'P', b'/', major, b'.', b'0'..=b'9'] = version else {
            return Next::Lost;
        };
        if *major != b'1' {
            return if method.as_str() == "PRI" { Next::Tunnel } else { Next::Lost };
        }
        let asks = match method.as_str() {
            "HEAD" => Asks::Head,
            "CONNECT" => Asks::Connect,
            _ => Asks::Anything,
        };
        self.stream(Side::Requests).asks = asks;
        if self.count < MAX_WAITING {
            let bits = match asks {
                Asks::Anything => 0,
                Asks::Head => 1,
                Asks::Connect => 2,
            };
            self.waiting |= u128::wrapping_shl(bits, 2 * u32::from(self.count));
            self.count += 1;
        }
        told(Event::Request(method));
        Next::At(At::Fields)
    }

    /// The head has ended: what follows (RFC 9112 §6.3).
    fn end_of_head(&mut self, side: Side) -> Next {
        let Stream { framing, status, .. } = *self.stream(side);
        self.stream(side).head = 0;
        if side == Side::Responses {
            if status == 101 {
                return Next::Tunnel;
            }
            if (100..200).contains(&status) {
                return Next::At(At::Start);
            }
            let asked = match self.waiting & 3 {
                1 => Asks::Head,
                2 => Asks::Connect,
                _ => Asks::Anything,
            };
            self.waiting >>= 2;
            self.count = self.count.saturating_sub(1);
            match asked {
                Asks::Connect if (200..300).contains(&status) => return Next::Tunnel,
                Asks::Head => return Next::At(At::Start),
                _ if matches!(status, 204 | 304) => return Next::At(At::Start),
                _ => {}
            }
        }
        match framing {
            Framing { is_bad: true, .. } => Next::Lost,
            Framing { is_coded: true, is_chunked: true, .. } => Next::At(At::ChunkSize),
            // A request whose end nobody can know.
            Framing { is_coded: true, .. } if side == Side::Requests => Next::Lost,
            Framing { is_coded: true, .. } => Next::At(At::ToEnd),
            Framing { length: Some(0), .. } => Next::At(At::Start),
            Framing { length: Some(length), .. } => Next::At(At::Body(length)),
            _ if side == Side::Requests => Next::At(At::Start),
            _ => Next::At(At::ToEnd),
        }
    }
}

impl Stream {
    fn restart(&mut self, at: At) {
        *self = Stream { at, ..Stream::default() };
    }
}

impl Framing {
    /// Takes in a field line.
    fn field(&mut self, line: &Line) {
        let text = line.text();
        let Some(colon) = text.iter().position(|&byte| byte == b':') else { return };
        let (name, value) = (text.get(..colon).unwrap_or_default(), text.get(colon + 1..));
        let value = value.unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = if line.is_cut() { None } else { number(value, 10) };
            let agrees = self.length.is_none() || self.length == length;
            self.is_bad |= length.is_none() || !agrees;
            self.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let end = line.end().trim_ascii_end();
            let last = end.get(end.len().saturating_sub(7)..).unwrap_or_default();
            self.is_coded = true;
            self.is_chunked = last.eq_ignore_ascii_case(b"chunked");
        }
    }
}

/// Digits only, without sign.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let sound = !digits.is_empty() && digits.iter().all(|&byte| char::from(byte).is_digit(radix));
    let text = core::str::from_utf8(digits).ok().filter(|_| sound)?;
    u64::from_str_radix(text, radix).ok()
}

/// The size of a chunk; what follows its digits is an extension (RFC 9112 §7.1.1).
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let behind = line.get(digits).is_none_or(|byte| matches!(byte, b';' | b' ' | b'\t'));
    number(line.get(..digits)?, 16).filter(|_| behind)
}

/// The status of `HTTP/1.x NNN`.
fn status(line: &[u8]) -> Option<u16> {
    let [b'0'..=b'9', b' ', digits @ ..] = line.strip_prefix(b"HTTP/1.")? else { return None };
    let (digits, behind) = digits.split_at_checked(3)?;
    let ends = behind.first().is_none_or(|&byte| byte == b' ');
    u16::try_from(number(digits, 10)?).ok().filter(|status| ends && (100..1000).contains(status))
}

/// True when a segment of this side begins with a message.
fn begins(side: Side, bytes: &[u8]) -> bool {
    is_http(bytes) && bytes.starts_with(b"HTTP/") == (side == Side::Responses)
}

/// True when a line that begins so may be a message's first.
fn may_begin(side: Side, text: &[u8]) -> bool {
    match side {
        Side::Responses => {
            let name = b"HTTP/1.";
            let known = text.len().min(name.len());
            text.get(..known) == name.get(..known) || text == b"\r"
        }
        Side::Requests => text.is_empty() || text == b"\r" || Method::may_begin(text),
    }
}
