//! What a filter says of a packet, as a function of the packet's bits.
//!
//! A filter looks at offsets, and how many `vlan` stand left of a term decides which. So terms of
//! different filters, or behind different numbers of tags, that look at the same bytes get the same
//! variables, whatever they take the bytes for: nothing is lost by that.
//!
//! A read of bytes that are not there makes the term false (`weir_filter`'s rule), so each read
//! brings the variable that says they are there.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use weir_filter::{Direction, Expr, Family, IpFamily, Net, Primitive, Protocol, Transport};

use crate::bdd::{Bdd, Ref};
use crate::limits::{Limits, Spent};
use crate::variable::Variable;

/// EtherTypes (IANA).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const VLANS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// AppleTalk, its ARP, and NetWare.
const IN_LLC: [u16; 3] = [0x809b, 0x80f3, 0x8137];

/// IPv6's fragment header (RFC 8200 §4.5).
const FRAGMENT: u8 = 44;

/// TCP, UDP and SCTP (IANA).
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// The diagrams, and what their variables stand for.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) bdd: Bdd,
    /// Scope and name of each tag.
    pub(crate) tags: Numbered<(String, String)>,
    /// What is not looked into: its text, and the last such term left of it in its filter.
    pub(crate) opaque: Numbered<(String, Option<u32>)>,
    /// Lengths that some term asks for: [`Variable::Has`].
    pub(crate) has: BTreeSet<u32>,
    /// The same behind IPv4 headers: [`Variable::L4Has`].
    pub(crate) l4_has: BTreeSet<(u32, u32)>,
    /// That fields are in ranges.
    within: HashMap<(Field, u128, u128), Ref>,
    /// [`Model::theory`]'s answer, until a length is asked for that was not known to it.
    pub(crate) theory: Option<Ref>,
}

/// Where a filter looks, moved by what stands left of a term.
#[derive(Clone, Debug)]
struct Place {
    /// Offset of the network header, in bytes.
    l3: u32,
    /// The last opaque term. It may have moved it, so all right of it is opaque too.
    lost: Option<u32>,
}

/// A number in the packet: `len` bytes, and of these bits so many of the highest and of the rest so
/// many of the lowest are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Field {
    /// Counted from the end of the IPv4 header here, if any.
    behind: Option<u32>,
    offset: u32,
    len: u32,
    without_highest: usize,
    without_lowest: usize,
}

/// A term's function; `None` when it cannot be said with these variables.
type Term = Result<Option<Ref>, Spent>;

