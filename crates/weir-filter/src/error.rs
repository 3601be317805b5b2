//! What is wrong with a filter text, where, and what to write instead.

use std::fmt;
use std::ops::Range;

use thiserror::Error;

use crate::net::NetError;
use crate::offsets::Misplaced;

/// One error in a filter text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct ParseError {
    /// The offending bytes of the text; empty at the end when something is missing there.
    pub span: Range<usize>,
    /// What is wrong.
    pub why: Why,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write {}", self.why, self.instead())
    }
}

/// What is wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The text is longer than [`crate::MAX_TEXT`].
    #[error("the filter is {len} bytes long")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Brackets, negations and operators nest deeper than [`crate::MAX_DEPTH`].
    #[error("the filter nests too deeply")]
    TooDeep,
    /// A character that no filter has.
    #[error("`{0}` is not part of the filter language here")]
    Character(char),
    /// A word that is no keyword, where a term begins.
    #[error("`{word}` is not a word of the filter language")]
    UnknownWord {
        /// The word.
        word: String,
        /// The keyword that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A word of libpcap that is not taken here.
    #[error("libpcap's `{word}` is not taken here")]
    NotTaken {
        /// The word.
        word: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// A name where an address, a port or a number should be: names are never looked up.
    #[error("`{name}` is a name, and names are never looked up")]
    Name {
        /// The name.
        name: String,
        /// The keyword that was probably meant.
        nearest: Option<&'static str>,
        /// What to write instead.
        instead: &'static str,
    },
    /// A term is missing.
    #[error("a term is missing here")]
    NoTerm,
    /// A value is missing.
    #[error("a value is missing here")]
    NoValue {
        /// What to write.
        instead: &'static str,
    },
    /// Two terms follow each other.
    #[error("two terms stand side by side")]
    NoOperator {
        /// The keyword that was probably meant.
        nearest: Option<&'static str>,
    },
    /// `(` without `)`.
    #[error("this bracket is never closed")]
    NotClosed,
    /// `[` without `]`.
    #[error("this square bracket is never closed")]
    SquareNotClosed,
    /// `)` without `(`.
    #[error("this bracket closes nothing")]
    NotOpened,
    /// A value with no qualifiers before it to repeat.
    #[error("`{value}` stands alone: nothing says what to compare it with")]
    BareValue {
        /// The value.
        value: String,
    },
    /// A protocol that the value's kind does not go with.
    #[error("`{protocol}` does not go with `{kind}`")]
    Qualifier {
        /// The protocol qualifier.
        protocol: &'static str,
        /// The kind of value.
        kind: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// Not a value of the wanted kind.
    #[error("`{value}` is not {wanted}")]
    Value {
        /// What was written.
        value: String,
        /// What should be there.
        wanted: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// Address and length are not a network.
    #[error("{0}")]
    Net(NetError),
    /// A primitive stands where libpcap does not take it.
    #[error("{0}")]
    Misplaced(Misplaced),
    /// A regular expression that is none, or too large a one.
    #[error("the pattern is no regular expression, or too large a one: {0}")]
    Pattern(String),
    /// A `/len` or `mask` on something that is not a `net`.
    #[error("only `net` takes a prefix length or a mask")]
    PrefixOnHost,
}

impl ParseError {
    /// What to write instead, to be read after "write".
    #[must_use]
    pub fn instead(&self) -> String {
        let nearest = |word: &Option<&str>| word.map(|w| format!("`{w}`"));
        match &self.why {
            Why::TooLong { .. } => format!("at most {} bytes", crate::MAX_TEXT),
            Why::TooDeep => format!("at most {} levels", crate::MAX_DEPTH),
            Why::Character(_) => {
                "terms like `tcp port 80`, joined with `and`, `or`, `not` and round brackets"
                    .to_owned()
            }
            Why::UnknownWord { nearest: word, .. } => nearest(word)
                .unwrap_or_else(|| "a term like `tcp`, `host 10.0.0.1` or `port 80`".to_owned()),
            Why::Name { nearest: word, instead, .. } => match nearest(word) {
                Some(word) => format!("{word}, or {instead}"),
                None => (*instead).to_owned(),
            },
            Why::NoTerm => "a term like `tcp`, `host 10.0.0.1` or `port 80`".to_owned(),
            Why::NoOperator { nearest: word } => {
                nearest(word).unwrap_or_else(|| "`and` or `or` between them".to_owned())
            }
            Why::SquareNotClosed => "a `]` where it ends, as in `tcp[13]`".to_owned(),
            Why::NotClosed => "a `)` where it ends".to_owned(),
            Why::NotOpened => "a `(` where it begins, or leave it out".to_owned(),
            Why::BareValue { value } => {
                format!("what it is, as in `host {value}` or `port {value}`")
            }
            Why::NotTaken { instead, .. }
            | Why::NoValue { instead }
            | Why::Qualifier { instead, .. }
            | Why::Value { instead, .. } => (*instead).to_owned(),
            Why::Net(NetError::HostBits { network }) => format!("`net {network}`"),
            Why::Net(NetError::TooLong { max, .. }) => format!("at most `/{max}`"),
            Why::Misplaced(why) => why.instead().to_owned(),
            Why::Pattern(_) => {
                "one of the crate `regex`, as in `http.url ~ \"^/admin\"`".to_owned()
            }
            Why::PrefixOnHost => {
                "`net` (with `src` or `dst` before it), or leave the length out".to_owned()
            }
        }
    }
}
