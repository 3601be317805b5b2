//! The table of pairs in docs/parallel-pairs.md.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::conflict::judge;
use crate::catalog::NfInfo;
use crate::fields::FieldSet;

/// Which of these types may stand side by side, and why not, as Markdown.
#[must_use]
pub fn pairs_table(types: &[NfInfo]) -> String {
    let mut out = String::from(
        "# Which µNFs may work side by side\n\n\
         Generated from the descriptions of the library's µNFs; a test keeps it current \
         (`cargo test -p weir-control --test pairs` writes it anew with `WEIR_WRITE_DOCS=1`). \
         [planning.md](planning.md#parallel-stages) has the rules.\n\n\
         Rows come first in the chain, columns second. ✓: allowed. **d**: the first may drop. **m**: one \
         makes or holds packets. **w**: one writes what the other touches. **t**: both have a tag. \
         **o**: both have effects outside. **r**: one adds or removes headers.\n\n|  |",
    );
    // Writing to a string cannot fail: here and below.
    for number in 1..=types.len() {
        let _ = write!(out, " {number} |");
    }
    out.push_str("\n|---|");
    out.push_str(&":-:|".repeat(types.len()));
    out.push('\n');
    for (first, number) in types.iter().zip(1_usize..) {
        let _ = write!(out, "| {number} {} |", first.name);
        for second in types {
            let sign = judge(first, second).map_or_else(|why| why.letter(), |_| '✓');
            let _ = write!(out, " {sign} |");
        }
        out.push('\n');
    }
    out.push_str("\n## What each touches\n\nWhat it needs to find a field, and checksums over what it writes, included.\n\n");
    out.push_str("| | reads | writes | |\n|---|---|---|---|\n");
    for nf in types {
        let touched = nf.work.touched();
        let mut more = Vec::new();
        let facts = [
            (nf.may_drop, "may drop"),
            (nf.resizes, "adds or removes headers"),
            (nf.creates > 0, "makes packets"),
            (nf.holds > 0, "holds packets"),
            (nf.work.effect == crate::describe::Effect::External, "effects outside"),
        ];
        more.extend(facts.iter().filter(|(is, _)| *is).map(|(_, what)| (*what).to_owned()));
        more.extend(nf.tags.iter().map(|tag| format!("tag `{}`", tag.name)));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            nf.name,
            words(touched.reads),
            words(touched.writes),
            more.join(", ")
        );
    }
    out.push_str("\n## Why not\n\n| first | second | why |\n|---|---|---|\n");
    for first in types {
        let mut seconds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for second in types {
            if let Err(why) = judge(first, second) {
                seconds.entry(why.to_string()).or_default().push(&second.name);
            }
        }
        for (why, names) in seconds {
            let names =
                if names.len() == types.len() { "any".to_owned() } else { names.join(", ") };
            let _ = writeln!(out, "| {} | {names} | {why} |", first.name);
        }
    }
    out.push_str("\n## Why\n\n| first | second | why |\n|---|---|---|\n");
    for first in types {
        let mut seconds: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for second in types {
            if let Ok(why) = judge(first, second) {
                seconds.entry(why.to_string()).or_default().push(&second.name);
            }
        }
        for (why, names) in seconds {
            let _ = writeln!(out, "| {} | {} | {why} |", first.name, names.join(", "));
        }
    }
    out
}

/// The fields, whole layers by their names.
fn words(set: FieldSet) -> String {
    let layers = [
        (FieldSet::L2, "layer 2"),
        (FieldSet::L3, "layer 3"),
        (FieldSet::L4, "layer 4"),
        (FieldSet::PAYLOAD, "payload"),
    ];
    let mut words = Vec::new();
    for (layer, name) in layers {
        match set.and(layer) {
            part if part == layer => words.push(name.to_owned()),
            part => words.extend(part.iter().map(|field| field.name().to_owned())),
        }
    }
    if words.is_empty() { "–".to_owned() } else { words.join(", ") }
}
