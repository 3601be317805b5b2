//! What `weir nf show` says of configurations is what is taken: at each bound of the schema a configuration is right,
//! and one further it is wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use weir_nf::{Env, registrations};
use weir_nfs as _;

/// A configuration of `nf` in which what is at `pointer` can be put to any value of the schema.
fn around(nf: &str, pointer: &str) -> Value {
    match (nf, pointer) {
        ("Policer", "/flow/peak_burst") => {
            json!({ "flow": { "rate": 1, "burst": 1, "peak_rate": 1 } })
        }
        ("Policer", "/total/peak_burst") => {
            json!({ "total": { "rate": 1, "burst": 1, "peak_rate": 1 } })
        }
        ("Policer", _) if pointer.starts_with("/total") => {
            json!({ "total": { "rate": 1, "burst": 1 } })
        }
        ("Policer", _) => json!({ "flow": { "rate": 1, "burst": 1 } }),
        (_, _) if pointer.starts_with("/rules/0") => json!({ "rules": [{ "action": "pass" }] }),
        ("L4LoadBalancer", _) if pointer.starts_with("/services/") => {
            let backends = json!([{ "address": "10.0.0.1" }]);
            json!({ "services": [{ "address": "192.0.2.80", "port": 80, "backends": backends }] })
        }
        ("LoadBalancer", _) => json!({ "backends": [0] }),
        ("PacketSizeHistogram", _) => json!({ "bounds": [1] }),
        _ => json!({}),
    }
}

/// Lists of so many different values, in an order that is taken.
fn list(nf: &str, at: &str, n: u64) -> Value {
    let values = (0..n).map(|i| match nf {
        "LoadBalancer" | "PacketSizeHistogram" => json!(i),
        "CountSubnet" => json!(format!("10.{}.{}.0/24", i >> 8, i & 255)),
        "Napt" => json!(format!("10.0.{}.{}", i >> 8, i & 255)),
        "L4LoadBalancer" if at == "/services" => {
            let backends = json!([{ "address": "10.0.0.1" }]);
            json!({ "address": format!("10.1.{}.{}", i >> 8, i & 255), "port": 80, "backends": backends })
        }
        "L4LoadBalancer" => json!({ "address": format!("10.0.{}.{}", i >> 8, i & 255) }),
        "L3L4Filter" | "ConnTrack" => json!({ "action": "pass" }),
        _ => panic!("{nf} has a list: say what stands in it"),
    });
    values.collect()
}

fn put(config: &mut Value, pointer: &str, value: Value) {
    if let Some(place) = config.pointer_mut(pointer) {
        *place = value;
        return;
    }
    let (object, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(object).unwrap()[key] = value;
}

fn right(nf: &str, config: &Value) -> Result<(), String> {
    let made = weir_nf::find(nf).unwrap().make(config, &Env::default());
    made.map(|_| ()).map_err(|e| e.to_string())
}

/// Integers, and lists, of a schema with their places.
#[derive(Default)]
struct Found {
    integers: Vec<(String, i128, i128)>,
    lists: Vec<(String, u64, Option<u64>)>,
    texts: Vec<String>,
}

fn look(root: &Value, schema: &Value, at: &str, found: &mut Found) {
    if let Some(text) = schema["description"].as_str() {
        found.texts.push(text.to_owned());
    }
    if let Some(to) = schema["$ref"].as_str() {
        look(root, root.pointer(to.trim_start_matches('#')).unwrap(), at, found);
    }
    for one in ["anyOf", "oneOf"].iter().filter_map(|key| schema[key].as_array()).flatten() {
        look(root, one, at, found);
    }
    let is = |kind: &str| {
        schema["type"] == kind
            || schema["type"].as_array().is_some_and(|all| all.contains(&json!(kind)))
    };
    if is("integer") {
        let bound = |key: &str| {
            let bound = &schema[key];
            bound.as_u64().map(i128::from).or(bound.as_i64().map(i128::from))
        };
        let bounds = bound("minimum").zip(bound("maximum"));
        let (least, most) = bounds.unwrap_or_else(|| panic!("{at} has no bounds: {schema}"));
        found.integers.push((at.to_owned(), least, most));
    }
    if is("array") {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        found.lists.push((at.to_owned(), least, schema["maxItems"].as_u64()));
        look(root, &schema["items"], &format!("{at}/0"), found);
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        look(root, property, &format!("{at}/{key}"), found);
    }
}

fn found(nf: &str) -> Found {
    let schema = weir_nf::find(nf).unwrap().schema().to_value();
    let mut found = Found::default();
    look(&schema, &schema, "", &mut found);
    found
}

fn names() -> Vec<&'static str> {
    registrations().iter().map(|r| r.descriptor.name).collect()
}

#[test]
fn every_integer_may_have_the_bounds_of_its_schema_and_nothing_beyond() {
    let mut count = 0;
    for nf in names() {
        for (at, least, most) in found(nf).integers {
            for (n, fits) in [(least, true), (most, true), (least - 1, false), (most + 1, false)] {
                // There are no numbers beyond these in JSON.
                let Some(number) = serde_json::Number::from_i128(n) else { continue };
                let mut config = around(nf, &at);
                put(&mut config, &at, Value::Number(number));
                let made = right(nf, &config);
                assert_eq!(made.is_ok(), fits, "{nf}: {at}: {n}: {made:?}");
                count += 1;
            }
        }
    }
    assert!(count > 60, "{count} bounds were tried");
}

#[test]
fn every_list_may_be_as_short_and_as_long_as_its_schema_says_and_no_more() {
    let mut count = 0;
    for nf in names() {
        for (at, least, most) in found(nf).lists {
            let most = most.unwrap_or_else(|| panic!("{nf}: {at} may have any length"));
            let lengths = [
                (Some(least), true),
                (Some(most), true),
                (least.checked_sub(1), false),
                (Some(most + 1), false),
            ];
            for (n, fits) in lengths {
                let Some(n) = n else { continue };
                // So many rules take long to compile, and that they are compiled is not asked here.
                if fits && n > 20_000 {
                    continue;
                }
                let mut config = around(nf, &at);
                put(&mut config, &at, list(nf, &at, n));
                let made = right(nf, &config);
                assert_eq!(made.is_ok(), fits, "{nf}: {at}: {n} of them: {made:?}");
                count += 1;
            }
        }
    }
    assert!(count > 12, "{count} lengths were tried");
}

#[test]
fn each_drop_reason_of_the_schema_is_one_and_nothing_else_is() {
    let schema = weir_nf::find("Drop").unwrap().schema().to_value();
    let reasons = schema.pointer("/properties/reason/enum").unwrap().as_array().unwrap();
    assert!(reasons.len() > 10);
    for reason in reasons {
        assert_eq!(right("Drop", &json!({ "reason": reason })), Ok(()));
    }
    assert!(right("Drop", &json!({ "reason": "bored" })).is_err());
}

#[test]
fn texts_are_one_line_for_operators() {
    for nf in names() {
        for text in found(nf).texts {
            for mark in ["\n", "](", "[`", "`]", "crate::", "Kept as JSON"] {
                assert!(!text.contains(mark), "{nf}: {text}");
            }
        }
    }
}
