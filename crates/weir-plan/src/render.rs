//! Errors and warnings as plain text, with the line and a mark under the place.

use std::fmt::Display;

use crate::error::{PolicyError, PolicyWarning};
use crate::span::{Lines, Span};

/// The most characters of a source line that are shown.
const WIDTH: usize = 100;

/// Errors as text, each with `file:line:column`, what is wrong, the line, the bytes of an example
/// packet if there is one, and what to do. `text` is
/// the policy they are about. Ends in a newline; empty without errors.
#[must_use]
pub fn render(errors: &[PolicyError], file: &str, text: &str) -> String {
    self::errors(&Lines::new(text), file, errors)
}

/// Warnings as text, in the form of [`render`].
#[must_use]
pub fn render_warnings(warnings: &[PolicyWarning], file: &str, text: &str) -> String {
    self::warnings(&Lines::new(text), file, warnings)
}

/// `file` is the name of a text whose files have none.
pub(crate) fn errors(lines: &Lines<'_>, file: &str, errors: &[PolicyError]) -> String {
    errors
        .iter()
        .map(|e| one(lines, file, e.span, "error", &e.why, &e.why.dump(), &e.why.instead()))
        .collect()
}

pub(crate) fn warnings(lines: &Lines<'_>, file: &str, warnings: &[PolicyWarning]) -> String {
    warnings
        .iter()
        .map(|w| one(lines, file, w.span, w.why.severity(), &w.why, "", &w.why.instead()))
        .collect()
}

fn one(
    lines: &Lines<'_>,
    file: &str,
    span: Span,
    severity: &str,
    why: &dyn Display,
    dump: &str,
    instead: &str,
) -> String {
    let file = lines.file(span.start).unwrap_or(file);
    let line = lines.number(span.start);
    let column = lines.column(span.start);
    let (start, source) = lines.text(span.start);
    // A span over several lines is marked in its first.
    let marked = source
        .char_indices()
        .filter(|(at, _)| (span.start..span.end).contains(&start.saturating_add(*at)))
        .count()
        .max(1);
    // A long line is shown from a little before the place.
    let skipped = if column.saturating_add(marked.min(WIDTH / 2)) > WIDTH {
        column.saturating_sub(WIDTH / 4)
    } else {
        0
    };
    let shown: String = source.chars().skip(skipped).take(WIDTH).map(plain).collect();
    let before: String = shown
        .chars()
        .take(column.saturating_sub(1).saturating_sub(skipped))
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    let marks = "^".repeat(marked.min(WIDTH.saturating_sub(before.chars().count())).max(1));
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let message: String = why.to_string().chars().map(plain).collect();
    let dump: String = dump.lines().map(|line| format!(" {margin} : {line}\n")).collect();
    let instead: String = instead.chars().map(plain).collect();
    format!(
        "{file}:{line}:{column}: {severity}: {message}\n {number} | {shown}\n {margin} | {before}{marks}\n{dump} {margin} = {instead}\n{}",
        including(lines, span, &margin)
    )
}

/// Which line included the file, and which one that file.
fn including(lines: &Lines<'_>, span: Span, margin: &str) -> String {
    let by = |span: &Span| lines.included(span.start);
    let all = std::iter::successors(by(&span), by).map(|span| {
        let (file, at) = (lines.file(span.start).unwrap_or_default(), span.start);
        format!(" {margin} > included in {file}:{}:{}\n", lines.number(at), lines.column(at))
    });
    all.collect()
}

/// Control characters could steer a terminal: they are shown as a sign.
fn plain(c: char) -> char {
    if c.is_control() && c != '\t' { '\u{fffd}' } else { c }
}
