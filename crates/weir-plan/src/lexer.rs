//! Text to tokens, one at a time: what a `[` begins depends on where it stands, so the parser
//! decides when to read raw text instead.

use crate::span::Span;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword.
    Name,
    /// What begins like a number, with all letters and digits that follow: `80`, `0x1f`, `5Mpps`.
    Number,
    /// A string with its quotes.
    Text,
    /// A string without its closing quote.
    OpenText,
    /// `/*` without `*/`.
    OpenComment,
    /// `->`
    Arrow,
    /// `...`
    Ellipsis,
    /// Any other single character.
    Char(char),
    /// The end of the text.
    End,
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// Reads tokens from a position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// Reads from byte `at`, which must be a character boundary, to the end.
    pub(crate) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    /// Goes on at byte `at`, which must be a character boundary.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.text.len());
    }

    /// Skips the longest run of characters that `wanted` takes.
    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.skip(rest.find(|c| !wanted(c)).unwrap_or(rest.len()));
    }

    pub(crate) fn next(&mut self) -> Token {
        if let Some(open) = self.skip_blanks() {
            return Token { kind: Kind::OpenComment, span: open };
        }
        let start = self.at;
        let kind = self.kind();
        Token { kind, span: Span::new(start, self.at) }
    }

    fn kind(&mut self) -> Kind {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Kind::End;
        };
        if rest.starts_with("->") {
            self.skip(2);
            return Kind::Arrow;
        }
        if rest.starts_with("...") {
            self.skip_while(|c| c == '.');
            return Kind::Ellipsis;
        }
        if first == '"' || first == '\'' {
            return self.string(first);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Kind::Name;
        }
        let mut after = rest.chars().skip(1);
        if first.is_ascii_digit()
            || (first == '.' && after.next().is_some_and(|c| c.is_ascii_digit()))
        {
            self.number();
            return Kind::Number;
        }
        self.skip(first.len_utf8());
        Kind::Char(first)
    }

    fn number(&mut self) {
        let hexadecimal = self.rest().starts_with("0x") || self.rest().starts_with("0X");
        let start = self.at;
        self.skip_while(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
        let exponent = self.text.get(start..self.at).unwrap_or_default().ends_with(['e', 'E']);
        if exponent && !hexadecimal && self.rest().starts_with(['+', '-']) {
            self.skip(1);
            self.skip_while(|c| c.is_ascii_digit());
        }
    }

    fn string(&mut self, quote: char) -> Kind {
        self.skip(1);
        loop {
            let Some(c) = self.rest().chars().next() else {
                return Kind::OpenText;
            };
            if c == '\n' {
                return Kind::OpenText;
            }
            self.skip(c.len_utf8());
            if c == quote {
                return Kind::Text;
            }
            if c == '\\' {
                let escaped = self.rest().chars().next().map_or(0, char::len_utf8);
                self.skip(escaped);
            }
        }
    }

    /// Skips white space and comments; gives the comment that never ends.
    fn skip_blanks(&mut self) -> Option<Span> {
        loop {
            self.skip_while(char::is_whitespace);
            let rest = self.rest();
            if rest.starts_with("//") {
                self.skip(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("/*") {
                let start = self.at;
                match rest.get(2..).and_then(|inner| inner.find("*/")) {
                    Some(end) => self.skip(end.saturating_add(4)),
                    None => {
                        self.skip(rest.len());
                        return Some(Span::new(start, start.saturating_add(2)));
                    }
                }
            } else {
                return None;
            }
        }
    }

    /// Everything up to white space or `;`: an address.
    pub(crate) fn word(&mut self) -> Span {
        let start = self.at;
        self.skip_while(|c| !c.is_whitespace() && c != ';');
        Span::new(start, self.at)
    }

    /// The text of a filter up to its `]`, which is skipped, with comments replaced by as many
    /// blanks, so that places in it are places in the policy; `None` when a `;` or the end comes
    /// first. Inner brackets and strings are part of the filter.
    pub(crate) fn filter(&mut self) -> Option<(String, Span)> {
        let start = self.at;
        let mut text = String::new();
        let mut depth = 0_usize;
        loop {
            let before = self.at;
            let rest = self.rest();
            if rest.starts_with("//") || rest.starts_with("/*") {
                self.skip_blanks();
                text.extend(std::iter::repeat_n(' ', self.at.saturating_sub(before)));
                continue;
            }
            let c = rest.chars().next()?;
            match c {
                ';' => return None,
                '[' => depth = depth.saturating_add(1),
                ']' if depth == 0 => {
                    self.skip(1);
                    return Some((text, Span::new(start, before)));
                }
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if c == '"' || c == '\'' {
                self.string(c);
            } else {
                self.skip(c.len_utf8());
            }
            text.push_str(Span::new(before, self.at).of(self.text));
        }
    }
}
