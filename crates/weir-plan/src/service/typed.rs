//! A tree to a typed value, with as many errors in one pass as there are.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use crate::config::{Config, locate, prune};
use crate::error::PolicyError;
use crate::nearest::nearest;
use crate::service::names;
use crate::span::{Span, Spanned};
use crate::why::Why;

/// How often a document is read for one more error of form: each time costs a reading of the whole.
const MAX_ROUNDS: usize = 20;

/// A document that has been read: its tree and what it says.
pub(crate) struct Document<T> {
    pub(crate) tree: Spanned<Config>,
    pub(crate) value: T,
}

impl<T> Document<T> {
    /// Where the part stands that a JSON pointer (RFC 6901) names.
    pub(crate) fn at(&self, pointer: &str) -> Span {
        locate(&self.tree, pointer)
    }

    /// Where the value itself stands, without its key.
    pub(crate) fn value_at(&self, pointer: &str) -> Span {
        let at = value(&self.tree, pointer).map(|value| value.span);
        at.unwrap_or_else(|| self.at(pointer))
    }
}

/// Reads `tree` as a `T`, which is a `kind` (for messages; `weir schema kind` shows its form).
pub(crate) fn typed<T: DeserializeOwned>(
    tree: Spanned<Config>,
    kind: &'static str,
) -> Result<Document<T>, Vec<PolicyError>> {
    let mut errors = Vec::new();
    let mut rest = tree.clone();
    // Where a key was unknown: that one is missing there would be the same error again.
    let mut misnamed: Vec<Vec<String>> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let json = rest.value.to_json();
        let error = match serde_path_to_error::deserialize::<_, T>(&json) {
            Ok(value) if errors.is_empty() => return Ok(Document { tree, value }),
            Ok(_) => break,
            Err(error) => error,
        };
        let steps = steps(error.path());
        let message = in_words(error.inner().to_string(), kind);
        let pointer: String = steps.iter().map(|step| format!("/{}", names::step(step))).collect();
        let unknown = message.starts_with("unknown field");
        if !(message.starts_with("missing field") && misnamed.contains(&steps)) {
            let instead = instead(&message, kind, &siblings(&rest, &steps));
            let span = locate(&rest, &pointer);
            errors.push(PolicyError { span, why: Why::Document { message, instead } });
        }
        if unknown {
            misnamed.push(steps.split_last().map_or_else(Vec::new, |(_, parent)| parent.to_vec()));
        }
        // Without the part that is wrong the next error shows. What is missing cannot be taken out,
        // so then the list element around it goes.
        if !prune(&mut rest, &steps, unknown) {
            break;
        }
    }
    errors.sort_by_key(|error| error.span.start);
    Err(errors)
}

fn steps(path: &serde_path_to_error::Path) -> Vec<String> {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Map { key } => Some(key.clone()),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

/// serde names the Rust type that it wanted, of which the user knows nothing.
fn in_words(message: String, kind: &str) -> String {
    match message.split_once("expected struct ") {
        Some((found, _)) => match found.strip_prefix("invalid type: ") {
            Some(found) if found.starts_with("null") || found.starts_with("unit") => {
                format!("there is no {kind} here: it is empty")
            }
            Some(found) => format!(
                "a {kind}, or a part of it, is an object with keys, not {}",
                found.trim_end_matches(", ")
            ),
            None => format!("a {kind}, or a part of it, is an object with keys"),
        },
        None => message,
    }
}

/// The keys that stand beside the part at `steps`.
fn siblings(tree: &Spanned<Config>, steps: &[String]) -> Vec<String> {
    let (_, parent) = steps.split_last().unwrap_or((&String::new(), &[]));
    let pointer: String = parent.iter().map(|step| format!("/{}", names::step(step))).collect();
    match value(tree, &pointer).map(|parent| &parent.value) {
        Some(Config::Object(members)) => members.iter().map(|(key, _)| key.value.clone()).collect(),
        _ => Vec::new(),
    }
}

/// What to do about an error of serde's. `there` are keys that need not be written again.
fn instead(message: &str, kind: &str, there: &[String]) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let Some((wrong, known)) = quoted.split_first()
        && message.starts_with("unknown ")
    {
        let is_field = message.starts_with("unknown field");
        let known = known.iter().filter(|known| !is_field || there.iter().all(|key| key != *known));
        let known: Vec<&str> = known.copied().collect();
        if let Some(near) = nearest(wrong, known.iter().copied()) {
            return format!("write `{near}`");
        }
        let known: Vec<String> = known.iter().take(20).map(|k| format!("`{k}`")).collect();
        return format!("write one of {}", known.join(", "));
    }
    if let Some(field) = quoted.first()
        && message.starts_with("missing field")
    {
        return format!("add `{field}`; `weir schema {kind}` shows the form");
    }
    format!("`weir schema {kind}` shows the form")
}

/// The part that a JSON pointer names.
pub(crate) fn value<'a>(tree: &'a Spanned<Config>, pointer: &str) -> Option<&'a Spanned<Config>> {
    let mut here = tree;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        here = match &here.value {
            Config::Object(members) => {
                members.iter().find(|(key, _)| key.value == step).map(|(_, value)| value)?
            }
            Config::Array(list) => list.get(step.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(here)
}
