//! The meaning of filters, said as plainly as possible: what the compiled form is tested against.
//! Shares no code with it.

mod any;
mod link;
mod network;
mod number;

use crate::expr::Expr;
use crate::primitive::{Direction, Primitive};

/// True when `packet`, an Ethernet frame, matches `expr`. Slow; for tests and oracles.
///
/// A tag that was not resolved is false, as is a test of a tag's value, of a slot or of the ingress port, and a
/// primitive that stands where libpcap does not take it.
#[must_use]
pub fn naive_matches(expr: &Expr, packet: &[u8]) -> bool {
    let mut place = Place { packet, link: 0, kind: 12, payload: 14, labels: 0, ppp: false };
    expression(expr, &mut place)
}

/// Where the next primitive looks.
#[derive(Clone)]
struct Place<'p> {
    packet: &'p [u8],
    /// The link layer's header.
    link: usize,
    /// The two bytes that say what follows.
    kind: usize,
    /// What follows.
    payload: usize,
    /// Labels that stand there first.
    labels: usize,
    /// Inside PPP.
    ppp: bool,
}

/// Looks at every part, also when the result is known already: some move what follows them.
fn expression(expr: &Expr, place: &mut Place<'_>) -> bool {
    match expr {
        Expr::True => true,
        Expr::False
        | Expr::Tag { .. }
        | Expr::TagIs { .. }
        | Expr::Slot(_)
        | Expr::Ingress { .. } => false,
        Expr::Not(inner) => !expression(inner, place),
        Expr::And(list) => {
            let mut all = true;
            for e in list {
                let this = expression(e, place);
                all = all && this;
            }
            all
        }
        Expr::Or(list) => {
            let mut any = false;
            for e in list {
                let this = expression(e, place);
                any = any || this;
            }
            any
        }
        Expr::Primitive(p) => {
            let result = primitive(p, place).unwrap_or(false);
            match p {
                Primitive::Vlan { .. } => {
                    place.kind += 4;
                    place.payload += 4;
                }
                Primitive::Mpls { .. } => place.labels += 1,
                Primitive::Pppoes { .. } => {
                    place.link = place.network() + 6;
                    place.kind = place.link;
                    place.payload = place.link + 2;
                    place.labels = 0;
                    place.ppp = true;
                }
                _ => {}
            }
            result
        }
    }
}

/// `None` when bytes that decide it are missing.
fn primitive(p: &Primitive, at: &Place<'_>) -> Option<bool> {
    match p {
        Primitive::Protocol(p) => at.protocol(*p),
        Primitive::EtherProto(0x8137) if at.labels == 0 => Some(at.number(at.kind, 2)? == 0x8137),
        Primitive::EtherProto(n) => at.is(*n),
        Primitive::IpProto { family, number } => at.ip_protocol(*family, (*number).into()),
        Primitive::Chain { family, number } => at.chain(*family, (*number).into()),
        Primitive::Vlan { id } => at.vlan(*id),
        Primitive::Mpls { label } => at.mpls(*label),
        Primitive::Pppoed => at.is(0x8863),
        Primitive::Pppoes { session } => Some(
            at.is(0x8864)?
                && match session {
                    None => true,
                    Some(n) => at.number(at.network(), 4)? % 0x1_0000 == u128::from(*n),
                },
        ),
        Primitive::Ether { direction, mac } => {
            let wanted = mac.0.iter().fold(0, |n, b| n * 256 + u128::from(*b));
            if at.ppp {
                return None;
            }
            // libpcap reads the last four bytes first, and the others only if those are right.
            let same = |place: usize| {
                Some(
                    at.number(place + 2, 4)? == wanted % (1 << 32)
                        && at.number(place, 2)? == wanted >> 32,
                )
            };
            either(*direction, || same(6), || same(0))
        }
        Primitive::Decnet { direction, address } => at.decnet(*direction, *address),
        Primitive::Net { family, direction, net } => at.address(*family, *direction, net),
        Primitive::Port { transport, direction, first, last } => {
            at.port(*transport, *direction, (*first).into()..=(*last).into())
        }
        Primitive::IsoProto(n) => at.iso(*n),
        Primitive::IsisProto(n) => at.isis(&[*n]),
        Primitive::Llc(kind) => at.llc(*kind),
        Primitive::Broadcast => {
            if at.ppp {
                return None;
            }
            Some(at.number(0, 6)? == 0xffff_ffff_ffff)
        }
        Primitive::Multicast(group) => at.multicast(*group),
        Primitive::Tos(tos) => at.tos((*tos).into()),
        Primitive::Any(test) => any::holds(test, at.packet),
        Primitive::Relation(relation) => at.relation(relation),
    }
}

/// The source first; what is missing ends the question, as in libpcap.
fn either(
    direction: Direction,
    src: impl Fn() -> Option<bool>,
    dst: impl Fn() -> Option<bool>,
) -> Option<bool> {
    match direction {
        Direction::Src => src(),
        Direction::Dst => dst(),
        Direction::Either => Some(src()? || dst()?),
        Direction::Both => Some(src()? && dst()?),
    }
}

impl Place<'_> {
    /// The network layer's header.
    fn network(&self) -> usize {
        self.payload + 4 * self.labels
    }

    /// The big-endian number in `len` bytes at `at`.
    fn number(&self, at: usize, len: usize) -> Option<u128> {
        number(self.packet, at, len)
    }
}

fn number(packet: &[u8], at: usize, len: usize) -> Option<u128> {
    let bytes = packet.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().fold(0, |n, b| n * 256 + u128::from(*b)))
}
