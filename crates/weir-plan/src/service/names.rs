//! Names in documents: those of the policy language, so that both can be used side by side.

use crate::declare::RESERVED;
use crate::parse::MAX_NAME;

/// What is wrong with a name of letters and digits, and what to write instead.
pub(crate) fn no_word(name: &str) -> Option<(String, String)> {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let sound = name.starts_with(letter)
        && name.chars().all(|c| letter(c) || c.is_ascii_digit())
        && name.len() <= MAX_NAME;
    (!sound).then(|| {
        let instead = format!("write at most {MAX_NAME} letters, digits and `_`, a letter first");
        (format!("`{}` is not a name", short(name)), instead)
    })
}

/// What is wrong with the name of something that policies can name as well.
pub(crate) fn wrong(name: &str) -> Option<(String, String)> {
    if let Some(wrong) = no_word(name) {
        return Some(wrong);
    }
    RESERVED.contains(&name).then(|| {
        let instead = format!("write another name, as in `my_{}`", name.to_lowercase());
        (format!("`{name}` is a word of the policy language and cannot be a name"), instead)
    })
}

/// The beginning of a text, for messages.
fn short(text: &str) -> String {
    text.chars().take(MAX_NAME).collect()
}

/// Names in quotes, at most twenty of them.
pub(crate) fn list(names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(20).map(|name| format!("`{name}`")).collect();
    if names.len() > 20 {
        shown.push("...".to_owned());
    }
    shown.join(", ")
}

/// Adds a key to a JSON pointer.
pub(crate) fn push_step(pointer: &mut String, key: &str) {
    pointer.push('/');
    pointer.push_str(&step(key));
}

/// A key as a step of a JSON pointer (RFC 6901).
pub(crate) fn step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
