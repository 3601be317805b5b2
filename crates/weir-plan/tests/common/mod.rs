//! NF types for tests: enough for the paper's policies and the errors.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test binary uses a part")]

use serde_json::Value;
use weir_plan::{
    Catalog, Checked, ConfigProblem, NfInfo, Node, NodeId, ProgramId, TagInfo, TagKind, Work,
    check, render,
};

pub struct Types;

const TYPES: [(&str, &[&str], &[&str], bool); 12] = [
    ("MacSwap", &["in"], &["out"], true),
    ("CheckIpHeader", &["in"], &["ip", "non_ip"], false),
    ("L3L4Filter", &["in"], &["out"], false),
    ("Proxy", &["in"], &["out"], true),
    ("NAT", &["in"], &["out"], true),
    ("FW", &["in"], &["safe", "unsafe"], false),
    ("RateLimiter", &["prio0", "prio1"], &["out"], false),
    ("Sink", &["in"], &[], false),
    ("Clock", &[], &["out"], true),
    ("Theirs", &["in"], &["out"], false),
    ("Others", &["in"], &["out"], true),
    ("Maker", &["in"], &["out"], true),
];

fn tag(name: &str, kind: TagKind) -> TagInfo {
    TagInfo { name: name.to_owned(), kind }
}

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
            may_drop: *name == "L3L4Filter",
            domain: String::new(),
            resizes: false,
            creates: u8::from(*name == "Maker"),
            holds: 0,
            tags: match *name {
                "Proxy" => vec![tag("url", TagKind::Text), tag("score", TagKind::Number)],
                "FW" => vec![tag("clean", TagKind::Flag)],
                _ => Vec::new(),
            },
            work: Work::default(),
            program: match *name {
                "Theirs" => Some(ProgramId(0)),
                "Others" => Some(ProgramId(1)),
                _ => None,
            },
        })
    }

    fn types(&self) -> Vec<String> {
        TYPES.iter().map(|(name, ..)| (*name).to_owned()).collect()
    }

    /// `default` and each rule's `action` are "pass" or "drop"; nothing else is looked at.
    fn check_config(&self, _: &str, config: &Value) -> Result<(), ConfigProblem> {
        let mut actions = vec![("/default".to_owned(), config.get("default"))];
        for (i, rule) in
            config.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            actions.push((format!("/rules/{i}/action"), rule.get("action")));
        }
        for (path, action) in actions {
            if let Some(action) = action.filter(|action| **action != "pass" && **action != "drop") {
                return Err(ConfigProblem {
                    path,
                    why: format!("{action} is neither \"pass\" nor \"drop\""),
                });
            }
        }
        Ok(())
    }
}

/// The graph of a policy that must be right.
pub fn good(text: &str) -> Checked {
    check(text, &Types).unwrap_or_else(|errors| panic!("{}", render(&errors, "test.weir", text)))
}

pub fn node<'a>(checked: &'a Checked, name: &str) -> (NodeId, &'a Node) {
    let id = checked.graph.find(name).unwrap();
    (id, checked.graph.node(id).unwrap())
}

/// A node's branches as `output: [filter] -> to`.
pub fn branches(checked: &Checked, name: &str) -> Vec<String> {
    let (_, node) = node(checked, name);
    let mut out = Vec::new();
    for output in &node.outputs {
        for branch in &output.branches {
            let edge = checked.graph.edge(branch.edge).unwrap();
            let to = &checked.graph.node(edge.to).unwrap().name;
            let filter = branch.filter.as_ref().map(|f| format!("[{f}] ")).unwrap_or_default();
            out.push(format!("{}: {filter}-> {to}", output.name));
        }
    }
    out
}
