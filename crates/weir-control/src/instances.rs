//! Several instances of an NF, reported as the one that the policy has.

use crate::report::NodeReport;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::catch_unwind;

/// One of several instances of an NF.
#[derive(Debug, Clone, Serialize)]
pub struct InstanceReport {
    /// Which one it is, from 1.
    pub instance: u32,
    /// Name of the worker that ran it.
    pub worker: String,
    /// Packets in.
    pub packets: u64,
    /// Bytes in.
    pub bytes: u64,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Nanoseconds per packet in the µNF itself, from a sample; absent when nothing was sampled.
    pub ns_per_packet: Option<f64>,
    /// What the µNF itself has to say.
    pub report: Value,
}

/// Makes one row of the rows of each NF that `groups` names, where its first stood. Counters are added, and what
/// the instances report is merged as their type merges state.
pub(crate) fn fold<'g>(rows: &mut Vec<NodeReport>, groups: impl Iterator<Item = &'g str>) {
    for name in groups {
        let of = |row: &NodeReport| row.name == name && row.kind != "rx" && row.kind != "tx";
        let Some(at) = rows.iter().position(of) else { continue };
        let (parts, others): (Vec<_>, Vec<_>) = std::mem::take(rows).into_iter().partition(of);
        *rows = others;
        rows.insert(at, one_of(parts));
    }
}

fn one_of(parts: Vec<NodeReport>) -> NodeReport {
    let mut all = NodeReport {
        name: String::new(),
        instance: 1,
        kind: String::new(),
        worker: String::new(),
        packets: 0,
        bytes: 0,
        drops: BTreeMap::new(),
        ns_per_packet: None,
        report: Value::Null,
        instances: Vec::with_capacity(parts.len()),
        removed: false,
    };
    let (mut timed, mut weight) = (0.0, 0.0);
    let mut workers: Vec<String> = Vec::new();
    for part in parts {
        // One that was named for nonsense is called `quarantined`; the others still have their type.
        if all.kind.is_empty() || all.kind == "quarantined" {
            all.kind = part.kind;
        }
        all.name = part.name;
        all.packets = all.packets.wrapping_add(part.packets);
        all.bytes = all.bytes.wrapping_add(part.bytes);
        for (reason, count) in &part.drops {
            let sum = all.drops.entry(*reason).or_default();
            *sum = sum.wrapping_add(*count);
        }
        if let Some(ns) = part.ns_per_packet {
            timed += ns * part.packets as f64;
            weight += part.packets as f64;
        }
        if !workers.contains(&part.worker) {
            workers.push(part.worker.clone());
        }
        all.instances.push(InstanceReport {
            instance: part.instance,
            worker: part.worker,
            packets: part.packets,
            bytes: part.bytes,
            drops: part.drops,
            ns_per_packet: part.ns_per_packet,
            report: part.report,
        });
    }
    all.ns_per_packet = (weight > 0.0).then(|| timed / weight);
    all.worker = workers.join(", ");
    let reports: Vec<Value> = all.instances.iter().map(|one| one.report.clone()).collect();
    all.report = together(&all.kind, reports);
    all
}

/// What the instances report, as one of them. An NF of an outside program has its code there, and not here: then
/// the list of what each says.
fn together(kind: &str, reports: Vec<Value>) -> Value {
    if reports.iter().all(Value::is_null) {
        return Value::Null;
    }
    let found = weir_nf::find(kind).ok();
    // What workers say need not be true, and the µNF's code may not expect it.
    let merged = found.and_then(|nf| catch_unwind(|| nf.together(&reports)).ok().flatten());
    merged.unwrap_or(Value::Array(reports))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(name: &str, kind: &str, worker: &str, packets: u64, report: Value) -> NodeReport {
        NodeReport {
            name: name.to_owned(),
            instance: 1,
            kind: kind.to_owned(),
            worker: worker.to_owned(),
            packets,
            bytes: 10 * packets,
            drops: BTreeMap::from([("policy", packets)]),
            ns_per_packet: Some(packets as f64),
            report,
            instances: Vec::new(),
            removed: false,
        }
    }

    #[test]
    fn instances_are_one_row_with_summed_counters_and_each_is_still_told() {
        let mut rows = vec![
            row("rx:a", "rx", "rx:a", 9, Value::Null),
            row("a", "MacSwap", "a#1", 1, Value::Null),
            row("b", "MacSwap", "b", 5, Value::Null),
            row("a", "MacSwap", "a#2", 3, Value::Null),
        ];
        fold(&mut rows, ["a", "gone"].into_iter());
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["rx:a", "a", "b"]);
        let a = &rows[1];
        assert_eq!((a.packets, a.bytes, a.drops["policy"]), (4, 40, 4));
        assert_eq!((a.worker.as_str(), a.ns_per_packet), ("a#1, a#2", Some(2.5)));
        let parts: Vec<_> = a.instances.iter().map(|i| (i.worker.as_str(), i.packets)).collect();
        assert_eq!(parts, [("a#1", 1), ("a#2", 3)]);
        assert!(rows[2].instances.is_empty());
    }

    #[test]
    fn what_no_code_here_can_merge_is_told_as_a_list() {
        assert_eq!(together("NoSuch", vec![json!({ "n": 1 }), json!(2)]), json!([{ "n": 1 }, 2]));
        assert_eq!(together("NoSuch", vec![Value::Null, Value::Null]), Value::Null);
    }
}
