//! Expressions to conditions over fields. Offsets move from left to right, as libpcap's do.

mod arith;
mod link;
mod network;

use crate::arith::Size;
use crate::cond::{Cond, FieldId, Fields};
use crate::expr::{Expr, SlotTest};
use crate::field::{AnyField, Field};
use crate::offsets::{Misplaced, Offsets};
use crate::primitive::{AnyTest, Direction, Family, Group, Primitive, Protocol, Transport};
pub(crate) use link::{IPV4, IPV6};

/// Why an expression has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LowerError {
    /// The primitive of this place, counted from the left, cannot stand there.
    Misplaced { index: usize, why: Misplaced },
    /// An output of an NF, which the caller resolves.
    Tag { scope: String, name: String },
    /// Something else that is not in the packet, as text.
    Value(String),
}

/// The conditions that `expr` comes down to.
pub(crate) fn lower(expr: &Expr) -> Result<(Fields, Cond), LowerError> {
    let mut lower = Lower::new();
    let cond = lower.expression(expr)?;
    Ok((lower.fields, cond))
}

/// The first primitive that cannot stand where it does, counted from the left.
pub(crate) fn misplaced(expr: &Expr) -> Option<(usize, Misplaced)> {
    let mut lower = Lower::new();
    let mut found = None;
    expr.visit(&mut |e| {
        if let (Expr::Primitive(primitive), None) = (e, &found) {
            let index = lower.primitives;
            if let Err(why) = lower.next(primitive) {
                found = Some((index, why));
            }
        }
    });
    found
}

pub(crate) struct Lower {
    pub(crate) fields: Fields,
    offsets: Offsets,
    /// How many were met.
    primitives: usize,
    /// Says also what follows from the rest: to run a filter it is wasted, to reason about it not.
    pub(crate) implied: bool,
}

/// What a primitive comes down to.
pub(crate) type Made = Result<Cond, Misplaced>;

impl Lower {
    pub(crate) fn new() -> Self {
        Self { fields: Fields::default(), offsets: Offsets::new(), primitives: 0, implied: false }
    }

    fn expression(&mut self, expr: &Expr) -> Result<Cond, LowerError> {
        let mut all = |list: &[Expr]| {
            list.iter().map(|e| self.expression(e)).collect::<Result<Vec<Cond>, LowerError>>()
        };
        Ok(match expr {
            Expr::True => Cond::Const(true),
            Expr::False => Cond::Const(false),
            Expr::Tag { scope, name } => {
                return Err(LowerError::Tag { scope: scope.clone(), name: name.clone() });
            }
            Expr::TagIs { .. } | Expr::Ingress { .. } => {
                return Err(LowerError::Value(expr.to_string()));
            }
            Expr::Slot(test) => Cond::Term(Box::new(self.slot(*test))),
            Expr::And(list) => Cond::All(all(list)?),
            Expr::Or(list) => Cond::Any(all(list)?),
            Expr::Not(inner) => Cond::not(self.expression(inner)?),
            Expr::Primitive(primitive) => {
                let index = self.primitives;
                let made = self.next(primitive);
                let cond = made.map_err(|why| LowerError::Misplaced { index, why })?;
                Cond::Term(Box::new(cond))
            }
        })
    }

    pub(crate) fn next(&mut self, primitive: &Primitive) -> Made {
        self.primitives = self.primitives.saturating_add(1);
        let cond = self.primitive(primitive);
        self.offsets.pass(primitive);
        cond
    }

