//! The JSON schema of a configuration, as operators and editors get to see it.

use serde_json::{Map, Number, Value};

/// The schema of `T`: what it is derived from says bounds and texts for programmers, who know how large a `u32` is.
pub(crate) fn of<T: schemars::JsonSchema>() -> schemars::Schema {
    let mut schema = schemars::schema_for!(T);
    if let Some(object) = schema.as_object_mut() {
        tidy(object);
    }
    schema
}

/// Gives all integers their bounds, and puts texts into one line without links.
fn tidy(object: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = plain(text);
    }
    let bounds = object.get("format").and_then(Value::as_str).and_then(bounds);
    if let Some((least, most)) = bounds {
        object.entry("minimum").or_insert(Value::Number(least));
        object.entry("maximum").or_insert(Value::Number(most));
    }
    for value in object.values_mut() {
        walk(value);
    }
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(object) => tidy(object),
        Value::Array(list) => list.iter_mut().for_each(walk),
        _ => {}
    }
}

/// What fits into a number of that format.
fn bounds(format: &str) -> Option<(Number, Number)> {
    let unsigned = |most: u64| Some((Number::from(0), Number::from(most)));
    let signed = |least: i64, most: i64| Some((Number::from(least), Number::from(most)));
    match format {
        "uint8" => unsigned(u8::MAX.into()),
        "uint16" => unsigned(u16::MAX.into()),
        "uint32" => unsigned(u32::MAX.into()),
        "uint" | "uint64" => unsigned(u64::MAX),
        "int8" => signed(i8::MIN.into(), i8::MAX.into()),
        "int16" => signed(i16::MIN.into(), i16::MAX.into()),
        "int32" => signed(i32::MIN.into(), i32::MAX.into()),
        "int" | "int64" => signed(i64::MIN, i64::MAX),
        _ => None,
    }
}

/// What serde says of a value, with the numbers that fit where it names a type of programmers: of `expected u16` it makes
/// `expected a whole number from 0 to 65535`.
#[must_use]
pub fn in_words(said: &str) -> String {
    let words = said.rsplit_once("expected ").and_then(|(before, name)| {
        let expected = match (name, name.split_at_checked(1)?) {
            ("f32" | "f64", _) => "a number".to_owned(),
            ("usize", _) => range("uint")?,
            ("isize", _) => range("int")?,
            (_, ("u", bits)) if !bits.is_empty() => range(&format!("uint{bits}"))?,
            (_, ("i", bits)) if !bits.is_empty() => range(&format!("int{bits}"))?,
            _ => return None,
        };
        Some(format!("{before}expected {expected}"))
    });
    words.unwrap_or_else(|| said.to_owned())
}

fn range(format: &str) -> Option<String> {
    let (least, most) = bounds(format)?;
    Some(format!("a whole number from {least} to {most}"))
}

/// One line, and of a link what it is called.
fn plain(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut out, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, behind)) = rest.split_once('[') {
        out.push_str(before);
        // What is quoted is no link: `[64, 600]`.
        let quoted = before.matches('`').count() % 2 == 1;
        let link = behind.split_once(']').filter(|(name, after)| {
            !quoted && (after.starts_with('(') || name.starts_with('`') && name.ends_with('`'))
        });
        match link {
            Some((name, after)) => {
                out.push_str(name);
                let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
                rest = target.map_or(after, |(_, behind)| behind);
            }
            None => {
                out.push('[');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{in_words, of, plain};
    use serde_json::json;

    /// A configuration.
    #[derive(schemars::JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Config {
        /// How many of [`Thing`],
        /// as [it](crate::it) says.
        many: u32,
        /// Of three.
        #[schemars(range(min = 1, max = 3))]
        some: Option<u16>,
        list: Vec<u8>,
    }

    #[test]
    fn integers_have_bounds_and_texts_are_one_line_without_links() {
        let schema = of::<Config>();
        let at = |pointer: &str| schema.pointer(pointer).cloned();
        assert_eq!(at("/properties/many/minimum"), Some(json!(0)));
        assert_eq!(at("/properties/many/maximum"), Some(json!(u32::MAX)));
        assert_eq!(
            at("/properties/many/description"),
            Some(json!("How many of `Thing`, as it says."))
        );
        assert_eq!(at("/properties/some/minimum"), Some(json!(1)));
        assert_eq!(at("/properties/some/maximum"), Some(json!(3)));
        assert_eq!(at("/properties/list/items/maximum"), Some(json!(255)));
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused_with_those_that_do() {
        let refused = |json: serde_json::Value| {
            in_words(&serde_json::from_value::<(u16, i8, f64, bool)>(json).unwrap_err().to_string())
        };
        for (json, wanted) in [
            (
                json!([70_000, 0, 0, true]),
                "integer `70000`, expected a whole number from 0 to 65535",
            ),
            (json!([0, "x", 0, true]), "string \"x\", expected a whole number from -128 to 127"),
            (json!([0, 0, "x", true]), "string \"x\", expected a number"),
            // What is no type of numbers stays.
            (json!([0, 0, 0, 7]), "integer `7`, expected a boolean"),
        ] {
            let said = refused(json);
            assert!(said.ends_with(wanted), "{said}");
        }
        for other in ["expected usefulness", "expected i", "expected ", "µ"] {
            assert_eq!(in_words(other), other);
        }
    }

    #[test]
    fn brackets_that_are_no_links_stay() {
        for text in ["such as `[64, 600]`", "a [b] c", "[", "`[`x`]", "]["] {
            assert_eq!(plain(text), text);
        }
        assert_eq!(plain("see [`A`] and [b](c), [`d`](e)"), "see `A` and b, `d`");
    }
}
