//! What is read of kept state is one write's, never a mixture, whether its writer lives or died.
//!
//! Red under `WEIR_BROKEN=state`: a generation is seen before its bank.

use super::explore;
use crate::state::{Look, heap_state};
use loom::thread;

/// Bytes of a state: two words.
const ROOM: usize = 16;

fn state(n: u8) -> [u8; ROOM] {
    [n; ROOM]
}

#[test]
fn a_live_reader_gets_one_write_and_never_an_older_one_than_before() {
    explore(3, || {
        let (mut writer, reader) = heap_state(ROOM);
        let worker = thread::spawn(move || {
            for n in 1..=3 {
                writer.write(&state(n)).unwrap();
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            match reader.look() {
                Look::Moved => {}
                Look::Nothing => assert_eq!(last, 0, "the state went back"),
                Look::Damaged => panic!("torn state"),
                Look::Kept(found) => {
                    assert_eq!(found, state(found[0]), "torn state");
                    assert!(found[0] >= last, "the state went back");
                    last = found[0];
                }
            }
        }
        worker.join().unwrap();
        assert_eq!(reader.look(), Look::Kept(state(3).to_vec()));
    });
}

#[test]
fn a_writer_that_dies_before_the_generation_leaves_the_state_before() {
    explore(3, || {
        let (mut writer, reader) = heap_state(ROOM);
        let worker = thread::spawn(move || {
            writer.write(&state(1)).unwrap();
            // All of a write but its last store.
            writer.fill(&state(2));
        });
        let found = reader.look();
        let first = Look::Kept(state(1).to_vec());
        assert!(matches!(found, Look::Nothing | Look::Moved) || found == first, "torn state");
        worker.join().unwrap();
        assert_eq!(reader.look(), first);
    });
}

#[test]
fn what_was_cleared_when_its_writer_had_died_is_not_found_until_a_successor_writes() {
    explore(3, || {
        let (mut writer, mut agent) = heap_state(ROOM);
        let worker = thread::spawn(move || {
            writer.write(&state(1)).unwrap();
            writer
        });
        let mut writer = worker.join().unwrap();
        agent.clear();
        assert_eq!(agent.look(), Look::Nothing);
        let successor = thread::spawn(move || writer.write(&state(2)).unwrap());
        let found = agent.look();
        let second = Look::Kept(state(2).to_vec());
        assert!(matches!(found, Look::Nothing | Look::Moved) || found == second, "torn state");
        successor.join().unwrap();
        assert_eq!(agent.look(), second);
    });
}
