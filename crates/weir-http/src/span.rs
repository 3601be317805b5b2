//! Positions inside a payload.

/// A run of bytes inside a payload: `start` and `len` in bytes.
///
/// 16 bits suffice because a packet buffer holds at most 64 KiB; bytes beyond that are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Offset of the first byte from the start of the payload.
    pub start: u16,
    /// Number of bytes.
    pub len: u16,
}

impl Span {
    /// The span `from..to`, empty when `to` is before `from`; both are clamped to 65,535.
    pub(crate) fn new(from: usize, to: usize) -> Self {
        let start = u16::try_from(from).unwrap_or(u16::MAX);
        let end = u16::try_from(to).unwrap_or(u16::MAX);
        Span { start, len: end.saturating_sub(start) }
    }

    /// Offset just behind the last byte.
    pub fn end(self) -> usize {
        usize::from(self.start).saturating_add(usize::from(self.len))
    }

    /// The bytes of this span in `payload`; empty when `payload` is another, shorter one.
    pub fn of(self, payload: &[u8]) -> &[u8] {
        payload.get(usize::from(self.start)..self.end()).unwrap_or_default()
    }
}
