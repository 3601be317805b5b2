//! What a ring carries: 16 bytes that are either a packet or an in-band marker.
//!
//! The entry holds everything the next stage needs to find the bytes and keep the order (buffer,
//! offset, length, sequence, a number aside), so that a stage which looks only at packet bytes never
//! touches the metadata line: a second line per packet that crosses cores costs more than the
//! wider entry (docs/decisions/0001-ring-entry.md has the measurement).
//!
//! ```text
//! word 0   63      56 55      48 47          32 31          16 15           0
//!          [  flags  ][ index 23..16 ][ index 15..0 ][   offset   ][   length   ]
//! word 1   63                    48 47                                       0
//!          [         aside         ][               sequence                  ]
//! ```

/// Number of bits of a sequence number that travel with a packet.
pub const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
const MARKER: u64 = 1 << 63;

/// Most buffers an arena may have: an index is 24 bits.
pub const MAX_BUFFERS: u32 = 1 << 24;

/// Position of a packet in its source's stream, modulo 2⁴⁸ (32 days at 100 Mpps). Two sequence
/// numbers are compared by their distance, so wrapping is harmless while fewer than 2⁴⁷ packets
/// lie between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Seq(u64);

impl Seq {
    /// The sequence number of the `n`th packet of a source.
    #[inline(always)]
    pub const fn new(n: u64) -> Self {
        Seq(n & SEQ_MASK)
    }

    /// The number, below 2⁴⁸.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sequence number `n` further on.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        Seq::new(self.0.wrapping_add(n))
    }

    /// True when `self` comes strictly before `other`.
    #[inline(always)]
    pub const fn before(self, other: Seq) -> bool {
        self.0 != other.0 && (other.0.wrapping_sub(self.0) & SEQ_MASK) < (1 << (SEQ_BITS - 1))
    }

    /// The earlier of two.
    #[inline(always)]
    #[must_use]
    pub const fn min(self, other: Seq) -> Seq {
        if other.before(self) { other } else { self }
    }

    /// Signed distance from `base` to `self`, for sorting a window of at most 2⁴⁷ packets.
    #[inline(always)]
    pub const fn offset_from(self, base: Seq) -> i64 {
        let d = self.0.wrapping_sub(base.0) & SEQ_MASK;
        ((d << (64 - SEQ_BITS)) as i64) >> (64 - SEQ_BITS)
    }
}

/// What travels in order with packets without being one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Marker {
    /// Nothing follows on this ring.
    EndOfStream = 1,
    /// Nothing at all: the agent took a packet out that was in two places. Passed over.
    Void = 2,
    /// What was sent to a replica before is all that comes of some flows: see [`Entry::moved`].
    Moved = 3,
}

/// One ring slot's content. Plain bits until somebody has checked them: see [`Arena::admits`].
///
/// [`Arena::admits`]: crate::Arena::admits
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(16))]
pub struct Entry(u64, u64);

impl Entry {
    /// A packet: buffer `index` (below 2²⁴) holds `len` bytes from `offset` on.
    #[inline(always)]
    pub const fn packet(index: u32, offset: u16, len: u16, seq: Seq, aside: u16) -> Self {
        Entry(
            ((index & (MAX_BUFFERS - 1)) as u64) << 32 | (offset as u64) << 16 | len as u64,
            (aside as u64) << 48 | seq.get(),
        )
    }

    /// A marker at `seq`.
    pub const fn marker(marker: Marker, seq: Seq) -> Self {
        Entry(MARKER | marker as u64, seq.get())
    }

    /// The marker of a migration of flows away from whoever takes it: the source's life and number of the
    /// migration (`weir-flow`'s `MoveId`).
    pub const fn moved(life: u32, number: u32) -> Self {
        Entry(MARKER | Marker::Moved as u64, (life as u64) << 32 | number as u64)
    }

    /// Of such a marker, what [`Entry::moved`] was given; may be anything, as a marker's producer need not be sound.
    pub const fn as_moved(&self) -> Option<(u32, u32)> {
        match self.as_marker() {
            Some(Marker::Moved) => Some(((self.1 >> 32) as u32, self.1 as u32)),
            _ => None,
        }
    }

    /// Buffer, offset and length of a packet as one word: what a crash report needs.
    #[inline(always)]
    pub const fn first_word(&self) -> u64 {
        self.0
    }

    /// The packet of which [`Entry::first_word`] is left; its place in the stream is not.
    pub const fn from_first_word(word: u64) -> Self {
        Entry(word, 0)
    }

    /// True for a packet, false for a marker.
    #[inline(always)]
    pub const fn is_packet(&self) -> bool {
        self.0 & MARKER == 0
    }

