//! Where something stands in a policy text.

use std::ops::Range;

/// A range of bytes of the policy text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes from `start` up to but not including `end`.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }

    /// From where this begins to where `other` ends.
    #[must_use]
    pub fn to(self, other: Span) -> Self {
        Self::new(self.start, other.end)
    }

    /// The bytes of `text`; empty when the span is not in it.
    #[must_use]
    pub fn of(self, text: &str) -> &str {
        text.get(Range::from(self)).unwrap_or_default()
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start..span.end
    }
}

/// A value and where it stands. Two are equal when the values are: the place is not part of what
/// the text says, so a policy equals its printed and parsed self.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// What is said.
    pub value: T,
    /// Where.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// `value`, said at `span`.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Spanned<T> {}

/// A name and where it stands.
pub type Name = Spanned<String>;

/// Line and column of each byte of a text.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at.saturating_add(1));
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// The line that byte `at` is in, counted from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).max(1)
    }

    /// Where line `line` (from 1) begins, and its text without the line end.
    pub(crate) fn text(&self, line: usize) -> (usize, &'a str) {
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = self.text.get(start..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        (start, line.strip_suffix('\r').unwrap_or(line))
    }

    /// The column of byte `at` in its line: characters, counted from 1.
    pub(crate) fn column(&self, at: usize) -> usize {
        let (start, line) = self.text(self.line(at));
        line.char_indices()
            .take_while(|(i, _)| start.saturating_add(*i) < at)
            .count()
            .saturating_add(1)
    }
}
