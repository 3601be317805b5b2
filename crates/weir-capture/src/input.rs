//! A file seen through one bounded buffer.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// Large enough that system calls do not count, small enough to stay in the L2 cache.
const CHUNK: usize = 256 * 1024;

/// A buffer of at least [`CHUNK`] bytes; it grows to the longest piece asked for, and only as bytes really arrive.
#[derive(Debug)]
pub(crate) struct Input<R> {
    inner: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read + Seek> Input<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, buffer: vec![0; CHUNK], start: 0, end: 0 }
    }

    /// Goes to an absolute offset.
    pub(crate) fn seek_to(&mut self, offset: u64) -> io::Result<()> {
        (self.start, self.end) = (0, 0);
        self.inner.seek(SeekFrom::Start(offset)).map(|_| ())
    }

    /// The whole length of the file; the place in it is lost: follow with [`Self::seek_to`].
    pub(crate) fn file_len(&mut self) -> io::Result<u64> {
        (self.start, self.end) = (0, 0);
        self.inner.seek(SeekFrom::End(0))
    }

    /// How many bytes are waiting in the buffer. After `peek` gave `None`: all that is left of the file.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// The next `len` bytes without consuming them; `None` when the file ends before.
    #[inline]
    pub(crate) fn peek(&mut self, len: usize) -> io::Result<Option<&[u8]>> {
        while self.buffered() < len {
            if self.fill(len)? == 0 {
                return Ok(None);
            }
        }
        Ok(self.buffer.get(self.start..self.start.saturating_add(len)))
    }

    /// Consumes bytes that were peeked; the range stays valid for [`Self::bytes`] until the next peek or skip.
    #[inline]
    pub(crate) fn consume(&mut self, len: usize) -> Range<usize> {
        let from = self.start;
        self.start = from.saturating_add(len).min(self.end);
        from..self.start
    }

    /// Consumed bytes.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// Consumes `len` bytes without looking at them; `false` when the file ends before.
    #[inline]
    pub(crate) fn skip(&mut self, len: usize) -> io::Result<bool> {
        if len <= self.buffered() {
            self.consume(len);
            return Ok(true);
        }
        // Seeking beyond the end is no error, so the last byte is read to know that it is there.
        let beyond = len.saturating_sub(self.buffered()).saturating_sub(1);
        (self.start, self.end) = (0, 0);
        self.inner.seek(SeekFrom::Current(i64::try_from(beyond).unwrap_or(i64::MAX)))?;
        let there = self.peek(1)?.is_some();
        self.consume(1);
        Ok(there)
    }

    fn fill(&mut self, wanted: usize) -> io::Result<usize> {
        if self.start.saturating_add(wanted) > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.buffered());
            if self.end == self.buffer.len() {
                let doubled = self.buffer.len().saturating_mul(2);
                self.buffer.resize(doubled.min(wanted), 0);
            }
        }
        let space = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.inner.read(space) {
                Ok(read) => {
                    self.end = self.end.saturating_add(read);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_piece_longer_than_the_buffer_makes_it_grow() {
        let data: Vec<u8> = (0..3 * CHUNK).map(|i| (i % 251) as u8).collect();
        let mut input = Input::new(Cursor::new(&data));
        assert_eq!(input.peek(10).unwrap(), data.get(..10));
        let taken = input.consume(10);
        assert_eq!(input.bytes(taken), &data[..10]);
        assert_eq!(input.peek(2 * CHUNK).unwrap(), data.get(10..10 + 2 * CHUNK));
        assert_eq!(input.peek(3 * CHUNK).unwrap(), None);
        assert_eq!(input.buffered(), 3 * CHUNK - 10);
    }

    #[test]
    fn skipping_exactly_to_the_end_works_and_one_byte_more_does_not() {
        let data = vec![7; 2 * CHUNK];
        assert!(Input::new(Cursor::new(&data)).skip(data.len()).unwrap());
        assert!(!Input::new(Cursor::new(&data)).skip(data.len() + 1).unwrap());
    }
}
