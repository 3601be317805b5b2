//! Which word was probably meant: one that is near to what is written, and would be right there.

use std::ops::Range;

use crate::error::{ParseError, Why};
use crate::net::Net;
use crate::parse::parse_once;
use crate::words;

/// Longest text in which words are tried: each try reads it all.
const LONGEST: usize = 2048;

/// Words that are tried for one error.
const TRIES: usize = 6;

/// True when `word` in the place of `span` makes no error there. What stands behind it may be wrong still.
pub fn takes(
    text: &str,
    span: &Range<usize>,
    word: &str,
    lookup: &dyn Fn(&str) -> Option<Net>,
) -> bool {
    if text.len() > LONGEST {
        return false;
    }
    let (Some(before), Some(behind)) = (text.get(..span.start), text.get(span.end..)) else {
        return false;
    };
    let tried = format!("{before}{word}{behind}");
    let end = span.start.saturating_add(word.len());
    // Errors before it are others' unless they are new; an empty place behind it is what it lacks.
    let old = parse_once(text, lookup).err().unwrap_or_default();
    let is_old = |error: &ParseError| old.iter().any(|o| o.span.start == error.span.start);
    match parse_once(&tried, lookup) {
        Ok(_) => true,
        Err(errors) => errors.iter().all(|error| match error.span.start {
            start if start < span.start => is_old(error),
            start => start > end,
        }),
    }
}

/// Adds to each error about a word the keyword that was probably meant.
pub(crate) fn suggest(text: &str, lookup: &dyn Fn(&str) -> Option<Net>, errors: &mut [ParseError]) {
    if text.len() > LONGEST {
        return;
    }
    for error in errors {
        let ParseError { span, why } = error;
        let (Why::UnknownWord { nearest, .. }
        | Why::Name { nearest, .. }
        | Why::NoOperator { nearest }) = why
        else {
            continue;
        };
        let near = text.get(span.clone()).map(words::near).unwrap_or_default();
        *nearest = near.into_iter().take(TRIES).find(|word| takes(text, span, word, lookup));
    }
}
