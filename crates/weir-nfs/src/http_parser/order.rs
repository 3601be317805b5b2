//! Puts a direction's segments in order, with bounded memory.

use serde::{Deserialize, Serialize};

/// Segments that may wait for an earlier one, per direction.
pub const MOST_EARLY: usize = 8;
/// Their bytes, and what is spent on each besides.
pub const MOST_EARLY_BYTES: usize = 16 << 10;

/// What comes next in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// So many bytes that will not be seen.
    Gap(u32),
}

/// How a segment came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// It goes on where the stream was.
    InOrder,
    /// All of it was there before.
    Repeated,
    /// Before an earlier one, for which it waits.
    Early,
    /// Before an earlier one, for which nothing waits any longer.
    GivenUp,
}

/// A segment that waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Early {
    seq: u32,
    bytes: Vec<u8>,
    /// Bytes behind those, which the capture cut off.
    cut: u32,
}

/// One direction of a TCP connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Sequence number of what comes next; none before the first segment.
    next: Option<u32>,
    early: Vec<Early>,
}

impl Order {
    /// The stream begins at this sequence number; what waited is forgotten.
    pub fn begin(&mut self, next: u32) {
        *self = Order { next: Some(next), early: Vec::new() };
    }

    /// Bytes that wait, with what is spent on each segment besides: one without bytes takes memory too.
    pub fn waiting(&self) -> usize {
        self.early.iter().map(|early| early.bytes.len() + size_of::<Early>()).sum()
    }

    /// Takes a segment's data, of which the capture cut off the last `cut` bytes; `next` gets what is in order
    /// now. `room`: bytes that may wait besides those that do.
    pub fn take(
        &mut self,
        seq: u32,
        bytes: &[u8],
        cut: u32,
        room: usize,
        next: &mut impl FnMut(Piece<'_>),
    ) -> Came {
        let expected = *self.next.get_or_insert(seq);
        let ahead = seq.wrapping_sub(expected) as i32;
        if ahead <= 0 {
            let came = self.put(seq, bytes, cut, next);
            self.go_on(next);
            return came;
        }
        let most = MOST_EARLY_BYTES.min(self.waiting().saturating_add(room));
        self.early.push(Early { seq, bytes: bytes.to_vec(), cut });
        let mut came = Came::Early;
        // While too much waits, what is missing before the first of them is given up: each time one goes at least.
        while self.early.len() > MOST_EARLY || self.waiting() > most {
            let expected = self.next.unwrap_or(seq);
            let distance = |early: &Early| early.seq.wrapping_sub(expected);
            let Some(gap) = self.early.iter().map(distance).min() else { break };
            next(Piece::Gap(gap));
            self.next = Some(expected.wrapping_add(gap));
            self.go_on(next);
            came = Came::GivenUp;
        }
        came
    }

    /// Takes what begins at or before the place that the stream is at.
    fn put(&mut self, seq: u32, bytes: &[u8], cut: u32, next: &mut impl FnMut(Piece<'_>)) -> Came {
        let expected = self.next.unwrap_or(seq);
        let had = expected.wrapping_sub(seq);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_add(cut);
        if had >= len {
            return if len == 0 { Came::InOrder } else { Came::Repeated };
        }
        let new = bytes.get(had as usize..).unwrap_or_default();
        if !new.is_empty() {
            next(Piece::Bytes(new));
        }
        let gap = (len - had).saturating_sub(u32::try_from(new.len()).unwrap_or(u32::MAX));
        if gap > 0 {
            next(Piece::Gap(gap));
        }
        self.next = Some(seq.wrapping_add(len));
        Came::InOrder
    }

    /// Takes what waited and is in order now.
    fn go_on(&mut self, next: &mut impl FnMut(Piece<'_>)) {
        while let Some(expected) = self.next {
            let due = |early: &Early| early.seq.wrapping_sub(expected) as i32 <= 0;
            let Some(at) = self.early.iter().position(due) else { return };
            let early = self.early.swap_remove(at);
            self.put(early.seq, &early.bytes, early.cut, next);
        }
    }
}
