//! NF types for policies: each shape of inputs and outputs, and a configuration check that can fail.

use serde_json::Value;
use weir_plan::{Catalog, ConfigProblem, NfInfo, Work};

/// A small catalogue.
pub struct Types;

/// Name, inputs, outputs, writes packets.
const TYPES: [(&str, &[&str], &[&str], bool); 9] = [
    ("MacSwap", &["in"], &["out"], true),
    ("CheckIpHeader", &["in"], &["ip", "non_ip"], false),
    ("L3L4Filter", &["in"], &["out"], false),
    ("HttpClassifier", &["in"], &["http", "other"], false),
    ("CountUrl", &["in"], &["out"], false),
    ("ValidateUrl", &["in"], &["out"], false),
    ("RateLimiter", &["prio0", "prio1"], &["out"], false),
    ("Sink", &["in"], &[], false),
    ("Clock", &[], &["out"], true),
];

impl Catalog for Types {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let (name, inputs, outputs, writes_packets) =
            TYPES.iter().find(|(name, ..)| *name == type_name)?;
        let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        Some(NfInfo {
            alone_by: Vec::new(),
            name: (*name).to_owned(),
            inputs: strings(inputs),
            outputs: strings(outputs),
            writes_packets: *writes_packets,
            may_drop: matches!(*name, "L3L4Filter" | "ValidateUrl"),
            domain: String::new(),
            resizes: false,
            creates: 0,
            holds: 0,
            tags: Vec::new(),
            program: None,
            work: Work::default(),
        })
    }

    fn types(&self) -> Vec<String> {
        TYPES.iter().map(|(name, ..)| (*name).to_owned()).collect()
    }

    /// Refuses the first string `bad`, however deep, so that places in configurations are looked up.
    fn check_config(&self, _: &str, config: &Value) -> Result<(), ConfigProblem> {
        match find(config, "bad", String::new()) {
            Some(path) => Err(ConfigProblem { path, why: "this is bad".to_owned() }),
            None => Ok(()),
        }
    }
}

/// The JSON pointer (RFC 6901) of the first string `wanted`.
fn find(value: &Value, wanted: &str, path: String) -> Option<String> {
    match value {
        Value::String(text) => (text == wanted).then_some(path),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(i, value)| find(value, wanted, format!("{path}/{i}"))),
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            find(value, wanted, format!("{path}/{key}"))
        }),
        _ => None,
    }
}