    fn primitive(&mut self, primitive: &Primitive) -> Made {
        let network = self.offsets.network();
        match primitive {
            Primitive::Protocol(protocol) => self.protocol(*protocol),
            Primitive::Vlan { id } => self.vlan(*id),
            Primitive::Mpls { label } => self.mpls(*label),
            Primitive::Pppoed => self.kind(0x8863),
            Primitive::Pppoes { session } => {
                let kind = self.kind(0x8864)?;
                let session = session
                    .map(|n| self.is(Self::masked(network, Size::Four, 0xffff), u32::from(n)));
                Ok(all([Some(kind), session]))
            }
            Primitive::Net { family, direction, net } => self.net(*family, *direction, *net),
            Primitive::Port { transport, direction, first, last } => {
                self.port(*transport, *direction, (*first, *last))
            }
            Primitive::Ether { direction, mac } => {
                let [a, b, c, d, e, f] = mac.0;
                let (high, low) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
                self.ethernet()?;
                let mut address = |at: u32| {
                    let low = self.is(Self::at(at.saturating_add(2), Size::Four), low);
                    let high = self.is(Self::at(at, Size::Two), high.into());
                    Cond::All(vec![low, high])
                };
                let (src, dst) = (address(6), address(0));
                Ok(directed(*direction, src, dst))
            }
            Primitive::Decnet { direction, address } => self.decnet(*direction, *address),
            Primitive::IpProto { family, number } => self.ip_protocol(*family, *number),
            Primitive::Chain { family, number } => self.chain(*family, *number),
            Primitive::EtherProto(number) => self.ether_proto(*number),
            Primitive::IsoProto(number) => self.iso(*number),
            Primitive::IsisProto(number) => self.isis(&[*number]),
            Primitive::Llc(kind) => self.llc(*kind),
            Primitive::Broadcast => {
                self.ethernet()?;
                let low = self.is(Self::at(2, Size::Four), u32::MAX);
                let high = self.is(Self::at(0, Size::Two), 0xffff);
                Ok(Cond::All(vec![low, high]))
            }
            Primitive::Multicast(Group::Ether) => {
                self.ethernet()?;
                Ok(self.is(Self::masked(0, Size::One, 1), 1))
            }
            Primitive::Multicast(Group::Ip) => {
                let ip = self.protocol(Protocol::Ip)?;
                let first = Self::at(network.saturating_add(16), Size::One);
                Ok(Cond::All(vec![ip, self.within(first, 224, u32::MAX)]))
            }
            Primitive::Multicast(Group::Ip6) => {
                let ip6 = self.protocol(Protocol::Ip6)?;
                Ok(Cond::All(vec![
                    ip6,
                    self.is(Self::at(network.saturating_add(24), Size::One), 255),
                ]))
            }
            Primitive::Tos(tos) => {
                let ip = self.protocol(Protocol::Ip)?;
                let four = Self::at(network.saturating_add(1), Size::One);
                let four = Cond::All(vec![ip, self.is(four, (*tos).into())]);
                let ip6 = self.protocol(Protocol::Ip6)?;
                // RFC 8200 §3: the class stands behind four bits of version.
                let six = Self::masked(network, Size::Two, 0x0ff0);
                let six = Cond::All(vec![ip6, self.is(six, u32::from(*tos) << 4)]);
                Ok(Cond::Any(vec![four, six]))
            }
            Primitive::Any(test) => Ok(self.any(*test)),
            Primitive::Relation(relation) => self.relation(relation),
        }
    }

    fn any(&mut self, test: AnyTest) -> Cond {
        let kind = Field::Any(AnyField::Kind);
        let ip = self.implied.then(|| self.one_of(kind.clone(), &[IPV4.into(), IPV6.into()]));
        let protocol = Field::Any(AnyField::Protocol);
        match test {
            AnyTest::Network(network) => self.is(kind, network.ether_type().into()),
            AnyTest::Net { family, direction, net } => {
                let places = network::places(net).iter().filter(|(of, ..)| family.takes(*of));
                let way = |(_, number, src, dst): &(Family, u16, u32, u32)| {
                    let kind = self.is(kind.clone(), (*number).into());
                    let mut address = |at: u32| {
                        network::address(net, |offset, first, last| {
                            let at = at.saturating_add(offset).try_into().unwrap_or(u8::MAX);
                            let word = AnyField::Word { kind: *number, at };
                            self.within(Field::Any(word), first, last)
                        })
                    };
                    let (src, dst) = (address(*src), address(*dst));
                    Cond::All(vec![kind, directed(direction, src, dst)])
                };
                Cond::Any(places.map(way).collect())
            }
            AnyTest::Protocol(number) => all([ip, Some(self.is(protocol, number.into()))]),
            AnyTest::Port { transport, direction, first, last } => {
                let protocol = self.one_of(protocol, numbers(transport));
                let (first, last) = (first.into(), last.into());
                let src = self.within(Field::Any(AnyField::Source), first, last);
                let dst = self.within(Field::Any(AnyField::Destination), first, last);
                all([ip, Some(protocol), Some(directed(direction, src, dst))])
            }
        }
    }

