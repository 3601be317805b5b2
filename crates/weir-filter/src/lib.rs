//! The libpcap filter language, in the part that Weir's edges use: parsing, printing, matching.
//!
//! [`parse`] turns text into an [`Expr`]; [`Filter::compile`] turns that into a flat program of
//! decisions that [`Filter::matches`] runs over a packet without allocating. [`naive_matches`] says
//! the same in the plainest way possible and shares no code with it: it is the tests' oracle.
//!
//! # The language
//!
//! | primitives | |
//! |---|---|
//! | `ip` `ip6` `arp` `rarp` `tcp` `udp` `sctp` `icmp` `icmp6` | protocol |
//! | `vlan` `vlan N` | VLAN tag; moves everything to its right behind the tag |
//! | `[ip\|ip6\|arp\|rarp] [DIR] host\|net ADDRESS` | address; `/len`, `mask`, and prefixes as in `net 10.1` |
//! | `[tcp\|udp\|sctp] [DIR] port N`, `portrange A-B` | transport ports |
//! | `ether [DIR] host MAC`, `ether src MAC`, `ether dst MAC` | Ethernet addresses |
//! | `[ip\|ip6] proto N`, `ether proto N` | protocol numbers |
//!
//! `DIR` is `src`, `dst`, `src or dst` or `src and dst`. Terms are joined with `and`/`&&`, `or`/`||`,
//! `not`/`!` and parentheses. As in libpcap `not` binds tightest and `and` and `or` bind *equally*,
//! from left to right, and a bare value repeats the qualifiers before it: `tcp port 80 or 443`.
//!
//! # Meaning
//!
//! What libpcap 1.10 compiles for an Ethernet link, surprises included: `tcp` does not see tagged
//! packets; over IPv6 it looks at the next header and behind one fragment header, no further, and
//! `port` only at the next header; over IPv4 ports are those of first fragments; `port` includes
//! SCTP; `host` includes ARP and RARP; `vlan` takes 0x8100, 0x88a8 and 0x9100 and shifts all that
//! stands right of it, even when it is negated or stands in the other arm of an `or`.
//!
//! One difference, on packets cut inside a header: when a term needs bytes that are not there, the
//! *term* is false. In libpcap the *whole filter* is then false, so that neither `F` nor `not F`
//! matches, which would break the rule that the edges `F` and `not F` share all packets between them.
//!
//! # Extensions to libpcap
//!
//! - `dst ip X`, `src ip X` (from E2's policies): the same as `dst net X`, `src net X`.
//! - Named addresses, given by the caller: see [`parse_with`].
//! - `scope.name` is a tag ([`Expr::Tag`]), left for the caller: see [`Expr::resolve_tags`].
//! - `true` and `false`.
//! - In `port 1 or ((2 or 3) or 4)` a list may begin with a bracket.
//!
//! Not taken, with an error that says what to write: host, service and protocol *names* (nothing is
//! ever looked up), masks that are not prefixes, and libpcap's other primitives.

mod arith;
mod compile;
mod cond;
mod diagram;
mod display;
mod error;
mod expr;
mod field;
mod lexer;
mod lower;
mod naive;
mod net;
mod offsets;
mod parse;
mod primitive;
mod surprise;
mod tags;
mod value;
mod words;

pub use arith::{Arith, Compare, Header, Operator, Relation, Size};
pub use compile::{CompileError, Filter};
pub use error::{ParseError, Why};
pub use expr::{Expr, MAX_PATTERN, TagTest};
pub use naive::naive_matches;
pub use net::{Mac, Net, NetError};
pub use offsets::Misplaced;
pub use parse::{MAX_DEPTH, MAX_TEXT, parse, parse_with};
pub use primitive::{
    AnyTest, Direction, Family, Group, IpFamily, LlcKind, Primitive, Protocol, Transport,
};
pub use surprise::{Surprise, warnings};
