//! Shapes of packets: what nearly all of them have in common, so that a filter need not ask for it.
//!
//! A packet of a shape has its headers at known places, and so many bytes. Under that a filter's condition
//! loses most of its tests: what kind it is and which protocol is known, the port stands at a fixed
//! place, bytes that must be there cannot be missing. So each filter is compiled for each shape beside
//! the program for all packets, and two loads tell which to run.

use weir_packet::Bytes;

use crate::arith::Size;
use crate::cond::{Cond, Fields};
use crate::field::Field;
use crate::lower::{IPV4, IPV6};

/// Where the network layer begins behind an Ethernet header without tags.
const NETWORK: u32 = 14;
/// Bytes of an IPv4 header without options, of an IPv6 header, of a TCP header without options, of a
/// UDP header, and of ARP over IPv4 (RFC 826).
const IP4: u32 = 20;
const IP6: u32 = 40;
const TCP: u32 = 20;
const UDP: u32 = 8;
const ARP: u32 = 28;

/// What is known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    network: Layer,
    /// The protocol, or the next header; none when it is neither TCP nor UDP.
    protocol: Option<u8>,
    /// Bytes that it has at least.
    length: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// IPv4 with a header of five words, and not a later fragment.
    Four,
    Six,
    /// Neither.
    None,
}

const fn shape(network: Layer, protocol: Option<u8>, behind: u32) -> Shape {
    let own = match network {
        Layer::Four => IP4,
        Layer::Six => IP6,
        Layer::None => 0,
    };
    Shape { network, protocol, length: NETWORK + own + behind }
}

/// In the order in which [`of`] counts them.
pub(crate) const SHAPES: [Shape; 7] = [
    shape(Layer::Four, None, 0),
    shape(Layer::Four, Some(6), TCP),
    shape(Layer::Four, Some(17), UDP),
    shape(Layer::Six, None, 0),
    shape(Layer::Six, Some(6), TCP),
    shape(Layer::Six, Some(17), UDP),
    shape(Layer::None, None, ARP),
];

/// All of them, and before them no shape.
pub(crate) const PLACES: usize = SHAPES.len() + 1;

/// The bytes of each place.
const LENGTHS: [usize; PLACES] = {
    let mut lengths = [0; PLACES];
    let mut at = 0;
    while at < SHAPES.len() {
        lengths[at + 1] = SHAPES[at].length as usize;
        at += 1;
    }
    lengths
};

/// The place of the packet's shape in [`SHAPES`] and one; 0 when it has none.
///
/// Without a branch by what packets of one link differ in: whether TCP or UDP comes next nobody can
/// foretell.
#[inline]
pub(crate) fn of<B: Bytes + ?Sized>(packet: &B) -> usize {
    // From the EtherType on; and IPv4's fragment word, TTL and protocol, or IPv6's next header.
    let (Some(kind), Some(words)) = (packet.be32(12), packet.be32(20)) else {
        return 0;
    };
    let four = kind >> 16 == u32::from(IPV4);
    let plain = (kind >> 8 == u32::from(IPV4) << 8 | 0x45) & (words & 0x1fff_0000 == 0);
    let six = kind >> 16 == u32::from(IPV6);
    let protocol = if six { words >> 24 } else { words & 0xff };
    let transport = usize::from(protocol == 6) | usize::from(protocol == 17) << 1;
    let place = if six { 4_usize } else { 1 }.saturating_add(transport);
    let other = if four { 0 } else { PLACES - 1 };
    let place = if plain | six { place } else { other };
    let length = LENGTHS.get(place).map_or(usize::MAX, |length| *length);
    if packet.len() >= length { place } else { 0 }
}

impl Shape {
    /// What `cond` comes down to for packets of this shape, and the fields that are left.
    pub(crate) fn narrowed(self, cond: &Cond, fields: &Fields) -> (Fields, Cond) {
        let mut narrow = Narrow { shape: self, fields, left: Fields::default() };
        let (cond, _) = narrow.cond(cond);
        (narrow.left, cond)
    }

    /// Most fields of a table. Where packets are of many kinds, a walk that ends at the first field for most
    /// of them is better.
    pub(crate) fn columns(self) -> usize {
        if self.protocol.is_some() { 8 } else { 1 }
    }

    /// True when only the EtherType tells what packets are.
    pub(crate) fn is_of_many_kinds(self) -> bool {
        self.network == Layer::None
    }

    /// The byte at `at`, and which of its bits are known.
    fn known(self, at: u32) -> (u8, u8) {
        let [high, low] = match self.network {
            Layer::Four => IPV4.to_be_bytes(),
            Layer::Six => IPV6.to_be_bytes(),
            Layer::None => return (0, 0),
        };
        let protocol = self.protocol.map_or((0, 0), |protocol| (protocol, 0xff));
        match (at, self.network) {
            (12, _) => (high, 0xff),
            (13, _) => (low, 0xff),
            (14, Layer::Four) => (0x45, 0xff),
            (20, Layer::Four) => (0, 0x1f),
            (21, Layer::Four) => (0, 0xff),
            (23, Layer::Four) | (20, Layer::Six) => protocol,
            _ => (0, 0),
        }
    }