    /// The marker, when this is one that we know.
    pub const fn as_marker(&self) -> Option<Marker> {
        if self.is_packet() {
            return None;
        }
        match self.0 & 0xff {
            1 => Some(Marker::EndOfStream),
            2 => Some(Marker::Void),
            3 => Some(Marker::Moved),
            _ => None,
        }
    }

    /// Index of the packet's buffer; of a marker, a number that no arena has (its flags stand above
    /// the index and are left there, so that one comparison finds both out).
    #[inline(always)]
    pub const fn index(&self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Where in its buffer the packet starts, in bytes.
    #[inline(always)]
    pub const fn offset(&self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Captured length in bytes.
    #[inline(always)]
    pub const fn len(&self) -> u16 {
        self.0 as u16
    }

    /// True for a packet without bytes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Position in the source's stream.
    #[inline(always)]
    pub const fn seq(&self) -> Seq {
        Seq::new(self.1)
    }

    /// The same packet at another place of its stream.
    #[inline(always)]
    #[must_use]
    pub const fn with_seq(self, seq: Seq) -> Self {
        Entry(self.0, self.1 & !SEQ_MASK | seq.get())
    }

    /// A number that goes with the packet: see [`Entry::with_aside`]. 0 as a packet comes.
    #[inline(always)]
    pub const fn aside(&self) -> u16 {
        (self.1 >> 48) as u16
    }

    /// The same packet with another number in these bits. A packet that goes around a cycle has there how
    /// often it has, an answer of a parallel stage's branch what that says of it.
    #[inline(always)]
    #[must_use]
    pub const fn with_aside(self, aside: u16) -> Self {
        Entry(self.0, self.1 & SEQ_MASK | (aside as u64) << SEQ_BITS)
    }

    /// The same packet with its bytes elsewhere in the buffer (headers added or removed).
    #[inline(always)]
    #[must_use]
    pub const fn with_span(self, offset: u16, len: u16) -> Self {
        Entry(self.0 & !0xffff_ffff | (offset as u64) << 16 | len as u64, self.1)
    }

    #[inline(always)]
    pub(crate) const fn from_words(a: u64, b: u64) -> Self {
        Entry(a, b)
    }
}

/// An entry from whose bits a buffer index can be told: what the sweep needs of a ring.
pub trait CarriesBuffer: crate::shared::Plain {
    /// The buffer that this entry gives away, if any.
    fn buffer(&self) -> Option<u32>;
}

impl CarriesBuffer for Entry {
    fn buffer(&self) -> Option<u32> {
        self.is_packet().then(|| self.index())
    }
}

/// A bare buffer index, as return and allocation rings carry it.
impl CarriesBuffer for u32 {
    fn buffer(&self) -> Option<u32> {
        Some(*self)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_gives_back_what_it_was_made_of(
            index in 0..MAX_BUFFERS, offset: u16, len: u16, seq in 0u64..1 << 48, aside: u16,
        ) {
            let e = Entry::packet(index, offset, len, Seq::new(seq), aside);
            prop_assert!(e.is_packet());
            prop_assert_eq!((e.index(), e.offset(), e.len()), (index, offset, len));
            prop_assert_eq!((e.seq().get(), e.aside()), (seq, aside));
            let other = e.with_aside(!aside);
            prop_assert_eq!((other.aside(), other.seq(), other.first_word()), (!aside, e.seq(), e.first_word()));
            let moved = e.with_span(7, 9);
            prop_assert_eq!((moved.index(), moved.offset(), moved.len(), moved.seq()), (index, 7, 9, e.seq()));
        }

        #[test]
        fn sequence_numbers_order_by_distance_across_the_wrap(start: u64, ahead in 1u64..1 << 40) {
            let a = Seq::new(start);
            let b = a.plus(ahead);
            prop_assert!(a.before(b) && !b.before(a) && !a.before(a));
            prop_assert_eq!(a.min(b), a);
            prop_assert_eq!(b.offset_from(a), ahead as i64);
            prop_assert_eq!(a.offset_from(b), -(ahead as i64));
        }
    }

    #[test]
    fn a_marker_is_not_a_packet_and_an_unknown_marker_is_nothing() {
        let m = Entry::marker(Marker::EndOfStream, Seq::new(5));
        assert!(!m.is_packet());
        assert_eq!(m.as_marker(), Some(Marker::EndOfStream));
        assert_eq!(Entry::from_words(MARKER | 0xee, 0).as_marker(), None);
        let moved = Entry::moved(7, u32::MAX);
        assert_eq!((moved.is_packet(), moved.as_moved()), (false, Some((7, u32::MAX))));
        assert_eq!(m.as_moved(), None);
    }
}
