//! An NF's configuration: JSON5 (objects with bare keys, trailing commas, comments, either quote,
//! hexadecimal numbers), with the place of every part.

use std::fmt::{self, Display, Formatter};

use serde_json::{Number, Value};

use crate::lexer::Kind;
use crate::parse::{Parser, Stop};
use crate::span::{Name, Span, Spanned};
use crate::why::Why;

/// The deepest nesting of a configuration.
pub const MAX_CONFIG_DEPTH: usize = 64;

/// A configuration value.
#[derive(Clone, Debug, PartialEq)]
pub enum Config {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number that JSON can hold.
    Number(Number),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<Spanned<Config>>),
    /// Members in their order; no key occurs twice.
    Object(Vec<(Name, Spanned<Config>)>),
}

impl Config {
    /// The same value without places.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Config::Null => Value::Null,
            Config::Bool(b) => Value::Bool(*b),
            Config::Number(n) => Value::Number(n.clone()),
            Config::String(s) => Value::String(s.clone()),
            Config::Array(list) => list.iter().map(|e| e.value.to_json()).collect(),
            Config::Object(members) => Value::Object(
                members.iter().map(|(key, e)| (key.value.clone(), e.value.to_json())).collect(),
            ),
        }
    }
}

/// Where the part stands that a JSON pointer (RFC 6901) names: a member with its key. When the
/// pointer leads nowhere, the last part on its way.
pub(crate) fn locate(config: &Spanned<Config>, pointer: &str) -> Span {
    let mut here = config;
    let mut span = config.span;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match &here.value {
            Config::Object(members) => match members.iter().find(|(key, _)| key.value == step) {
                Some((key, value)) => {
                    span = key.span.to(value.span);
                    here = value;
                }
                None => return span,
            },
            Config::Array(list) => match step.parse::<usize>().ok().and_then(|i| list.get(i)) {
                Some(value) => {
                    span = value.span;
                    here = value;
                }
                None => return span,
            },
            _ => return span,
        }
    }
    span
}

/// Takes out the part at `steps`: itself, or the innermost list element that it is in.
pub(crate) fn prune(tree: &mut Spanned<Config>, steps: &[String], itself: bool) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return false;
    };
    match &mut tree.value {
        Config::Object(members) => {
            let Some(at) = members.iter().position(|(key, _)| key.value == *step) else {
                return false;
            };
            if rest.is_empty() && itself {
                members.remove(at);
                return true;
            }
            members.get_mut(at).is_some_and(|(_, value)| prune(value, rest, itself))
        }
        Config::Array(list) => {
            let Some(at) = step.parse::<usize>().ok().filter(|at| *at < list.len()) else {
                return false;
            };
            if !list.get_mut(at).is_some_and(|value| prune(value, rest, itself)) {
                list.remove(at);
            }
            true
        }
        _ => false,
    }
}

impl Display for Config {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Config::Null => f.write_str("null"),
            Config::Bool(b) => b.fmt(f),
            Config::Number(n) => n.fmt(f),
            // JSON's strings are JSON5's.
            Config::String(s) => Value::from(s.as_str()).fmt(f),
            Config::Array(list) => {
                f.write_str("[")?;
                for (i, e) in list.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, e.value)?;
                }
                f.write_str("]")
            }
            Config::Object(members) => {
                f.write_str("{")?;
                for (i, (key, e)) in members.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    if is_bare(&key.value) {
                        write!(f, "{comma} {}: {}", key.value, e.value)?;
                    } else {
                        write!(f, "{comma} {}: {}", Value::from(key.value.as_str()), e.value)?;
                    }
                }
                f.write_str(if members.is_empty() { "}" } else { " }" })
            }
        }
    }
}

