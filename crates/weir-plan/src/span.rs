//! Where something stands in a policy text.

use std::fmt::{self, Display, Formatter};
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

/// A line of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    /// The file, where a policy has several.
    pub file: Option<String>,
    /// The column, from 1, where the line alone would not tell it from what it is named beside.
    pub column: Option<usize>,
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)?;
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        match &self.file {
            Some(file) => write!(f, " of {file}"),
            None => Ok(()),
        }
    }
}

/// A file among several that are joined.
#[derive(Clone, Debug)]
struct Part<'a> {
    start: usize,
    /// How many lines stand before it.
    lines: usize,
    name: &'a str,
    /// What included it.
    included: Option<Span>,
}

/// Line and column of each byte of a text, which may be several files, each beginning a line.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
    parts: Vec<Part<'a>>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at.saturating_add(1));
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect(), parts: Vec::new() }
    }

    /// Says that a file begins at `start`, behind those that were added before.
    pub(crate) fn add_file(&mut self, start: usize, name: &'a str, included: Option<Span>) {
        let lines = self.whole(start).saturating_sub(1);
        self.parts.push(Part { start, lines, name, included });
    }

    fn part(&self, at: usize) -> Option<&Part<'a>> {
        let behind = self.parts.partition_point(|part| part.start <= at);
        self.parts.get(behind.checked_sub(1)?)
    }

    /// The line of the whole text that byte `at` is in, counted from 1.
    fn whole(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).max(1)
    }

    /// The line of its file that byte `at` is in, counted from 1.
    pub(crate) fn number(&self, at: usize) -> usize {
        self.whole(at).saturating_sub(self.part(at).map_or(0, |part| part.lines))
    }

    /// The same with the file, if there are several.
    pub(crate) fn line(&self, at: usize) -> Line {
        let file = self.part(at).filter(|_| self.parts.len() > 1);
        let file = file.map(|part| part.name.to_owned());
        Line { number: self.number(at), file, column: None }
    }

    /// The same, named beside what stands at byte `here`: with the column if that is the same line.
    pub(crate) fn line_beside(&self, at: usize, here: usize) -> Line {
        let same = self.whole(at) == self.whole(here);
        Line { column: same.then(|| self.column(at)), ..self.line(at) }
    }

    /// The file that byte `at` is in, if files have names.
    pub(crate) fn file(&self, at: usize) -> Option<&'a str> {
        self.part(at).map(|part| part.name)
    }

    /// Where the policy ends: what it includes stands behind it.
    pub(crate) fn end_of_first(&self) -> Span {
        let next = self.parts.get(1).map(|part| part.start.saturating_sub(1));
        let end = next.unwrap_or(self.text.len());
        Span::new(end, end)
    }

    /// What included the file that byte `at` is in.
    pub(crate) fn included(&self, at: usize) -> Option<Span> {
        self.part(at).and_then(|part| part.included)
    }

    /// Where the line that byte `at` is in begins, and its text without the line end.
    pub(crate) fn text(&self, at: usize) -> (usize, &'a str) {
        let line = self.whole(at);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = self.text.get(start..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        (start, line.strip_suffix('\r').unwrap_or(line))
    }

    /// The column of byte `at` in its line: characters, counted from 1.
    pub(crate) fn column(&self, at: usize) -> usize {
        let (start, line) = self.text(at);
        line.char_indices()
            .take_while(|(i, _)| start.saturating_add(*i) < at)
            .count()
            .saturating_add(1)
    }
}