    /// In numbers of 32 bits: as one when the mask fits, else the high half and the low.
    fn slot(&mut self, SlotTest { slot, mask, first, last }: SlotTest) -> Cond {
        if first > last || mask == 0 {
            return Cond::Const(first <= last && first == 0);
        }
        let half = |n: u64, shift: u32| u32::try_from(n >> shift & 0xffff_ffff).unwrap_or(u32::MAX);
        let low_bit = mask.trailing_zeros();
        let mut within = |shift: u32, mask: u32, first: u32, last: u32| {
            let shift = u8::try_from(shift).unwrap_or(0);
            let field = self.id(Field::Tag { slot, shift, mask });
            Cond::In(field, if first <= last { vec![(first, last)] } else { Vec::new() })
        };
        if mask >> low_bit <= u64::from(u32::MAX) {
            let of = |n| half(n, low_bit);
            return within(low_bit, of(mask), of(first), of(last));
        }
        let (high, low) = (half(mask, 32), half(mask, 0));
        let ((a, b), (c, d)) = ((half(first, 32), half(first, 0)), (half(last, 32), half(last, 0)));
        if a == c {
            return Cond::All(vec![within(32, high, a, c), within(0, low, b, d)]);
        }
        Cond::Any(vec![
            Cond::All(vec![within(32, high, a, a), within(0, low, b, u32::MAX)]),
            within(32, high, a.saturating_add(1), c.saturating_sub(1)),
            Cond::All(vec![within(32, high, c, c), within(0, low, 0, d)]),
        ])
    }

    fn ethernet(&self) -> Result<(), Misplaced> {
        if self.offsets.ppp { Err(Misplaced::BehindPpp) } else { Ok(()) }
    }

    fn at(at: u32, size: Size) -> Field {
        Field::Fixed { at, size, mask: full(size) }
    }

    fn masked(at: u32, size: Size, mask: u32) -> Field {
        Field::Fixed { at, size, mask }
    }

    fn id(&mut self, field: Field) -> FieldId {
        self.fields.id(field)
    }

    fn is(&mut self, field: Field, value: u32) -> Cond {
        self.within(field, value, value)
    }

    fn within(&mut self, field: Field, first: u32, last: u32) -> Cond {
        Cond::In(self.id(field), vec![(first, last)])
    }

    /// `values` must be in order.
    fn one_of(&mut self, field: Field, values: &[u32]) -> Cond {
        Cond::In(self.id(field), values.iter().map(|v| (*v, *v)).collect())
    }
}

/// The mask that takes all of so many bytes.
fn full(size: Size) -> u32 {
    match size {
        Size::One => 0xff,
        Size::Two => 0xffff,
        Size::Four => u32::MAX,
    }
}

/// The protocol numbers of those that have ports, in order.
fn numbers(transport: Transport) -> &'static [u32] {
    match transport {
        Transport::Any => &[6, 17, 132],
        Transport::Tcp => &[6],
        Transport::Udp => &[17],
        Transport::Sctp => &[132],
    }
}

fn all<const N: usize>(list: [Option<Cond>; N]) -> Cond {
    Cond::All(list.into_iter().flatten().collect())
}

fn directed(direction: Direction, src: Cond, dst: Cond) -> Cond {
    match direction {
        Direction::Either => Cond::Any(vec![src, dst]),
        Direction::Src => src,
        Direction::Dst => dst,
        Direction::Both => Cond::All(vec![src, dst]),
    }
}
