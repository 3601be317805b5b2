//! `any`: what stands behind tags, labels and PPPoE, and the upper-layer protocol behind extension headers.

use weir_packet::Bytes;

/// Most tags, labels, session headers and extension headers looked through, in all. What has more is
/// nothing that `any` finds.
const MAX_LAYERS: usize = 32;

/// What of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnyField {
    /// The EtherType behind tags, labels and PPPoE.
    Kind,
    /// The four bytes at `at` of the header behind them. Missing when it is not of this EtherType.
    Word { kind: u16, at: u8 },
    /// The protocol number.
    Protocol,
    /// The source port. Missing in a later fragment.
    Source,
    /// The destination port. Missing in a later fragment.
    Destination,
}

impl AnyField {
    pub(super) fn value<B: Bytes + ?Sized>(self, packet: &B) -> Option<u32> {
        let ports = || upper(packet)?.1;
        match self {
            AnyField::Kind => network(packet).map(|(kind, _)| kind.into()),
            AnyField::Word { kind, at } => {
                let (found, begin) = network(packet)?;
                packet.be32(begin.checked_add(at.into()).filter(|_| found == kind)?)
            }
            AnyField::Protocol => upper(packet).map(|(protocol, _)| protocol.into()),
            AnyField::Source => packet.be16(ports()?).map(u32::from),
            AnyField::Destination => packet.be16(ports()?.checked_add(2)?).map(u32::from),
        }
    }

    /// The highest value that it can have.
    pub(super) fn highest(self) -> u32 {
        match self {
            AnyField::Word { .. } => u32::MAX,
            AnyField::Kind | AnyField::Protocol | AnyField::Source | AnyField::Destination => {
                0xffff
            }
        }
    }
}

/// The upper-layer protocol, and where its header begins unless that is in another fragment.
fn upper<B: Bytes + ?Sized>(packet: &B) -> Option<(u8, Option<usize>)> {
    match network(packet)? {
        (0x0800, at) => upper4(packet, at),
        (0x86dd, at) => upper6(packet, at),
        _ => None,
    }
}

/// The EtherType behind tags, labels and PPPoE, and where what it names begins.
fn network<B: Bytes + ?Sized>(packet: &B) -> Option<(u16, usize)> {
    let mut kind = packet.be16(12)?;
    let mut at = 14_usize;
    for _ in 0..MAX_LAYERS {
        match kind {
            0x8100 | 0x88a8 | 0x9100 => {
                kind = packet.be16(at.checked_add(2)?)?;
                at = at.checked_add(4)?;
            }
            // A label; below the last one the first bits say which IP it is (RFC 4928 §3).
            0x8847 | 0x8848 => {
                let label = packet.be32(at)?;
                at = at.checked_add(4)?;
                if label & 0x100 != 0 {
                    kind = match packet.u8(at)? >> 4 {
                        4 => 0x0800,
                        6 => 0x86dd,
                        _ => return None,
                    };
                }
            }
            // RFC 2516 §4, then PPP's protocol number.
            0x8864 => {
                kind = match packet.be16(at.checked_add(6)?)? {
                    0x21 => 0x0800,
                    0x57 => 0x86dd,
                    _ => return None,
                };
                at = at.checked_add(8)?;
            }
            _ => return Some((kind, at)),
        }
    }
    None
}

fn upper4<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<(u8, Option<usize>)> {
    let length = usize::from(packet.u8(at)? & 0xf).checked_mul(4)?;
    let first = packet.be16(at.checked_add(6)?)? & 0x1fff == 0;
    let protocol = packet.u8(at.checked_add(9)?)?;
    let behind = at.checked_add(length)?;
    Some((protocol, first.then_some(behind)))
}

/// Extension headers of RFC 8200 §4, RFC 4302 and those that RFC 7045 §3 lists beside them.
fn upper6<B: Bytes + ?Sized>(packet: &B, start: usize) -> Option<(u8, Option<usize>)> {
    let mut next = packet.u8(start.checked_add(6)?)?;
    let mut at = start.checked_add(40)?;
    let mut first = true;
    for _ in 0..MAX_LAYERS {
        let length = match next {
            0 | 43 | 60 | 135 | 139 | 140 => {
                usize::from(packet.u8(at.checked_add(1)?)?).checked_add(1)?.checked_mul(8)?
            }
            44 => {
                first &= packet.be16(at.checked_add(2)?)? & 0xfff8 == 0;
                8
            }
            51 => usize::from(packet.u8(at.checked_add(1)?)?).checked_add(2)?.checked_mul(4)?,
            _ => return Some((next, first.then_some(at))),
        };
        next = packet.u8(at)?;
        at = at.checked_add(length)?;
        if !first {
            // What follows stands in the first fragment.
            return Some((next, None));
        }
    }
    None
}
