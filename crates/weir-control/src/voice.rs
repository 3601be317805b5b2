//! What workers say to the operator: what they write to their standard error, each to a pipe of its own, and their
//! warnings. They need not be trusted with it: the agent reads without waiting and only so much in a moment, and what
//! one says beyond its allowance is left out and counted.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Bytes that a worker may say at once.
const AT_ONCE: u64 = 64 << 10;
/// Bytes that it may go on with in a second: less than 100 MB in a day.
const PER_SECOND: u64 = 1 << 10;
/// What a line costs besides its bytes: the operator gets it with the worker's name.
const EACH_LINE: u64 = 64;
/// Longest line. What a worker tells of a panic is shorter.
const LONGEST: usize = 8 << 10;
/// Bytes that are read of one worker within [`LOOK`]; one that writes more waits.
const READ: usize = 64 << 10;
const LOOK: Duration = Duration::from_millis(100);
/// Most that is read of one that has ended: what a pipe may hold.
const LAST_WORDS: usize = 1 << 20;
/// How often it is told what was left out.
const TELL: Duration = Duration::from_secs(10);

/// What a worker may still say, however often it is started again.
pub(crate) struct Allowance {
    left: u64,
    counted: Instant,
    /// Bytes that were left out and not told of.
    omitted: u64,
    told: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance { left: AT_ONCE, counted: Instant::now(), omitted: 0, told: None }
    }
}

impl Allowance {
    /// Whether a line of so many bytes may be said now; if not, they are counted.
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        self.admits_at(bytes, Instant::now())
    }

    fn admits_at(&mut self, bytes: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted).as_millis() as u64;
        let more = passed.saturating_mul(PER_SECOND) / 1000;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(AT_ONCE);
            self.counted = now;
        }
        let bytes = bytes as u64;
        let left = self.left.checked_sub(bytes + EACH_LINE);
        match left {
            Some(left) => self.left = left,
            None => self.omitted += bytes,
        }
        left.is_some()
    }

    /// So many bytes are left out, whatever is left.
    fn omit(&mut self, bytes: usize) {
        self.omitted += bytes as u64;
    }

    /// Bytes that were left out since that was told last: once in a while, and when the worker has ended.
    pub(crate) fn omitted(&mut self, ended: bool) -> Option<u64> {
        let due = ended || self.told.is_none_or(|at| at.elapsed() >= TELL);
        if self.omitted == 0 || !due {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.omitted))
    }
}

/// The agent's end of a worker's standard error.
pub(crate) struct Ear {
    /// `None` when the worker has closed its end.
    pipe: Option<OwnedFd>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The rest of the line is left out.
    skips: bool,
    /// Bytes that may be read until `since` is [`LOOK`] ago.
    left: usize,
    since: Instant,
}

