//! HTTP/1.x as a middlebox sees it: one TCP segment's payload at a time, or a stream of them; no I/O.
//!
//! - [`is_http`]: does this payload start an HTTP/1.x message, on whatever port?
//! - [`request`] and [`requests`]: where the method, the target and the head of each (pipelined) request lie.
//! - [`decode`](mod@decode): undoing the encodings that hide an attack from a pattern.
//! - [`Conversation`]: both directions of a connection, messages across segment boundaries.
//! - [`Inspector`]: SQL injection in the target, in cookies and in urlencoded bodies.
//!
//! Everything works on borrowed bytes and answers with [`Span`]s, so a caller that keeps packets in shared
//! memory copies nothing. Nothing here panics on hostile bytes and nothing guesses about bytes of a later segment.

pub mod decode;
mod head;
mod method;
mod request;
mod span;
mod sqli;
mod stream;

pub use head::{Body, Header, Headers, body, headers};
pub use method::Method;
pub use request::{Request, Requests, WholeRequest, is_http, request, requests};
pub use span::Span;
pub use sqli::{Fingerprint, Inspector, MAX_BYTES, MAX_VALUES, Part, Scope, Verdict, Where};
pub use stream::{Conversation, Event, MAX_HEAD, MAX_WAITING, Side};