impl Model {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            bdd: Bdd::new(limits),
            tags: Numbered::default(),
            opaque: Numbered::default(),
            has: BTreeSet::new(),
            l4_has: BTreeSet::new(),
            within: HashMap::new(),
            theory: None,
        }
    }

    /// Forgets the functions made since `mark`.
    pub(crate) fn undo(&mut self, mark: usize) {
        self.bdd.undo(mark);
        let Self { bdd, within, .. } = self;
        within.retain(|_, f| bdd.survives(*f, mark));
        self.theory = self.theory.filter(|f| self.bdd.survives(*f, mark));
    }

    /// The packets that `expr` matches.
    pub(crate) fn filter(&mut self, expr: &Expr) -> Result<Ref, Spent> {
        self.expression(expr, &mut Place { l3: 14, lost: None })
    }

    /// Looks at every part, also when the result is known: each `vlan` moves what follows it.
    fn expression(&mut self, expr: &Expr, place: &mut Place) -> Result<Ref, Spent> {
        match expr {
            Expr::True => Ok(Ref::TRUE),
            Expr::False => Ok(Ref::FALSE),
            Expr::Not(inner) => Ok(self.expression(inner, place)?.negated()),
            Expr::And(list) => list.iter().try_fold(Ref::TRUE, |f, e| {
                let g = self.expression(e, place)?;
                self.bdd.and(f, g)
            }),
            Expr::Or(list) => list.iter().try_fold(Ref::FALSE, |f, e| {
                let g = self.expression(e, place)?;
                self.bdd.or(f, g)
            }),
            Expr::Tag { scope, name } => {
                let index = self.tags.number(&(scope.clone(), name.clone()));
                self.alone(Variable::Tag { index, bit: 0 })
            }
            Expr::Primitive(p) => {
                let made = match place.lost {
                    None => self.primitive(p, place.l3)?,
                    Some(_) => None,
                };
                let Some(f) = made else {
                    return self.opaque(format!("{p} at byte {}", place.l3), place);
                };
                if matches!(p, Primitive::Vlan { .. }) {
                    place.l3 = place.l3.saturating_add(4);
                }
                Ok(f)
            }
            #[allow(unreachable_patterns, reason = "whatever is not known here is opaque")]
            other => self.opaque(other.to_string(), place),
        }
    }

    /// Something that is true of some packets, nobody says which.
    fn opaque(&mut self, text: String, place: &mut Place) -> Result<Ref, Spent> {
        let index = self.opaque.number(&(text, place.lost));
        place.lost = Some(index);
        self.alone(Variable::Opaque { index })
    }

    /// A new kind of term is one arm here; what cannot be said is `Ok(None)`.
    fn primitive(&mut self, p: &Primitive, l3: u32) -> Term {
        match *p {
            Primitive::Protocol(protocol) => match protocol {
                Protocol::Ip => self.ethertype(l3, IPV4),
                Protocol::Ip6 => self.ethertype(l3, IPV6),
                Protocol::Arp => self.ethertype(l3, ARP),
                Protocol::Rarp => self.ethertype(l3, RARP),
                Protocol::Tcp => self.ip_protocol(l3, IpFamily::Any, 6),
                Protocol::Udp => self.ip_protocol(l3, IpFamily::Any, 17),
                Protocol::Sctp => self.ip_protocol(l3, IpFamily::Any, 132),
                Protocol::Icmp => self.ip_protocol(l3, IpFamily::Ip, 1),
                Protocol::Icmp6 => self.ip_protocol(l3, IpFamily::Ip6, 58),
                #[allow(unreachable_patterns, reason = "whatever is not known here is opaque")]
                _ => return Ok(None),
            },
            // What libpcap looks for in LLC frames, too, is more than an EtherType.
            Primitive::EtherProto(number) if number < 1536 || IN_LLC.contains(&number) => {
                return Ok(None);
            }
            Primitive::EtherProto(number) => self.ethertype(l3, number),
            Primitive::IpProto { family, number } => self.ip_protocol(l3, family, number),
            Primitive::Vlan { id } => self.vlan(l3, id),
            Primitive::Net { family, direction, net } => self.net(l3, family, direction, net),
            Primitive::Port { transport, direction, first, last } => {
                return self.port(l3, transport, direction, first.into(), last.into());
            }
            Primitive::Ether { direction, mac } => {
                let wanted = mac.0.iter().fold(0, |n, b| n << 8 | u128::from(*b));
                self.pair(direction, [Field::at(6, 6), Field::at(0, 6)], wanted, wanted)
            }
            #[allow(unreachable_patterns, reason = "whatever is not known here is opaque")]
            _ => return Ok(None),
        }
        .map(Some)
    }

    fn ethertype(&mut self, l3: u32, number: u16) -> Result<Ref, Spent> {
        self.is(Field::at(l3.saturating_sub(2), 2), number.into())
    }

    fn vlan(&mut self, l3: u32, id: Option<u16>) -> Result<Ref, Spent> {
        let mut tagged = Ref::FALSE;
        for number in VLANS {
            let this = self.ethertype(l3, number)?;
            tagged = self.bdd.or(tagged, this)?;
        }
        let Some(id) = id else {
            return Ok(tagged);
        };
        let tci = Field { without_highest: 4, ..Field::at(l3, 2) };
        let same = self.is(tci, id.into())?;
        self.bdd.and(tagged, same)
    }

    /// The protocol number in IPv4's header; in IPv6's, or behind one fragment header.
    fn ip_protocol(&mut self, l3: u32, family: IpFamily, number: u8) -> Result<Ref, Spent> {
        let mut f = Ref::FALSE;
        if family != IpFamily::Ip6 {
            let v4 = self.ethertype(l3, IPV4)?;
            let same = self.is(Field::at(l3.saturating_add(9), 1), number.into())?;
            f = self.bdd.and(v4, same)?;
        }
        if family != IpFamily::Ip {
            let v6 = self.ethertype(l3, IPV6)?;
            let next = Field::at(l3.saturating_add(6), 1);
            let same = self.is(next, number.into())?;
            let fragment = self.is(next, FRAGMENT.into())?;
            let same_behind = self.is(Field::at(l3.saturating_add(40), 1), number.into())?;
            let in_fragment = self.bdd.and(fragment, same_behind)?;
            let either = self.bdd.or(same, in_fragment)?;
            let v6 = self.bdd.and(v6, either)?;
            f = self.bdd.or(f, v6)?;
        }
        Ok(f)
    }

    fn net(
        &mut self,
        l3: u32,
        family: Family,
        direction: Direction,
        net: Net,
    ) -> Result<Ref, Spent> {
        // EtherType, and where the two addresses stand behind the network header.
        const IN_V4: &[(Family, u16, [u32; 2])] = &[
            (Family::Ip, IPV4, [12, 16]),
            (Family::Arp, ARP, [14, 24]),
            (Family::Rarp, RARP, [14, 24]),
        ];
        const IN_V6: &[(Family, u16, [u32; 2])] = &[(Family::Ip6, IPV6, [8, 24])];
        let (wanted, bytes, places) = match net.address() {
            IpAddr::V4(a) => (a.to_bits().into(), 4, IN_V4),
            IpAddr::V6(a) => (a.to_bits(), 16, IN_V6),
        };
        let mut f = Ref::FALSE;
        for &(this, number, [src, dst]) in places {
            if family != Family::Any && family != this {
                continue;
            }
            let kind = self.ethertype(l3, number)?;
            let behind = u32::saturating_mul(bytes, 8).saturating_sub(net.prefix_len().into());
            let address = |at: u32| Field {
                without_lowest: usize::try_from(behind).unwrap_or(0),
                ..Field::at(l3.saturating_add(at), bytes)
            };
            let wanted = wanted.checked_shr(behind).unwrap_or(0);
            let same = self.pair(direction, [address(src), address(dst)], wanted, wanted)?;
            let this = self.bdd.and(kind, same)?;
            f = self.bdd.or(f, this)?;
        }
        Ok(f)
    }

    /// Ports of IPv4's first fragments, and where IPv6's header is followed by the transport's.
    fn port(
        &mut self,
        l3: u32,
        transport: Transport,
        direction: Direction,
        first: u128,
        last: u128,
    ) -> Term {
        let (Some(src), Some(dst)) = (Field::behind(l3, 0, 2), Field::behind(l3, 2, 2)) else {
            return Ok(None);
        };
        let ports = self.pair(direction, [src, dst], first, last)?;
        let v4 = self.ethertype(l3, IPV4)?;
        let has_ports = self.has_ports(Field::at(l3.saturating_add(9), 1), transport)?;
        let offset = Field { without_highest: 3, ..Field::at(l3.saturating_add(6), 2) };
        let unfragmented = self.is(offset, 0)?;
        let v4 = self.all(&[v4, unfragmented, has_ports, ports])?;

        let (src, dst) = (Field::at(l3.saturating_add(40), 2), Field::at(l3.saturating_add(42), 2));
        let ports = self.pair(direction, [src, dst], first, last)?;
        let v6 = self.ethertype(l3, IPV6)?;
        let has_ports = self.has_ports(Field::at(l3.saturating_add(6), 1), transport)?;
        let v6 = self.all(&[v6, has_ports, ports])?;
        self.bdd.or(v4, v6).map(Some)
    }

    fn has_ports(&mut self, protocol: Field, transport: Transport) -> Result<Ref, Spent> {
        let numbers: &[u8] = match transport {
            Transport::Any => &WITH_PORTS,
            Transport::Tcp => &[6],
            Transport::Udp => &[17],
            Transport::Sctp => &[132],
        };
        numbers.iter().try_fold(Ref::FALSE, |f, n| {
            let this = self.is(protocol, (*n).into())?;
            self.bdd.or(f, this)
        })
    }

    /// That a source's or destination's field is in `lo ..= hi`. The source is read first, and when it
    /// is not there the answer is no, whatever the destination is.
    fn pair(
        &mut self,
        direction: Direction,
        [src, dst]: [Field; 2],
        lo: u128,
        hi: u128,
    ) -> Result<Ref, Spent> {
        match direction {
            Direction::Src => self.is_in(src, lo, hi),
            Direction::Dst => self.is_in(dst, lo, hi),
            Direction::Either => {
                let (a, b) = (self.is_in(src, lo, hi)?, self.is_in(dst, lo, hi)?);
                let any = self.bdd.or(a, b)?;
                let there = self.there(src)?;
                self.bdd.and(there, any)
            }
            Direction::Both => {
                let (a, b) = (self.is_in(src, lo, hi)?, self.is_in(dst, lo, hi)?);
                self.bdd.and(a, b)
            }
        }
    }

    fn all(&mut self, list: &[Ref]) -> Result<Ref, Spent> {
        // The last stand deepest: so nothing above is built twice.
        list.iter().rev().try_fold(Ref::TRUE, |f, g| self.bdd.and(*g, f))
    }

    fn is(&mut self, field: Field, value: u128) -> Result<Ref, Spent> {
        self.is_in(field, value, value)
    }

    /// That the field is there, and in `lo ..= hi`. Further right than any packet goes nothing is.
    fn is_in(&mut self, field: Field, lo: u128, hi: u128) -> Result<Ref, Spent> {
        if let Some(f) = self.within.get(&(field, lo, hi)) {
            return Ok(*f);
        }
        let there = self.there(field)?;
        let f = match field.bits() {
            Some(bits) => {
                let same = self.bdd.range(&bits, lo, hi)?;
                self.bdd.and(there, same)?
            }
            None => Ref::FALSE,
        };
        self.within.insert((field, lo, hi), f);
        Ok(f)
    }

    /// That all its bytes are there.
    fn there(&mut self, field: Field) -> Result<Ref, Spent> {
        let bytes = field.offset.saturating_add(field.len);
        let (variable, is_new) = match field.behind {
            None => (Variable::Has { bytes }, self.has.insert(bytes)),
            Some(l3) => (Variable::L4Has { l3, bytes }, self.l4_has.insert((l3, bytes))),
        };
        if is_new {
            self.theory = None;
        }
        self.alone(variable)
    }

    /// That `variable` is true. Without a place it is not.
    fn alone(&mut self, variable: Variable) -> Result<Ref, Spent> {
        match variable.place() {
            Some(place) => self.bdd.choose(place, Ref::FALSE, Ref::TRUE),
            None => Ok(Ref::FALSE),
        }
    }
}

