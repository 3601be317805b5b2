//! A document's text to a tree in which every part knows its place, whatever syntax it is in.

use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::budget::Budget;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, Options};

use crate::config::{Config, MAX_CONFIG_DEPTH};
use crate::error::PolicyError;
use crate::lexer::Kind;
use crate::parse::{MAX_TEXT, Parser};
use crate::span::{Span, Spanned};
use crate::why::Why;

/// The most values in a YAML document, those that aliases repeat counted each time. It is what
/// bounds a document that is small to read and vast to hold.
pub const MAX_VALUES: usize = 200_000;

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, and JSON5 as in policies' configurations.
    Json,
    /// YAML 1.2: one document, no merge keys, no tags.
    Yaml,
}

impl Syntax {
    /// By the file's extension: `.json` and `.json5`, `.yaml` and `.yml`; `None` for any other.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" | "json5" => Some(Syntax::Json),
            "yaml" | "yml" => Some(Syntax::Yaml),
            _ => None,
        }
    }
}

/// Reads a document of at most [`MAX_TEXT`] bytes and [`MAX_CONFIG_DEPTH`] levels.
///
/// # Errors
/// What keeps it from being read, with the place. JSON may have several errors, YAML has one.
pub(crate) fn read(text: &str, syntax: Syntax) -> Result<Spanned<Config>, Vec<PolicyError>> {
    if text.len() > MAX_TEXT {
        let why = Why::Document {
            message: format!("the document is {} bytes long", text.len()),
            instead: format!("at most {MAX_TEXT} bytes are read"),
        };
        return Err(vec![PolicyError { span: Span::default(), why }]);
    }
    match syntax {
        Syntax::Json => json(text),
        Syntax::Yaml => yaml(text).map_err(|error| vec![error]),
    }
}

fn json(text: &str) -> Result<Spanned<Config>, Vec<PolicyError>> {
    let mut parser = Parser::new(text);
    let read = parser.config(MAX_CONFIG_DEPTH);
    if read.is_ok() && parser.token.kind != Kind::End {
        let _ = parser.expected("the end", "one value, and nothing behind it");
    }
    let errors = parser.into_errors();
    match read {
        Ok(tree) if errors.is_empty() => Ok(tree),
        _ => Err(errors.into_list()),
    }
}

fn yaml(text: &str) -> Result<Spanned<Config>, PolicyError> {
    let mut budget = Budget::default();
    budget.max_depth = MAX_CONFIG_DEPTH;
    budget.flow_nesting_limit = MAX_CONFIG_DEPTH;
    budget.max_nodes = MAX_VALUES;
    budget.max_events = MAX_VALUES.saturating_mul(2);
    budget.max_documents = 1;
    budget.max_total_scalar_bytes = MAX_TEXT;
    let mut aliases = AliasLimits::default();
    aliases.max_total_replayed_events = MAX_VALUES;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.merge_keys = MergeKeyPolicy::Error;
    options.alias_limits = aliases;
    options.strict_booleans = true;
    options.with_snippet = false;
    let read: Result<serde_saphyr::Spanned<Tree>, _> =
        serde_saphyr::from_str_with_options(text, options);
    match read {
        Ok(tree) => Ok(spanned(tree, text)),
        Err(error) => {
            let span = error.location().map_or(Span::default(), |place| span(&place, text));
            let message = error.without_snippet().to_string();
            let message = message.lines().next().unwrap_or_default().to_owned();
            let instead = "write YAML 1.2 (quote strings that hold `: `, `#` or `*`)".to_owned();
            Err(PolicyError { span, why: Why::Document { message, instead } })
        }
    }
}

/// A place in bytes; the parser's are within the text, which `Lines` checks again.
fn span(place: &Location, text: &str) -> Span {
    let at = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
    let start = at(place.span().byte_offset()).unwrap_or(0).min(text.len());
    let len = at(place.span().byte_len()).unwrap_or(0);
    Span::new(start, start.saturating_add(len).min(text.len()))
}

/// A value as the YAML reader hands it over.
enum Tree {
    Scalar(Config),
    Array(Vec<serde_saphyr::Spanned<Tree>>),
    Object(Vec<(serde_saphyr::Spanned<String>, serde_saphyr::Spanned<Tree>)>),
}

fn spanned(tree: serde_saphyr::Spanned<Tree>, text: &str) -> Spanned<Config> {
    let place = span(&tree.referenced, text);
    let value = match tree.value {
        Tree::Scalar(scalar) => scalar,
        Tree::Array(list) => Config::Array(list.into_iter().map(|e| spanned(e, text)).collect()),
        Tree::Object(members) => {
            let member = |(key, value): (serde_saphyr::Spanned<String>, _)| {
                let place = span(&key.referenced, text);
                (Spanned::new(key.value, place), spanned(value, text))
            };
            Config::Object(members.into_iter().map(member).collect())
        }
    };
    Spanned::new(value, place)
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a mapping with strings as keys")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Config::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Tree, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(Config::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Config::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Config::Number(value.into())))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value);
        let number = number.ok_or_else(|| E::custom(format!("{value} is not a finite number")))?;
        Ok(Tree::Scalar(Config::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(Config::String(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = access.next_element()? {
            list.push(element);
        }
        Ok(Tree::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Tree::Object(members))
    }
}