fn is_bare(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Parser<'_> {
    /// A configuration value; `depth` is how deep it may still nest.
    pub(crate) fn config(&mut self, depth: usize) -> Result<Spanned<Config>, Stop> {
        let token = self.token;
        let Some(deeper) = depth.checked_sub(1) else {
            return Err(self.fail(token.span, Why::ConfigTooDeep));
        };
        let value = match token.kind {
            Kind::Char('{') => return self.object(deeper),
            Kind::Char('[') => return self.array(deeper),
            Kind::Text => Config::String(self.string()?),
            Kind::Number => self.number(token.span)?,
            Kind::Char(sign @ ('-' | '+')) => {
                self.advance();
                if self.token.kind != Kind::Number || self.token.span.start != token.span.end {
                    return Err(self.expected("a number", "digits behind the sign, as in `-1`"));
                }
                let span =
                    if sign == '-' { token.span.to(self.token.span) } else { self.token.span };
                let value = self.number(span)?;
                return Ok(Spanned::new(value, token.span.to(self.before)));
            }
            Kind::Name => {
                let value = match token.span.of(self.text) {
                    "true" => Config::Bool(true),
                    "false" => Config::Bool(false),
                    "null" => Config::Null,
                    _ => return Err(self.expected("a value", "quotes around it if it is a string")),
                };
                self.advance();
                value
            }
            _ => {
                return Err(self.expected(
                    "a value",
                    "a number, a string in quotes, true, false, null, a [list] or an {object}",
                ));
            }
        };
        Ok(Spanned::new(value, token.span))
    }

    fn object(&mut self, depth: usize) -> Result<Spanned<Config>, Stop> {
        let open = self.token.span;
        self.advance();
        let mut members: Vec<(Name, Spanned<Config>)> = Vec::new();
        let mut keys = std::collections::HashSet::new();
        while self.token.kind != Kind::Char('}') {
            let span = self.token.span;
            let key = match self.token.kind {
                Kind::Name => {
                    self.advance();
                    span.of(self.text).to_owned()
                }
                Kind::Text => self.string()?,
                Kind::End => return Err(self.fail(open, Why::NotClosed("{", "}"))),
                _ => {
                    return Err(self
                        .expected("a key or `}`", "`key: value` pairs with commas between them"));
                }
            };
            if self.token.kind != Kind::Char(':') {
                return Err(self.expected("`:`", "`key: value`"));
            }
            self.advance();
            let value = self.config(depth)?;
            if keys.insert(key.clone()) {
                members.push((Spanned::new(key, span), value));
            } else {
                self.error(span, Why::SameKey(key));
            }
            self.comma('}', open, "{")?;
        }
        let close = self.token.span;
        self.advance();
        Ok(Spanned::new(Config::Object(members), open.to(close)))
    }

    fn array(&mut self, depth: usize) -> Result<Spanned<Config>, Stop> {
        let open = self.token.span;
        self.advance();
        let mut list = Vec::new();
        while self.token.kind != Kind::Char(']') {
            if self.token.kind == Kind::End {
                return Err(self.fail(open, Why::NotClosed("[", "]")));
            }
            list.push(self.config(depth)?);
            self.comma(']', open, "[")?;
        }
        let close = self.token.span;
        self.advance();
        Ok(Spanned::new(Config::Array(list), open.to(close)))
    }

    /// A comma, or the closing bracket, which stays.
    fn comma(&mut self, close: char, open: Span, bracket: &'static str) -> Result<(), Stop> {
        match self.token.kind {
            Kind::Char(',') => {
                self.advance();
                Ok(())
            }
            Kind::Char(c) if c == close => Ok(()),
            Kind::End => {
                Err(self.fail(open, Why::NotClosed(bracket, if close == ']' { "]" } else { "}" })))
            }
            _ if close == ']' => Err(self.expected("`,` or `]`", "a comma between values")),
            _ => Err(self.expected("`,` or `}`", "a comma between members")),
        }
    }

    fn number(&mut self, span: Span) -> Result<Config, Stop> {
        let written = span.of(self.text);
        match parse_number(written) {
            Some(number) => {
                self.advance();
                Ok(Config::Number(number))
            }
            None => Err(self.fail(span, Why::Number(written.to_owned()))),
        }
    }

    /// The string that the token is, without its quotes and escapes.
    pub(crate) fn string(&mut self) -> Result<String, Stop> {
        let span = self.token.span;
        let quoted = span.of(self.text);
        let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        self.advance();
        unescape(inner).map_err(|escape| self.fail(span, Why::Escape(escape)))
    }
}

fn parse_number(text: &str) -> Option<Number> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let value = u64::from_str_radix(hex.strip_prefix('+').map_or(hex, |_| ""), 16).ok()?;
        return if negative {
            0_i64.checked_sub_unsigned(value).map(Number::from)
        } else {
            Some(value.into())
        };
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if digits.chars().all(|c| c.is_ascii_digit()) {
        return if negative {
            text.parse::<i64>().ok().map(Number::from)
        } else {
            digits.parse::<u64>().ok().map(Number::from)
        };
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}

/// Undoes a string's escapes; the error is the escape that is not one.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('v') => out.push('\u{b}'),
            Some('0') => out.push('\0'),
            Some('\n') => {}
            Some('x') => out.push(hex(&mut chars, 2).and_then(char::from_u32).ok_or("\\x")?),
            Some('u') => out.push(utf16(&mut chars).ok_or("\\u")?),
            Some(c @ ('"' | '\'' | '\\' | '/')) => out.push(c),
            Some(c) => return Err(format!("\\{c}")),
            None => return Err("\\".to_owned()),
        }
    }
    Ok(out)
}

fn hex(chars: &mut std::str::Chars<'_>, digits: usize) -> Option<u32> {
    let text = chars.as_str().get(..digits)?;
    if !text.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = u32::from_str_radix(text, 16).ok()?;
    *chars = chars.as_str().get(digits..)?.chars();
    Some(value)
}

/// The character behind `\u`: four digits, or two such that are a surrogate pair.
fn utf16(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let high = u16::try_from(hex(chars, 4)?).ok()?;
    if let Some(c) = char::from_u32(high.into()) {
        return Some(c);
    }
    *chars = chars.as_str().strip_prefix("\\u")?.chars();
    let low = u16::try_from(hex(chars, 4)?).ok()?;
    char::decode_utf16([high, low]).next()?.ok()
}
