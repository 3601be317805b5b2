//! What `--dump-drops` writes, and what it has to.

use std::collections::BTreeMap;
use std::path::Path;
use weir_capture::Reader;
use weir_oracle::Outcome;

/// Bytes, wire length, nanoseconds, comment: how often.
pub type Drops = BTreeMap<(Vec<u8>, u32, u64, String), u64>;

/// What the file has.
pub fn dumped(path: &Path) -> Drops {
    let mut reader = Reader::open(path).unwrap();
    let mut drops = Drops::new();
    while let Some(r) = reader.next().unwrap() {
        let comment = String::from_utf8(r.comment.unwrap().to_vec()).unwrap();
        *drops.entry((r.bytes.to_vec(), r.wire_len, r.time.to_ns(), comment)).or_default() += 1;
    }
    assert!(reader.warning().is_none(), "{}: {:?}", path.display(), reader.warning());
    drops
}

/// Those of the oracle that `by` takes.
pub fn discarded(outcome: &Outcome, by: impl Fn(&str) -> bool) -> Drops {
    let mut drops = Drops::new();
    for d in outcome.discarded.iter().filter(|d| by(&d.by)) {
        let comment = format!("{} by {}", d.reason, d.by);
        let packet = (d.packet.bytes.clone(), d.packet.wire_len, d.packet.time.to_ns(), comment);
        *drops.entry(packet).or_default() += 1;
    }
    drops
}
