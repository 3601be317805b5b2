//! Letters from one process to another: byte strings of any length, in order, through a ring of words.
//!
//! A letter is cut into frames; each is a word that says how long it is and whether a letter begins or ends
//! with it, and the bytes. A frame becomes visible whole, by the one store of [`Producer::publish`], so no reader sees half of
//! one. Nobody waits: what finds no room stays with the sender, in order, up to a bound.
//!
//! Either end may die and be attached anew. What the dead sender had not sent is gone, and of a letter that it had
//! sent in part the reader forgets that part as soon as the next begins. A letter is claimed before it is
//! used: one that the dead reader had taken is not read again. A ring's rules hold for its indices
//! ([`crate::ring`]); every length is checked before it is used, as the other end may have written anything.

use crate::region::{Region, RegionError};
use crate::ring::{Consumer, Producer, RingShape};
use std::collections::VecDeque;

/// Words of a mail's ring: 256 KiB.
const WORDS: u32 = 1 << 15;
/// Bytes of a frame, at most.
const FRAME: usize = 32 << 10;
/// Longest letter, in bytes: bounds what a sender can make a reader hold.
pub const LONGEST_LETTER: usize = 64 << 20;
/// Bytes that wait for room with the sender, at most.
const MOST_WAITING: usize = 2 * LONGEST_LETTER;

const WORD: usize = size_of::<u64>();
/// In a frame's first word: a letter begins, or ends, with it.
const FIRST: u64 = 1 << 63;
const LAST: u64 = 1 << 62;

/// Why a letter is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MailError {
    /// It is longer than a letter may be.
    #[error("a letter of {0} bytes; at most {LONGEST_LETTER} can be sent")]
    TooLong(usize),
    /// The other side does not read.
    #[error("the other side does not read what was sent before")]
    Full,
}

/// Makes the sender's and the reader's memory of a mail.
///
/// # Errors
/// When there is no memory.
pub fn create(name: &str) -> Result<(Region, Region), RegionError> {
    shape().create(name)
}

/// Bytes of the sender's and of the reader's memory.
#[must_use]
pub fn lens() -> (usize, usize) {
    (shape().producer_len(), shape().consumer_len())
}

fn shape() -> RingShape<u64> {
    RingShape::at_least(WORDS)
}

/// The sending end.
pub struct MailOut {
    ring: Producer<u64>,
    /// Letters that are not sent yet; of the first so many bytes are.
    letters: VecDeque<Vec<u8>>,
    sent: usize,
    waiting: usize,
}

impl MailOut {
    /// The sending end of a mail whose memories these are.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn attach(sender: &Region, reader: &Region) -> Result<Self, RegionError> {
        Ok(Self::over(Producer::attach(shape(), sender, reader)?))
    }

    pub(crate) fn over(ring: Producer<u64>) -> Self {
        MailOut { ring, letters: VecDeque::new(), sent: 0, waiting: 0 }
    }

    /// Sends a letter, behind those before it. True when some of what waited has gone out: the reader may have to
    /// be woken. What does not go out now goes by [`MailOut::pump`].
    ///
    /// # Errors
    /// When it cannot be sent; it is forgotten then.
    pub fn post(&mut self, letter: Vec<u8>) -> Result<bool, MailError> {
        if letter.len() > LONGEST_LETTER {
            return Err(MailError::TooLong(letter.len()));
        }
        if self.waiting.saturating_add(letter.len()) > MOST_WAITING {
            return Err(MailError::Full);
        }
        self.waiting += letter.len();
        self.letters.push_back(letter);
        Ok(self.pump())
    }

    /// True when letters wait for room.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.letters.is_empty()
    }

    /// Sends of what waits as much as finds room; true when that is any.
    pub fn pump(&mut self) -> bool {
        let mut any = false;
        while let Some(letter) = self.letters.front() {
            let rest = letter.get(self.sent..).unwrap_or_default();
            let most = FRAME.min((self.ring.capacity() / 2).saturating_sub(1) * WORD);
            let frame = rest.get(..rest.len().min(most)).unwrap_or_default();
            let words = 1 + frame.len().div_ceil(WORD);
            if self.ring.room(words) < words {
                break;
            }
            let last = frame.len() == rest.len();
            let flag = |set: bool, bit: u64| if set { bit } else { 0 };
            self.ring.stage(frame.len() as u64 | flag(self.sent == 0, FIRST) | flag(last, LAST));
            for bytes in frame.chunks(WORD) {
                let mut word = [0; WORD];
                word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                self.ring.stage(u64::from_le_bytes(word));
            }
            self.ring.publish();
            any = true;
            self.sent += frame.len();
            if last {
                self.waiting = self.waiting.saturating_sub(letter.len());
                self.letters.pop_front();
                self.sent = 0;
            }
        }
        any
    }
}

/// The reading end.
pub struct MailIn {
    ring: Consumer<u64>,
    /// What has come of a letter whose end has not.
    letter: Option<Vec<u8>>,
    nonsense: u64,
}