impl Field {
    /// `len` bytes at `offset`.
    fn at(offset: u32, len: u32) -> Self {
        Self { behind: None, offset, len, without_highest: 0, without_lowest: 0 }
    }

    /// `len` bytes at `offset` behind the IPv4 header at `l3`. None when its variables do not reach so
    /// far, although a packet may.
    fn behind(l3: u32, offset: u32, len: u32) -> Option<Self> {
        let field = Self { behind: Some(l3), ..Self::at(offset, len) };
        field.bits().map(|_| field)
    }

    /// The places of its bits, highest first.
    fn bits(&self) -> Option<Vec<u32>> {
        let variable = |byte, bit| match self.behind {
            None => Variable::Bit { byte, bit },
            Some(l3) => Variable::L4Bit { l3, byte, bit },
        };
        let taken = usize::try_from(self.len.saturating_mul(8)).unwrap_or(usize::MAX);
        let taken = taken.saturating_sub(self.without_lowest);
        (self.offset..self.offset.saturating_add(self.len))
            .flat_map(|byte| (0..8).rev().map(move |bit| (byte, bit)))
            .take(taken)
            .skip(self.without_highest)
            .map(|(byte, bit)| variable(byte, bit).place())
            .collect()
    }
}

/// Things in the order in which they first came.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    known: HashMap<T, u32>,
    list: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), list: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn number(&mut self, thing: &T) -> u32 {
        if let Some(number) = self.known.get(thing) {
            return *number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(thing.clone());
        self.known.insert(thing.clone(), number);
        number
    }

    /// The number of `thing`, if it has come.
    pub(crate) fn find(&self, thing: &T) -> Option<u32> {
        self.known.get(thing).copied()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.list.get(usize::try_from(number).ok()?)
    }
}
