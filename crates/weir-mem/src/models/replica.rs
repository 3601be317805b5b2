//! What is read of a replica is one commit's records, never a mixture, whether its writer lives or died.
//!
//! Red under `WEIR_BROKEN=replica`: a record is written over the one that counts.

use super::{dies_at, explore};
use crate::fault::{self, Step};
use crate::ledger::heap_ledger;
use crate::replica::{ReplicaTable, heap_replica};
use loom::thread;

/// The records of both slots as of the commit of batch `committed`.
fn records(replica: &ReplicaTable, committed: u64) -> [Option<u64>; 2] {
    [0, 1].map(|slot| {
        let record = replica.record(slot, committed)?;
        Some(u64::from_le_bytes(record.try_into().unwrap()))
    })
}

fn write(replica: &mut ReplicaTable, batch: u64) {
    for slot in [0, 1] {
        replica.put(slot, &batch.to_le_bytes(), batch).unwrap();
    }
}

#[test]
fn a_live_reader_gets_one_batch_or_learns_that_a_later_one_is_committed() {
    explore(2, || {
        let (mut replica, reader) = heap_replica();
        let (mut writer, ledger) = heap_ledger(1);
        write(&mut replica, 1);
        writer.commit(&[1]);
        let worker = thread::spawn(move || {
            for batch in 2..=3 {
                write(&mut replica, batch);
                writer.commit(&[batch]);
            }
        });
        if let Some(before) = ledger.read() {
            let found = records(&reader, before[0]);
            if ledger.read() == Some(before.clone()) {
                assert_eq!(found, [Some(before[0]); 2], "torn batch");
            }
        }
        worker.join().unwrap();
        assert_eq!(records(&reader, 3), [Some(3); 2]);
    });
}

#[test]
fn a_writer_that_dies_at_any_step_leaves_exactly_what_was_committed() {
    for step in [Step::HalfReplicated, Step::Banked] {
        explore(2, move || {
            let (mut replica, mut successor) = heap_replica();
            let (mut writer, ledger) = heap_ledger(1);
            let worker = thread::spawn(move || {
                for batch in 1..=2 {
                    write(&mut replica, batch);
                    writer.commit(&[batch]);
                }
                dies_at(step, || {
                    write(&mut replica, 3);
                    writer.commit(&[3]);
                })
            });
            assert!(worker.join().unwrap(), "nobody died");
            let committed = ledger.read().unwrap()[0];
            assert_eq!(committed, 2);
            assert_eq!(records(&successor, committed), [Some(2); 2], "a batch was taken back");
            // What was not committed does not come to count with what the successor commits.
            successor.reopen(committed, |_, found| found.record().is_some());
            successor.put(0, &4u64.to_le_bytes(), 3).unwrap();
            assert_eq!(records(&successor, 3), [Some(4), Some(2)]);
        });
    }
}
