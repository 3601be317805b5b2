//! libpcap's filter language: parsing, printing, matching.
//!
//! [`parse`] turns text into an [`Expr`]; [`Filter::compile`] turns that into a decision diagram over
//! the bytes that it asks for, which [`Filter::matches`] follows without allocating. [`naive_matches`]
//! says the same in the plainest way possible and shares no code with it: it is the tests' oracle.
//! [`warnings`] tells where libpcap's meaning surprises.
//!
//! # The language
//!
//! | primitives | |
//! |---|---|
//! | `ip` `ip6` `arp` `rarp` `tcp` `udp` `sctp` `icmp` `icmp6` `igmp` `ah` `esp` `pim` … | protocol |
//! | `[ip\|ip6\|arp\|rarp] [DIR] host\|net ADDRESS` | address; `/len`, `mask`, and prefixes as in `net 10.1` |
//! | `[tcp\|udp\|sctp] [DIR] port N`, `portrange A-B` | transport ports |
//! | `ether [DIR] host MAC`, `decnet [DIR] host A.N` | other addresses |
//! | `[ip\|ip6] proto N`, `[ip\|ip6] protochain N`, `ether proto N`, `iso proto N`, `isis proto N` | protocol numbers, or names as in `ip proto \tcp` |
//! | `broadcast`, `multicast`, `ip multicast`, `ip6 multicast` | group addresses |
//! | `vlan [N]`, `mpls [N]`, `pppoes [N]`, `pppoed` | move everything to their right behind themselves |
//! | `llc [KIND]`, `iso`, `clnp`, `isis`, `l1`, `stp`, `ipx`, `netbeui`, `atalk`, `decnet`, `lat` … | framing and protocols of old |
//! | `tcp[13] & 2 != 0`, `len > 100`, `less N`, `greater N` | numbers |
//!
//! `DIR` is `src`, `dst`, `src or dst` or `src and dst`. Terms are joined with `and`/`&&`, `or`/`||`,
//! `not`/`!` and parentheses. As in libpcap `not` binds tightest and `and` and `or` bind *equally*,
//! from left to right, and a bare value repeats the qualifiers before it: `tcp port 80 or 443`.
//!
//! # Meaning
//!
//! What libpcap 1.10 compiles for an Ethernet link, surprises included; `docs/filters.md` lists them.
//!
//! One difference, on packets cut inside a header: when a term needs bytes that are not there, or
//! divides by zero, the *term* is false. In libpcap the *whole filter* is then false, so that neither
//! `F` nor `not F` matches, which would break the rule that the edges `F` and `not F` share all packets
//! between them.
//!
//! # Extensions to libpcap
//!
//! - `any tcp`, `any udp port 53`, `any proto N`: behind tags, labels, PPPoE and extension headers.
//!   `any ip`, `any host A`, `any src net N`: behind tags, labels and PPPoE.
//! - `tos N` (E2, figure 16): IPv4's type of service or IPv6's traffic class.
//! - `dst ip X`, `src ip X` (E2, figure 14): the same as `dst net X`, `src net X`.
//! - Named addresses, given by the caller: see [`parse_with`].
//! - `scope.name` is a tag ([`Expr::Tag`]), left for the caller: see [`Expr::resolve_tags`].
//! - `ingress == 2`, left for the caller: see [`Expr::resolve_ingress`].
//! - `scope.name == 3` and `scope.name ~ "pattern"`, left for the caller: see [`Expr::place_tags`].
//! - `true` and `false`.
//! - In `port 1 or ((2 or 3) or 4)` a list may begin with a bracket, and `ip[4-2]` needs no blanks.
//!
//! Not taken, with an error that says what to write: host and service *names* (nothing is ever looked
//! up), masks that are not prefixes, `geneve`, `byte`, `gateway`, `ip broadcast`, and what libpcap
//! itself refuses on Ethernet.

mod arith;
mod compile;
mod cond;
mod cross;
mod diagram;
mod display;
mod emit;
mod error;
mod expr;
mod field;
mod kinds;
mod lexer;
mod lower;
mod naive;
mod net;
mod offsets;
mod pages;
mod parse;
mod primitive;
mod shape;
mod suggest;
mod surprise;
mod tags;
mod terms;
mod value;
mod words;

pub use arith::{Arith, Compare, Header, Operator, Relation, Size};
pub use compile::{CompileError, Filter};
pub use error::{ParseError, Why};
pub use expr::{Expr, MAX_PATTERN, SlotTest, TagTest};
pub use naive::naive_matches;
pub use net::{Mac, Net, NetError};
pub use offsets::Misplaced;
pub use parse::{MAX_DEPTH, MAX_TEXT, parse, parse_with};
pub use primitive::{
    AnyTest, Direction, Family, Group, IpFamily, LlcKind, Network, Primitive, Protocol, Transport,
};
pub use suggest::takes;
pub use surprise::{Surprise, warnings};
pub use terms::{Condition, Number, Terms};
