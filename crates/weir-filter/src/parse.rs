//! Text to [`Expr`]: operators, brackets and the repeating of qualifiers.
//!
//! The primitives themselves are in [`primitive`], the values in [`crate::value`].

mod any;
mod arith;
mod primitive;
mod qualifiers;
mod special;

use std::ops::Range;

use crate::error::{ParseError, Why};
use crate::expr::Expr;
use crate::lexer::{Kind, Token, tokens};
use crate::lower::misplaced;
use crate::net::Net;
use crate::primitive::Primitive;
use crate::suggest::suggest;
use crate::{value, words};
use qualifiers::Qualifiers;

/// Longest text taken, in bytes.
pub const MAX_TEXT: usize = 64 * 1024;

/// Deepest nesting of brackets, negations and changes between `and` and `or`.
pub const MAX_DEPTH: usize = 64;

/// After so many errors the rest is not looked at.
const MAX_ERRORS: usize = 16;

/// Parses a filter.
///
/// The empty text is [`Expr::True`], as in libpcap.
///
/// # Errors
/// Everything that is wrong with the text, in its order, at most 16 errors.
pub fn parse(text: &str) -> Result<Expr, Vec<ParseError>> {
    parse_with(text, &|_| None)
}

/// Parses a filter in which `lookup` gives addresses to names, as in `dst net my_net`.
///
/// A named network may stand wherever an address may, also after `host`.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<Net>,
) -> Result<Expr, Vec<ParseError>> {
    parse_once(text, lookup).map_err(|mut errors| {
        suggest(text, lookup, &mut errors);
        errors
    })
}

/// The same, without words that were probably meant.
pub(crate) fn parse_once(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<Net>,
) -> Result<Expr, Vec<ParseError>> {
    if text.len() > MAX_TEXT {
        return Err(vec![ParseError {
            span: MAX_TEXT..text.len(),
            why: Why::TooLong { len: text.len() },
        }]);
    }
    let tokens = tokens(text);
    if tokens.is_empty() {
        return Ok(Expr::True);
    }
    let (errors, spans) = (Vec::new(), Vec::new());
    let mut parser =
        Parser { tokens, at: 0, end: text.len(), errors, unknown: None, spans, lookup };
    let expr = parser.expression(None, 0).expr;
    if parser.errors.is_empty()
        && let Some((index, why)) = misplaced(&expr)
    {
        let span = parser.spans.get(index).cloned().unwrap_or(0..text.len());
        parser.error(span, Why::Misplaced(why));
    }
    if parser.errors.is_empty() {
        Ok(expr)
    } else {
        parser.errors.sort_by_key(|e| e.span.start);
        parser.errors.truncate(MAX_ERRORS);
        Err(parser.errors)
    }
}

/// A part that was parsed.
struct Parsed {
    expr: Expr,
    /// What a bare value after it repeats.
    qualifiers: Option<Qualifiers>,
    /// Height of `expr`, so that no caller's recursion over it can overflow.
    height: usize,
}

impl Parsed {
    fn leaf(expr: Expr, qualifiers: Option<Qualifiers>) -> Self {
        Self { expr, qualifiers, height: 0 }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    end: usize,
    errors: Vec<ParseError>,
    /// The token behind a word that is none, and what probably belongs to it: whether an operator is missing there nobody
    /// can say.
    unknown: Option<usize>,
    /// Where each primitive stands, from left to right.
    spans: Vec<Range<usize>>,
    lookup: &'a dyn Fn(&str) -> Option<Net>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Kind<'a>> {
        self.tokens.get(self.at).map(|t| t.kind)
    }

    fn peek_after(&self, n: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at.saturating_add(n)).map(|t| t.kind)
    }