    /// Values that the field is known not to have.
    fn never(self, field: &Field) -> &'static [u32] {
        let Field::There { at, size, mask } = *field else { return &[] };
        match (self.network, self.protocol, at, size, mask) {
            (Layer::None, _, 12, Size::Two, 0xffff) => &[IPV4 as u32, IPV6 as u32],
            (Layer::Four, None, 23, Size::One, 0xff) | (Layer::Six, None, 20, Size::One, 0xff) => {
                &[6, 17]
            }
            _ => &[],
        }
    }

    /// A field that may stand at a place known by now.
    fn placed(self, field: &Field) -> Field {
        match *field {
            Field::Behind { header: NETWORK, at, size, mask } if self.network == Layer::Four => {
                match NETWORK.checked_add(at.wrapping_add(IP4)) {
                    Some(at) => self.placed(&Field::Fixed { at, size, mask }),
                    None => field.clone(),
                }
            }
            Field::Fixed { at, size, mask } if end(at, size) <= self.length => {
                Field::There { at, size, mask }
            }
            _ => field.clone(),
        }
    }

    /// The field's value, if all bits that count are known.
    fn value(self, field: &Field) -> Option<u32> {
        let Field::There { at, size, mask } = *field else { return None };
        let (mut value, mut bits) = (0_u32, 0_u32);
        for at in at..end(at, size) {
            let (byte, known) = self.known(at);
            value = value << 8 | u32::from(byte);
            bits = bits << 8 | u32::from(known);
        }
        (mask & !bits == 0).then_some(value & mask)
    }
}

fn end(at: u32, size: Size) -> u32 {
    at.saturating_add(u32::try_from(size.bytes()).unwrap_or(u32::MAX))
}

struct Narrow<'a> {
    shape: Shape,
    fields: &'a Fields,
    left: Fields,
}

impl Narrow<'_> {
    /// The condition, and whether it is never missing.
    fn cond(&mut self, cond: &Cond) -> (Cond, bool) {
        match cond {
            Cond::Const(value) => (Cond::Const(*value), true),
            Cond::In(field, ranges) => self.within(*field, ranges),
            Cond::Not(inner) => match self.cond(inner) {
                (Cond::Const(value), sure) => (Cond::Const(!value), sure),
                (inner, sure) => (Cond::not(inner), sure),
            },
            Cond::Term(inner) => match self.cond(inner) {
                (inner, true) => (inner, true),
                (inner, false) => (Cond::Term(Box::new(inner)), true),
            },
            Cond::All(list) => self.list(list, false, Cond::All),
            Cond::Any(list) => self.list(list, true, Cond::Any),
        }
    }

    fn within(&mut self, field: u32, ranges: &[(u32, u32)]) -> (Cond, bool) {
        let field = usize::try_from(field).ok().and_then(|id| self.fields.list.get(id));
        // There is no such field: nothing is in it.
        let Some(field) = field else { return (Cond::Const(false), true) };
        let field = self.shape.placed(field);
        if let Some(value) = self.shape.value(&field) {
            let within = ranges.iter().any(|(first, last)| (*first..=*last).contains(&value));
            return (Cond::Const(within), true);
        }
        // Ranges of more than one value are not looked at: they may hold others.
        let never = self.shape.never(&field);
        if ranges.iter().all(|(first, last)| first == last && never.contains(first)) {
            return (Cond::Const(false), true);
        }
        let sure = field.is_there();
        (Cond::In(self.left.id(field), ranges.to_vec()), sure)
    }

    /// `decisive` is the value of an operand that is the result.
    fn list(&mut self, list: &[Cond], decisive: bool, join: fn(Vec<Cond>) -> Cond) -> (Cond, bool) {
        let mut kept = Vec::with_capacity(list.len());
        let mut all_sure = true;
        for inner in list {
            match self.cond(inner) {
                (Cond::Const(value), _) if value != decisive => {}
                // Nobody asks what stands right of it; left of it something may be missing yet.
                (Cond::Const(_), _) => {
                    if all_sure {
                        return (Cond::Const(decisive), true);
                    }
                    kept.push(Cond::Const(decisive));
                    break;
                }
                (inner, sure) => {
                    all_sure &= sure;
                    kept.push(inner);
                }
            }
        }
        let cond = match (kept.len(), kept.pop()) {
            (1, Some(only)) => only,
            (_, Some(last)) => {
                kept.push(last);
                join(kept)
            }
            (_, None) => Cond::Const(!decisive),
        };
        (cond, all_sure)
    }
}
