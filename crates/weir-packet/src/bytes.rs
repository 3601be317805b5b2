//! Reading packet bytes that somebody else may be writing.
//!
//! Packet memory is shared between processes, so a reader never gets a `&[u8]` into it: it asks
//! for a few bytes and gets a *copy*, which it can check and then use without the bytes changing
//! in between. Parsers are written against [`Bytes`], so the same parser runs over shared packet
//! memory, over a plain slice in a test and over a record read from a capture.

/// Read access to a packet's bytes. Every read copies; a read past the end is `None`, never a panic.
pub trait Bytes {
    /// Number of bytes there are.
    fn len(&self) -> usize;

    /// True when there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `N` bytes that start at `at`, or `None` when they are not all there.
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]>;

    /// Copies bytes from `at` on into `out` and says how many there were (at most `out.len()`).
    fn copy_to(&self, at: usize, out: &mut [u8]) -> usize;

    /// The byte at `at`.
    #[inline]
    fn u8(&self, at: usize) -> Option<u8> {
        self.array::<1>(at).map(|[b]| b)
    }

    /// The big-endian 16-bit number at `at`.
    #[inline]
    fn be16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// The big-endian 32-bit number at `at`.
    #[inline]
    fn be32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }
}

impl Bytes for [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.get(at..)?.first_chunk().copied()
    }

    #[inline]
    fn copy_to(&self, at: usize, out: &mut [u8]) -> usize {
        let Some(rest) = self.get(at..) else { return 0 };
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        n
    }
}

impl<B: Bytes + ?Sized> Bytes for &B {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        (**self).array(at)
    }

    #[inline]
    fn copy_to(&self, at: usize, out: &mut [u8]) -> usize {
        (**self).copy_to(at, out)
    }
}