    fn skip(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    /// Where the next token stands; the end when there is none.
    fn here(&self) -> Range<usize> {
        self.tokens.get(self.at).map_or(self.end..self.end, |t| t.span.clone())
    }

    /// From `start` to the end of the token before this one.
    fn since(&self, start: usize) -> Range<usize> {
        let last = self.at.checked_sub(1).and_then(|i| self.tokens.get(i));
        start..last.map_or(start, |t| t.span.end).max(start)
    }

    /// A primitive, of which it is noted where it stands.
    fn made(&mut self, primitive: Primitive, span: Range<usize>) -> Expr {
        self.spans.push(span);
        primitive.into()
    }

    fn error(&mut self, span: Range<usize>, why: Why) {
        self.errors.push(ParseError { span, why });
        if self.errors.len() >= MAX_ERRORS {
            self.at = self.tokens.len();
        }
    }

    /// Terms and operators up to a closing bracket or the end. `outer` is what a bare value at the
    /// beginning repeats.
    fn expression(&mut self, outer: Option<Qualifiers>, depth: usize) -> Parsed {
        let mut left = self.term(outer, depth);
        loop {
            let is_and = match self.peek() {
                None => return left,
                Some(Kind::Close) if depth > 0 => return left,
                Some(Kind::Close) => {
                    self.error(self.here(), Why::NotOpened);
                    self.skip();
                    continue;
                }
                Some(kind @ (Kind::And | Kind::Or)) => {
                    self.skip();
                    kind == Kind::And
                }
                Some(kind) => {
                    self.missing_operator(kind);
                    if matches!(self.peek(), None | Some(Kind::Close)) {
                        continue;
                    }
                    true
                }
            };
            let right = self.term(left.qualifiers, depth);
            left = join(left, right, is_and);
            if left.height > MAX_DEPTH {
                self.error(self.here(), Why::TooDeep);
                self.at = self.tokens.len();
                // What was built is dropped here, while it is still shallow enough to be.
                return Parsed::leaf(Expr::False, None);
            }
        }
    }

    fn missing_operator(&mut self, kind: Kind<'a>) {
        let why = match kind {
            Kind::Strange(_) => stray(kind),
            _ => Why::NoOperator { nearest: None },
        };
        let is_own_term = matches!(kind, Kind::Word(w) if words::is_keyword(w))
            || matches!(kind, Kind::Open | Kind::Not);
        if self.unknown != Some(self.at) {
            self.error(self.here(), why);
        }
        if !is_own_term {
            // Go on behind the words that belong to no term: one error for them is enough.
            while let Some(kind) = self.peek() {
                let stop = match kind {
                    Kind::And | Kind::Or | Kind::Close | Kind::Open | Kind::Not => true,
                    Kind::Word(w) => words::is_keyword(w),
                    _ => false,
                };
                if stop {
                    break;
                }
                self.skip();
            }
            if let Some(Kind::And | Kind::Or) = self.peek() {
                self.skip();
            }
        }
    }

    /// One operand. `outer` is what a bare value repeats.
    fn term(&mut self, outer: Option<Qualifiers>, depth: usize) -> Parsed {
        if depth >= MAX_DEPTH && matches!(self.peek(), Some(Kind::Open | Kind::Not)) {
            self.error(self.here(), Why::TooDeep);
            self.at = self.tokens.len();
            return Parsed::leaf(Expr::False, None);
        }
        if let Some(relation) = self.relation() {
            return relation;
        }
        match self.peek() {
            Some(Kind::Not) => {
                self.skip();
                negate(self.term(outer, depth.saturating_add(1)))
            }
            Some(Kind::Open) => match outer {
                Some(qualifiers) if self.bracket_holds_values() => self.value(qualifiers, depth),
                _ => self.bracket(outer, depth),
            },
            Some(Kind::Word(word)) => self.word(word, outer, depth),
            Some(Kind::Escaped(_)) if outer.is_some_and(Qualifiers::takes_protocol) => {
                Parsed::leaf(self.single_value(outer.unwrap_or(Qualifiers::Wrong)), outer)
            }
            Some(
                kind @ (Kind::Strange(_)
                | Kind::Slash
                | Kind::Escaped(_)
                | Kind::Text(_)
                | Kind::OpenSquare
                | Kind::CloseSquare
                | Kind::Colon
                | Kind::Compare(_)
                | Kind::Operator(_)
                | Kind::Tilde),
            ) => {
                self.error(self.here(), stray(kind));
                self.skip();
                Parsed::leaf(Expr::False, outer)
            }
            // After too many errors everything is skipped: no term is missing then.
            None if self.errors.len() >= MAX_ERRORS => Parsed::leaf(Expr::False, None),
            Some(Kind::And | Kind::Or | Kind::Close) | None => {
                self.error(self.here(), Why::NoTerm);
                Parsed::leaf(Expr::False, outer)
            }
        }
    }

    /// `( expression )`. What follows repeats what stood before the bracket, as in libpcap.
    fn bracket(&mut self, outer: Option<Qualifiers>, depth: usize) -> Parsed {
        let open = self.here();
        self.skip();
        let inner = self.expression(outer, depth.saturating_add(1));
        self.close(open);
        Parsed { qualifiers: outer, ..inner }
    }

    fn close(&mut self, open: Range<usize>) {
        if self.peek() == Some(Kind::Close) {
            self.skip();
        } else if self.errors.last().is_none_or(|e| e.why != Why::TooDeep)
            && self.errors.len() < MAX_ERRORS
        {
            self.error(open, Why::NotClosed);
        }
    }

    /// True when the first word in the bracket here is a value, so that the bracket is a list of them.
    fn bracket_holds_values(&self) -> bool {
        let rest = self.tokens.get(self.at..).unwrap_or_default();
        let mut kinds = rest.iter().map(|t| t.kind);
        let first = kinds.find(|k| !matches!(k, Kind::Open | Kind::Not));
        // `port 80 or (5 < len)`: a number of its own.
        let is_compared = match (first, kinds.next()) {
            (Some(Kind::Word(word)), Some(Kind::Slash)) => value::number(word).is_some(),
            (_, next) => matches!(next, Some(Kind::Compare(_) | Kind::Operator(_))),
        };
        match first {
            Some(Kind::Word(word)) => is_value(word) && !is_compared,
            first => matches!(first, Some(Kind::Escaped(_))),
        }
    }

    /// A value, or a list of values in brackets, all with the same qualifiers.
    fn value(&mut self, qualifiers: Qualifiers, depth: usize) -> Parsed {
        if depth >= MAX_DEPTH && matches!(self.peek(), Some(Kind::Open | Kind::Not)) {
            self.error(self.here(), Why::TooDeep);
            self.at = self.tokens.len();
            return Parsed::leaf(Expr::False, None);
        }
        let inner = depth.saturating_add(1);
        match self.peek() {
            Some(Kind::Not) => {
                self.skip();
                negate(self.value(qualifiers, inner))
            }
            Some(Kind::Open) => {
                let open = self.here();
                self.skip();
                let mut list = self.value(qualifiers, inner);
                while let Some(kind @ (Kind::And | Kind::Or)) = self.peek() {
                    self.skip();
                    let next = self.value(qualifiers, inner);
                    list = join(list, next, kind == Kind::And);
                    if list.height > MAX_DEPTH {
                        self.error(self.here(), Why::TooDeep);
                        self.at = self.tokens.len();
                        return Parsed::leaf(Expr::False, None);
                    }
                }
                self.close(open);
                list
            }
            _ => Parsed::leaf(self.single_value(qualifiers), Some(qualifiers)),
        }
    }
}

/// What is said of a token that begins no term.
fn stray(kind: Kind<'_>) -> Why {
    match kind {
        Kind::Strange(c) => Why::Character(c),
        Kind::Slash => Why::Character('/'),
        Kind::Tilde => Why::Character('~'),
        Kind::OpenSquare => Why::Character('['),
        Kind::CloseSquare => Why::Character(']'),
        Kind::Colon => Why::Character(':'),
        _ => Why::NoTerm,
    }
}

/// A word that can only be a value: neither keyword nor tag.
fn is_value(word: &str) -> bool {
    !words::is_keyword(word) && tag(word).is_none()
}

/// `scope.name`, when `word` is that.
fn tag(word: &str) -> Option<(&str, &str)> {
    let (scope, name) = word.split_once('.')?;
    let is_identifier = |w: &str| {
        w.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    (is_identifier(scope) && is_identifier(name)).then_some((scope, name))
}

fn negate(inner: Parsed) -> Parsed {
    let Parsed { expr, qualifiers, height } = inner;
    Parsed { expr: Expr::not(expr), qualifiers, height: height.saturating_add(1) }
}

/// `left and right` or `left or right`, lists of the same operator made one.
fn join(left: Parsed, right: Parsed, is_and: bool) -> Parsed {
    let level = |e: &Parsed| match (&e.expr, is_and) {
        (Expr::And(_), true) | (Expr::Or(_), false) => e.height,
        _ => e.height.saturating_add(1),
    };
    let height = level(&left).max(level(&right));
    let qualifiers = right.qualifiers;
    let expr = match (left.expr, right.expr, is_and) {
        // Grown in place: a long list must not be copied for each operand.
        (Expr::And(mut list), right, true) => {
            extend(&mut list, right, is_and);
            Expr::And(list)
        }
        (Expr::Or(mut list), right, false) => {
            extend(&mut list, right, is_and);
            Expr::Or(list)
        }
        (left, right, true) => Expr::and(vec![left, right]),
        (left, right, false) => Expr::or(vec![left, right]),
    };
    Parsed { expr, qualifiers, height }
}

fn extend(list: &mut Vec<Expr>, right: Expr, is_and: bool) {
    match (right, is_and) {
        (Expr::And(inner), true) | (Expr::Or(inner), false) => list.extend(inner),
        (right, _) => list.push(right),
    }
}
