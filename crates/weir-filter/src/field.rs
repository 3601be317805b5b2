//! What a compiled filter looks at: a number that it takes from a packet.

mod any;
mod chain;
mod program;

use weir_packet::Bytes;

use crate::arith::{Compare, Size};
use crate::primitive::IpFamily;
pub(crate) use any::AnyField;
pub(crate) use program::{Program, Step, binary};

/// A number of 32 bits, a function of the packet alone. It is *missing* when bytes are not there or a
/// number is divided by zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// Bytes at a fixed place, big-endian, with a mask.
    Fixed { at: u32, size: Size, mask: u32 },
    /// Bytes at a fixed place that are never missing: packets without them are asked otherwise.
    There { at: u32, size: Size, mask: u32 },
    /// Bytes behind an IPv4 header whose first byte is at `header`; `at` counts from the frame's begin
    /// as if that header had no length.
    Behind { header: u32, at: u32, size: Size, mask: u32 },
    /// The packet's length in bytes.
    Length,
    /// A number worked out.
    Value(Program),
    /// 1 when two numbers compare so, else 0.
    Compared { left: Program, compare: Compare, right: Program },
    /// 1 when the chain of headers of the IP header at `network` holds `number`, else 0.
    Chain { network: u32, family: IpFamily, number: u8 },
    /// What `any` finds behind tags, labels and extension headers.
    Any(AnyField),
    /// Bits of a tag slot from `shift` on. Not in the packet's bytes: see `Filter::matches_tagged`.
    Tag { slot: u8, shift: u8, mask: u32 },
}

impl Field {
    /// The highest value that it can have, for a table by its bytes; none for what is worked out, whose
    /// cases are mostly few and far apart.
    pub(crate) fn highest(&self) -> Option<u32> {
        match self {
            Field::Fixed { mask, .. }
            | Field::There { mask, .. }
            | Field::Behind { mask, .. }
            | Field::Tag { mask, .. } => Some(*mask),
            Field::Any(any) => Some(any.highest()),
            Field::Compared { .. } | Field::Chain { .. } => Some(0xffff),
            Field::Length | Field::Value(_) => None,
        }
    }

    /// It is never missing.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self, Field::There { .. } | Field::Length | Field::Tag { .. })
    }

    /// Its value in `packet`.
    #[inline]
    pub(crate) fn value<B: Bytes + ?Sized>(&self, packet: &B) -> Option<u32> {
        match self {
            Field::Fixed { at, size, mask } | Field::There { at, size, mask } => {
                Some(load(packet, *at, *size)? & mask)
            }
            Field::Behind { header, at, size, mask } => {
                Some(load(packet, behind(packet, *header, *at)?, *size)? & mask)
            }
            Field::Length => Some(length(packet)),
            slow => slow.slow(packet),
        }
    }

    /// Kept out of the way of the fields that nearly all filters are made of.
    #[inline(never)]
    fn slow<B: Bytes + ?Sized>(&self, packet: &B) -> Option<u32> {
        match self {
            Field::Value(program) => program.value(packet),
            Field::Compared { left, compare, right } => {
                let (left, right) = (left.value(packet)?, right.value(packet)?);
                Some(u32::from(match compare {
                    Compare::Equal => left == right,
                    Compare::NotEqual => left != right,
                    Compare::Less => left < right,
                    Compare::LessOrEqual => left <= right,
                    Compare::Greater => left > right,
                    Compare::GreaterOrEqual => left >= right,
                }))
            }
            Field::Chain { network, family, number } => {
                chain::holds(packet, *network, *family, *number).map(u32::from)
            }
            Field::Any(any) => any.value(packet),
            Field::Fixed { .. }
            | Field::There { .. }
            | Field::Behind { .. }
            | Field::Length
            | Field::Tag { .. } => None,
        }
    }
}

fn length<B: Bytes + ?Sized>(packet: &B) -> u32 {
    u32::try_from(packet.len()).unwrap_or(u32::MAX)
}

/// The place `at` bytes behind an IPv4 header (its length is in 4-byte units, RFC 791 §3.1). As in
/// libpcap the sum of `at` and the length wraps, so that `tcp[-1]` is the byte before, but a place in
/// front of the IPv4 header does not exist.
#[inline]
pub(crate) fn behind<B: Bytes + ?Sized>(packet: &B, header: u32, at: u32) -> Option<u32> {
    let first = packet.u8(usize::try_from(header).ok()?)?;
    header.checked_add(at.wrapping_add(u32::from(first & 0xf).wrapping_mul(4)))
}

#[inline]
fn load<B: Bytes + ?Sized>(packet: &B, at: u32, size: Size) -> Option<u32> {
    let at = usize::try_from(at).ok()?;
    match size {
        Size::One => packet.u8(at).map(u32::from),
        Size::Two => packet.be16(at).map(u32::from),
        Size::Four => packet.be32(at),
    }
}
