//! An error of a policy and the list they are collected in.

use std::fmt::{self, Display, Formatter};

use thiserror::Error;

use crate::span::Span;
use crate::warning::Warning;
use crate::why::Why;

/// After so many errors no more are looked for.
pub const MAX_ERRORS: usize = 100;

/// So many warnings are given, and a word on the rest.
pub const MAX_WARNINGS: usize = 100;

/// One error of a policy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct PolicyError {
    /// The offending text; empty where something is missing.
    pub span: Span,
    /// What is wrong.
    pub why: Why,
}

impl Display for PolicyError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.why.instead())
    }
}

/// Something in a policy that is allowed but probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWarning {
    /// The text it is about.
    pub span: Span,
    /// What is odd.
    pub why: Warning,
}

impl Display for PolicyWarning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.why.instead())
    }
}

/// Errors in the order in which they were found, at most [`MAX_ERRORS`] and a word on the rest.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    list: Vec<PolicyError>,
    stopped: bool,
}

impl Errors {
    pub(crate) fn push(&mut self, span: Span, why: Why) {
        if self.full() {
            return;
        }
        self.list.push(PolicyError { span, why });
        if self.list.len() >= MAX_ERRORS {
            self.list.push(PolicyError { span, why: Why::TooManyErrors });
            self.stopped = true;
        }
    }

    /// No more errors: what follows would only repeat the last.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// True when no more errors are taken.
    pub(crate) fn full(&self) -> bool {
        self.stopped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The errors in the order of the text.
    pub(crate) fn into_list(mut self) -> Vec<PolicyError> {
        self.list.sort_by_key(|e| (e.why == Why::TooManyErrors, e.span.start, e.span.end));
        self.list
    }
}
