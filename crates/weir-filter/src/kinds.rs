//! What the EtherType alone decides: most packets that are no IP are of a kind that a filter does not ask for.

use weir_packet::Bytes;

use crate::arith::Size;
use crate::cond::Fields;
use crate::diagram::{Diagram, FALSE, Id, TRUE};
use crate::field::Field;

/// Most kinds that are told from all others. More would fill the set of 64 places, of which each kind has one.
const MOST: usize = 12;

/// Kinds that a filter tells from all others, and what it says of those.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    /// A bit for the [`place`] of each kind that is asked for.
    asked: u64,
    otherwise: bool,
}

impl Kinds {
    /// What `diagram` says of most kinds, if it asks for the kind first and a few are all that it asks for.
    pub(crate) fn of(diagram: &Diagram, fields: &Fields) -> Option<Kinds> {
        let first = diagram.node(diagram.entry)?;
        let field = fields.list.get(usize::try_from(first.field).ok()?)?;
        let (Field::Fixed { at, size, mask } | Field::There { at, size, mask }) = *field else {
            return None;
        };
        if (at, size, mask) != (12, Size::Two, 0xffff) {
            return None;
        }
        [(FALSE, false), (TRUE, true)]
            .into_iter()
            .find_map(|(to, otherwise)| Some(Kinds { asked: others(&first.cases, to)?, otherwise }))
    }

    /// What the filter says of a packet, when its kind alone decides.
    #[inline]
    pub(crate) fn answer<B: Bytes + ?Sized>(self, packet: &B) -> Option<bool> {
        let kind = packet.be16(12)?;
        (self.asked >> place(kind) & 1 == 0).then_some(self.otherwise)
    }
}

/// The places of all kinds that do not lead to `to`; `None` when there are too many.
fn others(cases: &[(u32, Id)], to: Id) -> Option<u64> {
    let (mut asked, mut count) = (0_u64, 0_usize);
    for (i, (from, leads)) in cases.iter().enumerate() {
        let behind = cases.get(i.saturating_add(1)).map_or(1 << 16, |(from, _)| *from);
        let last = behind.min(1 << 16);
        if *leads == to {
            continue;
        }
        let more = usize::try_from(last.saturating_sub(*from)).ok()?;
        count = count.checked_add(more).filter(|count| *count <= MOST)?;
        for kind in *from..last {
            asked |= 1 << place(u16::try_from(kind).ok()?);
        }
    }
    Some(asked)
}

/// One of 64 places (multiplicative hashing: Knuth, The Art of Computer Programming 3, 6.4): two kinds may share
/// one, which only costs a look.
#[inline]
fn place(kind: u16) -> u32 {
    u32::from(kind).wrapping_mul(0x9e37_79b1) >> 26
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::Kinds;
    use crate::lower::lower;
    use crate::{diagram, naive_matches, parse};

    fn kinds(filter: &str) -> Option<Kinds> {
        let (fields, cond) = lower(&parse(filter).unwrap()).unwrap();
        Kinds::of(&diagram::build(&cond, &fields).unwrap(), &fields)
    }

    #[test]
    fn what_is_said_of_a_kind_alone_is_what_the_filter_says_whatever_follows() {
        for filter in
            ["src net 10.0.0.0/8 or 10.1.2.3", "not tcp", "ip6 or arp", "not ip", "tcp or vlan 5"]
        {
            let kinds = kinds(filter).unwrap();
            let expr = parse(filter).unwrap();
            let mut answered = 0;
            for kind in 0..=u16::MAX {
                let mut packet = vec![0x45; 60];
                packet[12..14].copy_from_slice(&kind.to_be_bytes());
                if let Some(answer) = kinds.answer(&packet[..]) {
                    answered += 1;
                    assert_eq!(answer, naive_matches(&expr, &packet), "{filter}: {kind:#x}");
                }
            }
            assert!(answered > 50_000, "{filter}: {answered} kinds");
        }
    }

    #[test]
    fn filters_that_ask_for_more_than_some_kinds_first_have_no_such_answer() {
        for filter in
            ["len > 60 and tcp", "ether host 02:00:00:00:00:01", "llc", "ether[12:2] & 1 = 0"]
        {
            assert!(kinds(filter).is_none(), "{filter}");
        }
    }
}
