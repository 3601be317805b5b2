//! Text to tokens.

use std::ops::Range;

use crate::arith::{Compare, Operator};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A keyword, number, address, range, name or tag.
    Word(&'a str),
    /// A word behind a backslash: a protocol's name where the plain word would be a keyword.
    Escaped(&'a str),
    /// What stands between two quotes, as written.
    Text(&'a str),
    /// `(`
    Open,
    /// `)`
    Close,
    /// `[`
    OpenSquare,
    /// `]`
    CloseSquare,
    /// `:` between square brackets.
    Colon,
    /// `not`, `!`
    Not,
    /// `and`, `&&`
    And,
    /// `or`, `||`
    Or,
    /// `/`
    Slash,
    /// `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`
    Compare(Compare),
    /// `+`, `-`, `*`, `%`, `&`, `|`, `^`, `<<`, `>>`
    Operator(Operator),
    /// `~`
    Tilde,
    /// Nothing of this language.
    Strange(char),
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) span: Range<usize>,
}

/// Marks of two characters, tried before those of one.
const DOUBLE: &[(&str, Kind<'static>)] = &[
    ("&&", Kind::And),
    ("||", Kind::Or),
    ("==", Kind::Compare(Compare::Equal)),
    ("!=", Kind::Compare(Compare::NotEqual)),
    ("<=", Kind::Compare(Compare::LessOrEqual)),
    (">=", Kind::Compare(Compare::GreaterOrEqual)),
    ("<<", Kind::Operator(Operator::ShiftLeft)),
    (">>", Kind::Operator(Operator::ShiftRight)),
];

fn single(c: char) -> Option<Kind<'static>> {
    Some(match c {
        '(' => Kind::Open,
        ')' => Kind::Close,
        '[' => Kind::OpenSquare,
        ']' => Kind::CloseSquare,
        '!' => Kind::Not,
        '/' => Kind::Slash,
        '=' => Kind::Compare(Compare::Equal),
        '<' => Kind::Compare(Compare::Less),
        '>' => Kind::Compare(Compare::Greater),
        '&' => Kind::Operator(Operator::And),
        '|' => Kind::Operator(Operator::Or),
        '+' => Kind::Operator(Operator::Add),
        '-' => Kind::Operator(Operator::Subtract),
        '*' => Kind::Operator(Operator::Multiply),
        '%' => Kind::Operator(Operator::Modulo),
        '^' => Kind::Operator(Operator::Xor),
        '~' => Kind::Tilde,
        _ => return None,
    })
}

/// All tokens of `text`. Cannot fail: what does not belong is [`Kind::Strange`].
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let (mut at, mut squares) = (0_usize, 0_usize);
    while let Some(rest) = text.get(at..)
        && let Some(c) = rest.chars().next()
    {
        if c.is_ascii_whitespace() {
            at = at.saturating_add(1);
            continue;
        }
        let (kind, len) = token(rest, c, squares > 0);
        match kind {
            Kind::OpenSquare => squares = squares.saturating_add(1),
            Kind::CloseSquare => squares = squares.saturating_sub(1),
            _ => {}
        }
        let end = at.saturating_add(len.max(1));
        out.push(Token { kind, span: at..end });
        at = end;
    }
    out
}

/// The token that `rest` begins with, and its length in bytes.
fn token(rest: &str, c: char, in_squares: bool) -> (Kind<'_>, usize) {
    if let Some((mark, kind)) = DOUBLE.iter().find(|(mark, _)| rest.starts_with(mark)) {
        return (*kind, mark.len());
    }
    if c == '"' || c == '\'' {
        return quoted(rest, c);
    }
    if c == '\\' {
        let word = word(rest.get(1..).unwrap_or_default(), false);
        return match word {
            "" => (Kind::Strange(c), 1),
            word => (Kind::Escaped(word), word.len().saturating_add(1)),
        };
    }
    if in_squares && c == ':' {
        return (Kind::Colon, 1);
    }
    if let Some(kind) = single(c) {
        return (kind, 1);
    }
    let word = word(rest, in_squares);
    let kind = match word {
        "" => return (Kind::Strange(c), c.len_utf8()),
        "and" => Kind::And,
        "or" => Kind::Or,
        "not" => Kind::Not,
        word => Kind::Word(word),
    };
    (kind, word.len())
}

/// The word that `text` begins with. Colons and dots join addresses, dashes ranges, MAC addresses and
/// names of numbers, underscores names. Between square brackets there are no addresses, so `0:2` is
/// three tokens there, and `4-2` too.
fn word(text: &str, in_squares: bool) -> &str {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let belongs = |c: char| match c {
        '_' => true,
        '-' => !in_squares || !is_number,
        '.' | ':' => !in_squares,
        c => c.is_ascii_alphanumeric(),
    };
    let len = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.get(..len).unwrap_or_default()
}

/// A string: up to the same quote, unless a backslash stands before it.
fn quoted(rest: &str, quote: char) -> (Kind<'_>, usize) {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            let text = rest.get(1..i).unwrap_or_default();
            return (Kind::Text(text), i.saturating_add(1));
        }
        escaped = c == '\\' && !escaped;
    }
    (Kind::Strange(quote), 1)
}
