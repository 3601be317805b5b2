//! Exact answers about sets of packets: whether two filters can match the same packet, whether a list
//! of filters misses one, whether one filter's packets are among another's. An answer is a proof, or an
//! example: a packet, as bytes, of which `weir_filter` itself says that it is one. Where neither can be
//! had the answer is [`Verdict::Unknown`], with the reason; it is never a guess.
//!
//! E2 (Palkar et al., SOSP 2015, appendix A) asks for this of a policy: the filters on the edges out of
//! an NF must be pairwise disjoint and together match every packet.
//!
//! ```
//! use weir_logic::{Universe, Verdict};
//!
//! let mut universe = Universe::default();
//! let web = universe.class(&weir_filter::parse("tcp dst port 80").unwrap());
//! let tagged = universe.class(&weir_filter::parse("vlan and tcp dst port 80").unwrap());
//! let fast = universe.class(&weir_filter::parse("src net 10.0.0.0/8").unwrap());
//!
//! // To libpcap `tcp` is not what stands behind a VLAN tag.
//! assert_eq!(universe.disjoint(web, tagged), Verdict::Empty);
//! let Verdict::Example(packet) = universe.disjoint(web, fast) else { panic!() };
//! assert_eq!(packet.fields()[2].to_string(), "ip src host 10.0.2.1");
//! ```
//!
//! # What is exact
//!
//! A packet is its bytes (at most 65,535), their number, and what NFs said of it (tags). All of the
//! following is decided exactly, in any combination, and `Empty` as well as `Example` is final:
//!
//! - every term that looks at fixed offsets: EtherTypes, VLAN tags, MPLS labels and PPPoE sessions at any
//!   depth, MAC and IP addresses and their prefixes, protocol numbers, fragments, IPv6's fragment header,
//!   ports over IPv6, LLC, and bytes as in `ip[8] < 5`, with a mask or without, compared with a constant.
//!   The same bytes looked at by different terms, or behind another number of `vlan`, are the same to it;
//! - ports, flags and bytes behind IPv4 headers of any length, as in `tcp[13] & 2 != 0`;
//! - `len`, and packets cut anywhere: a term that needs bytes that are not there is false, and a hole
//!   that only such packets fall through is a hole. An example is a whole packet if there is one;
//! - tags that are true or not, tags compared with numbers, and `ingress`, each independent of everything
//!   else. A tag without a value is in no comparison, so `a == 1` and `a != 1` do not cover everything.
//!
//! *Opaque* numbers are not looked into: other arithmetic, comparisons of two numbers, `protochain`, what
//! `any` finds, bytes before the end of an IPv4 header (`tcp[-1]`), and regular expressions. They are there
//! or not and have any value, but the same number is the same everywhere. So `any tcp` and `any udp` are
//! disjoint, `a` and `not a` are disjoint and cover everything, and whatever is proved with opaque numbers
//! holds. What depends on them is tried with a number of packets, and if one is an example it is
//! reported; if not, the answer is [`Reason::Opaque`], with the terms.
//!
//! A primitive where libpcap does not take it (`vlan` behind `mpls`) matches nothing.
//!
//! # How
//!
//! Each filter becomes a binary decision diagram over the packet's bits. What a question leaves open is
//! intersected with what is true of all packets (longer packets have the bytes of shorter ones), and
//! one of the rest is written as a packet and given to `weir_filter`, compiled and plain. If bytes behind
//! an IPv4 header collide with bytes at fixed offsets there is no such packet: the fact that forbids it
//! ("if this header has 5 words, then ...") is added, and the next one is tried (refinement guided by
//! counterexamples; Clarke et al., CAV 2000).
//!
//! Memory and time have [`Limits`].

mod bdd;
mod draft;
mod fields;
mod limits;
mod model;
#[cfg(test)]
mod properties;
mod theory;
mod universe;
mod variable;
mod verdict;

pub use limits::{Limits, Spent};
pub use universe::{Class, Universe};
pub use verdict::{FieldValue, NumberValue, Reason, TagValue, Verdict, Witness};
