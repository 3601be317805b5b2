//! A copy of the ledger is one commit's words, never a mixture, whether its writer lives or died.
//!
//! Red under `WEIR_BROKEN=ledger`: a generation is seen before its bank.

use super::{dies_at, explore};
use crate::fault::{self, Step};
use crate::ledger::heap_ledger;
use loom::thread;

const COMMITS: u64 = 3;

#[test]
fn a_live_reader_gets_one_commit_and_never_an_older_one_than_before() {
    explore(3, || {
        let (mut writer, reader) = heap_ledger(2);
        let worker = thread::spawn(move || {
            for n in 1..=COMMITS {
                writer.commit(&[n, 10 * n]);
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            if let Some(words) = reader.read() {
                assert_eq!(words[1], 10 * words[0], "torn copy");
                assert!(words[0] >= last, "the ledger went back");
                last = words[0];
            }
        }
        worker.join().unwrap();
        assert_eq!(reader.read(), Some(vec![COMMITS, 10 * COMMITS]));
    });
}

#[test]
fn a_writer_that_dies_before_the_generation_leaves_the_commit_before() {
    explore(3, || {
        let (mut writer, reader) = heap_ledger(2);
        let worker = thread::spawn(move || {
            writer.commit(&[1, 10]);
            dies_at(Step::Banked, || writer.commit(&[2, 20]));
        });
        let read = reader.read();
        assert!(read == Some(vec![0, 0]) || read == Some(vec![1, 10]), "torn copy: {read:?}");
        worker.join().unwrap();
        assert_eq!(reader.read(), Some(vec![1, 10]));
    });
}