impl MailIn {
    /// The reading end of a mail whose memories these are.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn attach(sender: &Region, reader: &Region) -> Result<Self, RegionError> {
        Ok(Self::over(Consumer::attach(shape(), sender, reader)?))
    }

    pub(crate) fn over(ring: Consumer<u64>) -> Self {
        MailIn { ring, letter: None, nonsense: 0 }
    }

    /// Things that no sound sender sends, so far.
    #[must_use]
    pub fn nonsense(&self) -> u64 {
        self.nonsense.saturating_add(self.ring.nonsense())
    }

    /// True when there is something to read.
    #[inline]
    pub fn has_some(&mut self) -> bool {
        self.ring.available(1) > 0
    }

    /// The next letter, when all of it has come. Reads no more than a ring holds, however fast the other side
    /// sends.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut left = self.ring.capacity();
        while left > 0 && self.ring.available(1) > 0 {
            let head = self.ring.peek(0)?;
            let len = usize::try_from(head & !(FIRST | LAST)).unwrap_or(usize::MAX);
            let words = len.div_ceil(WORD).saturating_add(1);
            // A frame is published whole.
            if words > self.ring.capacity() || self.ring.available(words) < words {
                self.forget_all();
                return None;
            }
            left = left.saturating_sub(words);
            if head & FIRST != 0 {
                self.letter = Some(Vec::new());
            }
            let fits = |letter: &&mut Vec<u8>| letter.len() + len <= LONGEST_LETTER;
            match self.letter.as_mut().filter(fits) {
                Some(letter) => {
                    let end = letter.len() + len;
                    for at in 1..words {
                        letter.extend(self.ring.peek(at).unwrap_or_default().to_le_bytes());
                    }
                    letter.truncate(end);
                }
                // Too long. Or this end was attached when part of the letter had been read: the rest is
                // passed over.
                None => self.nonsense += u64::from(self.letter.take().is_some()),
            }
            self.ring.claim(words);
            if head & LAST != 0
                && let Some(letter) = self.letter.take()
            {
                return Some(letter);
            }
        }
        None
    }

    /// What is there makes no sense, so where the next letter begins cannot be told either.
    fn forget_all(&mut self) {
        self.nonsense = self.nonsense.saturating_add(1);
        self.letter = None;
        let all = self.ring.refresh();
        self.ring.claim(all);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ring::heap_ring;
    use proptest::prelude::*;

    /// A mail over a ring of so many words.
    fn mail(words: u32) -> (MailOut, MailIn) {
        let (p, c) = heap_ring(words);
        (MailOut::over(p), MailIn::over(c))
    }

    proptest! {
        #[test]
        fn letters_of_any_length_come_whole_and_in_order(
            lens in prop::collection::vec(0..200usize, 1..20), seed: u8,
        ) {
            let letter = |i: usize, len: usize| -> Vec<u8> {
                (0..len).map(|at| seed.wrapping_add((i * 31 + at) as u8)).collect()
            };
            let (mut out, mut mail) = mail(16);
            let mut got = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                out.post(letter(i, *len)).unwrap();
                got.extend(mail.take());
            }
            while out.pump() || mail.has_some() {
                got.extend(mail.take());
            }
            let sent: Vec<_> = lens.iter().enumerate().map(|(i, len)| letter(i, *len)).collect();
            prop_assert_eq!(got, sent);
            prop_assert!(!out.waits() && mail.nonsense() == 0);
        }

        #[test]
        fn whatever_a_hostile_sender_writes_is_counted_or_read_and_never_hangs(
            words in prop::collection::vec(any::<u64>(), 1..32),
        ) {
            let (mut p, c) = heap_ring(32);
            let mut mail = MailIn::over(c);
            p.stage_all(words.iter().copied());
            p.publish();
            for _ in 0..=words.len() {
                mail.take();
            }
            prop_assert!(!mail.has_some());
            // A sound letter behind it is read.
            let mut out = MailOut::over(p);
            out.post(b"sound".to_vec()).unwrap();
            let taken = mail.take();
            prop_assert_eq!(taken.as_deref(), Some(&b"sound"[..]));
        }
    }

    #[test]
    fn of_a_letter_whose_sender_died_nothing_is_read_and_its_successor_s_are() {
        let (sender, reader) = create("weir-test").unwrap();
        let mut mail = MailIn::attach(&sender, &reader).unwrap();
        let mut first = MailOut::attach(&sender, &reader).unwrap();
        // More than the ring holds: only part of it goes out.
        first.post(vec![1; 300 << 10]).unwrap();
        assert!(first.waits() && mail.take().is_none());
        drop(first);
        let mut second = MailOut::attach(&sender, &reader).unwrap();
        second.post(b"of the second".to_vec()).unwrap();
        assert_eq!(mail.take().unwrap(), b"of the second");
        assert_eq!(mail.nonsense(), 0);
    }

    #[test]
    fn a_reader_that_dies_within_a_letter_leaves_its_successor_the_next() {
        let (sender, reader) = create("weir-test").unwrap();
        let mut out = MailOut::attach(&sender, &reader).unwrap();
        let mut first = MailIn::attach(&sender, &reader).unwrap();
        out.post(vec![1; 300 << 10]).unwrap();
        assert!(first.take().is_none());
        drop(first);
        let mut second = MailIn::attach(&sender, &reader).unwrap();
        out.post(b"next".to_vec()).unwrap();
        let mut got = None;
        while got.is_none() && (out.pump() || second.has_some()) {
            got = second.take();
        }
        assert_eq!(got.unwrap(), b"next");
        assert_eq!(second.nonsense(), 0);
    }

    #[test]
    fn what_is_too_long_or_too_much_is_refused_and_what_was_sent_before_is_kept() {
        let (mut out, mut mail) = mail(16);
        let long = LONGEST_LETTER + 1;
        assert_eq!(out.post(vec![0; long]), Err(MailError::TooLong(long)));
        out.post(b"kept".to_vec()).unwrap();
        out.post(vec![0; LONGEST_LETTER]).unwrap();
        out.post(vec![0; LONGEST_LETTER - 1]).unwrap();
        assert_eq!(out.post(vec![0; LONGEST_LETTER]), Err(MailError::Full));
        assert_eq!(mail.take().unwrap(), b"kept");
    }
}
