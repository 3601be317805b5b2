//! Any bytes as the flows of a µNF, as a worker of its domain may hand them over.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_fuzz::{Notes, planted};
use weir_nf::{FlowTable, Walk};

/// Seconds that are over when flows are read.
const NOW: u64 = 2_000_000_000;
const IDLE: u64 = 60_000_000_000;

fuzz_target!(|data: &[u8]| {
    let mut table = FlowTable::<Notes>::new(64, IDLE);
    if table.restore(NOW, data).is_err() {
        assert!(table.is_empty(), "all or nothing");
    }
    one_record(data);
    copied(data);
    let count = table.len();
    // What was accepted can be written down, read again, and moved one by one.
    let mut saved = Vec::new();
    table.save(&mut saved).expect("these states can be written");
    let mut again = FlowTable::<Notes>::new(64, IDLE);
    assert_eq!(again.restore(NOW, &saved).ok(), Some(count));
    let (mut walk, mut records) = (Walk::default(), Vec::new());
    let mut take = |table: &mut FlowTable<Notes>, records: &mut Vec<Vec<u8>>| {
        let more =
            table.take(&mut walk, (3, 2), |_, _| true, |_, record| records.push(record.to_vec()));
        more.expect("these states can be written")
    };
    while take(&mut again, &mut records) {}
    assert_eq!((again.len(), records.len()), (0, count));
    for record in &records {
        let key = again.put(NOW, record).expect("it was just taken");
        let mut taken = Vec::new();
        assert!(again.take_one(&key, &mut taken).is_ok_and(|there| there) && taken == *record);
    }
    // Time goes on: they end, and nothing is left.
    for second in 1..200 {
        table.expire(NOW + second * 1_000_000_000);
    }
    // Seeds' flows begin upward.
    planted(records.iter().any(|record| record.get(8) == Some(&1)));
});

/// As letters of a copy, each behind its length, and what is left.
fn copied(data: &[u8]) {
    let (mut table, mut data) = (FlowTable::<Notes>::new(64, IDLE), data);
    while let Some((len, more)) = data.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len));
        let Some((letter, more)) = more.split_at_checked(len) else { break };
        if table.take_precopied(NOW, letter).is_err() {
            table.forget_precopied();
            assert!(table.is_empty(), "all or nothing");
        }
        data = more;
    }
    if table.take_rest(NOW, data).is_err() {
        table.forget_precopied();
        assert!(table.is_empty(), "all or nothing");
    }
    // What was accepted can be written down, and ends.
    let (count, mut saved) = (table.len(), Vec::new());
    table.save(&mut saved).expect("these states can be written");
    let mut again = FlowTable::<Notes>::new(64, IDLE);
    assert_eq!(again.restore(NOW, &saved).ok(), Some(count));
    for second in 1..200 {
        table.expire(NOW + second * 1_000_000_000);
    }
}

fn one_record(data: &[u8]) {
    let mut table = FlowTable::<Notes>::new(4, IDLE);
    let put = table.put(NOW, data).is_ok();
    assert_eq!(table.len(), usize::from(put));
    // The same from a replica, where it has a number.
    let mut table = FlowTable::<Notes>::new(4, IDLE);
    assert_eq!(table.recover(2, NOW, data).is_ok(), put);
    assert_eq!(table.len(), usize::from(put));
}
