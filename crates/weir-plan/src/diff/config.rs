//! What differs between two configurations, in words.

use serde_json::Value;

/// The most differences that are told.
const MOST: usize = 20;

/// Each difference with where it is, as in `rules[2].proto: "tcp" becomes "udp"`; in the order of the keys,
/// at most [`MOST`] and a word on the rest.
pub(super) fn differences(from: &Value, to: &Value) -> String {
    let mut found = Vec::new();
    compare(String::new(), Some(from), Some(to), &mut found);
    let left = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    if left > 0 {
        found.push(format!("and {left} more"));
    }
    found.join("; ")
}

fn compare(at: String, from: Option<&Value>, to: Option<&Value>, found: &mut Vec<String>) {
    let place = if at.is_empty() { String::new() } else { format!("{at}: ") };
    match (from, to) {
        (Some(from), Some(to)) if from == to => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let dot = if at.is_empty() { "" } else { "." };
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                compare(format!("{at}{dot}{key}"), old.get(key), new.get(key), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            // What both begin and end with stays, wherever it is moved to.
            let same = |(a, b): &(&Value, &Value)| a == b;
            let before = old.iter().zip(new).take_while(same).count();
            let rest = old.len().min(new.len()).saturating_sub(before);
            let behind = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(same).count();
            let old = old.get(before..old.len().saturating_sub(behind)).unwrap_or_default();
            let new = new.get(before..new.len().saturating_sub(behind)).unwrap_or_default();
            for i in 0..old.len().max(new.len()) {
                let at = format!("{at}[{}]", before.saturating_add(i));
                compare(at, old.get(i), new.get(i), found);
            }
        }
        (Some(from), Some(to)) => found.push(format!("{place}{from} becomes {to}")),
        (Some(from), None) => found.push(format!("{place}{from} is left out")),
        (None, Some(to)) => found.push(format!("{place}{to} is new")),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::differences;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_told_with_its_place() {
        for (from, to, told) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), "b: 2 becomes 3"),
            (json!({}), json!({"max": 5}), "max: 5 is new"),
            (json!({"max": 5}), json!({}), "max: 5 is left out"),
            (
                json!({"r": [{"p": 1, "q": 2}, {"p": 3}]}),
                json!({"r": [{"p": 1, "q": 4}, {"p": 3}]}),
                "r[0].q: 2 becomes 4",
            ),
            (json!({"r": [1, 2, 3]}), json!({"r": [1, 9, 2, 3]}), "r[1]: 9 is new"),
            (json!({"r": [1, 2, 3]}), json!({"r": [1, 3]}), "r[1]: 2 is left out"),
            (json!({"a": 1}), json!({"a": [1]}), "a: 1 becomes [1]"),
            (json!(1), json!(2), "1 becomes 2"),
        ] {
            assert_eq!(differences(&from, &to), told, "{from} {to}");
        }
    }

    #[test]
    fn many_differences_are_counted() {
        let many = |n: u32| json!((0..30).map(|i| i * n).collect::<Vec<u32>>());
        let told = differences(&many(1), &many(2));
        assert!(told.starts_with("[1]: 1 becomes 2; [2]: 2 becomes 4; "), "{told}");
        assert!(told.ends_with("; and 9 more"), "{told}");
    }
}