impl Ear {
    /// Of the end of a pipe from which is read; the worker's own end stays one that waits.
    pub(crate) fn new(pipe: OwnedFd) -> rustix::io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        let (line, since) = (Vec::new(), Instant::now());
        Ok(Ear { pipe: Some(pipe), line, skips: false, left: READ, since })
    }

    /// What is to be waited for; `None` when it is closed, or enough was read for now.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let may = self.left > 0 || self.since.elapsed() >= LOOK;
        self.pipe.as_ref().filter(|_| may).map(AsFd::as_fd)
    }

    /// Lines that have come and are within the allowance. Never waits.
    pub(crate) fn hear(&mut self, allowance: &mut Allowance) -> Vec<String> {
        if self.since.elapsed() >= LOOK {
            (self.left, self.since) = (READ, Instant::now());
        }
        let mut lines = Vec::new();
        self.left -= self.read(self.left, allowance, &mut lines);
        lines
    }

    /// The last of a worker that has ended, which may have no line's end.
    pub(crate) fn last_words(&mut self, allowance: &mut Allowance) -> Vec<String> {
        let mut lines = Vec::new();
        self.read(LAST_WORDS, allowance, &mut lines);
        self.end_line(allowance, &mut lines);
        lines
    }

    /// Reads `most` bytes, or what there is; says how many.
    fn read(&mut self, most: usize, allowance: &mut Allowance, lines: &mut Vec<String>) -> usize {
        let mut piece = [0; 4096];
        let mut all = 0;
        while let Some(pipe) = &self.pipe
            && all < most
        {
            let room = piece.len().min(most - all);
            match rustix::io::read(pipe, &mut piece[..room]) {
                Ok(n @ 1..) => {
                    all += n;
                    self.take(&piece[..n], allowance, lines);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
        all
    }

    fn take(&mut self, bytes: &[u8], allowance: &mut Allowance, lines: &mut Vec<String>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = if self.skips { 0 } else { LONGEST - self.line.len() };
            let (said, rest) = text.split_at(text.len().min(room));
            self.line.extend_from_slice(said);
            allowance.omit(rest.len());
            if !rest.is_empty() && !self.skips {
                // Said at once, as its end may never come.
                self.end_line(allowance, lines);
                self.skips = true;
            }
            if ends {
                self.end_line(allowance, lines);
                self.skips = false;
            }
        }
    }

    fn end_line(&mut self, allowance: &mut Allowance, lines: &mut Vec<String>) {
        if !self.line.is_empty() && allowance.admits(self.line.len()) {
            lines.push(String::from_utf8_lossy(&self.line).into_owned());
        }
        self.line.clear();
    }
}

/// A text of a worker, without what is too long of it.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST {
        let more = text.len() - text.floor_char_boundary(LONGEST);
        text.truncate(text.len() - more);
        text += &format!(" ... ({more} bytes more)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (Ear, OwnedFd) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        (Ear::new(read).unwrap(), write)
    }

    fn write(to: &OwnedFd, bytes: &[u8]) {
        assert_eq!(rustix::io::write(to, bytes).unwrap(), bytes.len());
    }

    #[test]
    fn lines_are_heard_when_they_are_whole_and_the_last_words_at_the_end() {
        let ((mut ear, worker), mut allowance) = (pipe(), Allowance::default());
        assert!(ear.hear(&mut allowance).is_empty());
        write(&worker, b"one\ntw");
        assert_eq!(ear.hear(&mut allowance), ["one"]);
        write(&worker, b"o\n\n\xffthree\nlast");
        assert_eq!(ear.hear(&mut allowance), ["two", "\u{fffd}three"]);
        write(&worker, b" words");
        drop(worker);
        assert_eq!(ear.last_words(&mut allowance), ["last words"]);
        assert!(ear.fd().is_none() && allowance.omitted(true).is_none());
    }

    #[test]
    fn of_a_line_that_is_too_long_the_beginning_is_said_and_the_rest_counted() {
        let ((mut ear, worker), mut allowance) = (pipe(), Allowance::default());
        write(&worker, &[b'x'; LONGEST]);
        assert!(ear.hear(&mut allowance).is_empty());
        write(&worker, &[b'x'; 700]);
        assert_eq!(ear.hear(&mut allowance), ["x".repeat(LONGEST)]);
        write(&worker, b"xx\nnext\n");
        assert_eq!(ear.hear(&mut allowance), ["next"]);
        assert_eq!(allowance.omitted(true), Some(702));
    }

    #[test]
    fn one_that_shouts_is_read_in_pieces_and_cut_off() {
        let ((mut ear, worker), mut allowance) = (pipe(), Allowance::default());
        rustix::fs::fcntl_setfl(&worker, OFlags::NONBLOCK).unwrap();
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let (mut written, mut said) = (0, 0);
        for _ in 0..20 {
            while let Ok(n) = rustix::io::write(&worker, &line) {
                written += n;
            }
            // As if it were the next moment.
            ear.left = READ;
            said += ear.hear(&mut allowance).iter().map(|line| line.len() as u64).sum::<u64>();
        }
        said += ear.last_words(&mut allowance).iter().map(|l| l.len() as u64).sum::<u64>();
        let omitted = allowance.omitted(true).unwrap();
        assert!(said < AT_ONCE + 60 * PER_SECOND, "{said} of {written}");
        // All but the lines' ends, a few of which fell to the edge of what the pipe took.
        let ends = written as u64 - said - omitted;
        assert!(ends > 0 && ends <= written as u64 / 100, "{said} and {omitted} of {written}");
    }

    #[test]
    fn so_much_is_read_in_one_look_and_no_more() {
        let ((mut ear, worker), mut allowance) = (pipe(), Allowance::default());
        ear.left = 10;
        write(&worker, b"0123456789\n");
        assert!(ear.hear(&mut allowance).is_empty() && ear.left == 0);
        ear.left = 10;
        assert_eq!(ear.hear(&mut allowance), ["0123456789"]);
    }

    #[test]
    fn an_allowance_comes_back_with_time_but_no_more_than_it_was() {
        let mut allowance = Allowance::default();
        let begin = allowance.counted;
        let all = (AT_ONCE - EACH_LINE) as usize;
        assert!(allowance.admits_at(all, begin) && !allowance.admits_at(0, begin));
        let later = begin + Duration::from_secs(1);
        let second = (PER_SECOND - EACH_LINE) as usize;
        assert!(allowance.admits_at(second, later) && !allowance.admits_at(1, later));
        let much_later = begin + Duration::from_secs(1_000_000);
        assert!(allowance.admits_at(all, much_later) && !allowance.admits_at(0, much_later));
    }

    #[test]
    fn what_was_left_out_is_told_now_and_then_and_in_the_end() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.omitted(true), None);
        allowance.omit(7);
        assert_eq!(allowance.omitted(false), Some(7));
        allowance.omit(8);
        assert_eq!((allowance.omitted(false), allowance.omitted(true)), (None, Some(8)));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("x".to_owned() + &"\u{b5}".repeat(LONGEST));
        assert!(long.len() < LONGEST + 40 && long.ends_with(" bytes more)"), "{long}");
    }
}
