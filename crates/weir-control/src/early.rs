//! What a live source says of the packets that it gave up early: how many of each class.

use serde_json::{Value, json};
use weir_runtime::layout::Layout;
use weir_runtime::spec::EarlySpec;

/// The class of what no other takes.
const REST: &str = "everything else";

/// Early drops of a source with these classes, from its ledger; nothing where there are none.
pub(crate) fn report(classes: &[EarlySpec], words: &[u64], layout: &Layout) -> Value {
    if classes.is_empty() {
        return Value::Null;
    }
    let named = classes.iter().map(|class| (class.text.as_str(), class.weight)).chain([(REST, 1)]);
    let rows = named.enumerate().map(|(i, (class, weight))| {
        let dropped = words.get(layout.classes + i).copied().unwrap_or(0);
        json!({ "class": class, "weight": weight, "dropped": dropped })
    });
    json!({ "early_drop": rows.collect::<Vec<_>>() })
}

/// Adds the early drops of a generation before, whose classes may be others.
pub(crate) fn add(own: &mut Value, earlier: Value) {
    let Some(Value::Array(rows)) = earlier.get("early_drop").cloned() else { return };
    let Some(sums) = own.get_mut("early_drop").and_then(Value::as_array_mut) else {
        *own = earlier;
        return;
    };
    for row in rows {
        let same = |sum: &&mut Value| sum["class"] == row["class"];
        match sums.iter_mut().find(same) {
            Some(sum) => {
                let both = [&sum["dropped"], &row["dropped"]].map(|n| n.as_u64().unwrap_or(0));
                sum["dropped"] = both[0].wrapping_add(both[1]).into();
            }
            None => sums.push(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_add_up_by_class() {
        let row = |class: &str, n: u64| json!({ "class": class, "weight": 1, "dropped": n });
        let mut own = json!({ "early_drop": [row("udp", 3), row(REST, 1)] });
        add(&mut own, json!({ "early_drop": [row("tcp", 5), row(REST, 4)] }));
        add(&mut own, Value::Null);
        assert_eq!(own["early_drop"], json!([row("udp", 3), row(REST, 5), row("tcp", 5)]));
        let mut none = Value::Null;
        add(&mut none, own.clone());
        assert_eq!(none, own);
    }
}
