//! Text to tokens.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A keyword, number, address, range, name or tag.
    Word(&'a str),
    /// `(`
    Open,
    /// `)`
    Close,
    /// `not`, `!`
    Not,
    /// `and`, `&&`
    And,
    /// `or`, `||`
    Or,
    /// `/`
    Slash,
    /// Nothing of this language.
    Strange(char),
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) span: Range<usize>,
}

/// All tokens of `text`. Cannot fail: what does not belong is [`Kind::Strange`].
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        if c.is_ascii_whitespace() {
            continue;
        }
        let mut end = start.saturating_add(c.len_utf8());
        let kind = match c {
            '(' => Kind::Open,
            ')' => Kind::Close,
            '!' => Kind::Not,
            '/' => Kind::Slash,
            '&' | '|' => {
                if chars.next_if(|(_, d)| *d == c).is_some() {
                    end = end.saturating_add(1);
                    if c == '&' { Kind::And } else { Kind::Or }
                } else {
                    Kind::Strange(c)
                }
            }
            c if in_word(c) => {
                while let Some((at, d)) = chars.next_if(|(_, d)| in_word(*d)) {
                    end = at.saturating_add(d.len_utf8());
                }
                match text.get(start..end).unwrap_or_default() {
                    "and" => Kind::And,
                    "or" => Kind::Or,
                    "not" => Kind::Not,
                    word => Kind::Word(word),
                }
            }
            c => Kind::Strange(c),
        };
        out.push(Token { kind, span: start..end });
    }
    out
}

/// Colons and dots join addresses, dashes ranges and MAC addresses, underscores names.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-')
}
